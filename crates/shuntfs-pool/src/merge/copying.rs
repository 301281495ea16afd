//! How many files are copied to other branches at once.
//!
//! Each copy takes a thread for as long as it lasts, of those that all other work that may wait needs, too. Whoever finds no room waits without a
//! thread, in the order of coming.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Poll, Waker};

use parking_lot::Mutex;

/// How many are copied at once at most: an eighth of the threads that there are by default.
const COPIES_MAX: usize = 8;

/// Who copies, and who waits.
#[derive(Debug)]
pub(crate) struct Copying {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    free: usize,
    tickets: u64,
    waiting: VecDeque<(u64, Waker)>,
}

/// The right to copy, as long as this is there.
#[derive(Debug)]
pub(crate) struct Permit<'c>(&'c Copying);

/// A place among those that wait.
struct Place<'c> {
    copying: &'c Copying,
    ticket: Option<u64>,
}

impl Default for Copying {
    fn default() -> Self {
        let state = State { free: COPIES_MAX, tickets: 0, waiting: VecDeque::new() };
        Self { state: Mutex::new(state) }
    }
}

impl Copying {
    /// Waits until fewer copies are under way than there may be.
    pub(crate) async fn permit(&self) -> Permit<'_> {
        let mut place = Place { copying: self, ticket: None };
        poll_fn(|task| place.poll(task.waker())).await
    }
}

impl State {
    fn wake_next(&self) {
        if let Some((_, waker)) = self.waiting.front().filter(|_| self.free > 0) {
            waker.wake_by_ref();
        }
    }
}

impl<'c> Place<'c> {
    fn poll(&mut self, waker: &Waker) -> Poll<Permit<'c>> {
        let mut state = self.copying.state.lock();
        let place = self.ticket.and_then(|own| state.waiting.iter().position(|(ticket, _)| *ticket == own));
        let is_next = place.map_or(state.waiting.is_empty(), |place| place == 0);
        if is_next && state.free > 0 {
            state.free -= 1;
            if self.ticket.take().is_some() {
                drop(state.waiting.pop_front());
            }
            state.wake_next();
            return Poll::Ready(Permit(self.copying));
        }
        if let Some(place) = place {
            state.waiting[place].1.clone_from(waker);
        } else {
            state.tickets += 1;
            let ticket = state.tickets;
            state.waiting.push_back((ticket, waker.clone()));
            self.ticket = Some(ticket);
        }
        Poll::Pending
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let Some(own) = self.ticket else { return };
        let mut state = self.copying.state.lock();
        state.waiting.retain(|(ticket, _)| *ticket != own);
        state.wake_next();
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.free += 1;
        state.wake_next();
    }
}

#[cfg(test)]
mod test {
    use std::sync::Arc;
    use std::task::Context;

    use super::*;
    use crate::woken::Woken;

    #[test]
    fn so_many_copy_at_once_and_the_next_in_the_order_of_coming() {
        let copying = Copying::default();
        let mut task = Context::from_waker(Waker::noop());
        let mut permits: Vec<_> = (0..COPIES_MAX)
            .map(|_| match Box::pin(copying.permit()).as_mut().poll(&mut task) {
                Poll::Ready(permit) => permit,
                Poll::Pending => panic!("there is room"),
            })
            .collect();
        let woken = [(); 3].map(|()| Arc::new(Woken::default()));
        let counts = || woken.each_ref().map(|woken| woken.count());
        let wakers = woken.each_ref().map(Woken::waker);
        let mut waiting = [(); 3].map(|()| Box::pin(copying.permit()));
        for (waiting, waker) in waiting.iter_mut().zip(&wakers) {
            assert!(waiting.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
        }
        let [first, mut second, mut third] = waiting;
        drop(permits.pop());
        assert_eq!(counts(), [1, 0, 0]);
        assert!(third.as_mut().poll(&mut Context::from_waker(&wakers[2])).is_pending(), "it is not its turn");
        // Who goes leaves the turn to the next.
        drop(first);
        assert_eq!(counts(), [1, 1, 0]);
        assert!(second.as_mut().poll(&mut Context::from_waker(&wakers[1])).is_ready());
        assert_eq!(counts(), [1, 1, 1], "that one has gone already");
        assert!(third.as_mut().poll(&mut Context::from_waker(&wakers[2])).is_ready());
        drop(permits);
        assert_eq!(copying.state.lock().free, COPIES_MAX);
    }
}
