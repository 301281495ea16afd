//! Arguments of operations that take more than a node and a name.

use bitflags::bitflags;
use shuntfs_wire::{Fh, LockOwner, Name, NodeId};

use crate::attr::Timestamp;
use crate::open_flags::OpenFlags;

bitflags! {
    /// The optional operations that a file system answers. One that is not in the set is answered ENOSYS
    /// by the library, which the kernel remembers for the connection.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct OpSet: u64 {
        /// GETXATTR, SETXATTR, LISTXATTR, REMOVEXATTR.
        const XATTR = 1 << 0;
        /// GETLK, SETLK, SETLKW for POSIX and OFD locks; without it the kernel keeps them.
        const POSIX_LOCKS = 1 << 1;
        /// The same for `flock`.
        const FLOCK_LOCKS = 1 << 2;
        /// FALLOCATE.
        const FALLOCATE = 1 << 3;
        /// LSEEK, for `SEEK_DATA` and `SEEK_HOLE`.
        const LSEEK = 1 << 4;
        /// COPY_FILE_RANGE.
        const COPY_FILE_RANGE = 1 << 5;
        /// TMPFILE.
        const TMPFILE = 1 << 6;
        /// STATX, for the time of birth.
        const STATX = 1 << 7;
        /// IOCTL.
        const IOCTL = 1 << 8;
        /// ACCESS (never sent under `default_permissions`).
        const ACCESS = 1 << 9;
        /// FLUSH.
        const FLUSH = 1 << 10;
        /// FSYNC and FSYNCDIR. Without it `fsync` succeeds and does nothing.
        const FSYNC = 1 << 11;
        /// CREATE; without it the kernel sends MKNOD and OPEN. Where OPEN is not chosen, the file that `create` opens is
        /// dropped at once, without `release`.
        const CREATE = 1 << 12;
        /// LINK.
        const LINK = 1 << 13;
        /// RENAME with flags.
        const RENAME2 = 1 << 14;
        /// OPEN and RELEASE; without it opens are free, but never passthrough. The kernel then names no open file,
        /// so the library calls `open` for each READ and WRITE, and drops the file after it without `release`.
        const OPEN = 1 << 15;
        /// OPENDIR and RELEASEDIR; without it the kernel keeps a listing until the folder is changed through this mount or
        /// a notification drops it. The library then calls `opendir` for each READDIR, and drops the folder after it
        /// without `releasedir`.
        const OPENDIR = 1 << 16;
        /// POLL. Without it every file is always ready, and the kernel asks once a mount. With it, it asks before each buffered
        /// read that an io_uring cannot do at once, too.
        const POLL = 1 << 17;
        /// LOOKUP of "." and "..": handles of files (`name_to_handle_at`, an NFS server's) hold when the kernel has forgotten the
        /// node, or the file system was mounted again. The numbers of nodes must then last, and so do their generations.
        const EXPORT = 1 << 18;
    }
}

/// Arguments of CREATE.
#[derive(Clone, Copy, Debug)]
pub struct Create<'r> {
    /// The folder.
    pub parent: NodeId,
    /// The new name.
    pub name: Name<'r>,
    /// Permission bits. The umask has been applied, unless [`crate::Wanted::dont_mask`] asked otherwise; so for all creations.
    pub mode: u32,
    /// The caller's umask. With [`crate::Wanted::dont_mask`], for the lower file system to apply (a default ACL overrules it).
    pub umask: u32,
    /// Flags of the open.
    pub flags: OpenFlags,
}

/// Arguments of TMPFILE.
#[derive(Clone, Copy, Debug)]
pub struct Tmpfile {
    /// The folder.
    pub parent: NodeId,
    /// Permission bits, as for [`Create`].
    pub mode: u32,
    /// The caller's umask.
    pub umask: u32,
    /// Flags of the open.
    pub flags: OpenFlags,
}

/// Arguments of MKNOD.
#[derive(Clone, Copy, Debug)]
pub struct Mknod<'r> {
    /// The folder.
    pub parent: NodeId,
    /// The new name.
    pub name: Name<'r>,
    /// Type and permission bits, as for [`Create`].
    pub mode: u32,
    /// The caller's umask.
    pub umask: u32,
    /// The device number, in the kernel's 32-bit encoding.
    pub rdev: u32,
}

/// Arguments of MKDIR.
#[derive(Clone, Copy, Debug)]
pub struct Mkdir<'r> {
    /// The folder.
    pub parent: NodeId,
    /// The new name.
    pub name: Name<'r>,
    /// Permission bits, as for [`Create`].
    pub mode: u32,
    /// The caller's umask.
    pub umask: u32,
}

