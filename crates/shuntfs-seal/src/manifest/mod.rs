//! The manifest of a tree: every node's attributes, names and root hash, in one file that is itself sealed.
//!
//! [`layout`] says where what lies, [`codec`] reads it through [`Blocks`] and trusts none of it, [`sealed`] gives it
//! blocks that were checked against the manifest's own tree, [`writer`] makes one.

mod codec;
mod layout;
mod node;
mod open;
mod sealed;
mod taken;
mod writer;

#[cfg(test)]
mod tests;

pub use codec::{Blocks, Codec, Entries};
pub use layout::Counts;
pub(crate) use layout::{STORE_NAME, XATTRS_LEN_MAX};
pub use node::{Entry, Node, NodeIndex, NodeKind, Xattr};
pub use open::{Manifest, ManifestEntries};
pub(crate) use sealed::{SealedBlocks, TreeFile};
pub use taken::Taken;
pub use writer::{Child, Draft, DraftNode, Placed};
