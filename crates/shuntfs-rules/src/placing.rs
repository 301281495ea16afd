//! Rules that say where something new is made.

use crate::model::{AccessWord, Effects, Rule};
use crate::rules::Rules;

/// Whether a word of `place` names a branch: by its path, or by what it is called. Whether there is such a branch only a mount knows.
pub(crate) fn names_branch(word: &str) -> bool {
    word.starts_with('/') || word.strip_prefix("id=").is_some_and(|id| !id.is_empty())
}

impl Rules {
    /// The first rule that does more than to say where something new is made, and the key that says so.
    #[must_use]
    pub fn beyond_places(&self) -> Option<(&Rule, &'static str)> {
        self.active().find_map(|rule| Some((rule, rule.effects.beyond_place()?)))
    }

    /// The policies and branches that rules name for what is new: `mfs`, `/mnt/a`, `id=photos`.
    pub fn places(&self) -> impl Iterator<Item = (&Rule, &str)> {
        self.active().filter_map(|rule| Some((rule, rule.effects.place.as_ref()?.as_deref()?)))
    }
}

impl Effects {
    /// The key of something that it says other than where something new is made. To allow everything takes nothing and gives nothing.
    pub(crate) fn beyond_place(&self) -> Option<&'static str> {
        let flows = matches!(self.flow_read, Some(Some(_))) || matches!(self.flow_write, Some(Some(_)));
        let said = [
            (matches!(self.access, Some(AccessWord::Deny(_))), "deny"),
            (self.access == Some(AccessWord::Hide), "hide"),
            (self.read_only == Some(true), "read_only"),
            (self.append_only == Some(true), "append_only"),
            (flows, "flow"),
            (matches!(self.cache, Some(Some(_))), "cache"),
            (matches!(self.redact, Some(Some(_))), "redact"),
            (matches!(self.verify, Some(Some(_))), "verify"),
        ];
        said.into_iter().find(|(is_said, _)| *is_said).map(|(_, key)| key)
    }
}
