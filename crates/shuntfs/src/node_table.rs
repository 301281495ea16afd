//! The nodes that the kernel knows, and how often it has looked each of them up.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use shuntfs_wire::{Errno, LookupCount, NodeId, Result};

/// A table of nodes: each has a number, a key by which the file system finds it (a path, an inode number, a row of a database) and
/// a value, and stays for as long as the kernel holds a lookup of it. Shared by all queues.
///
/// Numbers are given in order and never again, so a handle of a node that was forgotten leads nowhere; a file system whose nodes
/// have lasting numbers of their own brings them in by [`NodeTable::enter_as`].
///
/// ```
/// use shuntfs::{Errno, LookupCount, NodeId, NodeTable};
///
/// let nodes = NodeTable::new("/", 0);
/// let (node, size) = nodes.enter("/file", || 5)?;
/// assert_eq!((node.get(), *size, *nodes.get(node)?), (2, 5, 5));
/// assert_eq!(nodes.enter("/file", || 7)?.0, node, "the kernel has looked it up twice");
/// nodes.forget(node, LookupCount(2));
/// assert_eq!(nodes.get(node), Err(Errno::STALE));
/// # Ok::<(), Errno>(())
/// ```
#[derive(Debug)]
pub struct NodeTable<K, V> {
    inner: Mutex<Inner<K, V>>,
}

#[derive(Debug)]
struct Inner<K, V> {
    by_node: HashMap<NodeId, Held<K, V>>,
    by_key: HashMap<K, NodeId>,
    last: u64,
}

#[derive(Debug)]
struct Held<K, V> {
    /// `None` for a node that has no key any more, but that the kernel still knows.
    key: Option<K>,
    value: Arc<V>,
    lookups: u64,
}

impl<K: Clone + Eq + Hash, V> NodeTable<K, V> {
    /// A table of the root alone, which is never forgotten.
    #[must_use]
    pub fn new(key: K, root: V) -> Self {
        let held = Held { key: Some(key.clone()), value: Arc::new(root), lookups: 1 };
        let by_node = HashMap::from([(NodeId::ROOT, held)]);
        let inner = Inner { by_node, by_key: HashMap::from([(key, NodeId::ROOT)]), last: NodeId::ROOT.get() };
        Self { inner: Mutex::new(inner) }
    }

    /// The value of a node.
    ///
    /// # Errors
    /// ESTALE for one that is not known.
    pub fn get(&self, node: NodeId) -> Result<Arc<V>> {
        self.inner.lock().by_node.get(&node).map(|held| Arc::clone(&held.value)).ok_or(Errno::STALE)
    }

    /// The key of a node.
    ///
    /// # Errors
    /// ESTALE for one that is not known, or that lost its key.
    pub fn key(&self, node: NodeId) -> Result<K> {
        self.inner.lock().by_node.get(&node).and_then(|held| held.key.clone()).ok_or(Errno::STALE)
    }

    /// Goes from a node to the root, by whatever its keys say lies above it: `up` is given each key and names the next node.
    ///
    /// # Errors
    /// ESTALE where a node on the way is not known, or has no key.
    pub fn climb(&self, node: NodeId, mut up: impl FnMut(&K) -> NodeId) -> Result<()> {
        let inner = self.inner.lock();
        let mut at = node;
        while at != NodeId::ROOT {
            let key = inner.by_node.get(&at).and_then(|held| held.key.as_ref()).ok_or(Errno::STALE)?;
            at = up(key);
        }
        Ok(())
    }

    /// The node of a key, where the kernel knows it. Its lookup count stays.
    pub fn find(&self, key: &K) -> Option<NodeId> {
        self.inner.lock().by_key.get(key).copied()
    }

    /// The node of a key, whose lookup count rises by one: for what answers with an [`crate::Entry`]. `make` makes the value of a
    /// node that is not known yet; it is called with the table locked.
    ///
    /// # Errors
    /// ENFILE where there are no numbers left.
    pub fn enter(&self, key: K, make: impl FnOnce() -> V) -> Result<(NodeId, Arc<V>)> {
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        let node = match inner.by_key.get(&key) {
            Some(node) => *node,
            None => {
                inner.last = inner.last.checked_add(1).ok_or(Errno::NFILE)?;
                NodeId::new(inner.last).ok_or(Errno::NFILE)?
            }
        };
        Ok((node, inner.enter(node, key, make)))
    }

    /// As [`NodeTable::enter`], with the node's own number. Not to be mixed with it in one table.
    pub fn enter_as(&self, node: NodeId, key: K, make: impl FnOnce() -> V) -> Arc<V> {
        self.inner.lock().enter(node, key, make)
    }

    /// The kernel takes lookups back. Gives the value of a node that has none left, which is then forgotten.
    pub fn forget(&self, node: NodeId, lookups: LookupCount) -> Option<Arc<V>> {
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        let held = inner.by_node.get_mut(&node)?;
        held.lookups = held.lookups.saturating_sub(lookups.0);
        if held.lookups > 0 || node == NodeId::ROOT {
            return None;
        }
        let gone = inner.by_node.remove(&node)?;
        if let Some(key) = gone.key {
            inner.by_key.remove(&key);
        }
        Some(gone.value)
    }

    /// A key goes, and its node, if the kernel knows it, has none from now on: its name was removed.
    pub fn detach(&self, key: &K) {
        self.inner.lock().detach(key);
    }

