//! A regular expression over the first bytes of a file.

use std::fmt;
use std::ops::Range;

use regex::bytes::{Regex, RegexBuilder};
use thiserror::Error;

use crate::redaction::LOOK_MAX;

/// A compiled expression takes no more memory than this.
const SIZE_MAX: usize = 1 << 20;

/// More matches than this hide the whole of what is examined.
const MATCHES_MAX: usize = 1 << 16;

/// A regular expression, what of its matches is hidden, and how far it is looked for.
///
/// Matching takes time in proportion to the bytes looked at (the `regex` crate never goes back). A match must lie
/// within the first bytes as a whole: one that runs over their end is none.
#[derive(Clone, Debug)]
pub struct Pattern {
    regex: Regex,
    group: usize,
    first: u64,
}

/// Why there is no such pattern.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum PatternError {
    /// The expression does not parse, or is too large.
    #[error("{0}")]
    Regex(String),
    /// The expression has no group of this number.
    #[error("the expression has no group {0}")]
    NoGroup(usize),
    /// More bytes than may be looked at.
    #[error("the first {LOOK_MAX} bytes can be looked at, not {0}")]
    TooFar(u64),
}

impl Pattern {
    /// Hides what `group` of each match of `regex` covers (0 is the whole match), in the first `first` bytes.
    ///
    /// The expression is on bytes: `(?-u)` lets it match what is no UTF-8.
    ///
    /// # Errors
    /// [`PatternError`].
    pub fn new(regex: &str, group: usize, first: u64) -> Result<Self, PatternError> {
        if first > LOOK_MAX {
            return Err(PatternError::TooFar(first));
        }
        let regex = RegexBuilder::new(regex)
            .size_limit(SIZE_MAX)
            .dfa_size_limit(SIZE_MAX)
            .build()
            .map_err(|error| PatternError::Regex(error.to_string()))?;
        if group >= regex.captures_len() {
            return Err(PatternError::NoGroup(group));
        }
        Ok(Self { regex, group, first })
    }

    /// How many bytes are examined.
    #[must_use]
    pub fn first(&self) -> u64 {
        self.first
    }

    /// What must be hidden.
    pub(crate) fn find(&self, bytes: &[u8]) -> Vec<Range<u64>> {
        let first = usize::try_from(self.first).unwrap_or(usize::MAX).min(bytes.len());
        let mut found = Vec::new();
        for captures in self.regex.captures_iter(&bytes[..first]) {
            if found.len() == MATCHES_MAX {
                let all = 0..self.first;
                return vec![all];
            }
            if let Some(group) = captures.get(self.group) {
                found.push(group.start() as u64..group.end() as u64);
            }
        }
        found
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        (self.regex.as_str(), self.group, self.first) == (other.regex.as_str(), other.group, other.first)
    }
}

impl Eq for Pattern {}

impl std::hash::Hash for Pattern {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (self.regex.as_str(), self.group, self.first).hash(state);
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.regex.as_str())?;
        if self.group != 0 {
            write!(f, " group {}", self.group)?;
        }
        write!(f, " in the first {} bytes", self.first)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn matches_and_groups_are_found_within_the_first_bytes() {
        let text = b"name=ann key=1234 \xff key=99 key=5";
        let whole = Pattern::new(r"key=\d+", 0, 26).unwrap();
        assert_eq!(whole.find(text), [9..17, 20..26]);
        let group = Pattern::new(r"key=(\d+)", 1, 1000).unwrap();
        assert_eq!(group.find(text), [13..17, 24..26, 31..32]);
        assert_eq!(Pattern::new(r"key=\d{4} ", 0, 17).unwrap().find(text), []);
        assert_eq!(Pattern::new("(?-u)\\xff", 0, 100).unwrap().find(text), [18..19]);
    }

    #[test]
    fn a_group_that_took_no_part_hides_nothing() {
        assert_eq!(Pattern::new("a|(b)", 1, 10).unwrap().find(b"ab"), [1..2]);
    }

    #[test]
    fn more_matches_than_the_limit_hide_everything_looked_at() {
        let bytes = vec![b'x'; MATCHES_MAX + 1];
        assert_eq!(Pattern::new("x", 0, LOOK_MAX).unwrap().find(&bytes), [0..LOOK_MAX]);
        assert_eq!(Pattern::new("x", 0, LOOK_MAX).unwrap().find(&bytes[1..]).len(), MATCHES_MAX);
    }

    #[test]
    fn what_cannot_be_a_pattern_is_told() {
        assert!(matches!(Pattern::new("(", 0, 1), Err(PatternError::Regex(_))));
        assert!(matches!(Pattern::new("x{1000}{1000}", 0, 1), Err(PatternError::Regex(_))));
        assert_eq!(Pattern::new("x(y)", 2, 1), Err(PatternError::NoGroup(2)));
        assert_eq!(Pattern::new("x", 0, LOOK_MAX + 1), Err(PatternError::TooFar(LOOK_MAX + 1)));
    }
}
