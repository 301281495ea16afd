//! The ring: push, enter, reap.
//!
//! # Safety
//! The kernel reads and writes the memory that submissions name until their completion. A [`Submission`] is only a description;
//! pushing one that names memory is `unsafe` and says so. The ring itself keeps no pointer. Its table of buffers has none of this process's
//! memory in it: only drivers put pages there, which they hold themselves.
#![expect(unsafe_code, reason = "submissions name memory that the kernel fills")]

use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use io_uring::types::Fd;
use io_uring::{IoUring, opcode, squeue};
use rustix::event::PollFlags;
use rustix::io::Errno;

use crate::device::FuseDevice;
use crate::{Result, faults};

use super::bare::BareRing;
use super::base::Base;
use super::stand_in::StandIn;

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
    pub bytes: [u8; 40],
    /// An array of two `iovec`, or zero.
    pub iovecs: u64,
    /// How many.
    pub iovecs_count: u32,
    /// The place in the ring's table of the pinned memory that the driver is to use (`IORING_URING_CMD_FIXED`).
    pub pinned: Option<u16>,
}

/// What the kernel is to do.
#[derive(Clone)]
pub struct Submission(squeue::Entry128);

/// One io_uring, entered by the one thread that made it.
pub struct Ring {
    ring: Base,
    /// What found no room, even after submitting; each element is submitted whole.
    backlog: VecDeque<Vec<squeue::Entry128>>,
    /// Where a test has the driver's part.
    stand_in: Option<Box<StandIn>>,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Submission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Submission").finish_non_exhaustive()
    }
}

impl Submission {
    /// A read of `len` bytes of a lower file at `offset`.
    #[must_use]
    #[track_caller]
    pub fn read(fd: BorrowedFd<'_>, (into, len): (*mut u8, u32), offset: u64, user_data: u64) -> Self {
        let entry = opcode::Read::new(Fd(fd.as_raw_fd()), into, len).offset(offset).build();
        Self::of_lower(entry, user_data)
    }

    /// A write of `len` bytes to a lower file at `offset`.
    #[must_use]
    #[track_caller]
    pub fn write(fd: BorrowedFd<'_>, (from, len): (*const u8, u32), offset: u64, user_data: u64) -> Self {
        let entry = opcode::Write::new(Fd(fd.as_raw_fd()), from, len).offset(offset).build();
        Self::of_lower(entry, user_data)
    }

    /// A read of `at.len()` bytes of a lower file at `offset`, into the pages that a driver put into place `place` of the ring's table, from
    /// their byte `at.start` on.
    #[must_use]
    #[track_caller]
    pub fn read_to_pages(
        fd: BorrowedFd<'_>,
        (place, at): (u16, Range<u32>),
        offset: u64,
        user_data: u64,
    ) -> Self {
        let start = std::ptr::without_provenance_mut(at.start as usize);
        let len = at.end.saturating_sub(at.start);
        let entry = opcode::ReadFixed::new(Fd(fd.as_raw_fd()), start, len, place).offset(offset).build();
        Self::of_lower(entry, user_data)
    }

    /// A write to a lower file of what is in such pages; as [`Submission::read_to_pages`].
    #[must_use]
    #[track_caller]
    pub fn write_from_pages(
        fd: BorrowedFd<'_>,
        (place, at): (u16, Range<u32>),
        offset: u64,
        user_data: u64,
    ) -> Self {
        let start = std::ptr::without_provenance(at.start as usize);
        let len = at.end.saturating_sub(at.start);
        let entry = opcode::WriteFixed::new(Fd(fd.as_raw_fd()), start, len, place).offset(offset).build();
        Self::of_lower(entry, user_data)
    }

    /// The same by a thread of the kernel, from the start on, where `is_so` holds. Otherwise the calling thread tries first whether it can be done
    /// without waiting, with the ring locked, and a file that waits nevertheless keeps whoever needs the ring: the thread, and who aborts the
    /// connection whose commands the ring has (`io_uring_cmd_del_cancelable`, Linux 7.3).
    #[must_use]
    pub fn by_worker(self, is_so: bool) -> Self {
        let flags = if is_so { squeue::Flags::ASYNC } else { squeue::Flags::empty() };
        Self(self.0.flags(flags))
    }

