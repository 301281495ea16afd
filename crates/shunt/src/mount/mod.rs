//! `shunt mount`, and the mount helper.
//!
//! How the server is started and ended is in [`crate::serving`]. Everything that can be wrong with a mount is looked for in
//! one place ([`check`]), in the server, before anything happens.

mod answers;
pub(crate) mod check;
mod command;
mod kept;
mod passed;
mod serve;
pub(crate) mod session;
mod verdict;
mod verify;

pub(crate) use command::{run, run_helper};
pub(crate) use kept::SeatOf;
