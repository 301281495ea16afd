//! The seal of a pool: which node of the kernel's is what of the manifest.
//!
//! The root is the manifest's root, and whoever finds a name in a folder that is in the manifest looks there for the same name. A
//! file with several names that is found by one that the manifest does not have is known again by its inode, so that it is sealed
//! by whichever of them.
//!
//! Another seal may take the place of this one ([`SealControl`]). Requests name nodes, and what the new manifest says of a node is
//! known by its name alone: so every node is *unsettled* then, and an open of it, or a look into it, gets ESTALE until its
//! name was looked up again, which is what the kernel does at that error. Where the name leads to a node that held something else by
//! the earlier seal, another node takes its place: open files keep the one that they have, and its pages in the kernel's cache.
//!
//! The kernel keeps the names in a folder, the target of a symlink and the pages of a file, and nobody has checked them where the
//! node was not sealed. So a node that the kernel knows as one that is not sealed never becomes sealed: a sealed name that leads to
//! it gets another node.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;
use shuntfs::takeover::KeptNodes;
use shuntfs::{Errno, NodeId, NotifyError, Result};
use shuntfs_seal::{NodeIndex, NodeKind};
use shuntfs_sys::Stat;
use shuntfs_verified::{SealNote, Seals};

use crate::keeping_seals::{KeptSeals, LeftSeals, SealRecord, tag_of};
use crate::node::{Marks, Node};
use crate::shared::Shared;
use crate::table::Table;

/// Earlier seals that are known, so that nodes from before are known as what they were.
const EARLIER_MAX: usize = 7;
/// Of no seal that is known any more.
const LONG_AGO: u64 = u64::MAX;

/// What of a pool is sealed, and which of it the kernel knows.
#[derive(Debug)]
pub(crate) struct SealedNodes {
    state: RwLock<State>,
    /// Where what nodes are is written down for the next server, if there may be one.
    kept: OnceLock<KeptSeals>,
}

#[derive(Debug)]
struct State {
    seals: Arc<Seals>,
    /// How many seals there were before.
    epoch: u64,
    /// The last of them, where another server may follow.
    earlier: Vec<Arc<Seals>>,
    known: HashMap<NodeId, Known>,
    /// Nodes from before this seal that were not looked up since, and what the kernel has of them.
    unsettled: HashMap<NodeId, Option<Earlier>>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    /// Of this seal.
    epoch: u64,
    index: NodeIndex,
    /// Of a regular file. It stays when another seal is taken: whoever has the file open reads on by the earlier one.
    size: Option<u64>,
}

/// What a node was by the seal that held when it was last looked up.
#[derive(Clone, Debug)]
struct Earlier {
    /// `None` where a server before knew it, and it is not known any more.
    seals: Option<Arc<Seals>>,
    index: NodeIndex,
}

impl Earlier {
    /// Whether what the kernel has of the node is right by the seal that holds now, where the node is `index`, if it is sealed.
    fn is_still(&self, seals: &Seals, index: Option<NodeIndex>, stat: &Stat) -> bool {
        match index {
            Some(index) => {
                let earlier = self.seals.as_ref();
                earlier.is_some_and(|earlier| seals.holds_same(index, earlier, self.index).unwrap_or(false))
            }
            // The pages of a file are of the earlier seal, and what is below is what holds now.
            None => !stat.is_file(),
        }
    }
}

/// What a seal says of a name.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Claim {
    epoch: u64,
    index: Option<NodeIndex>,
}

impl Claim {
    /// Whether the manifest has it.
    pub(crate) fn is_sealed(self) -> bool {
        self.index.is_some()
    }
}

impl SealedNodes {
    pub(crate) fn new(seals: Arc<Seals>) -> Self {
        let state =
            State { seals, epoch: 0, earlier: Vec::new(), known: HashMap::new(), unsettled: HashMap::new() };
        Self { state: RwLock::new(state), kept: OnceLock::new() }
    }

