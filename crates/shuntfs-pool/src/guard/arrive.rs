//! Names that are met or made, and the nodes that they lead to: for lookups, listings and creations alike.

use std::sync::Arc;

use shuntfs::{Entry, Errno, LookupCount, NodeId, Result};
use shuntfs_rules::{Decision, Use};
use shuntfs_sys::Stat;

use super::after;
use super::change::{Coming, Spot};
use super::judge::Guard;
use super::names::NameComes;
use crate::find::{self, Found};
use crate::folding;
use crate::merge;
use crate::node::Node;
use crate::rules::Asking;
use crate::sealed;
use crate::shared::Shared;
use crate::view::Seen;

/// How often a name may be changed while it is looked up, before the kernel is to look again.
const RACES_MAX: usize = 16;

/// How somebody came to a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arrival {
    /// It was there.
    Met,
    /// It was just made by who asks.
    Made,
}

/// The node of a name, its lookup count raised.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) node: Arc<Node>,
    pub(crate) stat: Stat,
}

impl Arrived {
    /// What the kernel is told.
    pub(crate) fn entry(&self, shared: &Shared) -> Entry {
        shared.entry(&self.node, &self.stat)
    }
}

impl Guard<'_> {
    /// Refuses a name that is there for nobody, before anybody looks below.
    ///
    /// # Errors
    /// ENOENT for the store of a sealed source, and for what the control file of a merge hides, and for copies that are not finished; EOPNOTSUPP in a folder that takes different names for the same, where names
    /// decide.
    pub(crate) fn check_sight(&self, spot: Spot<'_>) -> Result<()> {
        folding::check(self.shared, spot.folder, spot.dir)?;
        let is_ours = sealed::is_store(self.shared, spot.folder.id, spot.bytes())
            || merge::is_reserved(self.shared, spot.folder.id, spot.name);
        if is_ours { Err(Errno::NOENT) } else { Ok(()) }
    }

    /// Refuses a name that is there and hidden from whoever opens it by making it.
    ///
    /// # Errors
    /// EACCES, as for making it where it does not exist; EPERM for the store of a sealed source, and for the control file of a merge.
    pub(crate) fn check_overwritten(&self, spot: Spot<'_>) -> Result<()> {
        folding::check(self.shared, spot.folder, spot.dir)?;
        merge::check_name(self.shared, spot.folder.id, spot.name)?;
        if sealed::is_store(self.shared, spot.folder.id, spot.bytes()) {
            return Err(Errno::PERM);
        }
        self.asking.as_ref().map_or(Ok(()), |asking| asking.refuse_hidden(spot))
    }

    /// What is asked in a merge under rules before a path is made for something new, on whatever branch that will be: whether it may come, and
    /// whether its name is there on any branch. Where a rule hides it, the kernel believes that it is not.
    ///
    /// # Errors
    /// Those of the judgement, EEXIST where the name is there, and EACCES where it is there and hidden from the caller.
    pub(crate) fn judge_before(&self, spot: Spot<'_>, what: Coming<'_>) -> Result<()> {
        self.judge(NameComes { spot, what }).map(drop)?;
        self.check_free(spot)
    }

    /// Refuses to make what exists already on some branch, for whoever does not see it.
    ///
    /// # Errors
    /// EEXIST, and EACCES where it is hidden from the caller; those of looking.
    pub(crate) fn check_free(&self, spot: Spot<'_>) -> Result<()> {
        match find::find(self.shared, spot) {
            Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error),
            Ok(found) => match &self.asking {
                Some(asking) if asking.hides_found(spot, &found)? => Err(Errno::ACCES),
                _ => Err(Errno::EXIST),
            },
        }
    }

    /// Refuses to say of a sealed name that there is nothing: somebody has removed it below.
    ///
    /// # Errors
    /// EIO; ENOENT where rules may hide the name, and nobody is to hear that there should be something.
    pub(crate) fn check_absence(&self, spot: Spot<'_>) -> Result<()> {
        let claim = sealed::look(self.shared, spot.folder.id, spot.bytes())?;
        if !claim.is_sealed() {
            return Ok(());
        }
        let may_hide = |asking: &Asking<'_>| asking.possible_at(spot).map_or(true, |possible| possible.hide);
        if self.asking.as_ref().is_some_and(may_hide) {
            return Err(Errno::NOENT);
        }
        Err(sealed::missing(self.shared, claim))
    }

    /// The node of what a name was found to mean, as the caller sees it; the name and the seal are noted.
    ///
    /// # Errors
    /// ENOENT where the name is hidden from the caller, EACCES where a rule cannot be evaluated, and those of the manifest:
    /// where it does not tell, nobody knows what is sealed. EIO where the name was sealed as something else.
    pub(crate) fn arrive(&self, spot: Spot<'_>, found: Found, arrival: Arrival) -> Result<Arrived> {
        let shared = self.shared;
        let mut found = found;
        for _ in 0..RACES_MAX {
            let (moment, identity, switches) = (found.moment, found.identity.clone(), found.switches);
            if arrival == Arrival::Met {
                found.check_room(shared)?;
                after::met(shared, spot, &found);
            }
            if let Some(arrived) = self.arrive_once(spot, found, arrival)? {
                let is_settled =
                    || !shared.has_switched(switches) && after::note_met(shared, spot, &arrived, moment);
                if arrival == Arrival::Made || is_settled() {
                    return Ok(arrived);
                }
                shared.forget(arrived.node.id, LookupCount(1));
            }
            found = find::find(shared, spot)?;
            if found.identity != identity && !shared.has_switched(switches) {
                return Err(Errno::STALE);
            }
        }
        Err(Errno::STALE)
    }

    /// `None` where the seal wants another node, which is there when one looks again.
    fn arrive_once(&self, spot: Spot<'_>, found: Found, arrival: Arrival) -> Result<Option<Arrived>> {
        let shared = self.shared;
        let (seen, seal) = match arrival {
            Arrival::Met => {
                let seal = sealed::look(shared, spot.folder.id, spot.bytes())?;
                let seen = self.asking.as_ref().map_or(Ok(Seen::ALL), |asking| see(asking, spot, &found))?;
                (seen, seal)
            }
            // It is seen whole by its maker, who else could not have made it; and no name of the manifest is made.
            Arrival::Made => (Seen { varies: self.varies(spot), ..Seen::ALL }, sealed::nothing(shared)),
        };
        let (node, stat) = find::obtain_by(shared, spot, found, seen);
        if arrival == Arrival::Made {
            find::is_new(shared, &node);
            after::note(shared, spot, &node);
        }
        let noted = sealed::note(shared, &node, &stat, seal);
        if noted != Ok(true) {
            shared.forget(node.id, LookupCount(1));
        }
        Ok(noted?.then_some(Arrived { node, stat }))
    }

    /// The same for a file that was made in a folder and has no name.
    pub(crate) fn arrive_nameless(&self, folder: NodeId, found: Found) -> Arrived {
        let (node, stat) = find::obtain(self.shared, found, Seen::ALL);
        find::is_new(self.shared, &node);
        after::note_nameless(self.shared, folder, &node);
        sealed::told_of(self.shared, &node);
        Arrived { node, stat }
    }
}

