//! Nodes: what the kernel knows of the lower trees.
//!
//! A node is known to the kernel by its number, is kept in the table by its key ([`Node::key`]), and has a place
//! ([`place::Place`]): where its lower inode is and how it is reached. The key is the identity of that inode; that of a folder in a
//! merge, which may be in several places ([`parts::Parts`]), is a number of its own.

mod identity;
mod marks;
mod mobile;
mod parts;
mod place;
mod state;

pub(crate) use identity::{Identity, device_number, mix};
pub(crate) use marks::Marks;
pub(crate) use mobile::{Change, Mobile, Move};
pub(crate) use parts::{Parts, Way};
pub(crate) use place::Place;
pub(crate) use state::Node;
