//! Changing attributes. The descriptor may be `O_PATH`, and a symlink's own attributes can be meant.
//!
//! # Safety
//! fchmodat2 is given a valid descriptor and a static string.
#![expect(unsafe_code, reason = "neither rustix nor libc has fchmodat2")]

use std::os::fd::{AsFd, AsRawFd};

use rustix::fs::{AtFlags, Gid, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid};
use rustix::io::retry_on_intr;

use crate::open::{check_id, permissions};
use crate::proc_fd::{self, FdName};
use crate::stat::Time;
use crate::{OsError, Result, faults, raw};

/// What happens to a timestamp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeSet {
    /// It stays.
    Omit,
    /// The time of the call.
    Now,
    /// This time.
    At(Time),
}

/// Sets the permission bits, suid, sgid and sticky included.
///
/// # Errors
/// What fchmodat2(2) gives; EOPNOTSUPP for a symlink.
pub fn chmod(fd: impl AsFd, mode: u32) -> Result<()> {
    faults::point()?;
    match chmod_directly(&fd, mode) {
        // Before Linux 6.6 the call is missing; some sandboxes refuse what they do not know with EPERM.
        Err(OsError::NOSYS | OsError::PERM) => {
            let (folder, name) = (proc_fd::folder()?, FdName::new(&fd));
            rustix::fs::chmodat(folder, name.relative(), permissions(mode), AtFlags::empty())
        }
        other => other,
    }
}

fn chmod_directly(fd: impl AsFd, mode: u32) -> Result<()> {
    let (fd, mode) = (fd.as_fd().as_raw_fd(), mode & 0o7777);
    // SAFETY: the descriptor is open and the path is a static C string.
    let done = unsafe { libc::syscall(libc::SYS_fchmodat2, fd, c"".as_ptr(), mode, libc::AT_EMPTY_PATH) };
    raw::check(done).map(drop)
}

/// Sets owner and group; `None` leaves one alone.
///
/// # Errors
/// What fchownat(2) gives; EINVAL for the id 2^32-1, which means "leave it" to the kernel.
pub fn chown(fd: impl AsFd, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
    faults::point()?;
    let uid = uid.map(check_id).transpose()?.map(Uid::from_raw);
    let gid = gid.map(check_id).transpose()?.map(Gid::from_raw);
    rustix::fs::chownat(fd, c"", uid, gid, AtFlags::EMPTY_PATH)
}

/// Sets the times of last access and change.
///
/// # Errors
/// What utimensat(2) gives; EINVAL for nanoseconds out of range.
pub fn set_times(fd: impl AsFd, atime: TimeSet, mtime: TimeSet) -> Result<()> {
    faults::point()?;
    let times = Timestamps { last_access: timespec(atime)?, last_modification: timespec(mtime)? };
    match rustix::fs::utimensat(&fd, c"", &times, AtFlags::EMPTY_PATH) {
        // Before Linux 5.8 the flag is unknown.
        Err(OsError::INVAL) => {
            let (folder, name) = (proc_fd::folder()?, FdName::new(&fd));
            rustix::fs::utimensat(folder, name.relative(), &times, AtFlags::empty())
        }
        other => other,
    }
}

fn timespec(time: TimeSet) -> Result<Timespec> {
    match time {
        TimeSet::Omit => Ok(Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT }),
        TimeSet::Now => Ok(Timespec { tv_sec: 0, tv_nsec: UTIME_NOW }),
        // The kernel's marks for "now" and "omit" lie beyond a second, so they cannot be smuggled in.
        TimeSet::At(Time { nanos, .. }) if nanos >= 1_000_000_000 => Err(OsError::INVAL),
        TimeSet::At(Time { secs, nanos }) => Ok(Timespec { tv_sec: secs, tv_nsec: nanos.into() }),
    }
}

/// Cuts or stretches a file that is open for writing.
///
/// # Errors
/// What ftruncate(2) gives; EINVAL where it is not open for writing, EFBIG beyond the file system's limit.
pub fn truncate(fd: impl AsFd, len: u64) -> Result<()> {
    faults::point()?;
    retry_on_intr(|| rustix::fs::ftruncate(&fd, len))
}
