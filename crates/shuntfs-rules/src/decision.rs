//! What rules decide.

use std::fmt;

use crate::model::{AccessWord, Effects};

/// What the rules say of one use of one file.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Decision {
    /// Whether it may be used at all.
    pub access: Access,
    /// Whether the file is as on a mount that is read-only.
    pub read_only: bool,
    /// Whether the file may only grow at its end.
    pub append_only: bool,
    /// How reads shall flow; `None` leaves it to the mount.
    pub flow_read: Option<FlowWord>,
    /// How writes shall flow; `None` leaves it to the mount.
    pub flow_write: Option<FlowWord>,
    /// What happens to cached pages at the open; `None` leaves it to the mount.
    pub cache: Option<CacheWord>,
    /// What this caller must not see: all of these together. Empty is the whole view.
    pub redact: Vec<Redact>,
    /// The policy or the branch that a new file goes to: `mfs`, `/mnt/a`, `id=photos`.
    pub place: Option<String>,
    /// Whether it must be sealed; `None` leaves it to the mount.
    pub verify: Option<VerifyWord>,
    /// Which rules decided, in the order of the file: indices into [`crate::Rules::rules`].
    pub rules: Vec<usize>,
}

/// What the rules could say of a file to some caller, however it is opened. What is false here is said to nobody as long
/// as the rules and the file's names stay; attributes, content and callers count as unknown.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is one independent answer")]
pub struct Possible {
    /// Somebody may be refused.
    pub deny: bool,
    /// Somebody may not see the name.
    pub hide: bool,
    /// Whether the name is seen, or what of the file, depends on more than the name.
    pub varies: bool,
    /// To somebody the file may be read-only.
    pub read_only: bool,
    /// To somebody the file may be append-only.
    pub append_only: bool,
    /// From somebody bytes may be kept.
    pub redact: bool,
}

/// Whether a file may be used.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub enum Access {
    /// As its permissions allow.
    #[default]
    Allow,
    /// Refused with this error number.
    Deny(ErrorNumber),
    /// As if there were no such name.
    Hide,
}

/// A number of `errno.h`, from 1 on; never one that the kernel would take for a lasting answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ErrorNumber(pub(crate) i32);

impl ErrorNumber {
    /// EACCES: also the answer where a rule cannot be evaluated.
    pub const ACCES: Self = Self(13);

    /// The number.
    #[must_use]
    pub const fn get(self) -> i32 {
        self.0
    }
}

/// How bytes shall flow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FlowWord {
    /// By the kernel, where it is available.
    Passthrough,
    /// By the server's queue, which does not look at them: `relay` on a ring, `splice` on a device.
    Splice,
    /// By the pool's own read and write.
    Served,
}

/// What happens to the kernel's cached pages at an open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CacheWord {
    /// They stay.
    Keep,
    /// They are dropped.
    Drop,
    /// The open bypasses them.
    Direct,
}

/// Whether a file is checked against its seal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum VerifyWord {
    /// It is not checked.
    Off,
    /// It is where it is sealed.
    IfSealed,
    /// It is, and what is not sealed cannot be opened.
    Required,
}

/// Bytes that somebody must not see: they read as zeroes, and the length stays.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Redact {
    /// All of them.
    Whole,
    /// What tells the place in the tags of a photo; the whole file where it cannot be told.
    ExifGps,
    /// These.
    Ranges(Vec<ByteSpan>),
    /// What a regular expression matches.
    Regex(RegexRedaction),
}

/// Bytes from `start` on; to the end of the file where there is no `end`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ByteSpan {
    /// The first.
    pub start: u64,
    /// The first that is no longer part of it; more than `start`.
    pub end: Option<u64>,
}

/// Redaction of what a regular expression matches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegexRedaction {
    /// The expression, over bytes; it has been compiled once, so it is sound.
    pub pattern: String,
    /// How many bytes from the start of the file are searched; at least 1, at most [`REGEX_WITHIN_MAX`].
    pub within: u64,
    /// Which group of a match is redacted; 0 is the whole match. The expression has it.
    pub group: usize,
}

/// The most that `within` may be: what is searched is held in memory.
pub const REGEX_WITHIN_MAX: u64 = 16 << 20;

