//! File systems without async: methods that may block, and, on top of them, file systems that think in paths.
//!
//! [`Blocking`] makes a [`crate::Filesystem`] of a [`BlockingFilesystem`], each of whose methods runs on a thread of the offload pool.
//! [`Paths`] makes a [`BlockingFilesystem`] of a [`PathFilesystem`], and knows by which path the kernel reached each node.

mod adapter;
mod filesystem;
mod name_locks;
mod path_filesystem;
mod paths;
mod released;

pub use adapter::Blocking;
pub use filesystem::{BlockingFilesystem, Caller, DirEntry, New};
pub use path_filesystem::{PathFilesystem, Place};
pub use paths::Paths;
