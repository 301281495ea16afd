//! Flags of requests and replies.

use std::fmt;

use bitflags::bitflags;

bitflags! {
    /// What [`crate::Filesystem::access`] asks for.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct AccessFlags: i32 {
        /// That the file exists: no bit at all.
        const F_OK = 0;
        /// Reading.
        const R_OK = 4;
        /// Writing.
        const W_OK = 2;
        /// Execution, or the search of a folder.
        const X_OK = 1;
    }

    /// Flags of `chflags(2)`. There are none on Linux.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct BsdFileFlags: u32 {}

    /// Flags of a copy. None is defined.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct CopyFileRangeFlags: u64 {}

    /// What the answer to an open says of the open file.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct FopenFlags: u32 {
        /// Reads and writes go past the page cache.
        const FOPEN_DIRECT_IO = 1 << 0;
        /// What is cached of the file stays.
        const FOPEN_KEEP_CACHE = 1 << 1;
        /// The file has no place to seek to.
        const FOPEN_NONSEEKABLE = 1 << 2;
        /// The kernel may keep the listing of the folder.
        const FOPEN_CACHE_DIR = 1 << 3;
        /// The file is a stream, without any place.
        const FOPEN_STREAM = 1 << 4;
        /// A close sends no FLUSH.
        const FOPEN_NOFLUSH = 1 << 5;
        /// Several direct writes may run at once.
        const FOPEN_PARALLEL_DIRECT_WRITES = 1 << 6;
        /// The kernel moves the bytes of a backing file.
        const FOPEN_PASSTHROUGH = 1 << 7;
    }

    /// Flags of an ioctl.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct IoctlFlags: u32 {
        /// From a 32-bit process on a 64-bit kernel.
        const FUSE_IOCTL_COMPAT = 1 << 0;
        /// Not restricted to what its number says of its data.
        const FUSE_IOCTL_UNRESTRICTED = 1 << 1;
        /// To be sent again with other areas.
        const FUSE_IOCTL_RETRY = 1 << 2;
        /// Of 32 bits.
        const FUSE_IOCTL_32BIT = 1 << 3;
        /// On a folder.
        const FUSE_IOCTL_DIR = 1 << 4;
        /// From an x32 process.
        const FUSE_IOCTL_COMPAT_X32 = 1 << 5;
    }

    /// Events of `poll(2)`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct PollEvents: u32 {
        /// There is something to read.
        const POLLIN = 0x001;
        /// There is something urgent.
        const POLLPRI = 0x002;
        /// A write would not wait.
        const POLLOUT = 0x004;
        /// There is an error.
        const POLLERR = 0x008;
        /// The other side has gone.
        const POLLHUP = 0x010;
        /// The descriptor is not open.
        const POLLNVAL = 0x020;
        /// There is ordinary data to read.
        const POLLRDNORM = 0x040;
        /// There is priority data to read.
        const POLLRDBAND = 0x080;
        /// Ordinary data can be written.
        const POLLWRNORM = 0x100;
        /// Priority data can be written.
        const POLLWRBAND = 0x200;
    }

    /// Flags of a poll request.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct PollFlags: u32 {
        /// The kernel wants to be told when something changes.
        const FUSE_POLL_SCHEDULE_NOTIFY = 1 << 0;
    }

    /// Flags of `renameat2(2)`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct RenameFlags: u32 {
        /// An existing new name is an error.
        const RENAME_NOREPLACE = 1 << 0;
        /// Both names change places.
        const RENAME_EXCHANGE = 1 << 1;
        /// A whiteout takes the old name's place.
        const RENAME_WHITEOUT = 1 << 2;
    }

    /// Flags of a write.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct WriteFlags: u32 {
        /// From the page cache: caller and open file are guessed.
        const FUSE_WRITE_CACHE = 1 << 0;
        /// The owner of locks is told.
        const FUSE_WRITE_LOCKOWNER = 1 << 1;
        /// Set-user-id and set-group-id bits are to go.
        const FUSE_WRITE_KILL_SUIDGID = 1 << 2;
    }
}

macro_rules! display_bits {
    ($($flags:ident)*) => {
        $(impl fmt::Display for $flags {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.bits(), f)
            }
        })*
    };
}

display_bits! { AccessFlags IoctlFlags PollEvents PollFlags RenameFlags }

/// Which way an open file may be used.
#[derive(Copy, Clone, Debug, Eq, PartialEq, Hash)]
#[repr(i32)]
#[expect(non_camel_case_types, reason = "fuser names them as the C library does")]
pub enum OpenAccMode {
    /// For reading.
    O_RDONLY = 0,
    /// For writing.
    O_WRONLY = 1,
    /// For both.
    O_RDWR = 2,
}

const O_ACCMODE: i32 = 3;

/// The flags of an open, as `open(2)` takes them.
#[derive(Copy, Clone, Debug, Eq, PartialEq, Hash)]
pub struct OpenFlags(
    /// The bits.
    pub i32,
);

impl OpenFlags {
    /// Which way the file may be used; for reading where the bits make no sense.
    pub fn acc_mode(self) -> OpenAccMode {
        match self.0 & O_ACCMODE {
            1 => OpenAccMode::O_WRONLY,
            2 => OpenAccMode::O_RDWR,
            _ => OpenAccMode::O_RDONLY,
        }
    }
}

impl fmt::LowerHex for OpenFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, f)
    }
}

impl fmt::UpperHex for OpenFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::UpperHex::fmt(&self.0, f)
    }
}

/// Numbers of the protocol.
pub mod consts {
    /// A lock is of `flock(2)`.
    pub const FUSE_LK_FLOCK: u32 = 1 << 0;
    /// How many areas an ioctl has at most, in and out together.
    pub const FUSE_IOCTL_MAX_IOV: u32 = 256;
    /// How many bytes a read of the device must have room for at least.
    pub const FUSE_MIN_READ_BUFFER: usize = 8192;
}
