//! The nodes that the kernel knows, by identity and by id.
//!
//! Lock order: an identity shard, then an id shard. A lookup raises a node's count while it holds the identity
//! shard; a forget that brings the count to zero takes the same shard, looks again, and removes the node from
//! both maps. So a node is never removed under a lookup that found it, and there are never two nodes of one
//! view of one identity in the table. A node that left the table may live on in its open files.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockWriteGuard};
use shuntfs::takeover::{LeftNode, LeftNodes, NodePlace, NotTaken};
use shuntfs::{Generation, LookupCount, NodeId};

use crate::keeping::{self, Keeping};
use crate::lasting::Lasting;
use crate::node::{Identity, Marks, Node, Place, mix};
use crate::owed::{Debt, Owed};
use crate::view::View;

/// Enough that queues seldom meet; each shard costs two locks.
const SHARDS: usize = 64;

/// A map is given back memory when it holds fewer than one in this many of what it has room for.
const SHRINK_BELOW: usize = 8;
/// But small maps are let be.
const SHRINK_FROM: usize = 1024;

/// Freed memory is given back to the system each time that so many nodes went, and when the last one goes after at
/// least [`TRIM_AT_END`]: the allocator would keep it.
const TRIM_EVERY: usize = 200_000;
const TRIM_AT_END: usize = 10_000;

/// Nodes of predecessors that a thread reads at a time.
const BATCH: usize = 1024;
/// Threads that read them, at most, and how many nodes each must have to be worth its start.
const READERS_MAX: usize = 8;
const NODES_PER_READER: usize = 20_000;

/// A node that a predecessor knew.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) node: Node,
    pub(crate) lookups: LookupCount,
    pub(crate) place: NodePlace,
}

impl Known {
    fn into_node(self) -> Node {
        let Self { mut node, lookups, place } = self;
        *node.kept.get_mut() = Some(place);
        *node.lookups.get_mut() = lookups.0;
        node
    }
}

/// Nodes of predecessors with their hashes, by the shards that they are for: a thread that fills a shard stays within memory that its CPU has at hand.
struct Piles {
    by_identity: Vec<Pile>,
    by_id: Vec<Pile>,
}

type Nodes = HashTable<Arc<Node>>;
type Pile = Vec<(u64, Arc<Node>)>;

impl Piles {
    /// With room for so many nodes, spread as evenly as they are.
    fn new(count: usize) -> Self {
        let piles = || (0..SHARDS).map(|_| Pile::with_capacity(room_of_shard(count))).collect();
        Self { by_identity: piles(), by_id: piles() }
    }

    fn add(&mut self, node: Node) {
        let (hash, id_hash, node) = (node.key().hash(), mix(node.id.get()), Arc::new(node));
        self.by_id[shard(id_hash)].push((id_hash, Arc::clone(&node)));
        self.by_identity[shard(hash)].push((hash, node));
    }
}

/// Every node but the root is here while its lookup count is above zero.
#[derive(Debug)]
pub(crate) struct Table {
    by_identity: Box<[Mutex<Nodes>]>,
    by_id: Box<[RwLock<Nodes>]>,
    next: AtomicU64,
    /// Nodes in the table.
    count: AtomicUsize,
    /// Nodes that went since memory was given back.
    gone: AtomicUsize,
    /// Forgets of more lookups than there were: the kernel's defect or ours.
    overdrawn: AtomicU64,
    /// Where nodes are written down for the next server, if there may be one.
    keeping: OnceLock<Keeping>,
    /// Of files that were moved to another branch, and whose numbers last: their generations, which do not follow from where they are.
    generations: RwLock<HashMap<NodeId, Generation>>,
    /// Lookups of nodes of predecessors that lead nowhere, and whose numbers may come again.
    owed: Owed,
}

/// A note of a file that is being moved.
#[derive(Debug)]
pub(crate) struct Noted<'t> {
    keeping: &'t Keeping,
    noted: Option<NodePlace>,
}

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        self.noted.take().into_iter().for_each(|noted| self.keeping.has_moved(noted));
    }
}

impl Table {
    /// An empty table; ids start after the root's.
    pub(crate) fn new() -> Self {
        Self {
            by_identity: (0..SHARDS).map(|_| Mutex::default()).collect(),
            by_id: (0..SHARDS).map(|_| RwLock::default()).collect(),
            next: AtomicU64::new(NodeId::ROOT.get() + 1),
            count: AtomicUsize::new(0),
            gone: AtomicUsize::new(0),
            overdrawn: AtomicU64::new(0),
            keeping: OnceLock::new(),
            generations: RwLock::default(),
            owed: Owed::default(),
        }
    }

