//! Which way of hashing the processor does best.

use std::fmt;

/// A way of hashing blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kernel {
    /// One block at a time, by the crate `sha2`.
    Plain,
}

impl Kernel {
    /// All of them.
    pub const ALL: &[Self] = &[Self::Plain];

    /// The name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
        }
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
