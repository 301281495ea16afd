//! Where something new is made: by the policy of its function, or as a rule says.

use std::path::Path;
use std::sync::Arc;

use shuntfs::{Errno, Result};
use shuntfs_rules::{Attributes, CallerFacts, OpenWord, Rules, Use};

use super::choose::chain;
use super::state::Merge;
use crate::branch::Branches;
use crate::error::PoolError;
use crate::guard::Coming;
use crate::node::{Node, Parts};
use crate::policy::{Function, Policy};
use crate::rules::OfNew;
use crate::shared::Shared;
use crate::who::Who;

/// Something that is about to be made.
#[derive(Clone, Copy)]
pub(crate) struct New<'n> {
    pub(crate) function: Function,
    /// Who makes it.
    caller: &'n dyn CallerFacts,
    /// Empty where it has no name.
    pub(super) name: &'n [u8],
    attributes: Attributes,
    how: Use,
}

impl<'n> New<'n> {
    /// What a request makes.
    pub(crate) fn of(who: &'n Who, name: &'n [u8], what: Coming<'_>) -> Self {
        let function = match what {
            Coming::File { .. } => Function::Create,
            Coming::Folder { .. } => Function::Mkdir,
            Coming::Node { .. } => Function::Mknod,
            Coming::Symlink { .. } => Function::Symlink,
        };
        let attributes =
            Attributes { size: 0, owner: Who::uid(*who), group: Who::gid(*who), mode: what.permissions() };
        Self { function, caller: who, name, attributes, how: Use::of(OpenWord::Create).and(what.how()) }
    }

    /// What somebody might make, who is asked about.
    pub(super) fn told(
        function: Function,
        caller: &'n dyn CallerFacts,
        name: &'n [u8],
        attributes: Attributes,
    ) -> Self {
        let create = Use::of(OpenWord::Create);
        let is_opened = function == Function::Create;
        let how = if is_opened { create.and(Use::of(OpenWord::Write)) } else { create };
        Self { function, caller, name, attributes, how }
    }
}

/// What picks the branch of something new.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Picking {
    pub(super) policy: &'static Policy,
    /// The only branch that it may go to.
    pub(super) only: Option<u16>,
}

/// What picks, and by whose word.
#[derive(Debug)]
pub(super) struct Placed {
    pub(super) picking: Picking,
    /// The rule that says so, and what it says.
    pub(super) by: Option<(String, String)>,
}

/// Where something new goes in a folder, by its path, its maker and what else is known of it then.
///
/// # Errors
/// EACCES where a rule cannot be evaluated, ENODEV where one names a branch that there is not; those of the way to the folder.
pub(super) fn placed(shared: &Shared, merge: &Merge, folder: &Arc<Node>, new: &New<'_>) -> Result<Placed> {
    let usual =
        Placed { picking: Picking { policy: merge.settings.policy(new.function), only: None }, by: None };
    let Some(engine) = shared.all_rules().filter(|engine| engine.rules().places().next().is_some()) else {
        return Ok(usual);
    };
    let mut path = Vec::new();
    for around in chain(shared, folder)?.iter().rev() {
        let (_, name) = around.parts().and_then(Parts::way).ok_or(Errno::STALE)?;
        path.extend_from_slice(name.to_bytes());
        path.push(b'/');
    }
    path.extend_from_slice(new.name);
    let rules = engine.rules();
    if !rules.touches(&path) {
        return Ok(usual);
    }
    let dir = shared.descriptor(folder)?;
    let within = Some((&*dir, new.function == Function::Mkdir));
    let facts = OfNew { shared, path: &path, attributes: new.attributes, within };
    let decision =
        rules.decide(&facts, new.caller, new.how).map_err(|failed| engine.refuse(&rules, &path, &failed))?;
    let Some(place) = decision.place else { return Ok(usual) };
    // With `match = "all"` the last that speaks of it has said so.
    let says = |index: &&usize| {
        rules
            .rules()
            .get(**index)
            .is_some_and(|rule| rule.effects.place.as_ref().is_some_and(Option::is_some))
    };
    let rule = decision.rules.iter().rev().find(says).and_then(|index| rules.rules().get(*index));
    let by = rule.map(|rule| (rule.name.clone(), place.clone()));
    let picking = match Policy::of(&place) {
        Some(policy) => Picking { policy, only: None },
        None => {
            let number = branch_called(&shared.branches, &place).ok_or(Errno::NODEV)?;
            Picking { only: Some(number), ..usual.picking.first() }
        }
    };
    Ok(Placed { picking, by })
}

impl Picking {
    /// Whichever comes first.
    fn first(self) -> Self {
        Self { policy: Policy::of("ff").expect("it is one of mergerfs's"), ..self }
    }
}

/// The branch in use that a rule names: by its path, or by what it is called.
pub(crate) fn branch_called(branches: &Branches, place: &str) -> Option<u16> {
    branches.order().iter().copied().find(|number| {
        let branch = branches.at(*number);
        match place.strip_prefix("id=") {
            Some(id) => branch.id() == Some(id),
            None => branch.source() == Path::new(place),
        }
    })
}

/// Whether a merge that was mounted under rules that only place can follow these.
///
/// # Errors
/// [`PoolError::RuleOfMerges`].
pub(crate) fn check_kinds(rules: &Rules) -> std::result::Result<(), PoolError> {
    match rules.beyond_places() {
        Some((rule, key)) => Err(PoolError::RuleOfMerges { rule: rule.name.clone(), key }),
        None => Ok(()),
    }
}

/// Whether the branches are there on which rules have something made, or from and to which they have files moved. `None` is one folder.
///
/// # Errors
/// [`PoolError::NoSuchPlace`].
pub(crate) fn check_places(rules: &Rules, branches: Option<&Branches>) -> std::result::Result<(), PoolError> {
    let is_there = |place: &str| {
        Policy::of(place).is_some()
            || branches.is_some_and(|branches| branch_called(branches, place).is_some())
    };
    let steps = rules.moves().flat_map(|(rule, steps)| steps.iter().map(move |step| (rule, step)));
    let moves = steps
        .flat_map(|(rule, step)| step.to.iter().chain(&step.from).map(move |name| (rule, name.as_str())));
    match rules.places().chain(moves).find(|(_, place)| !is_there(place)) {
        Some((rule, place)) => {
            Err(PoolError::NoSuchPlace { rule: rule.name.clone(), place: place.to_owned() })
        }
        None => Ok(()),
    }
}
