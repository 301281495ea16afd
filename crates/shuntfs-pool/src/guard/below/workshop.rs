//! A folder in which a copy is made on a branch whose file system makes no file without a name.
//!
//! By the time that a copy gets its name it has the owner and the mode of its file, which may be in a folder that others may not enter. So until then it is
//! in a folder that nobody but the server's user may enter, in the top folder of the branch: nobody opens it there, nor moves it to where it is
//! taken for something else.

use std::ffi::{CStr, CString};
use std::sync::Arc;

use shuntfs::{Errno, LowerFile, Result};
use shuntfs_sys::spawn::effective_uid;
use shuntfs_sys::{
    FlockOp, OsError, flock, link_to, mkdir_at, open_at, open_path_at, rename_at, rmdir_at, stat_at, stat_of,
    unlink_at,
};

use crate::error::errno;
use crate::merge::temporary_name;
use crate::mode;
use crate::shared::Shared;

/// What a copy is called in there.
const COPY: &CStr = c"copy";
/// What others than the owner may do.
const OTHERS: u32 = 0o077;

/// Such a folder. It goes with this, and the copy with it, unless that got a name elsewhere.
#[derive(Debug)]
pub(super) struct Workshop {
    top: Arc<LowerFile>,
    name: CString,
    dir: LowerFile,
}

impl Workshop {
    /// Makes one in the top folder of a branch, and an empty copy in it.
    ///
    /// # Errors
    /// Those of making them; ESTALE where somebody has put another folder in its place.
    pub(super) fn make(shared: &Shared, top: &Arc<LowerFile>) -> Result<(Self, LowerFile)> {
        let name = temporary_name();
        mkdir_at(&**top, &name, 0o700).map_err(errno)?;
        let made = shared.opening(|| open_path_at(&**top, &name)).inspect_err(|_| {
            // Else it is left, empty.
            let _is_removed = rmdir_at(&**top, &name);
        })?;
        let shop = Self { top: Arc::clone(top), name, dir: LowerFile::new(made) };
        let flags = mode::O_CREAT | mode::O_EXCL | mode::O_RDWR;
        let file = LowerFile::new(shared.opening(|| open_at(&shop.dir, COPY, flags, 0o600))?);
        check_closed(&shop.dir, &file)?;
        // Who removes unfinished ones leaves it alone.
        flock(&file, FlockOp::Exclusive, false).map_err(errno)?;
        Ok((shop, file))
    }

    /// Gives the copy a name elsewhere on its branch.
    ///
    /// # Errors
    /// Those of the calls; EEXIST where something has the name.
    pub(super) fn give(&self, copy: &LowerFile, to: &LowerFile, name: &CStr) -> shuntfs_sys::Result<()> {
        match rename_at(&self.dir, COPY, to, name, mode::RENAME_NOREPLACE) {
            // A file system that cannot be told not to replace anything can give a second name.
            Err(OsError::INVAL | OsError::NOSYS | OsError::OPNOTSUPP) => {
                link_to(copy, to, name)?;
                unlink_at(&self.dir, COPY)
            }
            renamed => renamed,
        }
    }
}

/// Refuses what is not the folder that was just made: whoever may write to the one around it may have put one of their own in its place, or one that is
/// open to others. A file system that keeps no modes shows the file in it open to them, too.
fn check_closed(dir: &LowerFile, file: &LowerFile) -> Result<()> {
    let (dir, file) = (stat_of(dir).map_err(errno)?, stat_of(file).map_err(errno)?);
    let is_closed = dir.mode & OTHERS == 0 || file.mode & OTHERS != 0;
    if dir.uid == file.uid && is_closed { Ok(()) } else { Err(Errno::STALE) }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        let emptied = match unlink_at(&self.dir, COPY) {
            Err(OsError::NOENT) => Ok(()),
            removed => removed,
        };
        if let Err(error) = emptied.and_then(|()| rmdir_at(&*self.top, &self.name)) {
            let name = &self.name;
            tracing::warn!(%error, ?name, "an unfinished copy is left in the top folder of a branch");
        }
    }
}

