//! Nodes whose pages in the kernel's cache were all checked.
//!
//! Pages outlive the opens that brought them. So the first checked open of a node has the kernel drop what exists; and as
//! long as that open may not be through with it, so has each further one. The close of one that dropped them is the sign: by then
//! the kernel has done what the answer to its OPEN said.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use shuntfs_wire::NodeId;

const SHARDS: usize = 16;

/// The nodes whose pages were all checked. A leaf in the order of locks.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    checked: [Mutex<HashSet<NodeId>>; SHARDS],
    /// Whether there ever was one, so that mounts without checks take no lock.
    any: AtomicBool,
}

impl Pages {
    /// Whether no page of the node is unchecked.
    pub(crate) fn are_checked(&self, node: NodeId) -> bool {
        self.any.load(Ordering::Acquire) && self.shard(node).lock().contains(&node)
    }

    /// A checked open of the node that had the pages dropped is through, and nobody else has brought any.
    pub(crate) fn were_dropped(&self, node: NodeId) {
        self.any.store(true, Ordering::Release);
        self.shard(node).lock().insert(node);
    }

    /// An open of the node brings pages that nobody checks, or the node is forgotten.
    pub(crate) fn may_be_unchecked(&self, node: NodeId) {
        if self.any.load(Ordering::Acquire) {
            self.shard(node).lock().remove(&node);
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.checked.iter().map(|shard| shard.lock().len()).sum()
    }

    fn shard(&self, node: NodeId) -> &Mutex<HashSet<NodeId>> {
        &self.checked[usize::try_from(node.get() % SHARDS as u64).unwrap_or(0)]
    }
}
