//! A rule, as it was written and checked.

use crate::decision::{CacheWord, ErrorNumber, FlowWord, Redact, VerifyWord};
use crate::moving::MoveStep;

/// Which rules count where several match.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum MatchMode {
    /// The first one that matches.
    #[default]
    First,
    /// All that match; what a later one says replaces what earlier ones said of the same thing.
    All,
}

/// One rule.
#[derive(Clone, PartialEq, Debug)]
pub struct Rule {
    /// Its name; rules without one are called by their line.
    pub name: String,
    /// The line that it starts at.
    pub line: usize,
    /// What it matches.
    pub matchers: Matchers,
    /// What it decides.
    pub effects: Effects,
}

/// What a rule matches: everything that is given must hold, and of a list one entry. What is not given holds always.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Matchers {
    /// Patterns of the path below the source, without a slash in front.
    pub path: Vec<String>,
    /// Patterns of the last component.
    pub basename: Vec<String>,
    /// Types of the content (`image/jpeg`), or their first half with a star (`image/*`).
    pub types: Vec<String>,
    /// Length in bytes.
    pub size: Option<SizeRange>,
    /// The file's owner.
    pub owner: Vec<Account>,
    /// The file's group.
    pub group: Vec<Account>,
    /// The file's mode.
    pub mode: Option<ModeBits>,
    /// The caller's uid.
    pub uid: Vec<Account>,
    /// The caller's gid.
    pub gid: Vec<Account>,
    /// The caller's groups, the supplementary ones and the gid.
    pub groups: Vec<Account>,
    /// Patterns of the path of the caller's program.
    pub exe: Vec<String>,
    /// How the file is opened.
    pub open: Vec<OpenWord>,
    /// Names of views (`shunt mount --view NAME`).
    pub view: Vec<String>,
    /// A condition in CEL.
    pub when: Option<String>,
}

/// A user or a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Account {
    /// Its number.
    pub id: u32,
    /// Its name, where it was given by name.
    pub name: Option<String>,
}

/// A range of lengths, both ends included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SizeRange {
    /// The least.
    pub min: u64,
    /// The most.
    pub max: u64,
}

/// A test of mode bits.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ModeBits {
    /// All of these are set.
    pub all: u32,
    /// At least one of these is set; 0 asks for none.
    pub any: u32,
    /// None of these is set.
    pub none: u32,
}

impl ModeBits {
    pub(crate) fn holds(self, mode: u32) -> bool {
        mode & self.all == self.all && (self.any == 0 || mode & self.any != 0) && mode & self.none == 0
    }
}

/// A way to open a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenWord {
    /// For reading.
    Read,
    /// For writing, `O_APPEND` or not, and truncation without an open file.
    Write,
    /// For writing with `O_APPEND`.
    Append,
    /// With `O_TRUNC`, or truncated without an open file.
    Truncate,
    /// To be run.
    Exec,
    /// To be made.
    Create,
}

impl OpenWord {
    /// Every way.
    pub const ALL: [Self; 6] =
        [Self::Read, Self::Write, Self::Append, Self::Truncate, Self::Exec, Self::Create];

    /// Its word in a file of rules.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Append => "append",
            Self::Truncate => "truncate",
            Self::Exec => "exec",
            Self::Create => "create",
        }
    }
}

/// What a rule decides. `None` is what the rule does not speak of; what it gives back to the mount is an inner `None`.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Effects {
    /// Whether the file may be used.
    pub access: Option<AccessWord>,
    /// Whether it is read-only.
    pub read_only: Option<bool>,
    /// Whether it may only grow.
    pub append_only: Option<bool>,
    /// How reads flow.
    pub flow_read: Option<Option<FlowWord>>,
    /// How writes flow.
    pub flow_write: Option<Option<FlowWord>>,
    /// What happens to cached pages.
    pub cache: Option<Option<CacheWord>>,
    /// What the caller does not see; an inner `None` is the whole view.
    pub redact: Option<Option<Redact>>,
    /// The policy or the branch that new files go to.
    pub place: Option<Option<String>>,
    /// How files are moved: the first of these that holds; none has them stay.
    pub moves: Option<Vec<MoveStep>>,
    /// Whether the file must be sealed.
    pub verify: Option<Option<VerifyWord>>,
}

/// What a rule says of access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessWord {
    /// `allow = true`
    Allow,
    /// `deny = "EACCES"`
    Deny(ErrorNumber),
    /// `hide = true`
    Hide,
}
