//! Branches: the lower trees that a pool shows: one, or those of a merge.
//!
//! A branch owns what there is once for each lower tree: its root, its mounts, its device, whether it can be written, and the
//! lane of its lower calls. A node names its branch by the mount that it is on ([`MountIndex`]).

mod all;
mod lane;
mod mounts;
mod opens;
mod tree;
mod twins;

pub(crate) use all::{Agreed, Branches};
pub(crate) use mounts::{Mount, MountIndex};
pub(crate) use opens::OpenThere;
pub(crate) use tree::{Branch, BranchTerms};
pub(crate) use twins::Twins;

#[cfg(test)]
pub(crate) use mounts::Mounts;
