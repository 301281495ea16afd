//! The ring: push, enter, reap.
//!
//! # Safety
//! The kernel reads and writes the memory that submissions name until their completion. Every method that
//! names memory is `unsafe` and says so; the ring itself keeps no pointer.
#![expect(unsafe_code, reason = "submissions name memory that the kernel fills")]

use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::io::Errno;

use crate::Result;

/// A finished submission.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    /// What the submission carried.
    pub user_data: u64,
    /// The operation's result: a count, or a negative error number.
    pub result: i32,
}

/// A command to the driver behind a descriptor (`IORING_OP_URING_CMD`).
#[derive(Clone, Copy, Debug)]
pub struct UringCommand {
    /// The command's number.
    pub op: u32,
    /// The command's own bytes, at offset 48 of the submission.
    pub bytes: [u8; 32],
    /// An array of two `iovec`, or zero.
    pub iovecs: u64,
    /// How many.
    pub iovecs_count: u32,
}

/// One io_uring, entered by the one thread that made it.
pub struct Ring {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("fd", &self.ring.as_raw_fd()).finish()
    }
}

impl Ring {
    /// Makes a ring with room for `entries` submissions, rounded up by the kernel.
    ///
    /// # Errors
    /// EPERM where a container or `kernel.io_uring_disabled` forbids io_uring, ENOSYS and EINVAL on kernels
    /// before 6.1, ENOMEM.
    pub fn new(entries: u32) -> Result<Self> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_submit_all()
            .setup_clamp()
            .setup_cqsize(entries.saturating_mul(2))
            .build(entries)
            .map_err(|error| from_io(&error))?;
        Ok(Self { ring })
    }

    /// Queues a driver command.
    ///
    /// # Safety
    /// Memory that the command or its `iovec`s name must stay valid, and must not be touched in ways that the
    /// driver's protocol forbids, until the completion is reaped.
    pub unsafe fn push_command(&mut self, fd: BorrowedFd<'_>, command: &UringCommand, user_data: u64) {
        let mut cmd = [0_u8; 80];
        cmd[..32].copy_from_slice(&command.bytes);
        let mut entry = opcode::UringCmd80::new(Fd(fd.as_raw_fd()), command.op)
            .cmd(cmd)
            .addr(Some(command.iovecs))
            .build()
            .user_data(user_data);
        let len_field = std::ptr::from_mut(&mut entry).cast::<u8>().wrapping_add(SQE_LEN_OFFSET);
        // SAFETY: the entry is `repr(C)` over the kernel's 128-byte submission, whose `len` is four aligned
        // bytes at this offset; the crate has no setter for it.
        unsafe { len_field.cast::<u32>().write(command.iovecs_count) };
        // SAFETY: handed on to the caller by this function's contract.
        unsafe { self.push(&entry) };
    }

    /// Queues a read of `len` bytes at `offset`. With `link`, the next submission starts only when all `len` bytes
    /// were read. Then only that one completes; otherwise it is dropped, and only the read completes
    /// (`IOSQE_CQE_SKIP_SUCCESS`, whose failure hides the rest of its chain: io_uring/io_uring.c, `io_fail_links`).
    ///
    /// # Safety
    /// `into` must be valid for writes of `len` bytes, and untouched, until the completion is reaped.
    pub unsafe fn push_read(
        &mut self,
        fd: BorrowedFd<'_>,
        into: (*mut u8, u32),
        offset: u64,
        user_data: u64,
        link: bool,
    ) {
        let entry =
            opcode::Read::new(Fd(fd.as_raw_fd()), into.0, into.1).offset(offset).build().user_data(user_data);
        let entry =
            if link { entry.flags(squeue::Flags::IO_LINK | squeue::Flags::SKIP_SUCCESS) } else { entry };
        // SAFETY: handed on to the caller by this function's contract.
        unsafe { self.push(&entry.into()) };
    }

    /// Queues a write of `len` bytes at `offset`.
    ///
    /// # Safety
    /// `from` must be valid for reads of `len` bytes, and unchanged, until the completion is reaped.
    pub unsafe fn push_write(
        &mut self,
        fd: BorrowedFd<'_>,
        from: (*const u8, u32),
        offset: u64,
        user_data: u64,
    ) {
        let entry = opcode::Write::new(Fd(fd.as_raw_fd()), from.0, from.1)
            .offset(offset)
            .build()
            .user_data(user_data);
        // SAFETY: handed on to the caller by this function's contract.
        unsafe { self.push(&entry.into()) };
    }

    /// Submits what is queued and waits for `want` completions, at most `timeout` where one is given.
    ///
    /// # Errors
    /// ETIME where the time ran out; EINTR never (it is retried by the caller's loop as an empty return).
    pub fn enter(&mut self, want: u32, timeout: Option<std::time::Duration>) -> Result<()> {
        let want = want as usize;
        let entered = match timeout {
            None => self.ring.submit_and_wait(want),
            Some(limit) => {
                let limit = Timespec::from(limit);
                self.ring.submitter().submit_with_args(want, &SubmitArgs::new().timespec(&limit))
            }
        };
        match entered {
            Ok(_) => Ok(()),
            Err(error) => match from_io(&error) {
                // BUSY: the completion queue has overflowed; reaping makes room.
                Errno::INTR | Errno::BUSY | Errno::AGAIN => Ok(()),
                other => Err(other),
            },
        }
    }

    /// Takes the next completion.
    pub fn next_completion(&mut self) -> Option<Completion> {
        let entry = self.ring.completion().next()?;
        Some(Completion { user_data: entry.user_data(), result: entry.result() })
    }

    /// # Safety
    /// As for the public methods: memory named by `entry` stays valid until its completion.
    unsafe fn push(&mut self, entry: &squeue::Entry128) {
        loop {
            // SAFETY: handed on to the caller by this function's contract.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return;
            }
            // The queue is full: submitting empties it. An error here is seen again by the next `enter`.
            let _submitted = self.ring.submit();
        }
    }
}

