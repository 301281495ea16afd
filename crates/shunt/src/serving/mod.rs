//! The server of a mount, whatever it shows: started in the background by this program once more, with `--foreground`; told
//! by signals to end; leaving nothing behind.
//!
//! The child leaves the caller's session and tells over a pipe when the mount answers, or why there is none ([`announce`],
//! [`launch()`]).

mod announce;
mod launch;
mod rights;
mod run;
mod starting;

pub(crate) use announce::Announce;
pub(crate) use launch::launch;
pub(crate) use rights::{Task, kept};
pub(crate) use run::{Serving, Started, mount_point_of, serve};
