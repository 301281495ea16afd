//! Sealed trees: what `shunt seal` makes, `shunt seal verify` checks and a verified mount shows.
//!
//! - [`Manifest`] says what is in a tree: names, attributes and digests. It is a sealed file itself, so every block of it is
//!   checked as it is read, and opening it takes the same time for a file and for a million.
//! - [`seal_tree`] seals a folder.
//! - [`verify_tree`] compares a folder with its manifest, and says what differs.
//! - [`seal_file()`] and [`Side`] do the same for single files, without a store.
//! - [`Trust`] says whose seals are taken.
//! - [`Store`] keeps the manifest, the seal over it and the files' hash trees.
#![forbid(unsafe_code)]

mod check;
mod error;
mod inodes;
mod manifest;
mod named;
mod new_file;
mod seal_file;
mod sealing;
mod shown;
mod side;
mod spread;
mod store;
mod trust;
mod walk;

pub use check::{Attribute, Checking, Difference, Fault, Finding, Verified, verify_file, verify_tree};
pub use error::{ManifestError, StoreError};
pub use inodes::Inodes;
pub use manifest::{
    Blocks, Child, Codec, Counts, Draft, DraftNode, Entries, Entry, Manifest, ManifestEntries, Node,
    NodeIndex, NodeKind, Placed, Taken, Xattr,
};
pub use named::Named;
pub use new_file::Beside;
pub use seal_file::{Issue, Seal, SealSignature, ToSign};
pub use sealing::{Allowed, Belief, Enabled, Progress, Report, SealError, SealOptions, attach, seal_tree};
pub use shown::{Shown, shown};
pub use side::{Side, seal_file};
pub use store::{SealedFile, Store};
pub use trust::{
    Accepted, Day, Seen, SeenSerial, StoredKey, TreeName, TreeNameError, Trust, TrustStore, split_key_file,
};