/// `offsetof(struct io_uring_sqe, len)`.
const SQE_LEN_OFFSET: usize = 24;

fn from_io(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod test {
    use super::*;
    use std::os::fd::AsFd;

    /// What completes of a read of 4096 bytes at `offset` of the own program with another linked behind it.
    fn linked_pair(from_end: u64) -> Option<Vec<(u64, i32)>> {
        let mut ring = Ring::new(8).ok()?;
        let file = std::fs::File::open("/proc/self/exe").expect("own program");
        let len = file.metadata().expect("stat").len();
        let mut first = vec![0_u8; 4096];
        let mut second = vec![0_u8; 4096];
        // SAFETY: both buffers outlive the last `enter` below, which waits for both operations.
        unsafe { ring.push_read(file.as_fd(), (first.as_mut_ptr(), 4096), len - from_end, 1, true) };
        // SAFETY: as above.
        unsafe { ring.push_read(file.as_fd(), (second.as_mut_ptr(), 4096), 0, 2, false) };
        let mut seen = Vec::new();
        ring.enter(1, None).expect("enter");
        while ring.enter(1, Some(std::time::Duration::from_millis(50))) != Err(Errno::TIME) {
            seen.extend(
                std::iter::from_fn(|| ring.next_completion()).map(|done| (done.user_data, done.result)),
            );
        }
        Some(seen)
    }

    #[test]
    fn a_linked_pair_completes_once_whole_or_broken() {
        let Some(whole) = linked_pair(8192) else {
            println!("SKIPPED: io_uring is not to be had here");
            return;
        };
        assert_eq!(whole, [(2, 4096)]);
        assert_eq!(linked_pair(100), Some(vec![(1, 100)]), "a short read drops what is linked behind it");
    }

    #[test]
    fn waiting_ends_with_the_timeout() {
        let Ok(mut ring) = Ring::new(8) else {
            println!("SKIPPED: io_uring is not to be had here");
            return;
        };
        let waited = ring.enter(1, Some(std::time::Duration::from_millis(5)));
        assert_eq!(waited, Err(Errno::TIME));
    }
}
