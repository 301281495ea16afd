//! Sealed trees: what `shunt seal` makes, `shunt verify` checks and a verified mount shows.
//!
//! - [`Manifest`] says what is in a tree: names, attributes and digests. It is a sealed file itself, so every block of it is
//!   checked as it is read, and opening it takes the same time for a file and for a million.
//! - [`Store`] keeps the manifest, the seal over it and the files' hash trees.
#![forbid(unsafe_code)]

mod error;
mod manifest;
mod seal_file;
mod store;

pub use error::{ManifestError, StoreError};
pub use manifest::{
    Blocks, Child, Codec, Counts, Draft, DraftNode, Entries, Entry, Manifest, ManifestEntries, Node,
    NodeIndex, NodeKind, Xattr,
};
pub use seal_file::{Seal, SealSignature};
pub use store::{SealedFile, Store};
