//! A ring without a descriptor: its memory is this process's own (`IORING_SETUP_NO_MMAP`), and only its index among the registered rings of
//! the thread that made it names it (`IORING_SETUP_REGISTERED_FD_ONLY`). So no other process can hold it, and it is taken down when that
//! thread ends, whoever shares this process's table of descriptors.
//!
//! # Safety
//! The two regions are shared with the kernel, which pins their pages for as long as the ring lives. Both sides touch the heads and tails as
//! atomic words. A submission is written before the tail that publishes it, and a completion is read before the head that gives it back.
#![expect(unsafe_code, reason = "the kernel shares the memory of a ring")]

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use io_uring::squeue;

use crate::raw::check;
use crate::region::Region;
use crate::{OsError, Result};

use super::ring::Completion;

/// `struct io_uring_params` of `<linux/io_uring.h>`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Params {
    sq_entries: u32,
    cq_entries: u32,
    flags: u32,
    sq_thread_cpu: u32,
    sq_thread_idle: u32,
    features: u32,
    wq_fd: u32,
    resv: [u32; 3],
    sq_off: Offsets,
    cq_off: Offsets,
}

/// `struct io_sqring_offsets`, and `struct io_cqring_offsets`, whose fifth and sixth words are where the overflow is counted and where the
/// completions begin.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Offsets {
    head: u32,
    tail: u32,
    ring_mask: u32,
    ring_entries: u32,
    fifth: u32,
    sixth: u32,
    seventh: u32,
    resv1: u32,
    user_addr: u64,
}

const _: () = assert!(size_of::<Params>() == 120 && size_of::<Offsets>() == 40);
const _: () = assert!(size_of::<squeue::Entry128>() == SQE_LEN);

/// `struct io_uring_getevents_arg`.
#[repr(C)]
struct GeteventsArg {
    sigmask: u64,
    sigmask_sz: u32,
    min_wait_usec: u32,
    ts: u64,
}

/// `struct __kernel_timespec`.
#[repr(C)]
struct KernelTimespec {
    secs: i64,
    nanos: i64,
}

const SETUP_CQSIZE: u32 = 1 << 3;
const SETUP_CLAMP: u32 = 1 << 4;
const SETUP_SUBMIT_ALL: u32 = 1 << 7;
const SETUP_SQE128: u32 = 1 << 10;
const SETUP_SINGLE_ISSUER: u32 = 1 << 12;
const SETUP_DEFER_TASKRUN: u32 = 1 << 13;
const SETUP_NO_MMAP: u32 = 1 << 14;
const SETUP_REGISTERED_FD_ONLY: u32 = 1 << 15;

const ENTER_GETEVENTS: u32 = 1;
const ENTER_EXT_ARG: u32 = 1 << 3;
const ENTER_REGISTERED_RING: u32 = 1 << 4;

const UNREGISTER_RING_FDS: u32 = 21;
const USE_REGISTERED_RING: u32 = 1 << 31;

/// `IORING_SQ_CQ_OVERFLOW`.
const SQ_CQ_OVERFLOW: u32 = 1 << 1;

const SQE_LEN: usize = 128;
const CQE_LEN: usize = 16;
/// More than what stands before the completions in the ring's memory (`struct io_rings`), and rounding.
const RINGS_HEAD: usize = 4096;
/// The kernel's limit for submissions, to which it clamps.
const ENTRIES_MAX: u32 = 32768;

/// A ring that only the thread that made it can reach.
#[derive(Debug)]
pub(super) struct BareRing {
    index: u32,
    /// The submissions.
    sqes: Region,
    /// Heads, tails and completions.
    rings: Region,
    sq: Sides,
    cq: Sides,
    sq_flags: u32,
    cqes: u32,
    /// Its index is its thread's.
    not_send: PhantomData<*mut ()>,
}

/// Where in the ring's memory a queue has its ends, and its mask.
#[derive(Clone, Copy, Debug)]
struct Sides {
    head: u32,
    tail: u32,
    mask: u32,
}