    /// The seal is not the first one: so many were before it, and the last of them are these.
    pub(crate) fn follow(&self, epoch: u64, earlier: Vec<Arc<Seals>>) {
        let mut state = self.state.write();
        (state.epoch, state.earlier) = (epoch, earlier);
    }

    /// Has what nodes are written down, and knows those of predecessors as before.
    pub(crate) fn survive(
        &self,
        nodes: KeptNodes,
        mut left: LeftSeals,
        table: &Table,
    ) -> std::result::Result<(), &'static str> {
        let kept = KeptSeals::new(nodes);
        let mut state = self.state.write();
        for node in table.all() {
            let record = left.remove(&node.id).and_then(|(place, record)| {
                kept.has(node.id, place);
                record
            });
            state.restore(&node, record);
        }
        drop(state);
        // Of nodes that were forgotten.
        left.into_values().for_each(|(place, _)| kept.drop_left(place));
        self.kept.set(kept).map_err(|_| "what is sealed is written down already")
    }

    /// Whether another server may follow this one.
    pub(crate) fn survives(&self) -> bool {
        self.kept.get().is_some()
    }

    /// The number of the seal that holds.
    pub(crate) fn number(&self) -> u64 {
        self.state.read().epoch
    }

    /// The seal of this number, or the one that holds where that is not known any more.
    pub(crate) fn numbered(&self, epoch: u64) -> Arc<Seals> {
        let state = self.state.read();
        Arc::clone(state.numbered(epoch).unwrap_or(&state.seals))
    }

    /// Writes down what a node is by the seal that holds.
    fn write_down(&self, state: &State, node: NodeId, known: Option<Known>) {
        if let Some(kept) = self.kept.get() {
            let (index, size) = known.map_or((None, None), |known| (Some(known.index), known.size));
            kept.keep(node, &SealRecord { epoch: state.epoch, tag: tag_of(&state.seals), index, size });
        }
    }

    /// Marks a node that is not sealed, under the lock: so it is marked before anybody notes that it is.
    fn mark(&self, state: &State, node: &Node) {
        if state.index_of(node.id).is_none() && !node.has(Marks::UNSEALED) {
            node.mark(Marks::UNSEALED);
            self.write_down(state, node.id, None);
        }
    }

    /// The seal, and what of its manifest a node is.
    pub(crate) fn of(&self, node: NodeId) -> (Arc<Seals>, Option<NodeIndex>) {
        let state = self.state.read();
        (Arc::clone(&state.seals), state.index_of(node))
    }

    /// How long a node is by the seal, where it is a sealed file.
    pub(crate) fn size_of(&self, node: NodeId) -> Option<u64> {
        self.state.read().known.get(&node)?.size
    }

    /// What the manifest has at a name.
    pub(crate) fn look(&self, parent: NodeId, name: &[u8]) -> Result<Claim> {
        let (seals, epoch, folder) = {
            let state = self.state.read();
            state.check_settled(parent)?;
            let Some(folder) = state.index_of(parent) else {
                return Ok(Claim { epoch: state.epoch, index: None });
            };
            (Arc::clone(&state.seals), state.epoch, folder)
        };
        seals.look(folder, name).map(|index| Claim { epoch, index })
    }

    /// That it has nothing at a name.
    pub(crate) fn nothing(&self) -> Claim {
        Claim { epoch: self.state.read().epoch, index: None }
    }

    /// Notes of a node that was not found by a name that the kernel will know it.
    pub(crate) fn told(&self, node: &Node) {
        let state = self.state.read();
        self.mark(&state, node);
    }

    /// Notes what a node is that was found by a name. `false` where the kernel knows it as something else: another node is to
    /// take its place.
    pub(crate) fn note(&self, node: &Node, stat: &Stat, claim: Claim) -> Result<bool> {
        let (seals, known, earlier) = {
            let state = self.state.read();
            if state.epoch != claim.epoch {
                return Err(Errno::STALE);
            }
            let known = state.index_of(node.id);
            let unsettled = state.unsettled.get(&node.id);
            let may_have_others = stat.is_file() && stat.nlink > 1;
            let has_nothing_to_note = claim.index.is_none() && (!may_have_others || known.is_some());
            if has_nothing_to_note && unsettled.is_none() {
                self.mark(&state, node);
                return Ok(true);
            }
            (Arc::clone(&state.seals), known, unsettled.cloned().flatten())
        };
        let index = match (claim.index, known) {
            (Some(index), _) => Some(index),
            (None, Some(_)) => None,
            (None, None) if stat.is_file() && stat.nlink > 1 => seals.by_inode(stat),
            (None, None) => None,
        };
        let record = index.map(|index| seals.check_kind(index, stat)).transpose()?;
        if earlier.is_some_and(|earlier| !earlier.is_still(&seals, index, stat)) {
            return Ok(false);
        }
        let mut state = self.state.write();
        if state.epoch != claim.epoch {
            return Err(Errno::STALE);
        }
        let Some(record) = record else {
            let was_unsettled = state.unsettled.remove(&node.id).is_some();
            self.mark(&state, node);
            if was_unsettled && state.index_of(node.id).is_none() {
                self.write_down(&state, node.id, None);
            }
            return Ok(true);
        };
        // What the kernel keeps of it was never checked.
        if state.index_of(node.id).is_none() && node.has(Marks::UNSEALED) {
            return Ok(false);
        }
        state.unsettled.remove(&node.id);
        let size = (record.kind == NodeKind::File).then_some(record.size);
        let known = match state.index_of(node.id) {
            Some(known) => known,
            None => {
                let known = Known { epoch: claim.epoch, index: record.index, size };
                state.known.insert(node.id, known);
                self.write_down(&state, node.id, Some(known));
                record.index
            }
        };
        drop(state);
        seals.check_same(record.index, known).map(|()| true)
    }

    /// What is said of a sealed name that does not exist.
    pub(crate) fn missing(&self, claim: Claim) -> Option<Errno> {
        let index = claim.index?;
        let state = self.state.read();
        if state.epoch != claim.epoch {
            return Some(Errno::STALE);
        }
        let seals = Arc::clone(&state.seals);
        drop(state);
        Some(seals.missing(index))
    }

    /// Refuses a node that was not looked up since the seal was taken.
    pub(crate) fn check_settled(&self, node: NodeId) -> Result<()> {
        self.state.read().check_settled(node)
    }

    /// Whether a node was sealed by an earlier seal, and not looked up since.
    pub(crate) fn was_sealed(&self, node: NodeId) -> bool {
        self.state.read().unsettled.get(&node).is_some_and(Option::is_some)
    }

    /// The kernel has forgotten a node.
    pub(crate) fn forget(&self, node: NodeId) {
        let mut state = self.state.write();
        state.known.remove(&node);
        state.unsettled.remove(&node);
        drop(state);
        if let Some(kept) = self.kept.get() {
            kept.let_go(node);
        }
    }

    pub(crate) fn note_of(&self, node: NodeId) -> Option<SealNote> {
        let (seals, index) = self.of(node);
        seals.note_of(index?)
    }

    /// Takes another seal.
    fn replace(&self, shared: &Shared, seals: Arc<Seals>) {
        let mut state = self.state.write();
        let mut unsettled = mem::take(&mut state.unsettled);
        // Who is noted from now on is noted by the new seal, and who was before is in the table.
        for node in shared.table.all() {
            if let Some(index) = state.index_of(node.id) {
                let earlier = Earlier { seals: Some(Arc::clone(&state.seals)), index };
                unsettled.insert(node.id, Some(earlier));
            } else {
                unsettled.entry(node.id).or_default();
            }
        }
        state.unsettled = unsettled;
        let before = mem::replace(&mut state.seals, seals);
        state.epoch += 1;
        if self.survives() {
            state.earlier.push(before);
            let gone = state.earlier.len().saturating_sub(EARLIER_MAX);
            state.earlier.drain(..gone);
        }
    }
}

