//! Which branches an operation on a name would go to, and why not to the others.

use std::sync::Arc;

use serde::Serialize;
use shuntfs::{Errno, Name, NodeId, Result};
use shuntfs_rules::{Attributes, CallerFacts};
use shuntfs_sys::stat_at;

use super::choose::{self, Considered, Here};
use super::placing::{New, Picking, placed};
use super::state::Merge;
use crate::answers::timestamp;
use crate::branch::Branch;
use crate::error::errno;
use crate::name_buf::NameBuf;
use crate::node::Node;
use crate::policy::{Candidate, Category, Function, Pick, Policy};
use crate::shared::Shared;

/// What a policy says of the branches of a merge.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct Explanation {
    /// The policy, by its name.
    pub policy: &'static str,
    /// The rule that says where it is made, if one does, and what it says: a policy, or a branch, beside which no other is picked.
    pub rule: Option<String>,
    /// What that rule says.
    pub place: Option<String>,
    /// Whether rules judge what is done there: policies know nothing of that.
    pub under_rules: bool,
    /// What the operation would fail with, where no branch is picked.
    pub error: Option<String>,
    /// The branches, in their order.
    pub branches: Vec<BranchPick>,
}

/// What a policy says of one branch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct BranchPick {
    /// The folder.
    pub branch: String,
    /// What may be done there: `RW`, `RO` or `NC`.
    pub mode: &'static str,
    /// How many bytes are available; `None` where it does not tell.
    pub available: Option<u64>,
    /// What something new must leave free.
    pub min_free: u64,
    /// Whether it is picked.
    pub chosen: bool,
    /// Why not.
    pub why_not: Option<String>,
}

