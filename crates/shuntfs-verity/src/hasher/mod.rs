//! Hashing of many blocks at once.

mod block;
mod kernel;
mod plain;

pub use block::BlockHasher;
pub(crate) use block::hash;
pub use kernel::Kernel;
