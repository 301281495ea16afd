//! How FUSE requests arrive and replies leave: one device, cloned devices, io_uring.
//!
//! A transport is prepared before INIT is answered ([`Prepared::prepare`]: everything that can fail), and
//! started after ([`Prepared::start`]). It hands each request to the server as an [`Exchange`], whose
//! [`Done`] it sends.

mod board;
mod company;
mod device;
mod draining;
mod exchange;
mod interrupts;
mod kept;
mod load;
mod lower;
mod meter;
mod moved;
mod planning;
mod pools;
mod port;
mod prepared;
mod readers;
mod ring;
mod ring_way;
mod serving;
mod settings;
mod slot;
mod splice;
mod underway;
mod watch;

pub use draining::NotFilled;
pub use exchange::{Done, Exchange, Judge, Signal};
pub use kept::KeptRings;
pub use lower::{LowerFile, Traffic};
pub use pools::{NoZeroCopy, NotPinned, Pinned, Pools, Settled, ZeroCopy};
pub use port::Waiting;
pub use prepared::{PrepareError, Prepared, Running, StartError, leave_queue};
pub use settings::{Settings, TransportKind, UnknownTransport, Warm};
pub use underway::{Stall, StallSink};
