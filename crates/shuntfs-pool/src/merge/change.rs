//! Branches that come, go and change while the pool is mounted.
//!
//! A branch that is removed is in no path any more: its names are not found, and nothing is made there. Files on it that are open
//! go on, through descriptors of their own; when the last one is closed, it is let go of and can be unmounted. Listings go on without it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use shuntfs::{Errno, NodeId, NotifyError};
use shuntfs_sys::OsError;

use super::back::{come_back, tell_of};
use super::control;
use super::open::{check_apart, clean_up, top};
use super::options::BranchOptions;
use super::order::Order;
use super::state::Merge;
use crate::branch::{Branch, BranchTerms, touches_nothing};
use crate::error::PoolError;
use crate::facts::BranchFacts;
use crate::find;
use crate::folding;
use crate::guard::Spot;
use crate::init;
use crate::name_buf::NameBuf;
use crate::node::{Marks, Node, Parts};
use crate::shared::Shared;

/// What happens to the branches of a merge.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum BranchChange {
    /// These come behind those that are there.
    Append(Vec<BranchOptions>),
    /// These come before those that are there.
    Prepend(Vec<BranchOptions>),
    /// These go.
    Remove(Vec<PathBuf>),
    /// These are the branches, in this order. Those that were there before stay as they are, but for their modes and marks.
    Set(Vec<BranchOptions>),
}

/// A branch of the list to come: one that is there, or one that is new.
enum Next {
    Kept(u16, BranchTerms),
    New(Box<Branch>),
}

impl Next {
    fn as_new(&self) -> Option<&Branch> {
        match self {
            Self::Kept(..) => None,
            Self::New(branch) => Some(branch),
        }
    }
}

/// Changes the branches, as a whole or not at all; which they are then.
///
/// # Errors
/// Those of taking hold of a new branch, and of branches that cannot be beside each other; [`PoolError::NoSuchBranch`];
/// [`PoolError::CannotTell`] and [`PoolError::OfMount`], where the kernel cannot be told what changed.
pub(crate) fn change(
    shared: &Shared,
    merge: &Merge,
    change: &BranchChange,
) -> Result<Vec<BranchFacts>, PoolError> {
    change_by(shared, merge, change, 0)
}

/// The same for a request with this number.
///
/// # Errors
/// The same.
pub(super) fn change_by(
    shared: &Shared,
    merge: &Merge,
    change: &BranchChange,
    request: u64,
) -> Result<Vec<BranchFacts>, PoolError> {
    check_kernel(shared)?;
    // A new disk may hang. Only others that come wait for it, so that what exists can be removed.
    let _opening = (!matches!(change, BranchChange::Remove(_))).then(|| merge.opening.lock());
    let new = open_new(shared, change)?;
    prepare(shared, change, &new)?;
    // One change at a time. It is seen if it hangs, and taken from who does.
    let in_flight = merge.begin();
    let changing = merge.changing.take();
    let before = shared.branches.order();
    let next = next(shared, &before, change, new)?;
    let all: Vec<&Branch> = next
        .iter()
        .map(|next| match next {
            Next::Kept(number, _) => shared.branches.at(*number),
            Next::New(branch) => branch,
        })
        .collect();
    check_apart(&all)?;
    // If this server dies, it may have shown what the next one does not, whichever branches that has.
    let untold = Merge::begin_change(shared);
    let mut order = Vec::new();
    for next in next {
        order.push(match next {
            Next::Kept(number, terms) => {
                shared.branches.at(number).set_terms(terms);
                number
            }
            Next::New(branch) => {
                let number = branch.mounts.own().index.branch;
                shared.branches.add(number, *branch);
                number
            }
        });
    }
    let back = {
        // Nobody makes a path meanwhile.
        let alone = merge.order();
        doubt_names(shared, &before, &order);
        let new: Vec<u16> = order.iter().copied().filter(|number| !before.contains(number)).collect();
        let back = come_back(shared, &new);
        shared.branches.set_order(order.clone());
        merge.have_changed();
        settle(shared, merge, &alone, (&before[..], &order[..]));
        // Not before: whoever looks meanwhile does not find folders on new branches yet.
        merge.forget_hints();
        back
    };
    if let Some(engine) = &shared.rules {
        engine.search_soon();
    }
    merge.note_in_force_by(shared, request);
    tell_kernel(shared);
    drop(untold);
    tell_of(shared, &back);
    // First, so that whoever closes a file meanwhile looks, too.
    merge.notice_removed(shared);
    merge.walks.all().iter().for_each(|walk| walk.let_go(shared));
    let_go_of_idle(shared);
    merge.notice_removed(shared);
    drop((changing, in_flight));
    Ok(BranchFacts::of_all(shared, merge))
}

