//! What a file of a merge has because it may be moved to another branch while it is open.
//!
//! Whoever changes its content or its attributes below counts as a change that is under way, and only then looks where the file is. Whoever moves
//! it waits until no change is under way, and none begins before the move has ended. Readers wait for nobody: what they read is the same in
//! both places until the move has ended.
//!
//! Open files are noted here, with the lower files that they go through, so that these are exchanged when the file is moved.

use std::sync::{Arc, Weak};

use parking_lot::{Condvar, Mutex};

use super::state::Node;
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
    is_moving: bool,
    /// Whether somebody waits to change it, since it is being moved.
    is_wanted: bool,
}

/// A change that is under way: the file is not moved before this is dropped. Whoever has one must not wait for another one of the same file.
/// Nor must a queue's thread wait for one: the change that a move waits for may be a request of that queue.
#[derive(Debug)]
pub(crate) struct Change(Option<Arc<Node>>);

/// The right to move a file: nobody changes it before this is dropped.
#[derive(Debug)]
pub(crate) struct Move<'m>(&'m Mobile);

impl Change {
    /// Begins to change a file; `None` while it is being moved. What cannot be moved is not counted.
    pub(crate) fn begin(node: &Arc<Node>) -> Option<Self> {
        let Some(mobile) = node.mobile() else { return Some(Self(None)) };
        let mut turn = mobile.turn.lock();
        if turn.is_moving {
            turn.is_wanted = true;
            return None;
        }
        turn.changes += 1;
        Some(Self(Some(Arc::clone(node))))
    }

    /// The same, after a move that is under way: that may take as long as the file is large.
    pub(crate) fn wait(node: &Arc<Node>) -> Self {
        loop {
            if let Some(change) = Self::begin(node) {
                return change;
            }
            if let Some(mobile) = node.mobile() {
                mobile.wait_for_move();
            }
        }
    }

    /// The change of what is no file that can be moved.
    pub(crate) const NONE: Self = Self(None);
}

impl Drop for Change {
    fn drop(&mut self) {
        let Some(mobile) = self.0.as_ref().and_then(|node| node.mobile()) else { return };
        let mut turn = mobile.turn.lock();
        turn.changes -= 1;
        if turn.changes == 0 && turn.is_moving {
            mobile.ended.notify_all();
        }
    }
}

impl Mobile {
    /// Waits for changes that are under way, and keeps others from beginning. `None` where somebody else was moving the file, and has ended: it
    /// may be elsewhere.
    pub(crate) fn begin_move(&self) -> Option<Move<'_>> {
        let mut turn = self.turn.lock();
        if turn.is_moving {
            while turn.is_moving {
                self.ended.wait(&mut turn);
            }
            return None;
        }
        (turn.is_moving, turn.is_wanted) = (true, false);
        while turn.changes > 0 {
            self.ended.wait(&mut turn);
        }
        Some(Move(self))
    }

    /// Whether it is being moved.
    pub(crate) fn is_moving(&self) -> bool {
        self.turn.lock().is_moving
    }

    /// Whether somebody waits for the end of the move to change it.
    pub(crate) fn is_wanted(&self) -> bool {
        self.turn.lock().is_wanted
    }

    fn wait_for_move(&self) {
        let mut turn = self.turn.lock();
        while turn.is_moving {
            self.ended.wait(&mut turn);
        }
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

impl Drop for Move<'_> {
    fn drop(&mut self) {
        self.0.turn.lock().is_moving = false;
        self.0.ended.notify_all();
    }
}

#[cfg(test)]
mod test {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::branch::MountIndex;
    use crate::node::Identity;
    use crate::view::View;
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
        let (first, second) = (Change::begin(&node).unwrap(), Change::wait(&node));
        let has_begun = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let mover = scope.spawn(|| {
                let moving = node.mobile().unwrap().begin_move();
                has_begun.store(true, Ordering::SeqCst);
                moving.is_some()
            });
            while !node.mobile().unwrap().is_moving() {
                std::thread::yield_now();
            }
            assert!(!node.mobile().unwrap().is_wanted());
            assert!(Change::begin(&node).is_none(), "it is to be moved");
            assert!(node.mobile().unwrap().is_wanted());
            drop(first);
            assert!(!has_begun.load(Ordering::SeqCst), "one change is under way still");
            drop(second);
            assert!(mover.join().unwrap());
        });
        let moving = node.mobile().unwrap().begin_move().unwrap();
        assert!(!node.mobile().unwrap().is_wanted(), "that was another move");
        std::thread::scope(|scope| {
            let other = scope.spawn(|| drop(node.mobile().unwrap().begin_move()));
            let changes = scope.spawn(|| drop(Change::wait(&node)));
            drop(moving);
            changes.join().unwrap();
            other.join().unwrap();
        });
        assert!(!node.mobile().unwrap().is_moving());
    }
}