    /// A mapping that stores into the lower file of a node may be made from now on, and outlive its opens and this server.
    pub(crate) fn note_mapped_below(&self, node: &Node) {
        if node.has(Marks::MAPPED_BELOW) {
            return;
        }
        node.mark(Marks::MAPPED_BELOW);
        if let Some(keeping) = self.keeping.get() {
            keeping.mark(node, keeping::MAPPED_BELOW);
        }
    }

    /// Nodes are written down from now on; numbers begin at `next`.
    ///
    /// # Errors
    /// They are already.
    pub(crate) fn keep(&self, keeping: Keeping, next: u64) -> Result<(), &'static str> {
        self.next.fetch_max(next, Ordering::Relaxed);
        self.keeping.set(keeping).map_err(|_| "nodes are written down already")
    }

    /// Knows the nodes of predecessors as before. `read` makes a node of what is left of it, or says that it is useless. Of two of one inode the one that
    /// was made first is retired, if one of them may be. Several threads do that if there are many, because callers wait for it.
    ///
    /// # Errors
    /// Those of `left`, of `read`, and of [`Table::take`].
    pub(crate) fn take_all(
        &self,
        left: LeftNodes,
        may_retire: bool,
        read: impl Fn(LeftNode) -> Result<Option<Known>, &'static str> + Sync,
    ) -> Result<(), NotTaken> {
        let (count, threads) = (left.len(), threads_for(left.len()));
        let left = Mutex::new(left);
        let all: Vec<Mutex<Vec<[Pile; 2]>>> = (0..SHARDS).map(|_| Mutex::default()).collect();
        in_threads(threads, || {
            let next = || left.lock().take_next(BATCH);
            let mut own = Piles::new(count / threads);
            for left in std::iter::repeat_with(next).take_while(|batch| !batch.is_empty()).flatten() {
                read(left?)?.into_iter().for_each(|known| own.add(known.into_node()));
            }
            let own = own.by_identity.into_iter().zip(own.by_id);
            all.iter()
                .zip(own)
                .for_each(|(shard, (by_identity, by_id))| shard.lock().push([by_identity, by_id]));
            Ok(())
        })?;
        let next = AtomicUsize::new(0);
        in_threads(threads, || {
            let next = || next.fetch_add(1, Ordering::Relaxed);
            for shard in std::iter::repeat_with(next).take_while(|shard| *shard < SHARDS) {
                let (mut nodes, mut ids) = self.with_room(shard, count);
                for [by_identity, by_id] in std::mem::take(&mut *all[shard].lock()) {
                    let mut pile = by_identity.into_iter();
                    pile.try_for_each(|(hash, node)| has_identity(&mut nodes, hash, node, may_retire))?;
                    by_id.into_iter().try_for_each(|(hash, node)| self.has_id(&mut ids, hash, node))?;
                }
            }
            Ok(())
        })
    }

    /// The maps of a shard with room for its share of so many nodes more, so that they do not grow while these come: that would hash all of them again.
    fn with_room(&self, shard: usize, count: usize) -> (MutexGuard<'_, Nodes>, RwLockWriteGuard<'_, Nodes>) {
        let (mut nodes, mut ids) = (self.by_identity[shard].lock(), self.by_id[shard].write());
        nodes.reserve(room_of_shard(count), |node| node.key().hash());
        ids.reserve(room_of_shard(count), |node| mix(node.id.get()));
        (nodes, ids)
    }

    /// Knows a node of a predecessor as before.
    ///
    /// # Errors
    /// It is known already, or is the root.
    pub(crate) fn take(&self, known: Known, may_retire: bool) -> Result<(), &'static str> {
        let node = Arc::new(known.into_node());
        let (hash, id_hash) = (node.key().hash(), mix(node.id.get()));
        has_identity(&mut self.by_identity[shard(hash)].lock(), hash, Arc::clone(&node), may_retire)?;
        self.has_id(&mut self.by_id[shard(id_hash)].write(), id_hash, node)
    }

    /// A node of a predecessor has its number.
    fn has_id(&self, ids: &mut Nodes, hash: u64, node: Arc<Node>) -> Result<(), &'static str> {
        if node.id == NodeId::ROOT || ids.find(hash, |held| held.id == node.id).is_some() {
            return Err(IS_THERE);
        }
        ids.insert_unique(hash, node, |node| mix(node.id.get()));
        self.count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Whether there may be another server after this one.
    pub(crate) fn is_kept(&self) -> bool {
        self.keeping.get().is_some()
    }

    /// Whether a node of this inode must keep its descriptor, because another server would not find it without.
    pub(crate) fn must_hold(&self, inode: &Identity) -> bool {
        self.is_kept() && !keeping::is_in_words(inode)
    }

    /// A file is about to be moved to another branch, where its inode is this one ([`Keeping::moves`]): noted until what is returned is dropped.
    pub(crate) fn moves(&self, node: &Node, to: &Identity) -> Option<Noted<'_>> {
        let keeping = self.keeping.get()?;
        keeping.moves(node, to).map(|noted| Noted { keeping, noted: Some(noted) })
    }

    /// A folder is found by another name from now on.
    pub(crate) fn renamed(&self, node: &Node) {
        if let Some(keeping) = self.keeping.get() {
            keeping.keep_anew(node, None);
        }
    }

    /// The generation of a file's number that lasts, if the file was moved to another branch since it has that.
    pub(crate) fn generation_of(&self, id: NodeId) -> Option<Generation> {
        self.generations.read().get(&id).copied()
    }

    /// The same, as a predecessor has written it down.
    pub(crate) fn has_generation(&self, id: NodeId, generation: Generation) {
        self.generations.write().insert(id, generation);
    }

    /// The node with this id.
    pub(crate) fn find(&self, id: NodeId) -> Option<Arc<Node>> {
        let hash = mix(id.get());
        self.by_id[shard(hash)].read().find(hash, |node| node.id == id).cloned()
    }

    /// The node of this view of this identity, its lookup count raised by one; made where there is none, with the number `wish`
    /// if no other node has it. The flag says whether it was made.
    pub(crate) fn obtain(
        &self,
        identity: Identity,
        view: View,
        wish: Option<NodeId>,
        make: impl FnOnce(NodeId, Identity) -> Node,
    ) -> (Arc<Node>, bool) {
        let hash = identity.hash();
        let mut nodes = self.by_identity[shard(hash)].lock();
        if let Some(node) = nodes.find(hash, |node| node.view == view && *node.key() == identity) {
            node.lookups.fetch_add(1, Ordering::Relaxed);
            if let Some(keeping) = self.keeping.get() {
                if node.has(Marks::LEFT) {
                    node.unmark(Marks::LEFT);
                }
                keeping.raise(node);
            }
            return (Arc::clone(node), false);
        }
        let mut id = wish.unwrap_or_else(|| self.next_id());
        let mut ids = loop {
            let ids = self.by_id[shard(mix(id.get()))].write();
            if ids.find(mix(id.get()), |node| node.id == id).is_none() {
                break ids;
            }
            id = self.next_id();
        };
        let mut node = make(id, identity);
        *node.lookups.get_mut() = 1;
        if let Some(keeping) = self.keeping.get() {
            match self.owed.take(id) {
                Some(Debt { lookups, place }) => {
                    *node.lookups.get_mut() += lookups.0;
                    keeping.keep_owed(&node, place);
                }
                None => keeping.keep(&mut node),
            }
        }
        let node = Arc::new(node);
        nodes.insert_unique(hash, Arc::clone(&node), |node| node.key().hash());
        ids.insert_unique(mix(id.get()), Arc::clone(&node), |node| mix(node.id.get()));
        self.count.fetch_add(1, Ordering::Relaxed);
        (node, true)
    }

    /// A number that no node ever had. Those that are requested begin at 2^63.
    fn next_id(&self) -> NodeId {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        NodeId::new(number).expect("2^63 nodes are never made")
    }

    /// The nodes of this identity that the kernel knows, one for each view; their counts stay.
    pub(crate) fn peek(&self, identity: &Identity) -> Vec<Arc<Node>> {
        let hash = identity.hash();
        let nodes = self.by_identity[shard(hash)].lock();
        nodes.iter_hash(hash).filter(|node| node.key() == identity).cloned().collect()
    }

    /// Takes back lookups; at zero the node leaves the table and is returned.
    pub(crate) fn forget(&self, id: NodeId, count: LookupCount) -> Option<Arc<Node>> {
        let node = match self.find(id) {
            Some(node) => node,
            None => self.forget_owed(id, count)?,
        };
        let before = node
            .lookups
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| Some(held.saturating_sub(count.0)))
            .expect("the closure always has a new value");
        if let Some(keeping) = self.keeping.get() {
            keeping.lower(&node, count);
        }
        if before < count.0 {
            self.overdrawn.fetch_add(1, Ordering::Relaxed);
            tracing::error!(node = id.get(), before, forgotten = count.0, "more lookups forgotten than made");
        }
        if before > count.0 {
            return None;
        }
        if !self.remove(&node, || node.lookups.load(Ordering::Relaxed) == 0) {
            return None;
        }
        self.one_went();
        Some(node)
    }

    /// A node of a predecessor leads nowhere any more, and the kernel has not given back so many lookups of it. Its number may come again.
    pub(crate) fn owes(&self, id: NodeId, lookups: LookupCount, place: NodePlace) {
        self.owed.add(id, Debt { lookups, place });
    }

    /// Takes back lookups of a node that leads nowhere. What has its number by now, if that came meanwhile: they are that one's.
    fn forget_owed(&self, id: NodeId, count: LookupCount) -> Option<Arc<Node>> {
        let keeping = self.keeping.get().filter(|_| self.owed.may_have())?;
        let hash = mix(id.get());
        // No node gets the number meanwhile.
        let ids = self.by_id[shard(hash)].read();
        let node = ids.find(hash, |node| node.id == id).cloned();
        if node.is_none() {
            let over = self.owed.lower(id, count, |place| keeping.lower_left(place, count));
            over.into_iter().for_each(|place| keeping.drop_left(place));
        }
        node
    }

    /// A node that a predecessor knew leaves the table, because the kernel does not know it. Not if it was looked up since, or is open.
    pub(crate) fn drop_left(&self, node: &Arc<Node>) -> bool {
        let is_gone = self.remove(node, || node.has(Marks::LEFT) && node.opens() == 0);
        if is_gone {
            self.one_went();
        }
        is_gone
    }

    /// The nodes that a predecessor knew and the kernel may have forgotten, once.
    pub(crate) fn take_left(&self) -> Vec<NodeId> {
        self.keeping.get().map(Keeping::take_left).unwrap_or_default()
    }

    /// What is written down of a node leads nowhere from now on.
    pub(crate) fn keep_no_more(&self, node: &Node) {
        if let Some(keeping) = self.keeping.get() {
            keeping.let_go(node);
        }
    }

    /// Counts a node that left, and gives memory back where much was freed.
    fn one_went(&self) {
        let gone = self.gone.fetch_add(1, Ordering::Relaxed) + 1;
        let last = self.count.fetch_sub(1, Ordering::Relaxed) == 1;
        if gone == TRIM_EVERY || last && gone >= TRIM_AT_END {
            self.gone.store(0, Ordering::Relaxed);
            shuntfs_sys::memory::give_back_freed();
        }
    }

    /// The hash of a node's identity, and its shard.
    fn shard_of(&self, node: &Node) -> (u64, MutexGuard<'_, Nodes>) {
        loop {
            let hash = node.key().hash();
            let nodes = self.by_identity[shard(hash)].lock();
            // It may have come to be another inode's meanwhile, which whoever has the shard's lock keeps from happening.
            if node.key().hash() == hash {
                return (hash, nodes);
            }
        }
    }

    /// Removes a node if it may go, while no lookup can find it.
    fn remove(&self, node: &Arc<Node>, may_go: impl FnOnce() -> bool) -> bool {
        let (hash, mut nodes) = self.shard_of(node);
        if !may_go() {
            return false;
        }
        // One that was retired does not exist.
        if let Ok(place) = nodes.find_entry(hash, |held| Arc::ptr_eq(held, node)) {
            let _ = place.remove();
            give_back(&mut nodes, |node| node.key().hash());
        }
        let id_hash = mix(node.id.get());
        let mut ids = self.by_id[shard(id_hash)].write();
        // Two forgets may both see zero, when a lookup came between them; the second finds nothing.
        let Ok(place) = ids.find_entry(id_hash, |held| Arc::ptr_eq(held, node)) else { return false };
        let _ = place.remove();
        if let Some(keeping) = self.keeping.get() {
            keeping.let_go(node);
        }
        if Lasting::lasts(node.id) && !self.generations.read().is_empty() {
            self.generations.write().remove(&node.id);
        }
        give_back(&mut ids, |node| mix(node.id.get()));
        true
    }

    /// All nodes that the kernel knows, but the root.
    pub(crate) fn all(&self) -> Vec<Arc<Node>> {
        self.by_id.iter().flat_map(|nodes| nodes.read().iter().cloned().collect::<Vec<_>>()).collect()
    }

    /// Has the next lookup of this identity make another node; whoever uses this one goes on with it.
    pub(crate) fn retire(&self, node: &Arc<Node>) {
        let (hash, mut nodes) = self.shard_of(node);
        if let Ok(place) = nodes.find_entry(hash, |held| Arc::ptr_eq(held, node)) {
            let _ = place.remove();
        }
    }

    /// A file was moved to another branch: its node is that of the inode there from now on. A node that a lookup has made of that inode
    /// meanwhile is retired; whoever looked up finds out, and looks again.
    /// If its number lasts, `generation` is that of the number, which stays.
    pub(crate) fn rebind(&self, node: &Arc<Node>, there: Place, generation: Option<Generation>) {
        if let Some(generation) = generation {
            self.has_generation(node.id, generation);
        }
        loop {
            let (old, new) = (node.key().hash(), there.inode().hash());
            // In this order, so that two of them do not wait for each other.
            let (low, high) = (shard(old).min(shard(new)), shard(old).max(shard(new)));
            let mut first = self.by_identity[low].lock();
            let mut second = (low != high).then(|| self.by_identity[high].lock());
            if node.key().hash() != old {
                continue;
            }
            let mut take = |hash: u64, is_meant: &dyn Fn(&Arc<Node>) -> bool| {
                let nodes = second.as_deref_mut().filter(|_| shard(hash) == high).unwrap_or(&mut *first);
                nodes.find_entry(hash, |held| is_meant(held)).is_ok_and(|place| {
                    let _ = place.remove();
                    true
                })
            };
            // One that was forgotten, or retired, does not exist.
            let was_there = take(old, &|held| Arc::ptr_eq(held, node));
            while take(new, &|held| held.key() == there.inode() && held.view == node.view) {}
            node.moved(there);
            if let Some(keeping) = self.keeping.get() {
                keeping.keep_anew(node, generation);
            }
            if was_there {
                let nodes = second.as_deref_mut().filter(|_| shard(new) == high).unwrap_or(&mut *first);
                nodes.insert_unique(new, Arc::clone(node), |node| node.key().hash());
            }
            return;
        }
    }

    /// How many nodes there are.
    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// How many forgets took back more than was given.
    pub(crate) fn overdrawn(&self) -> u64 {
        self.overdrawn.load(Ordering::Relaxed)
    }
}