impl BareRing {
    /// Makes a ring with room for `entries` submissions and twice as many completions.
    ///
    /// # Errors
    /// EINVAL before Linux 6.5, or before 6.10 where its memory is more than a page; EPERM, ENOMEM.
    pub(super) fn new(entries: u32) -> Result<Self> {
        let entries = entries.clamp(1, ENTRIES_MAX).next_power_of_two();
        let completions = entries * 2;
        let sqes = Region::reserve(entries as usize * SQE_LEN)?;
        let rings = Region::reserve(RINGS_HEAD + completions as usize * CQE_LEN + entries as usize * 4)?;
        let mut params = Params {
            cq_entries: completions,
            flags: SETUP_CQSIZE
                | SETUP_CLAMP
                | SETUP_SUBMIT_ALL
                | SETUP_SQE128
                | SETUP_SINGLE_ISSUER
                | SETUP_DEFER_TASKRUN
                | SETUP_NO_MMAP
                | SETUP_REGISTERED_FD_ONLY,
            ..Params::default()
        };
        params.sq_off.user_addr = sqes.start().as_ptr().addr() as u64;
        params.cq_off.user_addr = rings.start().as_ptr().addr() as u64;
        // SAFETY: the kernel uses so much of the two regions, which live as long as the ring, and fills the parameters.
        let made = unsafe { libc::syscall(libc::SYS_io_uring_setup, entries, &raw mut params) };
        let index = u32::try_from(check(made)?).map_err(|_| OsError::INVAL)?;
        let (sq, cq) = (params.sq_off, params.cq_off);
        let this = Self {
            index,
            sqes,
            rings,
            sq: Sides { head: sq.head, tail: sq.tail, mask: params.sq_entries - 1 },
            cq: Sides { head: cq.head, tail: cq.tail, mask: params.cq_entries - 1 },
            sq_flags: sq.fifth,
            cqes: cq.sixth,
            not_send: PhantomData,
        };
        // A submission's place in the array of submissions is its place in the queue.
        for place in 0..params.sq_entries {
            this.word(sq.seventh + place * 4).store(place, Ordering::Relaxed);
        }
        Ok(this)
    }

    fn word(&self, at: u32) -> &AtomicU32 {
        assert!(at as usize + 4 <= self.rings.len() && at.is_multiple_of(4), "a word of the ring's memory");
        let place = self.rings.start().as_ptr().wrapping_add(at as usize);
        // SAFETY: inside the region, aligned, and every access to it is atomic.
        unsafe { AtomicU32::from_ptr(place.cast()) }
    }

    /// How many submissions wait for the next call.
    pub(super) fn queued(&self) -> u32 {
        let tail = self.word(self.sq.tail).load(Ordering::Relaxed);
        tail.wrapping_sub(self.word(self.sq.head).load(Ordering::Acquire))
    }

    /// Queues all of them or none.
    pub(super) fn push(&mut self, entries: &[squeue::Entry128]) -> bool {
        let room = self.sq.mask + 1 - self.queued();
        let Some(count) = u32::try_from(entries.len()).ok().filter(|count| *count <= room) else {
            return false;
        };
        let tail = self.word(self.sq.tail).load(Ordering::Relaxed);
        for (place, entry) in (0..count).zip(entries) {
            let at = (tail.wrapping_add(place) & self.sq.mask) as usize * SQE_LEN;
            let into = self.sqes.start().as_ptr().wrapping_add(at);
            // SAFETY: a place of the submissions that the kernel has given back; both are so long, and do not overlap.
            unsafe { std::ptr::copy_nonoverlapping(std::ptr::from_ref(entry).cast::<u8>(), into, SQE_LEN) };
        }
        self.word(self.sq.tail).store(tail.wrapping_add(count), Ordering::Release);
        true
    }

    /// The next completion.
    pub(super) fn next(&mut self) -> Option<Completion> {
        let head = self.word(self.cq.head).load(Ordering::Relaxed);
        if head == self.word(self.cq.tail).load(Ordering::Acquire) {
            return None;
        }
        let at = self.cqes as usize + (head & self.cq.mask) as usize * CQE_LEN;
        assert!(at + CQE_LEN <= self.rings.len(), "a completion of the ring's memory");
        let place = self.rings.start().as_ptr().wrapping_add(at);
        // SAFETY: a completion that the kernel has published, aligned and inside the region.
        let user_data = unsafe { place.cast::<u64>().read() };
        // SAFETY: as above.
        let result = unsafe { place.wrapping_add(8).cast::<i32>().read() };
        self.word(self.cq.head).store(head.wrapping_add(1), Ordering::Release);
        Some(Completion { user_data, result })
    }

