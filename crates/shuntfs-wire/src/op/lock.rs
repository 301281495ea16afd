//! Locks: GETLK, SETLK, SETLKW.

use crate::macros::{flag_set, layout, wire_struct};

wire_struct! {
    /// A locked range.
    pub struct FileLock {
        /// First byte.
        pub start: u64,
        /// Last byte, inclusive; [`crate::abi::LOCK_END_OF_FILE`] for the end of the file.
        pub end: u64,
        /// `F_RDLCK` 0, `F_WRLCK` 1, `F_UNLCK` 2.
        pub r#type: u32,
        /// The process that holds it.
        pub pid: u32,
    }
}

layout!(FileLock, 24, end @ 8, r#type @ 16, pid @ 20);

flag_set! {
    /// Flags of the locking operations.
    pub struct LkFlags: u32 {
        /// It is a `flock` on the whole file.
        const FLOCK = 1 << 0;
    }
}

wire_struct! {
    /// Arguments of GETLK, SETLK and SETLKW.
    pub struct LkIn {
        /// The open file.
        pub fh: u64,
        /// Who asks.
        pub owner: u64,
        /// What for.
        pub lk: FileLock,
        /// What kind of lock.
        pub lk_flags: LkFlags,
        /// Zero.
        pub padding: u32,
    }
}

layout!(LkIn, 48, owner @ 8, lk @ 16, lk_flags @ 40);

wire_struct! {
    /// The answer to GETLK: the lock that is in the way, or the one asked for with `F_UNLCK`.
    pub struct LkOut {
        /// The lock.
        pub lk: FileLock,
    }
}

layout!(LkOut, 24);
