//! What a file of a merge has because it may be moved to another branch while it is open.
//!
//! Whoever changes its content or its attributes below counts as a change that is under way, and only then looks where the file is. Whoever moves
//! it waits until no change is under way, and none begins before the move has ended. Readers wait for nobody: what they read is the same in
//! both places until the move has ended.
//!
//! A request waits without a thread, because a move takes as long as the file is large. A move whose caller does not wait for it any more is given up,
//! so that changes go on, and one that nobody waits for ([`Move::begin_idle`]) by whoever changes the file; once it has said that it is about to end
//! ([`Move::commit`]), it is not.
//!
//! Open files are noted here, with the lower files that they go through, so that these are exchanged when the file is moved.

use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::state::Node;
use crate::branch::waits;
use crate::lowers::Lowers;

/// The state of a file that may be moved.
#[derive(Debug, Default)]
pub(crate) struct Mobile {
    turn: Mutex<Turn>,
    /// The last change has ended, or the move.
    ended: Condvar,
    opens: Mutex<Vec<Weak<Lowers>>>,
}

#[derive(Debug, Default)]
struct Turn {
    /// How many changes are under way.
    changes: u32,
    /// The ticket of the move that is under way.
    moving: Option<u64>,
    /// Whether that one cannot be given up any more.
    is_committed: bool,
    /// Whether nobody waits for that one, so that it gives way to changes.
    is_idle: bool,
    tickets: u64,
    /// The requests that wait.
    wakers: Vec<Waker>,
}

/// A change that is under way: the file is not moved before this is dropped. Whoever has one must not wait for another one of the same file.
#[derive(Debug)]
pub(crate) struct Change(Option<Arc<Node>>);

/// The right to move a file: nobody changes it before this is dropped, unless it is given up.
#[derive(Debug)]
pub(crate) struct Move {
    node: Arc<Node>,
    ticket: u64,
}

impl Change {
    /// Begins to change a file; `None` while it is being moved. What cannot be moved is not counted.
    pub(crate) fn begin(node: &Arc<Node>) -> Option<Self> {
        Self::begin_or(node, None)
    }

    /// The same, after a move that is under way: that may take as long as the file is large.
    pub(crate) async fn wait(node: &Arc<Node>) -> Self {
        poll_fn(|task| Self::begin_or(node, Some(task.waker())).map_or(Poll::Pending, Poll::Ready)).await
    }

    fn begin_or(node: &Arc<Node>, waker: Option<&Waker>) -> Option<Self> {
        let Some(mobile) = node.mobile() else { return Some(Self(None)) };
        let mut turn = mobile.turn.lock();
        let gives_way = turn.is_idle && !turn.is_committed;
        if turn.moving.is_some() && !gives_way {
            waker.into_iter().for_each(|waker| turn.wakes(waker));
            return None;
        }
        turn.changes += 1;
        if turn.moving.take().is_some() {
            mobile.has_ended(turn);
        }
        Some(Self(Some(Arc::clone(node))))
    }

    /// The change of what is no file that can be moved.
    pub(crate) const NONE: Self = Self(None);
}

impl Drop for Change {
    fn drop(&mut self) {
        let Some(mobile) = self.0.as_ref().and_then(|node| node.mobile()) else { return };
        let mut turn = mobile.turn.lock();
        turn.changes -= 1;
        if turn.changes == 0 && turn.moving.is_some() {
            mobile.has_ended(turn);
        }
    }
}

impl Move {
    /// Waits for changes that are under way, and keeps others from beginning. `None` where somebody else was moving the file, and has ended: it
    /// may be elsewhere.
    pub(crate) fn begin(node: &Arc<Node>) -> Option<Self> {
        Self::begin_by(node, false)
    }

    /// The same for a move that nobody waits for: whoever is to change the file before it is about to end has it given up, and does not wait.
    /// `None` also where that was so before it began.
    pub(crate) fn begin_idle(node: &Arc<Node>) -> Option<Self> {
        Self::begin_by(node, true)
    }

    fn begin_by(node: &Arc<Node>, is_idle: bool) -> Option<Self> {
        let mobile = node.make_mobile();
        let mut turn = mobile.turn.lock();
        if turn.moving.is_some() {
            while turn.moving.is_some() {
                waits(|| mobile.ended.wait(&mut turn));
            }
            return None;
        }
        let ticket = turn.claim(is_idle);
        while turn.changes > 0 && turn.moving == Some(ticket) {
            waits(|| mobile.ended.wait(&mut turn));
        }
        let is_ours = turn.moving == Some(ticket);
        drop(turn);
        is_ours.then(|| Self { node: Arc::clone(node), ticket })
    }

