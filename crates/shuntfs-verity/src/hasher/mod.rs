//! Hashing of many blocks at once.
//!
//! A hash function takes its input in pieces, each step of which waits for the one before: hashing one block leaves most of
//! a processor idle. Several blocks are independent of each other. So a [`Kernel`] hashes some in lockstep, and what a processor
//! has is found out when it is asked.
//!
//! # How fast
//! MB/s of one core of an AMD EPYC (family 26, model 2, SHA-NI and AVX-512) in a virtual machine of two cores, 64 blocks of 4 KiB in
//! the second-level cache, the best of 200 rounds; Rust 1.95, 2026-11-21. `cargo run --release -p shuntfs-verity --example
//! hash_speed` measures it again.
//!
//! | kernel | SHA-256 | SHA-512 |
//! |---|---|---|
//! | `avx512` | 5386 | 4415 |
//! | `sha-ni`, two blocks interleaved | 2947 | - |
//! | `plain`, the crate `sha2` | 2077 | 889 |
//! | the crate `ring`, for comparison | 1971 | |
//! | the crate `tape-sha256` 0.2, for comparison | 5100 | |
//!
//! Blocks of 1 KiB and 64 KiB are within 10 % of that. `tape-sha256`, the one crate that hashes many messages at once, is near on this
//! machine, further behind on an Intel Xeon (3489 of 4240), and has no SHA-512; so the kernels are ours. 32 lanes, two
//! registers interleaved, are no faster than 16: the arithmetic units are busy.
//!
//! So AVX-512 comes first wherever the processor has it, and pairs by SHA-NI are for what is left over and for processors
//! without.

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
