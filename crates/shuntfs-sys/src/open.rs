//! Opening lower files, always relative to a descriptor, never through a symlink.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

pub use rustix::fs::CWD;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::retry_on_intr;

use crate::identity::mode_of_new;
use crate::proc_fd::{self, FdName};
use crate::{OsError, Result, faults};

/// Flags of open(2) that would create a name, or refuse the link that [`reopen`] follows.
const NOT_FOR_REOPEN: OFlags = OFlags::CREATE.union(OFlags::EXCL).union(OFlags::NOFOLLOW).union(TMPFILE);
/// What `O_TMPFILE` has beyond `O_DIRECTORY`.
const TMPFILE: OFlags = OFlags::TMPFILE.difference(OFlags::DIRECTORY);

/// `O_DIRECT` on this architecture.
pub const O_DIRECT: u32 = OFlags::DIRECT.bits();
/// `O_DIRECTORY` on this architecture.
pub const O_DIRECTORY: u32 = OFlags::DIRECTORY.bits();
/// `O_NOFOLLOW` on this architecture.
pub const O_NOFOLLOW: u32 = OFlags::NOFOLLOW.bits();

/// Takes hold of what `name` is, a symlink itself included, without opening it.
///
/// # Errors
/// What openat(2) gives: ENOENT, EACCES, EMFILE, ENOTDIR, ENAMETOOLONG.
pub fn open_path_at(dir: impl AsFd, name: &CStr) -> Result<OwnedFd> {
    faults::point()?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    retry_on_intr(|| rustix::fs::openat(&dir, name, flags, Mode::empty()))
}

/// Opens or, with `O_CREAT`, creates `name` with the flags of open(2); the last component is never followed.
///
/// # Errors
/// What openat(2) gives; ELOOP where `name` is a symlink.
pub fn open_at(dir: impl AsFd, name: &CStr, flags: u32, mode: u32) -> Result<OwnedFd> {
    faults::point()?;
    let flags = with_defaults(OFlags::from_bits_retain(flags)) | OFlags::NOFOLLOW;
    let makes = flags.intersects(OFlags::CREATE | TMPFILE);
    let mode = if makes { mode_of_new(mode) } else { Mode::empty() };
    retry_on_intr(|| rustix::fs::openat(&dir, name, flags, mode))
}

/// Opens what a path leads to below a folder: through no symlink, not even at its end, and never out of the folder.
///
/// # Errors
/// What openat2(2) gives: ELOOP for a symlink, ENOENT, ENOTDIR, EACCES; EXDEV where it would leave the folder; EINVAL for
/// an empty component, `.` or `..` where the kernel has no openat2 or the path is longer than it takes.
pub fn open_beneath(dir: impl AsFd, path: &CStr, flags: u32) -> Result<OwnedFd> {
    faults::point()?;
    let flags = with_defaults(OFlags::from_bits_retain(flags)) | OFlags::NOFOLLOW;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let found = retry_on_intr(|| rustix::fs::openat2(&dir, path, flags, Mode::empty(), resolve));
    match found {
        // Sandboxes that filter system calls answer EPERM for those that they do not know.
        Err(OsError::NOSYS | OsError::PERM | OsError::NAMETOOLONG) => open_by_steps(dir.as_fd(), path, flags),
        found => found,
    }
}

/// The same where all of the path is on the mount of the folder: no other file system is asked, which might not answer.
///
/// # Errors
/// As [`open_beneath`]; EXDEV where something else is mounted on the way, ENOSYS or EPERM where there is no openat2,
/// ENAMETOOLONG for a path that is longer than the kernel takes.
pub fn open_on_mount(dir: impl AsFd, path: &CStr, flags: u32) -> Result<OwnedFd> {
    faults::point()?;
    let flags = with_defaults(OFlags::from_bits_retain(flags)) | OFlags::NOFOLLOW;
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    retry_on_intr(|| rustix::fs::openat2(&dir, path, flags, Mode::empty(), resolve))
}

/// Opens one component after the other.
fn open_by_steps(dir: BorrowedFd<'_>, path: &CStr, flags: OFlags) -> Result<OwnedFd> {
    let mut folder: Option<OwnedFd> = None;
    let mut components = path.to_bytes().split(|byte| *byte == b'/').peekable();
    while let Some(name) = components.next() {
        if name.is_empty() || name == b"." || name == b".." {
            return Err(OsError::INVAL);
        }
        let at = folder.as_ref().map_or(dir, AsFd::as_fd);
        let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let how = if components.peek().is_some() { step } else { flags };
        folder = Some(retry_on_intr(|| rustix::fs::openat(at, name, how, Mode::empty()))?);
    }
    folder.ok_or(OsError::INVAL)
}

