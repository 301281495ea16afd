//! MKNOD, MKDIR, SYMLINK and LINK: everything that gets a name and is not opened.

use std::ffi::CStr;

use shuntfs::{Entry, Errno, NodeId, Result};
use shuntfs_sys::stat_of;

use crate::error::errno;
use crate::find;
use crate::guard::{Arrival, Coming, Guard, Made, NameComes, SecondName};
use crate::name_buf::NameBuf;
use crate::node::{Marks, Node};
use crate::sealed;
use crate::shared::Shared;
use crate::who::Who;

/// MKNOD.
pub(crate) fn mknod(
    shared: &Shared,
    who: Who,
    parent: NodeId,
    name: &NameBuf,
    made: Made,
    rdev: u32,
) -> Result<Entry> {
    make(shared, who, parent, name, Coming::Node { made, rdev })
}

/// MKDIR.
pub(crate) fn mkdir(shared: &Shared, who: Who, parent: NodeId, name: &NameBuf, made: Made) -> Result<Entry> {
    make(shared, who, parent, name, Coming::Folder { made })
}

/// SYMLINK.
pub(crate) fn symlink(
    shared: &Shared,
    who: Who,
    parent: NodeId,
    name: &NameBuf,
    target: &CStr,
) -> Result<Entry> {
    make(shared, who, parent, name, Coming::Symlink { target })
}

/// Makes a name and tells what it means.
fn make(shared: &Shared, who: Who, parent: NodeId, name: &NameBuf, what: Coming<'_>) -> Result<Entry> {
    let folder = shared.folder(parent)?;
    let (guard, spot) = (Guard::new(shared, who), folder.spot(name));
    let untold = guard.judge(NameComes { spot, what })?.make(shared)?;
    let found = match find::find(shared, &folder.node, &folder.descriptor, name.as_c_str()) {
        Err(Errno::NOENT) => {
            // Somebody has removed it below: there is no such name, as the kernel believes.
            untold.told();
            shared.doubt_attributes(parent);
            return Err(Errno::NOENT);
        }
        found => found?,
    };
    let arrived = guard.arrive(spot, found, Arrival::Made)?;
    untold.told();
    Ok(arrived.entry(shared))
}

/// LINK.
pub(crate) fn link(shared: &Shared, who: Who, id: NodeId, parent: NodeId, name: &NameBuf) -> Result<Entry> {
    let (node, folder) = (shared.node(id)?, shared.folder(parent)?);
    if folder.node.place.mount() != node.place.mount() {
        return Err(Errno::XDEV);
    }
    let (guard, spot) = (Guard::new(shared, who), folder.spot(name));
    let held = guard.hold(&[])?;
    let untold = guard.judge(SecondName { node: &node, spot, _held: &held })?.link(shared)?;
    let stat = stat_of(shared.descriptor(&node)?).map_err(errno);
    if stat.is_err() {
        shared.doubt_attributes(id);
    }
    let stat = stat?;
    untold.told();
    drop(held);
    // The kernel holds the node while it asks for a link to it, so this finds the same one.
    let make = |id, identity| Node::new(id, identity, node.view, stat.mode);
    let wish = shared.lasting_number(node.place.inode(), node.view);
    let (same, _) = shared.table.obtain(node.key().clone(), node.view, wish, make);
    if guard.varies(spot) {
        same.mark(Marks::VARIES);
    }
    sealed::told_of(shared, &same);
    Ok(shared.entry(&same, &stat))
}
