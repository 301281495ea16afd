//! From the lower inodes of a branch to lasting numbers, and back.

use std::os::fd::OwnedFd;
use std::path::Path;

use shuntfs::{Generation, LowerFile, NodeId};
use shuntfs_sys::{FileHandle, FsMagic, OsError, handle_of, mounts};

use super::fleeting::Fleeting;
use super::layout::{LASTS, Layout, Low};
use crate::branch::Mount;

/// The root folder of every btrfs subvolume has this inode number, and handles name the subvolume.
const BTRFS_SUBVOLUME: u64 = 256;

/// From lower inodes to lasting numbers, and back.
#[derive(Debug)]
pub(crate) struct Lasting {
    magic: FsMagic,
    /// The root's handle; others of the file system differ from it in inode number and generation.
    like: FileHandle,
    layout: Layout,
}

impl Lasting {
    /// For the file system that `root` is the top of: the source, or the branch with this key. Where another server goes on, `was_checked`: what
    /// is mounted there by now keeps handles from being found for as long as it is, and does not end the mount.
    pub(crate) fn of(
        source: &Path,
        mount: &Mount,
        (root, key): (&LowerFile, Option<u64>),
        was_checked: bool,
    ) -> Result<Self, Fleeting> {
        let (like, _) = handle_of(root).map_err(|_| Fleeting::Below)?;
        let magic = mount.magic;
        let (Some(inode), Some(generation)) = (like.inode(magic), like.generation(magic)) else {
            return Err(Fleeting::Below);
        };
        if !mount.has_handles() || like.of_other(magic, inode, generation).as_ref() != Some(&like) {
            return Err(Fleeting::Below);
        }
        let layout = Layout::of(magic, key);
        let is_told = magic == FsMagic::XFS && layout != Layout::One;
        if is_told && mount.generation_of(inode) != Ok(generation) {
            return Err(Fleeting::Below);
        }
        if was_checked {
            return Ok(Self { magic, like, layout });
        }
        let is_subvolume = magic == FsMagic::BTRFS && inode == BTRFS_SUBVOLUME;
        if !is_subvolume && !mount.is_whole_at(source) {
            return Err(Fleeting::PartOfMore);
        }
        if is_covered(source) { Err(Fleeting::Covered) } else { Ok(Self { magic, like, layout }) }
    }

    /// The number of the inode that a handle leads to; `None` where it would not last.
    pub(crate) fn number(&self, handle: &FileHandle) -> Option<NodeId> {
        let (inode, generation) = (handle.inode(self.magic)?, handle.generation(self.magic)?);
        let is_like = self.like.of_other(self.magic, inode, generation).as_ref() == Some(handle);
        self.layout.number(inode, generation).and_then(NodeId::new).filter(|_| is_like)
    }

    /// Whether a number is one of those, of whatever branch.
    pub(crate) fn lasts(id: NodeId) -> bool {
        id.get() & LASTS != 0
    }

    /// Whether a number may be one of an inode here.
    pub(crate) fn may_have(&self, id: NodeId) -> bool {
        self.layout.may_have(id.get())
    }

    /// The generation that a node has whose number is that of a handle's inode.
    pub(crate) fn generation(&self, handle: &FileHandle) -> Option<Generation> {
        handle.generation(self.magic).map(|generation| self.layout.generation(generation))
    }

    /// Opens the lower inode of a number, `O_PATH`.
    ///
    /// # Errors
    /// ESTALE where there is none any more; else what open_by_handle_at(2) gives.
    pub(crate) fn open(&self, mount: &Mount, id: NodeId) -> shuntfs_sys::Result<OwnedFd> {
        if !self.may_have(id) {
            return Err(OsError::STALE);
        }
        let inode = self.layout.inode(id.get());
        match self.layout.low(id.get()) {
            Low::Bits(bits, low) => self.open_tried(mount, inode, (bits, low)),
            Low::Nothing => {
                let is_told = self.magic == FsMagic::XFS;
                // Others take this for any.
                let generation = if is_told { mount.generation_of(inode)? } else { 0 };
                let handle = self.like.of_other(self.magic, inode, generation).ok_or(OsError::STALE)?;
                let fd = mount.open(&handle)?;
                let is_it = self.number(&handle_of(&fd)?.0) == Some(id);
                if is_it { Ok(fd) } else { Err(OsError::STALE) }
            }
        }
    }

    /// The same with each generation that has so many of these low bits.
    fn open_tried(&self, mount: &Mount, inode: u64, (bits, low): (u32, u32)) -> shuntfs_sys::Result<OwnedFd> {
        for high in 0..1 << (u32::BITS - bits) {
            let generation = high << bits | low;
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

    fn lasting(magic: FsMagic, key: Option<u64>, (kind, words): (i32, &[u32])) -> Lasting {
        Lasting { magic, like: handle(kind, words), layout: Layout::of(magic, key) }
    }

    fn handle(kind: i32, words: &[u32]) -> FileHandle {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        FileHandle::new(kind, &bytes).unwrap()
    }

    #[test]
    fn a_number_tells_the_inode_and_most_of_its_generation() {
        let tmpfs = lasting(FsMagic::TMPFS, None, (1, &[7, 2, 0]));
        let number = |words: &[u32]| tmpfs.number(&handle(1, words)).map(NodeId::get);
        assert_eq!(number(&[0xab12_3456, 5, 1]), Some(1 << 63 | 0x12_3456 << 39 | 1 << 32 | 5));
        assert_eq!(number(&[0, 1, 0]), Some(1 << 63 | 1));
        assert_eq!(number(&[3, u32::MAX, 0x7f]).map(|id| id & ((1 << 39) - 1)), Some((1 << 39) - 1));
        assert_eq!(number(&[3, 5, 0x80]), None, "40 bits");
        assert_eq!(number(&[3, 5]), None, "another layout");
    }

    #[test]
    fn a_subvolume_has_numbers_of_its_own() {
        for key in [None, Some(7)] {
            let btrfs = lasting(FsMagic::BTRFS, key, (0x4d, &[256, 0, 300, 0, 8]));
            assert!(btrfs.number(&handle(0x4d, &[257, 0, 300, 0, 9])).is_some());
            assert_eq!(btrfs.number(&handle(0x4d, &[257, 0, 301, 0, 9])), None, "another subvolume");
        }
    }

    #[test]
    fn what_is_mounted_below_covers_something() {
        assert!(is_covered(Path::new("/")), "there is /proc");
        assert!(!is_covered(Path::new("/proc/self/fd")));
    }
}
