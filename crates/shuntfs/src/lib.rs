//! shuntfs: a FUSE stack whose server decides, at each open, where a file's bytes flow.
#![allow(async_fn_in_trait, reason = "futures are deliberately !Send: each lives and dies in one queue")]

mod args;
mod attr;
mod cx;
mod delegation;
mod filesystem;
mod init;
mod reply;

pub use args::{CopyFileRange, Create, Fallocate, Ioctl, Link, LockRange, LockRequest, LockType, Mkdir, Mknod,
    OpenFlags, OpSet, Rename, SetAttr, SetTime, SetXattr, Symlink, Tmpfile, Whence};
pub use attr::{Attr, AttrReply, Birth, Entry, Statfs, Timestamp};
pub use delegation::{Access, Backing, CacheHint, Delegation, Flow, LowerFile, Opened, OpenedDir, RangeMap, RangeSource, Reason};
pub use cx::Cx;
pub use filesystem::{Filesystem, IoctlTarget};
pub use init::{InitError, Offered, Wanted};
pub use reply::{DirSink, Filled, IoctlReply, Listed, ReadReply, WriteData, Written};
pub use shuntfs_wire::{ByteRange, Errno, Fh, Generation, LockOwner, LookupCount, Name, NodeId, Result, Unique};
