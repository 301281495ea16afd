//! Locks on lower files: by range, owned by the open file (OFD), and on the whole file (flock).
//!
//! # Safety
//! fcntl is given a `struct flock` of the kernel's layout that outlives the call.
#![expect(unsafe_code, reason = "rustix has no OFD locks")]

use std::ffi::{c_int, c_short};
use std::os::fd::{AsFd, AsRawFd};

use rustix::fs::FlockOperation;

use crate::{OsError, Result, faults, raw};

/// What a lock lets others do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LockKind {
    /// Others may read-lock as well.
    Read,
    /// Nobody else may lock.
    Write,
    /// No lock.
    Unlock,
}

/// What happens to a lock on a whole file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FlockOp {
    /// Others may lock shared as well.
    Shared,
    /// Nobody else may lock.
    Exclusive,
    /// No lock.
    Unlock,
}

/// A lock on a range of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockSpec {
    /// What it lets others do.
    pub kind: LockKind,
    /// Where the range starts, in bytes, below 2^63.
    pub start: u64,
    /// How long the range is, in bytes; 0 stands for "to whatever end the file will have".
    pub len: u64,
}

/// A lock that stands in the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeldLock {
    /// The lock.
    pub spec: LockSpec,
    /// Whose it is; `None` where an open file owns it, not a process.
    pub pid: Option<u32>,
}

/// Sets, changes or drops the open file's lock on a range; with `wait`, waits until nothing stands in the way.
///
/// Locks go when the last descriptor of the open file is closed.
///
/// # Errors
/// EAGAIN where something stands in the way and `wait` is off; EINTR by a signal, passed on so that a waiting thread
/// can be called back; EBADF where the file is not open for what the kind needs; EINVAL for a range beyond 2^63.
pub fn ofd_lock(fd: impl AsFd, lock: LockSpec, wait: bool) -> Result<()> {
    faults::point()?;
    let mut flock = to_kernel(lock)?;
    fcntl(fd, if wait { libc::F_OFD_SETLKW } else { libc::F_OFD_SETLK }, &mut flock)
}

/// The first lock that would stand in the way of this one, if any.
///
/// # Errors
/// EINVAL for a range beyond 2^63 or for [`LockKind::Unlock`].
pub fn ofd_test(fd: impl AsFd, lock: LockSpec) -> Result<Option<HeldLock>> {
    faults::point()?;
    let mut flock = to_kernel(lock)?;
    fcntl(fd, libc::F_OFD_GETLK, &mut flock)?;
    let kind = match c_int::from(flock.l_type) {
        libc::F_RDLCK => LockKind::Read,
        libc::F_WRLCK => LockKind::Write,
        _ => return Ok(None),
    };
    let start = u64::try_from(flock.l_start).map_err(|_| OsError::IO)?;
    let len = u64::try_from(flock.l_len).map_err(|_| OsError::IO)?;
    Ok(Some(HeldLock { spec: LockSpec { kind, start, len }, pid: u32::try_from(flock.l_pid).ok() }))
}

/// Sets, changes or drops the open file's lock on the whole file.
///
/// # Errors
/// EAGAIN where something stands in the way and `wait` is off; EINTR by a signal, passed on.
pub fn flock(fd: impl AsFd, op: FlockOp, wait: bool) -> Result<()> {
    faults::point()?;
    let operation = match (op, wait) {
        (FlockOp::Shared, true) => FlockOperation::LockShared,
        (FlockOp::Exclusive, true) => FlockOperation::LockExclusive,
        (FlockOp::Shared, false) => FlockOperation::NonBlockingLockShared,
        (FlockOp::Exclusive, false) => FlockOperation::NonBlockingLockExclusive,
        (FlockOp::Unlock, _) => FlockOperation::Unlock,
    };
    rustix::fs::flock(fd, operation)
}

fn to_kernel(lock: LockSpec) -> Result<libc::flock> {
    let kind = match lock.kind {
        LockKind::Read => libc::F_RDLCK,
        LockKind::Write => libc::F_WRLCK,
        LockKind::Unlock => libc::F_UNLCK,
    };
    Ok(libc::flock {
        l_type: c_short::try_from(kind).map_err(|_| OsError::INVAL)?,
        l_whence: c_short::try_from(libc::SEEK_SET).map_err(|_| OsError::INVAL)?,
        l_start: i64::try_from(lock.start).map_err(|_| OsError::INVAL)?,
        l_len: i64::try_from(lock.len).map_err(|_| OsError::INVAL)?,
        // The kernel asks for 0 with OFD locks.
        l_pid: 0,
    })
}

fn fcntl(fd: impl AsFd, command: c_int, flock: &mut libc::flock) -> Result<()> {
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: the argument is a `struct flock`, exclusively borrowed for the call.
    let done = unsafe { libc::syscall(libc::SYS_fcntl, fd, command, &raw mut *flock) };
    raw::check(done).map(drop)
}

#[cfg(test)]
mod test {
    use super::*;
    use std::fs::File;

    fn twice() -> (tempfile::TempDir, File, File) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("locked");
        let first = File::create_new(&path).unwrap();
        let second = File::options().read(true).write(true).open(&path).unwrap();
        (folder, first, second)
    }

    #[test]
    fn ranges_exclude_each_other() {
        let (_folder, first, second) = twice();
        let low = LockSpec { kind: LockKind::Write, start: 0, len: 10 };
        let over = LockSpec { kind: LockKind::Read, start: 5, len: 0 };
        ofd_lock(&first, low, false).unwrap();
        assert_eq!(ofd_lock(&second, over, false), Err(OsError::AGAIN));
        assert_eq!(ofd_test(&second, over), Ok(Some(HeldLock { spec: low, pid: None })));
        assert_eq!(ofd_test(&first, over), Ok(None));
        ofd_lock(&second, LockSpec { start: 10, ..over }, false).unwrap();
        ofd_lock(&first, LockSpec { kind: LockKind::Unlock, ..low }, false).unwrap();
        ofd_lock(&second, over, true).unwrap();
        drop(second);
        ofd_lock(&first, LockSpec { len: 0, ..low }, false).unwrap();
        assert_eq!(ofd_lock(&first, LockSpec { start: u64::MAX, ..low }, false), Err(OsError::INVAL));
    }

    #[test]
    fn whole_files_exclude_each_other() {
        let (_folder, first, second) = twice();
        flock(&first, FlockOp::Shared, false).unwrap();
        flock(&second, FlockOp::Shared, false).unwrap();
        assert_eq!(flock(&second, FlockOp::Exclusive, false), Err(OsError::AGAIN));
        flock(&first, FlockOp::Unlock, false).unwrap();
        flock(&second, FlockOp::Exclusive, true).unwrap();
    }
}