impl State {
    fn index_of(&self, node: NodeId) -> Option<NodeIndex> {
        if node == NodeId::ROOT {
            return Some(NodeIndex::ROOT);
        }
        self.known.get(&node).filter(|known| known.epoch == self.epoch).map(|known| known.index)
    }

    fn numbered(&self, epoch: u64) -> Option<&Arc<Seals>> {
        match self.epoch.checked_sub(epoch)? {
            0 => Some(&self.seals),
            back => self.earlier.len().checked_sub(usize::try_from(back).ok()?).map(|at| &self.earlier[at]),
        }
    }

    /// Knows a node as a predecessor did, as far as that was written down.
    fn restore(&mut self, node: &Node, record: Option<SealRecord>) {
        let Some(SealRecord { epoch, tag, index, size }) = record else {
            node.mark(Marks::UNSEALED);
            self.unsettled.insert(node.id, None);
            return;
        };
        // Another one than it was by is none that tells.
        let seals = self.numbered(epoch).filter(|seals| tag_of(seals) == tag).cloned();
        let epoch = if seals.is_some() { epoch } else { LONG_AGO };
        match index {
            Some(index) => drop(self.known.insert(node.id, Known { epoch, index, size })),
            None => node.mark(Marks::UNSEALED),
        }
        if epoch != self.epoch {
            self.unsettled.insert(node.id, index.map(|index| Earlier { seals, index }));
        }
    }

