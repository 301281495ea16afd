//! Opening lower files, always relative to a descriptor, never through a symlink.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

pub use rustix::fs::CWD;
use rustix::fs::{Mode, OFlags};
use rustix::io::retry_on_intr;

use crate::proc_fd::{self, FdName};
use crate::{OsError, Result};

/// Flags of open(2) that would create a name, or refuse the link that [`reopen`] follows.
const NOT_FOR_REOPEN: OFlags = OFlags::CREATE
    .union(OFlags::EXCL)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::TMPFILE.difference(OFlags::DIRECTORY));

/// `O_DIRECT` on this architecture.
pub const O_DIRECT: u32 = rustix::fs::OFlags::DIRECT.bits();

/// Takes hold of what `name` is, a symlink itself included, without opening it.
///
/// # Errors
/// What openat(2) gives: ENOENT, EACCES, EMFILE, ENOTDIR, ENAMETOOLONG.
pub fn open_path_at(dir: impl AsFd, name: &CStr) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    retry_on_intr(|| rustix::fs::openat(&dir, name, flags, Mode::empty()))
}

/// Opens or, with `O_CREAT`, creates `name` with the flags of open(2); the last component is never followed.
///
/// # Errors
/// What openat(2) gives; ELOOP where `name` is a symlink.
pub fn open_at(dir: impl AsFd, name: &CStr, flags: u32, mode: u32) -> Result<OwnedFd> {
    let flags = with_defaults(OFlags::from_bits_retain(flags)) | OFlags::NOFOLLOW;
    retry_on_intr(|| rustix::fs::openat(&dir, name, flags, permissions(mode)))
}

/// Opens the file behind any descriptor anew, with flags of its own; creation flags are left out.
///
/// # Errors
/// What openat(2) gives; ELOOP for a symlink, which cannot be opened.
pub fn reopen(fd: impl AsFd, flags: u32) -> Result<OwnedFd> {
    let flags = with_defaults(OFlags::from_bits_retain(flags)).difference(NOT_FOR_REOPEN);
    let folder = proc_fd::folder()?;
    let name = FdName::new(&fd);
    retry_on_intr(|| rustix::fs::openat(folder, name.relative(), flags, Mode::empty()))
}

/// Creates a file without a name in the folder `dir`.
///
/// # Errors
/// What openat(2) gives; EOPNOTSUPP where the file system has no `O_TMPFILE`, EINVAL where `flags` do not write.
pub fn tmpfile_at(dir: impl AsFd, flags: u32, mode: u32) -> Result<OwnedFd> {
    // `.` resolves inside `dir` itself, so an `O_PATH` folder descriptor will do.
    let flags = with_defaults(OFlags::from_bits_retain(flags)).difference(OFlags::CREATE) | OFlags::TMPFILE;
    retry_on_intr(|| rustix::fs::openat(&dir, c".", flags, permissions(mode)))
}

/// Takes hold of the folder at `path`, following symlinks.
///
/// # Errors
/// What open(2) gives; ENOTDIR where it is not a folder.
pub fn open_folder(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    retry_on_intr(|| rustix::fs::openat(CWD, path, flags, Mode::empty()))
}

/// Takes hold of whatever is at `path`, following symlinks.
///
/// # Errors
/// What open(2) gives.
pub fn open_target(path: &Path) -> Result<OwnedFd> {
    retry_on_intr(|| rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()))
}

/// Makes a second descriptor of the same open file.
///
/// # Errors
/// EMFILE at the descriptor limit.
pub fn duplicate(fd: impl AsFd) -> Result<OwnedFd> {
    rustix::io::fcntl_dupfd_cloexec(fd, 0)
}

/// The access mode (`O_ACCMODE`) that a descriptor was opened with.
///
/// # Errors
/// EBADF for an `O_PATH` descriptor, which gives no access.
pub fn access_of(fd: impl AsFd) -> Result<u32> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    if flags.contains(OFlags::PATH) { Err(OsError::BADF) } else { Ok(flags.bits() & OFlags::ACCMODE.bits()) }
}

fn with_defaults(flags: OFlags) -> OFlags {
    // `O_NOCTTY`: opening a terminal on a branch must not make it the server's own.
    flags | OFlags::CLOEXEC | OFlags::LARGEFILE | OFlags::NOCTTY
}

/// The permission bits of a mode, for the calls that take no type.
pub(crate) fn permissions(mode: u32) -> Mode {
    Mode::from_bits_retain(mode & 0o7777)
}

/// Rejects the number that means "leave it" where an id is asked for.
pub(crate) fn check_id(id: u32) -> Result<u32> {
    if id == u32::MAX { Err(OsError::INVAL) } else { Ok(id) }
}
