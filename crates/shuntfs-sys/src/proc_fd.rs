//! The folder `/proc/self/fd`, opened once: the way from an `O_PATH` descriptor back to a path.
//!
//! Lookups start at the held descriptor, so they still work after chroot or unshare, and cost one component instead of
//! four. The descriptor names the process that opened it, so a forked child must open its own; a `pthread_atfork`
//! handler sees to that, and [`crate::child`], which forks without the C library, calls it itself.
//!
//! # Safety
//! A descriptor stored in [`FOLDER`] is never closed, which is what makes handing it out as `'static` sound.
#![expect(unsafe_code, reason = "borrows the descriptor that a static holds, and registers a fork handler")]

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, RawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::fs::{CWD, Mode, OFlags};

use crate::Result;

const CLOSED: RawFd = -1;
static FOLDER: AtomicI32 = AtomicI32::new(CLOSED);

/// The folder of this process's descriptors.
///
/// # Errors
/// What opening `/proc/self/fd` gives: ENOENT where procfs is not mounted, EMFILE at the descriptor limit.
pub(crate) fn folder() -> Result<BorrowedFd<'static>> {
    let held = FOLDER.load(Ordering::Acquire);
    if held == CLOSED {
        return open_folder();
    }
    // SAFETY: what `FOLDER` holds is open and never closed.
    Ok(unsafe { BorrowedFd::borrow_raw(held) })
}

#[cold]
fn open_folder() -> Result<BorrowedFd<'static>> {
    static FORK_HANDLER: Once = Once::new();
    FORK_HANDLER.call_once(|| {
        // SAFETY: the handler only stores to an atomic, which is allowed in a forked child.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(forget_folder)) };
    });
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(CWD, c"/proc/self/fd", flags, Mode::empty())?;
    let winner = FOLDER.compare_exchange(CLOSED, opened.as_raw_fd(), Ordering::AcqRel, Ordering::Acquire);
    let held = match winner {
        Ok(_) => opened.into_raw_fd(),
        Err(earlier) => earlier,
    };
    // SAFETY: what `FOLDER` holds is open and never closed.
    Ok(unsafe { BorrowedFd::borrow_raw(held) })
}

/// A child does not know the folder of its parent.
pub(crate) extern "C" fn forget_folder() {
    FOLDER.store(CLOSED, Ordering::Release);
}

const PREFIX: &[u8] = b"/proc/self/fd/";
const DIGITS_MAX: usize = 10;

/// A descriptor's name inside [`folder`] and below `/`, without allocating.
pub(crate) struct FdName {
    bytes: [u8; PREFIX.len() + DIGITS_MAX + 1],
    len: usize,
}

impl FdName {
    pub(crate) fn new(fd: impl AsFd) -> Self {
        let mut digits = [0_u8; DIGITS_MAX];
        let mut number = fd.as_fd().as_raw_fd().unsigned_abs();
        let mut count = 0;
        while count == 0 || (number > 0 && count < DIGITS_MAX) {
            let digit = u8::try_from(number % 10).unwrap_or(0);
            digits[DIGITS_MAX - 1 - count] = b'0' + digit;
            number /= 10;
            count += 1;
        }
        let mut bytes = [0; PREFIX.len() + DIGITS_MAX + 1];
        bytes[..PREFIX.len()].copy_from_slice(PREFIX);
        let len = PREFIX.len() + count;
        bytes[PREFIX.len()..len].copy_from_slice(&digits[DIGITS_MAX - count..]);
        Self { bytes, len }
    }

    /// `N`, relative to [`folder`].
    pub(crate) fn relative(&self) -> &CStr {
        terminated(&self.bytes[PREFIX.len()..=self.len])
    }

    /// `/proc/self/fd/N`.
    pub(crate) fn absolute(&self) -> &CStr {
        terminated(&self.bytes[..=self.len])
    }
}

fn terminated(bytes: &[u8]) -> &CStr {
    CStr::from_bytes_with_nul(bytes).expect("digits and one NUL at the end")
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn names_follow_the_number() {
        for number in [0, 7, 10, 99, 100, 65_535, i32::MAX] {
            // SAFETY: the descriptor is only formatted, never used.
            let fd = unsafe { BorrowedFd::borrow_raw(number) };
            let name = FdName::new(fd);
            assert_eq!(name.relative().to_str().unwrap(), number.to_string());
            assert_eq!(name.absolute().to_str().unwrap(), format!("/proc/self/fd/{number}"));
        }
    }

    #[test]
    fn the_folder_is_opened_once() {
        let first = folder().unwrap().as_raw_fd();
        assert_eq!(folder().unwrap().as_raw_fd(), first);
    }

    #[test]
    fn a_forked_child_opens_its_own() {
        folder().unwrap();
        // SAFETY: the child makes plain system calls only, and ends without returning.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let inode = |dir, path| {
                rustix::fs::statat(dir, path, rustix::fs::AtFlags::EMPTY_PATH).map(|stat| stat.st_ino)
            };
            let held = folder().and_then(|held| inode(held, c""));
            let own = inode(CWD, c"/proc/self/fd");
            let is_own = held.is_ok() && held == own;
            // SAFETY: ends the child without running anything of the parent's.
            unsafe { libc::_exit(i32::from(!is_own)) };
        }
        let mut status = 0;
        // SAFETY: `status` is an int, and the child is ours.
        let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!((ended, status), (child, 0));
    }
}
