//! The io state of the nodes that are open or have a backing id.
//!
//! One open is settled under its node's lock, and counted there before its answer leaves, so that opens that
//! race agree. What the kernel holds open is always a part of what is counted here: a RELEASE arrives after
//! the kernel dropped the open, so a count is at worst too high for a moment, which the settlement table errs
//! with on the safe side.
//!
//! A backing id is kept beyond the last close, up to a limit, and goes when the kernel forgets the node, when
//! the file system says so, or when it was unused the longest. It never goes while an open counts on it: the
//! kernel looks an OPEN's id up after the reply was written.
//!
//! A node is open for those who get checked bytes, or for those who get any, never for both: who comes second is told
//! EBUSY. Who is the first of the one sort after the other finds neither backing id nor page of theirs.
//!
//! Lock order: shard, node, then kept or pages. Whoever holds a node's lock takes no shard's.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use shuntfs_transport::ZeroCopy;
use shuntfs_wire::{Errno, FopenFlags, NodeId, Result};

use crate::backing::{BackingId, Backings};
use crate::delegation::{CacheHint, Flow, Flows, LowerFile, Reason};
use crate::flow::{IoMode, Offer, OpenKind, Settlement, Way, Wish, Worth, settle};
use crate::node_hash::NodeHash;
use crate::pages::Pages;
use crate::range_map::FileKey;
use crate::takeover::OpenRecord;

const SHARDS: usize = 64;

/// One settled open, as OPEN's answer carries it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SettledOpen {
    pub(crate) flows: Flows,
    pub(crate) flags: FopenFlags,
    pub(crate) counted: Counted,
    /// The node's backing id where the open carries it.
    pub(crate) backing: Option<BackingId>,
}

/// What an open is counted as, until its close.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Counted {
    pub(crate) kind: OpenKind,
    /// It is checked, and its answer has the kernel drop the node's pages.
    pub(crate) drops_pages: bool,
}

impl Counted {
    /// What nobody else's open depends on.
    pub(crate) const ALONE: Self = Self { kind: OpenKind::Cached, drops_pages: false };
}

/// What an open asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) wish: Wish,
    pub(crate) cache: CacheHint,
    /// Whether the data of its requests may lie in pages that nobody sees.
    pub(crate) in_pages: bool,
}

/// The nodes of one mount.
#[derive(Debug)]
pub(crate) struct Nodes {
    shards: Box<[Shard]>,
    kept: Mutex<Kept>,
    kept_max: usize,
    pages: Pages,
    ring: AtomicBool,
    /// Where rings may move pages by zero copy.
    zero_copy: Option<Arc<ZeroCopy>>,
    backings: Backings,
    open: AtomicUsize,
    /// How many ids were asked to go.
    dropped: AtomicU64,
}

type Shard = Mutex<HashMap<NodeId, Arc<Node>, NodeHash>>;

/// The kernel's number of an open's lower file, or why there is none.
#[derive(Debug)]
struct Registered {
    outcome: std::result::Result<BackingId, Reason>,
    /// How many ids had been asked to go before the file was named: where another was since, this may be one of them.
    dropped: u64,
}

#[derive(Debug)]
struct Node {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    cached: u32,
    direct: u32,
    backed: u32,
    id: Option<BackingId>,
    /// Which file the id stands for, where a range map named it.
    key: Option<FileKey>,
    /// The id goes with the last close.
    retire: bool,
    /// Its place among the kept ones, while no open uses the id.
    kept_at: Option<u64>,
    /// It is in the table no more: look again.
    dead: bool,
    /// Of the opens, and of the file that the id stands for.
    worth: Worth,
    last: Flows,
}

/// Nodes whose ids no open uses, the one unused the longest first.
#[derive(Debug, Default)]
struct Kept {
    next: u64,
    order: BTreeMap<u64, NodeId>,
}

