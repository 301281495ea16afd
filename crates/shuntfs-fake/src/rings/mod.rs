//! FUSE over io_uring as the kernel has it (`fs/fuse/dev_uring.c`, Linux 7.3): queues, entries, pools of payload buffers, zero copy.
//!
//! The rings themselves are real ones of io_uring; what the driver does is done here.

mod commands;
mod delivery;
mod memory;
mod state;
mod terms;

pub(crate) use commands::Side;
pub(crate) use state::RingBooks;
pub use terms::{Lie, Refusal, RingStep, RingTotals, Rings};
