//! Making, moving and removing names, one component at a time.

use std::ffi::{CStr, OsString};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use rustix::fs::{AtFlags, FileType, RenameFlags};
use rustix::io::retry_on_intr;

use crate::identity::mode_of_new;
use crate::proc_fd::{self, FdName};
use crate::stat::decode_dev;
use crate::{OsError, Result, faults};

/// The longest path that the kernel tells, with a NUL at its end.
const PATH_MAX: usize = 4096;

/// Makes a folder; the thread's umask or the parent's default ACL applies.
///
/// # Errors
/// What mkdirat(2) gives.
pub fn mkdir_at(dir: impl AsFd, name: &CStr, mode: u32) -> Result<()> {
    faults::point()?;
    rustix::fs::mkdirat(dir, name, mode_of_new(mode))
}

/// Makes a file, fifo, socket or device node; `mode` holds the type, `dev` is encoded as FUSE carries it.
///
/// # Errors
/// What mknodat(2) gives; EPERM for a device without CAP_MKNOD.
pub fn mknod_at(dir: impl AsFd, name: &CStr, mode: u32, dev: u32) -> Result<()> {
    faults::point()?;
    let device = decode_dev(dev);
    let kind = FileType::from_raw_mode(mode);
    rustix::fs::mknodat(dir, name, kind, mode_of_new(mode), rustix::fs::makedev(device.major, device.minor))
}

/// Makes a symlink that holds `target`.
///
/// # Errors
/// What symlinkat(2) gives.
pub fn symlink_at(target: &CStr, dir: impl AsFd, name: &CStr) -> Result<()> {
    faults::point()?;
    rustix::fs::symlinkat(target, dir, name)
}

/// Gives the file behind any descriptor another name.
///
/// # Errors
/// What linkat(2) gives: EEXIST, EXDEV, EMLINK; ENOENT for a file whose last name is gone.
pub fn link_to(fd: impl AsFd, dir: impl AsFd, name: &CStr) -> Result<()> {
    faults::point()?;
    match rustix::fs::linkat(&fd, c"", &dir, name, AtFlags::EMPTY_PATH) {
        // Without CAP_DAC_READ_SEARCH the kernel says ENOENT, which the file's own state may mean as well.
        Err(OsError::NOENT | OsError::INVAL | OsError::PERM) => {
            let (folder, number) = (proc_fd::folder()?, FdName::new(&fd));
            rustix::fs::linkat(folder, number.relative(), &dir, name, AtFlags::SYMLINK_FOLLOW)
        }
        other => other,
    }
}

/// Removes the name of anything but a folder.
///
/// # Errors
/// What unlinkat(2) gives.
pub fn unlink_at(dir: impl AsFd, name: &CStr) -> Result<()> {
    faults::point()?;
    rustix::fs::unlinkat(dir, name, AtFlags::empty())
}

/// Removes an empty folder.
///
/// # Errors
/// What unlinkat(2) gives; ENOTEMPTY, EBUSY for a mount point.
pub fn rmdir_at(dir: impl AsFd, name: &CStr) -> Result<()> {
    faults::point()?;
    rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR)
}

/// Moves a name, with the `RENAME_*` flags of renameat2(2).
///
/// # Errors
/// What renameat2(2) gives; EINVAL where the file system does not know a flag.
pub fn rename_at(old_dir: impl AsFd, old: &CStr, new_dir: impl AsFd, new: &CStr, flags: u32) -> Result<()> {
    faults::point()?;
    rustix::fs::renameat_with(old_dir, old, new_dir, new, RenameFlags::from_bits_retain(flags))
}

/// Reads the target of the symlink behind an `O_PATH` descriptor; a longer target is cut at the buffer's end.
///
/// # Errors
/// What readlinkat(2) gives; EINVAL for an empty buffer, ENOENT where it is no symlink.
pub fn readlink_of(fd: impl AsFd, target: &mut [u8]) -> Result<usize> {
    faults::point()?;
    retry_on_intr(|| rustix::fs::readlinkat_raw(&fd, c"", &mut *target))
}

/// The path that the kernel has for a descriptor now, from the process's root on. ` (deleted)` follows it where that name is gone; where the
/// kernel does not know the file by any name it is some other path. So it must be checked.
///
/// # Errors
/// What readlinkat(2) gives, ENOENT where procfs is not mounted; ENAMETOOLONG for a path that is no shorter than `PATH_MAX`.
pub fn path_of(fd: impl AsFd) -> Result<PathBuf> {
    faults::point()?;
    let (folder, name) = (proc_fd::folder()?, FdName::new(fd));
    let mut path = vec![0; PATH_MAX];
    let len = retry_on_intr(|| rustix::fs::readlinkat_raw(folder, name.relative(), &mut path[..]))?;
    if len >= PATH_MAX {
        return Err(OsError::NAMETOOLONG);
    }
    path.truncate(len);
    Ok(OsString::from_vec(path).into())
}
