//! Which slots of a queue must be polled, and the bell that wakes a sleeping queue.
//!
//! Order: a waker first sets its bit, then checks whether the queue sleeps. The queue first says that it
//! sleeps, then looks at the bits. Both sides are sequentially consistent, so one of them sees the other.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::task::{Wake, Waker};

use crate::sync::{AtomicBool, AtomicU64, EventFd, Ordering};

/// The part of a queue that other threads may touch.
#[derive(Debug)]
pub struct Ready {
    bits: Box<[AtomicU64]>,
    sleeping: AtomicBool,
    bell: EventFd,
}

struct SlotWaker {
    ready: Arc<Ready>,
    slot: usize,
}

impl Ready {
    /// A set for `slots` slots, none of them ready.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM of making the bell.
    pub fn new(slots: usize) -> shuntfs_sys::Result<Arc<Self>> {
        let bits = (0..slots.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Ok(Arc::new(Self { bits, sleeping: AtomicBool::new(false), bell: EventFd::new()? }))
    }

    /// A waker for a slot.
    #[must_use]
    pub fn waker(self: &Arc<Self>, slot: usize) -> Waker {
        Waker::from(Arc::new(SlotWaker { ready: Arc::clone(self), slot }))
    }

    /// Takes the first ready slot that is not below `from`.
    pub fn take_from(&self, from: usize) -> Option<usize> {
        for (word, bits) in self.bits.iter().enumerate().skip(from / 64) {
            let below = if word == from / 64 { (1 << (from % 64)) - 1 } else { 0 };
            let seen = bits.load(Ordering::SeqCst) & !below;
            if seen != 0 {
                let bit = seen.trailing_zeros();
                bits.fetch_and(!(1 << bit), Ordering::SeqCst);
                return Some(word * 64 + bit as usize);
            }
        }
        None
    }

    /// Announces that the queue is about to sleep. False where a slot is ready: then it must not.
    #[must_use]
    pub fn may_sleep(&self) -> bool {
        self.sleeping.store(true, Ordering::SeqCst);
        let idle = self.bits.iter().all(|bits| bits.load(Ordering::SeqCst) == 0);
        if !idle {
            self.woke();
        }
        idle
    }

    /// Ends the announcement of [`Ready::may_sleep`].
    pub fn woke(&self) {
        self.sleeping.store(false, Ordering::SeqCst);
    }

    /// Stills the bell after it woke the queue.
    pub fn still_bell(&self) {
        self.bell.drain();
    }

    /// The bell, readable while it rings.
    #[must_use]
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    fn wake(&self, slot: usize) {
        self.bits[slot / 64].fetch_or(1 << (slot % 64), Ordering::SeqCst);
        if self.sleeping.swap(false, Ordering::SeqCst) {
            self.bell.signal();
        }
    }
}

impl Wake for SlotWaker {
    fn wake(self: Arc<Self>) {
        self.ready.wake(self.slot);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ready.wake(self.slot);
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn each_wake_is_taken_once() {
        let ready = Ready::new(130).expect("bell");
        ready.waker(129).wake();
        ready.waker(3).wake_by_ref();
        assert!(!ready.may_sleep());
        assert_eq!(ready.take_from(4), Some(129), "those below wait for the next round");
        assert_eq!(ready.take_from(130), None);
        assert_eq!(ready.take_from(0), Some(3));
        assert_eq!(ready.take_from(0), None);
        assert!(ready.may_sleep());
    }
}
