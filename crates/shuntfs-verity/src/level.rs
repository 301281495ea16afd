//! Levels of a tree.

use std::fmt;

/// Where a block is: among the file's data, or in a level of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// The file's data.
    Data,
    /// A level of the tree; 0 holds the hashes of the data blocks, the last one is a single block, the root.
    Tree(u8),
}

impl Level {
    /// The level that holds the hashes of this one's blocks.
    #[must_use]
    pub const fn above(self) -> Self {
        match self {
            Self::Data => Self::Tree(0),
            Self::Tree(level) => Self::Tree(level.saturating_add(1)),
        }
    }
}

/// A number, as the kernel's log has it: -1 is data.
impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Data => f.pad("-1"),
            Self::Tree(level) => level.fmt(f),
        }
    }
}
