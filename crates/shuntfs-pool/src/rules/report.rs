//! Rules from outside: replacing them, counting what they did, and asking what they would say.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::Serialize;
use shuntfs::{Errno, NodeId};
use shuntfs_rules::{Attributes, CallerFacts, Decision, Rules, Unknown, Use};

use super::engine::Engine;
use super::facts::{OfNew, OfNode};
use super::index::Known;
use super::search::walk;
use crate::error::PoolError;
use crate::merge;
use crate::shared::Shared;

/// A hold on the rules of a pool, for whoever serves it.
#[derive(Clone, Debug)]
pub struct RuleControl {
    shared: Arc<Shared>,
}

/// What can be told of the rules.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct RuleFacts {
    /// How many there are.
    pub rules: usize,
    /// How often they were read again with success.
    pub reloads: u64,
    /// Why they were not read again when that was last tried; the earlier ones hold.
    pub error: Option<String>,
    /// Evaluations that failed; each was answered with a refusal.
    pub failures: u64,
}

/// Somebody who is asked about, and does not ask.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Caller {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The supplementary groups.
    pub groups: Vec<u32>,
    /// The program's path, where it matters.
    pub exe: Option<Vec<u8>>,
}

/// What is said where a rule asks for the program, and none was named.
pub const DEPENDS_ON_PROGRAM: &str = "it depends on the program, and none was named";

/// What the rules say, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct RuleReport {
    /// The paths that it was decided by.
    pub paths: Vec<Vec<u8>>,
    /// The decision, or why a rule could not be evaluated, which is a refusal.
    pub decision: Result<Decision, String>,
    /// The rules that decided: name and line.
    pub rules: Vec<(String, usize)>,
}

impl CallerFacts for Caller {
    fn uid(&self) -> Result<u32, Unknown> {
        Ok(self.uid)
    }

    fn gid(&self) -> Result<u32, Unknown> {
        Ok(self.gid)
    }

    fn groups(&self) -> Result<Vec<u32>, Unknown> {
        Ok(self.groups.iter().copied().chain([self.gid]).collect())
    }

    fn exe(&self) -> Result<Vec<u8>, Unknown> {
        self.exe.clone().ok_or_else(|| Unknown(DEPENDS_ON_PROGRAM.into()))
    }
}

impl RuleControl {
    pub(crate) fn of(shared: &Arc<Shared>) -> Option<Self> {
        shared.all_rules().map(|_| Self { shared: Arc::clone(shared) })
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    pub(super) fn engine(&self) -> &Engine {
        self.shared.all_rules().expect("there is no control without rules")
    }

    /// Takes other rules. Files that are open keep what was decided when they were opened; every name is looked up
    /// again before the kernel believes it.
    ///
    /// Not to be called from a thread that serves requests.
    ///
    /// # Errors
    /// Where the source cannot be searched for the names that they protect, where they name a branch that there is not, and where they do more
    /// than to place what is new on a merge that was mounted under rules that only did so; the earlier rules then hold.
    pub fn replace(&self, rules: Rules) -> Result<(), PoolError> {
        self.check(&rules)?;
        self.engine().replace(&self.shared, rules).map_err(|error| PoolError::Names { error })?;
        self.engine().forget_names(&self.shared);
        Ok(())
    }

    /// Whether other rules may be taken, as far as that can be told without taking them.
    ///
    /// # Errors
    /// As [`RuleControl::replace`], but for those of the search.
    pub fn check(&self, rules: &Rules) -> Result<(), PoolError> {
        merge::check_places(rules, self.shared.merge.as_ref().map(|_| &self.shared.branches))?;
        if self.shared.rules.is_none() { merge::check_kinds(rules) } else { Ok(()) }
    }

    /// Notes why rules were not taken; the earlier ones hold.
    pub fn failed(&self, error: String) {
        *self.engine().error.lock() = Some(error);
    }

    /// What can be told of them.
    #[must_use]
    pub fn facts(&self) -> RuleFacts {
        let engine = self.engine();
        RuleFacts {
            rules: engine.rules().rules().len(),
            reloads: engine.reloads.load(Ordering::Relaxed),
            error: engine.error.lock().clone(),
            failures: engine.failures.load(Ordering::Relaxed),
        }
    }

    /// What the rules say of a node that the kernel knows.
    ///
    /// # Errors
    /// ESTALE for a node that it does not know.
    pub fn of_node(&self, node: NodeId, caller: &Caller, how: Use) -> shuntfs::Result<RuleReport> {
        let (shared, engine) = (&self.shared, self.engine());
        let node = shared.node(node)?;
        let Known { paths, is_all } = engine.names_of(shared, &node)?;
        let Some(first) = paths.first() else { return Err(Errno::STALE) };
        let rules = engine.rules();
        if !is_all
            && rules.concerns_names(&OfNode { shared, node: &node, path: first }, caller).unwrap_or(true)
        {
            let why = "it has names that are not known (made below the mount, or outside of the source on a mount with \
                       --cache none), and a rule could protect it by one of them";
            return Ok(report(&rules, paths, Err(why.to_owned())));
        }
        let mut all: Option<Result<Decision, String>> = None;
        for path in &paths {
            let decided = rules.decide(&OfNode { shared, node: &node, path }, caller, how);
            all = Some(match (all, decided) {
                (None, Ok(decision)) => Ok(decision),
                (Some(Ok(all)), Ok(decision)) => Ok(all.strictest(decision)),
                (Some(Err(why)), _) => Err(why),
                (None | Some(Ok(_)), Err(failed)) => Err(said(&rules, &failed)),
            });
        }
        Ok(report(&rules, paths, all.unwrap_or_else(|| Ok(Decision::default()))))
    }

    /// What the rules say of a file that somebody would make; `path` is below the source.
    #[must_use]
    pub fn of_new(&self, path: &Path, mode: u32, caller: &Caller, how: Use) -> RuleReport {
        use std::os::unix::ffi::OsStrExt as _;
        let folder = path.parent().and_then(|folder| walk(&self.shared, folder.as_os_str().as_bytes()).ok());
        let path = path.as_os_str().as_bytes();
        let rules = self.engine().rules();
        let attributes = Attributes { size: 0, owner: caller.uid, group: caller.gid, mode };
        let within = folder.as_deref().map(|folder| (folder, false));
        let new = OfNew { shared: &self.shared, path, attributes, within };
        let decided = rules.decide(&new, caller, how);
        report(&rules, vec![path.to_owned()], decided.map_err(|failed| said(&rules, &failed)))
    }
}

pub(super) fn said(rules: &Rules, failed: &shuntfs_rules::Failed) -> String {
    let rule = rules.rules().get(failed.rule).map(|rule| rule.name.as_str()).unwrap_or_default();
    format!("the rule `{rule}` cannot be evaluated: {}", failed.why)
}

fn report(rules: &Rules, paths: Vec<Vec<u8>>, decision: Result<Decision, String>) -> RuleReport {
    let deciding = decision.as_ref().map(|decision| decision.rules.as_slice()).unwrap_or_default();
    let named = deciding.iter().filter_map(|index| rules.rules().get(*index));
    let named = named.map(|rule| (rule.name.clone(), rule.line)).collect();
    RuleReport { paths, decision, rules: named }
}
