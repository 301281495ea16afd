//! What kernel and file system agree on at INIT.

use bitflags::bitflags;

bitflags! {
    /// Capabilities: the kernel offers them, and [`crate::KernelConfig::add_capabilities`] asks for them.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct InitFlags: u64 {
        /// Several reads of one file at once.
        const FUSE_ASYNC_READ = 1 << 0;
        /// POSIX locks are asked of the file system.
        const FUSE_POSIX_LOCKS = 1 << 1;
        /// `fstat` and `ftruncate` carry the open file.
        const FUSE_FILE_OPS = 1 << 2;
        /// Open truncates where `O_TRUNC` is given.
        const FUSE_ATOMIC_O_TRUNC = 1 << 3;
        /// `.` and `..` may be looked up, as NFS needs it.
        const FUSE_EXPORT_SUPPORT = 1 << 4;
        /// Writes may be longer than a page.
        const FUSE_BIG_WRITES = 1 << 5;
        /// The umask comes apart from the mode.
        const FUSE_DONT_MASK = 1 << 6;
        /// Answers may be spliced to the device.
        const FUSE_SPLICE_WRITE = 1 << 7;
        /// Pages may be moved in doing so.
        const FUSE_SPLICE_MOVE = 1 << 8;
        /// Requests may be spliced from the device.
        const FUSE_SPLICE_READ = 1 << 9;
        /// Locks of `flock(2)` are asked of the file system.
        const FUSE_FLOCK_LOCKS = 1 << 10;
        /// Folders have ioctls.
        const FUSE_HAS_IOCTL_DIR = 1 << 11;
        /// Cached pages go where a file's time or size is another.
        const FUSE_AUTO_INVAL_DATA = 1 << 12;
        /// Listings carry attributes.
        const FUSE_DO_READDIRPLUS = 1 << 13;
        /// Listings carry attributes where they are likely to be used.
        const FUSE_READDIRPLUS_AUTO = 1 << 14;
        /// Asynchronous direct I/O goes on while others run.
        const FUSE_ASYNC_DIO = 1 << 15;
        /// The kernel gathers writes.
        const FUSE_WRITEBACK_CACHE = 1 << 16;
        /// ENOSYS to an open means that no open is sent.
        const FUSE_NO_OPEN_SUPPORT = 1 << 17;
        /// Lookups and listings of one folder run at once.
        const FUSE_PARALLEL_DIROPS = 1 << 18;
        /// The file system strips set-id bits.
        const FUSE_HANDLE_KILLPRIV = 1 << 19;
        /// The kernel enforces POSIX ACLs.
        const FUSE_POSIX_ACL = 1 << 20;
        /// The device says ECONNABORTED after an abort.
        const FUSE_ABORT_ERROR = 1 << 21;
        /// INIT tells the most pages of a request.
        const FUSE_MAX_PAGES = 1 << 22;
        /// The kernel keeps the targets of symlinks.
        const FUSE_CACHE_SYMLINKS = 1 << 23;
        /// ENOSYS to an open of a folder means that none is sent.
        const FUSE_NO_OPENDIR_SUPPORT = 1 << 24;
        /// Cached pages go only when told.
        const FUSE_EXPLICIT_INVAL_DATA = 1 << 25;
        /// INIT tells the alignment of mappings.
        const FUSE_MAP_ALIGNMENT = 1 << 26;
        /// Folders may be mounts of their own.
        const FUSE_SUBMOUNTS = 1 << 27;
        /// The file system strips set-id bits where the kernel says so.
        const FUSE_HANDLE_KILLPRIV_V2 = 1 << 28;
        /// The long form of SETXATTR.
        const FUSE_SETXATTR_EXT = 1 << 29;
        /// The long form of INIT.
        const FUSE_INIT_EXT = 1 << 30;
        /// Not to be used.
        const FUSE_INIT_RESERVED = 1 << 31;
        /// Creations carry a security context.
        const FUSE_SECURITY_CTX = 1 << 32;
        /// DAX file by file.
        const FUSE_HAS_INODE_DAX = 1 << 33;
        /// Creations carry a supplementary group.
        const FUSE_CREATE_SUPP_GROUP = 1 << 34;
        /// Names may expire without going.
        const FUSE_HAS_EXPIRE_ONLY = 1 << 35;
        /// Files of direct I/O may be mapped.
        const FUSE_DIRECT_IO_ALLOW_MMAP = 1 << 36;
        /// Passthrough to backing files.
        const FUSE_PASSTHROUGH = 1 << 37;
        /// Handles of files do not outlive the cache.
        const FUSE_NO_EXPORT_SUPPORT = 1 << 38;
        /// Unanswered requests can be asked for again.
        const FUSE_HAS_RESEND = 1 << 39;
        /// Mounts may map ids.
        const FUSE_ALLOW_IDMAP = 1 << 40;
        /// Requests through io_uring. The transport decides on it: asking for it changes nothing.
        const FUSE_OVER_IO_URING = 1 << 41;
        /// Requests may time out.
        const FUSE_REQUEST_TIMEOUT = 1 << 42;
    }
}
