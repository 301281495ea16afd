//! The manifest of a tree: every node's attributes, names and root hash, in one file that is itself sealed.
//!
//! [`layout`] says where what lies, [`codec`] reads it through [`Blocks`] and trusts none of it, [`sealed`] gives it
//! blocks that were checked against the manifest's own tree, [`writer`] makes one.

mod codec;
mod layout;
mod node;
mod open;
mod sealed;
mod writer;

pub use codec::{Blocks, Codec, Entries};
pub use layout::Counts;
pub use node::{Entry, Node, NodeIndex, NodeKind, Xattr};
pub use open::{Manifest, ManifestEntries};
pub use writer::{Child, Draft, DraftNode};
