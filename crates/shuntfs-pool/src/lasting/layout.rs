//! How a lower inode and its generation become a number of 64 bits, and what of them is found in it again.
//!
//! Handles are kept by NFS clients and outlive the server, so none of this may change from one release to the next.
//!
//! Of one folder, the number has 39 bits of the inode number and 24 of the generation. The other eight are tried out.
//!
//! Of several branches it also has eight bits of the branch's key, so that not every disk is asked for every inode. Branches may
//! share them: what is found must have the number that was asked for. There is less room for the generation then, and it is found otherwise: ext4,
//! f2fs and btrfs open an inode of whatever generation, and XFS tells it. Only tmpfs takes no handle without, has inode numbers that fit into
//! 32 bits, and nine bits are tried out. Generations of btrfs are the numbers of its transactions, so that two disks have the same ones for
//! the same inodes: what is checked is mixed with the branch's key.

use shuntfs::Generation;
use shuntfs_sys::FsMagic;

use crate::node::mix;

/// A number that lasts has this bit.
pub(super) const LASTS: u64 = 1 << 63;

/// How many of its bits are the key's.
const KEY_BITS: u32 = 8;
const KEY_AT: u32 = 63 - KEY_BITS;

/// How numbers are made, of one folder or of a branch with this key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Layout {
    /// One folder.
    One,
    /// A branch where generations are tried out.
    Tried { key: u64 },
    /// A branch where the generation is found by the inode.
    Checked { key: u64 },
}

/// What a number says of a generation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Low {
    /// So many low bits of it are these.
    Bits(u32, u32),
    /// Nothing that leads to it.
    Nothing,
}

impl Layout {
    /// On this kind of file system, of one folder or of the branch with this key.
    pub(super) fn of(magic: FsMagic, key: Option<u64>) -> Self {
        match key {
            None => Self::One,
            Some(key) if magic == FsMagic::TMPFS => Self::Tried { key },
            Some(key) => Self::Checked { key },
        }
    }

    fn key(self) -> u64 {
        match self {
            Self::One => 0,
            Self::Tried { key } | Self::Checked { key } => key,
        }
    }

    fn inode_bits(self) -> u32 {
        if let Self::Tried { .. } = self { 32 } else { 39 }
    }

    /// Bits of the generation, or of what it is checked by.
    fn generation_bits(self) -> u32 {
        match self {
            Self::One => 24,
            Self::Tried { .. } => 23,
            Self::Checked { .. } => 16,
        }
    }

    /// The number of an inode; `None` where that does not fit.
    pub(super) fn number(self, inode: u64, generation: u32) -> Option<u64> {
        let generation = match self {
            Self::One | Self::Tried { .. } => u64::from(generation),
            Self::Checked { key } => mixed(key, generation) >> 32,
        };
        let generation = generation & ((1 << self.generation_bits()) - 1);
        let fits = inode >> self.inode_bits() == 0;
        fits.then_some(LASTS | self.branch() | generation << self.inode_bits() | inode)
    }

    /// The bits that say which branch it is.
    fn branch(self) -> u64 {
        self.key() >> (u64::BITS - KEY_BITS) << KEY_AT
    }

    /// Whether a number may be one of these.
    pub(super) fn may_have(self, number: u64) -> bool {
        let of_branch = ((1 << KEY_BITS) - 1) << KEY_AT;
        number & LASTS != 0 && (self == Self::One || number & of_branch == self.branch())
    }

    /// The inode that a number means.
    pub(super) fn inode(self, number: u64) -> u64 {
        number & ((1 << self.inode_bits()) - 1)
    }

    /// What a number says of its generation.
    pub(super) fn low(self, number: u64) -> Low {
        let bits = self.generation_bits();
        let low = number >> self.inode_bits() & ((1 << bits) - 1);
        match self {
            Self::Checked { .. } => Low::Nothing,
            Self::One | Self::Tried { .. } => Low::Bits(bits, u32::try_from(low).expect("24 bits fit")),
        }
    }

    /// What the kernel compares beyond the number: a branch that has another one's number is told by that, too.
    pub(super) fn generation(self, generation: u32) -> Generation {
        match self {
            Self::One => Generation(u64::from(generation)),
            Self::Tried { key } | Self::Checked { key } => {
                Generation(mixed(key, generation) & u64::from(u32::MAX))
            }
        }
    }
}

fn mixed(key: u64, generation: u32) -> u64 {
    mix(key ^ u64::from(generation))
}

#[cfg(test)]
mod test {
    use super::*;

    const KEY: u64 = 0xabcd_ef01_2345_6789;

    #[test]
    fn numbers_of_one_folder_stay_for_ever() {
        let one = Layout::of(FsMagic::TMPFS, None);
        assert_eq!(one, Layout::of(FsMagic::EXT, None));
        assert_eq!(one.number(1 << 32 | 5, 0xab12_3456), Some(1 << 63 | 0x12_3456 << 39 | 1 << 32 | 5));
        assert_eq!(
            (one.number((1 << 39) - 1, 3), one.number(1 << 39, 3)),
            (Some(1 << 63 | 3 << 39 | ((1 << 39) - 1)), None)
        );
        assert_eq!(one.low(1 << 63 | 0x12_3456 << 39 | 5), Low::Bits(24, 0x12_3456));
        assert_eq!((one.inode(u64::MAX), one.generation(7)), ((1 << 39) - 1, Generation(7)));
        assert!(one.may_have(1 << 63) && !one.may_have(u64::MAX >> 1));
    }

    #[test]
    fn numbers_of_branches_stay_for_ever() {
        let checked = Layout::of(FsMagic::XFS, Some(KEY));
        let tried = Layout::of(FsMagic::TMPFS, Some(KEY));
        assert_eq!(checked.number(131, 99), Some(1 << 63 | 0xab << 55 | 0x642d << 39 | 131));
        assert_eq!(tried.number(131, 0xff00_0063), Some(1 << 63 | 0xab << 55 | 0x63 << 32 | 131));
        assert_eq!((checked.number(1 << 39, 0), tried.number(1 << 32, 0)), (None, None), "too long");
        let number = tried.number(u64::from(u32::MAX), u32::MAX).unwrap();
        assert_eq!((tried.inode(number), tried.low(number)), (u64::from(u32::MAX), Low::Bits(23, 0x7f_ffff)));
        assert_eq!(checked.low(number), Low::Nothing);
        assert_eq!(checked.generation(99), Generation(0xc8ad_5707));
        assert_eq!(tried.generation(99), checked.generation(99));
    }

    /// Transactions of two btrfs are counted alike.
    #[test]
    fn branches_are_told_apart() {
        let all: Vec<_> = (0..200).map(|seed| Layout::Checked { key: mix(seed) }).collect();
        let number = |layout: Layout| layout.number(257, 9).unwrap();
        let mut numbers: Vec<_> = all.iter().map(|layout| number(*layout)).collect();
        for (layout, number) in all.iter().zip(&numbers) {
            assert!(layout.may_have(*number));
            let among = all.iter().filter(|other| other.may_have(*number)).count();
            assert!((1..10).contains(&among), "{among} disks would be asked");
        }
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 200);
        let mut generations: Vec<_> = all.iter().map(|layout| layout.generation(9).0).collect();
        generations.sort_unstable();
        generations.dedup();
        assert_eq!(generations.len(), 200);
        assert!(generations.iter().all(|generation| *generation >> 32 == 0));
    }
}
