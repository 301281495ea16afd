//! Which branches an operation goes to.

use std::fmt::Display;
use std::sync::Arc;

use shuntfs::{Errno, LowerFile, Result, Timestamp};
use shuntfs_sys::{Stat, stat_at, stat_of};

use super::placing::Picking;
use super::refusals::{path_at, refuse_at, tell, why_read_only};
use super::state::Merge;
use crate::answers::timestamp;
use crate::branch::{Branch, MountIndex, touches_on};
use crate::error::errno;
use crate::guard::Spot;
use crate::node::{Node, Parts, Place};
use crate::policy::{Candidate, Category, Function, Pick, Policy};
use crate::shared::Shared;

/// How deep folders are in each other at most.
pub(super) const DEPTH_MAX: usize = 4096;

/// What a name means on one branch.
#[derive(Clone, Debug)]
pub(crate) struct Here {
    /// The folder there.
    pub(crate) mount: MountIndex,
    pub(crate) dir: Arc<LowerFile>,
    /// What has the name.
    pub(crate) stat: Stat,
}

/// What a policy goes by.
#[derive(Debug)]
pub(super) struct Considered {
    /// How many components the path has that must be there.
    pub(super) depth: usize,
    /// The branches, in their order; one that cannot be asked comes into question for nothing.
    pub(super) branches: Vec<(u16, Result<Candidate>)>,
}

impl Considered {
    /// Why a policy picks none of these, in words.
    pub(super) fn why_none(&self, shared: &Shared, pick: &Pick) -> String {
        let known = self.known();
        let why = |(number, candidate): &(u16, Result<Candidate>)| {
            let reason = match candidate {
                Err(error) => format!("it does not answer: {error}"),
                Ok(_) => {
                    let place = known.iter().position(|known| known == number)?;
                    pick.why_not(place)?.to_string()
                }
            };
            Some(format!("{}: {reason}", shared.branches.at(*number).source().display()))
        };
        self.branches.iter().filter_map(why).collect::<Vec<_>>().join("; ")
    }

    /// The numbers of those that come into question.
    pub(super) fn known(&self) -> Vec<u16> {
        let known = |(number, candidate): &(u16, Result<Candidate>)| candidate.is_ok().then_some(*number);
        self.branches.iter().filter_map(known).collect()
    }

    /// What a policy makes of these.
    pub(super) fn pick(&self, policy: &Policy, category: Category, seed: u64) -> Pick {
        let candidates: Vec<Candidate> =
            self.branches.iter().filter_map(|(_, candidate)| candidate.as_ref().ok().copied()).collect();
        policy.pick(category, self.depth, &candidates, seed)
    }
}