/// Removes one that its server has left, if this is one and nobody is at it. Whether it was.
///
/// # Errors
/// Those of the calls; ENOTEMPTY where there is more in it.
pub(super) fn is_removed(top: &LowerFile, name: &CStr) -> shuntfs_sys::Result<bool> {
    let dir = LowerFile::new(open_path_at(top, name)?);
    match stat_at(&dir, COPY) {
        Ok(found) if found.is_file() => {
            let copy = LowerFile::new(open_at(&dir, COPY, mode::O_RDWR | mode::O_NONBLOCK, 0)?);
            if flock(&copy, FlockOp::Exclusive, false).is_err() {
                return Ok(false);
            }
            // Closed first: NFS keeps an open file in its folder. Nobody makes a copy of that name any more.
            drop(copy);
            unlink_at(&dir, COPY)?;
        }
        // Whoever may write to the folder around it may have put something else there.
        Ok(_) => return Ok(false),
        Err(OsError::NOENT) => {
            let found = stat_of(&dir)?;
            if found.uid != effective_uid() || found.mode & OTHERS != 0 {
                return Ok(false);
            }
        }
        Err(error) => return Err(error),
    }
    rmdir_at(top, name)?;
    Ok(true)
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::options::PoolOptions;
    use shuntfs_sys::open_folder;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    /// Whoever could list the top folder of the branch read a file there that was in a folder of theirs which nobody else may enter.
    #[test]
    fn nobody_else_reaches_what_is_in_it() {
        let top = tempfile::tempdir().unwrap();
        let shared = Shared::open(&PoolOptions::new(top.path())).unwrap();
        let (shop, copy) =
            Workshop::make(&shared, &Arc::new(LowerFile::new(open_folder(top.path()).unwrap()))).unwrap();
        let made: Vec<_> = fs::read_dir(top.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(made.len(), 1);
        assert_eq!(made[0].metadata().unwrap().permissions().mode() & 0o777, 0o700);
        // Whatever the mode of the folder, if somebody put another one in its place.
        assert_eq!(check_closed(&shop.dir, &copy), Ok(()));
        fs::set_permissions(&made[0], Permissions::from_mode(0o711)).unwrap();
        assert_eq!(check_closed(&shop.dir, &copy), Err(Errno::STALE));
        if effective_uid() == 0 {
            fs::set_permissions(&made[0], Permissions::from_mode(0o700)).unwrap();
            std::os::unix::fs::chown(&made[0], Some(65534), None).unwrap();
            assert_eq!(check_closed(&shop.dir, &copy), Err(Errno::STALE));
        }
        drop(shop);
        assert_eq!(fs::read_dir(top.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_a_server_has_left_is_removed_and_nothing_else() {
        let top = tempfile::tempdir().unwrap();
        let held = LowerFile::new(open_folder(top.path()).unwrap());
        let left = |copy: bool, mode: u32| {
            let name = temporary_name();
            let at = top.path().join(name.to_str().unwrap());
            fs::create_dir(&at).unwrap();
            if copy {
                fs::write(at.join("copy"), "half").unwrap();
            }
            fs::set_permissions(&at, Permissions::from_mode(mode)).unwrap();
            name
        };
        let there = |name: &CStr| top.path().join(name.to_str().unwrap()).exists();
        for (copy, mode, goes) in
            [(true, 0o700, true), (true, 0o755, true), (false, 0o700, true), (false, 0o755, false)]
        {
            let name = left(copy, mode);
            assert_eq!((is_removed(&held, &name), there(&name)), (Ok(goes), !goes), "{copy} {mode:o}");
        }
        // That of a server that is at it, and what somebody else has put there.
        let name = left(true, 0o700);
        let making = fs::File::open(top.path().join(name.to_str().unwrap()).join("copy")).unwrap();
        flock(&making, FlockOp::Exclusive, false).unwrap();
        assert_eq!((is_removed(&held, &name), there(&name)), (Ok(false), true));
        drop(making);
        fs::write(top.path().join(name.to_str().unwrap()).join("more"), "").unwrap();
        assert_eq!((is_removed(&held, &name), there(&name)), (Err(OsError::NOTEMPTY), true));
        let victim = tempfile::tempdir().unwrap();
        fs::write(victim.path().join("copy"), "text").unwrap();
        let name = temporary_name();
        std::os::unix::fs::symlink(victim.path(), top.path().join(name.to_str().unwrap())).unwrap();
        assert_eq!(is_removed(&held, &name), Err(OsError::NOTDIR));
        assert!(victim.path().join("copy").exists());
    }
}
