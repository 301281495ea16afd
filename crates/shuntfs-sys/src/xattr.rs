//! Extended attributes. The descriptor may be `O_PATH`, and a symlink's own attributes can be meant.
//!
//! f*xattr(2) refuse `O_PATH`, so the calls go by the descriptor's name in `/proc/self/fd`: on Linux 6.13 and later
//! relative to the held folder, else by its full path.
//!
//! # Safety
//! Every call gets C strings and buffers that are borrowed for its length, with their true lengths.
#![expect(unsafe_code, reason = "neither rustix nor libc has the *xattrat calls")]

use std::ffi::{CStr, c_int, c_long};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::OnceLock;

use rustix::fs::XattrFlags;

use crate::proc_fd::{self, FdName};
use crate::{OsError, Result, faults, raw};

// The numbers are the same on every architecture that takes them from the kernel's common table.
const SETXATTRAT: c_long = 463;
const GETXATTRAT: c_long = 464;
const LISTXATTRAT: c_long = 465;
const REMOVEXATTRAT: c_long = 466;

/// `struct xattr_args` of the kernel.
#[repr(C, align(8))]
struct XattrArgs {
    value: u64,
    size: u32,
    flags: u32,
}

const _: () = assert!(size_of::<XattrArgs>() == 16);

/// Reads an attribute's value; an empty buffer asks for its length.
///
/// # Errors
/// ENODATA where there is none, ERANGE where the buffer is too small, EOPNOTSUPP, EACCES.
pub fn get_xattr(fd: impl AsFd, name: &CStr, value: &mut [u8]) -> Result<usize> {
    faults::point()?;
    let number = FdName::new(&fd);
    if has_at_calls() {
        return get_at(&number, name, value);
    }
    if value.is_empty() {
        return rustix::fs::getxattr_query(number.absolute(), name);
    }
    rustix::fs::getxattr(number.absolute(), name, value)
}

/// Lists the attributes' names, each with a NUL at its end; an empty buffer asks for the length.
///
/// # Errors
/// ERANGE where the buffer is too small, EOPNOTSUPP.
pub fn list_xattr(fd: impl AsFd, names: &mut [u8]) -> Result<usize> {
    faults::point()?;
    let number = FdName::new(&fd);
    if has_at_calls() {
        let folder = proc_fd::folder()?.as_raw_fd();
        let (path, start, len) = (number.relative().as_ptr(), names.as_mut_ptr(), names.len());
        // SAFETY: `path` is a C string; `start` and `len` are those of a borrowed slice.
        let got = unsafe { libc::syscall(LISTXATTRAT, folder, path, 0 as c_int, start, len) };
        return raw::check(got);
    }
    if names.is_empty() {
        return rustix::fs::listxattr_query(number.absolute());
    }
    rustix::fs::listxattr(number.absolute(), names)
}

/// Sets an attribute, with `XATTR_CREATE` or `XATTR_REPLACE` in `flags`.
///
/// # Errors
/// What setxattr(2) gives: EEXIST, ENODATA, ENOSPC, EDQUOT, E2BIG, EOPNOTSUPP, EPERM.
pub fn set_xattr(fd: impl AsFd, name: &CStr, value: &[u8], flags: u32) -> Result<()> {
    faults::point()?;
    let number = FdName::new(&fd);
    if !has_at_calls() {
        return rustix::fs::setxattr(number.absolute(), name, value, XattrFlags::from_bits_retain(flags));
    }
    let size = u32::try_from(value.len()).map_err(|_| OsError::TOOBIG)?;
    let args = XattrArgs { value: address(value.as_ptr()), size, flags };
    let folder = proc_fd::folder()?.as_raw_fd();
    let (path, name, len) = (number.relative().as_ptr(), name.as_ptr(), size_of::<XattrArgs>());
    // SAFETY: both strings are C strings; `args` describes `value`, which the kernel only reads.
    let done = unsafe { libc::syscall(SETXATTRAT, folder, path, 0 as c_int, name, &raw const args, len) };
    raw::check(done).map(drop)
}

/// Removes an attribute.
///
/// # Errors
/// ENODATA where there is none, EOPNOTSUPP, EPERM.
pub fn remove_xattr(fd: impl AsFd, name: &CStr) -> Result<()> {
    faults::point()?;
    let number = FdName::new(&fd);
    if !has_at_calls() {
        return rustix::fs::removexattr(number.absolute(), name);
    }
    let folder = proc_fd::folder()?.as_raw_fd();
    let (path, name) = (number.relative().as_ptr(), name.as_ptr());
    // SAFETY: both strings are C strings.
    let done = unsafe { libc::syscall(REMOVEXATTRAT, folder, path, 0 as c_int, name) };
    raw::check(done).map(drop)
}

fn get_at(number: &FdName, name: &CStr, value: &mut [u8]) -> Result<usize> {
    // The kernel cuts the size at 64 KiB itself, so a longer buffer loses nothing.
    let size = u32::try_from(value.len()).unwrap_or(u32::MAX);
    let args = XattrArgs { value: address(value.as_mut_ptr()), size, flags: 0 };
    let folder = proc_fd::folder()?.as_raw_fd();
    let (path, name, len) = (number.relative().as_ptr(), name.as_ptr(), size_of::<XattrArgs>());
    // SAFETY: both strings are C strings; `args` describes `value`, which is borrowed for writing.
    let got = unsafe { libc::syscall(GETXATTRAT, folder, path, 0 as c_int, name, &raw const args, len) };
    raw::check(got)
}

fn address(start: *const u8) -> u64 {
    start.expose_provenance() as u64
}

/// Whether the kernel has the *xattrat calls and lets us make them, asked once.
fn has_at_calls() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let Ok(folder) = proc_fd::folder() else { return false };
        // procfs keeps no such attribute; a kernel or sandbox without the call says ENOSYS or EPERM instead.
        let answer = get_at(&FdName::new(folder), c"user.shuntfs.probe", &mut []);
        !matches!(answer, Err(OsError::NOSYS | OsError::PERM))
    })
}
