//! The FUSE wire protocol, ABI 7.45: layouts, typed requests and replies. No I/O, no unsafe.
#![forbid(unsafe_code)]

mod errno;
mod ids;
mod name;

pub use errno::{Errno, Result};
pub use ids::{ByteRange, Fh, Generation, LockOwner, LookupCount, NodeId, Unique};
pub use name::Name;
