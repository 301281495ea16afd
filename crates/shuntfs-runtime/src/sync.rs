//! What other threads see of a queue, named once, so that the model in `tests/model.rs` can put its own in their place. The model
//! leaves `ready.rs` out: loom takes sequentially consistent accesses for weaker ones than they are.

pub(crate) use shuntfs_sys::event::EventFd;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
