//! What a user can try. A step names paths, so that a script stays meaningful when other steps are left out of it.

use std::fmt;

/// A way to read an open file from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Read,
    Direct,
    Map,
    Splice,
    Sendfile,
}

/// How a file is opened to be kept in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    Path,
    Read,
    Write,
    Append,
    Both,
}

/// What is tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Look(String),
    List(String),
    Read(String, Way),
    Write(String),
    Append(String),
    OpenTruncating(String),
    Truncate(String),
    Punch(String),
    Create(String),
    MakeFolder(String),
    Unlink(String),
    RemoveFolder(String),
    Link(String, String),
    Rename(String, String),
    /// Only where the second name is free.
    Move(String, String),
    Exchange(String, String),
    Attribute(String),
    Touch(String),
    Copy(String, String),
    /// Opens a file and keeps it in a slot.
    Hold(String, Hold, usize),
    /// Reads by what a slot holds.
    ReadHeld(usize),
    WriteHeld(usize),
    TruncateHeld(usize),
    /// Opens what a slot holds once more, by /proc, and reads it.
    ReadAgain(usize),
    WriteAgain(usize),
    TruncateAgain(usize),
    LinkHeld(usize, String),
    Drop(usize),
    /// The same in the folder below the mount, by root.
    LinkBelow(String, String),
    RenameBelow(String, String),
    UnlinkBelow(String),
    /// The kernel forgets what it can.
    ForgetNames,
    /// The other set of rules.
    Reload,
}

impl Action {
    /// Whether it opens or names a file again that is known by a descriptor.
    pub(crate) fn goes_by_descriptor(&self) -> bool {
        matches!(self, Self::ReadAgain(_) | Self::WriteAgain(_) | Self::TruncateAgain(_) | Self::LinkHeld(..))
    }
}

/// One step of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) uid: u32,
    pub(crate) action: Action,
}

impl fmt::Display for Step {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {:?}", self.uid, self.action)
    }
}