/// Looks at new branches, and clears away what an earlier server has left there. A new disk may hang in each of these calls, and nobody waits for
/// it but others that come: what is in use may go meanwhile, which changes nothing of this.
fn prepare(shared: &Shared, change: &BranchChange, new: &[Option<Next>]) -> Result<(), PoolError> {
    let order = shared.branches.order();
    let staying: Vec<u16> = match change {
        BranchChange::Append(_) | BranchChange::Prepend(_) => order.to_vec(),
        BranchChange::Remove(_) => return Ok(()),
        BranchChange::Set(list) => {
            let there = list.iter().zip(new).filter(|(_, new)| new.is_none());
            let there = there.filter_map(|(branch, _)| Some((known(shared, &order, &branch.path)?, branch)));
            there
                .map(|(number, branch)| check_identity(shared, number, branch).map(|()| number))
                .collect::<Result<_, _>>()?
        }
    };
    let new: Vec<&Branch> = new.iter().flatten().filter_map(Next::as_new).collect();
    let all: Vec<_> =
        staying.iter().map(|number| shared.branches.at(*number)).chain(new.iter().copied()).collect();
    check_apart(&all)?;
    new.iter().try_for_each(|branch| check_new(shared, branch))?;
    new.iter().for_each(|branch| control::warn_if_hidden(branch));
    if !shared.options.read_only {
        new.iter().for_each(|branch| clean_up(branch));
    }
    Ok(())
}

/// Refuses to call a branch that is there otherwise.
fn check_identity(shared: &Shared, number: u16, branch: &BranchOptions) -> Result<(), PoolError> {
    if branch.id.is_some() && branch.id.as_deref() != shared.branches.at(number).id() {
        return Err(PoolError::KeepsIdentity { path: branch.path.clone() });
    }
    Ok(())
}

/// Refuses a new branch that does not go with what was agreed on when the pool was mounted, or with rules that go by names.
fn check_new(shared: &Shared, branch: &Branch) -> Result<(), PoolError> {
    init::check_suits(shared, branch)?;
    if !shared.goes_by_names() {
        return Ok(());
    }
    match folding::of_branch(shared, branch).map_err(|error| PoolError::Names { error })? {
        None => Ok(()),
        Some(why) => Err(PoolError::FoldsNames { path: branch.source().to_owned(), why }),
    }
}

/// Where there are new branches, a file may have names there that its rules do not know: they are unknown until it was searched for them.
fn doubt_names(shared: &Shared, before: &[u16], order: &[u16]) {
    if let Some(engine) = &shared.rules
        && order.iter().any(|number| !before.contains(number))
    {
        engine.index.change().tear();
    }
}

/// Which of these branches has a path, if one has.
fn known(shared: &Shared, order: &[u16], path: &Path) -> Option<u16> {
    let called =
        |path: &Path| order.iter().copied().find(|number| shared.branches.at(*number).source() == path);
    // As it is called first, because a disk that hangs is not to be asked where it is.
    called(path).or_else(|| called(&std::fs::canonicalize(path).ok()?))
}

/// Opens the branches of a change that are new: of a list one for each of its own, and `None` for one that is there.
fn open_new(shared: &Shared, change: &BranchChange) -> Result<Vec<Option<Next>>, PoolError> {
    let mut numbers = shared.branches.free_numbers();
    let mut open = |branch: &BranchOptions| -> Result<Option<Next>, PoolError> {
        let number = numbers.next().ok_or(PoolError::NoNumber)?;
        let opened = Branch::open_one_of(number, branch, (&shared.options, None))?;
        if opened.is_served_here() {
            tracing::warn!(branch = ?branch.path, "it is on a mount that this server itself serves");
            return Err(PoolError::of_source(&branch.path, OsError::LOOP));
        }
        Ok(Some(Next::New(Box::new(opened))))
    };
    match change {
        BranchChange::Append(new) | BranchChange::Prepend(new) => new.iter().map(open).collect(),
        BranchChange::Remove(_) => Ok(Vec::new()),
        BranchChange::Set(list) => {
            let order = shared.branches.order();
            let is_there = |branch: &BranchOptions| known(shared, &order, &branch.path).is_some();
            list.iter().map(|branch| if is_there(branch) { Ok(None) } else { open(branch) }).collect()
        }
    }
}

