//! What policies know of a branch.

use serde::{Deserialize, Serialize};
use shuntfs::Timestamp;

use super::pick::Why;
use super::table::Category;

/// What may be done on a branch.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum BranchMode {
    /// Everything: `RW`.
    #[default]
    ReadWrite,
    /// Nothing is changed there: `RO`.
    ReadOnly,
    /// Nothing new is made there: `NC`.
    NoCreate,
}

impl BranchMode {
    const WORDS: [(&str, Self); 3] =
        [("RW", Self::ReadWrite), ("RO", Self::ReadOnly), ("NC", Self::NoCreate)];

    /// The mode of a word, as users write it.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(known, _)| *known == word).map(|(_, mode)| *mode)
    }

    /// The word for it.
    ///
    /// # Panics
    /// Never: every mode has one.
    #[must_use]
    pub fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, mode)| *mode == self).expect("every mode has a word").0
    }
}

/// The space of a branch's file system, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Space {
    /// All.
    pub total: u64,
    /// What users other than root may still take: what is reserved for root does not exist for anybody.
    pub available: u64,
}

impl Space {
    /// What is not available.
    #[must_use]
    pub fn used(self) -> u64 {
        self.total.saturating_sub(self.available)
    }
}

/// A branch at the moment that somebody asks for one.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Candidate {
    /// What users let be done there.
    pub mode: BranchMode,
    /// Whether its file system is mounted read-only.
    pub is_read_only: bool,
    /// What its file system has.
    pub space: Space,
    /// How much of that must be left for something new, in bytes.
    pub min_free: u64,
    /// How many components of the path are there, from the top on.
    pub depth: usize,
    /// When the last of them was changed, where all are there.
    pub mtime: Option<Timestamp>,
}

impl Candidate {
    /// Why it does not come into question for what is at the first `level` components of the path.
    pub(super) fn unfit(&self, category: Category, level: usize) -> Option<Why> {
        let (changes, creates) = (category != Category::Search, category == Category::Create);
        if changes && self.mode == BranchMode::ReadOnly {
            Some(Why::ReadOnly)
        } else if creates && self.mode == BranchMode::NoCreate {
            Some(Why::NoCreate)
        } else if self.depth < level {
            Some(Why::NotThere { depth: self.depth })
        } else if changes && self.is_read_only {
            Some(Why::MountedReadOnly)
        } else if creates && self.space.available < self.min_free {
            Some(Why::TooFull { available: self.space.available, min_free: self.min_free })
        } else {
            None
        }
    }
}
