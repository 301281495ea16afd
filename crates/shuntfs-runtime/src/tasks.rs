//! The futures of a queue, one a slot, in memory that is allocated once, at the slot's first request: most slots of an idle mount never have
//! one.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::ready::Ready;

/// One future a slot.
pub struct Tasks<F> {
    slots: Vec<Slot<F>>,
}

struct Slot<F> {
    future: Option<Pin<Box<Option<F>>>>,
    waker: Waker,
}

impl<F> std::fmt::Debug for Tasks<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tasks").field("slots", &self.slots.len()).finish()
    }
}

impl<F: Future> Tasks<F> {
    /// Makes `slots` empty slots, whose wakers tell `ready`.
    #[must_use]
    pub fn new(slots: usize, ready: &Arc<Ready>) -> Self {
        let slots = (0..slots).map(|slot| Slot { future: None, waker: ready.waker(slot) }).collect();
        Self { slots }
    }

    /// Puts a future into an empty slot and polls it. A panic of the future is caught, ends it, and is
    /// handed out as `Err`.
    ///
    /// # Panics
    /// Where the slot is not empty.
    pub fn start(&mut self, slot: usize, future: F) -> Poll<Result<F::Output, Box<dyn Any + Send>>> {
        let place = self.slots[slot].future.get_or_insert_with(|| Box::pin(None));
        assert!(place.is_none(), "slot {slot} still serves a request");
        place.as_mut().set(Some(future));
        self.poll(slot)
    }

    /// Polls the future in a slot; pending where there is none (a late wake).
    pub fn poll(&mut self, slot: usize) -> Poll<Result<F::Output, Box<dyn Any + Send>>> {
        let Slot { future: place, waker } = &mut self.slots[slot];
        let Some(place) = place else { return Poll::Pending };
        let Some(future) = place.as_mut().as_pin_mut() else { return Poll::Pending };
        let polled = catch_unwind(AssertUnwindSafe(|| future.poll(&mut Context::from_waker(waker))));
        let outcome = match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(output)) => Ok(output),
            Err(panic) => Err(panic),
        };
        place.as_mut().set(None);
        Poll::Ready(outcome)
    }

    /// Drops the future in a slot, if there is one.
    pub fn drop_future(&mut self, slot: usize) {
        if let Some(place) = &mut self.slots[slot].future {
            place.as_mut().set(None);
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;

    #[test]
    fn a_slot_serves_again_after_it_ended_or_panicked() {
        let ready = Ready::new(1).expect("bell");
        let mut tasks = Tasks::new(1, &ready);
        let step = Rc::new(Cell::new(0));
        let run = |fail: bool| {
            let step = Rc::clone(&step);
            async move {
                let mut yielded = false;
                std::future::poll_fn(move |cx| {
                    if std::mem::replace(&mut yielded, true) {
                        return Poll::Ready(());
                    }
                    cx.waker().wake_by_ref();
                    Poll::Pending
                })
                .await;
                assert!(!fail, "asked to");
                step.set(step.get() + 1);
                step.get()
            }
        };
        for (fail, want) in [(false, Some(1)), (true, None), (false, Some(2))] {
            assert!(tasks.start(0, run(fail)).is_pending());
            assert_eq!(ready.take_from(0), Some(0));
            match tasks.poll(0) {
                Poll::Ready(outcome) => assert_eq!(outcome.ok(), want),
                Poll::Pending => panic!("was woken"),
            }
        }
        assert!(tasks.poll(0).is_pending(), "an empty slot has nothing to say");
    }
}