/// The list to come, with those that are new.
fn next(
    shared: &Shared,
    before: &[u16],
    change: &BranchChange,
    new: Vec<Option<Next>>,
) -> Result<Vec<Next>, PoolError> {
    let kept = |number: &u16| Next::Kept(*number, shared.branches.at(*number).terms());
    let all = || before.iter().map(kept);
    let find = |path: &PathBuf| {
        known(shared, before, path).ok_or_else(|| PoolError::NoSuchBranch { path: path.clone() })
    };
    match change {
        BranchChange::Append(_) => Ok(all().chain(new.into_iter().flatten()).collect()),
        BranchChange::Prepend(_) => Ok(new.into_iter().flatten().chain(all()).collect()),
        BranchChange::Remove(paths) => {
            let gone = paths.iter().map(find).collect::<Result<Vec<_>, _>>()?;
            Ok(before.iter().filter(|number| !gone.contains(number)).map(kept).collect())
        }
        BranchChange::Set(list) => {
            let one = |(branch, new): (&BranchOptions, Option<Next>)| {
                if let Some(new) = new {
                    return Ok(new);
                }
                // It may have been removed meanwhile.
                let number = find(&branch.path)?;
                check_identity(shared, number, branch)?;
                Ok(Next::Kept(number, BranchTerms { mode: branch.mode, min_free: branch.min_free }))
            };
            list.iter().zip(new).map(one).collect()
        }
    }
}

/// Where the kernel keeps names until it is told otherwise, it must be possible to tell it.
pub(super) fn check_kernel(shared: &Shared) -> Result<(), PoolError> {
    let notifier = shared.notifier.get().filter(|_| shared.is_ours_alone());
    match notifier.map(shuntfs::Notifier::new_epoch) {
        Some(Err(NotifyError::Unsupported)) => Err(PoolError::CannotTell),
        _ => Ok(()),
    }
}

/// Has each folder that the kernel knows be on the branches that it is on now, but for those that are left when a new disk hangs, and the order is removed for
/// it: they are found there when they are looked up.
fn settle(shared: &Shared, merge: &Merge, alone: &Order<'_>, (before, order): (&[u16], &[u16])) {
    // As where only modes change.
    if before == order {
        return;
    }
    let Some(root) = shared.root.parts() else { return };
    let new: Vec<u16> = order.iter().copied().filter(|number| !before.contains(number)).collect();
    let gone: Vec<u16> = before.iter().copied().filter(|number| !order.contains(number)).collect();
    for number in &new {
        root.join(top(shared.branches.at(*number)), order, merge.shows_first());
    }
    // Each is examined once, because there may be very many, and whoever makes a path waits.
    let mut inside: HashMap<NodeId, Vec<Arc<Node>>> = HashMap::new();
    for node in shared.table.all() {
        if let Some((parent, _)) = node.parts().and_then(Parts::way) {
            inside.entry(parent).or_default().push(node);
        }
    }
    let mut outer = vec![Arc::clone(&shared.root)];
    while let Some(folder) = outer.pop() {
        if let Some(parts) = folder.parts() {
            gone.iter().for_each(|number| parts.leave(*number));
            // They may be others by now, where the order was removed.
            parts.reorder(&shared.branches.order(), merge.shows_first());
        }
        let here = inside.remove(&folder.id).unwrap_or_default();
        for node in &here {
            for number in &new {
                // However many there are, each is looked for in a call of its own.
                touches_nothing();
                if alone.is_held() {
                    join(shared, alone, (&folder, node), (*number, order));
                }
            }
        }
        outer.extend(here);
    }
    touches_nothing();
}

