//! Hashing of many blocks at once.
//!
//! A hash function takes its input in pieces, each step of which waits for the one before: hashing one block leaves most of a processor
//! idle. Several blocks are independent of each other. So a [`Kernel`] hashes some in lockstep, and what a processor has
//! is found out when it is asked.

mod block;
mod constants;
mod kernel;
mod sha256;
#[cfg(target_arch = "x86_64")]
mod sha256_avx512;
#[cfg(target_arch = "x86_64")]
mod sha256_ni;
mod sha512;
#[cfg(target_arch = "x86_64")]
mod sha512_avx512;

pub use block::BlockHasher;
pub(crate) use block::hash;
pub use kernel::{Kernel, UnknownKernel};
