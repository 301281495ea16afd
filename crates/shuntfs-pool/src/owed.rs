//! Lookups that the kernel has not given back of nodes that lead nowhere any more.
//!
//! The number of a node may come again if it outlives the mount: a branch is removed, the next server knows nothing of its files, and the branch is
//! back. The kernel counts by the number alone, and what it gives back of the earlier node may come after the next one was looked up. So these lookups
//! stay counted, and the next node with that number has them, too. Other numbers never come again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use shuntfs::takeover::NodePlace;
use shuntfs::{LookupCount, NodeId};

/// What is owed of one number, and where that is written down.
#[derive(Debug)]
pub(crate) struct Debt {
    pub(crate) lookups: LookupCount,
    pub(crate) place: NodePlace,
}

/// The same of all numbers. Lock order: the shard of the number in the table, then this.
#[derive(Debug, Default)]
pub(crate) struct Owed {
    /// Whether there was ever any, which is rare.
    any: AtomicBool,
    by_id: Mutex<HashMap<NodeId, Debt>>,
}

impl Owed {
    pub(crate) fn add(&self, id: NodeId, debt: Debt) {
        self.by_id.lock().insert(id, debt);
        self.any.store(true, Ordering::Release);
    }

    /// Whether any may be owed.
    pub(crate) fn may_have(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// All of a number, for the next node that has it.
    pub(crate) fn take(&self, id: NodeId) -> Option<Debt> {
        if self.may_have() { self.by_id.lock().remove(&id) } else { None }
    }

    /// The kernel gives lookups back. `lower` writes down what is left of a number; where nothing is, its place is returned.
    pub(crate) fn lower(
        &self,
        id: NodeId,
        count: LookupCount,
        lower: impl FnOnce(&NodePlace),
    ) -> Option<NodePlace> {
        let mut by_id = self.by_id.lock();
        let debt = by_id.get_mut(&id)?;
        debt.lookups.0 = debt.lookups.0.saturating_sub(count.0);
        if debt.lookups.0 > 0 {
            lower(&debt.place);
            return None;
        }
        by_id.remove(&id).map(|debt| debt.place)
    }
}
