//! A pool: folders shown through shuntfs, one or several as one.
//!
//! A node is a lower inode, never a name: hard links share one, a rename keeps it, and its id is never used for
//! another. The kernel's lookups are counted in a table; the lower inode is reached by file handle through a
//! bounded cache of `O_PATH` descriptors, so a million files that were walked cost memory but no descriptors.
//! Nothing is resolved as a path: every step starts at a descriptor, takes one component, and follows no symlink.
//!
//! What each operation costs below is in the functions that do it; the ones that matter: a lookup two calls,
//! attributes of a cached node one, a repeated open none.
#![forbid(unsafe_code)]

mod answers;
mod branch;
mod dir;
mod elsewhere;
mod error;
mod facts;
mod fds;
mod file;
mod find;
mod folders;
mod folding;
mod gate;
mod guard;
mod init;
mod keeping;
mod keeping_names;
mod keeping_renames;
mod keeping_seals;
mod lasting;
mod ledger;
mod leftover;
mod locks;
mod lowers;
mod merge;
mod mode;
mod mover;
mod name_buf;
mod node;
mod noting;
mod op;
mod options;
mod outcome;
mod owed;
mod parked;
pub mod policy;
mod pool;
mod reach;
mod records;
mod redact;
mod removal;
mod reread;
mod rules;
mod scarce;
mod sealed;
mod seals;
mod shared;
mod slots;
mod surviving;
mod table;
#[cfg(test)]
mod tests;
mod view;
mod whereabouts;
mod who;
#[cfg(test)]
mod woken;
mod writable;

pub use dir::PoolDir;
pub use error::PoolError;
pub use facts::{BranchFacts, Facts, Health, Observer};
pub use file::PoolFile;
pub use folding::Folds;
pub use lasting::Fleeting;
pub use ledger::{Earlier, Ledger};
pub use merge::{
    BranchChange, BranchOptions, BranchPick, BranchWords, Explanation, InodeCalc, KeptBranches, MergeOptions,
    MoveOnFull,
};
pub use mover::{MoverError, MoverFacts, MoverFile, MoverNews, MoverOutcome};
pub use options::{Cache, Calls, FlowWish, Locks, PoolOptions};
pub use pool::Pool;
pub use rules::{
    Attempt, Caller, DEPENDS_ON_PROGRAM, Judgement, Place, RuleControl, RuleFacts, RuleReport, Said,
};
pub use seals::SealControl;
pub use shuntfs_sys::{AccessTime, AccessTimes};
pub use slots::Slots;
