//! What is told of a run of the mover.

use serde::{Deserialize, Serialize};
use shuntfs::Errno;
use thiserror::Error;

/// Why the mover does not run.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum MoverError {
    /// There is one folder.
    #[error("it shows one folder, but files are moved between several")]
    NotOfOneFolder,
    /// No rule speaks of it.
    #[error("no rule says what to move: it needs rules with `move`")]
    NoRules,
    /// It runs already.
    #[error("the mover is running already (EBUSY): `shunt mover status` shows how far it is")]
    Busy,
    /// There is no thread for it, or none that may act for users.
    #[error("there is no thread for it: {0}")]
    Thread(Errno),
    /// Nothing may be changed.
    #[error("nothing can be changed there: {0}")]
    ReadOnly(Errno),
}

/// How far a run is, or how it ended.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MoverFacts {
    /// Whether it has not ended.
    pub running: bool,
    /// Whether nothing is moved, and only looked what would be.
    pub dry_run: bool,
    /// When it began, in seconds since 1970.
    pub started_s: u64,
    /// How long it has taken, in milliseconds.
    pub took_ms: u64,
    /// The branch that it is at; none at the end.
    pub branch: Option<String>,
    /// Whether it is searching that branch; else it moves what it found there.
    pub searching: bool,
    /// How many files it has looked at. One that it looks at again counts again.
    pub seen: u64,
    /// How many files it has found that are due.
    pub due_files: u64,
    /// How many bytes these take.
    pub due_bytes: u64,
    /// How many of these it is done with, moved or not.
    pub done_files: u64,
    /// The same in bytes; of the file that is being moved, what was copied.
    pub done_bytes: u64,
    /// How many files were moved, or would be.
    pub moved_files: u64,
    /// How many bytes these take.
    pub moved_bytes: u64,
    /// How many were left where they are, for a reason.
    pub left_files: u64,
    /// How many could not be moved, or folders not be read, because of an error.
    pub failures: u64,
    /// Whether it was ended before it was done.
    pub cancelled: bool,
}

/// What became of one file that was due.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MoverFile {
    /// Its path in the pool, without a slash in front. What is not UTF-8 is U+FFFD in it.
    pub path: String,
    /// The bytes of a path that is not UTF-8, in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_hex: Option<String>,
    /// The branch that it was on.
    pub from: String,
    /// The branch that it went to, or would go to.
    pub to: Option<String>,
    /// How many bytes it takes.
    pub bytes: u64,
    /// The rule, if it came to that.
    pub rule: Option<String>,
    /// What became of it.
    pub outcome: MoverOutcome,
    /// Why it was not moved.
    pub why: Option<String>,
}

/// What became of a file that was due.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MoverOutcome {
    /// It was moved.
    Moved,
    /// It would be, if this were no dry run.
    WouldMove,
    /// It stays, for a reason.
    Left,
    /// It stays, because of an error.
    Failed,
}

/// What is told while the mover runs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MoverNews {
    /// It is done with a file.
    File(MoverFile),
    /// So far it is; told several times a second.
    Progress(MoverFacts),
}
