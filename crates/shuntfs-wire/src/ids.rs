//! The kernel's numbers, one type each, so that they cannot be mixed up.

use std::num::NonZeroU64;

use crate::errno::{Errno, Result};

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

impl From<NodeId> for u64 {
    fn from(node: NodeId) -> Self {
        node.get()
    }
}

impl TryFrom<u64> for NodeId {
    type Error = Errno;

    /// # Errors
    /// ESTALE for zero, which names no node.
    fn try_from(number: u64) -> Result<Self> {
        Self::new(number).ok_or(Errno::STALE)
    }
}

/// Tells two lives of one node id apart, in file handles that outlive the node. 0 where node ids are never reused.
/// The kernel keeps 32 bits of it.
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

impl ByteRange {
    /// The part of `bytes` that lies in this range; shorter, or empty, where they end before it does.
    #[must_use]
    pub fn of(self, bytes: &[u8]) -> &[u8] {
        let len = bytes.len();
        let start = usize::try_from(self.offset).unwrap_or(usize::MAX).min(len);
        let end = start.saturating_add(usize::try_from(self.len).unwrap_or(usize::MAX)).min(len);
        &bytes[start..end]
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_range_of_bytes_ends_where_they_do() {
        let of = |offset, len| ByteRange { offset, len }.of(b"abcde");
        assert_eq!((of(0, 2), of(1, 4), of(3, 9)), (&b"ab"[..], &b"bcde"[..], &b"de"[..]));
        assert_eq!((of(5, 1), of(u64::MAX, u32::MAX), of(0, 0)), (&b""[..], &b""[..], &b""[..]));
    }

    #[test]
    fn zero_is_no_node() {
        assert_eq!(NodeId::try_from(0), Err(Errno::STALE));
        assert_eq!(NodeId::try_from(7).map(u64::from), Ok(7));
    }
}
