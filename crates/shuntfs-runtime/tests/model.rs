//! The life of a slot, in every order that the memory model of the language allows: what `hold.rs` promises is checked by loom, whose
//! atomics take the place of its own.
//!
//! What the kernel and other threads do with a slot's memory is an access to a cell that loom watches, so that a slot that is
//! used again too early is a race that it reports.

use std::task::{Wake, Waker};

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

/// What the file takes from the rest of the crate.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU32, Ordering};
}

#[path = "../src/hold.rs"]
#[allow(dead_code, reason = "the model asks a part of what the queue asks")]
mod hold;

use crate::hold::{Hold, Use};
use crate::sync::{AtomicU32, Ordering};

/// Counts how often a slot was woken.
struct Woken(AtomicU32);

impl Wake for Woken {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A slot whose memory others use.
struct Slot {
    hold: Hold,
    woken: std::sync::Arc<Woken>,
    memory: UnsafeCell<u32>,
}

impl Slot {
    fn new() -> Arc<Self> {
        let woken = std::sync::Arc::new(Woken(AtomicU32::new(0)));
        let hold = Hold::new(Waker::from(std::sync::Arc::clone(&woken)));
        Arc::new(Self { hold, woken, memory: UnsafeCell::new(0) })
    }

    /// Begins a use, which another thread ends.
    fn lend(slot: &Arc<Self>, what: Use) -> thread::JoinHandle<()> {
        slot.hold.begin(what);
        let lent = Arc::clone(slot);
        thread::spawn(move || {
            match what {
                Use::Reads => lent.memory.with(|_| {}),
                Use::Writes | Use::Has => lent.memory.with_mut(|_| {}),
            }
            lent.hold.end(what);
        })
    }

    fn woken(&self) -> u32 {
        self.woken.0.load(Ordering::SeqCst)
    }

    /// What the next request does with the memory. A race, where anybody else is still at it.
    fn use_again(&self) {
        self.memory.with_mut(|_| {});
    }

    /// The queue wants the slot back while others may have it.
    fn take_back(&self, others: Vec<thread::JoinHandle<()>>) {
        let before = self.woken();
        let at_once = self.hold.wait_free();
        if at_once {
            self.use_again();
        }
        for other in others {
            other.join().expect("ends");
        }
        assert_eq!(self.woken() - before, u32::from(!at_once), "who waits is woken, once");
        assert!(self.hold.wait_free());
        self.use_again();
    }
}

/// The kernel writes, or has the slot altogether, and the future that began it is gone.
#[test]
fn a_slot_is_not_used_again_before_the_kernel_is_done() {
    for what in [Use::Writes, Use::Has] {
        loom::model(move || {
            let slot = Slot::new();
            let kernel = Slot::lend(&slot, what);
            slot.take_back(vec![kernel]);
        });
    }
}

/// Two threads read parts that were lent to them; the last one wakes the queue, which looks before, between or after.
#[test]
fn the_last_of_two_readers_wakes_the_queue() {
    loom::model(|| {
        let slot = Slot::new();
        let readers = vec![Slot::lend(&slot, Use::Reads), Slot::lend(&slot, Use::Reads)];
        slot.take_back(readers);
    });
}

/// Nothing is left of a wait when the slot serves the next request.
#[test]
fn a_slot_that_was_waited_for_serves_again() {
    loom::model(|| {
        let slot = Slot::new();
        for what in [Use::Writes, Use::Reads] {
            let other = Slot::lend(&slot, what);
            slot.take_back(vec![other]);
        }
    });
}
