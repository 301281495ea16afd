//! The operations of a queue's ring that futures await.
//!
//! An operation belongs to the queue from its submission to its completion: with the memory that it names, which is a part of a slot
//! or the operation's own bytes. A future only has its number. Dropping the future gives the operation up: the kernel is asked to
//! end it, and nobody waits. Leaking the future leaks the number, and no more.

use std::task::Waker;

use crate::hold::Use;

/// The operations, by number.
#[derive(Debug, Default)]
pub(crate) struct Ops {
    all: Vec<Op>,
    free: Vec<u32>,
    under_way: usize,
}

#[derive(Debug)]
struct Op {
    state: State,
    memory: Memory,
}

#[derive(Debug)]
enum State {
    Free,
    Waiting(Option<Waker>),
    /// Nobody waits for it any more.
    GivenUp,
    Done(i32),
}

/// What an operation reads or writes.
#[derive(Debug)]
pub(crate) enum Memory {
    /// A part of the slot with this number.
    Slot(u32, Use),
    Own(Vec<u8>),
}

/// What follows from a completion.
pub(crate) struct Completed {
    /// The use of a slot that has ended.
    pub(crate) slot: Option<(u32, Use)>,
    /// Whom to wake.
    pub(crate) waker: Option<Waker>,
}

impl Ops {
    /// The number of a new operation.
    pub(crate) fn add(&mut self, memory: Memory) -> u32 {
        self.under_way += 1;
        let op = Op { state: State::Waiting(None), memory };
        if let Some(index) = self.free.pop() {
            self.all[index as usize] = op;
            return index;
        }
        self.all.push(op);
        u32::try_from(self.all.len() - 1).expect("operations are fewer than 2^32")
    }

    /// How many the kernel has not completed.
    pub(crate) fn under_way(&self) -> usize {
        self.under_way
    }

    /// Takes note of a completion. `None` for what was never begun.
    pub(crate) fn complete(&mut self, index: u32, result: i32) -> Option<Completed> {
        let op = self.all.get_mut(index as usize)?;
        let slot = if let Memory::Slot(slot, what) = op.memory { Some((slot, what)) } else { None };
        let waker = match std::mem::replace(&mut op.state, State::Done(result)) {
            State::Waiting(waker) => waker,
            State::GivenUp => {
                self.clear(index);
                None
            }
            before @ (State::Free | State::Done(_)) => {
                op.state = before;
                return None;
            }
        };
        self.under_way -= 1;
        Some(Completed { slot, waker })
    }

    /// The outcome of an operation, with bytes that are its own, once: `Err` with the waker that was to be told until now, where it is
    /// not complete. It is dropped by the caller, because it may be an author's.
    pub(crate) fn take(&mut self, index: u32, waker: &Waker) -> Result<(i32, Vec<u8>), Option<Waker>> {
        match &mut self.all[index as usize].state {
            State::Done(result) => {
                let result = *result;
                Ok((result, self.clear(index)))
            }
            State::Waiting(Some(known)) if known.will_wake(waker) => Err(None),
            State::Waiting(place) => Err(place.replace(waker.clone())),
            State::Free | State::GivenUp => unreachable!("a number is one future's"),
        }
    }

    /// Gives an operation up; true where it must be ended.
    pub(crate) fn give_up(&mut self, index: u32) -> (bool, Option<Waker>) {
        match std::mem::replace(&mut self.all[index as usize].state, State::GivenUp) {
            State::Waiting(waker) => (true, waker),
            _ => {
                self.clear(index);
                (false, None)
            }
        }
    }

    /// Those that the kernel has not completed, of all slots or of one.
    pub(crate) fn waiting(&self, slot: Option<u32>) -> impl Iterator<Item = u32> {
        let is_meant = move |op: &Op| match (slot, &op.memory) {
            (None, _) => true,
            (Some(slot), Memory::Slot(used, _)) => slot == *used,
            (Some(_), Memory::Own(_)) => false,
        };
        let waits = move |op: &Op| matches!(op.state, State::Waiting(_) | State::GivenUp) && is_meant(op);
        (0_u32..).zip(&self.all).filter(move |(_, op)| waits(op)).map(|(at, _)| at)
    }

    fn clear(&mut self, index: u32) -> Vec<u8> {
        let op = &mut self.all[index as usize];
        op.state = State::Free;
        self.free.push(index);
        match std::mem::replace(&mut op.memory, Memory::Own(Vec::new())) {
            Memory::Own(bytes) => bytes,
            Memory::Slot(..) => Vec::new(),
        }
    }
}

impl Drop for Ops {
    /// The kernel still uses the memory of what is under way: it is never freed. Queues end their operations first.
    fn drop(&mut self) {
        for op in self.all.drain(..) {
            if matches!(op.state, State::Waiting(_) | State::GivenUp) {
                std::mem::forget(op.memory);
            }
        }
    }
}
