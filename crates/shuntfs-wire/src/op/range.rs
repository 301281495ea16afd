//! Operations on ranges: FALLOCATE, LSEEK, COPY_FILE_RANGE, COPY_FILE_RANGE_64.

use crate::macros::{layout, wire_struct};

wire_struct! {
    /// Arguments of FALLOCATE.
    pub struct FallocateIn {
        /// The open file.
        pub fh: u64,
        /// Where, in bytes.
        pub offset: u64,
        /// How long, in bytes.
        pub length: u64,
        /// `FALLOC_FL_*`.
        pub mode: u32,
        /// Zero.
        pub padding: u32,
    }
}

layout!(FallocateIn, 32, offset @ 8, length @ 16, mode @ 24);

wire_struct! {
    /// Arguments of LSEEK.
    pub struct LseekIn {
        /// The open file.
        pub fh: u64,
        /// Where to look from, in bytes.
        pub offset: u64,
        /// `SEEK_DATA` or `SEEK_HOLE`.
        pub whence: u32,
        /// Zero.
        pub padding: u32,
    }
}

layout!(LseekIn, 24, offset @ 8, whence @ 16);

wire_struct! {
    /// The answer to LSEEK.
    pub struct LseekOut {
        /// Where, in bytes.
        pub offset: u64,
    }
}

layout!(LseekOut, 8);

wire_struct! {
    /// Arguments of COPY_FILE_RANGE and COPY_FILE_RANGE_64. The header's node is the one read from.
    pub struct CopyFileRangeIn {
        /// The open file read from.
        pub fh_in: u64,
        /// Where, in bytes.
        pub off_in: u64,
        /// The node written to.
        pub nodeid_out: u64,
        /// The open file written to.
        pub fh_out: u64,
        /// Where, in bytes.
        pub off_out: u64,
        /// How much, in bytes.
        pub len: u64,
        /// None exist yet.
        pub flags: u64,
    }
}

layout!(CopyFileRangeIn, 56, off_in @ 8, nodeid_out @ 16, fh_out @ 24, off_out @ 32, len @ 40, flags @ 48);

wire_struct! {
    /// The answer to COPY_FILE_RANGE_64; COPY_FILE_RANGE is answered by [`super::WriteOut`].
    pub struct CopyFileRangeOut {
        /// How much was copied, in bytes.
        pub bytes_copied: u64,
    }
}

layout!(CopyFileRangeOut, 8);
