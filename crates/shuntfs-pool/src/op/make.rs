//! MKNOD, MKDIR, SYMLINK and LINK: everything that gets a name and is not opened.

use std::ffi::CStr;

use shuntfs::{Entry, Errno, NodeId, Result};
use shuntfs_sys::stat_of;

use crate::branch::was_left;
use crate::error::errno;
use crate::find;
use crate::guard::{Arrival, Coming, Guard, Made, NameComes, SecondName};
use crate::merge::{self, New};
use crate::name_buf::NameBuf;
use crate::node::{Marks, Node};
use crate::sealed;
use crate::shared::{Folder, Shared};
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

/// Makes a name, on each branch of a merge that the policy picks, and tells what it means.
fn make(shared: &Shared, who: Who, parent: NodeId, name: &NameBuf, what: Coming<'_>) -> Result<Entry> {
    if shared.is_ruled_merge() {
        match Guard::new(shared, who).judge_before(shared.folder(parent)?.spot(name), what) {
            // A server that is dead may have made it for this very request, which is seen where that is made.
            Err(Errno::EXIST) if who.is_begun() => {}
            judged => judged?,
        }
    }
    let new = New::of(&who, name.as_c_str().to_bytes(), what);
    if who.is_begun() {
        merge::finish_way(shared, parent)?;
    }
    loop {
        let mut picked = merge::for_new_everywhere(shared, parent, &new)?;
        if who.is_begun() {
            picked = merge::picked_before(shared, name, picked)?;
        }
        let (folder, others) = picked;
        match make_in(shared, who, (&folder, &others), name, what) {
            // It is not picked again.
            Err(Errno::ROFS) if shared.has_refused(&folder) => {}
            Err(Errno::NOENT | Errno::STALE) if shared.leaves_any(&folder.node) => {}
            outcome => return outcome,
        }
    }
}

fn make_in(
    shared: &Shared,
    who: Who,
    (folder, others): (&Folder, &[Folder]),
    name: &NameBuf,
    what: Coming<'_>,
) -> Result<Entry> {
    let (guard, spot) = (Guard::new(shared, who), folder.spot(name));
    let untold = guard.judge(NameComes { spot, what })?.make(shared)?;
    // Not for who was told EIO, because the first disk hung.
    for other in others.iter().take_while(|_| !was_left()) {
        let made =
            guard.judge(NameComes { spot: other.spot(name), what }).and_then(|judged| judged.make(shared));
        match made {
            Ok(untold) => untold.told(),
            Err(error) => tracing::warn!(%error, "it is not made on every branch that was picked"),
        }
    }
    if let Some(merge) = shared.merge.as_ref().filter(|_| !others.is_empty()) {
        merge.forget_hint(spot);
    }
    let looked = if others.is_empty() { find::find_at(shared, spot) } else { find::find(shared, spot) };
    let found = match looked {
        Err(Errno::NOENT) => {
            // Somebody has removed it below: there is no such name, as the kernel believes.
            untold.told();
            shared.doubt_attributes(folder.node.id);
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
    let node = shared.node(id)?;
    let guard = Guard::new(shared, who);
    let held = guard.hold(&[])?;
    if shared.is_ruled_merge() {
        // Before a path is made for it.
        let shown = shared.folder(parent)?;
        let spot = shown.spot(name);
        guard.judge(SecondName { node: &node, spot, held: &held }).map(drop)?;
        match guard.check_free(spot) {
            Err(Errno::EXIST) if who.is_begun() => {}
            free => free?,
        }
    }
    if who.is_begun() {
        merge::finish_way(shared, parent)?;
    }
    // To the end, so that the file does not get another place meanwhile: it would have two names then, and lose one.
    let order = shared.merge.as_ref().map(|merge| (merge, merge.order()));
    let folder = match &order {
        None => shared.folder(parent)?,
        Some((merge, order)) => {
            shared.check_branch(&node)?;
            merge::on_branch(shared, merge, order, &shared.node(parent)?, node.mount().branch)?
        }
    };
    if folder.mount != node.mount() {
        let (branch, why) = (node.mount().branch, "the folder is on another file system than the file");
        return Err(merge::refuse_at(shared, folder.spot(name), (Errno::XDEV, Some(branch)), why));
    }
    let spot = folder.spot(name);
    let untold = guard.judge(SecondName { node: &node, spot, held: &held })?.link(shared)?;
    let stat = stat_of(shared.descriptor(&node)?).map_err(errno);
    if stat.is_err() {
        shared.doubt_attributes(id);
    }
    let stat = stat?;
    untold.told();
    drop(held);
    // The kernel holds the node while it asks for a link to it, so this finds the same one.
    let make = |id, identity| Node::new(id, identity, node.view, stat.mode);
    let wish = shared.lasting_number(node.place().inode(), node.view);
    let (same, _) = shared.table.obtain(node.key().clone(), node.view, wish, make);
    if guard.varies(spot) {
        same.mark(Marks::VARIES);
    }
    sealed::told_of(shared, &same);
    Ok(shared.entry(&same, &stat))
}
