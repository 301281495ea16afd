//! SETUPMAPPING and REMOVEMAPPING: the DAX window of virtiofs.

use zerocopy::native_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::macros::{flag_set, layout, wire_struct};

flag_set! {
    /// What a mapping is for.
    pub struct SetupmappingFlags: u64 {
        /// To write.
        const WRITE = 1 << 0;
        /// To read.
        const READ = 1 << 1;
    }
}

wire_struct! {
    /// Arguments of SETUPMAPPING.
    pub struct SetupmappingIn {
        /// The open file.
        pub fh: u64,
        /// Where in the file, in bytes.
        pub foffset: u64,
        /// How long, in bytes.
        pub len: u64,
        /// What for.
        pub flags: SetupmappingFlags,
        /// Where in the window, in bytes.
        pub moffset: u64,
    }
}

layout!(SetupmappingIn, 40, foffset @ 8, len @ 16, flags @ 24, moffset @ 32);

wire_struct! {
    /// Arguments of REMOVEMAPPING; `count` records follow.
    pub struct RemovemappingIn {
        /// How many.
        pub count: u32,
    }
}

layout!(RemovemappingIn, 4);

/// One record of REMOVEMAPPING. It can stand at any address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RemovemappingOne {
    moffset: U64,
    len: U64,
}

layout!(RemovemappingOne, 16, moffset @ 0, len @ 8);

impl RemovemappingOne {
    /// Where in the window, in bytes.
    #[must_use]
    pub const fn window_offset(self) -> u64 {
        self.moffset.get()
    }

    /// How long, in bytes; `u64::MAX` for the whole window.
    #[must_use]
    pub const fn window_len(self) -> u64 {
        self.len.get()
    }
}
