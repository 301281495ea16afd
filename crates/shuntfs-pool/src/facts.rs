//! What can be told of a pool from outside, while it is mounted.

use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;

use crate::options::{Cache, FlowWish, Locks};
use crate::shared::Shared;

/// A view of a pool.
#[derive(Clone, Debug)]
pub struct Observer {
    shared: Arc<Shared>,
}

/// What an [`Observer`] sees.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct Facts {
    /// The folder that is shown.
    pub source: PathBuf,
    /// The kind of its file system, as in `statfs`.
    pub magic: u64,
    /// What the kernel may keep.
    pub cache: Cache,
    /// Who keeps locks.
    pub locks: Locks,
    /// How bytes were wished to flow.
    pub flow: FlowWish,
    /// Whether changes are refused.
    pub read_only: bool,
    /// Whether lower calls run in the queue.
    pub inline: bool,
    /// Whether nodes are reached by file handle; else each keeps a descriptor.
    pub handles: bool,
    /// Lower file systems seen, the source's own included.
    pub mounts: usize,
    /// Nodes that the kernel knows, besides the root.
    pub nodes: usize,
    /// Descriptors cached for nodes.
    pub descriptors: usize,
    /// Forgets that took back more lookups than there were; other than 0 is a defect.
    pub overdrawn: u64,
}

impl Observer {
    pub(crate) fn of(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// The seal of a node, where it has one that is checked.
    #[must_use]
    pub fn seal_of(&self, node: shuntfs::NodeId) -> Option<shuntfs_verified::SealNote> {
        self.shared.sealed.as_ref()?.note_of(node)
    }

    /// The state of the moment. Walks the caches; not for a busy loop.
    #[must_use]
    pub fn facts(&self) -> Facts {
        let shared = &self.shared;
        let own = shared.first_branch().mounts.own();
        Facts {
            source: shared.options.source.clone(),
            magic: own.magic.0,
            cache: shared.options.cache,
            locks: shared.options.locks,
            flow: shared.options.flow,
            read_only: shared.check_writable().is_err(),
            inline: shared.runs_inline(),
            handles: own.has_handles(),
            mounts: shared.branches.iter().map(|branch| branch.mounts.len()).sum(),
            nodes: shared.table.len(),
            descriptors: shared.descriptors.len(),
            overdrawn: shared.table.overdrawn(),
        }
    }
}
