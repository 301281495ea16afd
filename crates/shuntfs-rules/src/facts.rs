//! What rules ask about a file and its caller.

use std::fmt;

use crate::model::OpenWord;

/// What cannot be learned, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unknown(pub String);

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A file under one of its names. What costs a system call is asked for at most once in one decision, and only where a
/// rule needs it.
pub trait FileFacts {
    /// Its path below the source, without a slash in front; the source itself is empty.
    fn path(&self) -> &[u8];
    /// Its attributes.
    ///
    /// # Errors
    /// Where they cannot be read.
    fn attributes(&self) -> Result<Attributes, Unknown>;
    /// Its first bytes, [`HEAD_LEN`] where it has so many; empty for what is no regular file.
    ///
    /// # Errors
    /// Where they cannot be read.
    fn head(&self) -> Result<Vec<u8>, Unknown>;
}

/// How many bytes tell the type of a file.
pub const HEAD_LEN: usize = 8192;

/// Attributes that rules ask about.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Attributes {
    /// Length in bytes.
    pub size: u64,
    /// Owner.
    pub owner: u32,
    /// Group.
    pub group: u32,
    /// Permission bits, with suid, sgid and the sticky bit; no type.
    pub mode: u32,
}

/// Who asks.
pub trait CallerFacts {
    /// The user.
    ///
    /// # Errors
    /// Where the request does not say.
    fn uid(&self) -> Result<u32, Unknown>;
    /// The group.
    ///
    /// # Errors
    /// Where the request does not say.
    fn gid(&self) -> Result<u32, Unknown>;
    /// All groups, the one of [`CallerFacts::gid`] among them.
    ///
    /// # Errors
    /// Where the caller's process cannot be asked.
    fn groups(&self) -> Result<Vec<u32>, Unknown>;
    /// The path of the program.
    ///
    /// # Errors
    /// Where the caller's process cannot be asked.
    fn exe(&self) -> Result<Vec<u8>, Unknown>;
}

/// How a file is used: ways to open, together.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Use(u8);

impl Use {
    /// Its name is looked up or listed; no rule with `open` matches.
    pub const LOOK: Self = Self(0);

    /// A use in one way.
    #[must_use]
    pub const fn of(word: OpenWord) -> Self {
        Self(1 << word as u8)
    }

    /// Both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether it is used in this way, too.
    #[must_use]
    pub const fn has(self, word: OpenWord) -> bool {
        self.0 & Self::of(word).0 != 0
    }

    /// The ways.
    pub fn words(self) -> impl Iterator<Item = OpenWord> {
        OpenWord::ALL.into_iter().filter(move |word| self.has(*word))
    }
}