    fn check_settled(&self, node: NodeId) -> Result<()> {
        if self.unsettled.contains_key(&node) { Err(Errno::STALE) } else { Ok(()) }
    }
}

/// A hold on the seal of a pool, for whoever serves it.
#[derive(Clone, Debug)]
pub struct SealControl {
    shared: Arc<Shared>,
}

impl SealControl {
    pub(crate) fn of(shared: &Arc<Shared>) -> Option<Self> {
        shared.sealed.as_ref().map(|_| Self { shared: Arc::clone(shared) })
    }

    fn sealed(&self) -> &SealedNodes {
        self.shared.sealed.as_ref().expect("there is no control without a seal")
    }

    /// The seal that holds.
    #[must_use]
    pub fn seals(&self) -> Arc<Seals> {
        self.sealed().of(NodeId::ROOT).0
    }

    /// The number of the seal that holds: how many there were before it. With it those before that are still known, of which the last is the
    /// one right before it.
    #[must_use]
    pub fn known(&self) -> (u64, Vec<Arc<Seals>>) {
        let state = self.sealed().state.read();
        (state.epoch, state.earlier.clone())
    }

    /// Takes another seal, in one step. Files that are open keep what they had; every name is looked up again before
    /// anything is opened by it.
    ///
    /// Not to be called from a thread that serves requests.
    pub fn replace(&self, seals: Arc<Seals>) {
        self.sealed().replace(&self.shared, seals);
        self.shared.expire_seals();
    }
}

impl Shared {
    /// Has the kernel look names up again that nobody has looked up since the seal was taken, if a dead server has left such.
    pub(crate) fn doubt_seals(&self) {
        if self.sealed.as_ref().is_some_and(|sealed| !sealed.state.read().unsettled.is_empty()) {
            self.expire_seals();
        }
    }

    fn expire_seals(&self) {
        let Some(notifier) = self.notifier.get() else { return };
        // Before Linux 6.16 there are no epochs: names are looked up when something is opened by them.
        match notifier.new_epoch() {
            Ok(()) | Err(NotifyError::Unsupported | NotifyError::Ended) => {}
            Err(error) => {
                tracing::warn!(%error, "the kernel may believe names for a while from before the seal");
            }
        }
    }
}
