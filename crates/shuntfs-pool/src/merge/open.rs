//! Taking hold of the branches of a merge.

use std::sync::Arc;

use shuntfs::NodeId;

use super::control;
use super::options::MergeOptions;
use super::state::Merge;
use crate::branch::{Branch, Branches};
use crate::error::PoolError;
use crate::folders;
use crate::guard;
use crate::lasting::Fleeting;
use crate::node::{Identity, Node, Parts, Place};
use crate::options::PoolOptions;
use crate::shared::Shared;

/// How many branches a merge has at most; each keeps descriptors.
const BRANCHES_MAX: usize = 256;

/// Opens the branches of a merge.
pub(crate) fn open(
    merge: &MergeOptions,
    options: &PoolOptions,
    has_seals: bool,
) -> Result<Branches, PoolError> {
    if has_seals {
        return Err(PoolError::NotOfMerges { what: "seals", why: "a name may mean a file on each of them" });
    }
    if let Some(why) = Fleeting::of_numbers(merge.inode_calc).filter(|_| options.handles) {
        return Err(PoolError::Handles { path: options.source.clone(), why });
    }
    if let Some(kept) = &options.kept {
        let branches = kept.open_all(options)?;
        check_apart(&branches.in_use())?;
        return Ok(branches);
    }
    let count = merge.branches.len();
    if count > BRANCHES_MAX {
        return Err(PoolError::TooManyBranches { count, max: BRANCHES_MAX });
    }
    let numbers = 0..u16::try_from(count).expect("at most 256");
    let branches = numbers.zip(&merge.branches);
    let branches = branches.map(|(number, branch)| Branch::open_one_of(number, branch, (options, None)));
    let branches = branches.collect::<Result<Vec<_>, _>>()?;
    check_apart(&branches.iter().collect::<Vec<_>>())?;
    if !options.read_only {
        branches.iter().for_each(clean_up);
    }
    branches.iter().for_each(control::warn_if_hidden);
    Ok(Branches::several(branches))
}

/// Does what [`open`] leaves out where another server may go on: the dead one's copies are locked until all that it had open is closed, and it may not
/// have told the kernel what it had changed.
pub(crate) fn settle_in(shared: &Shared) {
    Merge::tell_what_is_left(shared);
    if !shared.options.read_only {
        shared.branches.in_use().into_iter().for_each(clean_up);
    }
}

/// Removes what an earlier server has left half copied on a branch.
pub(super) fn clean_up(branch: &Branch) {
    if branch.is_read_only() {
        return;
    }
    match guard::remove_unfinished(branch.root()) {
        Ok(0) => {}
        Ok(count) => {
            tracing::info!(branch = ?branch.source(), count, "unfinished copies of an earlier server are removed")
        }
        Err(error) => {
            tracing::warn!(branch = ?branch.source(), %error, "unfinished copies of an earlier server may be left")
        }
    }
}

/// Refuses branches that cannot be beside each other.
///
/// # Errors
/// Where there are none or too many, and where one is another one or inside it.
pub(super) fn check_apart(branches: &[&Branch]) -> Result<(), PoolError> {
    if branches.is_empty() {
        return Err(PoolError::NoBranch);
    }
    if branches.len() > BRANCHES_MAX {
        return Err(PoolError::TooManyBranches { count: branches.len(), max: BRANCHES_MAX });
    }
    for (index, branch) in branches.iter().enumerate() {
        let path = branch.source().to_owned();
        for other in branches.iter().take(index).chain(&branches[index + 1..]) {
            let named = other.source();
            if branch.identity_below() == other.identity_below() || path == named {
                return Err(PoolError::SameBranch { path, other: named.to_owned() });
            }
            if let Some(id) = branch.id().filter(|id| other.id() == Some(*id)) {
                return Err(PoolError::SameIdentity { path, other: named.to_owned(), id: id.to_owned() });
            }
            if path.starts_with(named) {
                return Err(PoolError::BranchInside { path, other: named.to_owned() });
            }
        }
    }
    Ok(())
}

/// The number that the root is shown with where handles last: an NFS client must not see another one when branches come in another order.
const ROOT_INO: u64 = 1;

/// The root of a merge, which is on every branch.
pub(crate) fn root(branches: &Branches, options: &PoolOptions) -> Node {
    let all = branches.in_use();
    let first = all[0];
    let shown = first.mounts.own().index.branch;
    let places = all.iter().map(|branch| top(branch)).collect();
    let kept = options.kept.as_ref().and_then(|kept| kept.root_ino());
    let ino = kept.unwrap_or_else(|| if options.handles { ROOT_INO } else { first.root_ino() });
    let parts = Parts::new(ino, places, shown, None);
    Node::folder(NodeId::ROOT, Identity::of_folder(folders::ROOT), first.mode(), parts)
}

/// The top of a branch, which is a place of the root.
pub(super) fn top(branch: &Branch) -> Place {
    let place = Place::new(branch.identity());
    drop(place.keep(Arc::clone(branch.root())));
    place
}
