//! The kernel's numbers, one type each, so that they cannot be mixed up.

use std::num::NonZeroU64;

/// What the kernel calls a node; never zero, and 1 is the root.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct NodeId(NonZeroU64);

impl NodeId {
    /// The root of the mount.
    pub const ROOT: Self = Self(NonZeroU64::MIN);

    /// The node with this number; `None` for zero, which names no node.
    #[must_use]
    pub const fn new(number: u64) -> Option<Self> {
        match NonZeroU64::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

/// Tells two lives of one node id apart. This project never reuses a node id and sends zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Generation(pub u64);

/// An open file's number, chosen by the server.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Fh(pub u64);

/// A request's number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Unique(pub u64);

/// How many lookups of a node the kernel takes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LookupCount(pub u64);

/// The owner of a POSIX lock, scrambled by the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct LockOwner(pub u64);

/// A range of bytes in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ByteRange {
    /// Where it starts, in bytes.
    pub offset: u64,
    /// How long it is, in bytes.
    pub len: u32,
}
