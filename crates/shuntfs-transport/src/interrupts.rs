//! Which waiting requests were interrupted.
//!
//! A request that does not end at once writes its number into its slot, and takes no lock for that. An INTERRUPT, which is rare, looks
//! for its number in all slots of the connection. It may be read, by another thread, before its request has gone that far; those
//! that find no request are kept for a while, a bounded number of them.
//!
//! Order: a request first shows its number and then asks whether an INTERRUPT was kept; an INTERRUPT is first kept and then looks for the
//! number. So one of them sees the other.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Poll, Waker};

use parking_lot::Mutex;

use crate::kept::KeptRings;

/// How many early INTERRUPTs are kept.
const EARLY_MAX: usize = 256;
/// No request has this number.
const NONE: u64 = 0;
/// Any request is interrupted.
const ALL: u64 = u64::MAX;

/// The interrupts of one connection.
#[derive(Debug, Default)]
pub(crate) struct Interrupts {
    /// Held while an INTERRUPT looks for its request.
    state: Mutex<State>,
    /// Whether `early` may hold something, or the connection is gone.
    has_news: AtomicBool,
    /// Where they are written down for another server.
    kept: Option<Arc<KeptRings>>,
}

#[derive(Debug, Default)]
struct State {
    /// The slots of each queue.
    queues: Vec<Arc<[Interrupt]>>,
    early: VecDeque<u64>,
    /// The connection is gone: nobody waits for an answer.
    ended: bool,
}

/// Whether the request in one slot was interrupted, and who waits for that.
#[derive(Debug, Default)]
pub(crate) struct Interrupt {
    /// The request that goes on in the slot, and the one that was interrupted last.
    unique: AtomicU64,
    interrupted: AtomicU64,
    /// Whether `wakers` may hold something, so that most requests look at no lock.
    is_awaited: AtomicBool,
    /// Those of all futures that wait, each of which may be polled by something of its own.
    wakers: Mutex<Vec<Waker>>,
}

impl Interrupt {
    pub(crate) fn is_set(&self) -> bool {
        let interrupted = self.interrupted.load(Ordering::SeqCst);
        interrupted != NONE && (interrupted == ALL || interrupted == self.unique.load(Ordering::SeqCst))
    }

