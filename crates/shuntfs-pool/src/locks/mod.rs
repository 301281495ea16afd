//! Locks kept by the lower file system, so that processes below see them.
//!
//! A POSIX or OFD lock of the mount belongs to an owner that the kernel names; below it is an OFD lock of a
//! lower open file of its own, one for each (node, owner). A `flock` is one of the open file's own lower file.
//! So two owners on the mount stand in each other's way below exactly as two processes there do.
//!
//! Where another server may follow this one, each lower file that carries locks is written down for it: see [`keeping`].
//!
//! Whoever waits does so without a thread of its own: see [`wait`].

mod keeping;
mod ops;
mod ranges;
mod table;
mod wait;

pub(crate) use keeping::part;
pub(crate) use ops::{flush, getlk, setlk};
pub(crate) use table::LockTable;
