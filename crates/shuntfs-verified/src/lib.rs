//! Sealed files through shuntfs: every block is checked as it is read, on any lower file system.
//!
//! - [`Checks`] is what all files of a mount share: the cache of tree blocks, what was found bad, what was counted.
//! - [`CheckedFile`] is one sealed file on a lower file system; its [`CheckedFile::read`] answers a READ with checked bytes,
//!   or with an error. Where the lower file system verifies the file by itself, [`CheckedFile::delegation`] gets out of the
//!   way.
//! - [`Sealed`] is a file system of its own: names, attributes and bytes are a manifest's, and what is not in it does
//!   not exist.
//! - [`Seals`] finds the sealed files of a tree, for whoever shows that tree in another way.
#![forbid(unsafe_code)]

mod ahead;
mod cache;
mod checked;
mod checks;
mod counters;
mod error;
mod files;
mod foresee;
mod io;
mod join;
mod names;
mod native;
mod options;
mod other_names;
mod outliving;
mod pieces;
mod rooms;
mod sealed;
mod seals;
mod taken;
mod tree;
mod verdicts;

pub use ahead::Stream;
pub use checked::CheckedFile;
pub use checks::Checks;
pub use counters::VerifyFacts;
pub use error::VerifiedError;
pub use native::{KernelVerity, Measure};
pub use options::{CheckOptions, DataReadahead, TreeReadahead};
pub use sealed::{NODE_XATTR, Sealed, SealedDir, SealedFile, seal_ioctl};
pub use seals::{CheckedBy, SealNote, Seals, SealsOptions};
pub use taken::TakenSeal;
