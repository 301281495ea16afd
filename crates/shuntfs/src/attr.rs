//! What a file system says about a node.

use std::time::Duration;

use shuntfs_wire::NodeId;

/// A point in time as the kernel keeps it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Timestamp {
    /// Seconds since 1970, negative before.
    pub secs: i64,
    /// Nanoseconds, 0..1_000_000_000.
    pub nanos: u32,
}

/// The attributes of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Attr {
    /// The inode number that `stat` shows; must equal the one in listings.
    pub ino: u64,
    /// Size in bytes, below 2^63.
    pub size: u64,
    /// Blocks of 512 bytes.
    pub blocks: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the data.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Type and permission bits, as in `st_mode`.
    pub mode: u32,
    /// Number of hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a special file, in the kernel's 32-bit encoding (`new_encode_dev`).
    pub rdev: u32,
    /// Preferred size of I/O in bytes; 0 stands for 4096.
    pub blksize: u32,
}

/// Attributes and how long the kernel may keep them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AttrReply {
    /// The attributes.
    pub attr: Attr,
    /// How long they hold; `Duration::MAX` for ever.
    pub ttl: Duration,
}

/// What `statx` gives beyond [`Attr`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Birth {
    /// The time of birth, where the lower file system keeps it.
    pub btime: Option<Timestamp>,
    /// `STATX_ATTR_*` bits that are set.
    pub attributes: u64,
    /// `STATX_ATTR_*` bits that the file system knows.
    pub attributes_mask: u64,
}

/// A name's answer: the node behind it, or that there is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The node, whose lookup count the answer raises by one; `None` for "no such name", cacheable.
    pub node: Option<NodeId>,
    /// How long the name holds; `Duration::MAX` for ever.
    pub ttl: Duration,
    /// The node's attributes.
    pub attr: AttrReply,
}

impl Entry {
    /// "No such name", which the kernel may believe for `ttl`.
    #[must_use]
    pub fn negative(ttl: Duration) -> Self {
        let attr = AttrReply { attr: Attr::default(), ttl: Duration::ZERO };
        Self { node: None, ttl, attr }
    }
}

/// The state of the file system as a whole, as in `statfs`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Statfs {
    /// Blocks of `frsize` bytes.
    pub blocks: u64,
    /// Free blocks.
    pub bfree: u64,
    /// Free blocks for ordinary users.
    pub bavail: u64,
    /// Inodes.
    pub files: u64,
    /// Free inodes.
    pub ffree: u64,
    /// Preferred size of I/O in bytes.
    pub bsize: u32,
    /// Longest name in bytes.
    pub namelen: u32,
    /// The unit of the block counts in bytes.
    pub frsize: u32,
}
