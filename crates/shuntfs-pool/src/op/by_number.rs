//! LOOKUP of "." and "..": nodes that are asked for by number, for handles of files.

use std::os::fd::AsFd as _;

use shuntfs::{Entry, Errno, NodeId, Result};
use shuntfs_sys::open_path_at;

use crate::find::{self, Found};
use crate::lasting;
use crate::shared::Shared;
use crate::view::{Seen, View};

/// LOOKUP of ".": the node with this number, whether the kernel knows it or not.
///
/// # Errors
/// ESTALE where there is none, and where it cannot be told whether it is shown.
pub(crate) fn node(shared: &Shared, id: NodeId) -> Result<Entry> {
    let lasting = shared.lasting.as_ref().ok_or(Errno::STALE)?;
    let branch = shared.first_branch();
    if lasting::is_covered(branch.source()) {
        tracing::warn!("something was mounted below the source: files are not found by handle");
        return Err(Errno::STALE);
    }
    let known = shared.table.find(id).map(|node| shared.descriptor(&node)).transpose()?;
    let fd = match known {
        // Any descriptor of it will do, and it must be one of our own.
        Some(descriptor) => descriptor.as_fd().try_clone_to_owned().map_err(|_| Errno::MFILE)?,
        None => shared.opening(|| lasting.open(branch.mounts.own(), id))?,
    };
    let found = find::by_descriptor(branch, fd)?;
    if branch.is_root(&found.stat) {
        return Err(Errno::STALE);
    }
    entry(shared, found, |found| found == id)
}

/// LOOKUP of "..": the folder of a folder.
///
/// # Errors
/// ESTALE for the root, and for a folder that was removed.
pub(crate) fn parent(shared: &Shared, id: NodeId) -> Result<Entry> {
    let branch = shared.first_branch();
    if shared.lasting.is_none() || id == NodeId::ROOT || lasting::is_covered(branch.source()) {
        return Err(Errno::STALE);
    }
    let folder = shared.folder(id)?;
    let fd = shared.opening(|| open_path_at(&folder.descriptor, c".."))?;
    let found = find::by_descriptor(branch, fd)?;
    if branch.is_root(&found.stat) {
        return Ok(shared.entry(&shared.root, &found.stat));
    }
    // What has no lasting number is on another file system, or in another subvolume: it may be a folder around the source.
    let wish = shared.lasting_number(&found.identity, View::WHOLE).ok_or(Errno::STALE)?;
    entry(shared, found, |found| found == wish)
}

fn entry(shared: &Shared, found: Found, is_it: impl Fn(NodeId) -> bool) -> Result<Entry> {
    // It has no name any more, or never had one.
    if found.stat.nlink == 0 {
        return Err(Errno::STALE);
    }
    let (node, stat) = find::obtain(shared, found, Seen::ALL);
    if !is_it(node.id) {
        shared.forget(node.id, shuntfs::LookupCount(1));
        return Err(Errno::STALE);
    }
    Ok(shared.entry(&node, &stat))
}
