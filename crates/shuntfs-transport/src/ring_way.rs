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

use crate::pools::Mode;
use crate::settings::QueueRoom;
use crate::slot::PAGE;

/// How requests come and answers go through one ring.
#[derive(Debug)]
pub(crate) struct RingWay {
    /// By queue of this ring.
    queues: Box<[QueueWay]>,
    /// By slot, which of them it belongs to.
    queue_of: Box<[u32]>,
    /// By slot, where the kernel finds its memory when it is registered. It is not in the slots: those that never serve a request use no
    /// memory.
    places: Box<[Cell<Places>]>,
    /// In which place of the ring's table the memory of pools is pinned, and how many buffers that is, from the first one on.
    pinned: Option<(u16, u32)>,
    /// Buffers that are in nobody's pool.
    spares: Range<u32>,
    /// Who waits for a spare buffer.
    waiting: RefCell<Vec<Waker>>,
    scratch: OnceCell<Arc<File>>,
    zeroes: OnceCell<Arc<File>>,
}

/// Two `struct iovec`: the header area, and the payload.
pub(crate) type Places = [u64; 4];

/// One of the kernel's queues that a ring serves.
#[derive(Debug)]
struct QueueWay {
    qid: u16,
    mode: Cell<Mode>,
    /// Whether its commands have to name the pinned memory.
    is_pinned: Cell<bool>,
    /// Its slots, and those of them that are used where it has no pool: there is less memory for payloads then.
    slots: Range<u32>,
    own: Range<u32>,
    /// Which buffers are its pool.
    pool: Range<u32>,
}

/// What a ring's slots are made for.
#[derive(Debug)]
pub(crate) struct RingPlan {
    /// The kernel's queues, and what each is to have.
    pub(crate) queues: Vec<(u16, QueueRoom)>,
    /// In which place of the ring's table the memory of pools is, where it is pinned, and how many buffers are, from the first one on.
    pub(crate) pinned: Option<(u16, u32)>,
}

impl RingPlan {
    /// How many slots there are.
    pub(crate) fn slots(&self) -> usize {
        self.queues.iter().map(|(_, room)| room.depth).sum()
    }

    /// How many buffers there are, in pools and beside them.
    pub(crate) fn buffers(&self) -> usize {
        self.queues.iter().map(|(_, room)| room.pool.buffers + room.pool.spares).sum()
    }
}

impl RingWay {
    pub(crate) fn new(plan: &RingPlan) -> Self {
        let (mut slots, mut buffers) = (0, 0);
        let next = |from: &mut u32, count: usize| {
            let start = *from;
            *from += u32::try_from(count).expect("slots and buffers are counted in u32");
            start..*from
        };
        let queues: Box<[QueueWay]> = plan
            .queues
            .iter()
            .map(|&(qid, room)| {
                let of_queue = next(&mut slots, room.depth);
                let own = u32::try_from(room.own_depth).expect("fewer than slots");
                QueueWay {
                    qid,
                    mode: Cell::new(Mode::Own),
                    is_pinned: Cell::new(false),
                    own: of_queue.start..of_queue.start + own,
                    slots: of_queue,
                    pool: next(&mut buffers, room.pool.buffers),
                }
            })
            .collect();
        let spares = next(&mut buffers, plan.queues.iter().map(|(_, room)| room.pool.spares).sum());
        let queue_of = (0..).zip(&queues).flat_map(|(queue, way)| way.slots.clone().map(move |_| queue));
        Self {
            queue_of: queue_of.collect(),
            places: (0..slots).map(|_| Cell::default()).collect(),
            queues,
            pinned: plan.pinned,
            spares,
            waiting: RefCell::default(),
            scratch: OnceCell::new(),
            zeroes: OnceCell::new(),
        }
    }

    /// How many of the kernel's queues this ring serves.
    pub(crate) fn queues_count(&self) -> u32 {
        u32::try_from(self.queues.len()).expect("queues are counted in u16")
    }

    /// A slot of a queue.
    pub(crate) fn first_slot(&self, queue: u32) -> u32 {
        self.queues[queue as usize].slots.start
    }

    /// The kernel's number of a slot's queue.
    pub(crate) fn qid(&self, slot: u32) -> u16 {
        self.queue(slot).qid
    }

    /// The slots of a slot's queue.
    pub(crate) fn slots_beside(&self, slot: u32) -> Range<u32> {
        self.queue(slot).slots.clone()
    }

