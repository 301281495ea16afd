//! The rules that one path comes under.

use std::sync::Arc;

use crate::decision::{Decision, Possible};
use crate::facts::{CallerFacts, FileFacts, Use};
use crate::rules::{Failed, Rules};

/// The rules of the moment, and which of them have patterns that match a path: looked up once for a request, and asked
/// as often as it needs. It keeps its rules when others take their place, so that one request is judged by one set.
#[derive(Clone, Debug)]
pub struct At {
    rules: Arc<Rules>,
    path: Box<[u8]>,
    /// Indices into the rules, in their order.
    matched: Vec<usize>,
}

impl At {
    pub(crate) fn new(rules: &Arc<Rules>, path: &[u8]) -> Self {
        Self { rules: Arc::clone(rules), path: path.into(), matched: rules.matched(path) }
    }

    /// The path that was looked up.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// The rules that it was looked up in.
    #[must_use]
    pub fn rules(&self) -> &Arc<Rules> {
        &self.rules
    }

    /// Whether there are any; where there are none, no decision says anything.
    #[must_use]
    pub fn is_touched(&self) -> bool {
        !self.matched.is_empty()
    }

    /// What could be said of a file with this path to some caller.
    #[must_use]
    pub fn possible(&self) -> Possible {
        self.rules.possible_of(&self.matched)
    }

    /// Whether any of them takes something from somebody.
    #[must_use]
    pub fn restricts(&self) -> bool {
        self.rules.restricts_of(&self.matched)
    }

    /// Whether a file that has the other name instead of this one is, for everybody, what it was: the same rules match,
    /// and none has a condition about names.
    #[must_use]
    pub fn is_same_as(&self, other: &Self) -> bool {
        let same = Arc::ptr_eq(&self.rules, &other.rules) && self.matched == other.matched;
        same && (self.path == other.path || self.rules.is_same_elsewhere(&self.matched))
    }

    /// As [`Rules::unchecked`].
    #[must_use]
    pub fn unchecked(&self) -> bool {
        self.rules.unchecked_of(&self.matched)
    }

    /// As [`Rules::decide`], of a file that has this path.
    ///
    /// # Errors
    /// Where a rule cannot be evaluated: what was asked for must then be refused.
    ///
    /// # Panics
    /// Where the file has another path: what was matched is not for it.
    pub fn decide(
        &self,
        file: &dyn FileFacts,
        caller: &dyn CallerFacts,
        how: Use,
    ) -> Result<Decision, Failed> {
        assert_eq!(file.path(), self.path(), "rules of one path are asked about another");
        self.rules.decide_of(&self.matched, file, caller, how)
    }
}
