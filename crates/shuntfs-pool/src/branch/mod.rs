//! Branches: the lower trees that a pool shows: one, or those of a merge.
//!
//! A branch owns what there is once for each lower tree: its root, its mounts, its device, whether it can be written, and the
//! lane of its lower calls. What is said of a disk that may be sick
//! is here, too: who asks it ([`asker`]), what is under way on it ([`flight`]), and what came of that ([`health`]). A node names its branch by the mount that it is on ([`MountIndex`]).

mod ahead;
mod all;
mod asker;
mod flight;
mod health;
mod lane;
mod mounts;
mod opens;
mod probe;
mod pulse;
mod tree;
mod twins;

pub(crate) use ahead::Ahead;
pub(crate) use all::{Agreed, Branches};
pub(crate) use flight::{
    Escape, Flights, InFlight, Parting, Up, copies_to, own_number, touches, touches_below, touches_nothing,
    touches_on, waits, was_left,
};
pub(crate) use health::Why;
pub(crate) use mounts::{Mount, MountIndex};
pub(crate) use opens::OpenThere;
pub(crate) use probe::is_failure;
pub(crate) use tree::{Branch, BranchTerms, space_of};
pub(crate) use twins::Twins;

#[cfg(test)]
pub(crate) use mounts::Mounts;