    /// A write of `len` bytes to a device, which is no place in a file.
    #[must_use]
    pub fn answer(fd: BorrowedFd<'_>, (from, len): (*const u8, u32), user_data: u64) -> Self {
        let entry = opcode::Write::new(Fd(fd.as_raw_fd()), from, len).build();
        Self(entry.user_data(user_data).into())
    }

    /// A driver command.
    #[must_use]
    pub fn command(fd: BorrowedFd<'_>, command: &UringCommand, user_data: u64) -> Self {
        let mut cmd = [0_u8; 80];
        cmd[..command.bytes.len()].copy_from_slice(&command.bytes);
        let mut entry = opcode::UringCmd80::new(Fd(fd.as_raw_fd()), command.op)
            .cmd(cmd)
            .addr(Some(command.iovecs))
            .buf_index(command.pinned)
            .build()
            .user_data(user_data);
        set(&mut entry, Field::Len, command.iovecs_count);
        Self(entry)
    }

    /// An operation on a lower file. One that a test has made fail is a submission that moves no bytes and completes with the error
    /// (`IORING_NOP_INJECT_RESULT`, Linux 6.10), so that what is linked behind it is dropped by the kernel itself.
    #[track_caller]
    fn of_lower(entry: squeue::Entry, user_data: u64) -> Self {
        let Err(error) = faults::point() else { return Self(entry.user_data(user_data).into()) };
        Self(failing(user_data, error))
    }
}

/// A submission that moves no bytes and completes with an error.
pub(super) fn failing(user_data: u64, error: Errno) -> squeue::Entry128 {
    let mut failing = opcode::Nop::new().build().user_data(user_data).into();
    set(&mut failing, Field::Len, error.raw_os_error().wrapping_neg().cast_unsigned());
    set(&mut failing, Field::Flags, NOP_INJECT_RESULT);
    failing
}

static FORBIDDEN: AtomicBool = AtomicBool::new(false);

/// Has this process make no ring that a descriptor names from now on, for its whole life. For one whose descriptors another process shares: a ring is only taken
/// down when its last descriptor is closed, so what a dead process's ring was to do for FUSE would be waited for, by callers that
/// nothing can kill, for as long as the other process lives.
pub fn forbid_rings() {
    FORBIDDEN.store(true, Ordering::Relaxed);
}

impl Ring {
    /// Makes a ring with room for `entries` submissions, rounded up by the kernel.
    ///
    /// # Errors
    /// EPERM where a container or `kernel.io_uring_disabled` forbids io_uring, or [`forbid_rings`] did; ENOSYS and EINVAL on
    /// kernels before 6.1, ENOMEM.
    pub fn new(entries: u32) -> Result<Self> {
        if FORBIDDEN.load(Ordering::Relaxed) {
            return Err(Errno::PERM);
        }
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_submit_all()
            .setup_clamp()
            .setup_cqsize(entries.saturating_mul(2))
            .build(entries)
            .map_err(|error| from_io(&error))?;
        Ok(Self::on(Base::Described(Box::new(ring))))
    }

    /// Makes a ring that no descriptor names, and that is taken down when its thread ends, whoever shares the table of descriptors: also where
    /// [`forbid_rings`] holds.
    ///
    /// # Errors
    /// EINVAL before Linux 6.10; else those of [`Ring::new`].
    pub fn without_descriptor(entries: u32) -> Result<Self> {
        BareRing::new(entries).map(|ring| Self::on(Base::Bare(ring)))
    }

    fn on(ring: Base) -> Self {
        Self { ring, backlog: VecDeque::new(), stand_in: None }
    }

