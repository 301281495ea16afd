//! The operations.

use crate::InitFlags;
use crate::op::{
    AccessIn, BatchForgetIn, BmapIn, CopyFileRangeIn, CreateIn, CuseInitIn, FallocateIn, FlushIn, ForgetIn,
    FsyncIn, GetattrIn, GetxattrIn, InitIn, InterruptIn, IoctlIn, LinkIn, LkIn, LseekIn, MkdirIn, MknodIn,
    NotifyRetrieveIn, OpenIn, PollIn, ReadIn, ReleaseIn, RemovemappingIn, Rename2In, RenameIn, SetattrIn,
    SetupmappingIn, SetxattrIn, StatxIn, SyncfsIn, WriteIn,
};

macro_rules! opcodes {
    ($( $(#[$doc:meta])* $name:ident = $number:literal, $upper:literal, $fixed:expr; )*) => {
        /// An operation that the kernel may ask for, ABI 7.46.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        #[repr(u32)]
        pub enum Opcode {
            $( $(#[$doc])* $name = $number, )*
        }

        impl Opcode {
            /// Every operation, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The operation with this number; `None` for one that ABI 7.46 does not have.
            #[must_use]
            pub const fn new(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// Its name as in the kernel's header, without `FUSE_`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $upper,)*
                }
            }

            /// Length in bytes of the fixed struct that follows the header, 0 where names or nothing follow. On a
            /// ring it stands in `op_in`, and the rest of the request in the payload.
            ///
            /// SETXATTR has a short form of [`SetxattrIn::SHORT_LEN`] bytes where
            /// [`InitFlags::SETXATTR_EXT`] was not agreed to ([`Opcode::fixed_len_agreed`] knows), and INIT one of
            /// [`InitIn::SHORT_LEN`] bytes before Linux 5.17; [`crate::Request::parse`] takes both.
            #[must_use]
            pub const fn fixed_len(self) -> usize {
                match self {
                    $(Self::$name => $fixed,)*
                }
            }
        }
    };
}

opcodes! {
    /// Finds a name in a folder and raises the node's lookup count.
    Lookup = 1, "LOOKUP", 0;
    /// Takes lookups of a node back. No reply.
    Forget = 2, "FORGET", size_of::<ForgetIn>();
    /// Asks for attributes.
    Getattr = 3, "GETATTR", size_of::<GetattrIn>();
    /// Sets attributes.
    Setattr = 4, "SETATTR", size_of::<SetattrIn>();
    /// Asks what a symlink points to.
    Readlink = 5, "READLINK", 0;
    /// Makes a symlink.
    Symlink = 6, "SYMLINK", 0;
    /// Makes a file or a special file.
    Mknod = 8, "MKNOD", size_of::<MknodIn>();
    /// Makes a folder.
    Mkdir = 9, "MKDIR", size_of::<MkdirIn>();
    /// Removes a name that is no folder's.
    Unlink = 10, "UNLINK", 0;
    /// Removes a folder.
    Rmdir = 11, "RMDIR", 0;
    /// Moves a name, without flags.
    Rename = 12, "RENAME", size_of::<RenameIn>();
    /// Gives a node another name.
    Link = 13, "LINK", size_of::<LinkIn>();
    /// Opens a file.
    Open = 14, "OPEN", size_of::<OpenIn>();
    /// Reads from a file.
    Read = 15, "READ", size_of::<ReadIn>();
    /// Writes to a file.
    Write = 16, "WRITE", size_of::<WriteIn>();
    /// Asks for the state of the file system as a whole.
    Statfs = 17, "STATFS", 0;
    /// The last reference to an open file is gone.
    Release = 18, "RELEASE", size_of::<ReleaseIn>();
    /// Makes a file's data durable.
    Fsync = 20, "FSYNC", size_of::<FsyncIn>();
    /// Sets an extended attribute.
    Setxattr = 21, "SETXATTR", size_of::<SetxattrIn>();
    /// Asks for an extended attribute or its length.
    Getxattr = 22, "GETXATTR", size_of::<GetxattrIn>();
    /// Asks for the names of the extended attributes or their length.
    Listxattr = 23, "LISTXATTR", size_of::<GetxattrIn>();
    /// Removes an extended attribute.
    Removexattr = 24, "REMOVEXATTR", 0;
    /// A descriptor of an open file is closed.
    Flush = 25, "FLUSH", size_of::<FlushIn>();
    /// Opens the conversation.
    Init = 26, "INIT", size_of::<InitIn>();
    /// Opens a folder.
    Opendir = 27, "OPENDIR", size_of::<OpenIn>();
    /// Lists a folder.
    Readdir = 28, "READDIR", size_of::<ReadIn>();
    /// The last reference to an open folder is gone.
    Releasedir = 29, "RELEASEDIR", size_of::<ReleaseIn>();
    /// Makes a folder durable.
    Fsyncdir = 30, "FSYNCDIR", size_of::<FsyncIn>();
    /// Asks what would keep a lock from being taken.
    Getlk = 31, "GETLK", size_of::<LkIn>();
    /// Takes or gives up a lock without waiting.
    Setlk = 32, "SETLK", size_of::<LkIn>();
    /// Takes a lock, waiting for it.
    Setlkw = 33, "SETLKW", size_of::<LkIn>();
    /// Asks whether the caller may.
    Access = 34, "ACCESS", size_of::<AccessIn>();
    /// Makes and opens a file in one.
    Create = 35, "CREATE", size_of::<CreateIn>();
    /// A caller was interrupted while it waited for a request. No reply needed.
    Interrupt = 36, "INTERRUPT", size_of::<InterruptIn>();
    /// Asks where a block of a file lies on its device (`fuseblk` only).
    Bmap = 37, "BMAP", size_of::<BmapIn>();
    /// The file system goes away (`fuseblk` and virtiofs only).
    Destroy = 38, "DESTROY", 0;
    /// Passes an ioctl on.
    Ioctl = 39, "IOCTL", size_of::<IoctlIn>();
    /// Asks what an open file is ready for.
    Poll = 40, "POLL", size_of::<PollIn>();
    /// Brings the data that [`crate::Notification::Retrieve`] asked for. No reply.
    NotifyReply = 41, "NOTIFY_REPLY", size_of::<NotifyRetrieveIn>();
    /// Takes lookups of many nodes back. No reply.
    BatchForget = 42, "BATCH_FORGET", size_of::<BatchForgetIn>();
    /// Reserves, frees or zeroes a range of a file.
    Fallocate = 43, "FALLOCATE", size_of::<FallocateIn>();
    /// Lists a folder and looks every name up.
    Readdirplus = 44, "READDIRPLUS", size_of::<ReadIn>();
    /// Moves or exchanges names, with flags.
    Rename2 = 45, "RENAME2", size_of::<Rename2In>();
    /// Looks for the next data or hole.
    Lseek = 46, "LSEEK", size_of::<LseekIn>();
    /// Copies between two open files; the length answered has 32 bits.
    CopyFileRange = 47, "COPY_FILE_RANGE", size_of::<CopyFileRangeIn>();
    /// Maps a range of a file into the DAX window (virtiofs only).
    Setupmapping = 48, "SETUPMAPPING", size_of::<SetupmappingIn>();
    /// Unmaps ranges of the DAX window (virtiofs only).
    Removemapping = 49, "REMOVEMAPPING", size_of::<RemovemappingIn>();
    /// Makes the whole file system durable (`fuseblk` and virtiofs only).
    Syncfs = 50, "SYNCFS", size_of::<SyncfsIn>();
    /// Makes and opens a file without a name.
    Tmpfile = 51, "TMPFILE", size_of::<CreateIn>();
    /// Asks for attributes as `statx` has them.
    Statx = 52, "STATX", size_of::<StatxIn>();
    /// Copies between two open files; the length answered has 64 bits.
    CopyFileRange64 = 53, "COPY_FILE_RANGE_64", size_of::<CopyFileRangeIn>();
    /// Opens the conversation on /dev/cuse.
    CuseInit = 4096, "CUSE_INIT", size_of::<CuseInitIn>();
}

impl Opcode {
    /// The kernel's number for it.
    #[must_use]
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// [`Opcode::fixed_len`] on a connection where `agreed` was answered at INIT.
    #[must_use]
    pub const fn fixed_len_agreed(self, agreed: InitFlags) -> usize {
        match self {
            Self::Setxattr if !agreed.contains(InitFlags::SETXATTR_EXT) => SetxattrIn::SHORT_LEN,
            _ => self.fixed_len(),
        }
    }

    /// Whether the kernel waits for a reply. One to an operation that it does not wait for is refused with ENOENT,
    /// INTERRUPT's apart, whose reply is optional.
    #[must_use]
    pub const fn wants_reply(self) -> bool {
        !matches!(self, Self::Forget | Self::BatchForget | Self::Interrupt | Self::NotifyReply)
    }

    /// Whether an answer without an error has bytes behind its header, or may have. The kernel has room for them then, which on a queue with
    /// a pool of payload buffers is one of them.
    #[must_use]
    pub const fn has_answer(self) -> bool {
        use Opcode::{
            Access, Destroy, Fallocate, Flush, Fsync, Fsyncdir, Release, Releasedir, Removemapping,
            Removexattr, Rename, Rename2, Rmdir, Setlk, Setlkw, Setupmapping, Setxattr, Syncfs, Unlink,
        };
        self.wants_reply()
            && !matches!(
                self,
                Access
                    | Destroy
                    | Fallocate
                    | Flush
                    | Fsync
                    | Fsyncdir
                    | Release
                    | Releasedir
                    | Removemapping
                    | Removexattr
                    | Rename
                    | Rename2
                    | Rmdir
                    | Setlk
                    | Setlkw
                    | Setupmapping
                    | Setxattr
                    | Syncfs
                    | Unlink
            )
    }

    /// Its place in [`Opcode::ALL`], dense from 0, for tables of counters.
    #[must_use]
    pub const fn index(self) -> usize {
        let number = self as usize;
        // The numbers are dense but for 7 and 19, which were never given out, and CUSE_INIT.
        match number {
            0..=6 => number - 1,
            7..=18 => number - 2,
            19..=53 => number - 3,
            _ => Self::ALL.len() - 1,
        }
    }
}

impl std::fmt::Display for Opcode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn places_and_numbers_lead_back() {
        for (place, opcode) in Opcode::ALL.iter().enumerate() {
            assert_eq!(opcode.index(), place, "{opcode}");
            assert_eq!(Opcode::new(opcode.number()), Some(*opcode));
        }
        for unknown in [0, 7, 19, 54, 4095, 4097, u32::MAX] {
            assert_eq!(Opcode::new(unknown), None);
        }
    }

    #[test]
    fn every_fixed_struct_fits_a_ring_entry() {
        for opcode in Opcode::ALL {
            assert!(opcode.fixed_len() <= crate::uring::OP_IN_LEN, "{opcode}");
        }
    }

    /// `out_numargs` of each request in `fs/fuse`, Linux 7.3.
    #[test]
    fn what_is_answered_with_nothing_is_known() {
        let bare: Vec<_> = Opcode::ALL.iter().filter(|op| !op.has_answer()).map(|op| op.name()).collect();
        let names = "FORGET UNLINK RMDIR RENAME RELEASE FSYNC SETXATTR REMOVEXATTR FLUSH RELEASEDIR FSYNCDIR SETLK SETLKW \
            ACCESS INTERRUPT DESTROY NOTIFY_REPLY BATCH_FORGET FALLOCATE RENAME2 SETUPMAPPING REMOVEMAPPING SYNCFS";
        assert_eq!(bare, names.split_whitespace().collect::<Vec<_>>());
    }

    #[test]
    fn setxattr_is_short_unless_agreed() {
        assert_eq!(Opcode::Setxattr.fixed_len_agreed(InitFlags::empty()), 8);
        assert_eq!(Opcode::Setxattr.fixed_len_agreed(InitFlags::SETXATTR_EXT), 16);
        assert_eq!(Opcode::Write.fixed_len_agreed(InitFlags::empty()), 40);
    }
}
