//! STATX, sent when a caller asks for the time of birth.

use super::attr::GetattrFlags;
use crate::macros::{layout, wire_struct};

wire_struct! {
    /// Arguments of STATX.
    pub struct StatxIn {
        /// Whether `fh` is valid.
        pub getattr_flags: GetattrFlags,
        /// Zero.
        pub reserved: u32,
        /// The open file, if any.
        pub fh: u64,
        /// `AT_STATX_*`.
        pub sx_flags: u32,
        /// `STATX_*`: what the caller wants.
        pub sx_mask: u32,
    }
}

layout!(StatxIn, 24, fh @ 8, sx_flags @ 16, sx_mask @ 20);

wire_struct! {
    /// A point in time.
    pub struct SxTime {
        /// Seconds since 1970, negative before.
        pub tv_sec: i64,
        /// Nanoseconds, 0..1_000_000_000.
        pub tv_nsec: u32,
        /// Zero.
        pub reserved: i32,
    }
}

layout!(SxTime, 16, tv_nsec @ 8);

wire_struct! {
    /// `struct statx`, bit for bit.
    pub struct Statx {
        /// `STATX_*`: what is filled in.
        pub mask: u32,
        /// Preferred size of I/O in bytes.
        pub blksize: u32,
        /// `STATX_ATTR_*`.
        pub attributes: u64,
        /// Number of hard links.
        pub nlink: u32,
        /// Owner.
        pub uid: u32,
        /// Group.
        pub gid: u32,
        /// Type and permission bits.
        pub mode: u16,
        /// Zero.
        pub spare0: u16,
        /// The inode number.
        pub ino: u64,
        /// Size in bytes.
        pub size: u64,
        /// Blocks of 512 bytes.
        pub blocks: u64,
        /// Which bits of `attributes` are known.
        pub attributes_mask: u64,
        /// Last access.
        pub atime: SxTime,
        /// Birth.
        pub btime: SxTime,
        /// Last change of the inode.
        pub ctime: SxTime,
        /// Last change of the data.
        pub mtime: SxTime,
        /// Device of a special file.
        pub rdev_major: u32,
        /// Device of a special file.
        pub rdev_minor: u32,
        /// Ignored: the kernel fills in the mount's.
        pub dev_major: u32,
        /// Ignored: the kernel fills in the mount's.
        pub dev_minor: u32,
        /// Zero.
        pub spare2: [u64; 14],
    }
}

layout!(Statx, 256, attributes @ 8, nlink @ 16, mode @ 28, ino @ 32, size @ 40, blocks @ 48,
    attributes_mask @ 56, atime @ 64, btime @ 80, ctime @ 96, mtime @ 112, rdev_major @ 128, dev_major @ 136);

wire_struct! {
    /// The answer to STATX.
    pub struct StatxOut {
        /// How long the attributes hold, seconds.
        pub attr_valid: u64,
        /// How long the attributes hold, nanoseconds.
        pub attr_valid_nsec: u32,
        /// Zero.
        pub flags: u32,
        /// Zero.
        pub spare: [u64; 2],
        /// The attributes.
        pub stat: Statx,
    }
}

layout!(StatxOut, 288, attr_valid_nsec @ 8, flags @ 12, stat @ 32);
