//! Reading another copy of a file where one cannot be read, if users ask for that.
//!
//! A copy is what has the same path below another branch. Nobody knows whether it holds the same bytes: that is said once for each open file that
//! goes on with one, and such a file stays with it.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;

use parking_lot::Mutex;
use shuntfs::{ByteRange, Cx, Errno, Filled, LowerFile, ReadReply, Result};
use shuntfs_sys::open::open_beneath;
use shuntfs_sys::xattr::get_xattr;
use shuntfs_sys::{Stat, path_of, stat_of};

use crate::error::errno;
use crate::file::PoolFile;
use crate::mode;
use crate::node::Node;
use crate::pool::Pool;
use crate::shared::Shared;
use crate::who::Who;

/// What is known of the copies of an open file.
#[derive(Debug)]
pub(crate) struct Copies {
    /// The path below each branch.
    path: CString,
    state: Mutex<State>,
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
        let below = path_of(&*shared.descriptor(node).ok()?).ok()?;
        let path = below.strip_prefix(path_of(&**branch.root()).ok()?).ok()?;
        let path = CString::new(path.as_os_str().as_bytes()).ok()?;
        let tried = vec![node.mount().branch];
        Some(Self { path, state: Mutex::new(State { tried, copy: None }) })
    }

    /// The copy that is read since the file itself could not be.
    fn current(&self) -> Option<Arc<LowerFile>> {
        self.state.lock().copy.clone()
    }

    /// The next copy, after an error; `None` where there is none that the caller may read, or the error is none of a disk.
    fn next(&self, shared: &Shared, who: Who, error: Errno) -> Option<Arc<LowerFile>> {
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
            match shared.under_way(|| self.open_on(shared, number, who)) {
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

    /// Opens the copy on a branch, where it is a file that the caller may read.
    fn open_on(&self, shared: &Shared, number: u16, who: Who) -> Result<LowerFile> {
        crate::branch::touches(number);
        let branch = shared.branches.at(number);
        let flags = mode::O_RDONLY | mode::O_NONBLOCK;
        let fd = shared.opening(|| open_beneath(&**branch.root(), &self.path, flags))?;
        let stat = stat_of(&fd).map_err(errno)?;
        // Only who may read the file itself has it open. With an ACL, the mode does not say who may read the copy.
        let has_acl = || get_xattr(&fd, c"system.posix_acl_access", &mut []).is_ok();
        let may_read = who.uid() == 0 || allows(who, &stat) && !has_acl();
        match (stat.is_file(), may_read) {
            (false, _) => Err(Errno::NOENT),
            (true, false) => Err(Errno::ACCES),
            (true, true) => Ok(LowerFile::new(fd).counted_by(Arc::clone(branch.traffic()))),
        }
    }
}

/// Whether the mode of a file lets somebody read it. Where it is not known whether they are in its group, it must let both read it.
fn allows(who: Who, stat: &Stat) -> bool {
    let (of_owner, of_group, of_others) =
        (stat.mode & 0o400 != 0, stat.mode & 0o040 != 0, stat.mode & 0o004 != 0);
    if stat.uid == who.uid() {
        return of_owner;
    }
    match who.supplementary() {
        _ if stat.gid == who.gid() => of_group,
        Some(groups) if groups.contains(&stat.gid) => of_group,
        Some(_) => of_others,
        None => of_group && of_others,
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
    let (shared, who) = (&pool.shared, Who::of(cx));
    let own = || shared.reaches(file.node.mount()).and_then(|()| file.mover(shared));
    let next = |error: Errno| copies.next(shared, who, error);
    let lower = copies.current().map_or_else(own, Ok).or_else(|error| next(error).ok_or(error))?;
    reply.read_from_or(cx, &lower, at.offset, next).await
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_copy_is_for_whom_its_mode_allows() {
        let stat = |mode: u32| Stat { uid: 1, gid: 2, mode, ..Stat::default() };
        // Without a process nobody knows the groups of who asks.
        for (uid, gid, mode, allowed) in [
            (1, 9, 0o400, true),
            (1, 2, 0o044, false),
            (5, 2, 0o040, true),
            (5, 2, 0o004, false),
            (5, 9, 0o044, true),
            (5, 9, 0o004, false),
            (5, 9, 0o040, false),
        ] {
            assert_eq!(allows(Who::told(uid, gid), &stat(mode)), allowed, "{uid} {gid} {mode:o}");
        }
    }
}
