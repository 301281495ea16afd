//! One io_uring with 128-byte submissions, as FUSE over io_uring needs it.

mod bare;
mod base;
mod ring;
mod stand_in;

pub use ring::{Completion, Ring, Submission, UringCommand, forbid_rings};
pub use stand_in::{Moves, Pages, Queued, RingEnd, RingPeer};