    /// A node gets another key. The node that had it has none from now on.
    pub fn rename(&self, from: &K, to: K) {
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        if *from == to {
            return;
        }
        inner.detach(&to);
        if let Some(node) = inner.by_key.remove(from) {
            inner.attach(node, to);
        }
    }

    /// Two keys change their nodes.
    pub fn exchange(&self, one: &K, other: &K) {
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        let (first, second) = (inner.by_key.remove(one), inner.by_key.remove(other));
        for (node, key) in [(first, other), (second, one)] {
            if let Some(node) = node {
                inner.attach(node, key.clone());
            }
        }
    }

    /// How many nodes there are, the root among them.
    pub fn count(&self) -> usize {
        self.inner.lock().by_node.len()
    }
}

impl<K: Clone + Eq + Hash, V> Inner<K, V> {
    fn enter(&mut self, node: NodeId, key: K, make: impl FnOnce() -> V) -> Arc<V> {
        if !self.by_node.contains_key(&node) {
            // Another node had the key until now: its name leads elsewhere.
            self.detach(&key);
            self.by_key.insert(key.clone(), node);
        }
        let fresh = || Held { key: Some(key), value: Arc::new(make()), lookups: 0 };
        let held = self.by_node.entry(node).or_insert_with(fresh);
        held.lookups += 1;
        Arc::clone(&held.value)
    }

    fn detach(&mut self, key: &K) {
        if let Some(held) = self.by_key.remove(key).and_then(|node| self.by_node.get_mut(&node)) {
            held.key = None;
        }
    }

    fn attach(&mut self, node: NodeId, key: K) {
        if let Some(held) = self.by_node.get_mut(&node) {
            held.key = Some(key.clone());
            self.by_key.insert(key, node);
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_node_stays_for_as_long_as_it_is_looked_up() {
        let nodes = NodeTable::new(0, "root");
        let (a, _) = nodes.enter(5, || "a").unwrap();
        let (again, value) = nodes.enter(5, || "never made").unwrap();
        assert_eq!((again, *value, nodes.count()), (a, "a", 2));
        assert!(nodes.forget(a, LookupCount(1)).is_none());
        assert_eq!(nodes.forget(a, LookupCount(7)).as_deref(), Some(&"a"), "never below zero");
        assert_eq!((nodes.get(a), nodes.find(&5), nodes.count()), (Err(Errno::STALE), None, 1));
        assert_ne!(nodes.enter(5, || "b").unwrap().0, a, "no number is used twice");
        assert!(nodes.forget(NodeId::ROOT, LookupCount(u64::MAX)).is_none());
        assert_eq!(nodes.get(NodeId::ROOT).as_deref(), Ok(&"root"));
    }

    /// A regression: when the node that had lost its key was forgotten, the other one lost it, too.
    #[test]
    fn a_key_that_leads_elsewhere_is_the_other_nodes() {
        let nodes = NodeTable::new('/', ());
        let id = |number| NodeId::new(number).unwrap();
        nodes.enter_as(id(10), 'a', || ());
        nodes.enter_as(id(11), 'a', || ());
        nodes.forget(id(10), LookupCount(1));
        assert_eq!(nodes.find(&'a'), Some(id(11)));
    }

    #[test]
    fn keys_move_and_go_and_nodes_stay() {
        let nodes = NodeTable::new('/', ());
        let enter = |key| nodes.enter(key, || ()).unwrap().0;
        let (a, b) = (enter('a'), enter('b'));
        nodes.rename(&'a', 'b');
        assert_eq!((nodes.find(&'a'), nodes.find(&'b')), (None, Some(a)));
        assert_eq!((nodes.key(a), nodes.key(b)), (Ok('b'), Err(Errno::STALE)));
        assert!(nodes.get(b).is_ok(), "it may be open");
        assert!(nodes.forget(b, LookupCount(1)).is_some());
        assert_eq!(nodes.find(&'b'), Some(a), "the other node's key stays");
        let c = enter('c');
        nodes.exchange(&'b', &'c');
        assert_eq!((nodes.find(&'b'), nodes.find(&'c')), (Some(c), Some(a)));
        nodes.exchange(&'b', &'x');
        assert_eq!((nodes.find(&'b'), nodes.find(&'x'), nodes.key(c)), (None, Some(c), Ok('x')));
        nodes.rename(&'c', 'c');
        assert_eq!(nodes.find(&'c'), Some(a));
        nodes.detach(&'c');
        assert_ne!(enter('c'), a);
    }

    #[test]
    fn numbers_of_ones_own_come_back() {
        let nodes = NodeTable::new(1, ());
        let own = NodeId::new(77).unwrap();
        nodes.enter_as(own, 77, || ());
        nodes.enter_as(own, 77, || ());
        assert!(nodes.forget(own, LookupCount(2)).is_some());
        nodes.enter_as(own, 77, || ());
        assert_eq!((nodes.find(&77), nodes.count()), (Some(own), 2));
    }

    #[test]
    fn many_threads_count_right() {
        let nodes = NodeTable::new(0, ());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..2000 {
                        let (node, _) = nodes.enter(1 + round % 3, || ()).unwrap();
                        assert!(nodes.get(node).is_ok());
                        nodes.forget(node, LookupCount(1));
                    }
                });
            }
        });
        assert_eq!(nodes.count(), 1);
    }
}
