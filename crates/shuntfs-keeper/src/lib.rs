//! Keeps a mount alive when its server dies.
//!
//! The process that mounts is the *keeper*. It has one thread, and it starts a child, the *server*, that shares its table of
//! descriptors: whatever the server opens that requests are read through stays open when it is killed. The keeper then has unanswered
//! requests sent again, and starts the next server, which goes on. Callers wait meanwhile, and see nothing else.
//!
//! ```no_run
//! # use shuntfs::*;
//! # struct MyFs;
//! # impl Filesystem for MyFs {
//! #     type File = ();
//! #     type Dir = ();
//! #     async fn getattr(&self, _: &Cx<'_>, _: NodeId, _: Option<&()>) -> Result<AttrReply> { Err(Errno::IO) }
//! # }
//! # impl shuntfs::takeover::Stateless for MyFs {}
//! use std::path::Path;
//!
//! use shuntfs::takeover::KeptMount;
//! use shuntfs::{FileType, MountOptions, SessionOptions};
//! use shuntfs_keeper::{Limits, keep};
//!
//! let mount = KeptMount::mount(Path::new("/mnt/mine"), &MountOptions::default(), FileType::Directory)?;
//! let options = SessionOptions::default();
//! keep(mount, &Limits::default(), |seat| seat.serve(MyFs, &options))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A file system with state implements [`shuntfs::takeover::Surviving`] and is served by [`Seat::serve_surviving`]: its nodes, its open files and
//! what is in passthrough survive, and what was done and not answered is not done again.
//!
//! SIGTERM, SIGINT and SIGHUP to the keeper unmount; the second one detaches a busy mount, the third ends the connection by force.
//!
//! A server that dies again and again, or never becomes ready, is given up ([`Limits`]): the connection is aborted, so that nobody waits
//! forever, and [`keep`] says so. A program that wants signals to mean something else, or has something to do once callers are served,
//! is an [`Attendant`] ([`keep_with`]).
//!
//! # Service managers
//!
//! Where `NOTIFY_SOCKET` says that there is one, it is told that callers are served (READY), how things are (STATUS) and that the keeper is well
//! (WATCHDOG), and is asked to store the descriptors, so that the mount outlives keeper and server: a program that is started again
//! goes on with [`Stored::take`] and [`keep_stored`].
//!
//! # Another version of a program
//!
//! A server can ask for another program to go on ([`Line::replace`]), where the program's [`Attendant`] says how that is started
//! ([`Relay`]). The program is tried first, beside the server ([`Trial`]). Then the keeper becomes that program, with all that is open, and goes on
//! by [`Passed::take`] and [`keep_passed`]; where no server of it becomes ready, or they die too often before one
//! has served for [`Limits::within`], it becomes the program before again.
//!
//! # io_uring
//!
//! No server of a keeper has a ring with a descriptor, for whatever purpose: the process is told never to make one. A ring whose descriptor
//! another process has, as the keeper would, is not taken down when its server dies. Requests of FUSE that it was given are then never
//! answered, and not even an abort of the connection frees their callers.
//!
//! A file system with state can be served on rings without descriptors, where [`SessionOptions`](shuntfs::SessionOptions) ask for io_uring. When
//! such a server dies, the connection is ended ([`KeepError::Ring`]); another program can go on, because the server is then asked to prepare for its
//! end.

mod attendant;
mod channel;
mod dying;
mod ending;
mod filling;
mod keeper;
mod limits;
mod machine;
mod manager;
mod passing;
mod probation;
mod replacing;
mod seat;
mod shelter;
mod silence;
mod stored;
mod threads;
mod vigil;

pub use attendant::Attendant;
pub use channel::Line;
pub use keeper::{Ended, KeepError, keep, keep_passed, keep_stored, keep_with};
pub use limits::{GiveUp, Limits};
pub use passing::{Layouts, NOTE_WORD, Passed, PassedError, Relay, SUITS, TRIAL_WORD, Trial};
pub use seat::Seat;
pub use stored::{Stored, StoredError};
