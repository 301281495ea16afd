//! The way of requests and answers through one ring: which of the kernel's queues a slot belongs to, and where its payload is.
//!
//! # Safety
//! A buffer of a queue's pool is taken for the one slot that the kernel names it for: the kernel gives it to another only after this one's
//! commit, when all that was linked before the commit has ended (`fuse_uring_select_buffer`, Linux 7.3). Spare buffers are in nobody's pool,
//! and no operation that uses one is left when its slot is committed.
#![expect(unsafe_code, reason = "the runtime cannot know when a driver is done with a buffer")]

use std::cell::{Cell, OnceCell, RefCell};
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use std::task::Waker;

use shuntfs_runtime::Slot;
use shuntfs_sys::memory::file_in_memory;
use shuntfs_wire::{Opcode, UringEntFlags, UringEntInOut};

use crate::pools::{Mode, PoolPlan};
use crate::slot::PAGE;

/// How requests come and answers go through one ring.
#[derive(Debug)]
pub(crate) struct RingWay {
    /// By slot, the kernel's queue. Those of a queue stand together, and each queue has as many.
    pub(crate) queues: Vec<u16>,
    /// By queue of this ring.
    modes: Box<[Cell<Mode>]>,
    /// By queue of this ring, whether its commands have to name the pinned memory.
    are_pinned: Box<[Cell<bool>]>,
    /// In which place of the ring's table that is.
    pinned: Option<u16>,
    pool: PoolPlan,
    /// How many entries of a queue have a payload of their own, where it has no pool.
    own_depth: usize,
    /// Who waits for a spare buffer.
    waiting: RefCell<Vec<Waker>>,
    scratch: OnceCell<Arc<File>>,
    zeroes: OnceCell<Arc<File>>,
}

/// What a ring's slots are made for.
#[derive(Debug)]
pub(crate) struct RingPlan {
    /// By slot, the kernel's queue.
    pub(crate) queues: Vec<u16>,
    /// How many queues those are.
    pub(crate) queues_count: usize,
    pub(crate) pool: Option<PoolPlan>,
    pub(crate) own_depth: usize,
    /// In which place of the ring's table the memory of its pools is, where it is pinned.
    pub(crate) pinned: Option<u16>,
}

impl RingWay {
    pub(crate) fn new(plan: RingPlan) -> Self {
        let RingPlan { queues, queues_count, pool, own_depth, pinned } = plan;
        Self {
            queues,
            modes: (0..queues_count).map(|_| Cell::new(Mode::Own)).collect(),
            are_pinned: (0..queues_count).map(|_| Cell::new(false)).collect(),
            pinned,
            pool: pool.unwrap_or(PoolPlan { buffers: 0, spares: 0 }),
            own_depth,
            waiting: RefCell::default(),
            scratch: OnceCell::new(),
            zeroes: OnceCell::new(),
        }
    }

    /// How many of the kernel's queues this ring serves.
    pub(crate) fn queues_count(&self) -> u32 {
        u32::try_from(self.modes.len()).expect("queues are counted in u16")
    }

    pub(crate) fn depth(&self) -> u32 {
        u32::try_from(self.queues.len() / self.modes.len()).expect("slots are counted in u32")
    }

    pub(crate) fn set_mode(&self, queue: u32, mode: Mode, is_pinned: bool) {
        self.modes[queue as usize].set(mode);
        self.are_pinned[queue as usize].set(is_pinned);
    }

    /// Where the memory of the pools is pinned.
    pub(crate) fn pinned(&self) -> Option<u16> {
        self.pinned
    }

    /// The place that the commands of a slot have to name.
    pub(crate) fn pinned_for(&self, slot: u32) -> Option<u16> {
        self.pinned.filter(|_| self.are_pinned[(slot / self.depth()) as usize].get())
    }

    pub(crate) fn mode_of(&self, slot: u32) -> Mode {
        self.modes[(slot / self.depth()) as usize].get()
    }

    /// Whether a slot must be registered: without a pool there is less memory for payloads than there are slots.
    pub(crate) fn is_used(&self, slot: u32) -> bool {
        self.mode_of(slot) != Mode::Own || ((slot % self.depth()) as usize) < self.own_depth
    }

    /// Which buffers are the pool of a queue.
    pub(crate) fn pool_of(&self, queue: u32) -> Range<u32> {
        let buffers = u32::try_from(self.pool.buffers).expect("fewer than slots");
        queue * buffers..(queue + 1) * buffers
    }

