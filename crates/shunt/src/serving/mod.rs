//! The server of a mount, whatever it shows: started in the background by this program once more, with `--foreground`; told
//! by signals to end; leaving nothing behind.
//!
//! The child leaves the caller's session and tells over a pipe when the mount answers, or why there is none ([`announce`],
//! [`launch()`]). Where a mount is to survive its server, that process is its keeper, and servers are children of it ([`keep`]).

mod announce;
mod kept;
mod launch;
mod rights;
mod run;
mod starting;

pub(crate) use announce::Announce;
pub(crate) use kept::{KeptPlace, SCRAPES, go_on, keep, kept_options};
pub(crate) use launch::launch;
pub(crate) use rights::{Task, kept};
pub(crate) use run::{Serving, Started, mount_point_of, serve};
