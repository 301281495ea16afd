//! What can be told of a pool from outside, while it is mounted.

use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;
use shuntfs::{Name, NodeId};
use shuntfs_rules::CallerFacts;

use crate::branch::Branch;
use crate::error::PoolError;
use crate::merge::{self, BranchChange, Explanation, Merge};
use crate::options::{Cache, FlowWish, Locks};
use crate::policy::Function;
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
    /// The branches, where there may be several.
    pub branches: Vec<BranchFacts>,
    /// Forgets that took back more lookups than there were; other than 0 is a defect.
    pub overdrawn: u64,
}

/// What an [`Observer`] sees of a branch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct BranchFacts {
    /// The folder.
    pub path: PathBuf,
    /// What it is called wherever it is mounted, if users call it so.
    pub id: Option<String>,
    /// What may be done there: `RW`, `RO` or `NC`.
    pub mode: &'static str,
    /// Whether its file system refuses changes.
    pub mounted_read_only: bool,
    /// All of its space, in bytes; `None` where it does not tell.
    pub total: Option<u64>,
    /// What of that is available.
    pub available: Option<u64>,
    /// What something new must leave free.
    pub min_free: u64,
}

impl BranchFacts {
    pub(crate) fn of_all(shared: &Shared, merge: &Merge) -> Vec<Self> {
        shared.branches.in_use().into_iter().map(|branch| Self::of(branch, merge)).collect()
    }

    fn of(branch: &Branch, merge: &Merge) -> Self {
        let space = branch.space().ok();
        Self {
            path: branch.source().to_owned(),
            id: branch.id().map(str::to_owned),
            mode: branch.terms().mode.word(),
            mounted_read_only: branch.is_mounted_read_only(),
            total: space.map(|space| space.total),
            available: space.map(|space| space.available),
            min_free: merge.min_free(branch),
        }
    }
}

impl Observer {
    pub(crate) fn of(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Has branches come, go or change; which there are then.
    ///
    /// # Errors
    /// What [`PoolError`] says of a branch; then nothing has changed. [`PoolError::NotOfOneFolder`] where there is one folder.
    pub fn change_branches(&self, change: &BranchChange) -> Result<Vec<BranchFacts>, PoolError> {
        match &self.shared.merge {
            Some(merge) => merge::change(&self.shared, merge, change),
            None => Err(PoolError::NotOfOneFolder),
        }
    }

    /// Whether several branches are shown as one, or may be.
    #[must_use]
    pub fn has_branches(&self) -> bool {
        self.shared.merge.is_some()
    }

    /// Which branches a function would go to with a name now, if somebody called it, and why not to the others; `None` of one folder.
    ///
    /// # Errors
    /// ESTALE and ENOTDIR for what is no folder that the kernel knows.
    pub fn explain(
        &self,
        folder: NodeId,
        name: Name<'_>,
        function: Function,
        caller: &dyn CallerFacts,
    ) -> shuntfs::Result<Option<Explanation>> {
        let Some(merge) = &self.shared.merge else { return Ok(None) };
        merge::explain(&self.shared, merge, (folder, name), (function, caller)).map(Some)
    }

    /// The seal of a node, where it has one that is checked.
    #[must_use]
    pub fn seal_of(&self, node: NodeId) -> Option<shuntfs_verified::SealNote> {
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
            mounts: shared.branches.known().map(|branch| branch.mounts.len()).sum(),
            nodes: shared.table.len(),
            descriptors: shared.descriptors.len(),
            branches: shared.merge.as_ref().map_or_else(Vec::new, |merge| BranchFacts::of_all(shared, merge)),
            overdrawn: shared.table.overdrawn(),
        }
    }
}
