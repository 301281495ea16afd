//! A reactor for one queue, thread per core: a ring where there is one, plain system calls where a container
//! forbids io_uring, and a pool of threads for what blocks.
//!
//! A queue's futures never leave their thread. Each lives in a slot that is allocated once ([`Tasks`]); its
//! waker sets the slot's bit in a set shared with other threads ([`Ready`]) and rings the queue's bell only
//! when the queue sleeps.

mod offload;
mod queue;
mod ready;
mod ring_op;
mod tasks;
mod token;

pub use offload::{Offload, OffloadPool};
pub use queue::Queue;
pub use ready::Ready;
pub use ring_op::RingOp;
pub use tasks::Tasks;
pub use token::Token;
