//! Policies: which branches an operation goes to, by the names and with the meanings that mergerfs gave them.
//!
//! A policy is a function of a snapshot: of each branch it is known what may be done there, how much space is left, how far the
//! path is there and when it was changed ([`Candidate`]). What comes out names the branches that are chosen, and of each other
//! one the reason ([`Pick`]). Nothing here asks a file system.
//!
//! Where mergerfs's documentation leaves something open, mergerfs 2.42 decides: of branches with equally much or little free
//! space, and of equally new ones, the last is chosen, and of those with equally much used the first; and where all branches are
//! left out, EROFS goes before ENOSPC, and that before ENOENT. One thing is otherwise: where a policy that starts with `msp` finds
//! no branch at any folder on the way, mergerfs 2.42 tries forever, and this says why.

mod candidate;
mod choose;
mod function;
mod pick;
mod table;
#[cfg(test)]
mod tests;

pub use candidate::{BranchMode, Candidate, Space};
pub use function::Function;
pub use pick::{Pick, Why};
pub use table::{Category, POLICIES, Policy};
