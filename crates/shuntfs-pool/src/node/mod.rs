//! Nodes: what the kernel knows of the lower trees.
//!
//! A node is known to the kernel by its number, is kept in the table by its key ([`Node::key`]), and has a place
//! ([`place::Place`]): where its lower inode is and how it is reached. Today the key is the identity of that inode.

mod identity;
mod marks;
mod place;
mod state;

pub(crate) use identity::{Identity, device_number, mix};
pub(crate) use marks::Marks;
pub(crate) use state::Node;
