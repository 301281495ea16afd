//! LOOKUP of "." and "..": nodes that are asked for by number, for handles of files.

use std::os::fd::AsFd as _;
use std::sync::Arc;

use shuntfs::{Entry, Errno, LookupCount, NodeId, Result};
use shuntfs_sys::{Stat, open_path_at};

use super::by_path;
use crate::branch::Branch;
use crate::find::{self, Found};
use crate::lasting;
use crate::node::{Node, Place};
use crate::shared::Shared;
use crate::view::{Seen, View};

/// LOOKUP of ".": the node with this number, whether the kernel knows it or not.
///
/// # Errors
/// ESTALE where there is none, and where it cannot be told whether it is shown. ETIMEDOUT where its branch is set aside: an NFS server then has
/// its clients ask again.
pub(crate) fn node(shared: &Shared, id: NodeId) -> Result<Entry> {
    if !shared.options.handles {
        return Err(Errno::STALE);
    }
    if let Some(merge) = shared.controls(id) {
        return Ok(merge.control.entry(shared));
    }
    // What is known of a folder of a merge may be of another name by now.
    if let Some(node) = shared.table.find(id).filter(|node| node.parts().is_none()) {
        return known(shared, &node);
    }
    let mut failed = Errno::STALE;
    for number in shared.branches.order().iter() {
        match on_branch(shared, shared.branches.at(*number), id) {
            Err(Errno::STALE) => {}
            Err(error) => failed = error,
            entry => return entry,
        }
    }
    Err(failed)
}

/// LOOKUP of "..": the folder of a folder.
///
/// # Errors
/// ESTALE for the root, and for a folder that was removed.
pub(crate) fn parent(shared: &Shared, id: NodeId) -> Result<Entry> {
    if !shared.options.handles || id == NodeId::ROOT {
        return Err(Errno::STALE);
    }
    let folder = shared.folder(id)?;
    let branch = shared.branch(folder.mount);
    check_uncovered(branch)?;
    if shared.merge.is_some() {
        return by_path::parent(shared, branch, &folder);
    }
    let fd = shared.opening(|| open_path_at(&folder.descriptor, c".."))?;
    let found = find::by_descriptor(branch, fd)?;
    if branch.is_root(&found.stat) {
        return Ok(shared.entry(&shared.root, &found.stat));
    }
    // What has no lasting number is on another file system, or in another subvolume: it may be a folder around the source.
    let wish = shared.lasting_number(&found.identity, View::WHOLE).ok_or(Errno::STALE)?;
    file(shared, found, wish)
}

/// A node that is in the table: no folder of a merge.
fn known(shared: &Shared, node: &Arc<Node>) -> Result<Entry> {
    loop {
        let moves = node.moves();
        match known_at(shared, node, node.place()) {
            // It was moved to another branch meanwhile.
            Err(Errno::STALE) if node.moves() != moves => {}
            entry => return entry,
        }
    }
}

/// The same at this place. A descriptor of it at another one would be none of this branch, which would take it for one of a mount below.
fn known_at(shared: &Shared, node: &Node, place: &Place) -> Result<Entry> {
    let mount = place.mount();
    let branch = shared.branch(mount);
    if !shared.branches.order().contains(&mount.branch) {
        return Err(Errno::STALE);
    }
    shared.reaches(mount).map_err(|_| Errno::TIMEDOUT)?;
    check_uncovered(branch)?;
    let fd = match (place.held(), place.handle()) {
        // It must be one of our own.
        (Some(held), _) => held.as_fd().try_clone_to_owned().map_err(|_| Errno::MFILE)?,
        (None, Some(handle)) => shared.opening(|| shared.mount(mount).open(handle))?,
        (None, None) => return Err(Errno::STALE),
    };
    let found = find::by_descriptor(branch, fd)?;
    if branch.is_root(&found.stat) {
        return Err(Errno::STALE);
    }
    file(shared, found, node.id)
}

/// What has this number on a branch.
fn on_branch(shared: &Shared, branch: &Branch, id: NodeId) -> Result<Entry> {
    let own = branch.mounts.own();
    let lasting = branch.lasting().filter(|lasting| lasting.may_have(id)).ok_or(Errno::STALE)?;
    shared.reaches(own.index).map_err(|_| Errno::TIMEDOUT)?;
    check_uncovered(branch)?;
    let fd = shared.opening(|| lasting.open(own, id))?;
    let found = find::by_descriptor(branch, fd)?;
    // It has no name any more, or never had one.
    if branch.is_root(&found.stat) || found.stat.nlink == 0 {
        return Err(Errno::STALE);
    }
    if shared.merge.is_some() && found.stat.is_dir() {
        return by_path::folder(shared, branch, &found, id);
    }
    file(shared, found, id)
}

fn check_uncovered(branch: &Branch) -> Result<()> {
    if lasting::is_covered(branch.source()) {
        tracing::warn!(branch = ?branch.source(), "something was mounted below it: files are not found by handle");
        return Err(Errno::STALE);
    }
    Ok(())
}

/// What was found, which is no folder of a merge, if it has this number.
fn file(shared: &Shared, found: Found, id: NodeId) -> Result<Entry> {
    if found.stat.nlink == 0 {
        return Err(Errno::STALE);
    }
    only(shared, find::obtain(shared, found, Seen::ALL), id)
}

/// A node whose lookup count was raised, if it has this number.
pub(super) fn only(shared: &Shared, (node, stat): (Arc<Node>, Stat), id: NodeId) -> Result<Entry> {
    if node.id != id {
        shared.forget(node.id, LookupCount(1));
        return Err(Errno::STALE);
    }
    Ok(shared.entry(&node, &stat))
}
