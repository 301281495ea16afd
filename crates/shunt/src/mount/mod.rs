//! `shunt mount`, and the mount helper.
//!
//! The server is this program once more, with `--foreground`: a child that leaves the caller's session and
//! tells over a pipe when the mount answers, or why there is none ([`announce`], [`launch`]). Everything that
//! can be wrong with a mount is looked for in one place ([`check`]), in the server, before anything happens.

mod announce;
mod answers;
mod check;
mod command;
mod launch;
mod serve;
mod session;
mod verdict;
mod verify;

pub(crate) use command::{run, run_helper};
