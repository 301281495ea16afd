//! Folders on the branches where something is made in them: the path is made there, where it is missing.

use std::sync::Arc;

use shuntfs::{Errno, NodeId, Result};
use shuntfs_sys::stat_of;

use super::choose::{Here, chain, present};
use super::order::Order;
use super::placing::{New, Picking, placed};
use super::refusals::{path_at, refuse_folder, tell};
use super::state::Merge;
use crate::error::errno;
use crate::find;
use crate::guard::{self, Spot};
use crate::name_buf::NameBuf;
use crate::node::{Node, Parts, Place};
use crate::shared::{Folder, Shared};

/// The folder in which something new is made: in a merge on the branch that its policy picks, or that a rule names.
///
/// # Errors
/// Those of the policy and of rules, and those of making the path.
pub(crate) fn for_new(shared: &Shared, id: NodeId, new: &New<'_>) -> Result<Folder> {
    match &shared.merge {
        None => shared.folder(id),
        Some(merge) => {
            let (node, picking, picked) = picked(shared, merge, id, new)?;
            retrying(shared, merge, (&node, new.name, picking), picked.first().copied())
        }
    }
}

/// The same, on each branch that the policy picks: one at least.
///
/// # Errors
/// As [`for_new`], of the first one; what fails on others is left out.
pub(crate) fn for_new_everywhere(
    shared: &Shared,
    id: NodeId,
    new: &New<'_>,
) -> Result<(Folder, Vec<Folder>)> {
    let Some(merge) = &shared.merge else { return Ok((shared.folder(id)?, Vec::new())) };
    let (node, picking, picked) = picked(shared, merge, id, new)?;
    let (first, others) = picked.split_first().ok_or(Errno::NOENT)?;
    let first = retrying(shared, merge, (&node, new.name, picking), Some(*first))?;
    let others = others.iter().filter_map(|branch| {
        let made = made_on(shared, merge, &node, *branch);
        made.inspect_err(|error| tracing::warn!(%error, branch, "no path is made there")).ok()
    });
    Ok((first, others.collect()))
}

/// A server that is dead had begun to make something in a folder: the way there may be unfinished on the branch that it had picked. Finishes it.
///
/// # Errors
/// Those of the way, and of finishing a folder on it.
pub(crate) fn finish_way(shared: &Shared, id: NodeId) -> Result<()> {
    if shared.merge.is_none() {
        return Ok(());
    }
    for folder in chain(shared, &shared.node(id)?)?.iter().rev() {
        let places = folder.parts().map(Parts::all).unwrap_or_default();
        for place in &places {
            // It is a copy of where the folder is shown, or, if it is shown itself by now, of another.
            let others = places.iter().filter(|other| other.mount() != place.mount());
            let Some(from) = others.min_by_key(|other| is_closed(shared, folder, other)) else { break };
            let (from, made) = (shared.descriptor_at(folder, from)?, shared.descriptor_at(folder, place)?);
            guard::go_on_cloning(shared, &from, &made, place.mount().branch)?;
        }
    }
    Ok(())
}

/// Whether a folder in one of its places may be unfinished, by its mode.
fn is_closed(shared: &Shared, folder: &Arc<Node>, place: &Place) -> bool {
    let stat = shared.descriptor_at(folder, place).and_then(|held| stat_of(&held).map_err(errno));
    stat.is_ok_and(|stat| stat.mode & 0o7777 == 0o700)
}

/// The folder in which a server that is dead has made something, where it had begun to: on the first branch that has the name. Of several folders that
/// are picked it is one, and otherwise it takes the place of the one.
///
/// # Errors
/// Those of looking.
pub(crate) fn picked_before(
    shared: &Shared,
    name: &NameBuf,
    (first, others): (Folder, Vec<Folder>),
) -> Result<(Folder, Vec<Folder>)> {
    if shared.merge.is_none() || !others.is_empty() {
        return Ok((first, others));
    }
    let there = present(shared, first.spot(name))?;
    let place = |here: &Here| first.node.parts()?.on(here.mount.branch);
    match there.first().and_then(place) {
        Some(place) => Ok((shared.folder_at(Arc::clone(&first.node), &place)?, others)),
        None => Ok((first, others)),
    }
}

/// The folder on a branch, for what comes there from elsewhere on the same branch.
///
/// # Errors
/// EXDEV where it does not exist and the create policy keeps paths; those of making the path.
pub(crate) fn on_branch(
    shared: &Shared,
    merge: &Merge,
    order: &Order<'_>,
    node: &Arc<Node>,
    branch: u16,
) -> Result<Folder> {
    let place = node.parts().ok_or(Errno::NOTDIR)?.on(branch);
    match place.filter(|place| !shared.leaves(node, place)) {
        Some(place) => shared.folder_at(Arc::clone(node), &place),
        None if merge.keeps_paths() => {
            let why =
                "the folder that it would come to is not on its branch, and the create policy keeps paths";
            Err(refuse_folder(shared, node, (Errno::XDEV, branch), why))
        }
        None => grow(shared, merge, order, (node, branch)),
    }
}