    /// Gives a slot the payload of the request that came in it. False where the kernel names a buffer that it cannot mean.
    pub(crate) fn arrange(&self, slot: &mut Slot, opcode: Option<Opcode>, entry: &UringEntInOut) -> bool {
        if self.mode_of(slot.index()) == Mode::Own || !has_buffer(opcode, entry) {
            return true;
        }
        let pool = self.pool_of(slot.index() / self.depth());
        let len = u32::try_from(slot.size() - PAGE).unwrap_or(u32::MAX);
        let buffer = pool.start + entry.offset / len;
        // SAFETY: see the module's text.
        entry.offset.is_multiple_of(len) && buffer < pool.end && unsafe { slot.take_buffer(buffer) }
    }

    /// Gives a slot a spare buffer; where there is none, `waker` is told when that may be otherwise.
    pub(crate) fn take_spare(&self, slot: &mut Slot, waker: &Waker) -> bool {
        let start = self.pool_of(self.queues_count()).start;
        let spares = u32::try_from(self.pool.spares).expect("few") * self.queues_count();
        // SAFETY: see the module's text.
        let is_there = (start..start + spares).any(|buffer| unsafe { slot.take_buffer(buffer) });
        if !is_there {
            self.waiting.borrow_mut().push(waker.clone());
        }
        is_there
    }

    /// A slot was committed, and with it a buffer may have become free.
    pub(crate) fn committed(&self) {
        if !self.waiting.borrow().is_empty() {
            let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
            waiting.into_iter().for_each(Waker::wake);
        }
    }

    /// A file in memory, through which bytes go between memory and pages.
    pub(crate) fn scratch(&self) -> shuntfs_sys::Result<&Arc<File>> {
        once(&self.scratch, || file_in_memory(c"shunt-bytes"))
    }

    /// A file of zeroes.
    pub(crate) fn zeroes(&self) -> shuntfs_sys::Result<&Arc<File>> {
        once(&self.zeroes, || {
            File::open("/dev/zero").map_err(|error| {
                shuntfs_sys::OsError::from_io_error(&error).unwrap_or(shuntfs_sys::OsError::IO)
            })
        })
    }
}

fn once(
    place: &OnceCell<Arc<File>>,
    make: impl FnOnce() -> shuntfs_sys::Result<File>,
) -> shuntfs_sys::Result<&Arc<File>> {
    if place.get().is_none() {
        let _first = place.set(Arc::new(make()?));
    }
    Ok(place.get().expect("it was just set"))
}

/// Whether the kernel has given a request a buffer of the pool: `fuse_uring_req_has_copyable_payload`. Where it has not, the offset that it
/// names is zero and means nothing.
fn has_buffer(opcode: Option<Opcode>, entry: &UringEntInOut) -> bool {
    if entry.flags.contains(UringEntFlags::ZERO_COPY) {
        // The answer to a WRITE has bytes beside its pages.
        return opcode == Some(Opcode::Write);
    }
    entry.payload_sz > 0 || opcode.is_some_and(Opcode::has_answer)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn only_requests_with_something_to_copy_have_a_buffer() {
        let entry = |flags, payload_sz| UringEntInOut { flags, payload_sz, ..UringEntInOut::default() };
        let (copied, moved) = (UringEntFlags::empty(), UringEntFlags::ZERO_COPY);
        for (opcode, flags, len, wanted) in [
            (Opcode::Read, copied, 0, true),
            (Opcode::Read, moved, 0, false),
            (Opcode::Write, copied, 4096, true),
            (Opcode::Write, moved, 4096, true),
            (Opcode::Getattr, copied, 0, true),
            (Opcode::Lookup, copied, 4, true),
            (Opcode::Unlink, copied, 4, true),
            (Opcode::Release, copied, 0, false),
            (Opcode::Flush, copied, 0, false),
        ] {
            assert_eq!(has_buffer(Some(opcode), &entry(flags, len)), wanted, "{opcode} {flags:?}");
        }
        assert!(!has_buffer(None, &entry(copied, 0)) && has_buffer(None, &entry(copied, 1)));
    }

    #[test]
    fn slots_and_buffers_belong_to_their_queues() {
        let pool = PoolPlan { buffers: 2, spares: 1 };
        let queues = vec![4, 4, 4, 7, 7, 7];
        let plan = RingPlan { queues, queues_count: 2, pool: Some(pool), own_depth: 1, pinned: Some(6) };
        let way = RingWay::new(plan);
        assert_eq!((way.depth(), way.pool_of(0), way.pool_of(1)), (3, 0..2, 2..4));
        assert_eq!(
            [0, 1, 2, 3, 4, 5].map(|slot| way.is_used(slot)),
            [true, false, false, true, false, false]
        );
        way.set_mode(1, Mode::Pool, true);
        assert_eq!([2, 3, 5].map(|slot| way.pinned_for(slot)), [None, Some(6), Some(6)]);
        assert_eq!([2, 3].map(|slot| way.mode_of(slot)), [Mode::Own, Mode::Pool]);
        assert_eq!([2, 3, 5].map(|slot| way.is_used(slot)), [false, true, true]);
    }
}
