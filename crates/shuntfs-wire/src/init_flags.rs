//! What both sides agree on at INIT.

use crate::macros::flag_set;

flag_set! {
    /// The INIT flags, both words in one: `flags` is the low word, `flags2` the high one. The kernel offers them;
    /// the server answers with those that it agrees to, and thereby takes on what each says.
    pub struct InitFlags: u64 {
        /// Readahead is sent in the background, several READs at once: READs must be answered in any order.
        const ASYNC_READ = 1 << 0;
        /// POSIX and OFD locks are asked of the server: it must answer GETLK, SETLK and SETLKW, and give a closed
        /// descriptor's locks back at FLUSH, OFD locks at RELEASE; a waiting SETLKW must end when an INTERRUPT names
        /// it. Without it the kernel keeps them.
        const POSIX_LOCKS = 1 << 1;
        /// Never offered.
        const FILE_OPS = 1 << 2;
        /// OPEN and CREATE carry `O_TRUNC`, and the server must truncate. Without it a SETATTR does.
        const ATOMIC_O_TRUNC = 1 << 3;
        /// The server must answer LOOKUP of "." and ".." of any node id, for NFS.
        const EXPORT_SUPPORT = 1 << 4;
        /// WRITEs may be longer than a page.
        const BIG_WRITES = 1 << 5;
        /// Modes arrive without the umask applied, and the server (or the lower file system) must apply it.
        const DONT_MASK = 1 << 6;
        /// The server may splice replies into the device.
        const SPLICE_WRITE = 1 << 7;
        /// Spliced pages may be moved.
        const SPLICE_MOVE = 1 << 8;
        /// The server may splice requests from the device.
        const SPLICE_READ = 1 << 9;
        /// `flock` is asked of the server as SETLK and SETLKW with a flag; RELEASE says when one goes.
        const FLOCK_LOCKS = 1 << 10;
        /// The server knows ioctls on folders.
        const HAS_IOCTL_DIR = 1 << 11;
        /// Cached pages are dropped when refreshed attributes show another mtime or size: the server must report
        /// them truly.
        const AUTO_INVAL_DATA = 1 << 12;
        /// Listings are asked for as READDIRPLUS: the server must answer it, and count a lookup for each record.
        const DO_READDIRPLUS = 1 << 13;
        /// Only where the caller looks names up anyway: the server must answer READDIR, too.
        const READDIRPLUS_AUTO = 1 << 14;
        /// Asynchronous direct I/O is sent as such: READs and WRITEs of one file arrive at once and in any order.
        const ASYNC_DIO = 1 << 15;
        /// The kernel keeps written data, size and mtime: WRITEs come late, without the caller's identity, and
        /// READs come for files opened write-only. Excludes passthrough.
        const WRITEBACK_CACHE = 1 << 16;
        /// OPEN may be answered ENOSYS; it is then sent no more.
        const NO_OPEN_SUPPORT = 1 << 17;
        /// Lookups and listings in one folder arrive at once: the server must stand that.
        const PARALLEL_DIROPS = 1 << 18;
        /// The server must clear suid, sgid and capabilities at every write, truncation and change of owner.
        const HANDLE_KILLPRIV = 1 << 19;
        /// The kernel enforces POSIX ACLs, read as xattrs: the server must keep them and let modes follow them.
        const POSIX_ACL = 1 << 20;
        /// After an abort, reading the device gives ECONNABORTED rather than ENODEV.
        const ABORT_ERROR = 1 << 21;
        /// `max_pages` of the reply counts: READs and WRITEs may be that long.
        const MAX_PAGES = 1 << 22;
        /// Targets of symlinks are cached: they must not change.
        const CACHE_SYMLINKS = 1 << 23;
        /// OPENDIR may be answered ENOSYS; it is then sent no more, and listings are cached.
        const NO_OPENDIR_SUPPORT = 1 << 24;
        /// Cached pages are dropped only when the server says so. [`Self::AUTO_INVAL_DATA`] overrules it.
        const EXPLICIT_INVAL_DATA = 1 << 25;
        /// `map_alignment` of the reply counts (virtiofs).
        const MAP_ALIGNMENT = 1 << 26;
        /// Attributes may say that a folder is a mount of its own (virtiofs).
        const SUBMOUNTS = 1 << 27;
        /// As [`Self::HANDLE_KILLPRIV`], but only where the request says so; a SETATTR that names nothing strips.
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        /// SETXATTR has its long form, whose flags the server must obey.
        const SETXATTR_EXT = 1 << 29;
        /// The second word of flags counts.
        const INIT_EXT = 1 << 30;
        /// Reserved forever.
        const RESERVED = 1 << 31;
        /// Creations carry a security context, which the server must set on what it makes.
        const SECURITY_CTX = 1 << 32;
        /// Attributes may ask for DAX by inode (virtiofs).
        const HAS_INODE_DAX = 1 << 33;
        /// Creations carry the folder's group where the caller has it as supplementary.
        const CREATE_SUPP_GROUP = 1 << 34;
        /// Entries can be made to expire by notification.
        const HAS_EXPIRE_ONLY = 1 << 35;
        /// Files that bypass the page cache may be mapped shared: mappings and direct I/O may then differ.
        const DIRECT_IO_ALLOW_MMAP = 1 << 36;
        /// Opens may be put in passthrough; `max_stack_depth` of the reply must be 1 or 2.
        const PASSTHROUGH = 1 << 37;
        /// File handles of the mount are refused: the server promises nothing about node ids.
        const NO_EXPORT_SUPPORT = 1 << 38;
        /// Requests can be asked for again by notification: they come with the top bit of `unique` set, which the
        /// reply must repeat, and may have been carried out before.
        const HAS_RESEND = 1 << 39;
        /// Idmapped mounts are allowed: requests that create nothing carry no ids, so the kernel must check
        /// permissions (`default_permissions`).
        const ALLOW_IDMAP = 1 << 40;
        /// Requests will be fetched over io_uring: all of them wait until every queue is registered, so the server
        /// must register at once, and go on reading the device, where FORGET and INTERRUPT still arrive.
        const OVER_IO_URING = 1 << 41;
        /// `request_timeout` of the reply counts: a request that takes longer ends the connection.
        const REQUEST_TIMEOUT = 1 << 42;
        /// Queues of io_uring may have pools of payload buffers, and move pages without a copy (7.46). It promises nothing.
        const HAS_IO_URING_BUFPOOL = 1 << 43;
    }
}
