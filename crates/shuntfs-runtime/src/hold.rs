//! Who uses a slot's memory beside the request that the slot serves: the kernel, or a thread that it was lent to.
//!
//! A request may end before they do, because its future was dropped or leaked. The slot is then held: its answer is not sent and
//! no other request gets it until the last use has ended.
//!
//! Order: the queue first says that it waits, then sees who is there. Whoever ends a use sees in the same step whether it was the last
//! and whether the queue waits, and wakes the slot if both are so. All of it is one atomic word, so neither misses the other.

use std::task::Waker;

use crate::sync::{AtomicU32, Ordering};

/// What somebody does with a slot's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    /// Reads it; several may.
    Reads,
    /// Writes it.
    Writes,
    /// Has it altogether: an entry of the kernel's that waits for a request, an answer that leaves.
    Has,
}

const WRITES: u32 = 1 << 16;
const HAS: u32 = 1 << 17;
/// The queue waits for the last use to end.
const WAITED: u32 = 1 << 18;

/// The uses of one slot.
#[derive(Debug)]
pub(crate) struct Hold {
    uses: AtomicU32,
    waker: Waker,
}

impl Use {
    fn weight(self) -> u32 {
        match self {
            Self::Reads => 1,
            Self::Writes => WRITES,
            Self::Has => HAS,
        }
    }
}

impl Hold {
    /// Nobody uses it yet; `waker` is told when somebody waits and the last use ends.
    pub(crate) fn new(waker: Waker) -> Self {
        Self { uses: AtomicU32::new(0), waker }
    }

    /// Begins a use. Only the queue's thread does, so what it sees here can only become less.
    ///
    /// # Panics
    /// Where another use forbids it, or there are 65,535 that read.
    pub(crate) fn begin(&self, what: Use) {
        let uses = self.uses.load(Ordering::Acquire) & !WAITED;
        let allowed = if what == Use::Reads { uses < WRITES - 1 } else { uses == 0 };
        assert!(allowed, "{what:?} of a slot in use: {uses:#x}");
        self.uses.fetch_add(what.weight(), Ordering::AcqRel);
    }

    /// Ends a use, on any thread.
    pub(crate) fn end(&self, what: Use) {
        let before = self.uses.fetch_sub(what.weight(), Ordering::AcqRel);
        if before == what.weight() | WAITED {
            self.waker.wake_by_ref();
        }
    }

    /// Whether nobody uses it.
    pub(crate) fn is_free(&self) -> bool {
        self.uses.load(Ordering::Acquire) & !WAITED == 0
    }

    /// Whether nobody changes it.
    pub(crate) fn is_readable(&self) -> bool {
        self.uses.load(Ordering::Acquire) & !WAITED < WRITES
    }

    /// Whether somebody has it altogether.
    pub(crate) fn is_given(&self) -> bool {
        self.uses.load(Ordering::Acquire) & HAS != 0
    }

    /// Whether nobody uses it; otherwise the slot is woken when the last use has ended. Called by the queue's thread.
    pub(crate) fn wait_free(&self) -> bool {
        let is_free = self.is_free() || self.uses.fetch_or(WAITED, Ordering::AcqRel) & !WAITED == 0;
        if is_free {
            // Nobody is there to change it but this thread.
            self.uses.store(0, Ordering::Release);
        }
        is_free
    }
}
