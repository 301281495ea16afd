//! STATFS.

use crate::macros::{layout, wire_struct};

wire_struct! {
    /// The state of the file system as a whole.
    pub struct Kstatfs {
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
        /// Unit of the block counts in bytes.
        pub frsize: u32,
        /// Zero.
        pub padding: u32,
        /// Zero.
        pub spare: [u32; 6],
    }
}

layout!(Kstatfs, 80, bfree @ 8, bavail @ 16, files @ 24, ffree @ 32, bsize @ 40, namelen @ 44, frsize @ 48);

wire_struct! {
    /// The answer to STATFS.
    pub struct StatfsOut {
        /// The state.
        pub st: Kstatfs,
    }
}

layout!(StatfsOut, 80);
