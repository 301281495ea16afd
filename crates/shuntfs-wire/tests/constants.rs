//! Every number of the protocol, once more by hand, as `include/uapi/linux/fuse.h` of Linux 7.3 has it.

use shuntfs_wire::*;

#[test]
fn operations() {
    let table: &[(u32, &str, usize)] = &[
        (1, "LOOKUP", 0),
        (2, "FORGET", 8),
        (3, "GETATTR", 16),
        (4, "SETATTR", 88),
        (5, "READLINK", 0),
        (6, "SYMLINK", 0),
        (8, "MKNOD", 16),
        (9, "MKDIR", 8),
        (10, "UNLINK", 0),
        (11, "RMDIR", 0),
        (12, "RENAME", 8),
        (13, "LINK", 8),
        (14, "OPEN", 8),
        (15, "READ", 40),
        (16, "WRITE", 40),
        (17, "STATFS", 0),
        (18, "RELEASE", 24),
        (20, "FSYNC", 16),
        (21, "SETXATTR", 16),
        (22, "GETXATTR", 8),
        (23, "LISTXATTR", 8),
        (24, "REMOVEXATTR", 0),
        (25, "FLUSH", 24),
        (26, "INIT", 64),
        (27, "OPENDIR", 8),
        (28, "READDIR", 40),
        (29, "RELEASEDIR", 24),
        (30, "FSYNCDIR", 16),
        (31, "GETLK", 48),
        (32, "SETLK", 48),
        (33, "SETLKW", 48),
        (34, "ACCESS", 8),
        (35, "CREATE", 16),
        (36, "INTERRUPT", 8),
        (37, "BMAP", 16),
        (38, "DESTROY", 0),
        (39, "IOCTL", 32),
        (40, "POLL", 24),
        (41, "NOTIFY_REPLY", 40),
        (42, "BATCH_FORGET", 8),
        (43, "FALLOCATE", 32),
        (44, "READDIRPLUS", 40),
        (45, "RENAME2", 16),
        (46, "LSEEK", 24),
        (47, "COPY_FILE_RANGE", 56),
        (48, "SETUPMAPPING", 40),
        (49, "REMOVEMAPPING", 4),
        (50, "SYNCFS", 8),
        (51, "TMPFILE", 16),
        (52, "STATX", 24),
        (53, "COPY_FILE_RANGE_64", 56),
        (4096, "CUSE_INIT", 16),
    ];
    let ours: Vec<_> = Opcode::ALL.iter().map(|op| (op.number(), op.name(), op.fixed_len())).collect();
    assert_eq!(ours, table);
    let silent: Vec<_> = Opcode::ALL.iter().filter(|op| !op.wants_reply()).map(|op| op.name()).collect();
    assert_eq!(silent, ["FORGET", "INTERRUPT", "NOTIFY_REPLY", "BATCH_FORGET"]);
}

#[test]
fn init_flags() {
    let names = "ASYNC_READ POSIX_LOCKS FILE_OPS ATOMIC_O_TRUNC EXPORT_SUPPORT BIG_WRITES DONT_MASK SPLICE_WRITE \
        SPLICE_MOVE SPLICE_READ FLOCK_LOCKS HAS_IOCTL_DIR AUTO_INVAL_DATA DO_READDIRPLUS READDIRPLUS_AUTO ASYNC_DIO \
        WRITEBACK_CACHE NO_OPEN_SUPPORT PARALLEL_DIROPS HANDLE_KILLPRIV POSIX_ACL ABORT_ERROR MAX_PAGES \
        CACHE_SYMLINKS NO_OPENDIR_SUPPORT EXPLICIT_INVAL_DATA MAP_ALIGNMENT SUBMOUNTS HANDLE_KILLPRIV_V2 \
        SETXATTR_EXT INIT_EXT RESERVED SECURITY_CTX HAS_INODE_DAX CREATE_SUPP_GROUP HAS_EXPIRE_ONLY \
        DIRECT_IO_ALLOW_MMAP PASSTHROUGH NO_EXPORT_SUPPORT HAS_RESEND ALLOW_IDMAP OVER_IO_URING REQUEST_TIMEOUT \
        HAS_IO_URING_BUFPOOL";
    let table: Vec<(&str, u64)> = names.split_whitespace().zip((0..).map(|bit| 1 << bit)).collect();
    let ours: Vec<_> = InitFlags::all().iter_names().map(|(name, flag)| (name, flag.bits())).collect();
    assert_eq!(ours, table);
}

/// The names and bits of a set, as written here.
macro_rules! assert_flags {
    ($($set:ident: $($name:ident $bits:literal),+;)*) => {$(
        let ours: Vec<_> = $set::all().iter_names().map(|(name, flag)| (name, u64::from(flag.bits()))).collect();
        assert_eq!(ours, [$((stringify!($name), $bits)),+], stringify!($set));
    )*};
}

