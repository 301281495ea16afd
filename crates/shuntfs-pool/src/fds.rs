//! Which nodes keep their `O_PATH` descriptor: at most so many, the recently used ones (a clock).
//!
//! The descriptor itself lives in its node; here is only whose turn it is to lose it. Lock order: a clock, then
//! a node's descriptor. Descriptors are closed after both locks are free, because the last reference to an
//! unlinked inode does the work of freeing it.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use shuntfs::LowerFile;

use crate::node::{Marks, Node, mix};

/// Clocks, so that queues seldom meet at one.
const CLOCKS: usize = 16;

/// The bounded cache of descriptors.
#[derive(Debug)]
pub(crate) struct Descriptors {
    clocks: Box<[Mutex<Clock>]>,
}

#[derive(Debug)]
struct Clock {
    slots: Vec<Weak<Node>>,
    hand: usize,
    room: usize,
}

impl Descriptors {
    /// A cache of at most `limit` descriptors (at least 1).
    pub(crate) fn new(limit: usize) -> Self {
        let count = if limit >= 4 * CLOCKS { CLOCKS } else { 1 };
        let room = (limit / count).max(1);
        let clock = || Mutex::new(Clock { slots: Vec::new(), hand: 0, room });
        Self { clocks: (0..count).map(|_| clock()).collect() }
    }

    /// Notes that `node` keeps a descriptor; the one that another lost for it.
    pub(crate) fn admit(&self, node: &Arc<Node>) -> Option<Arc<LowerFile>> {
        let index = usize::try_from(mix(node.id.get()) & 0xffff).expect("16 bits fit") % self.clocks.len();
        self.clocks[index].lock().admit(node)
    }

    /// Gives up every descriptor that is not pinned; how many.
    pub(crate) fn shed(&self) -> usize {
        let mut given_up = Vec::new();
        for clock in &self.clocks {
            let slots = std::mem::take(&mut clock.lock().slots);
            given_up.extend(slots.iter().filter_map(Weak::upgrade).filter_map(|node| node.drop_descriptor()));
        }
        given_up.len()
    }

    /// How many nodes hold a descriptor by this cache.
    pub(crate) fn len(&self) -> usize {
        let holds = |slot: &&Weak<Node>| slot.upgrade().is_some_and(|node| node.has_descriptor());
        self.clocks.iter().map(|clock| clock.lock().slots.iter().filter(holds).count()).sum()
    }
}

impl Clock {
    fn admit(&mut self, node: &Arc<Node>) -> Option<Arc<LowerFile>> {
        let newcomer = Arc::downgrade(node);
        if self.slots.len() < self.room {
            self.slots.push(newcomer);
            return None;
        }
        // After one round every mark is gone, so the second finds a place.
        for _ in 0..=self.slots.len() {
            let hand = self.hand;
            self.hand = (hand + 1) % self.slots.len();
            let Some(held) = self.slots[hand].upgrade() else {
                self.slots[hand] = newcomer;
                return None;
            };
            if !held.has(Marks::PINNED) && held.unmark(Marks::USED) {
                continue;
            }
            self.slots[hand] = newcomer;
            return held.drop_descriptor();
        }
        // Others keep using everything here: then it is whose turn it is.
        let hand = self.hand;
        let loser = std::mem::replace(&mut self.slots[hand], newcomer).upgrade();
        loser.and_then(|node| node.drop_descriptor())
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::branch::MountIndex;
    use crate::node::Identity;
    use crate::view::View;
    use shuntfs::NodeId;
    use shuntfs_sys::Stat;

    fn node(number: u64) -> Arc<Node> {
        let identity = Identity::new(&Stat { ino: number, ..Stat::default() }, MountIndex::own(0), None);
        let node = Arc::new(Node::new(NodeId::new(number).unwrap(), identity, View::WHOLE, 0));
        let fd = shuntfs_sys::open_folder(std::path::Path::new("/")).unwrap();
        node.keep(Arc::new(LowerFile::new(fd)));
        node
    }

    #[test]
    fn the_limit_holds_and_what_is_used_stays() {
        let cache = Descriptors::new(4);
        let hot = node(1);
        drop(cache.admit(&hot));
        let cold: Vec<_> = (2..40)
            .map(|number| {
                assert!(hot.descriptor().is_some(), "the used one is kept at {number}");
                let node = node(number);
                drop(cache.admit(&node));
                node
            })
            .collect();
        assert!(cache.len() <= 4);
        assert_eq!(cold.iter().filter(|node| node.descriptor().is_some()).count(), 3);
    }

    #[test]
    fn pinned_descriptors_outlive_the_clock_and_shedding() {
        let cache = Descriptors::new(2);
        let pinned = node(1);
        drop(cache.admit(&pinned));
        pinned.mark(Marks::PINNED);
        let others: Vec<_> = (2..10).map(node).collect();
        for node in &others {
            drop(cache.admit(node));
        }
        assert!(pinned.descriptor().is_some());
        assert_eq!(cache.shed(), 2);
        assert!(pinned.descriptor().is_some());
        assert!(others.iter().all(|node| node.descriptor().is_none()));
        assert_eq!(cache.len(), 0);
    }

    #[test]
    fn nodes_that_are_gone_leave_their_place() {
        let cache = Descriptors::new(1);
        drop(cache.admit(&node(1)));
        let living = node(2);
        assert!(cache.admit(&living).is_none(), "nothing had to be closed");
        assert!(living.descriptor().is_some());
    }
}