const IS_THERE: &str = "a node is there twice";

/// A node of a predecessor is the one of its inode.
fn has_identity(nodes: &mut Nodes, hash: u64, node: Arc<Node>, may_retire: bool) -> Result<(), &'static str> {
    match nodes.entry(
        hash,
        |held| held.view == node.view && held.key() == node.key(),
        |node| node.key().hash(),
    ) {
        Entry::Vacant(room) => drop(room.insert(node)),
        Entry::Occupied(_) if !may_retire => return Err(IS_THERE),
        // Numbers rise from server to server, and in each of them.
        Entry::Occupied(mut other) if other.get().id < node.id => *other.get_mut() = node,
        Entry::Occupied(_) => {}
    }
    Ok(())
}

/// Has so many threads do a work, this one among them. One that cannot be started leaves its share to the others.
fn in_threads(threads: usize, work: impl Fn() -> Result<(), NotTaken> + Sync) -> Result<(), NotTaken> {
    std::thread::scope(|scope| {
        let start = |_| std::thread::Builder::new().spawn_scoped(scope, &work).ok();
        let others: Vec<_> = (1..threads).filter_map(start).collect();
        let own = work();
        others.into_iter().map(|other| other.join().expect("nothing in it panics")).fold(own, Result::and)
    })
}