    /// Makes a ring for the commands of a device, as [`Ring::new`] does. Where a test stands in for the kernel behind the device, it gets the
    /// commands.
    ///
    /// # Errors
    /// Those of [`Ring::new`], and EOPNOTSUPP where what stands in takes no commands.
    pub fn of_device(device: &FuseDevice, entries: u32) -> Result<Self> {
        let mut ring = Self::new(entries)?;
        if let Some(peer) = device.peer() {
            let own = ring.ring.described().ok_or(Errno::OPNOTSUPP)?;
            ring.stand_in = Some(Box::new(StandIn::attach(own, |end| peer.ring(end))?));
        }
        Ok(ring)
    }

    /// Makes the ring's table of buffers: so many empty places, for drivers to put pages in. Once, before anything is queued.
    ///
    /// # Errors
    /// EINVAL before Linux 5.19, and beyond 16,384 places; ENOMEM.
    pub fn make_table(&mut self, places: u16) -> Result<()> {
        if let Some(stand_in) = &self.stand_in {
            return stand_in.make_table(places);
        }
        let own = self.ring.described().ok_or(Errno::OPNOTSUPP)?;
        own.submitter().register_buffers_sparse(places.into()).map_err(|error| from_io(&error))
    }

    /// Pins memory of this process, and puts it into an empty place of the ring's table, for commands to name. It stays pinned until the ring
    /// is gone, also where it is unmapped before.
    ///
    /// # Safety
    /// For as long, nobody may rely on other pages at this address: the memory must not be given back to the system and used again.
    ///
    /// # Errors
    /// ENOMEM past the limit of locked memory, EINVAL beyond the table, EFAULT.
    pub unsafe fn pin(&mut self, place: u16, (start, len): (*mut u8, usize)) -> Result<()> {
        if let Some(stand_in) = &self.stand_in {
            return stand_in.pin(place, (start.addr() as u64, len));
        }
        let memory = [libc::iovec { iov_base: start.cast(), iov_len: len }];
        let own = self.ring.described().ok_or(Errno::OPNOTSUPP)?;
        // SAFETY: handed on to the caller by this function's contract; the kernel itself holds the pages.
        let pinned = unsafe { own.submitter().register_buffers_update(place.into(), &memory, None) };
        pinned.map_err(|error| from_io(&error))
    }

    /// Queues a submission.
    ///
    /// # Safety
    /// Memory that it names must stay valid until the completion is reaped: untouched where the kernel writes, unchanged where it
    /// reads, and as a driver's protocol has it for a command. Descriptors must stay open until it is submitted.
    pub unsafe fn push(&mut self, submission: Submission) {
        let submission = match &mut self.stand_in {
            None => submission.0,
            Some(stand_in) => stand_in.translate(submission.0),
        };
        // SAFETY: handed on to the caller by this function's contract.
        unsafe { self.push_whole(&[submission]) };
    }

    /// Queues two submissions, which the kernel sees in the same call. The second starts only when the first, a read or a write, moved
    /// all its bytes; then only the second completes. Otherwise it is dropped, and only the first completes
    /// (`IOSQE_CQE_SKIP_SUCCESS`, whose failure hides the rest of its chain: io_uring/io_uring.c, `io_fail_links`).
    ///
    /// # Safety
    /// As of [`Ring::push`], until one of the two completes.
    pub unsafe fn push_linked(&mut self, first: Submission, second: Submission) {
        let (first, second) = match &mut self.stand_in {
            None => (first.0, second.0),
            Some(stand_in) => stand_in.translate_linked(first.0, second.0),
        };
        let first = first.flags(squeue::Flags::IO_LINK | squeue::Flags::SKIP_SUCCESS);
        // SAFETY: handed on to the caller by this function's contract.
        unsafe { self.push_whole(&[first, second]) };
    }

    /// Queues a poll, which completes once: when the descriptor is readable, or has failed.
    pub fn push_poll(&mut self, fd: BorrowedFd<'_>, user_data: u64) {
        self.push_poll_for(PollFlags::IN, fd, user_data);
    }

    /// Queues a poll, which completes once: when the descriptor has failed.
    pub fn push_poll_end(&mut self, fd: BorrowedFd<'_>, user_data: u64) {
        self.push_poll_for(PollFlags::empty(), fd, user_data);
    }