    /// Resolves when the request is interrupted.
    pub(crate) fn wait(&self) -> impl Future<Output = ()> + '_ {
        std::future::poll_fn(|cx| {
            if !self.is_set() {
                let mut wakers = self.wakers.lock();
                if !wakers.iter().any(|known| known.will_wake(cx.waker())) {
                    wakers.push(cx.waker().clone());
                }
                self.is_awaited.store(true, Ordering::Relaxed);
                // It may have come before the waker was there.
                if !self.is_set() {
                    return Poll::Pending;
                }
            }
            Poll::Ready(())
        })
    }

    /// The request has ended. Only the queue's thread waits and clears.
    pub(crate) fn clear(&self) {
        if self.unique.load(Ordering::Relaxed) != NONE {
            self.unique.store(NONE, Ordering::SeqCst);
        }
        if self.is_awaited.load(Ordering::Relaxed) {
            self.is_awaited.store(false, Ordering::Relaxed);
            self.wakers.lock().clear();
        }
    }

    fn set(&self, unique: u64) {
        self.interrupted.store(unique, Ordering::SeqCst);
        let wakers = std::mem::take(&mut *self.wakers.lock());
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Interrupts {
    /// Where another server can take over rings, the INTERRUPTs of its requests are written down there.
    pub(crate) fn new(kept: Option<Arc<KeptRings>>) -> Self {
        Self { kept, ..Self::default() }
    }

    /// Of a request that a predecessor left, the INTERRUPT may have come to that one.
    pub(crate) fn comes_again(&self, unique: u64) {
        if self.kept.as_ref().is_some_and(|kept| kept.was_interrupted(unique)) {
            self.arrived(unique);
        }
    }

    /// The request in a slot is taken back, which will be begun again. False where it was interrupted.
    pub(crate) fn takes_back(&self, interrupt: &Interrupt) -> bool {
        // So that none comes between.
        let _state = self.state.lock();
        if interrupt.is_set() {
            return false;
        }
        interrupt.clear();
        true
    }

    /// Slots for the requests of one more queue.
    pub(crate) fn of_queue(&self, slots: usize) -> Arc<[Interrupt]> {
        let queue: Arc<[Interrupt]> = (0..slots).map(|_| Interrupt::default()).collect();
        self.state.lock().queues.push(Arc::clone(&queue));
        queue
    }

    /// Registers a request that goes on.
    pub(crate) fn register(&self, unique: u64, interrupt: &Interrupt) {
        interrupt.unique.store(unique, Ordering::SeqCst);
        if self.has_news.load(Ordering::SeqCst) {
            let mut state = self.state.lock();
            if let Some(at) = state.early.iter().position(|early| *early == unique) {
                state.early.remove(at);
                interrupt.set(unique);
            }
            if state.ended {
                interrupt.set(ALL);
            }
            self.has_news.store(state.ended || !state.early.is_empty(), Ordering::SeqCst);
        }
    }

    /// The connection is gone, which interrupts every request: on a ring, one that waits (for a lock, say)
    /// would otherwise keep its thread forever.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        self.has_news.store(true, Ordering::SeqCst);
        state.queues.iter().flat_map(|queue| queue.iter()).for_each(|interrupt| interrupt.set(ALL));
    }

    /// The kernel says that the caller of `unique` got a signal.
    pub(crate) fn arrived(&self, unique: u64) {
        if let Some(kept) = &self.kept {
            kept.interrupted(unique);
        }
        let mut state = self.state.lock();
        if state.early.len() == EARLY_MAX {
            state.early.pop_front();
        }
        state.early.push_back(unique);
        self.has_news.store(true, Ordering::SeqCst);
        let mut slots = state.queues.iter().flat_map(|queue| queue.iter());
        if let Some(found) = slots.find(|slot| slot.unique.load(Ordering::SeqCst) == unique) {
            found.set(unique);
            state.early.pop_back();
        }
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
        let slots = interrupts.of_queue(2);
        let (first, second) = (&slots[0], &slots[1]);
        interrupts.arrived(4);
        interrupts.register(4, first);
        assert!(is_set(first));
        interrupts.register(6, second);
        assert!(!is_set(second));
        interrupts.arrived(6);
        assert!(is_set(second));
        second.clear();
        interrupts.arrived(6);
        assert!(!is_set(second), "the request has ended");
    }

    /// The INTERRUPT of a request that came again names it as it came: with the top bit.
    #[test]
    fn the_interrupt_of_a_resent_request_finds_it() {
        let interrupts = Interrupts::default();
        let slots = interrupts.of_queue(2);
        let resent = shuntfs_wire::abi::UNIQUE_RESEND | 4;
        interrupts.register(4, &slots[0]);
        interrupts.register(resent, &slots[1]);
        interrupts.arrived(resent);
        assert!(!is_set(&slots[0]) && is_set(&slots[1]));
        slots[1].clear();
        interrupts.arrived(resent);
        interrupts.register(resent, &slots[1]);
        assert!(is_set(&slots[1]), "it came first");
    }

    /// A caller was killed while its request did something else than to wait for that. The next request in the slot, which was
    /// somebody else's, was taken for interrupted: its caller got EINTR, or error 512 for a lock, without any signal.
    #[test]
    fn an_interrupt_that_nobody_waited_for_is_not_the_next_ones() {
        let interrupts = Interrupts::default();
        let slots = interrupts.of_queue(1);
        let slot = &slots[0];
        interrupts.register(4, slot);
        interrupts.arrived(4);
        slot.clear();
        interrupts.register(6, slot);
        assert!(!is_set(slot));
        interrupts.arrived(6);
        assert!(is_set(slot));
    }

    #[test]
    fn the_end_interrupts_those_that_wait_and_those_that_come() {
        let interrupts = Interrupts::default();
        let (first, second) = (interrupts.of_queue(1), interrupts.of_queue(1));
        interrupts.register(4, &first[0]);
        interrupts.end();
        interrupts.register(6, &second[0]);
        assert!(is_set(&first[0]) && is_set(&second[0]));
    }

    /// A request that waits is taken back and begun again, by this server or by the next one: an INTERRUPT finds it whenever that comes.
    #[test]
    fn an_interrupt_of_what_was_taken_back_finds_it_when_it_is_begun_again() {
        use crate::settings::Settings;
        let settings = Settings { depth: 2, payload_len: 8192, ..Settings::default() };
        let rings = Arc::new(KeptRings::create(&settings).expect("memory"));
        for comes_late in [false, true] {
            let first = Interrupts::new(Some(Arc::clone(&rings)));
            let slots = first.of_queue(1);
            let unique = if comes_late { 8 } else { 4 };
            first.register(unique, &slots[0]);
            if !comes_late {
                first.arrived(unique);
                assert!(!first.takes_back(&slots[0]), "it ends by that");
                continue;
            }
            assert!(first.takes_back(&slots[0]));
            first.arrived(unique);
            assert!(!is_set(&slots[0]));
            let next = Interrupts::new(Some(Arc::clone(&rings)));
            let theirs = next.of_queue(1);
            next.register(6, &theirs[0]);
            assert!(!is_set(&theirs[0]), "another one's");
            theirs[0].clear();
            next.comes_again(unique);
            next.register(unique, &theirs[0]);
            first.register(unique, &slots[0]);
            assert!(is_set(&theirs[0]) && is_set(&slots[0]));
        }
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let interrupts = Interrupts::default();
        for unique in 0..10_000 {
            interrupts.arrived(unique);
        }
        assert_eq!(interrupts.state.lock().early.len(), EARLY_MAX);
    }

    /// Requests show their numbers while INTERRUPTs look for them: each is found by one or the other.
    #[test]
    fn none_is_lost_between_a_request_and_its_interrupt() {
        let interrupts = Interrupts::default();
        let slots = interrupts.of_queue(1);
        let (told, tells) = std::sync::mpsc::sync_channel(0);
        std::thread::scope(|scope| {
            let interrupts = &interrupts;
            scope.spawn(move || {
                while let Ok(unique) = tells.recv() {
                    interrupts.arrived(unique);
                }
            });
            for unique in (2..20_000).step_by(2) {
                told.send(unique).expect("it listens");
                interrupts.register(unique, &slots[0]);
                while !is_set(&slots[0]) {
                    std::thread::yield_now();
                }
                slots[0].clear();
            }
            drop(told);
        });
        assert!(interrupts.state.lock().early.is_empty());
    }
}