#[test]
fn flag_sets() {
    assert_flags! {
        AttrFlags: SUBMOUNT 1, DAX 2;
        CuseInitFlags: UNRESTRICTED_IOCTL 1;
        FopenFlags: DIRECT_IO 1, KEEP_CACHE 2, NONSEEKABLE 4, CACHE_DIR 8, STREAM 16, NOFLUSH 32,
            PARALLEL_DIRECT_WRITES 64, PASSTHROUGH 128, IO_URING_ZERO_COPY 256;
        FsyncFlags: FDATASYNC 1;
        GetattrFlags: FH 1;
        InvalEntryFlags: EXPIRE_ONLY 1;
        IoctlFlags: COMPAT 1, UNRESTRICTED 2, RETRY 4, IS_32BIT 8, DIR 16, COMPAT_X32 32;
        LkFlags: FLOCK 1;
        OpenInFlags: KILL_SUIDGID 1;
        PollFlags: SCHEDULE_NOTIFY 1;
        ReadFlags: LOCKOWNER 2;
        ReleaseFlags: FLUSH 1, FLOCK_UNLOCK 2;
        SetattrValid: MODE 1, UID 2, GID 4, SIZE 8, ATIME 16, MTIME 32, FH 64, ATIME_NOW 128, MTIME_NOW 256,
            LOCKOWNER 512, CTIME 1024, KILL_SUIDGID 2048;
        SetupmappingFlags: WRITE 1, READ 2;
        SetxattrFlags: ACL_KILL_SGID 1;
        UringEntFlags: ZERO_COPY 1;
        UringQueueFlags: ZERO_COPY 1;
        WriteFlags: CACHE 1, LOCKOWNER 2, KILL_SUIDGID 4;
    }
}

macro_rules! assert_sizes {
    ($($struct:ident $size:literal),* $(,)?) => {
        $(assert_eq!(size_of::<$struct>(), $size, stringify!($struct));)*
    };
}

#[test]
fn sizes_of_requests() {
    assert_sizes! {
        InHeader 40, AccessIn 8, BatchForgetIn 8, BmapIn 16, CopyFileRangeIn 56, CreateIn 16, CuseInitIn 16,
        FallocateIn 32, FlushIn 24, ForgetIn 8, ForgetOne 16, FsyncIn 16, GetattrIn 16, GetxattrIn 8, InitIn 64,
        InterruptIn 8, IoctlIn 32, LinkIn 8, LkIn 48, LseekIn 24, MkdirIn 8, MknodIn 16, NotifyRetrieveIn 40,
        OpenIn 8, PollIn 24, ReadIn 40, ReleaseIn 24, RemovemappingIn 4, RemovemappingOne 16, Rename2In 16,
        RenameIn 8, SetattrIn 88, SetupmappingIn 40, SetxattrIn 16, StatxIn 24, SyncfsIn 8, WriteIn 40,
    }
    assert_eq!((SetxattrIn::SHORT_LEN, InitIn::SHORT_LEN), (8, 16));
}

#[test]
fn sizes_of_replies_and_notifications() {
    assert_sizes! {
        OutHeader 16, Attr 88, AttrOut 104, BmapOut 8, CopyFileRangeOut 8, CreateOut 144, CuseInitOut 72, Dirent 24,
        EntryOut 128, FileLock 24, GetxattrOut 8, InitOut 64, IoctlIovec 16, IoctlOut 16, Kstatfs 80, LkOut 24,
        LseekOut 8, NotifyDeleteOut 24, NotifyInvalEntryOut 16, NotifyInvalInodeOut 24, NotifyPollWakeupOut 8,
        NotifyPruneOut 16, NotifyRetrieveOut 32, NotifyStoreOut 24, OpenOut 16, PollOut 8, StatfsOut 80, Statx 256,
        StatxOut 288, SxTime 16, WriteOut 8, UringEntInOut 32, UringReqHeader 288, UringCmdReq 32, UringAddBufpool 40,
    }
    assert_eq!((uring::IN_OUT_LEN, uring::OP_IN_LEN), (128, 128));
    let commands =
        [uring::CMD_REGISTER, uring::CMD_COMMIT_AND_FETCH, uring::CMD_ADD_QUEUE, uring::CMD_ADD_BUFPOOL];
    assert_eq!(commands, [1, 2, 3, 4]);
}

#[test]
fn notifications() {
    let (node, name) = (NodeId::ROOT, Name::new(c"a").unwrap());
    let codes = [
        Notification::Poll { kh: 0 },
        Notification::InvalInode { node, offset: 0, len: 0 },
        Notification::InvalEntry { parent: node, name, expire_only: false },
        Notification::Store { node, offset: 0, data: b"" },
        Notification::Retrieve { unique: 0, node, offset: 0, size: 0 },
        Notification::Delete { parent: node, child: node, name },
        Notification::Resend,
        Notification::IncEpoch,
        Notification::Prune { nodes: &[] },
    ]
    .map(|notification| notification.code());
    assert_eq!(codes, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn numbers_of_no_operation() {
    assert_eq!((abi::MAJOR, abi::MINOR, abi::MIN_READ_BUFFER), (7, 46, 8192));
    assert_eq!([33, 45, 46, 99].map(abi::minor_answered), [45, 45, 46, 46]);
    assert_eq!((abi::UNIQUE_RESEND, abi::UNIQUE_INTERRUPT), (0x8000_0000_0000_0000, 1));
    assert_eq!((abi::INVALID_ID, abi::LOCK_END_OF_FILE), (0xffff_ffff, 0x7fff_ffff_ffff_ffff));
    assert_eq!((NodeId::ROOT.get(), IOCTL_IOVEC_MAX), (1, 256));
}
