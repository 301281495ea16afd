//! The file system that a lower file lives on.

use std::os::fd::AsFd;

use rustix::io::retry_on_intr;

use crate::{Result, faults};

/// The magic number by which statfs(2) tells the types of file system apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FsMagic(pub u64);

impl FsMagic {
    /// ext2, ext3, ext4.
    pub const EXT: Self = Self(0xef53);
    /// XFS.
    pub const XFS: Self = Self(0x5846_5342);
    /// Btrfs.
    pub const BTRFS: Self = Self(0x9123_683e);
    /// F2FS.
    pub const F2FS: Self = Self(0xf2f5_2010);
    /// tmpfs.
    pub const TMPFS: Self = Self(0x0102_1994);
    /// ramfs.
    pub const RAMFS: Self = Self(0x8584_58f6);
    /// overlayfs.
    pub const OVERLAY: Self = Self(0x794c_7630);
    /// FUSE.
    pub const FUSE: Self = Self(0x6573_5546);
    /// NFS.
    pub const NFS: Self = Self(0x6969);
    /// bcachefs.
    pub const BCACHEFS: Self = Self(0xca45_1a4e);
    /// ZFS.
    pub const ZFS: Self = Self(0x2fc1_2fc1);
    /// SquashFS.
    pub const SQUASHFS: Self = Self(0x7371_7368);
    /// EROFS.
    pub const EROFS: Self = Self(0xe0f5_e1e2);
    /// ISO 9660.
    pub const ISO9660: Self = Self(0x9660);
    /// FAT.
    pub const FAT: Self = Self(0x4d44);
    /// exFAT.
    pub const EXFAT: Self = Self(0x2011_bab0);
    /// NTFS by the kernel's ntfs3.
    pub const NTFS3: Self = Self(0x7366_746e);
    /// JFS.
    pub const JFS: Self = Self(0x3153_464a);
    /// NILFS.
    pub const NILFS: Self = Self(0x3434);

    /// File systems whose operations end as soon as this machine's own disks let them.
    const LOCAL: [Self; 17] = [
        Self::EXT,
        Self::XFS,
        Self::BTRFS,
        Self::F2FS,
        Self::TMPFS,
        Self::RAMFS,
        // An overlay may stand on anything, but in practice stands on a local disk: containers live on it.
        Self::OVERLAY,
        Self::BCACHEFS,
        Self::ZFS,
        Self::SQUASHFS,
        Self::EROFS,
        Self::ISO9660,
        Self::FAT,
        Self::EXFAT,
        Self::NTFS3,
        Self::JFS,
        Self::NILFS,
    ];

    /// Whether an operation may hang for reasons outside this machine: a network, another FUSE server, or a type
    /// that is not known here.
    #[must_use]
    pub fn can_block(self) -> bool {
        !Self::LOCAL.contains(&self)
    }
}

/// The state of a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FsStat {
    /// Which type it is.
    pub magic: FsMagic,
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
    /// `ST_*` mount flags.
    pub flags: u64,
}

impl FsStat {
    /// Whether the mount refuses writes.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.flags & libc::ST_RDONLY != 0
    }
}

/// The file system of an open file; an `O_PATH` descriptor will do.
///
/// # Errors
/// What fstatfs(2) gives.
pub fn filesystem_of(fd: impl AsFd) -> Result<FsStat> {
    faults::point()?;
    let found = retry_on_intr(|| rustix::fs::fstatfs(&fd))?;
    // The kernel's words are signed longs; what does not fit is a broken lower file system's nonsense.
    let number = |value: i64| u64::try_from(value).unwrap_or(0);
    let small = |value: i64| u32::try_from(value).unwrap_or(0);
    Ok(FsStat {
        magic: FsMagic(number(found.f_type)),
        blocks: found.f_blocks,
        bfree: found.f_bfree,
        bavail: found.f_bavail,
        files: found.f_files,
        ffree: found.f_ffree,
        bsize: small(found.f_bsize),
        namelen: small(found.f_namelen),
        frsize: small(found.f_frsize),
        flags: number(found.f_flags),
    })
}