/// What a name means on each branch that has it, in their order: one lower call for each that has the folder. One folder that is
/// below two branches counts for the first.
///
/// # Errors
/// Those of looking, of any branch: what is about to change must be known.
pub(crate) fn present(shared: &Shared, spot: Spot<'_>) -> Result<Vec<Here>> {
    let mut all = Vec::new();
    let places = spot.folder.parts().map(Parts::all).unwrap_or_default();
    for (index, place) in places.iter().enumerate() {
        if places[..index].iter().any(|earlier| is_same(shared, earlier, place)) {
            continue;
        }
        let dir = match shared.descriptor_at(spot.folder, place) {
            Err(Errno::STALE) if shared.leaves(spot.folder, place) => continue,
            dir => dir?,
        };
        touches_named(shared, spot, place.mount());
        match stat_at(&*dir, spot.c_name()).map_err(errno) {
            Ok(stat) => all.push(Here { mount: place.mount(), dir, stat }),
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// The next lower call of this thread is on what has a name in a folder on this mount: that may be another mount, whose server may hang.
pub(crate) fn touches_named(shared: &Shared, spot: Spot<'_>, folder: MountIndex) {
    let merge = shared.merge.as_ref();
    let known = merge.and_then(|merge| merge.folder(shared, spot.folder.id, spot.c_name()));
    let place = known.and_then(|known| known.parts()?.on(folder.branch));
    touches_on(place.map_or(folder, |place| place.mount()));
}

/// Whether two places of a folder, on two branches, are one folder below.
fn is_same(shared: &Shared, one: &Place, other: &Place) -> bool {
    let (first, second) = (one.inode(), other.inode());
    let device = |place: &Place| shared.mount(place.mount()).device();
    (first.ino, first.device, &first.handle) == (second.ino, second.device, &second.handle)
        && device(one) == device(other)
}

/// Which of these is shown.
///
/// # Errors
/// ENOENT where there are none.
pub(crate) fn visible<'h>(shared: &Shared, merge: &Merge, all: &'h [Here]) -> Result<&'h Here> {
    let stats: Vec<_> = all.iter().map(|here| (here.mount, here.stat)).collect();
    all.get(merge.shown(shared, &stats)).ok_or(Errno::NOENT)
}

/// Which of these are changed: of those that have the name, the branches that the policy of the function picks.
///
/// # Errors
/// ENOENT where there are none, EROFS where what is shown is on a branch that is read-only: a copy that nobody sees would go in its
/// place, and the caller would take it for done.
pub(crate) fn changed(
    shared: &Shared,
    merge: &Merge,
    (function, spot): (Function, Option<Spot<'_>>),
    all: Vec<Here>,
) -> Result<Vec<Here>> {
    let shown = visible(shared, merge, &all)?.mount;
    let branch = shared.branch(shown);
    if branch.is_still_read_only() {
        return Err(refuse(shared, spot, (Errno::ROFS, shown.branch), why_read_only(branch)));
    }
    let candidate =
        |here: &Here| merge.candidate(shared.branch(here.mount), 1, Some(timestamp(here.stat.mtime)));
    let candidates = all.iter().map(candidate).collect::<Result<Vec<_>>>()?;
    let pick = merge.settings.policy(function).pick(Category::Action, 1, &candidates, merge.seed());
    let chosen = pick.chosen().map_err(|error| {
        let why = |(index, here): (usize, &Here)| {
            let source = shared.branch(here.mount).source().display();
            pick.why_not(index).map(|why| format!("{source}: {why}"))
        };
        let why: Vec<String> = all.iter().enumerate().filter_map(why).collect();
        let policy = merge.settings.policy(function).name();
        let why = format!("the policy {policy} picks none: {}", why.join("; "));
        refuse(shared, spot, (error, shown.branch), why)
    })?;
    let mut chosen = chosen.into_iter().peekable();
    let is_chosen = |(index, here): (usize, Here)| chosen.next_if_eq(&index).map(|_| here);
    Ok(all.into_iter().enumerate().filter_map(is_chosen).collect())
}

/// The same for a name that moves. What is shown moves with it, or nothing does, because that is what the kernel takes the new name for.
///
/// # Errors
/// As [`changed`]; EXDEV where the policy picks copies that nobody sees, so that the caller copies what is seen.
pub(crate) fn moved(
    shared: &Shared,
    merge: &Merge,
    spot: Option<Spot<'_>>,
    all: Vec<Here>,
) -> Result<Vec<Here>> {
    let shown = visible(shared, merge, &all)?.mount;
    let chosen = changed(shared, merge, (Function::Rename, spot), all)?;
    if chosen.iter().any(|here| here.mount == shown) {
        Ok(chosen)
    } else {
        let policy = merge.settings.policy(Function::Rename).name();
        let why = format!("the policy {policy} picks only copies that are not shown");
        Err(refuse(shared, spot, (Errno::XDEV, shown.branch), why))
    }
}

/// An error of an operation on a name, which the log is told; `None` where it is only asked what would become of it.
fn refuse(
    shared: &Shared,
    spot: Option<Spot<'_>>,
    (error, branch): (Errno, u16),
    why: impl Display,
) -> Errno {
    match spot {
        Some(spot) => refuse_at(shared, spot, (error, Some(branch)), why),
        None => error,
    }
}

impl Merge {
    /// Which of several that have one name is shown: an index into them.
    pub(crate) fn shown(&self, shared: &Shared, all: &[(MountIndex, Stat)]) -> usize {
        if self.shows_first() || all.len() < 2 {
            return 0;
        }
        let candidate = |(mount, stat): &(MountIndex, Stat)| {
            self.candidate(shared.branch(*mount), 1, Some(timestamp(stat.mtime)))
        };
        let candidates = all.iter().map(candidate).collect::<Result<Vec<_>>>();
        let pick = |candidates: Vec<Candidate>| {
            self.settings
                .policy(Function::GetAttr)
                .pick(Category::Search, 1, &candidates, self.seed())
                .chosen()
                .ok()
        };
        // A branch that does not say how full it is does not keep its files from being seen.
        candidates.ok().and_then(pick).and_then(|chosen| chosen.first().copied()).unwrap_or(0)
    }

    /// The branches on which something new is made in a folder: one at least.
    ///
    /// # Errors
    /// EROFS, ENOSPC or ENOENT, as the policy says where no branch will do; that of asking where none answers.
    pub(super) fn for_new(
        &self,
        shared: &Shared,
        (folder, name): (&Arc<Node>, &[u8]),
        picking: Picking,
    ) -> Result<Vec<u16>> {
        let mut considered = self.for_something_new(shared, folder, picking.policy)?;
        if let Some(only) = picking.only {
            considered.branches.retain(|(number, _)| *number == only);
            // There is no other one to go to.
            considered.branches.iter().try_for_each(|(_, candidate)| (*candidate).map(drop))?;
        }
        let pick = considered.pick(picking.policy, Category::Create, self.seed());
        let known = considered.known();
        if let (true, Some((_, Err(error)))) = (known.is_empty(), considered.branches.first()) {
            // Nobody knows whether one of them would do.
            return Err(*error);
        }
        let chosen = pick.chosen().inspect_err(|error| {
            tell(shared, *error, None, || {
                let why = considered.why_none(shared, &pick);
                (
                    path_at(shared, folder, name),
                    format!("the policy {} picks none: {why}", picking.policy.name()),
                )
            });
        });
        Ok(chosen?.into_iter().map(|index| known[index]).collect())
    }

    /// What a policy for something new goes by, in a folder.
    ///
    /// # Errors
    /// ELOOP and ESTALE where it is not known which folders are around it.
    pub(super) fn for_something_new(
        &self,
        shared: &Shared,
        folder: &Arc<Node>,
        policy: &Policy,
    ) -> Result<Considered> {
        let chain = chain(shared, folder)?;
        let goes_by_time = policy.name() == "newest";
        let candidate = |number: u16| -> Result<Candidate> {
            let on = |node: &&Arc<Node>| node.parts().is_some_and(|parts| parts.on(number).is_some());
            let depth = chain.iter().rev().take_while(on).count();
            let place = folder.parts().and_then(|parts| parts.on(number));
            let mtime = match place.filter(|_| goes_by_time) {
                Some(place) => Some(mtime_at(shared, folder, &place)?),
                None => None,
            };
            self.candidate(shared.branches.at(number), depth, mtime)
        };
        let branches = shared.branches.order().iter().map(|number| (*number, candidate(*number))).collect();
        Ok(Considered { depth: chain.len(), branches })
    }

    /// How many bytes something new must leave free on a branch.
    pub(crate) fn min_free(&self, branch: &Branch) -> u64 {
        branch.terms().min_free.unwrap_or(self.settings.min_free())
    }

    pub(super) fn candidate(
        &self,
        branch: &Branch,
        depth: usize,
        mtime: Option<Timestamp>,
    ) -> Result<Candidate> {
        // First, because it tells whether the file system is read-only, too.
        let space = branch.space()?;
        Ok(Candidate {
            mode: branch.terms().mode,
            is_read_only: branch.is_mounted_read_only(),
            space,
            min_free: self.min_free(branch),
            depth,
            mtime,
        })
    }
}

fn mtime_at(shared: &Shared, folder: &Arc<Node>, place: &Place) -> Result<Timestamp> {
    let stat = stat_of(shared.descriptor_at(folder, place)?).map_err(errno)?;
    Ok(timestamp(stat.mtime))
}

/// A folder and those around it but the root, from the inside out.
pub(super) fn chain(shared: &Shared, folder: &Arc<Node>) -> Result<Vec<Arc<Node>>> {
    let (mut here, mut chain) = (Arc::clone(folder), Vec::new());
    while let Some((parent, _)) = here.parts().and_then(Parts::way) {
        chain.push(here);
        if chain.len() > DEPTH_MAX {
            return Err(Errno::LOOP);
        }
        here = shared.node(parent)?;
    }
    Ok(chain)
}