/// Arguments of SYMLINK.
#[derive(Clone, Copy, Debug)]
pub struct Symlink<'r> {
    /// The folder.
    pub parent: NodeId,
    /// The new name.
    pub name: Name<'r>,
    /// What it points to; any bytes.
    pub target: &'r std::ffi::CStr,
}

/// Arguments of LINK.
#[derive(Clone, Copy, Debug)]
pub struct Link<'r> {
    /// The node that gets another name.
    pub node: NodeId,
    /// The folder.
    pub parent: NodeId,
    /// The new name.
    pub name: Name<'r>,
}

/// Arguments of RENAME and RENAME2.
#[derive(Clone, Copy, Debug)]
pub struct Rename<'r> {
    /// The folder that has the name.
    pub parent: NodeId,
    /// The name.
    pub name: Name<'r>,
    /// The folder that gets it.
    pub new_parent: NodeId,
    /// Its new name.
    pub new_name: Name<'r>,
    /// `RENAME_NOREPLACE`, `RENAME_EXCHANGE`, `RENAME_WHITEOUT`.
    pub flags: u32,
}

/// A time to set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetTime {
    /// The present, by the lower file system's clock.
    Now,
    /// This time.
    At(Timestamp),
}

/// Arguments of SETATTR. All `None` and `kill_priv` unset means: strip suid, sgid and capabilities.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetAttr {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of the data.
    pub mtime: Option<SetTime>,
    /// Last change of the inode (only under writeback caching).
    pub ctime: Option<Timestamp>,
    /// Whether suid, sgid and capabilities go with the change.
    pub kill_priv: bool,
}

/// Arguments of SETXATTR.
#[derive(Clone, Copy, Debug)]
pub struct SetXattr<'r> {
    /// The node.
    pub node: NodeId,
    /// The attribute's full name.
    pub name: &'r std::ffi::CStr,
    /// Its value.
    pub value: &'r [u8],
    /// `XATTR_CREATE`, `XATTR_REPLACE`.
    pub flags: u32,
    /// Whether setting an access ACL clears the sgid bit.
    pub kill_sgid: bool,
}

/// Arguments of FALLOCATE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fallocate {
    /// Where, in bytes.
    pub offset: u64,
    /// How long, in bytes.
    pub len: u64,
    /// `FALLOC_FL_*`.
    pub mode: u32,
}

/// Where LSEEK looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Whence {
    /// For the next data.
    Data,
    /// For the next hole.
    Hole,
}

/// Arguments of COPY_FILE_RANGE, with the two files.
#[derive(Debug)]
pub struct CopyFileRange<'r, T> {
    /// The node read from.
    pub from_node: NodeId,
    /// The file read from.
    pub from: &'r T,
    /// Where, in bytes.
    pub from_offset: u64,
    /// The node written to.
    pub to_node: NodeId,
    /// The file written to.
    pub to: &'r T,
    /// Where, in bytes.
    pub to_offset: u64,
    /// How much, in bytes.
    pub len: u64,
    /// Flags; none exist today.
    pub flags: u64,
}

/// Arguments of IOCTL. Only restricted ioctls arrive: the kernel knows the sizes from the command.
#[derive(Clone, Copy, Debug)]
pub struct Ioctl<'r> {
    /// The node.
    pub node: NodeId,
    /// The command.
    pub command: u32,
    /// The argument itself (a user's pointer for commands that carry data; not to be followed).
    pub argument: u64,
    /// The data that the caller hands in.
    pub input: &'r [u8],
    /// How much the caller can take.
    pub output_max: u32,
    /// Whether it is on a folder.
    pub dir: bool,
}

/// The kind of a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockType {
    /// Shared.
    Read,
    /// Exclusive.
    Write,
    /// None.
    Unlock,
}

/// A locked range; `end` is inclusive, `u64::MAX >> 1` for "to the end".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockRange {
    /// First byte.
    pub start: u64,
    /// Last byte, inclusive.
    pub end: u64,
    /// Kind.
    pub kind: LockType,
    /// The process that holds it, 0 where unknown.
    pub pid: u32,
}

/// Arguments of GETLK, SETLK and SETLKW.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockRequest {
    /// The open file.
    pub fh: Fh,
    /// Who asks.
    pub owner: LockOwner,
    /// What.
    pub range: LockRange,
    /// Whether it is a `flock`.
    pub flock: bool,
    /// Whether to wait for it.
    pub wait: bool,
}
