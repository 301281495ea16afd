//! Where each slot of a ring's thread is, and what another server finds of it.

use std::sync::Arc;

use crate::kept::{Held, KeptRings};
use crate::ring_way::RingWay;

/// Where a slot is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// The kernel has it.
    Waiting,
    /// An exchange has it.
    Serving,
    /// Its answer is linked behind a read: either the next request comes, or word that the read fell short.
    Linked,
    /// Its request is not begun, because another server is to go on.
    Stopped,
    /// Its answer is not committed, for the same reason.
    Answered,
    /// The kernel gave it up.
    Dead,
}

/// The slots of one thread.
#[derive(Debug)]
pub(crate) struct Board {
    pub(crate) states: Vec<State>,
    /// Whether requests are not begun and answers not committed.
    pub(crate) stops: bool,
    pub(crate) kept: Option<KeptSeat>,
    /// What a predecessor had in each slot, for as long as the kernel was not asked.
    found: Vec<Option<Held>>,
}

/// What a thread has of rings that another server can take over.
#[derive(Debug)]
pub(crate) struct KeptSeat {
    pub(crate) rings: Arc<KeptRings>,
    /// The number of its first slot among all.
    pub(crate) first: usize,
    /// Whether there was a server before.
    pub(crate) follows: bool,
}

impl Board {
    pub(crate) fn new(count: usize, kept: Option<KeptSeat>) -> Self {
        let found = |slot| {
            let kept = kept.as_ref().filter(|kept| kept.follows)?;
            kept.rings.held(kept.first + slot)
        };
        let found = (0..count).map(found).collect();
        Self { states: vec![State::Waiting; count], stops: false, kept, found }
    }

    /// What a predecessor left in a slot.
    pub(crate) fn found(&self, slot: u32) -> Option<Held> {
        self.found[slot as usize]
    }

    /// Whether a predecessor left something in a slot that the kernel may not know any more.
    pub(crate) fn is_found(&self, slot: u32) -> bool {
        matches!(self.found(slot), Some(Held::Request | Held::Answer))
    }

    /// That is gone.
    pub(crate) fn forget(&mut self, slot: u32) {
        self.found[slot as usize] = None;
    }

    /// Writes down what each slot holds, and says what is left to be done.
    pub(crate) fn tell(&self, way: &RingWay) {
        let Some(KeptSeat { rings, first, .. }) = &self.kept else { return };
        for (slot, state) in self.states.iter().enumerate() {
            let held = match state {
                State::Waiting | State::Linked | State::Dead => Held::Nothing,
                State::Serving => Held::Begun,
                State::Stopped => Held::Request,
                State::Answered => Held::Answer,
            };
            rings.holds(first + slot, held);
        }
        for queue in 0..way.queues_count() {
            let first = way.first_slot(queue);
            let slots = way.slots_beside(first);
            let states = &self.states[slots.start as usize..slots.end as usize];
            let count = |are: &[State]| states.iter().filter(|state| are.contains(state)).count();
            let count = |are: &[State]| u32::try_from(count(are)).unwrap_or(u32::MAX >> 1);
            // What is linked may have been answered long ago: only the next request tells.
            let (free, begun) = (count(&[State::Waiting, State::Linked]), count(&[State::Serving]));
            rings.drain.say(way.qid(first), free, begun);
        }
    }
}