/// A folder is on a new branch, too, if that has the folder around it, and a folder of this name there.
fn join(
    shared: &Shared,
    alone: &Order<'_>,
    (outer, node): (&Arc<Node>, &Arc<Node>),
    (number, order): (u16, &[u16]),
) {
    let (Some(around), Some(parts)) = (outer.parts().and_then(|parts| parts.on(number)), node.parts()) else {
        return;
    };
    let look = || -> shuntfs::Result<()> {
        let (_, name) = parts.way().ok_or(Errno::STALE)?;
        let name = NameBuf::new(shuntfs::Name::new(&name).ok_or(Errno::INVAL)?)?;
        let dir = &*shared.descriptor_at(outer, &around)?;
        let found = find::find_at(shared, Spot { folder: outer, mount: around.mount(), dir, name: &name })?;
        if found.stat.is_dir()
            && alone.is_held()
            && let Some(place) = found.into_places().pop()
        {
            parts.join(place, order, false);
        }
        Ok(())
    };
    match look() {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(_) => node.doubt(true),
    }
}

/// Has the kernel forget what it believes of names and folders.
pub(super) fn tell_kernel(shared: &Shared) {
    let Some(notifier) = shared.notifier.get().filter(|_| !shared.ttl().is_zero()) else { return };
    match notifier.new_epoch() {
        // It was checked whether the kernel can be told where names are kept for longer than a moment.
        Ok(()) | Err(NotifyError::Unsupported) => {}
        Err(error) => tracing::warn!(%error, "the kernel may believe old names"),
    }
    let folders = shared.table.all().into_iter().filter(|node| node.parts().is_some());
    for folder in std::iter::once(NodeId::ROOT).chain(folders.map(|node| node.id)) {
        // An epoch is one of names: a listing may be kept beyond it (seen on Linux 6.18).
        match notifier.data(folder, 0, 0) {
            Ok(()) | Err(NotifyError::Unknown | NotifyError::Ended) => {}
            Err(error) => tracing::warn!(%error, "the kernel may believe an old listing"),
        }
    }
}

/// A file was closed. Lets go of the branches that were removed, and of which nothing is open any more.
pub(crate) fn release(shared: &Shared, merge: &Merge, closed: &Node) {
    if shared.branch(closed.mount()).is_let_go() {
        // It was being opened when nothing there was open yet.
        give_up(shared, closed);
    }
    if !merge.has_removed() {
        return;
    }
    let_go_of_idle(shared);
    // Alone, so that it does not overwrite what is noted of a later change. Where there is one under way, that or the next close does it.
    if let Some(_changing) = merge.changing.try_take() {
        merge.notice_removed(shared);
    }
}

/// Lets go of the branches that were removed, and of which nothing is open: only then are all nodes looked at.
fn let_go_of_idle(shared: &Shared) {
    let idle = shared.branches.removed().filter(|(_, branch)| branch.opens() == 0 && branch.let_go());
    let gone: Vec<u16> = idle.map(|(number, _)| number).collect();
    if gone.is_empty() {
        return;
    }
    shared.merge.iter().for_each(|merge| merge.note_in_force(shared));
    for node in shared.table.all() {
        match node.parts() {
            Some(parts) => {
                let places: Vec<_> = gone.iter().filter_map(|number| parts.on(*number)).collect();
                if !places.is_empty() && node.unmark(Marks::KEPT_OPEN) {
                    // Before its descriptor goes, which may be what is written down of it.
                    shared.table.renamed(&node);
                }
                places.iter().for_each(|place| drop(place.give_up(|| false)));
            }
            None if gone.contains(&node.place().mount().branch) => give_up(shared, &node),
            None => {}
        }
    }
}

/// Gives up what is held of a file on a branch that was let go of. Where it is being opened just now, its close does that.
fn give_up(shared: &Shared, node: &Node) {
    if let Some(notifier) = shared.notifier.get() {
        notifier.drop_backing(node.id);
    }
    if node.opens() == 0 {
        if node.place().handle().is_none() || node.has(Marks::KEPT_OPEN) {
            // Before its descriptor goes, which is what is written down of it.
            shared.table.keep_no_more(node);
        }
        node.unmark(Marks::PINNED);
        drop(node.drop_descriptor());
    }
}