    /// Submits what is queued.
    pub(super) fn submit(&self) -> Result<()> {
        let overflows = self.word(self.sq_flags).load(Ordering::Acquire) & SQ_CQ_OVERFLOW != 0;
        self.call(0, if overflows { ENTER_GETEVENTS } else { 0 }, None)
    }

    /// Submits what is queued, runs the task work that completions were deferred to, and waits for `want` completions.
    pub(super) fn enter(&self, want: u32, limit: Option<Duration>) -> Result<()> {
        self.call(want, ENTER_GETEVENTS, limit)
    }

    fn call(&self, want: u32, flags: u32, limit: Option<Duration>) -> Result<()> {
        let flags = flags | ENTER_REGISTERED_RING;
        let Some(limit) = limit else {
            let nothing: *const GeteventsArg = std::ptr::null();
            // SAFETY: no argument is passed; what submissions name was promised when they were pushed.
            return unsafe { self.syscall(want, flags, (nothing, 0)) };
        };
        let time = KernelTimespec {
            secs: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            nanos: limit.subsec_nanos().into(),
        };
        let arg = GeteventsArg {
            sigmask: 0,
            sigmask_sz: 0,
            min_wait_usec: 0,
            ts: std::ptr::from_ref(&time).addr() as u64,
        };
        // SAFETY: the argument and the time live until the call returns; the rest as above.
        unsafe { self.syscall(want, flags | ENTER_EXT_ARG, (&raw const arg, size_of::<GeteventsArg>())) }
    }

    /// # Safety
    /// The argument is null, or what the flags say, for as long as the call takes.
    unsafe fn syscall(&self, want: u32, flags: u32, (arg, len): (*const GeteventsArg, usize)) -> Result<()> {
        // SAFETY: handed on to the caller by this function's contract.
        let entered = unsafe {
            libc::syscall(libc::SYS_io_uring_enter, self.index, self.queued(), want, flags, arg, len)
        };
        check(entered).map(drop)
    }
}

impl Drop for BareRing {
    fn drop(&mut self) {
        /// `struct io_uring_rsrc_update`.
        #[repr(C)]
        struct Update {
            offset: u32,
            resv: u32,
            data: u64,
        }
        let update = Update { offset: self.index, resv: 0, data: 0 };
        let opcode = UNREGISTER_RING_FDS | USE_REGISTERED_RING;
        // SAFETY: the kernel reads the argument; it holds the ring's pages itself until the ring is gone.
        let _gone =
            unsafe { libc::syscall(libc::SYS_io_uring_register, self.index, opcode, &raw const update, 1) };
        // Where that fails, it goes with its thread.
    }
}

#[cfg(test)]
mod test {
    use io_uring::opcode;

    use super::*;

    #[test]
    fn what_is_pushed_completes() {
        let mut ring = match BareRing::new(8) {
            Ok(ring) => ring,
            Err(error) => {
                return println!("SKIPPED: rings without descriptors are not to be had here ({error})");
            }
        };
        for round in 0..100_u64 {
            let nop = |data| opcode::Nop::new().build().user_data(data).into();
            assert!(ring.push(&[nop(2 * round), nop(2 * round + 1)]));
            assert_eq!(ring.queued(), 2);
            ring.enter(2, None).expect("enters");
            let both = [ring.next(), ring.next()].map(|done| done.map(|done| (done.user_data, done.result)));
            assert_eq!(both, [Some((2 * round, 0)), Some((2 * round + 1, 0))]);
            assert!(ring.next().is_none() && ring.queued() == 0);
        }
        let full: Vec<squeue::Entry128> = (0..9).map(|_| opcode::Nop::new().build().into()).collect();
        assert!(!ring.push(&full) && ring.push(&full[1..]) && !ring.push(&full[..1]));
        ring.submit().expect("submits");
        ring.enter(8, Some(Duration::from_secs(5))).expect("eight complete");
        assert_eq!(std::iter::from_fn(|| ring.next()).count(), 8);
        assert_eq!(ring.enter(1, Some(Duration::from_millis(1))), Err(OsError::TIME));
    }
}
