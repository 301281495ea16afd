//! Who may do what is done by one at a time: make paths and move folders, change names where rules go by them, and change the branches.
//!
//! Whoever has the order makes lower calls meanwhile, and a disk may hang. Once its branch is set aside, nobody waits for it any more: the order goes
//! to the next one, and whoever had it goes on without it when the disk answers. What was to be kept apart is then kept apart by the calls
//! themselves alone, as it is from changes beside the mount: a folder may be left on fewer branches, or at its old and its new place, and whoever
//! notes names asks whether it has the order still.

use parking_lot::{Condvar, Mutex};

use crate::branch::{own_number, waits};

/// The order, and who has it.
#[derive(Debug, Default)]
pub(crate) struct Growing {
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The ticket of who has it, and what that thread has under way.
    holder: Option<(u64, u64)>,
    tickets: u64,
}

/// Nobody else does what is done in this order, as long as it is not removed.
#[derive(Debug)]
pub(crate) struct Order<'m> {
    growing: &'m Growing,
    ticket: u64,
}

impl Growing {
    /// Waits until nobody has it.
    pub(crate) fn take(&self) -> Order<'_> {
        let mut state = self.state.lock();
        if state.holder.is_some() {
            // For another one's disk.
            waits(|| self.freed.wait_while(&mut state, |state| state.holder.is_some()));
        }
        self.give(&mut state)
    }

    /// The same if nobody has it.
    pub(crate) fn try_take(&self) -> Option<Order<'_>> {
        let mut state = self.state.lock();
        state.holder.is_none().then(|| self.give(&mut state))
    }

    fn give(&self, state: &mut State) -> Order<'_> {
        state.tickets += 1;
        let ticket = state.tickets;
        state.holder = Some((ticket, own_number()));
        Order { growing: self, ticket }
    }

    /// Takes it from who has it, where that is stuck. Whether it was.
    pub(crate) fn leave_behind(&self, is_stuck: impl Fn(u64) -> bool) -> bool {
        let mut state = self.state.lock();
        let is_left = state.holder.is_some_and(|(_, flight)| flight != 0 && is_stuck(flight));
        if is_left {
            state.holder = None;
            self.freed.notify_one();
        }
        is_left
    }
}

impl Order<'_> {
    /// Whether it was not removed.
    pub(crate) fn is_held(&self) -> bool {
        self.is_in(&self.growing.state.lock())
    }

    fn is_in(&self, state: &State) -> bool {
        state.holder.is_some_and(|(ticket, _)| ticket == self.ticket)
    }
}

impl Drop for Order<'_> {
    fn drop(&mut self) {
        let mut state = self.growing.state.lock();
        // It may have been removed, and be another one's by now.
        if self.is_in(&state) {
            state.holder = None;
            self.growing.freed.notify_one();
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::branch::Flights;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn one_has_it_at_a_time() {
        let growing = Growing::default();
        let (told, tells) = mpsc::channel();
        std::thread::scope(|scope| {
            let first = growing.take();
            let growing = &growing;
            scope.spawn(move || {
                let _second = growing.take();
                told.send(()).unwrap();
            });
            assert!(tells.recv_timeout(Duration::from_millis(20)).is_err());
            assert!(!growing.leave_behind(|_| true), "nobody watches who has it");
            assert!(growing.try_take().is_none());
            drop(first);
            tells.recv_timeout(Duration::from_secs(20)).unwrap();
        });
    }

    /// One rename on a disk that hung kept all others waiting, and the removal of its branch.
    #[test]
    fn it_is_taken_from_who_is_stuck() {
        let (growing, flights) = (Growing::default(), Flights::new());
        let stuck = flights.begin();
        let first = growing.take();
        let own = own_number();
        assert!(!growing.leave_behind(|flight| flight != own));
        assert!(growing.leave_behind(|flight| flight == own));
        let second = growing.take();
        assert!(!first.is_held() && second.is_held());
        drop(first);
        assert!(growing.state.lock().holder.is_some(), "it is the second one's");
        drop(second);
        assert!(growing.state.lock().holder.is_none());
        drop(stuck);
    }
}