impl Possible {
    /// What is possible by one or by the other.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            deny: self.deny || other.deny,
            hide: self.hide || other.hide,
            varies: self.varies || other.varies,
            read_only: self.read_only || other.read_only,
            append_only: self.append_only || other.append_only,
            redact: self.redact || other.redact,
        }
    }
}

impl Decision {
    /// Whether nothing is taken from the caller.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.access == Access::Allow
            && !self.read_only
            && !self.append_only
            && self.redact.is_empty()
            && !self.needs_seal()
    }

    /// Whether what is not sealed cannot be opened.
    #[must_use]
    pub fn needs_seal(&self) -> bool {
        self.verify == Some(VerifyWord::Required)
    }

    /// Whether what is taken from the caller is the same here and there.
    #[must_use]
    pub fn restricts_like(&self, other: &Self) -> bool {
        (self.access, self.read_only, self.append_only) == (other.access, other.read_only, other.append_only)
            && self.redact == other.redact
            && self.needs_seal() == other.needs_seal()
    }

    /// The stricter of both in each respect: a file with two names may do what both allow.
    #[must_use]
    pub fn strictest(mut self, other: Self) -> Self {
        self.access = self.access.max(other.access);
        self.read_only |= other.read_only;
        self.append_only |= other.append_only;
        self.flow_read = self.flow_read.max(other.flow_read);
        self.flow_write = self.flow_write.max(other.flow_write);
        self.cache = self.cache.or(other.cache);
        for redaction in other.redact {
            if !self.redact.contains(&redaction) {
                self.redact.push(redaction);
            }
        }
        self.place = self.place.or(other.place);
        // A mount with a seal checks what is sealed.
        let strict = |verify: Option<VerifyWord>| verify.unwrap_or(VerifyWord::IfSealed);
        if strict(other.verify) > strict(self.verify) {
            self.verify = other.verify;
        }
        self.rules.extend(other.rules);
        self.rules.sort_unstable();
        self.rules.dedup();
        self
    }
}

impl Effects {
    /// Whether it takes something from somebody.
    pub(crate) fn restricts(&self) -> bool {
        matches!(self.access, Some(AccessWord::Deny(_) | AccessWord::Hide))
            || self.read_only == Some(true)
            || self.append_only == Some(true)
            || matches!(self.redact, Some(Some(_)))
            || self.verify == Some(Some(VerifyWord::Required))
    }

    /// Puts what it speaks of instead of what was said before.
    pub(crate) fn apply(&self, decision: &mut Decision) {
        match self.access {
            Some(AccessWord::Allow) => decision.access = Access::Allow,
            Some(AccessWord::Deny(number)) => decision.access = Access::Deny(number),
            Some(AccessWord::Hide) => decision.access = Access::Hide,
            None => {}
        }
        decision.read_only = self.read_only.unwrap_or(decision.read_only);
        decision.append_only = self.append_only.unwrap_or(decision.append_only);
        decision.flow_read = self.flow_read.unwrap_or(decision.flow_read);
        decision.flow_write = self.flow_write.unwrap_or(decision.flow_write);
        decision.cache = self.cache.unwrap_or(decision.cache);
        if let Some(redact) = &self.redact {
            decision.redact = redact.iter().cloned().collect();
        }
        if let Some(place) = &self.place {
            decision.place.clone_from(place);
        }
        decision.verify = self.verify.unwrap_or(decision.verify);
    }
}

impl FlowWord {
    /// Every flow that a rule may name.
    pub const ALL: [Self; 3] = [Self::Passthrough, Self::Splice, Self::Served];

    /// Its word in a file of rules.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Passthrough => "passthrough",
            Self::Splice => "splice",
            Self::Served => "served",
        }
    }
}

impl VerifyWord {
    /// Every one that a rule may name.
    pub const ALL: [Self; 3] = [Self::Off, Self::IfSealed, Self::Required];

    /// Its word in a file of rules.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::IfSealed => "if-sealed",
            Self::Required => "required",
        }
    }
}

impl CacheWord {
    /// Every cache mode that a rule may name.
    pub const ALL: [Self; 3] = [Self::Keep, Self::Drop, Self::Direct];

    /// Its word in a file of rules.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Drop => "drop",
            Self::Direct => "direct",
        }
    }
}

impl fmt::Display for FlowWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
