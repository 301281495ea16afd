//! Numbers of nodes that outlive the mount, for file handles: `name_to_handle_at`, and so an NFS server's.
//!
//! A handle of the mount holds a node's number and its generation, and the kernel asks for a node that it has forgotten by the number
//! alone. So the number says which lower inode it is: the low 39 bits hold its inode number, 24 more the low bits of its generation.
//! The eight bits that are missing are tried out below, and the kernel compares what was found with the handle's generation. The top bit
//! tells such numbers from those of nodes that are not found again: those on other file systems than the source's, and those with a
//! longer inode number.
//!
//! A handle says nothing of the folder that a file is in, so whoever may open handles (CAP_DAC_READ_SEARCH) can make one up for any inode
//! number. This is why the source must be a file system as a whole, with nothing mounted over a part of it, and why there are
//! no rules and no seals: those go by names.

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::Path;

use shuntfs::{Generation, LowerFile, NodeId};
use shuntfs_sys::{FileHandle, FsMagic, OsError, handle_of, mounts};

use crate::branch::Mount;
use crate::node::Node;

/// Why handles of a pool would not last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Fleeting {
    /// There are rules or seals, which go by names.
    Names,
    /// The file system of the source has no handles, or none whose layout is known.
    Below,
    /// The source is a folder of a larger file system, out of which a handle could lead.
    PartOfMore,
    /// Something is mounted below the source, over what a handle could reach.
    Covered,
}

impl fmt::Display for Fleeting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Names => "rules and seals go by names, and a handle leads to a file without one",
            Self::Below => {
                "its file system gives no handles that can be kept (ext4, f2fs, XFS, btrfs and tmpfs do), or this process may not open them \
                 (CAP_DAC_READ_SEARCH)"
            }
            Self::PartOfMore => {
                "it is a folder of a larger file system, and a handle could lead out of it; it must be where a file system, or a btrfs \
                 subvolume, is mounted"
            }
            Self::Covered => "something is mounted below it, and a handle could lead to what that covers",
        })
    }
}

/// A number that lasts has this bit.
const LASTS: u64 = 1 << 63;
const INODE_BITS: u32 = 39;
const GENERATION_BITS: u32 = 24;

/// The root folder of every btrfs subvolume has this inode number, and handles name the subvolume.
const BTRFS_SUBVOLUME: u64 = 256;

/// From lower inodes to lasting numbers, and back.
#[derive(Debug)]
pub(crate) struct Lasting {
    magic: FsMagic,
    /// The root's handle; others of the file system differ from it in inode number and generation.
    like: FileHandle,
}

impl Lasting {
    /// For the file system that `root` is the top of.
    pub(crate) fn of(source: &Path, mount: &Mount, root: &LowerFile) -> Result<Self, Fleeting> {
        let (like, _) = handle_of(root).map_err(|_| Fleeting::Below)?;
        let magic = mount.magic;
        let (Some(inode), Some(generation)) = (like.inode(magic), like.generation(magic)) else {
            return Err(Fleeting::Below);
        };
        if !mount.has_handles() || like.of_other(magic, inode, generation).as_ref() != Some(&like) {
            return Err(Fleeting::Below);
        }
        let is_subvolume = magic == FsMagic::BTRFS && inode == BTRFS_SUBVOLUME;
        if !is_subvolume && !mount.is_whole_at(source) {
            return Err(Fleeting::PartOfMore);
        }
        if is_covered(source) { Err(Fleeting::Covered) } else { Ok(Self { magic, like }) }
    }

    /// The number of the inode that a handle leads to; `None` where it would not last.
    pub(crate) fn number(&self, handle: &FileHandle) -> Option<NodeId> {
        let (inode, generation) = (handle.inode(self.magic)?, handle.generation(self.magic)?);
        let is_like = self.like.of_other(self.magic, inode, generation).as_ref() == Some(handle);
        let fits = inode >> INODE_BITS == 0;
        let generation = u64::from(generation) & ((1 << GENERATION_BITS) - 1);
        NodeId::new(LASTS | generation << INODE_BITS | inode).filter(|_| is_like && fits)
    }