fn picked(
    shared: &Shared,
    merge: &Merge,
    id: NodeId,
    new: &New<'_>,
) -> Result<(Arc<Node>, Picking, Vec<u16>)> {
    shared.check_writable()?;
    let node = shared.node(id)?;
    let parts = node.parts().ok_or(Errno::NOTDIR)?;
    // The kernel asks for nameless files in a folder that was removed, too. Another folder may have its name by now.
    if node.id != NodeId::ROOT && parts.way().is_none() {
        return Err(Errno::NOENT);
    }
    let picking = placed(shared, merge, &node, new)?.picking;
    let picked = merge.for_new(shared, (&node, new.name), picking)?;
    Ok((node, picking, picked))
}

/// Makes the path on a branch; where that turns out to be read-only, on another. Where the folder was removed below, the policy picks anew.
fn retrying(
    shared: &Shared,
    merge: &Merge,
    (node, name, picking): (&Arc<Node>, &[u8], Picking),
    branch: Option<u16>,
) -> Result<Folder> {
    let mut branch = branch.ok_or(Errno::NOENT)?;
    loop {
        match made_on(shared, merge, node, branch) {
            Err(Errno::ROFS) if shared.branches.at(branch).refused() => {}
            Err(Errno::STALE) if shared.leaves_any(node) => {}
            outcome => {
                return outcome.inspect_err(|error| {
                    let why = "a folder that it needs on the branch cannot be made there";
                    tell(shared, *error, Some(branch), || (path_at(shared, node, name), why));
                });
            }
        }
        branch = merge.for_new(shared, (node, name), picking)?.first().copied().ok_or(Errno::ROFS)?;
    }
}

/// The folder on a branch, made there where it is missing.
pub(super) fn made_on(shared: &Shared, merge: &Merge, node: &Arc<Node>, branch: u16) -> Result<Folder> {
    match node.parts().and_then(|parts| parts.on(branch)) {
        Some(place) => shared.folder_at(Arc::clone(node), &place),
        None => grow(shared, merge, &merge.order(), (node, branch)),
    }
}

/// Makes the way to a folder on a branch durable, where the folders on it were just made: not every file system does that when what is in them is synced.
pub(super) fn sync_way(shared: &Shared, node: &Arc<Node>, branch: u16) -> Result<()> {
    for inner in chain(shared, node)? {
        let Some((outer, _)) = inner.parts().and_then(Parts::way) else { continue };
        let outer = shared.node(outer)?;
        if let Some(place) = outer.parts().and_then(|parts| parts.on(branch)) {
            guard::sync_folder(&*shared.descriptor_at(&outer, &place)?).map_err(errno)?;
        }
    }
    Ok(())
}

/// The same, with the folders around it, for who has the order.
pub(super) fn grow(
    shared: &Shared,
    merge: &Merge,
    _: &Order<'_>,
    (node, branch): (&Arc<Node>, u16),
) -> Result<Folder> {
    let on = |node: &Arc<Node>| node.parts().and_then(|parts| parts.on(branch));
    let (mut missing, mut here) = (Vec::new(), Arc::clone(node));
    while on(&here).is_none_or(|place| shared.leaves(&here, &place)) {
        // The root is on every branch.
        let (parent, name) = here.parts().and_then(Parts::way).ok_or(Errno::STALE)?;
        let parent = shared.node(parent)?;
        missing.push((here, name));
        here = parent;
    }
    let place = on(&here).ok_or(Errno::STALE)?;
    let mut outer = shared.folder_at(here, &place)?;
    while let Some((node, name)) = missing.pop() {
        let name = NameBuf::new(shuntfs::Name::new(&name).ok_or(Errno::INVAL)?)?;
        let spot = Spot { folder: &outer.node, mount: outer.mount, dir: &outer.descriptor, name: &name };
        let from = shared.descriptor(&node)?;
        let cloned = guard::clone_folder(shared, &from, spot);
        // It may be on the branch whose attributes are shown, and the kernel only knows about the innermost one.
        shared.doubt_attributes(outer.node.id);
        cloned?;
        let found = find::find_at(shared, spot)?;
        if !found.stat.is_dir() {
            return Err(Errno::NOTDIR);
        }
        if let (Some(parts), Some(place)) = (node.parts(), found.into_places().pop()) {
            parts.join(place, &shared.branches.order(), merge.shows_first());
        }
        let place = on(&node).ok_or(Errno::STALE)?;
        outer = shared.folder_at(node, &place)?;
    }
    Ok(outer)
}
