//! shuntfs: a FUSE stack whose server decides, at each open, where a file's bytes flow.
//!
//! A file system is one type that implements [`Filesystem`], whose text has the smallest one there is; [`serve`] mounts it and
//! serves it until Ctrl-C, [`Session::mount`] serves it in threads of its own:
//!
//! ```no_run
//! use std::path::Path;
//! use std::sync::Arc;
//!
//! use shuntfs::{Filesystem, MountOptions, Session, SessionOptions, Transport};
//!
//! fn show(fs: impl Filesystem, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
//!     let mount: MountOptions = "ro,allow_other,fsname=mine".parse()?;
//!     let options = SessionOptions { transport: "cloned".parse()?, ..SessionOptions::default() };
//!     let session = Session::mount(Arc::new(fs), path, &mount, &options)?;
//!     println!("{} serves {} requests at once", session.status().transport.kind, options.depth);
//!     session.unmount()?;
//!     session.wait();
//!     Ok(())
//! }
//! ```
//!
//! What an open answers with carries a [`Delegation`]: whether the kernel moves the bytes of a lower
//! file by itself (passthrough), the library moves them without looking, or the file system answers each READ and
//! WRITE; for the whole file, by direction ([`Delegation::split`]) or by range ([`Extents`]). The library settles the
//! wish against what the kernel allows, and tells both what became of it and why ([`Session::flow_of`],
//! [`Session::status`]).
//!
//! The library prints nothing: what an operator should know goes to `tracing`, and is lost where the program has no subscriber
//! (`tracing_subscriber::fmt().with_writer(std::io::stderr).init()` is one).
//!
//! Methods that block are served by [`Blocking`]; a file system that thinks in paths is a [`PathFilesystem`] in [`Paths`].
//!
//! The examples `hello`, `null`, `commands`, `mirror`, `web`, `passthrough`, `union`, `shout` and `concat` are complete file systems,
//! each in one file.
#![expect(async_fn_in_trait, reason = "futures are deliberately !Send: each lives and dies in one queue")]

mod args;
mod attr;
mod backing;
mod blocking;
mod choose;
mod counters;
mod cursor;
mod cx;
mod delegation;
mod dispatch;
mod draft;
mod encode;
mod extents;
mod file_type;
mod filesystem;
mod flow;
mod handles;
mod handshake;
mod hatch;
mod init;
mod latency;
mod mount;
mod negotiate;
mod node_hash;
mod node_table;
mod nodes;
mod notify;
mod open_flags;
mod options;
mod pages;
mod poll;
mod range_map;
mod reply;
mod run;
mod server;
mod session;
mod stalls;
mod status;
pub mod takeover;
mod trace;

pub use args::{
    CopyFileRange, Create, Fallocate, Ioctl, Link, LockRange, LockRequest, LockType, Mkdir, Mknod, OpSet,
    Rename, SetAttr, SetTime, SetXattr, Symlink, Tmpfile, Whence,
};
pub use attr::{Attr, AttrReply, Birth, Entry, Statfs, Timestamp};
pub use blocking::{Blocking, BlockingFilesystem, Caller, DirEntry, New, PathFilesystem, Paths, Place};
pub use cursor::Cursor;
pub use cx::Cx;
pub use delegation::{
    Access, Backing, CacheHint, Delegation, Flow, Flows, LowerFile, Opened, OpenedDir, Reason, Settled,
    Split, Traffic,
};
pub use draft::Draft;
pub use extents::{Extent, Extents, ExtentsError};
pub use file_type::FileType;
pub use filesystem::{Filesystem, IoctlTarget};
pub use hatch::Hatch;
pub use init::{InitError, Offered, Wanted};
pub use latency::{LatencyStatus, LatencyStep};
pub use mount::{AbortError, MountError, UnmountError};
pub use negotiate::Negotiated;
pub use node_table::NodeTable;
pub use notify::{Notifier, NotifyError};
pub use open_flags::OpenFlags;
pub use options::{MountOptions, OptionError, SessionOptions, Transport};
pub use poll::{Poll, PollEvents, PollHandle};
pub use range_map::{RangeMap, RangeSource};
pub use reply::{DirSink, Filled, IoctlReply, Listed, ReadReply, WriteData, Written};
pub use run::{ServeError, SignalOutcome, Signals, serve};
pub use session::Session;
pub use shuntfs_sys::FuseDevice;
pub use shuntfs_transport::{Judge, KeptRings, NotFilled, TransportKind, UnknownTransport, leave_queue};
pub use shuntfs_wire::{
    ByteRange, Errno, Fh, Generation, InitFlags, LockOwner, LookupCount, Name, NodeId, Opcode, Result, Unique,
};
pub use stalls::StallStatus;
pub use status::{OpStatus, Status, TransportStatus};
pub use trace::{NodePlace, Trace, TraceError, TraceFilter, TraceRecord, Traced};