    fn push_poll_for(&mut self, wanted: PollFlags, fd: BorrowedFd<'_>, user_data: u64) {
        let wanted = u32::from(wanted.bits());
        let entry = opcode::PollAdd::new(Fd(fd.as_raw_fd()), wanted).build().user_data(user_data);
        // SAFETY: a poll names no memory, and the kernel holds the file itself while it waits.
        unsafe { self.push_whole(&[entry.into()]) };
    }

    /// Queues an attempt to end the submission that carries `target` early; it completes in any case. The attempt
    /// completes only where it fails.
    pub fn push_cancel(&mut self, target: u64, user_data: u64) {
        let entry = opcode::AsyncCancel::new(target).build();
        let entry = entry.flags(squeue::Flags::SKIP_SUCCESS).user_data(user_data);
        // SAFETY: a cancellation names no memory.
        unsafe { self.push_whole(&[entry.into()]) };
    }

    /// Whether something is queued that was not submitted.
    #[must_use]
    pub fn has_queued(&mut self) -> bool {
        !self.backlog.is_empty() || self.ring.queued() > 0
    }

    /// Submits what is queued and waits for `want` completions, at most `timeout` where one is given. With a `want` of
    /// zero it collects what has completed and does not wait.
    ///
    /// # Errors
    /// ETIME where the time ran out; EINTR never (it is retried by the caller's loop as an empty return).
    pub fn enter(&mut self, want: u32, timeout: Option<std::time::Duration>) -> Result<()> {
        // What has no room yet must not be waited for.
        let want = if self.refill() { want } else { 0 };
        match self.ring.enter(want, timeout) {
            // BUSY: the completion queue has overflowed; reaping makes room.
            Err(Errno::INTR | Errno::BUSY | Errno::AGAIN) => Ok(()),
            entered => entered,
        }
    }

    /// Takes the next completion.
    pub fn next_completion(&mut self) -> Option<Completion> {
        let completion = self.ring.next()?;
        if let Some(stand_in) = &mut self.stand_in {
            stand_in.completed(completion.user_data);
        }
        Some(completion)
    }

    /// Queues submissions that the kernel is to see in one call. Where they have no room, what is queued is submitted first; what has none
    /// after that waits for the next call.
    ///
    /// # Safety
    /// As of [`Ring::push`], for each.
    unsafe fn push_whole(&mut self, entries: &[squeue::Entry128]) {
        if !self.refill() || !self.has_taken(entries) {
            self.backlog.push_back(entries.to_vec());
        }
    }

    /// Moves the backlog to the queue; false where a part of it is left.
    fn refill(&mut self) -> bool {
        while let Some(first) = self.backlog.pop_front() {
            if !self.has_taken(&first) {
                self.backlog.push_front(first);
                return false;
            }
        }
        true
    }

    /// Queues all of them or none. They come from `push_whole`, whose callers vouch for them.
    fn has_taken(&mut self, entries: &[squeue::Entry128]) -> bool {
        // SAFETY: whoever pushed them first keeps what they name.
        if unsafe { self.ring.push(entries) } {
            return true;
        }
        // An error here is seen again by the next `enter`.
        let _submitted = self.ring.submit();
        // SAFETY: as above.
        unsafe { self.ring.push(entries) }
    }
}

/// What the crate has no setter for, by its offset in `struct io_uring_sqe`.
#[derive(Clone, Copy)]
enum Field {
    Len = 24,
    Flags = 28,
}

/// `IORING_NOP_INJECT_RESULT`.
const NOP_INJECT_RESULT: u32 = 1;

fn set(entry: &mut squeue::Entry128, field: Field, value: u32) {
    let place = std::ptr::from_mut(entry).cast::<u8>().wrapping_add(field as usize);
    // SAFETY: the entry is `repr(C)` over the kernel's 128-byte submission, in which each of these is four aligned bytes.
    unsafe { place.cast::<u32>().write(value) };
}

pub(super) fn from_io(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod test;
