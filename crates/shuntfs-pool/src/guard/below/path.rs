//! Making a folder on one branch as it is on another.

use std::ffi::{CStr, CString};

use shuntfs::{Errno, LowerFile, Result};
use shuntfs_sys::xattr::{get_xattr, list_xattr, remove_xattr, set_xattr};
use shuntfs_sys::{OsError, TimeSet, chmod, chown, mkdir_at, open_path_at, rmdir_at, set_times, stat_of};

use super::merged::is_empty;
use crate::branch::{touches, touches_nothing};
use crate::error::errno;
use crate::guard::Spot;
use crate::mode;
use crate::shared::Shared;
use crate::who::keeping_set_ids;

/// The mode of a folder that is not finished.
const CLOSED: u32 = 0o700;

pub(super) const ACCESS_ACL: &CStr = c"system.posix_acl_access";

/// The longest list of names, and the longest value, that the kernel takes.
const XATTR_MAX: usize = 65_536;

/// Makes a folder with the owner, the mode, the attributes and the times of `from`. It is closed to everybody else until it has all
/// of them. One that is there already is left as it is.
///
/// Nobody asks for it but as a part of what was judged: something is about to come to a folder that is missing on the branch.
///
/// # Errors
/// Those of the calls; then it does not exist.
pub(crate) fn clone_folder(shared: &Shared, from: &LowerFile, spot: Spot<'_>) -> Result<()> {
    touches(spot.mount.branch);
    match mkdir_at(spot.dir, spot.c_name(), CLOSED) {
        Err(OsError::EXIST) => return Ok(()),
        made => made.map_err(errno)?,
    }
    let finish = || -> Result<()> {
        let made = LowerFile::new(shared.opening(|| open_path_at(spot.dir, spot.c_name()))?);
        finish_clone(shared, from, (&made, spot.mount.branch))
    };
    finish().inspect_err(|error| {
        tracing::warn!(%error, "a folder was not made on a further branch");
        if let Err(error) = rmdir_at(spot.dir, spot.c_name()) {
            tracing::error!(%error, "a folder is left on a branch, closed and without its attributes");
        }
    })
}

/// Gives a folder that was just made as [`clone_folder`] does the attributes of `from`. It is opened to others last, so that what a server has left
/// unfinished can be told by that it is not.
///
/// # Errors
/// Those of the calls; ESTALE where it is not that folder.
fn finish_clone(shared: &Shared, from: &LowerFile, (made, branch): (&LowerFile, u16)) -> Result<()> {
    let stat = stat_of(from).map_err(errno)?;
    check_new(shared, made)?;
    chown(made, Some(stat.uid), Some(stat.gid)).map_err(errno)?;
    // Of both branches, so that it is not known which of them it waits for.
    touches_nothing();
    clone_xattrs(from, made).map_err(errno)?;
    touches(branch);
    set_times(made, TimeSet::At(stat.atime), TimeSet::At(stat.mtime)).map_err(errno)?;
    let permissions = stat.mode & 0o7777;
    keeping_set_ids(permissions & mode::SGID != 0, || chmod(made, permissions)).map_err(errno)
}

/// Goes on with a folder that a server may have left unfinished on a branch: closed and empty. One that is neither is left as it is.
///
/// # Errors
/// As of [`clone_folder`].
pub(crate) fn go_on_cloning(shared: &Shared, from: &LowerFile, made: &LowerFile, branch: u16) -> Result<()> {
    let stat = stat_of(made).map_err(errno)?;
    if stat.mode & 0o7777 == CLOSED && is_empty(shared, made)? {
        finish_clone(shared, from, (made, branch))?;
    }
    Ok(())
}

/// Refuses to give away what is not the folder that was just made: whoever may write to the folder around it on the branch may put something of
/// somebody else's in its place, meanwhile. An empty folder they could have removed and made themselves.
fn check_new(shared: &Shared, made: &LowerFile) -> Result<()> {
    let is_new = stat_of(made).map_err(errno)?.is_dir() && is_empty(shared, made)?;
    if is_new { Ok(()) } else { Err(Errno::STALE) }
}

