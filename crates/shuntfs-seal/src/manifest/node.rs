//! What a manifest says of one file, folder or symlink.

use shuntfs_sys::{Device, Time};
use shuntfs_verity::{Descriptor, Digest};

use crate::ManifestError;

/// A node's number in its manifest; the root is 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeIndex(pub(crate) u64);

impl NodeIndex {
    /// The sealed folder itself.
    pub const ROOT: Self = Self(0);

    /// The number.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }

    /// The inode number that a mount shows: one more, because 0 is none.
    #[must_use]
    pub fn inode(self) -> u64 {
        self.0 + 1
    }

    /// The node behind an inode number of [`NodeIndex::inode`].
    #[must_use]
    pub fn from_inode(inode: u64) -> Option<Self> {
        inode.checked_sub(1).map(Self)
    }
}

/// What a node is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(clippy::exhaustive_enums, reason = "the types of files that Linux has")]
pub enum NodeKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symlink.
    Symlink,
    /// A named pipe.
    Pipe,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

const TYPE_BITS: u32 = 0o170_000;

impl NodeKind {
    /// The kind that the type bits of `st_mode` stand for.
    #[must_use]
    pub fn of_mode(mode: u32) -> Option<Self> {
        Some(match mode & TYPE_BITS {
            0o100_000 => Self::File,
            0o040_000 => Self::Folder,
            0o120_000 => Self::Symlink,
            0o010_000 => Self::Pipe,
            0o140_000 => Self::Socket,
            0o020_000 => Self::CharDevice,
            0o060_000 => Self::BlockDevice,
            _ => return None,
        })
    }

    /// What a person calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Folder => "folder",
            Self::Symlink => "symlink",
            Self::Pipe => "pipe",
            Self::Socket => "socket",
            Self::CharDevice => "character device",
            Self::BlockDevice => "block device",
        }
    }

    pub(crate) fn check(mode: u32) -> Result<Self, ManifestError> {
        let unknown = ManifestError::Malformed("a mode that is no type of file");
        if mode > 0o177_777 {
            return Err(unknown);
        }
        Self::of_mode(mode).ok_or(unknown)
    }
}

/// What a manifest says of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Node {
    /// Which one it is.
    pub index: NodeIndex,
    /// What it is.
    pub kind: NodeKind,
    /// Type and permission bits, as in `st_mode`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// How many names of the tree lead to it; of a folder also `.` and the `..` of those in it.
    pub nlink: u32,
    /// Size in bytes; of a symlink the length of its target, of a folder 0.
    pub size: u64,
    /// Last change of the data.
    pub mtime: Time,
    /// Which device a special file stands for.
    pub rdev: Device,
    /// Regular files: what fs-verity calls their descriptor, which says everything about their tree.
    pub descriptor: Option<Descriptor>,
}

impl Node {
    /// A regular file's digest, as `fsverity digest` prints it. It is computed from the descriptor: one hash of 256
    /// bytes.
    #[must_use]
    pub fn digest(&self) -> Option<Digest> {
        self.descriptor.as_ref().map(Descriptor::digest)
    }
}

/// A name in a folder, and what it leads to.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Entry {
    /// The name, one component of a path.
    pub name: Vec<u8>,
    /// What it leads to.
    pub node: NodeIndex,
    /// Where a listing goes on after it.
    pub next: u64,
}

/// An extended attribute.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[expect(clippy::exhaustive_structs, reason = "a name and a value are all there is")]
pub struct Xattr {
    /// The name, `user.` and so on included.
    pub name: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
}