    /// Whether a number is one of those.
    fn lasts(id: NodeId) -> bool {
        id.get() & LASTS != 0
    }

    /// The lower generation of a node whose number lasts.
    pub(crate) fn generation(&self, node: &Node) -> Option<Generation> {
        let handle = node.place().handle().filter(|_| Self::lasts(node.id))?;
        handle.generation(self.magic).map(|generation| Generation(u64::from(generation)))
    }

    /// Opens the lower inode of a number, `O_PATH`.
    ///
    /// # Errors
    /// ESTALE where there is none any more; else what open_by_handle_at(2) gives.
    pub(crate) fn open(&self, mount: &Mount, id: NodeId) -> shuntfs_sys::Result<OwnedFd> {
        if !Self::lasts(id) {
            return Err(OsError::STALE);
        }
        let inode = id.get() & ((1 << INODE_BITS) - 1);
        let low = u32::try_from(id.get() >> INODE_BITS & ((1 << GENERATION_BITS) - 1)).expect("24 bits fit");
        for high in 0..1 << (u32::BITS - GENERATION_BITS) {
            let generation = high << GENERATION_BITS | low;
            let handle = self.like.of_other(self.magic, inode, generation).ok_or(OsError::STALE)?;
            let fd = match mount.open(&handle) {
                Err(OsError::STALE) => continue,
                outcome => outcome?,
            };
            // ext4 takes generation 0 for any: what is found must be what was asked for.
            if handle_of(&fd)?.0 == handle {
                return Ok(fd);
            }
        }
        Err(OsError::STALE)
    }
}

/// Whether something is mounted below a folder.
pub(crate) fn is_covered(source: &Path) -> bool {
    let is_below = |point: &Path| point != source && point.starts_with(source);
    // Where the list cannot be read nobody knows.
    mounts().map_or(true, |all| all.iter().any(|mount| is_below(&mount.mount_point)))
}

#[cfg(test)]
mod test {
    use super::*;

    fn lasting(magic: FsMagic, kind: i32, words: &[u32]) -> Lasting {
        Lasting { magic, like: handle(kind, words) }
    }

    fn handle(kind: i32, words: &[u32]) -> FileHandle {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        FileHandle::new(kind, &bytes).unwrap()
    }

    #[test]
    fn a_number_tells_the_inode_and_most_of_its_generation() {
        let tmpfs = lasting(FsMagic::TMPFS, 1, &[7, 2, 0]);
        let number = |words: &[u32]| tmpfs.number(&handle(1, words)).map(NodeId::get);
        assert_eq!(number(&[0xab12_3456, 5, 1]), Some(1 << 63 | 0x12_3456 << 39 | 1 << 32 | 5));
        assert_eq!(number(&[0, 1, 0]), Some(1 << 63 | 1));
        assert_eq!(number(&[3, u32::MAX, 0x7f]).map(|id| id & ((1 << 39) - 1)), Some((1 << 39) - 1));
        assert_eq!(number(&[3, 5, 0x80]), None, "40 bits");
        assert_eq!(number(&[3, 5]), None, "another layout");
        let btrfs = lasting(FsMagic::BTRFS, 0x4d, &[256, 0, 300, 0, 8]);
        assert!(btrfs.number(&handle(0x4d, &[257, 0, 300, 0, 9])).is_some());
        assert_eq!(btrfs.number(&handle(0x4d, &[257, 0, 301, 0, 9])), None, "another subvolume");
    }

    #[test]
    fn what_is_mounted_below_covers_something() {
        assert!(is_covered(Path::new("/")), "there is /proc");
        assert!(!is_covered(Path::new("/proc/self/fd")));
    }
}