fn clone_xattrs(from: &LowerFile, to: &LowerFile) -> shuntfs_sys::Result<()> {
    // Not every file system has every kind, and labels are the security module's.
    let may_stay = |_: &CStr, error| matches!(error, OsError::OPNOTSUPP | OsError::PERM | OsError::INVAL);
    copy_xattrs(from, to, &[ACCESS_ACL, c"system.posix_acl_default"], may_stay)
}

/// Gives `to` the extended attributes of `from` in place of those that it inherited.
///
/// # Errors
/// Where one cannot be kept, unless it `may_stay` behind.
pub(super) fn copy_xattrs(
    from: &LowerFile,
    to: &LowerFile,
    inherited: &[&CStr],
    may_stay: impl Fn(&CStr, OsError) -> bool,
) -> shuntfs_sys::Result<()> {
    for inherited in inherited {
        match remove_xattr(to, inherited) {
            Ok(()) | Err(OsError::NODATA | OsError::OPNOTSUPP) => {}
            Err(error) => return Err(error),
        }
    }
    let mut value = vec![0; XATTR_MAX];
    for name in xattrs_of(from)? {
        let len = match get_xattr(from, &name, &mut value) {
            // It went meanwhile, or is nobody's to read.
            Err(OsError::NODATA | OsError::OPNOTSUPP) => continue,
            len => len?,
        };
        match set_xattr(to, &name, &value[..len], 0) {
            Err(error) if may_stay(&name, error) => {
                tracing::debug!(%error, ?name, "an extended attribute stays behind");
            }
            set => set?,
        }
    }
    Ok(())
}

/// Takes from `to` those of these extended attributes that `from` has not.
///
/// # Errors
/// Those of the calls.
pub(super) fn drop_xattrs(
    from: &LowerFile,
    to: &LowerFile,
    these: impl Fn(&[u8]) -> bool,
) -> shuntfs_sys::Result<()> {
    for name in xattrs_of(to)?.iter().filter(|name| these(name.to_bytes())) {
        if get_xattr(from, name, &mut []) == Err(OsError::NODATA) {
            remove_xattr(to, name)?;
        }
    }
    Ok(())
}

/// The names of the extended attributes of a file.
fn xattrs_of(file: &LowerFile) -> shuntfs_sys::Result<Vec<CString>> {
    let len = match list_xattr(file, &mut []) {
        Ok(0) | Err(OsError::OPNOTSUPP) => return Ok(Vec::new()),
        len => len?,
    };
    let mut names = vec![0; len.max(XATTR_MAX)];
    let len = list_xattr(file, &mut names)?;
    let all = names[..len].split_inclusive(|byte| *byte == 0);
    Ok(all.filter_map(|name| CStr::from_bytes_with_nul(name).ok().map(CStr::to_owned)).collect())
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::options::PoolOptions;
    use shuntfs_sys::open_folder;

    /// Somebody with a folder of their own on a branch got a file of root's, which they had moved to where a folder had just been made.
    #[test]
    fn nothing_but_an_empty_folder_is_taken_for_the_one_that_was_made() {
        let top = tempfile::tempdir().unwrap();
        for name in ["empty", "full"] {
            std::fs::create_dir(top.path().join(name)).unwrap();
        }
        for name in ["full/in", "file"] {
            std::fs::write(top.path().join(name), "").unwrap();
        }
        std::os::unix::fs::symlink("empty", top.path().join("link")).unwrap();
        let shared = Shared::open(&PoolOptions::new(top.path())).unwrap();
        let top = open_folder(top.path()).unwrap();
        let check = |name: &CStr| check_new(&shared, &LowerFile::new(open_path_at(&top, name).unwrap()));
        assert_eq!(check(c"empty"), Ok(()));
        for name in [c"full", c"file", c"link"] {
            assert_eq!(check(name), Err(Errno::STALE), "{name:?}");
        }
    }
}
