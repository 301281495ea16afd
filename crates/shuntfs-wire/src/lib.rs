//! The FUSE wire protocol, ABI 7.46: layouts, typed requests and replies. No I/O, no unsafe.
#![forbid(unsafe_code)]
#![expect(
    missing_debug_implementations,
    reason = "the derives of zerocopy make a marker type for each field"
)]

pub mod abi;
pub mod op;
pub mod uring;

mod dirent;
mod errno;
mod header;
mod ids;
mod init_flags;
mod macros;
mod name;
mod notification;
mod opcode;
mod request;

pub use dirent::{Dirent, DirentSink};
pub use errno::{Errno, Result};
pub use header::{InHeader, OutHeader};
pub use ids::{ByteRange, Fh, Generation, LockOwner, LookupCount, NodeId, Unique};
pub use init_flags::InitFlags;
pub use name::Name;
pub use notification::Notification;
pub use op::*;
pub use opcode::Opcode;
pub use request::{Extensions, Groups, Op, ParseError, Request};
pub use uring::{
    UringAddBufpool, UringCmdReq, UringEntFlags, UringEntInOut, UringQueueFlags, UringReqHeader,
};
