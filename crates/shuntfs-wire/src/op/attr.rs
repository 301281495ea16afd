//! Attributes: GETATTR, SETATTR, and what LOOKUP and the creations answer.

use crate::macros::{flag_set, layout, wire_struct};

flag_set! {
    /// What an inode is beyond its mode.
    pub struct AttrFlags: u32 {
        /// It is the root of a submount ([`crate::InitFlags::SUBMOUNTS`]).
        const SUBMOUNT = 1 << 0;
        /// Its data must be reached by DAX ([`crate::InitFlags::HAS_INODE_DAX`]).
        const DAX = 1 << 1;
    }
}

wire_struct! {
    /// The attributes of a node.
    pub struct Attr {
        /// The inode number that `stat` shows.
        pub ino: u64,
        /// Size in bytes, below 2^63.
        pub size: u64,
        /// Blocks of 512 bytes.
        pub blocks: u64,
        /// Last access, seconds since 1970 (signed).
        pub atime: u64,
        /// Last change of the data, seconds since 1970 (signed).
        pub mtime: u64,
        /// Last change of the inode, seconds since 1970 (signed).
        pub ctime: u64,
        /// Last access, nanoseconds.
        pub atimensec: u32,
        /// Last change of the data, nanoseconds.
        pub mtimensec: u32,
        /// Last change of the inode, nanoseconds.
        pub ctimensec: u32,
        /// Type and permission bits. A type that is none makes the kernel give the inode up (EIO).
        pub mode: u32,
        /// Number of hard links.
        pub nlink: u32,
        /// Owner.
        pub uid: u32,
        /// Group.
        pub gid: u32,
        /// Device number of a special file, in the kernel's 32-bit encoding.
        pub rdev: u32,
        /// Preferred size of I/O in bytes; 0 stands for 4096.
        pub blksize: u32,
        /// What else it is.
        pub flags: AttrFlags,
    }
}

layout!(Attr, 88, size @ 8, blocks @ 16, atime @ 24, mtime @ 32, ctime @ 40, atimensec @ 48, mtimensec @ 52,
    ctimensec @ 56, mode @ 60, nlink @ 64, uid @ 68, gid @ 72, rdev @ 76, blksize @ 80, flags @ 84);

wire_struct! {
    /// The answer to LOOKUP and the creations: raises the node's lookup count by one.
    pub struct EntryOut {
        /// The node, or 0: there is no such name, and the kernel may believe it as long as the entry holds.
        pub nodeid: u64,
        /// Tells two lives of one node id apart.
        pub generation: u64,
        /// How long the name holds, seconds.
        pub entry_valid: u64,
        /// How long the attributes hold, seconds.
        pub attr_valid: u64,
        /// How long the name holds, nanoseconds.
        pub entry_valid_nsec: u32,
        /// How long the attributes hold, nanoseconds.
        pub attr_valid_nsec: u32,
        /// The attributes.
        pub attr: Attr,
    }
}

layout!(EntryOut, 128, generation @ 8, entry_valid @ 16, attr_valid @ 24, entry_valid_nsec @ 32,
    attr_valid_nsec @ 36, attr @ 40);

flag_set! {
    /// Flags of GETATTR and STATX.
    pub struct GetattrFlags: u32 {
        /// `fh` is valid.
        const FH = 1 << 0;
    }
}

wire_struct! {
    /// Arguments of GETATTR.
    pub struct GetattrIn {
        /// Whether `fh` is valid.
        pub getattr_flags: GetattrFlags,
        /// Zero.
        pub dummy: u32,
        /// The open file, if any.
        pub fh: u64,
    }
}

layout!(GetattrIn, 16, fh @ 8);

wire_struct! {
    /// The answer to GETATTR and SETATTR.
    pub struct AttrOut {
        /// How long the attributes hold, seconds.
        pub attr_valid: u64,
        /// How long the attributes hold, nanoseconds.
        pub attr_valid_nsec: u32,
        /// Zero.
        pub dummy: u32,
        /// The attributes.
        pub attr: Attr,
    }
}

layout!(AttrOut, 104, attr_valid_nsec @ 8, attr @ 16);

flag_set! {
    /// Which attributes SETATTR sets. None at all means: strip suid, sgid and capabilities.
    pub struct SetattrValid: u32 {
        /// The permission bits.
        const MODE = 1 << 0;
        /// The owner.
        const UID = 1 << 1;
        /// The group.
        const GID = 1 << 2;
        /// The size.
        const SIZE = 1 << 3;
        /// The last access.
        const ATIME = 1 << 4;
        /// The last change of the data.
        const MTIME = 1 << 5;
        /// `fh` is valid.
        const FH = 1 << 6;
        /// The last access becomes now.
        const ATIME_NOW = 1 << 7;
        /// The last change of the data becomes now.
        const MTIME_NOW = 1 << 8;
        /// `lock_owner` is valid.
        const LOCKOWNER = 1 << 9;
        /// The last change of the inode (under writeback caching).
        const CTIME = 1 << 10;
        /// suid, sgid and capabilities go with the change.
        const KILL_SUIDGID = 1 << 11;
    }
}

wire_struct! {
    /// Arguments of SETATTR.
    pub struct SetattrIn {
        /// Which fields count.
        pub valid: SetattrValid,
        /// Zero.
        pub padding: u32,
        /// The open file.
        pub fh: u64,
        /// Size in bytes.
        pub size: u64,
        /// The lock owner.
        pub lock_owner: u64,
        /// Last access, seconds since 1970 (signed).
        pub atime: u64,
        /// Last change of the data, seconds since 1970 (signed).
        pub mtime: u64,
        /// Last change of the inode, seconds since 1970 (signed).
        pub ctime: u64,
        /// Last access, nanoseconds.
        pub atimensec: u32,
        /// Last change of the data, nanoseconds.
        pub mtimensec: u32,
        /// Last change of the inode, nanoseconds.
        pub ctimensec: u32,
        /// Type and permission bits.
        pub mode: u32,
        /// Zero.
        pub unused4: u32,
        /// Owner.
        pub uid: u32,
        /// Group.
        pub gid: u32,
        /// Zero.
        pub unused5: u32,
    }
}

layout!(SetattrIn, 88, fh @ 8, size @ 16, lock_owner @ 24, atime @ 32, mtime @ 40, ctime @ 48, atimensec @ 56,
    mtimensec @ 60, ctimensec @ 64, mode @ 68, uid @ 76, gid @ 80);