    /// The same, without a thread.
    pub(crate) async fn begun(node: &Arc<Node>) -> Option<Self> {
        let mobile = node.make_mobile();
        let (mut has_waited, mut claimed) = (false, None);
        poll_fn(|task| {
            let mut turn = mobile.turn.lock();
            if claimed.is_none() {
                if turn.moving.is_some() {
                    has_waited = true;
                    turn.wakes(task.waker());
                    return Poll::Pending;
                }
                if has_waited {
                    return Poll::Ready(None);
                }
                claimed = Some(Self { node: Arc::clone(node), ticket: turn.claim(false) });
            }
            if turn.changes > 0 {
                turn.wakes(task.waker());
                return Poll::Pending;
            }
            Poll::Ready(claimed.take())
        })
        .await
    }

    /// The file that is moved.
    pub(crate) fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// What it is given up by.
    pub(crate) fn ticket(&self) -> u64 {
        self.ticket
    }

    /// Whether it was given up.
    pub(crate) fn is_given_up(&self) -> bool {
        self.node.make_mobile().turn.lock().moving != Some(self.ticket)
    }

    /// Says that it is about to end, and is not given up any more; false where it was.
    pub(crate) fn commit(&self) -> bool {
        let mut turn = self.node.make_mobile().turn.lock();
        let is_ours = turn.moving == Some(self.ticket);
        turn.is_committed |= is_ours;
        is_ours
    }

    /// It did not end, and may be given up again.
    pub(crate) fn goes_on(&self) {
        let mut turn = self.node.make_mobile().turn.lock();
        if turn.moving == Some(self.ticket) {
            turn.is_committed = false;
        }
    }
}

impl Drop for Move {
    fn drop(&mut self) {
        self.node.make_mobile().end(self.ticket, true);
    }
}

impl Turn {
    fn claim(&mut self, is_idle: bool) -> u64 {
        self.tickets += 1;
        (self.moving, self.is_committed, self.is_idle) = (Some(self.tickets), false, is_idle);
        self.tickets
    }

    fn wakes(&mut self, waker: &Waker) {
        if !self.wakers.iter().any(|known| known.will_wake(waker)) {
            self.wakers.push(waker.clone());
        }
    }
}

impl Mobile {
    /// Nobody waits for this move any more: if it is under way still and not about to end, changes go on.
    pub(crate) fn give_up(&self, ticket: u64) {
        self.end(ticket, false);
    }

    fn end(&self, ticket: u64, even_committed: bool) {
        let mut turn = self.turn.lock();
        if turn.moving == Some(ticket) && (even_committed || !turn.is_committed) {
            turn.moving = None;
            self.has_ended(turn);
        }
    }

    fn has_ended(&self, mut turn: MutexGuard<'_, Turn>) {
        let wakers = std::mem::take(&mut turn.wakers);
        drop(turn);
        self.ended.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Whether it is being moved.
    pub(crate) fn is_moving(&self) -> bool {
        self.turn.lock().moving.is_some()
    }

    /// Whether a move of it is about to end.
    #[cfg(test)]
    pub(crate) fn is_committed(&self) -> bool {
        self.turn.lock().is_committed
    }

    /// Notes an open file.
    pub(crate) fn opened(&self, lowers: &Arc<Lowers>) {
        let mut opens = self.opens.lock();
        if opens.len() == opens.capacity() {
            opens.retain(|open| open.strong_count() > 0);
        }
        opens.push(Arc::downgrade(lowers));
    }

    /// The open files.
    pub(crate) fn opens(&self) -> Vec<Arc<Lowers>> {
        self.opens.lock().iter().filter_map(Weak::upgrade).collect()
    }
}

#[cfg(test)]
mod test {
    use std::pin::pin;
    use std::task::Context;

    use super::*;
    use crate::branch::MountIndex;
    use crate::node::Identity;
    use crate::view::View;
    use crate::woken::Woken;
    use shuntfs::NodeId;
    use shuntfs_sys::Stat;

    fn node() -> Arc<Node> {
        let identity = Identity::new(&Stat::default(), MountIndex::own(0), None);
        Arc::new(Node::new(NodeId::new(7).unwrap(), identity, View::WHOLE, 0))
    }

    #[test]
    fn what_cannot_be_moved_is_changed_at_any_time() {
        let node = node();
        let (first, second) = (Change::begin(&node), Change::begin(&node));
        assert!(first.is_some() && second.is_some() && node.mobile().is_none());
    }

