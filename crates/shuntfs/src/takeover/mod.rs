//! A connection that outlives its server: what is needed to serve one that somebody else had begun to serve.
//!
//! A connection of FUSE lives for as long as a descriptor of its device is open, in whatever process. So where another process keeps the
//! descriptors of a server that dies, a successor can go on: the callers wait, and do not see that anything happened. Requests that had
//! been read and not answered are sent again ([`resend()`], Linux 6.9). INIT is not: what was agreed on there, the first server tells before
//! it answers ([`Handover`]).
//!
//! [`Session::serve_lasting`](crate::Session::serve_lasting) begins such a connection, [`Session::take_over`](crate::Session::take_over) goes
//! on with it, and [`KeptMount`] is its mount, whose life is not a server's. The crate `shuntfs-keeper` brings them together: a process
//! that keeps the descriptors and starts the servers.
//!
//! What the file system itself knows dies with its server. So only one of these two can be taken over: one of which nothing must survive
//! ([`Stateless`]), without numbers of open files; or one that keeps its nodes and its open files outside of the server ([`Surviving`]), in a file
//! in memory and in descriptors that another process has, too. Locks are the kernel's, unless the latter keeps them ([`Surviving::keeps_locks`]).
//!
//! io_uring can be taken over only from a server that is replaced as planned, of a file system with state: every slot of its rings must hold a
//! request that is not begun, or an answer that is not sent, when it is killed ([`Session::kept_rings`](crate::Session::kept_rings)). When a
//! server dies otherwise, the kernel fails requests whose slot was free (ECANCELED, 6.18.39 and later; before, they hang).

mod begin;
mod error;
mod handover;
mod mount;
mod resend;
mod restore;
mod stateless;
mod store;
mod surviving;

pub use begin::rehearse;
pub use error::{HandoverError, TakeoverError};
pub use handover::{Handover, OfferedInit};
pub use mount::KeptMount;
pub use resend::resend;
pub use shuntfs_sys::descriptors::LeftDescriptors;
pub use stateless::Stateless;
pub(crate) use store::{Begun, KeptCounters, OpenRecord, Requests, keeps_result};
pub use store::{
    KeptNode, KeptNodes, LeftNode, LeftNodes, NodePlace, STATE_VERSION, STATE_VERSIONS, StoreError,
};
pub(crate) use surviving::Keeps;
pub use surviving::{Deaths, FileIdentity, KeptOpen, LeftBehind, LeftOpen, NotTaken, Surviving};
