//! Reading another copy of a file where one cannot be read, if users ask for that.
//!
//! A copy is what has the same path below another branch. Nobody knows whether it holds the same bytes: that is said once for each open file that
//! goes on with one, and such a file stays with it.
//!
//! The kernel keeps what is read as that of the file, and gives it to everybody who may read that. So a copy is read only if it may be read by the very
//! same users.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;

use parking_lot::Mutex;
use shuntfs::{ByteRange, Cx, Errno, Filled, LowerFile, ReadReply, Result};
use shuntfs_sys::open::open_beneath;
use shuntfs_sys::xattr::get_xattr;
use shuntfs_sys::{OsError, path_of, stat_of};

use crate::error::errno;
use crate::file::PoolFile;
use crate::mode;
use crate::node::Node;
use crate::pool::Pool;
use crate::shared::Shared;

/// What is known of the copies of an open file.
#[derive(Debug)]
pub(crate) struct Copies {
    /// The path below each branch.
    path: CString,
    /// Who may read the file.
    readers: Readers,
    state: Mutex<State>,
}

/// Who may read a file, as its mode says: its owner, its group, and which of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Readers {
    uid: u32,
    gid: u32,
    bits: u32,
}

#[derive(Debug, Default)]
struct State {
    /// The branches that were tried.
    tried: Vec<u16>,
    /// The one that is read.
    copy: Option<Arc<LowerFile>>,
}

impl Copies {
    /// For a file that is opened for reading alone, where users ask for it and its path is known.
    pub(crate) fn of(shared: &Shared, node: &Arc<Node>, flags: u32) -> Option<Self> {
        let asks = shared.merge.as_ref().is_some_and(|merge| merge.options.read_copies);
        if !asks || flags & mode::O_ACCMODE != mode::O_RDONLY || !node.is_file() {
            return None;
        }
        let branch = shared.branch(node.mount());
        // Both as of now: somebody may have moved the branch.
        let descriptor = shared.descriptor(node).ok()?;
        let readers = Readers::of(&descriptor).ok()??;
        let below = path_of(&*descriptor).ok()?;
        let path = below.strip_prefix(path_of(&**branch.root()).ok()?).ok()?;
        let path = CString::new(path.as_os_str().as_bytes()).ok()?;
        let tried = vec![node.mount().branch];
        Some(Self { path, readers, state: Mutex::new(State { tried, copy: None }) })
    }

    /// The copy that is read since the file itself could not be.
    fn current(&self) -> Option<Arc<LowerFile>> {
        self.state.lock().copy.clone()
    }

    /// The next copy, after an error; `None` where there is none that may be read, or the error is none of a disk.
    fn next(&self, shared: &Shared, error: Errno) -> Option<Arc<LowerFile>> {
        const OF_DISKS: [Errno; 5] = [Errno::IO, Errno::NODEV, Errno::NXIO, Errno::NOTCONN, Errno::TIMEDOUT];
        if !OF_DISKS.contains(&error) {
            return None;
        }
        let order = shared.branches.order();
        loop {
            let number = {
                let mut state = self.state.lock();
                let next = order.iter().copied().find(|number| !state.tried.contains(number))?;
                state.tried.push(next);
                next
            };
            let branch = shared.branches.at(number);
            if branch.health.is_aside() {
                continue;
            }
            match shared.under_way(|| self.open_on(shared, number)) {
                Ok(copy) => {
                    let path = branch.source().join(self.path.to_string_lossy().as_ref());
                    tracing::warn!(%error, ?path, "a file cannot be read: a copy is read, which may be another version");
                    let copy = Arc::new(copy);
                    self.state.lock().copy = Some(Arc::clone(&copy));
                    return Some(copy);
                }
                Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(error) => {
                    tracing::warn!(%error, branch = ?branch.source(), "no copy of a file that cannot be read");
                }
            }
        }
    }

    /// Opens the copy on a branch, where it is a file that the same users may read.
    fn open_on(&self, shared: &Shared, number: u16) -> Result<LowerFile> {
        crate::branch::touches(number);
        let branch = shared.branches.at(number);
        let flags = mode::O_RDONLY | mode::O_NONBLOCK;
        let file = LowerFile::new(shared.opening(|| open_beneath(&**branch.root(), &self.path, flags))?);
        if !stat_of(&file).map_err(errno)?.is_file() {
            return Err(Errno::NOENT);
        }
        if Readers::of(&file)? == Some(self.readers) {
            Ok(file.counted_by(Arc::clone(branch.traffic())))
        } else {
            Err(Errno::ACCES)
        }
    }
}

impl Readers {
    /// Those of a file; `None` where its mode alone does not say who may read it.
    ///
    /// # Errors
    /// Those of asking.
    fn of(file: &LowerFile) -> Result<Option<Self>> {
        let stat = stat_of(file).map_err(errno)?;
        let has_acl = !matches!(
            get_xattr(file, c"system.posix_acl_access", &mut []),
            Err(OsError::NODATA | OsError::OPNOTSUPP)
        );
        Ok((!has_acl).then_some(Self { uid: stat.uid, gid: stat.gid, bits: stat.mode & 0o444 }))
    }
}

/// READ of a file whose copies may be read.
pub(crate) async fn read<'q>(
    pool: &Pool,
    cx: &Cx<'_>,
    (file, copies): (&PoolFile, &Copies),
    at: ByteRange,
    reply: ReadReply<'q>,
) -> Result<Filled<'q>> {
    let shared = &pool.shared;
    let own = || shared.reaches(file.node.mount()).and_then(|()| file.mover(shared));
    let next = |error: Errno| copies.next(shared, error);
    let lower = copies.current().map_or_else(own, Ok).or_else(|error| next(error).ok_or(error))?;
    reply.read_from_or(cx, &lower, at.offset, next).await
}

#[cfg(test)]
mod test {
    use std::fs::{self, File, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, chown};

    use super::*;

    /// The bytes of a copy that was its owner's alone came to everybody who had the file open, by the kernel's pages.
    #[test]
    fn only_what_the_same_users_may_read_is_a_copy() {
        let top = tempfile::tempdir().unwrap();
        let readers = |name: &str, mode: u32, owner: Option<u32>| {
            let path = top.path().join(name);
            fs::write(&path, "text").unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            if owner.is_some() && chown(&path, owner, None).is_err() {
                return None;
            }
            Readers::of(&LowerFile::new(File::open(&path).unwrap().into())).unwrap()
        };
        let file = readers("file", 0o644, None).unwrap();
        assert_eq!(readers("writable", 0o755, None), Some(file));
        for mode in [0o600, 0o640, 0o604] {
            assert_ne!(readers("other", mode, None), Some(file), "{mode:o}");
        }
        if rustix::process::geteuid().is_root() {
            assert_ne!(readers("owned", 0o644, Some(4711)), Some(file));
        }
    }
}
