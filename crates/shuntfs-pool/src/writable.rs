//! Whether a pool takes changes, and its branches.

use std::sync::Arc;

use shuntfs::{Errno, Result};

use crate::guard::Spot;
use crate::merge;
use crate::node::Node;
use crate::shared::{Folder, Shared};

impl Shared {
    /// Refuses changes of a pool that is read-only, by the options or below.
    pub(crate) fn check_writable(&self) -> Result<()> {
        // None is asked again as long as another one takes changes: it may be on a disk that hangs.
        let is_still = || self.branches.in_use().iter().all(|branch| branch.is_still_read_only());
        let is_read_only = self.options.read_only || self.is_seen_read_only() && is_still();
        if is_read_only { Err(merge::refuse_all(self)) } else { Ok(()) }
    }

    /// Whether changes are refused, as last seen.
    pub(crate) fn is_seen_read_only(&self) -> bool {
        self.options.read_only || self.branches.in_use().iter().all(|branch| branch.is_read_only())
    }

    /// Refuses changes of what is shown on a branch that takes none.
    pub(crate) fn check_branch(&self, node: &Arc<Node>) -> Result<()> {
        if self.merge.is_none() {
            return Ok(());
        }
        let branch = self.branch(node.mount());
        if branch.is_still_read_only() {
            Err(merge::refuse_of(self, node, Errno::ROFS, merge::why_read_only(branch)))
        } else {
            Ok(())
        }
    }

    /// Notes that a branch of a merge is read-only, where that is what it says when something is made on it.
    pub(crate) fn note_refusal(&self, spot: Spot<'_>, error: Errno) {
        if self.merge.is_some() && error == Errno::ROFS {
            // It says so itself, and another branch is tried.
            self.branch(spot.mount).refused();
        } else {
            merge::pass_on_at(self, spot, error);
        }
    }

    /// Whether a branch of a merge has refused to have something made, so that another one must be tried.
    pub(crate) fn has_refused(&self, folder: &Folder) -> bool {
        self.merge.is_some() && self.branch(folder.mount).has_refused()
    }
}
