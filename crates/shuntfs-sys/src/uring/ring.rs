//! The ring: push, enter, reap.
//!
//! # Safety
//! The kernel reads and writes the memory that submissions name until their completion. Every method that
//! names memory is `unsafe` and says so; the ring itself keeps no pointer.
#![expect(unsafe_code, reason = "submissions name memory that the kernel fills")]

use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, cqueue, opcode, squeue};
use rustix::event::PollFlags;
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

    /// Queues a poll, which completes once: when the descriptor is readable, or has failed.
    pub fn push_poll(&mut self, fd: BorrowedFd<'_>, user_data: u64) {
        let wanted = u32::from(PollFlags::IN.bits());
        let entry = opcode::PollAdd::new(Fd(fd.as_raw_fd()), wanted).build().user_data(user_data);
        // SAFETY: a poll names no memory, and the kernel holds the file itself while it waits.
        unsafe { self.push(&entry.into()) };
    }

    /// Queues an attempt to end the submission that carries `target` early; it completes in any case. The attempt
    /// completes only where it fails.
    pub fn push_cancel(&mut self, target: u64, user_data: u64) {
        let entry = opcode::AsyncCancel::new(target).build();
        let entry = entry.flags(squeue::Flags::SKIP_SUCCESS).user_data(user_data);
        // SAFETY: a cancellation names no memory.
        unsafe { self.push(&entry.into()) };
    }

    /// Submits what is queued and waits for `want` completions, at most `timeout` where one is given. With a `want` of
    /// zero it collects what has completed and does not wait.
    ///
    /// # Errors
    /// ETIME where the time ran out; EINTR never (it is retried by the caller's loop as an empty return).
    pub fn enter(&mut self, want: u32, timeout: Option<std::time::Duration>) -> Result<()> {
        let want = want as usize;
        let entered = match timeout {
            None if want == 0 => self.collect(),
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

    /// Submits, and runs the task work that completions were deferred to, which a mere submission does not.
    fn collect(&mut self) -> std::io::Result<usize> {
        let queued = u32::try_from(self.ring.submission().len()).unwrap_or(u32::MAX);
        let flags = EnterFlags::GETEVENTS.bits();
        // SAFETY: no argument is passed, and the submissions were pushed under the contracts of their methods.
        unsafe { self.ring.submitter().enter::<()>(queued, 0, flags, None) }
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
    fn a_poll_tells_once_and_a_cancelled_one_at_once() {
        let Ok(mut ring) = Ring::new(8) else {
            println!("SKIPPED: io_uring is not to be had here");
            return;
        };
        let bell = crate::event::EventFd::new().expect("eventfd");
        let nothing = |ring: &mut Ring| ring.enter(1, Some(std::time::Duration::from_millis(5)));
        ring.push_poll(bell.as_fd(), 1);
        ring.enter(0, None).expect("a call that submits tells of that, and not of the time");
        assert_eq!(nothing(&mut ring), Err(Errno::TIME), "it waits");
        bell.signal();
        ring.enter(0, None).expect("collects without waiting");
        assert_eq!(ring.next_completion().map(|done| (done.user_data, done.result)), Some((1, 1)));
        bell.signal();
        assert_eq!(nothing(&mut ring), Err(Errno::TIME), "it told already");
        bell.drain();
        ring.push_poll(bell.as_fd(), 2);
        ring.push_cancel(2, 3);
        ring.enter(1, None).expect("the poll ends");
        let cancelled = -Errno::CANCELED.raw_os_error();
        assert_eq!(ring.next_completion().map(|done| (done.user_data, done.result)), Some((2, cancelled)));
        assert!(ring.next_completion().is_none(), "a cancellation that worked says nothing");
        ring.push_cancel(2, 3);
        ring.enter(1, None).expect("there is nothing to cancel any more");
        let missing = -Errno::NOENT.raw_os_error();
        assert_eq!(ring.next_completion().map(|done| (done.user_data, done.result)), Some((3, missing)));
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
