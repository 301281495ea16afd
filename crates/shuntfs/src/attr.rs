//! What a file system says about a node.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use shuntfs_wire::{Generation, NodeId};

use crate::file_type::FileType;

/// A point in time as the kernel keeps it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Timestamp {
    /// Seconds since 1970, negative before.
    pub secs: i64,
    /// Nanoseconds, 0..1_000_000_000.
    pub nanos: u32,
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(since) => {
                Self { secs: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), nanos: since.subsec_nanos() }
            }
            // Nanoseconds count forwards from the second before.
            Err(before) => {
                let before = before.duration();
                let part = u32::from(before.subsec_nanos() > 0);
                let secs = i64::try_from(before.as_secs() + u64::from(part)).unwrap_or(i64::MAX);
                Self { secs: -secs, nanos: part * 1_000_000_000 - before.subsec_nanos() }
            }
        }
    }
}

/// The epoch where the system's clock cannot tell the time.
impl From<Timestamp> for SystemTime {
    fn from(time: Timestamp) -> Self {
        let whole = Duration::from_secs(time.secs.unsigned_abs());
        let at = if time.secs < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
        at.and_then(|at| at.checked_add(Duration::from_nanos(time.nanos.into()))).unwrap_or(UNIX_EPOCH)
    }
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

impl Attr {
    /// Attributes of a node with one link, or of a folder with two, that has nothing in it and belongs to root.
    /// `permissions` are the lower 12 bits of the mode.
    #[must_use]
    pub fn new(ino: u64, kind: FileType, permissions: u32) -> Self {
        let nlink = if kind == FileType::Directory { 2 } else { 1 };
        Self { ino, mode: kind.mode_bits() | permissions & 0o7777, nlink, ..Self::default() }
    }

    /// With this size in bytes, and as many blocks as that takes.
    #[must_use]
    pub fn with_size(self, size: u64) -> Self {
        Self { size, blocks: size.div_ceil(512), ..self }
    }

    /// With this owner and group.
    #[must_use]
    pub fn with_owner(self, uid: u32, gid: u32) -> Self {
        Self { uid, gid, ..self }
    }

    /// With this time of the last access and of both changes.
    #[must_use]
    pub fn with_times(self, time: Timestamp) -> Self {
        Self { atime: time, mtime: time, ctime: time, ..self }
    }

    /// The type in the mode; `None` where the mode has none.
    #[must_use]
    pub fn kind(&self) -> Option<FileType> {
        FileType::of_mode(self.mode)
    }

    /// These attributes, which the kernel may believe for `ttl`; `Duration::MAX` forever.
    #[must_use]
    pub fn valid_for(self, ttl: Duration) -> AttrReply {
        AttrReply { attr: self, ttl }
    }
}

/// What `stat` shows of a lower file, its inode number and number of links included.
impl From<&Metadata> for Attr {
    fn from(found: &Metadata) -> Self {
        let time = |secs, nanos| Timestamp { secs, nanos: u32::try_from(nanos).unwrap_or_default() };
        let narrow = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        Self {
            ino: found.ino(),
            size: found.size(),
            blocks: found.blocks(),
            atime: time(found.atime(), found.atime_nsec()),
            mtime: time(found.mtime(), found.mtime_nsec()),
            ctime: time(found.ctime(), found.ctime_nsec()),
            mode: found.mode(),
            nlink: narrow(found.nlink()),
            uid: found.uid(),
            gid: found.gid(),
            rdev: shuntfs_sys::stat::encode_raw_dev(found.rdev()),
            blksize: narrow(found.blksize()),
        }
    }
}

impl From<Metadata> for Attr {
    fn from(found: Metadata) -> Self {
        Self::from(&found)
    }
}

/// Attributes and how long the kernel may keep them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AttrReply {
    /// The attributes.
    pub attr: Attr,
    /// How long they hold; `Duration::MAX` forever.
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
    /// The node, whose lookup count the answer raises by one; `None` for "no such name", cacheable. The number of a node that the
    /// kernel still knows must not be given to another.
    pub node: Option<NodeId>,
    /// Tells this life of the node's number from others: part of file handles. 0 where numbers are never used again.
    pub generation: Generation,
    /// How long the name holds; `Duration::MAX` forever.
    pub ttl: Duration,
    /// The node's attributes.
    pub attr: Attr,
    /// How long they hold.
    pub attr_ttl: Duration,
}

impl Entry {
    /// A node and its attributes; the name holds as long as they do.
    #[must_use]
    pub fn new(node: NodeId, reply: AttrReply) -> Self {
        let AttrReply { attr, ttl } = reply;
        Self { node: Some(node), generation: Generation(0), ttl, attr, attr_ttl: ttl }
    }

    /// "No such name", which the kernel may believe for `ttl`.
    #[must_use]
    pub fn negative(ttl: Duration) -> Self {
        let (generation, attr, attr_ttl) = (Generation(0), Attr::default(), Duration::ZERO);
        Self { node: None, generation, ttl, attr, attr_ttl }
    }

    /// With another lifetime of the name than of the attributes.
    #[must_use]
    pub fn with_ttl(self, ttl: Duration) -> Self {
        Self { ttl, ..self }
    }

    /// With a generation.
    #[must_use]
    pub fn with_generation(self, generation: Generation) -> Self {
        Self { generation, ..self }
    }
}

/// The state of the file system as a whole, as in `statfs`. By default: blocks of 4096 bytes, none of them there, and names of
/// up to 255 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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

impl Default for Statfs {
    fn default() -> Self {
        Self { blocks: 0, bfree: 0, bavail: 0, files: 0, ffree: 0, bsize: 4096, namelen: 255, frsize: 4096 }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn times_survive_both_ways() {
        for time in
            [(0, 0), (1, 999_999_999), (-1, 0), (-1, 1), (-2, 999_999_999), (1 << 40, 5), (i64::MAX, 0)]
        {
            let time = Timestamp { secs: time.0, nanos: time.1 };
            assert_eq!(Timestamp::from(SystemTime::from(time)), time);
        }
        let half_before = UNIX_EPOCH - Duration::from_millis(500);
        assert_eq!(Timestamp::from(half_before), Timestamp { secs: -1, nanos: 500_000_000 });
    }

    #[test]
    fn metadata_is_shown_as_it_is() {
        let found = std::fs::metadata("/dev/null").unwrap();
        let attr = Attr::from(&found);
        assert_eq!((attr.ino, attr.mode, attr.nlink), (found.ino(), found.mode(), 1));
        assert_eq!((attr.kind(), attr.rdev), (Some(FileType::CharDevice), 0x103));
        assert_eq!(SystemTime::from(attr.mtime), found.modified().unwrap());
    }

    #[test]
    fn a_node_is_made_of_what_it_is() {
        let folder = Attr::new(1, FileType::Directory, 0o100_755);
        assert_eq!((folder.mode, folder.nlink), (0o040_755, 2));
        let file = Attr::new(2, FileType::Regular, 0o644).with_size(513);
        assert_eq!((file.mode, file.nlink, file.size, file.blocks), (0o100_644, 1, 513, 2));
    }
}
