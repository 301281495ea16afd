//! Opening and closing files and folders: OPEN, OPENDIR, CREATE, TMPFILE, FLUSH, RELEASE, RELEASEDIR.

use super::attr::EntryOut;
use crate::macros::{flag_set, layout, wire_struct};

flag_set! {
    /// What the kernel asks of an open beyond the caller's flags.
    pub struct OpenInFlags: u32 {
        /// The open truncates, and the caller may not keep suid and sgid: strip them.
        const KILL_SUIDGID = 1 << 0;
    }
}

wire_struct! {
    /// Arguments of OPEN and OPENDIR.
    pub struct OpenIn {
        /// The caller's flags, as in `open(2)`, without `O_CREAT`, `O_EXCL`, `O_NOCTTY`, and without `O_TRUNC` unless
        /// [`crate::InitFlags::ATOMIC_O_TRUNC`] was agreed to.
        pub flags: u32,
        /// What the kernel asks on top.
        pub open_flags: OpenInFlags,
    }
}

layout!(OpenIn, 8, open_flags @ 4);

wire_struct! {
    /// Arguments of CREATE and TMPFILE; the name follows (TMPFILE's says nothing).
    pub struct CreateIn {
        /// The caller's flags, as in `open(2)`.
        pub flags: u32,
        /// Permission bits; before the umask if [`crate::InitFlags::DONT_MASK`] was agreed to.
        pub mode: u32,
        /// The caller's umask.
        pub umask: u32,
        /// What the kernel asks on top.
        pub open_flags: OpenInFlags,
    }
}

layout!(CreateIn, 16, mode @ 4, umask @ 8, open_flags @ 12);

flag_set! {
    /// How the kernel is to treat an open file.
    pub struct FopenFlags: u32 {
        /// Reads and writes go to the server, past the page cache.
        const DIRECT_IO = 1 << 0;
        /// Cached data survives this open. Never together with `PASSTHROUGH`.
        const KEEP_CACHE = 1 << 1;
        /// It cannot be sought in. Never together with `PASSTHROUGH`.
        const NONSEEKABLE = 1 << 2;
        /// The listing of this folder may be cached.
        const CACHE_DIR = 1 << 3;
        /// It has no position at all. Never together with `PASSTHROUGH`.
        const STREAM = 1 << 4;
        /// No FLUSH at close (7.35).
        const NOFLUSH = 1 << 5;
        /// Direct writes of one file may overlap; counts with `DIRECT_IO` only (7.38).
        const PARALLEL_DIRECT_WRITES = 1 << 6;
        /// Reads, writes and mappings go to the backing file with `backing_id` (7.40).
        const PASSTHROUGH = 1 << 7;
        /// The pages of READ and WRITE go to the entry's place in the ring's table of buffers, where the queue can do so (7.46).
        const IO_URING_ZERO_COPY = 1 << 8;
    }
}

wire_struct! {
    /// The answer to OPEN and OPENDIR, and the second half of the one to CREATE and TMPFILE.
    pub struct OpenOut {
        /// The server's number for the open file.
        pub fh: u64,
        /// How to treat it.
        pub open_flags: FopenFlags,
        /// The backing file; counts with [`FopenFlags::PASSTHROUGH`] only.
        pub backing_id: i32,
    }
}

layout!(OpenOut, 16, open_flags @ 8, backing_id @ 12);

wire_struct! {
    /// The answer to CREATE and TMPFILE.
    pub struct CreateOut {
        /// The new node.
        pub entry: EntryOut,
        /// The open file.
        pub open: OpenOut,
    }
}

layout!(CreateOut, 144, open @ 128);

wire_struct! {
    /// Arguments of FLUSH.
    pub struct FlushIn {
        /// The open file.
        pub fh: u64,
        /// Zero.
        pub unused: u32,
        /// Zero.
        pub padding: u32,
        /// Whose POSIX locks on the file end with this close.
        pub lock_owner: u64,
    }
}

layout!(FlushIn, 24, lock_owner @ 16);

flag_set! {
    /// What else ends with a RELEASE.
    pub struct ReleaseFlags: u32 {
        /// Flush as well.
        const FLUSH = 1 << 0;
        /// `lock_owner`'s `flock` ends.
        const FLOCK_UNLOCK = 1 << 1;
    }
}

wire_struct! {
    /// Arguments of RELEASE and RELEASEDIR.
    pub struct ReleaseIn {
        /// The open file.
        pub fh: u64,
        /// The flags that it was opened with.
        pub flags: u32,
        /// What else ends.
        pub release_flags: ReleaseFlags,
        /// The owner of the `flock`.
        pub lock_owner: u64,
    }
}

layout!(ReleaseIn, 24, flags @ 8, release_flags @ 12, lock_owner @ 16);
