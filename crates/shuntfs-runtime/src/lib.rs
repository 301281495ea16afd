//! A reactor for one queue, thread per core: a ring where there is one, plain system calls where a container
//! forbids io_uring, and a pool of threads for what blocks.
//!
//! A queue's futures never leave their thread. Each lives in a slot that is allocated once ([`Tasks`]); its
//! waker sets the slot's bit in a set shared with other threads ([`Ready`]) and rings the queue's bell only
//! when the queue sleeps. The memory of a request is its slot's ([`Slots`]); so is what the kernel or a thread does with it, until
//! that has ended, whatever becomes of the future that began it.

mod hold;
mod offload;
mod ops;
mod pages;
mod queue;
mod ready;
mod ring_op;
mod slots;
mod sync;
mod tasks;
mod token;

// Beside its subject, because `tests/model.rs` takes that in with other atomics.
#[cfg(test)]
mod hold_test;

pub use offload::OffloadPool;
pub use queue::{Queue, QueueParts, RingFile};
pub use ready::Ready;
pub use slots::{Lent, Slot, Slots};
pub use tasks::Tasks;
pub use token::Token;