impl Nodes {
    pub(crate) fn new(backings: Backings, ring: bool, kept_max: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            kept: Mutex::default(),
            kept_max,
            pages: Pages::default(),
            ring: AtomicBool::new(ring),
            zero_copy: None,
            backings,
            open: AtomicUsize::new(0),
            dropped: AtomicU64::new(0),
        }
    }

    /// With what tells whether rings move pages by zero copy.
    pub(crate) fn with_zero_copy(self, zero_copy: &Arc<ZeroCopy>) -> Self {
        Self { zero_copy: Some(Arc::clone(zero_copy)), ..self }
    }

    /// Whether requests arrive on rings.
    pub(crate) fn has_ring(&self) -> bool {
        self.ring.load(Ordering::Relaxed)
    }

    /// The rings were refused: requests arrive through the device.
    pub(crate) fn without_ring(&self) {
        self.ring.store(false, Ordering::Relaxed);
    }

    /// Settles one open and counts it. `lower` is asked for the lower file only where it must be registered: that may wait for the
    /// lower file system, so other opens and closes of the node go on meanwhile. Where one of them has registered the file by then,
    /// that is taken, and this one's is taken back.
    ///
    /// # Errors
    /// EBUSY for a checked open of a node that is open unchecked, and the other way round.
    pub(crate) fn settle_open(
        &self,
        node: NodeId,
        asked: Ask,
        lower: &dyn Fn() -> Result<Arc<LowerFile>>,
    ) -> Result<SettledOpen> {
        let mut registered = None;
        let outcome = loop {
            match self.try_open(node, asked, &mut registered) {
                Ok(None) => registered = Some(self.register(lower)),
                Ok(Some(settled)) => break Ok(settled),
                Err(error) => break Err(error),
            }
        };
        if let Some(Registered { outcome: Ok(spare), .. }) = registered {
            self.backings.unregister(spare);
        }
        outcome
    }

    /// The same with what was registered for it; `None` where the file must be.
    fn try_open(
        &self,
        node: NodeId,
        asked: Ask,
        registered: &mut Option<Registered>,
    ) -> Result<Option<SettledOpen>> {
        let worth = asked.wish.worth();
        loop {
            let entry = self.entry(node);
            let mut state = entry.state.lock();
            if state.dead {
                continue;
            }
            self.turn(&mut state, worth)?;
            let asked = Ask { cache: self.cache_for(node, worth, asked.cache), ..asked };
            let Some(settled) = self.settle(&mut state, asked, registered) else { return Ok(None) };
            self.count(&mut state, settled);
            let backing = if settled.kind == OpenKind::Backed { state.id } else { None };
            let Settlement { flows, flags, kind } = settled;
            let drops_pages = state.worth == Worth::Checked && !flags.contains(FopenFlags::KEEP_CACHE);
            let counted = Counted { kind, drops_pages };
            return Ok(Some(SettledOpen { flows, flags, counted, backing }));
        }
    }

    /// Counts an open that a predecessor had settled. False where it contradicts others of the node.
    pub(crate) fn restore(&self, node: NodeId, open: &OpenRecord) -> bool {
        let entry = self.entry(node);
        let mut state = entry.state.lock();
        let id = Some(open.backing).filter(|id| *id > 0).map(BackingId);
        let is_backed = open.counted.kind == OpenKind::Backed;
        if is_backed != id.is_some() || state.is_open() && (state.id != id || state.worth != open.worth) {
            return false;
        }
        if !state.is_open() {
            self.open.fetch_add(1, Ordering::Relaxed);
        }
        *state.count_of(open.counted.kind) += 1;
        (state.id, state.worth, state.last) = (id, open.worth, open.flows);
        true
    }

    /// Takes back an open whose answer never left.
    pub(crate) fn undo(&self, node: NodeId, counted: Counted) {
        self.close(node, Counted { drops_pages: false, ..counted });
    }

    /// The kernel has forgotten a node.
    pub(crate) fn forget(&self, node: NodeId) {
        self.let_go(node);
        self.pages.may_be_unchecked(node);
    }

    /// Counts a close.
    pub(crate) fn close(&self, node: NodeId, counted: Counted) {
        let Some(entry) = self.find(node) else {
            unreachable!("an open node is in the table");
        };
        let dropped = {
            let mut state = entry.state.lock();
            if counted.drops_pages {
                self.pages.were_dropped(node);
            }
            let count = state.count_of(counted.kind);
            assert!(*count > 0, "each open is closed once");
            *count -= 1;
            if state.is_open() {
                return;
            }
            self.open.fetch_sub(1, Ordering::Relaxed);
            if state.id.is_some() && !state.retire && self.kept_max > 0 {
                let (place, count) = self.kept.lock().push(node);
                state.kept_at = Some(place);
                drop(state);
                if count > self.kept_max {
                    self.shed();
                }
                return;
            }
            state.id.take()
        };
        if let Some(id) = dropped {
            self.backings.unregister(id);
        }
        self.remove_if_idle(node);
    }

    /// Lets go of a node's backing id: at once, or with its last close.
    pub(crate) fn drop_backing(&self, node: NodeId) {
        self.dropped.fetch_add(1, Ordering::SeqCst);
        self.let_go(node);
    }

    fn let_go(&self, node: NodeId) {
        let Some(entry) = self.find(node) else { return };
        let dropped = {
            let mut state = entry.state.lock();
            if state.is_open() {
                state.retire = state.id.is_some();
                return;
            }
            if let Some(place) = state.kept_at.take() {
                self.kept.lock().order.remove(&place);
            }
            state.id.take()
        };
        if let Some(id) = dropped {
            self.backings.unregister(id);
        }
        self.remove_if_idle(node);
    }

    /// How the bytes of a node flow since its last open, and why.
    pub(crate) fn flow_of(&self, node: NodeId) -> Option<Flows> {
        let entry = self.find(node)?;
        let state = entry.state.lock();
        (!state.dead).then_some(state.last)
    }

    /// How many nodes are open.
    pub(crate) fn open_count(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// How many backing ids are kept that no open uses.
    pub(crate) fn kept_count(&self) -> usize {
        self.kept.lock().order.len()
    }

    /// Makes the node one of opens that are worth this much.
    fn turn(&self, state: &mut State, worth: Worth) -> Result<()> {
        if state.worth == worth {
            return Ok(());
        }
        if state.is_open() {
            return Err(Errno::BUSY);
        }
        self.leave_passthrough(state);
        state.worth = worth;
        Ok(())
    }

    /// What happens to the node's pages at an open that is worth this much and wishes for `cache`.
    fn cache_for(&self, node: NodeId, worth: Worth, cache: CacheHint) -> CacheHint {
        let keeps = matches!(cache, CacheHint::Keep | CacheHint::Again);
        match worth {
            Worth::Checked if keeps && !self.pages.are_checked(node) => CacheHint::Drop,
            Worth::Checked => cache,
            Worth::Unchecked => {
                self.pages.may_be_unchecked(node);
                cache
            }
        }
    }

    fn settle(
        &self,
        state: &mut State,
        asked: Ask,
        registered: &mut Option<Registered>,
    ) -> Option<Settlement> {
        let Ask { wish, cache, in_pages } = asked;
        if cache == CacheHint::Again {
            self.leave_passthrough(state);
        }
        let mode = state.mode();
        let (wish, key) = match wish {
            // All opens of a node carry the same id. Which file it stands for is known where it was lifted, too.
            Wish::Lifted(key) if state.id.is_some() && state.key != Some(key) => {
                (Wish::Whole(Way::Ranges), None)
            }
            Wish::Lifted(key) => (wish, Some(key)),
            _ => (wish, None),
        };
        let wants_id = wish.passes() && mode == IoMode::Free;
        let passthrough = if wants_id { self.backings.offer() } else { Ok(()) };
        let ring = self.ring.load(Ordering::Relaxed);
        let zero_copy =
            in_pages && ring && self.zero_copy.as_ref().is_some_and(|state| state.off().is_none());
        let settled = settle(wish, cache, mode, Offer { passthrough, ring, zero_copy });
        if settled.kind != OpenKind::Backed || state.id.is_some() {
            return Some(settled);
        }
        let Registered { outcome, dropped } = registered.take()?;
        Some(match outcome {
            Ok(id) => {
                state.id = Some(id);
                state.key = key;
                state.retire = dropped != self.dropped.load(Ordering::SeqCst);
                settled
            }
            Err(reason) => settle(wish, cache, mode, Offer { passthrough: Err(reason), ring, zero_copy }),
        })
    }

    /// Lets go of an id that is only kept.
    fn leave_passthrough(&self, state: &mut State) {
        if state.is_open() {
            return;
        }
        if let Some(place) = state.kept_at.take() {
            self.kept.lock().order.remove(&place);
        }
        if let Some(id) = state.id.take() {
            self.backings.unregister(id);
        }
    }

    fn register(&self, lower: &dyn Fn() -> Result<Arc<LowerFile>>) -> Registered {
        use std::os::fd::AsFd;
        let dropped = self.dropped.load(Ordering::SeqCst);
        let lower = lower().map_err(|error| {
            if error == Errno::NOSPC {
                return Reason::NearFull;
            }
            tracing::debug!(%error, "no lower file to register");
            Reason::RegisterFailed
        });
        Registered { outcome: lower.and_then(|lower| self.backings.register(lower.as_fd())), dropped }
    }

    fn count(&self, state: &mut State, settled: Settlement) {
        if !state.is_open() {
            self.open.fetch_add(1, Ordering::Relaxed);
        }
        *state.count_of(settled.kind) += 1;
        state.last = settled.flows;
        if let Some(place) = state.kept_at.take() {
            self.kept.lock().order.remove(&place);
        }
    }

    /// Drops the ids that are kept beyond the limit.
    fn shed(&self) {
        loop {
            let (place, node) = {
                let mut kept = self.kept.lock();
                if kept.order.len() <= self.kept_max {
                    return;
                }
                let Some(oldest) = kept.order.pop_first() else { return };
                oldest
            };
            let Some(entry) = self.find(node) else { continue };
            let dropped = {
                let mut state = entry.state.lock();
                // It may have been opened, and even closed again, in between.
                if state.kept_at != Some(place) {
                    continue;
                }
                state.kept_at = None;
                state.id.take()
            };
            if let Some(id) = dropped {
                self.backings.unregister(id);
            }
            self.remove_if_idle(node);
        }
    }

    fn shard(&self, node: NodeId) -> &Shard {
        // Node ids are counted up, so their low bits spread them evenly.
        let place = usize::try_from(node.get() % SHARDS as u64).unwrap_or(0);
        &self.shards[place]
    }

    fn entry(&self, node: NodeId) -> Arc<Node> {
        let mut shard = self.shard(node).lock();
        Arc::clone(shard.entry(node).or_insert_with(|| Arc::new(Node { state: Mutex::new(State::new()) })))
    }

    fn find(&self, node: NodeId) -> Option<Arc<Node>> {
        self.shard(node).lock().get(&node).map(Arc::clone)
    }

    fn remove_if_idle(&self, node: NodeId) {
        let mut shard = self.shard(node).lock();
        let Some(entry) = shard.get(&node) else { return };
        let mut state = entry.state.lock();
        if !state.is_open() && state.id.is_none() {
            state.dead = true;
            drop(state);
            shard.remove(&node);
        }
    }
}

