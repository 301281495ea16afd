//! Files of a branch that was taken out and is back.
//!
//! A branch that is added gets a number that none had before, and nodes name their branch by it. The kernel goes on to remember files of a branch that was
//! taken out. Where handles last, the number of a node says which file it is on a branch with that identity. So when a branch with the same identity
//! comes, the nodes that are left are those of the same files there: else their handles would lead nowhere for as long as the kernel remembers them, and
//! names would lead to other nodes, whose handles do not last because the numbers are taken.
//!
//! That is not checked file by file: of files that were removed meanwhile, or if it is another disk, nothing is found by the lower handle, as before.

use shuntfs::{NodeId, NotifyError};

use crate::lasting::Lasting;
use crate::node::{Identity, Marks, Node, Place};
use crate::shared::Shared;

/// Has the nodes that are left of branches that were taken out be on those of these branches that have their identity; which ones. Files that are open
/// stay where they are. Nothing was found on these branches yet.
pub(super) fn come_back(shared: &Shared, new: &[u16]) -> Vec<NodeId> {
    let mut back = Vec::new();
    if !shared.options.handles || new.is_empty() {
        return back;
    }
    let in_use = shared.branches.order();
    let is_left = |node: &Node| {
        let mount = node.place().mount();
        node.parts().is_none() && mount.is_own() && !in_use.contains(&mount.branch) && node.opens() == 0
    };
    for node in shared.table.all().into_iter().filter(|node| Lasting::lasts(node.id) && is_left(node)) {
        let before = node.place();
        let Some(there) = place_on(shared, before, new) else { continue };
        shared.table.rebind(&node, there, shared.lasting_generation(&node));
        node.unmark(Marks::PINNED);
        drop(before.give_up(|| false));
        back.push(node.id);
    }
    back
}

/// The same inode on the branch that is back.
fn place_on(shared: &Shared, before: &Place, new: &[u16]) -> Option<Place> {
    let key = shared.branch(before.mount()).key();
    let branch = new.iter().map(|number| shared.branches.at(*number)).find(|branch| branch.key() == key)?;
    let handle = before.handle()?;
    // Else the file system has another layout.
    branch.lasting()?.number(handle)?;
    let mount = branch.mounts.own().index;
    Some(Place::new(Identity::of_handle(before.inode().ino, mount, handle.clone())))
}

/// Has the kernel forget what it believes of these files: they may have changed while their branch was away.
pub(super) fn tell_of(shared: &Shared, back: &[NodeId]) {
    let Some(notifier) = shared.notifier.get() else { return };
    for id in back {
        notifier.drop_backing(*id);
        match notifier.data(*id, 0, 0) {
            Ok(()) | Err(NotifyError::Unknown | NotifyError::Ended) => {}
            Err(error) => tracing::warn!(%error, "the kernel may believe old data"),
        }
    }
}
