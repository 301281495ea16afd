//! Which waiting requests were interrupted.
//!
//! Only requests that did not end at once are registered, so that the common path touches no lock. An
//! INTERRUPT may be read, by another thread, before its request is registered; those that find no request
//! are kept for a while, a bounded number of them.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};

use parking_lot::Mutex;

/// How many early INTERRUPTs are kept.
const EARLY_MAX: usize = 256;

/// The interrupts of one connection.
#[derive(Debug, Default)]
pub(crate) struct Interrupts {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: HashMap<u64, Arc<Interrupt>>,
    early: VecDeque<u64>,
    /// The connection is gone: nobody waits for an answer.
    ended: bool,
}

/// Whether the request in one slot was interrupted, and who waits for that.
#[derive(Debug, Default)]
pub(crate) struct Interrupt {
    is_set: AtomicBool,
    /// Whether `wakers` may hold something, so that most requests look at no lock.
    is_awaited: AtomicBool,
    /// Those of all futures that wait, each of which may be polled by something of its own.
    wakers: Mutex<Vec<Waker>>,
}

impl Interrupt {
    /// Resolves when the request is interrupted.
    pub(crate) fn wait(&self) -> impl Future<Output = ()> + '_ {
        std::future::poll_fn(|cx| {
            if !self.is_set.load(Ordering::SeqCst) {
                let mut wakers = self.wakers.lock();
                if !wakers.iter().any(|known| known.will_wake(cx.waker())) {
                    wakers.push(cx.waker().clone());
                }
                self.is_awaited.store(true, Ordering::Relaxed);
                // It may have come before the waker was there.
                if !self.is_set.load(Ordering::SeqCst) {
                    return Poll::Pending;
                }
            }
            Poll::Ready(())
        })
    }

    /// The request has ended. Only the queue's thread waits and clears.
    pub(crate) fn clear(&self) {
        // It may have come while nobody waited for it; the slot's next request is another caller's.
        if self.is_awaited.load(Ordering::Relaxed) || self.is_set.load(Ordering::Relaxed) {
            self.is_awaited.store(false, Ordering::Relaxed);
            self.wakers.lock().clear();
            self.is_set.store(false, Ordering::SeqCst);
        }
    }

    fn set(&self) {
        self.is_set.store(true, Ordering::SeqCst);
        let wakers = std::mem::take(&mut *self.wakers.lock());
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Interrupts {
    /// Registers a request that goes on.
    pub(crate) fn register(&self, unique: u64, interrupt: &Arc<Interrupt>) {
        let mut state = self.state.lock();
        if let Some(at) = state.early.iter().position(|early| *early == unique) {
            state.early.remove(at);
            interrupt.set();
        }
        if state.ended {
            interrupt.set();
        }
        state.waiting.insert(unique, Arc::clone(interrupt));
    }

    /// Takes a request back that has ended.
    pub(crate) fn ended(&self, unique: u64) {
        self.state.lock().waiting.remove(&unique);
    }

    /// The connection is gone, which interrupts every request: on a ring, one that waits (for a lock, say)
    /// would otherwise keep its thread for ever.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        state.waiting.values().for_each(|interrupt| interrupt.set());
    }

    /// The kernel says that the caller of `unique` got a signal.
    pub(crate) fn arrived(&self, unique: u64) {
        let mut state = self.state.lock();
        if let Some(interrupt) = state.waiting.get(&unique) {
            interrupt.set();
            return;
        }
        if state.early.len() == EARLY_MAX {
            state.early.pop_front();
        }
        state.early.push_back(unique);
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use std::pin::pin;
    use std::task::Context;

    fn is_set(interrupt: &Interrupt) -> bool {
        pin!(interrupt.wait()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn early_and_late_interrupts_both_arrive() {
        let interrupts = Interrupts::default();
        let (first, second) = (Arc::<Interrupt>::default(), Arc::<Interrupt>::default());
        interrupts.arrived(4);
        interrupts.register(4, &first);
        assert!(is_set(&first));
        interrupts.register(6, &second);
        assert!(!is_set(&second));
        interrupts.arrived(6);
        assert!(is_set(&second));
        interrupts.ended(6);
        second.clear();
        interrupts.arrived(6);
        assert!(!is_set(&second), "the request has ended");
    }

    /// A caller was killed while its request did something else than to wait for that. The next request in the slot, which was
    /// somebody else's, was taken for interrupted: its caller got EINTR, or error 512 for a lock, without any signal.
    #[test]
    fn an_interrupt_that_nobody_waited_for_is_not_the_next_ones() {
        let (interrupts, slot) = (Interrupts::default(), Arc::<Interrupt>::default());
        interrupts.register(4, &slot);
        interrupts.arrived(4);
        interrupts.ended(4);
        slot.clear();
        interrupts.register(6, &slot);
        assert!(!is_set(&slot));
        interrupts.arrived(6);
        assert!(is_set(&slot));
    }

    #[test]
    fn the_end_interrupts_those_that_wait_and_those_that_come() {
        let interrupts = Interrupts::default();
        let (waits, comes) = (Arc::<Interrupt>::default(), Arc::<Interrupt>::default());
        interrupts.register(4, &waits);
        interrupts.end();
        interrupts.register(6, &comes);
        assert!(is_set(&waits) && is_set(&comes));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let interrupts = Interrupts::default();
        for unique in 0..10_000 {
            interrupts.arrived(unique);
        }
        assert_eq!(interrupts.state.lock().early.len(), EARLY_MAX);
    }
}