impl State {
    fn new() -> Self {
        Self {
            cached: 0,
            direct: 0,
            backed: 0,
            id: None,
            key: None,
            retire: false,
            kept_at: None,
            dead: false,
            worth: Worth::Unchecked,
            last: Flows::both(Flow::Served, Reason::Wished),
        }
    }

    fn mode(&self) -> IoMode {
        let unbacked = self.cached + self.direct;
        assert!(self.id.is_none() || unbacked == 0, "a node in passthrough has no other opens");
        match (self.id, self.cached, self.direct) {
            (Some(_), ..) => IoMode::Backed,
            (None, 0, 0) => IoMode::Free,
            (None, 0, _) => IoMode::Direct,
            (None, ..) => IoMode::Cached,
        }
    }

    fn is_open(&self) -> bool {
        self.cached + self.direct + self.backed > 0
    }

    fn count_of(&mut self, kind: OpenKind) -> &mut u32 {
        match kind {
            OpenKind::Cached => &mut self.cached,
            OpenKind::Direct => &mut self.direct,
            OpenKind::Backed => &mut self.backed,
        }
    }
}

impl Kept {
    /// Keeps a node's id; its place, and how many are kept now.
    fn push(&mut self, node: NodeId) -> (u64, usize) {
        let place = self.next;
        self.next += 1;
        self.order.insert(place, node);
        (place, self.order.len())
    }
}

#[cfg(test)]
mod test;
