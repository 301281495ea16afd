//! `shunt doctor`: what this machine offers, and how to get what it does not.

pub(crate) mod access;
mod finding;
mod kernel;
mod limits;
mod report;
mod uring;

pub use finding::{Finding, Verdict};
pub(crate) use kernel::in_first_user_namespace;
pub use report::findings;
pub(crate) use report::run;