fn give_back(nodes: &mut Nodes, hash: impl Fn(&Arc<Node>) -> u64) {
    if nodes.capacity() >= SHRINK_FROM && nodes.len() < nodes.capacity() / SHRINK_BELOW {
        let room = nodes.len() * 2;
        nodes.shrink_to(room, hash);
    }
}

fn threads_for(nodes: usize) -> usize {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    cpus.min(READERS_MAX).min(1 + nodes / NODES_PER_READER)
}

/// How much room a shard needs if so many entries are spread over all of them: its share and, because they spread unevenly, some more.
fn room_of_shard(count: usize) -> usize {
    let share = count / SHARDS;
    share + 4 * share.isqrt() + 8
}

/// The map inside a shard uses the low and the top bits of the hash, so the shard takes some of the middle.
fn shard(hash: u64) -> usize {
    usize::try_from((hash >> 40) & 63).expect("six bits fit")
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::branch::MountIndex;
    use crate::view::Views;
    use shuntfs_rules::Redact;
    use shuntfs_sys::Stat;
    use std::sync::atomic::AtomicBool;

    fn identity(ino: u64) -> Identity {
        Identity::new(&Stat { ino, ..Stat::default() }, MountIndex::own(0), None)
    }

    fn obtain(table: &Table, ino: u64) -> Arc<Node> {
        obtain_view(table, ino, View::WHOLE)
    }

    fn obtain_view(table: &Table, ino: u64, view: View) -> Arc<Node> {
        table.obtain(identity(ino), view, None, |id, identity| Node::new(id, identity, view, 0)).0
    }

    #[test]
    fn a_retired_node_stays_until_it_is_forgotten_and_others_come_after_it() {
        let table = Table::new();
        let first = obtain(&table, 7);
        table.retire(&first);
        table.retire(&first);
        let second = obtain(&table, 7);
        assert_ne!(first.id, second.id);
        assert!(table.find(first.id).is_some() && table.find(second.id).is_some());
        assert_eq!((table.len(), table.all().len()), (2, 2));
        assert!(table.forget(first.id, LookupCount(1)).is_some());
        assert!(table.forget(first.id, LookupCount(1)).is_none());
        assert!(Arc::ptr_eq(&second, &obtain(&table, 7)));
        assert!(table.forget(second.id, LookupCount(2)).is_some());
        assert_eq!((table.len(), table.overdrawn()), (0, 0));
    }

    /// Whoever looked the new inode up while the file was moved there has made a node of it, and gives it back.
    #[test]
    fn a_node_that_was_moved_is_found_where_it_is() {
        for ino in [8, 9, 10, 11] {
            let table = Table::new();
            let (node, other) = (obtain(&table, 7), obtain(&table, ino));
            table.rebind(&node, Place::new(identity(ino)), None);
            assert!(Arc::ptr_eq(&node, &obtain(&table, ino)), "{ino}");
            assert!(table.peek(&identity(7)).is_empty());
            assert_eq!((node.moves(), node.key().ino), (1, ino));
            assert!(table.forget(other.id, LookupCount(1)).is_some());
            assert!(Arc::ptr_eq(&node, &table.find(node.id).unwrap()));
            // And back.
            table.rebind(&node, Place::new(identity(7)), None);
            assert!(Arc::ptr_eq(&node, &obtain(&table, 7)));
            assert!(table.forget(node.id, LookupCount(3)).is_some());
            assert_eq!((table.len(), table.overdrawn()), (0, 0));
            // It lives on in its open files.
            table.rebind(&node, Place::new(identity(ino)), None);
            assert!(table.peek(&identity(ino)).is_empty());
        }
    }

    #[test]
    fn an_identity_has_one_node_until_it_is_forgotten() {
        let table = Table::new();
        let first = obtain(&table, 7);
        assert!(first.id.get() > NodeId::ROOT.get());
        assert!(Arc::ptr_eq(&first, &obtain(&table, 7)));
        assert_eq!(table.len(), 1);
        assert!(table.forget(first.id, LookupCount(1)).is_none());
        assert!(table.find(first.id).is_some());
        assert!(table.forget(first.id, LookupCount(1)).is_some());
        assert!(table.find(first.id).is_none());
        assert!(table.peek(&identity(7)).is_empty());
        assert!(obtain(&table, 7).id > first.id, "ids are never used again");
    }

    #[test]
    fn the_mount_the_device_and_the_inode_tell_nodes_apart() {
        let table = Table::new();
        let base = identity(7);
        let others = [
            Identity { ino: 8, ..base.clone() },
            Identity { device: 1, ..base.clone() },
            Identity { mount: MountIndex::other(1), ..base.clone() },
        ];
        let first = obtain(&table, 7);
        for other in others {
            let make = |id, identity| Node::new(id, identity, View::WHOLE, 0);
            let (node, made) = table.obtain(other, View::WHOLE, None, make);
            assert!(made);
            assert_ne!(node.id, first.id);
        }
    }

    #[test]
    fn a_wish_is_granted_unless_another_has_the_number() {
        let table = Table::new();
        let wished = NodeId::new(1 << 63 | 5).unwrap();
        let obtain = |ino| {
            let make = |id, identity| Node::new(id, identity, View::WHOLE, 0);
            table.obtain(identity(ino), View::WHOLE, Some(wished), make).0
        };
        let (first, second) = (obtain(7), obtain(8));
        assert_eq!((first.id, obtain(7).id), (wished, wished));
        assert!(second.id != wished && Arc::ptr_eq(&second, &table.find(second.id).unwrap()));
        assert!(table.forget(wished, LookupCount(2)).is_some());
        assert_eq!(obtain(8).id, second.id, "a node keeps its number");
        assert_eq!(obtain(9).id, wished);
        assert_eq!((table.len(), table.overdrawn()), (2, 0));
    }

    #[test]
    fn each_view_has_a_node_and_an_identity_knows_them_all() {
        let table = Table::new();
        let partial = Views::default().of(&[Redact::Whole]);
        let (whole, hidden) = (obtain(&table, 7), obtain_view(&table, 7, partial));
        assert_ne!(whole.id, hidden.id);
        assert!(Arc::ptr_eq(&hidden, &obtain_view(&table, 7, partial)));
        assert_eq!(table.peek(&identity(7)).len(), 2);
        table.forget(hidden.id, LookupCount(2));
        let left = table.peek(&identity(7));
        assert!(left.len() == 1 && Arc::ptr_eq(&left[0], &whole));
    }

    #[test]
    fn forgetting_too_much_is_counted_and_survived() {
        let table = Table::new();
        let node = obtain(&table, 1);
        assert!(table.forget(node.id, LookupCount(5)).is_some());
        assert_eq!(table.overdrawn(), 1);
        assert!(table.forget(node.id, LookupCount(1)).is_none(), "unknown ids are ignored");
    }

    #[test]
    fn lookups_and_forgets_race_without_losing_a_node() {
        let table = Arc::new(Table::new());
        let stop = Arc::new(AtomicBool::new(false));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (table, stop) = (Arc::clone(&table), Arc::clone(&stop));
                std::thread::spawn(move || {
                    let mut rounds = 0_u64;
                    while !stop.load(Ordering::Relaxed) || rounds < 1000 {
                        let node = obtain(&table, rounds % 3);
                        let found = table.find(node.id).expect("a node that was looked up is there");
                        assert!(Arc::ptr_eq(&node, &found));
                        table.forget(node.id, LookupCount(1));
                        rounds += 1;
                    }
                })
            })
            .collect();
        std::thread::sleep(std::time::Duration::from_millis(200));
        stop.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().expect("no assertion failed");
        }
        assert_eq!(table.len(), 0);
        assert_eq!(table.overdrawn(), 0);
    }

    /// The maps have room before the first node of a predecessor comes, so each is hashed once.
    #[test]
    fn maps_do_not_grow_while_they_take_what_they_made_room_for() {
        for count in [1000_u64, 20_000, 300_000] {
            let table = Table::new();
            let room_for = usize::try_from(count).unwrap();
            (0..SHARDS).for_each(|shard| drop(table.with_room(shard, room_for)));
            let room = |table: &Table| -> Vec<(usize, usize)> {
                let by_identity = table.by_identity.iter().map(|shard| shard.lock().capacity());
                by_identity.zip(table.by_id.iter().map(|shard| shard.read().capacity())).collect()
            };
            let before = room(&table);
            (0..count).for_each(|ino| drop(obtain(&table, ino)));
            assert_eq!(room(&table), before, "{count}");
        }
    }

    #[test]
    fn room_is_given_back_after_many_nodes_went() {
        let table = Table::new();
        let ids: Vec<_> = (0..300_000).map(|ino| obtain(&table, ino).id).collect();
        let room =
            |table: &Table| table.by_identity.iter().map(|shard| shard.lock().capacity()).sum::<usize>();
        let full = room(&table);
        assert!(full >= 300_000);
        for id in ids {
            table.forget(id, LookupCount(1));
        }
        assert!(room(&table) < full / 4, "{} of {full}", room(&table));
    }
}
