//! fs-verity in user space: the same trees, descriptors and digests, byte for byte, on any file system. Pure computation:
//! nothing of ours is imported, no file is opened.
//!
//! A file is cut in blocks, each block is hashed, the hashes fill blocks of their own, and so on until one hash is left. A
//! [`Descriptor`] of 256 bytes names that root hash, the file's size and the [`Params`]; its hash is the file's
//! [`Digest`], the one that `fsverity digest` prints and the kernel measures.
//!
//! - [`build()`] and [`build_at()`] make tree and descriptor in one pass and bounded memory, on several threads;
//!   [`TreeBuilder`] does it from hashes that were computed anywhere.
//! - [`Shape`] says where in the tree the hash of a block is.
//! - [`Verifier`] compares blocks with hashes, and proves that it did by returning a [`Checked`].
//! - [`BlockHasher`] hashes many blocks at once, with what the processor has ([`Kernel`]).
//! - [`sign`] makes and checks signatures over digests.
#![deny(unsafe_code)]

mod algorithm;
mod build;
mod descriptor;
mod digest;
mod hasher;
mod hex;
mod level;
mod params;
mod shape;
pub mod sign;
mod tree;
mod verify;

pub use algorithm::{Algorithm, UnknownAlgorithm};
pub use build::{BuildError, ReadAt, build, build_at};
pub use descriptor::{DESCRIPTOR_LEN, Descriptor, DescriptorError};
pub use digest::{Digest, DigestError};
pub use hasher::{BlockHasher, Kernel, UnknownKernel};
pub use level::Level;
pub use params::{BlockSize, Params, ParamsError, SALT_LEN_MAX, Salt};
pub use shape::{
    FILE_SIZE_MAX, KERNEL_TREE_BLOCKS_MAX, KernelLimit, LEVELS_MAX, Path, Place, Shape, ShapeError,
};
pub use tree::{Discard, TreeBuilder, TreeError, TreeSink};
pub use verify::{CheckError, Checked, Mismatch, Untrusted, Verifier};
