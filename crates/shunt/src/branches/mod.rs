//! The branches of a mount: as users write them, and as they come, go and change while it is mounted.

mod change;
mod list;
mod wait;

pub(crate) use change::run;
pub use change::{BranchesArgs, BranchesOf, BranchesWhat};
pub(crate) use list::{absolute, of_source, read};
pub(crate) use wait::wait_for;
