//! The system calls that shuntfs makes, behind a safe interface.
//!
//! One family of calls a module. Everything takes descriptors, not paths, follows no symlink that it was not asked to,
//! and opens close-on-exec. The crate knows no protocol and keeps no state beyond a descriptor of `/proc/self/fd` and
//! what a thread was prepared to be ([`identity`]).

pub mod attrs;
pub mod caps;
pub mod data;
pub mod device;
pub mod dir;
pub mod event;
pub mod handle;
pub mod identity;
pub mod names;
pub mod open;
pub mod region;
pub mod spawn;
pub mod stat;
pub mod threads;
pub mod uring;
pub mod xattr;

mod proc_fd;
mod raw;
mod splice;
mod statfs;

pub use caps::Cap;
pub use device::FuseDevice;
pub use dir::{DirReader, DirRecord};
pub use handle::FileHandle;
pub use identity::{Caller, ThreadIdentity};
pub use rustix::io::Errno as OsError;
pub use stat::{FsMagic, FsStat, Stat};

/// The result of a system call.
pub type Result<T> = std::result::Result<T, OsError>;
