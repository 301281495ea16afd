//! Which branches an operation on a name would go to, and why not to the others.

use serde::Serialize;
use shuntfs::{Errno, Name, NodeId, Result};
use shuntfs_rules::{Attributes, CallerFacts};
use shuntfs_sys::stat_at;

use super::choose::Considered;
use super::placing::{New, Picking, placed};
use super::state::Merge;
use crate::error::errno;
use crate::policy::{Category, Function, Pick};
use crate::shared::{Shared, timestamp};

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
    let (picking, by) = if category == Category::Create {
        let mode = if function == Function::Mkdir { 0o755 } else { 0o644 };
        let attributes = Attributes { mode, ..attributes_of(caller)? };
        let new = New::told(function, caller, name.as_c_str().to_bytes(), attributes);
        let placed = placed(shared, merge, &folder, &new)?;
        (placed.picking, placed.by)
    } else {
        (Picking { policy: merge.settings.policy(function), only: None }, None)
    };
    let policy = picking.policy;
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
    let row = |(number, candidate): &(u16, Result<_>)| {
        let branch = shared.branches.at(*number);
        let why_not = match (is_meant(*number), branch.health.aside()) {
            (false, _) => Some("a rule names another one".to_owned()),
            (true, Some((_, why))) => Some(format!("it is set aside: {why}")),
            (true, None) => why_not(*number, candidate, &known, &pick),
        };
        BranchPick {
            branch: branch.source().to_string_lossy().into_owned(),
            mode: branch.terms().mode.word(),
            available: candidate
                .as_ref()
                .ok()
                .map(|candidate: &crate::policy::Candidate| candidate.space.available),
            min_free: merge.min_free(branch),
            chosen: why_not.is_none(),
            why_not,
        }
    };
    Ok(Explanation {
        policy: policy.name(),
        rule: by.as_ref().map(|(rule, _)| rule.clone()),
        place: by.map(|(_, place)| place),
        error: pick.chosen().err().map(|error| error.to_string()),
        branches: all.iter().map(row).collect(),
    })
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
