//! Numbers of nodes that outlive the mount, for file handles: `name_to_handle_at`, and so an NFS server's.
//!
//! A handle of the mount holds a node's number and its generation, and the kernel asks for a node that it has forgotten by the number
//! alone. So the number says which lower inode it is ([`layout`]). The kernel then compares what was found with the handle's generation. The top
//! bit tells such numbers from those of nodes that are not found again: those on other file systems than the source's, and those with a longer
//! inode number.
//!
//! A handle says nothing of the folder that a file is in, so whoever may open handles (CAP_DAC_READ_SEARCH) can make one up for any inode
//! number. This is why the source, or each of several branches, must be a file system as a whole, with nothing mounted over a part of it, and why
//! there are no rules and no seals: those go by names.
//!
//! A folder of a merge is on several branches and has one number: that of its lower inode on the branch on which it was made first
//! ([`crate::find::Found::lead`]).

mod branch;
mod fleeting;
mod layout;

pub(crate) use branch::{Lasting, is_covered};
pub use fleeting::Fleeting;
