//! Keeping what is in use while its names go.

use std::sync::Arc;

use shuntfs::{Errno, Result};
use shuntfs_sys::stat_of;

use crate::file;
use crate::find;
use crate::guard::Spot;
use crate::node::{Marks, Node};
use crate::shared::Shared;

/// A node that the kernel knows, about to lose a name. If somebody may still use it without a name, its inode is held:
/// files that are open, and folders always, because a working directory is not open.
///
/// What is not open is not held, so that its space is free when the call returns. (The price: a descriptor that
/// a caller opened with `O_PATH` cannot be asked for attributes once its file is gone.)
pub(crate) struct Removal<'s> {
    shared: &'s Shared,
    /// One for each view.
    nodes: Vec<Arc<Node>>,
}

impl<'s> Removal<'s> {
    pub(crate) fn begin(shared: &'s Shared, spot: Spot<'_>) -> Result<Self> {
        let nodes = find::known(shared, spot)?;
        // Before the look at the opens: whoever opens from now on sees it.
        nodes.iter().for_each(|node| node.removing());
        let removal = Self { shared, nodes };
        for node in removal.nodes.iter().filter(|node| node.opens() > 0 || node.is_dir()) {
            shared.parked.forget(node.id);
            match file::hold(shared, node) {
                // It is gone already; the caller will hear so.
                Err(Errno::STALE) => {}
                Err(error @ (Errno::MFILE | Errno::NFILE)) if node.has_handles() => {
                    // A file is found by its handle as long as it is open. Who works in a folder gets ESTALE.
                    tracing::warn!(node = node.id.get(), %error, "what is in use is not held while its name is removed");
                }
                outcome => outcome?,
            }
            shared.keeps_open(node);
        }
        Ok(removal)
    }

    /// Has the kernel ask for the attributes of copies, which lost a link: it knows of the file that is shown alone. They are
    /// seen by other names.
    pub(crate) fn doubt_copies(&self) {
        if self.nodes.len() > 1 {
            self.nodes.iter().for_each(|node| self.shared.doubt_attributes(node.id));
        }
    }

    /// Whose name it is.
    pub(crate) fn nodes(&self) -> &[Arc<Node>] {
        &self.nodes
    }
}

impl Drop for Removal<'_> {
    fn drop(&mut self) {
        for node in &self.nodes {
            if node.has(Marks::PINNED) {
                node.removed();
                settle(self.shared, node);
            } else {
                // In this order, so that an open sees one or the other.
                node.mark(Marks::UNLINKED);
                node.removed();
                // A cached descriptor would keep the space of a file that nobody uses any more.
                drop(node.drop_descriptor());
            }
        }
    }
}

/// Gives the descriptor of a pinned node back to the cache, where the node has a name left: it is then reached by
/// handle as before.
pub(crate) fn settle(shared: &Shared, node: &Arc<Node>) {
    let Some(held) = node.descriptor() else { return };
    let has_name = || stat_of(&held).is_ok_and(|stat| stat.nlink > 0);
    if !has_name() {
        return;
    }
    node.unmark(Marks::UNLINKED);
    shared.keeps_open_no_more(node);
    shared.unpin(node);
    // Whoever removes the last name now, or has done so meanwhile, may have relied on the pin; `held` has kept the inode.
    if node.is_losing_a_name() || !has_name() {
        node.mark(Marks::UNLINKED);
        node.pin(held);
    }
}

impl Shared {
    /// Has the next server reach a folder that is about to lose its name by the descriptor that holds it: nothing may be found by its handle then.
    fn keeps_open(&self, node: &Node) {
        if self.table.is_kept() && node.is_dir() && node.has(Marks::PINNED) {
            node.mark(Marks::KEPT_OPEN);
            self.table.renamed(node);
        }
    }

    /// It has a name still, and a handle is enough where it was before.
    fn keeps_open_no_more(&self, node: &Node) {
        // One of a merge is found by its name.
        let is_enough = node.is_dir() && (node.parts().is_some() || !self.table.must_hold(node.key()));
        if self.table.is_kept() && is_enough && node.unmark(Marks::KEPT_OPEN) {
            self.table.renamed(node);
        }
    }
}
