//! What a policy says: which branches, and why not the others.

use std::fmt;

use shuntfs::Errno;

/// Why a branch was not chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Why {
    /// The path does not exist: only this many of its components.
    NotThere {
        /// How many, from the top on.
        depth: usize,
    },
    /// Its mode is `RO`.
    ReadOnly,
    /// Its mode is `NC`.
    NoCreate,
    /// Its file system is mounted read-only.
    MountedReadOnly,
    /// It has less space than must be left.
    TooFull {
        /// What it has, in bytes.
        available: u64,
        /// What must be left, in bytes.
        min_free: u64,
    },
    /// It would do, and another was chosen.
    NotFirst,
}

impl Why {
    /// What the operation fails with where there is no better reason, and how good a reason this is.
    fn error(self) -> Option<(u8, Errno)> {
        match self {
            Self::NotThere { .. } => Some((0, Errno::NOENT)),
            Self::TooFull { .. } => Some((1, Errno::NOSPC)),
            Self::ReadOnly | Self::NoCreate | Self::MountedReadOnly => Some((2, Errno::ROFS)),
            Self::NotFirst => None,
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotThere { .. } => out.write_str("the path is not there"),
            Self::ReadOnly => out.write_str("its mode is RO"),
            Self::NoCreate => out.write_str("its mode is NC"),
            Self::MountedReadOnly => out.write_str("it is mounted read-only"),
            Self::TooFull { available, min_free } => {
                write!(out, "{available} bytes are available, and {min_free} are to be left")
            }
            Self::NotFirst => out.write_str("another one was chosen"),
        }
    }
}

/// The branches that a policy chose, and why not the others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pick {
    /// One for each branch, in their order; `None` where it was chosen.
    pub(super) reasons: Vec<Option<Why>>,
}

impl Pick {
    /// The places of the chosen branches, in the order of the branches. Where only one can be used it is the first.
    ///
    /// # Errors
    /// EROFS where no branch came into question and one of them for its mode or mount; else ENOSPC where one was too full; else
    /// ENOENT.
    pub fn chosen(&self) -> Result<Vec<usize>, Errno> {
        let is_chosen = |(place, why): (usize, &Option<Why>)| why.is_none().then_some(place);
        let chosen: Vec<usize> = self.reasons.iter().enumerate().filter_map(is_chosen).collect();
        if !chosen.is_empty() {
            return Ok(chosen);
        }
        let errors = self.reasons.iter().flatten().filter_map(|why| why.error());
        Err(errors.max_by_key(|(weight, _)| *weight).map_or(Errno::NOENT, |(_, error)| error))
    }

    /// Why a branch was not chosen; `None` where it was, and where there is no such branch.
    #[must_use]
    pub fn why_not(&self, branch: usize) -> Option<Why> {
        self.reasons.get(branch).copied().flatten()
    }
}