    /// Puts down where a slot's memory is; the address of that, which holds as long as this lives.
    pub(crate) fn put_down(&self, slot: u32, places: Places) -> u64 {
        let place = &self.places[slot as usize];
        place.set(places);
        place.as_ptr().addr() as u64
    }

    fn queue(&self, slot: u32) -> &QueueWay {
        &self.queues[self.queue_of[slot as usize] as usize]
    }

    pub(crate) fn set_mode(&self, queue: u32, mode: Mode, is_pinned: bool) {
        self.queues[queue as usize].mode.set(mode);
        self.queues[queue as usize].is_pinned.set(is_pinned);
    }

    /// Where the memory of a queue's pool is pinned, if it is.
    pub(crate) fn pinned(&self, queue: u32) -> Option<u16> {
        let (place, buffers) = self.pinned?;
        (self.pool_of(queue).end <= buffers).then_some(place)
    }

    /// The place that the commands of a slot have to name.
    pub(crate) fn pinned_for(&self, slot: u32) -> Option<u16> {
        let (place, _) = self.pinned?;
        self.queue(slot).is_pinned.get().then_some(place)
    }

    pub(crate) fn mode_of(&self, slot: u32) -> Mode {
        self.queue(slot).mode.get()
    }

    /// Whether a slot must be registered: without a pool there is less memory for payloads than there are slots.
    pub(crate) fn is_used(&self, slot: u32) -> bool {
        self.mode_of(slot) != Mode::Own || self.queue(slot).own.contains(&slot)
    }

    /// Which buffers are the pool of a queue.
    pub(crate) fn pool_of(&self, queue: u32) -> Range<u32> {
        self.queues[queue as usize].pool.clone()
    }

    /// Gives a slot the payload of the request that came in it. False where the kernel names a buffer that it cannot mean.
    pub(crate) fn arrange(&self, slot: &mut Slot, opcode: Option<Opcode>, entry: &UringEntInOut) -> bool {
        if self.mode_of(slot.index()) == Mode::Own || !has_buffer(opcode, entry) {
            return true;
        }
        let pool = &self.queue(slot.index()).pool;
        let len = u32::try_from(slot.size() - PAGE).unwrap_or(u32::MAX);
        let buffer = pool.start + entry.offset / len;
        // SAFETY: see the module's text.
        entry.offset.is_multiple_of(len) && buffer < pool.end && unsafe { slot.take_buffer(buffer) }
    }

    /// Gives a slot a spare buffer; where there is none, `waker` is told when that may be otherwise.
    pub(crate) fn take_spare(&self, slot: &mut Slot, waker: &Waker) -> bool {
        // SAFETY: see the module's text.
        let is_there = self.spares.clone().any(|buffer| unsafe { slot.take_buffer(buffer) });
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
    use crate::pools::PoolPlan;

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
        let room = |depth, own_depth, (buffers, spares)| {
            let pool = PoolPlan { buffers, spares };
            QueueRoom { depth, own_depth, pool }
        };
        let queues = vec![(4, room(3, 1, (2, 1))), (9, room(3, 2, (2, 1))), (7, room(2, 2, (1, 1)))];
        let plan = RingPlan { queues, pinned: Some((6, 4)) };
        assert_eq!((plan.slots(), plan.buffers()), (8, 8));
        let way = RingWay::new(&plan);
        assert_eq!([0, 1, 2].map(|queue| way.pool_of(queue)), [0..2, 2..4, 4..5]);
        assert_eq!([0, 1, 2].map(|queue| way.pinned(queue)), [Some(6), Some(6), None]);
        assert_eq!([0, 1, 2].map(|queue| way.first_slot(queue)), [0, 3, 6]);
        assert_eq!((way.slots_beside(4), way.slots_beside(7), way.spares.clone()), (3..6, 6..8, 5..8));
        assert_eq!([2, 3, 6].map(|slot| way.qid(slot)), [4, 9, 7]);
        let used = |way: &RingWay| (0..8).filter(|slot| way.is_used(*slot)).collect::<Vec<_>>();
        assert_eq!(used(&way), [0, 3, 4, 6, 7]);
        way.set_mode(1, Mode::Pool, true);
        assert_eq!([2, 3, 5, 6].map(|slot| way.pinned_for(slot)), [None, Some(6), Some(6), None]);
        assert_eq!([2, 3].map(|slot| way.mode_of(slot)), [Mode::Own, Mode::Pool]);
        assert_eq!(used(&way), [0, 3, 4, 5, 6, 7]);
    }
}
