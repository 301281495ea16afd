//! A kernel in memory, for tests of file systems: no /dev/fuse, no privileges, no mount.
//!
//! [`Fake::mount`] puts a [`shuntfs::Filesystem`] behind a kernel that lives in the test's own process. The requests go
//! through the library's own threads, device and ring loops and dispatch; what stands in for /dev/fuse is a socket. A test then
//! makes system calls, and each becomes the requests that Linux would send for it:
//!
//! ```
//! # use std::time::Duration;
//! # use shuntfs::*;
//! # struct MyFs;
//! # impl Filesystem for MyFs {
//! #     type File = ();
//! #     type Dir = ();
//! #     async fn lookup(&self, _: &Cx<'_>, _: NodeId, name: Name<'_>) -> Result<Entry> {
//! #         if name.as_bytes() != b"greeting" { return Err(Errno::NOENT); }
//! #         let node = NodeId::new(2).unwrap();
//! #         Ok(Entry::new(node, attr(node)))
//! #     }
//! #     async fn getattr(&self, _: &Cx<'_>, node: NodeId, _: Option<&()>) -> Result<AttrReply> { Ok(attr(node)) }
//! #     async fn open(&self, _: &Cx<'_>, _: NodeId, _: OpenFlags) -> Result<Opened<()>> { Ok(Opened::served(())) }
//! #     async fn read<'q>(&self, _: &Cx<'_>, _: &(), at: ByteRange, reply: ReadReply<'q>) -> Result<Filled<'q>> {
//! #         reply.copy_from_slice(at.of(b"good day"))
//! #     }
//! #     async fn readdir<'q>(&self, _: &Cx<'_>, _: NodeId, _: &(), _: u64, out: DirSink<'q>) -> Result<Listed<'q>> {
//! #         Ok(out.finish())
//! #     }
//! # }
//! # fn attr(node: NodeId) -> AttrReply {
//! #     let mode = if node == NodeId::ROOT { 0o040_755 } else { 0o100_644 };
//! #     Attr { ino: node.get(), mode, nlink: 1, size: 8, ..Attr::default() }.valid_for(Duration::MAX)
//! # }
//! use shuntfs_fake::{Fake, O_RDONLY};
//!
//! let fake = Fake::mount(MyFs)?;
//! assert_eq!(fake.open("/greeting", O_RDONLY)?.read_to_end()?, b"good day");
//! assert_eq!(fake.stat("/farewell").err(), Some(shuntfs::Errno::NOENT));
//! fake.end(); // closes, forgets and unmounts; panics where a rule of the kernel was broken
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is checked
//!
//! The fake keeps the kernel's books, and writes down every breach ([`Rule`]): each request is answered once, with a legal
//! length and error number; a node keeps its type and generation while the kernel holds it, and is never denied; the
//! opens of a node agree on an io mode (`fs/fuse/iomode.c`); backing ids are used while they are registered; an open is
//! released once; listings come to an end and have no cookie twice; an entry of a ring commits the request that it has, once, and pages are left
//! alone after that; nothing panics. [`Fake::finish`] tells what was
//! broken, [`Fake::end`] and dropping panic with it.
//!
//! Names, attributes and pages are cached as the file system says, on a clock that only [`Fake::pass`] moves. Whatever comes
//! from a cache is asked for again and compared ([`Settings::doubts`]), so that a lifetime that is too long, a forgotten
//! notification or a stale page shows at its first use. Times of access and of the inode's change and counts of blocks are
//! not compared.
//!
//! # Rings
//!
//! With [`Settings::rings`] the fake offers FUSE over io_uring, as Linux 6.14 has it or, with pools of payload buffers and zero copy, as
//! Linux 7.3 ([`Rings`]). The rings are real ones of the machine's kernel, which must have io_uring; the fake does what the driver does
//! (`fs/fuse/dev_uring.c`): it fills entries, chooses buffers, puts pages into a ring's table and takes answers. It can refuse each step of the
//! set-up ([`Refusal`]), and say what cannot be true of a request ([`Lie`]). A request goes to the next queue in turn, not to that of its
//! caller's CPU, and pages are memory of the test. Buffers of a ring that are registered and pinned are not known.
//!
//! # What it is not
//!
//! Calls are made one after the other by whoever makes them; several threads may, each with [`Fake::process`]. There is no
//! readahead, no mapping, no writeback cache, and no lock that the kernel keeps; permissions are not checked;
//! PRUNE, POLL and RETRIEVE are taken and have no effect. [`Process::ask`] and [`Process::start`] send any single request,
//! valid or not, and [`Process::replay`] recorded ones. Those are checked for their answers, and are not in the books.
//!
//! [`Fake::wander`] makes calls from a seed, and [`Fake::babble`] requests that no kernel sends: neither may break anything.
//!
//! A server of another make is tested with [`Fake::bare`], which gives the device to be read.
//!
//! A server dies by not answering what it has read. When it is told to ([`shuntfs::takeover::resend`]), the fake sends that again, behind
//! whatever waits (Linux sends it first), and takes answers to the new numbers alone.
#![forbid(unsafe_code)]

mod attrs;
mod backing;
mod books;
mod breach;
mod fake;
mod file;
mod inode;
mod kernel;
mod listing;
mod names;
mod notices;
mod open;
mod pages;
mod process;
mod raw;
mod requests;
mod rings;
mod shape;
mod walk;
mod wander;
mod xattr;

pub use breach::{Breach, Broken, Rule};
pub use fake::{Fake, Settings, Totals};
pub use file::File;
pub use kernel::Caller;
pub use listing::Record;
pub use open::{O_APPEND, O_CREAT, O_EXCL, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY};
pub use process::Process;
pub use raw::Pending;
pub use rings::{Lie, Refusal, RingStep, RingTotals, Rings};
#[cfg(feature = "faults")]
pub use shuntfs_sys::{Failed, Faults, OsError};
pub use shuntfs_wire::FopenFlags;
