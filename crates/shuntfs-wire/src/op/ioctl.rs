//! IOCTL.

use crate::macros::{flag_set, layout, wire_struct};

/// The most iovecs that one answer with [`IoctlFlags::RETRY`] may name, both ways together.
pub const IOCTL_IOVEC_MAX: usize = 256;

flag_set! {
    /// Flags of IOCTL, in requests and answers.
    pub struct IoctlFlags: u32 {
        /// The caller is a 32-bit program on a 64-bit kernel.
        const COMPAT = 1 << 0;
        /// The command's number does not tell its data; retries are allowed (CUSE only).
        const UNRESTRICTED = 1 << 1;
        /// Ask again with the data that these iovecs name (answers only).
        const RETRY = 1 << 2;
        /// The caller's `long` has 32 bits.
        const IS_32BIT = 1 << 3;
        /// It is on a folder.
        const DIR = 1 << 4;
        /// The caller is an x32 program.
        const COMPAT_X32 = 1 << 5;
    }
}

wire_struct! {
    /// Arguments of IOCTL; `in_size` bytes follow.
    pub struct IoctlIn {
        /// The open file.
        pub fh: u64,
        /// What to know of it.
        pub flags: IoctlFlags,
        /// The command.
        pub cmd: u32,
        /// The argument itself: a pointer of the caller's where the command carries data.
        pub arg: u64,
        /// Length of the data handed in.
        pub in_size: u32,
        /// Room for the answer at the caller's.
        pub out_size: u32,
    }
}

layout!(IoctlIn, 32, flags @ 8, cmd @ 12, arg @ 16, in_size @ 24, out_size @ 28);

wire_struct! {
    /// A piece of the caller's memory.
    pub struct IoctlIovec {
        /// Address.
        pub base: u64,
        /// Length in bytes.
        pub len: u64,
    }
}

layout!(IoctlIovec, 16);

wire_struct! {
    /// The answer to IOCTL; the data handed out follows.
    pub struct IoctlOut {
        /// What the ioctl returns.
        pub result: i32,
        /// Only [`IoctlFlags::RETRY`].
        pub flags: IoctlFlags,
        /// How many iovecs to read, at a retry.
        pub in_iovs: u32,
        /// How many iovecs to write, at a retry.
        pub out_iovs: u32,
    }
}

layout!(IoctlOut, 16, flags @ 4, in_iovs @ 8, out_iovs @ 12);