/// What the caller sees by a name that was found.
fn see(asking: &Asking<'_>, spot: Spot<'_>, found: &Found) -> Result<Seen> {
    let (rules, engine, shared) = (asking.rules(), asking.engine, asking.shared);
    if !rules.hides() && !rules.redacts() {
        return Ok(Seen::ALL);
    }
    let path = asking.path_of(spot)?;
    let may_have_others = found.stat.nlink > 1 || shared.has_twins();
    if !may_have_others && !asking.at(&path).is_touched() {
        return Ok(Seen::ALL);
    }
    if asking.hides_found(spot, found)? {
        return Err(Errno::NOENT);
    }
    let mut seen = Seen { varies: asking.possible_at(spot)?.varies, ..Seen::ALL };
    if !found.stat.is_file() {
        return Ok(seen);
    }
    let mut paths = vec![path];
    if may_have_others {
        let known = engine.names_of_inode(shared, &found.identity, found.stat.nlink);
        let others = asking.all_of(known, &asking.of_found(found, &paths[0]))?;
        paths.extend(others);
        shared.add_aliases(&mut paths);
        paths.sort_unstable();
        paths.dedup();
    }
    let mut strictest = Decision::default();
    for path in paths {
        let possible = asking.at(&path).possible();
        if possible.redact {
            seen.varies |= possible.varies;
            strictest = strictest.strictest(asking.decide(&asking.of_found(found, &path), Use::LOOK)?);
        }
    }
    seen.view = shared.views.of(&strictest.redact);
    Ok(seen)
}
