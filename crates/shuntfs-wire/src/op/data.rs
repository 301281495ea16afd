//! READ, WRITE and FSYNC; READDIR, READDIRPLUS and FSYNCDIR have the same arguments.

use crate::macros::{flag_set, layout, wire_struct};

flag_set! {
    /// Flags of READ.
    pub struct ReadFlags: u32 {
        /// `lock_owner` is valid.
        const LOCKOWNER = 1 << 1;
    }
}

wire_struct! {
    /// Arguments of READ, READDIR and READDIRPLUS.
    pub struct ReadIn {
        /// The open file.
        pub fh: u64,
        /// Where, in bytes; for a folder, the cookie to go on from.
        pub offset: u64,
        /// The most to answer, in bytes.
        pub size: u32,
        /// Which fields count.
        pub read_flags: ReadFlags,
        /// The lock owner.
        pub lock_owner: u64,
        /// The flags that the file was opened with.
        pub flags: u32,
        /// Zero.
        pub padding: u32,
    }
}

layout!(ReadIn, 40, offset @ 8, size @ 16, read_flags @ 20, lock_owner @ 24, flags @ 32);

flag_set! {
    /// Flags of WRITE.
    pub struct WriteFlags: u32 {
        /// It comes from the page cache: credentials and `fh` are a guess.
        const CACHE = 1 << 0;
        /// `lock_owner` is valid.
        const LOCKOWNER = 1 << 1;
        /// The writer may not keep suid and sgid: strip them.
        const KILL_SUIDGID = 1 << 2;
    }
}

wire_struct! {
    /// Arguments of WRITE; the data follows.
    pub struct WriteIn {
        /// The open file.
        pub fh: u64,
        /// Where, in bytes, also for files opened to append.
        pub offset: u64,
        /// How much, in bytes.
        pub size: u32,
        /// What to know of it.
        pub write_flags: WriteFlags,
        /// The lock owner.
        pub lock_owner: u64,
        /// The flags that the file was opened with.
        pub flags: u32,
        /// Zero.
        pub padding: u32,
    }
}

layout!(WriteIn, 40, offset @ 8, size @ 16, write_flags @ 20, lock_owner @ 24, flags @ 32);

wire_struct! {
    /// The answer to WRITE and COPY_FILE_RANGE.
    pub struct WriteOut {
        /// How much was written, in bytes.
        pub size: u32,
        /// Zero.
        pub padding: u32,
    }
}

layout!(WriteOut, 8);

flag_set! {
    /// Flags of FSYNC and FSYNCDIR.
    pub struct FsyncFlags: u32 {
        /// The data only, and what it takes to find it again.
        const FDATASYNC = 1 << 0;
    }
}

wire_struct! {
    /// Arguments of FSYNC and FSYNCDIR.
    pub struct FsyncIn {
        /// The open file.
        pub fh: u64,
        /// How much.
        pub fsync_flags: FsyncFlags,
        /// Zero.
        pub padding: u32,
    }
}

layout!(FsyncIn, 16, fsync_flags @ 8);