/// Opens the file behind any descriptor anew, with flags of its own; creation flags are left out.
///
/// # Errors
/// What openat(2) gives; ELOOP for a symlink, which cannot be opened.
pub fn reopen(fd: impl AsFd, flags: u32) -> Result<OwnedFd> {
    faults::point()?;
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
    faults::point()?;
    // `.` resolves inside `dir` itself, so an `O_PATH` folder descriptor will do.
    let flags = with_defaults(OFlags::from_bits_retain(flags)).difference(OFlags::CREATE) | OFlags::TMPFILE;
    let mode = mode_of_new(mode);
    retry_on_intr(|| rustix::fs::openat(&dir, c".", flags, mode))
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

/// Takes hold of what `name` leads to, following symlinks.
///
/// # Errors
/// What openat(2) gives.
pub fn open_target_at(dir: impl AsFd, name: &CStr) -> Result<OwnedFd> {
    retry_on_intr(|| rustix::fs::openat(&dir, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()))
}

/// Opens a file, or a device such as /dev/null, to write at its end, and makes it where it is missing. Neither the open nor
/// a write waits: a FIFO whose reader is missing or slow would make both.
///
/// # Errors
/// What open(2) gives; ENXIO for a FIFO without a reader, EPIPE for every other pipe and for a socket.
pub fn open_to_append(path: &Path, mode: u32) -> Result<OwnedFd> {
    let flags = OFlags::WRONLY
        | OFlags::APPEND
        | OFlags::CREATE
        | OFlags::NONBLOCK
        | OFlags::NOCTTY
        | OFlags::CLOEXEC;
    let mode = mode_of_new(mode);
    let file = retry_on_intr(|| rustix::fs::openat(CWD, path, flags, mode))?;
    let kind = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
    if matches!(kind, rustix::fs::FileType::Fifo | rustix::fs::FileType::Socket) {
        return Err(OsError::PIPE);
    }
    Ok(file)
}

/// Makes a second descriptor of the same open file.
///
/// # Errors
/// EMFILE at the descriptor limit.
pub fn duplicate(fd: impl AsFd) -> Result<OwnedFd> {
    faults::point()?;
    rustix::io::fcntl_dupfd_cloexec(fd, 0)
}

/// The access mode (`O_ACCMODE`) that a descriptor was opened with.
///
/// # Errors
/// EBADF for an `O_PATH` descriptor, which gives no access.
pub fn access_of(fd: impl AsFd) -> Result<u32> {
    faults::point()?;
    let flags = rustix::fs::fcntl_getfl(fd)?;
    if flags.contains(OFlags::PATH) { Err(OsError::BADF) } else { Ok(flags.bits() & OFlags::ACCMODE.bits()) }
}

fn with_defaults(flags: OFlags) -> OFlags {
    if flags.contains(OFlags::PATH) {
        // Nothing is opened by it, and openat2 refuses what goes with opening.
        return flags | OFlags::CLOEXEC;
    }
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

#[cfg(test)]
mod test {
    use super::*;
    use std::ffi::CString;

    #[test]
    fn what_is_beneath_is_opened_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        std::fs::write(dir.path().join("a/b/file"), "x").unwrap();
        std::os::unix::fs::symlink("a", dir.path().join("link")).unwrap();
        std::os::unix::fs::symlink("file", dir.path().join("a/b/link")).unwrap();
        let top = open_folder(dir.path()).unwrap();
        let by_steps = |path: &CStr| open_by_steps(top.as_fd(), path, OFlags::CLOEXEC | OFlags::NOFOLLOW);
        for path in [c"a/b/file", c"a/b", c"a"] {
            open_beneath(&top, path, 0).unwrap();
            open_on_mount(&top, path, 0).unwrap();
            by_steps(path).unwrap();
        }
        for path in [
            c"link/b/file",
            c"a/b/link",
            c"../x",
            c"a/../../x",
            c"/etc/passwd",
            c"a/none",
            c"a/b/file/x",
            c"",
        ] {
            open_beneath(&top, path, 0).unwrap_err();
            open_on_mount(&top, path, 0).unwrap_err();
            by_steps(path).unwrap_err();
        }
        let root = open_folder(Path::new("/")).unwrap();
        open_beneath(&root, c"proc/stat", 0).unwrap();
        assert_eq!(open_on_mount(&root, c"proc/stat", 0).unwrap_err(), OsError::XDEV);
    }

    #[test]
    fn a_path_longer_than_the_kernel_takes_is_walked() {
        let dir = tempfile::tempdir().unwrap();
        let (mut at, name) = (open_folder(dir.path()).unwrap(), CString::new("n".repeat(200)).unwrap());
        let mut path = Vec::new();
        for _ in 0..30 {
            crate::mkdir_at(&at, &name, 0o755).unwrap();
            at = open_path_at(&at, &name).unwrap();
            path.push(name.to_str().unwrap());
        }
        let path = CString::new(path.join("/")).unwrap();
        let found = open_beneath(open_folder(dir.path()).unwrap(), &path, 0).unwrap();
        assert_eq!(crate::stat_of(&found).unwrap().ino, crate::stat_of(&at).unwrap().ino);
    }
}
