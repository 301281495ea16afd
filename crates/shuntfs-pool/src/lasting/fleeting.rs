//! Why there are no handles that last.

use std::fmt;

use crate::merge::InodeCalc;

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
    /// Inode numbers of several branches go by paths, and so change while handles stay.
    Renumbered,
    /// Inode numbers are the same on several branches, and folders are found by them.
    Alike,
}

impl Fleeting {
    /// Why not, where inode numbers of several branches are made so.
    pub(crate) fn of_numbers(calc: InodeCalc) -> Option<Self> {
        match calc {
            InodeCalc::DevinoHash | InodeCalc::DevinoHash32 => None,
            InodeCalc::Passthrough => Some(Self::Alike),
            InodeCalc::PathHash | InodeCalc::PathHash32 | InodeCalc::HybridHash | InodeCalc::HybridHash32 => {
                Some(Self::Renumbered)
            }
        }
    }
}

impl fmt::Display for Fleeting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Names => "rules and seals go by names, and a handle leads to a file without one",
            Self::Below => {
                "its file system gives no handles that can be kept (ext4, f2fs, XFS, btrfs and tmpfs do), or this process may not open them \
                 (CAP_DAC_READ_SEARCH; on XFS as one of several branches also CAP_SYS_ADMIN)"
            }
            Self::PartOfMore => {
                "it is a folder of a larger file system, and a handle could lead out of it; it must be where a file system, or a btrfs \
                 subvolume, is mounted"
            }
            Self::Covered => "something is mounted below it, and a handle could lead to what that covers",
            Self::Renumbered => {
                "inode numbers that go by paths change when something is renamed, and its handle stays: NFS clients take that for another \
                 file (--inode-calc devino-hash suits)"
            }
            Self::Alike => {
                "inode numbers of two branches may be the same, and the kernel finds the name of a handle's folder by its number \
                 (--inode-calc devino-hash suits)"
            }
        })
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn numbers_must_stay_and_differ() {
        let suits = InodeCalc::ALL.iter().filter(|(_, calc)| Fleeting::of_numbers(*calc).is_none());
        let names: Vec<_> = suits.map(|(name, _)| *name).collect();
        assert_eq!(names, ["devino-hash", "devino-hash32"]);
    }
}