    #[test]
    fn a_move_waits_for_changes_and_changes_wait_for_a_move() {
        let node = node();
        node.make_mobile();
        let (first, second) = (Change::begin(&node).unwrap(), Change::begin(&node).unwrap());
        std::thread::scope(|scope| {
            let mover = scope.spawn(|| Move::begin(&node).is_some());
            while !node.make_mobile().is_moving() {
                std::thread::yield_now();
            }
            assert!(Change::begin(&node).is_none(), "it is to be moved");
            drop(first);
            assert!(node.make_mobile().is_moving() && !mover.is_finished(), "one change is under way still");
            drop(second);
            assert!(mover.join().unwrap());
        });
        let moving = Move::begin(&node).unwrap();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| drop(Move::begin(&node)));
            drop(moving);
            other.join().unwrap();
        });
        assert!(!node.make_mobile().is_moving() && Change::begin(&node).is_some());
    }

    /// A copy that was as good as done took a minute to get to its disk, and whoever wrote to the file waited for that.
    #[test]
    fn a_move_that_nobody_waits_for_gives_way_to_changes() {
        let node = node();
        let moving = Move::begin_idle(&node).unwrap();
        assert!(!moving.is_given_up());
        let change = Change::begin(&node).unwrap();
        assert!(moving.is_given_up() && !moving.commit() && !node.make_mobile().is_moving());
        drop(moving);
        std::thread::scope(|scope| {
            let mover = scope.spawn(|| Move::begin_idle(&node).is_some());
            while !node.make_mobile().is_moving() {
                std::thread::yield_now();
            }
            let second = Change::begin(&node).unwrap();
            assert!(!mover.join().unwrap(), "it does not wait for one after the other");
            drop((change, second));
        });
        let moving = Move::begin_idle(&node).unwrap();
        assert!(moving.commit() && Change::begin(&node).is_none(), "it is about to end");
        moving.goes_on();
        assert!(Change::begin(&node).is_some());
        drop(moving);
        let next = Move::begin(&node).unwrap();
        assert!(Change::begin(&node).is_none(), "that one is waited for");
        drop(next);
    }

    /// Each of those that waited for a long copy held a thread, and there were none left for others.
    #[test]
    fn requests_wait_without_a_thread() {
        let node = node();
        let (woken, other_woken) = (Arc::new(Woken::default()), Arc::new(Woken::default()));
        let (waker, other_waker) = (woken.waker(), other_woken.waker());
        let (mut task, mut other_task) = (Context::from_waker(&waker), Context::from_waker(&other_waker));
        node.make_mobile();
        let change = Change::begin(&node).unwrap();
        let (mut moving, mut other) = (pin!(Move::begun(&node)), pin!(Move::begun(&node)));
        assert!(moving.as_mut().poll(&mut task).is_pending() && other.as_mut().poll(&mut task).is_pending());
        drop(change);
        assert_eq!(woken.count(), 1);
        let Poll::Ready(Some(moving)) = moving.as_mut().poll(&mut task) else { panic!("it is its turn") };
        let mut changes: Vec<_> = (0..100).map(|_| Box::pin(Change::wait(&node))).collect();
        for change in &mut changes {
            assert!(change.as_mut().poll(&mut other_task).is_pending());
        }
        assert!(other.as_mut().poll(&mut task).is_pending());
        drop(moving);
        assert_eq!((woken.count(), other_woken.count()), (2, 1));
        assert!(matches!(other.as_mut().poll(&mut task), Poll::Ready(None)), "another one has moved it");
        for mut change in changes {
            assert!(change.as_mut().poll(&mut other_task).is_ready());
        }
    }

    #[test]
    fn who_does_not_wait_for_the_turn_any_more_gives_it_back() {
        let node = node();
        let mut task = Context::from_waker(Waker::noop());
        node.make_mobile();
        let change = Change::begin(&node).unwrap();
        let mut moving = Box::pin(Move::begun(&node));
        assert!(moving.as_mut().poll(&mut task).is_pending() && Change::begin(&node).is_none());
        drop(moving);
        assert!(Change::begin(&node).is_some());
        drop(change);
    }

    /// The copy hung on the other disk, and all who changed the file waited with it.
    #[test]
    fn a_move_that_is_given_up_does_not_end() {
        let node = node();
        let moving = Move::begin(&node).unwrap();
        let mobile = node.make_mobile();
        assert!(moving.commit());
        mobile.give_up(moving.ticket());
        assert!(Change::begin(&node).is_none(), "it is about to end");
        moving.goes_on();
        mobile.give_up(moving.ticket());
        assert!(Change::begin(&node).is_some() && !moving.commit());
        let next = Move::begin(&node).unwrap();
        moving.goes_on();
        drop(moving);
        mobile.give_up(next.ticket() - 1);
        assert!(Change::begin(&node).is_none(), "that is the next one's turn");
        drop(next);
        assert!(Change::begin(&node).is_some());
    }
}
