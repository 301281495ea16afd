//! What calls that rustix lacks have in common: the return value, and ioctl.
//!
//! # Safety
//! Nothing here looks at memory; callers pass pointers whose targets outlive the call and are as large as the
//! kernel's contract for the call says.
#![expect(unsafe_code, reason = "ioctl has no safe form: its third argument depends on the command")]

use std::ffi::{c_long, c_void};
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::{OsError, Result};

/// Turns what `libc::syscall` returned into a result; must directly follow the call, because it reads `errno`.
pub(crate) fn check(returned: c_long) -> Result<usize> {
    usize::try_from(returned).map_err(|_| last_error())
}

/// The error of the last libc call of this thread.
pub(crate) fn last_error() -> OsError {
    let number = std::io::Error::last_os_error().raw_os_error();
    number.map_or(OsError::IO, OsError::from_raw_os_error)
}

/// Makes an ioctl whose argument is a pointer.
///
/// # Safety
/// `argument` must be valid for whatever the kernel reads and writes for `command` on any kind of file.
pub(crate) unsafe fn ioctl(fd: BorrowedFd<'_>, command: u32, argument: *mut c_void) -> Result<usize> {
    // SAFETY: the descriptor is open (its type says so) and the caller vouches for the argument.
    let returned = unsafe { libc::syscall(libc::SYS_ioctl, fd.as_raw_fd(), u64::from(command), argument) };
    check(returned)
}
