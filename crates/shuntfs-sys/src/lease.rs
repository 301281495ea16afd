//! Read leases: nobody has the file open for writing, and who wants to waits.
//!
//! A lease is the open file's. It counts every writer of the inode: descriptors, shared mappings that outlived theirs,
//! and files that the kernel opened by itself, as it does for FUSE passthrough. While it is held, an open for writing and
//! a truncation wait (with `O_NONBLOCK` they fail with EWOULDBLOCK), for at most `/proc/sys/fs/lease-break-time` seconds.
//!
//! The holder of a lease that somebody waits for gets a signal, which would end the process; so SIGURG is asked for, which
//! is ignored unless somebody wants it.
//!
//! # Safety
//! fcntl is given numbers only.
#![expect(unsafe_code, reason = "rustix has no leases")]

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd};

use crate::{OsError, Result, faults, raw};

/// `F_SETSIG`, which the `libc` crate lacks on some targets.
const F_SETSIG: c_int = 10;

/// Takes a read lease on a file that is open for reading only.
///
/// # Errors
/// EAGAIN where somebody has the file open for writing, EINVAL where the file system has no leases or they are turned
/// off, EACCES for a file of somebody else's without `CAP_LEASE`.
pub fn take_read_lease(fd: impl AsFd) -> Result<()> {
    faults::point()?;
    fcntl(&fd, F_SETSIG, libc::SIGURG)?;
    fcntl(&fd, libc::F_SETLEASE, libc::F_RDLCK).map(drop)
}

/// Whether the lease is held and nobody waits for it. While somebody does, it still keeps writers out; but not for longer
/// than the kernel lets them wait, so what was done meanwhile is not to be relied on.
///
/// # Errors
/// Those of `fcntl(2)`.
pub fn is_undisturbed(fd: impl AsFd) -> Result<bool> {
    faults::point()?;
    Ok(fcntl(&fd, libc::F_GETLEASE, 0)? == libc::F_RDLCK)
}

/// Gives the lease back.
///
/// # Errors
/// EAGAIN where there is none any more.
pub fn give_back_lease(fd: impl AsFd) -> Result<()> {
    fcntl(&fd, libc::F_SETLEASE, libc::F_UNLCK).map(drop)
}

fn fcntl(fd: &impl AsFd, command: c_int, argument: c_int) -> Result<c_int> {
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: none of these commands takes a pointer.
    let answer = unsafe { libc::syscall(libc::SYS_fcntl, fd, command, argument) };
    let answer = raw::check(answer)?;
    c_int::try_from(answer).map_err(|_| OsError::IO)
}

#[cfg(test)]
mod test {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::OpenOptionsExt;

    #[test]
    fn writers_and_leases_keep_each_other_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leased");
        let writer = File::create_new(&path).unwrap();
        let reader = File::open(&path).unwrap();
        assert_eq!(take_read_lease(&reader), Err(OsError::AGAIN));
        drop(writer);
        take_read_lease(&reader).unwrap();
        assert_eq!(is_undisturbed(&reader), Ok(true));
        let hasty = File::options().write(true).custom_flags(libc::O_NONBLOCK).open(&path);
        assert_eq!(hasty.unwrap_err().raw_os_error(), Some(libc::EWOULDBLOCK));
        assert_eq!(is_undisturbed(&reader), Ok(false), "and the signal did not end us");
        let patient = std::thread::spawn({
            let path = path.clone();
            move || File::options().write(true).open(path).map(drop)
        });
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!patient.is_finished());
        give_back_lease(&reader).unwrap();
        patient.join().unwrap().unwrap();
        take_read_lease(&reader).unwrap();
    }
}