/// What the policy of a function makes of a name in a folder now. Of policies that go by chance it is one throw of many.
///
/// # Errors
/// ESTALE and ENOTDIR for what is no folder.
pub(crate) fn explain(
    shared: &Shared,
    merge: &Merge,
    (folder, name): (NodeId, Name<'_>),
    (function, caller): (Function, &dyn CallerFacts),
) -> Result<Explanation> {
    let folder = shared.node(folder)?;
    let parts = folder.parts().ok_or(Errno::NOTDIR)?;
    let category = function.category();
    let fate = match category {
        Category::Action => Fate::of(shared, merge, (&folder, name), function)?,
        _ => None,
    };
    let (picking, by) = if category == Category::Create {
        let mode = if function == Function::Mkdir { 0o755 } else { 0o644 };
        let attributes = Attributes { mode, ..attributes_of(caller)? };
        let new = New::told(function, caller, name.as_c_str().to_bytes(), attributes);
        let placed = placed(shared, merge, &folder, &new)?;
        (placed.picking, placed.by)
    } else {
        (Picking { policy: merge.settings.policy(function), only: None }, None)
    };
    let is_folder = fate.as_ref().is_some_and(|fate| fate.is_folder);
    let policy = Policy::of("epall").filter(|_| is_folder).unwrap_or(picking.policy);
    let considered = if category == Category::Create {
        merge.for_something_new(shared, &folder, policy)?
    } else {
        let candidate = |number: &u16| {
            let found = match parts.on(*number) {
                None => Err(Errno::NOENT),
                Some(place) => shared
                    .descriptor_at(&folder, &place)
                    .and_then(|dir| stat_at(&*dir, name.as_c_str()).map_err(errno)),
            };
            let branch = shared.branches.at(*number);
            let candidate = match found {
                Ok(stat) => merge.candidate(branch, 1, Some(timestamp(stat.mtime))),
                Err(Errno::NOENT) => merge.candidate(branch, 0, None),
                Err(error) => Err(error),
            };
            (*number, candidate)
        };
        Considered { depth: 1, branches: shared.branches.order().iter().map(candidate).collect() }
    };
    let is_meant = |number: u16| picking.only.is_none_or(|only| only == number);
    let (all, mut considered) = (considered.branches.clone(), considered);
    considered.branches.retain(|(number, _)| is_meant(*number));
    let known = considered.known();
    let pick = considered.pick(policy, category, merge.seed());
    let row = |(number, candidate): &(u16, Result<Candidate>)| {
        let aside = shared.branches.at(*number).health.aside();
        let why_not = match (is_meant(*number), aside, &fate) {
            (false, _, _) => Some("a rule names another one".to_owned()),
            (true, Some((_, why)), _) => Some(format!("it is set aside: {why}")),
            (true, None, None) => why_not(*number, candidate, &known, &pick),
            (true, None, Some(fate)) => fate.why_not(*number, why_not(*number, candidate, &known, &pick)),
        };
        let available = candidate.as_ref().ok().map(|candidate| candidate.space.available);
        branch_pick(merge, shared.branches.at(*number), available, why_not)
    };
    let error = match &fate {
        Some(fate) => fate.picked.as_ref().err().copied(),
        None => pick.chosen().err(),
    };
    Ok(Explanation {
        policy: policy.name(),
        rule: by.as_ref().map(|(rule, _)| rule.clone()),
        place: by.map(|(_, place)| place),
        under_rules: shared.rules.is_some(),
        error: error.map(|error| error.to_string()),
        branches: all.iter().map(row).collect(),
    })
}

/// What happens to a name that is there and goes or moves: that goes by what is shown, and folders by no policy.
struct Fate {
    is_folder: bool,
    /// The branches where something of another kind has the name.
    others: Vec<u16>,
    /// The branches where it goes or moves.
    picked: Result<Vec<u16>>,
}

impl Fate {
    /// `None` where nobody knows what the name is.
    fn of(
        shared: &Shared,
        merge: &Merge,
        (folder, name): (&Arc<Node>, Name<'_>),
        function: Function,
    ) -> Result<Option<Self>> {
        let (folder, name) = (shared.folder(folder.id)?, NameBuf::new(name)?);
        let all = match choose::present(shared, folder.spot(&name)) {
            Ok(all) if !all.is_empty() => all,
            _ => return Ok(None),
        };
        let is_folder = choose::visible(shared, merge, &all)?.stat.is_dir();
        let numbers = |all: &[Here]| all.iter().map(|here| here.mount.branch).collect::<Vec<u16>>();
        let (same, others): (Vec<Here>, Vec<Here>) =
            all.into_iter().partition(|here| here.stat.is_dir() == is_folder);
        let others = numbers(&others);
        let fixed = |here: &Here| shared.branch(here.mount).is_still_read_only();
        let picked = match function {
            _ if is_folder && same.iter().any(fixed) => Err(Errno::ROFS),
            _ if is_folder => Ok(same),
            Function::Rename => choose::moved(shared, merge, None, same),
            _ => choose::changed(shared, merge, (function, None), same),
        };
        Ok(Some(Self { is_folder, others, picked: picked.map(|picked| numbers(&picked)) }))
    }

    /// Why a branch is not picked, beyond what a policy says of it.
    fn why_not(&self, number: u16, by_policy: Option<String>) -> Option<String> {
        if self.picked.as_ref().is_ok_and(|picked| picked.contains(&number)) {
            return None;
        }
        let why = match &self.picked {
            _ if self.others.contains(&number) => "something of another kind has the name there",
            _ if by_policy.is_some() => return by_policy,
            Err(Errno::ROFS) if self.is_folder => "a folder goes on all branches or on none",
            Err(Errno::ROFS) => "what is shown is on a branch where nothing may be changed",
            Err(Errno::XDEV) => "nobody sees what is there, and what is seen stays",
            _ => "another one was chosen",
        };
        Some(why.to_owned())
    }
}

fn branch_pick(
    merge: &Merge,
    branch: &Branch,
    available: Option<u64>,
    why_not: Option<String>,
) -> BranchPick {
    BranchPick {
        branch: branch.source().to_string_lossy().into_owned(),
        mode: branch.terms().mode.word(),
        available,
        min_free: merge.min_free(branch),
        chosen: why_not.is_none(),
        why_not,
    }
}

fn attributes_of(caller: &dyn CallerFacts) -> Result<Attributes> {
    let unknown = |_| Errno::ACCES;
    let (owner, group) = (caller.uid().map_err(unknown)?, caller.gid().map_err(unknown)?);
    Ok(Attributes { owner, group, ..Attributes::default() })
}

fn why_not<T>(number: u16, candidate: &Result<T>, known: &[u16], pick: &Pick) -> Option<String> {
    if let Err(error) = candidate {
        return Some(format!("it does not answer: {error}"));
    }
    let place = known.iter().position(|known| *known == number)?;
    pick.why_not(place).map(|why| why.to_string())
}
