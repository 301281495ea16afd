//! The trait of a file system whose methods block.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use shuntfs_wire::{ByteRange, Errno, LockOwner, LookupCount, NodeId, Result};

use crate::args::{CopyFileRange, Fallocate, Ioctl, LockRange, LockRequest, OpSet, SetAttr, Tmpfile, Whence};
use crate::attr::{AttrReply, Birth, Entry, Statfs};
use crate::cx::Cx;
use crate::delegation::Opened;
use crate::file_type::FileType;
use crate::init::{InitError, Offered, Wanted};
use crate::open_flags::OpenFlags;
use crate::poll::{Poll, PollEvents};
use crate::trace::NodePlace;

/// Who asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caller {
    /// The file system uid.
    pub uid: u32,
    /// The file system gid.
    pub gid: u32,
    /// The thread id, 0 where it is not visible.
    pub pid: u32,
}

impl Caller {
    pub(super) fn of(cx: &Cx<'_>) -> Self {
        Self { uid: cx.uid(), gid: cx.gid(), pid: cx.pid() }
    }
}

/// What must be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct New<P> {
    /// Where: a folder and a name in it, or a path.
    pub place: P,
    /// Type and permission bits. The umask has been applied, unless [`Wanted::dont_mask`] asked otherwise.
    pub mode: u32,
    /// The caller's umask.
    pub umask: u32,
}

/// A record of a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirEntry {
    /// The inode number, which `stat` shows, too.
    pub ino: u64,
    /// The type; `None` where it is not known.
    pub kind: Option<FileType>,
    /// The name.
    pub name: OsString,
}

/// A file system whose methods may block; [`crate::Blocking`] serves it. Each method is as the one of [`crate::Filesystem`], runs on a
/// thread of the offload pool (as many at once as [`crate::SessionOptions::offload_threads`] says) and may take its time, but must
/// not use the mount itself. Costs two switches between threads for each request, and one copy of what is read or written.
///
/// Only [`BlockingFilesystem::getattr`] has no default. What is missing here (replies that are written in place, listings with entries, lower files) the asynchronous trait has.
pub trait BlockingFilesystem: Sized + Send + Sync + 'static {
    /// State of one open file.
    type File: Send + Sync + 'static;

    /// The optional operations that this type implements, OPENDIR aside, which is always answered. Default: none.
    const OPS: OpSet = OpSet::empty();

    /// Says what it wants of what the kernel offers.
    ///
    /// # Errors
    /// What makes the mount impossible.
    fn init(&self, offered: &Offered) -> std::result::Result<Wanted, InitError> {
        let _ = offered;
        Ok(Wanted::default())
    }

    /// What the root is. Default: a folder.
    fn root_type(&self) -> FileType {
        FileType::Directory
    }

    /// The kernel takes lookups back. Called inline by a queue: must not block.
    fn forget(&self, node: NodeId, lookups: LookupCount) {
        let _ = (node, lookups);
    }

    /// Where a node is, for people: as [`crate::Filesystem::place_of`]. Called inline: must not block.
    fn place_of(&self, node: NodeId) -> Option<NodePlace> {
        let _ = node;
        None
    }

    /// Finds a name in a folder and raises the lookup count of its node.
    fn lookup(&self, caller: &Caller, parent: NodeId, name: &OsStr) -> Result<Entry> {
        let _ = (caller, parent, name);
        Err(Errno::NOTDIR)
    }

    /// Finds a node by its number alone, for a file handle.
    fn lookup_node(&self, caller: &Caller, node: NodeId) -> Result<Entry> {
        let _ = (caller, node);
        Err(Errno::STALE)
    }

    /// Finds the folder of a folder, for a file handle.
    fn lookup_parent(&self, caller: &Caller, node: NodeId) -> Result<Entry> {
        let _ = (caller, node);
        Err(Errno::STALE)
    }

    /// Reads the attributes of a node.
    fn getattr(&self, caller: &Caller, node: NodeId, file: Option<&Self::File>) -> Result<AttrReply>;

    /// Changes attributes and returns all of them.
    fn setattr(
        &self,
        caller: &Caller,
        node: NodeId,
        file: Option<&Self::File>,
        set: SetAttr,
    ) -> Result<AttrReply> {
        let _ = (caller, node, file, set);
        Err(Errno::OPNOTSUPP)
    }

    /// Reads the attributes and the time of birth.
    fn statx(&self, caller: &Caller, node: NodeId) -> Result<(AttrReply, Birth)> {
        let _ = (caller, node);
        Err(Errno::NOSYS)
    }

    /// Reads the target of a symlink.
    fn readlink(&self, caller: &Caller, node: NodeId) -> Result<PathBuf> {
        let _ = (caller, node);
        Err(Errno::INVAL)
    }

    /// Makes a file, a FIFO, a socket or a device.
    fn mknod(&self, caller: &Caller, new: &New<(NodeId, OsString)>, rdev: u32) -> Result<Entry> {
        let _ = (caller, new, rdev);
        Err(Errno::OPNOTSUPP)
    }

    /// Makes a folder.
    fn mkdir(&self, caller: &Caller, new: &New<(NodeId, OsString)>) -> Result<Entry> {
        let _ = (caller, new);
        Err(Errno::OPNOTSUPP)
    }

    /// Makes a symlink.
    fn symlink(&self, caller: &Caller, parent: NodeId, name: &OsStr, target: &Path) -> Result<Entry> {
        let _ = (caller, parent, name, target);
        Err(Errno::OPNOTSUPP)
    }

    /// Gives a node another name.
    fn link(&self, caller: &Caller, node: NodeId, parent: NodeId, name: &OsStr) -> Result<Entry> {
        let _ = (caller, node, parent, name);
        Err(Errno::OPNOTSUPP)
    }

    /// Removes a name of what is not a folder.
    fn unlink(&self, caller: &Caller, parent: NodeId, name: &OsStr) -> Result<()> {
        let _ = (caller, parent, name);
        Err(Errno::OPNOTSUPP)
    }

    /// Removes an empty folder.
    fn rmdir(&self, caller: &Caller, parent: NodeId, name: &OsStr) -> Result<()> {
        let _ = (caller, parent, name);
        Err(Errno::OPNOTSUPP)
    }

    /// Moves a name; `flags` are `RENAME_*`.
    fn rename(
        &self,
        caller: &Caller,
        from: (NodeId, &OsStr),
        to: (NodeId, &OsStr),
        flags: u32,
    ) -> Result<()> {
        let _ = (caller, from, to, flags);
        Err(Errno::OPNOTSUPP)
    }

    /// Opens a file.
    fn open(&self, caller: &Caller, node: NodeId, flags: OpenFlags) -> Result<Opened<Self::File>> {
        let _ = (caller, node, flags);
        Err(Errno::OPNOTSUPP)
    }

    /// Makes a file and opens it.
    fn create(
        &self,
        caller: &Caller,
        new: &New<(NodeId, OsString)>,
        flags: OpenFlags,
    ) -> Result<(Entry, Opened<Self::File>)> {
        let _ = (caller, new, flags);
        Err(Errno::NOSYS)
    }

    /// Makes a file without a name.
    fn tmpfile(&self, caller: &Caller, op: Tmpfile) -> Result<(Entry, Opened<Self::File>)> {
        let _ = (caller, op);
        Err(Errno::OPNOTSUPP)
    }

    /// Reads, no more than `at.len` bytes; fewer mean the end.
    fn read(&self, caller: &Caller, file: &Self::File, at: ByteRange) -> Result<Vec<u8>> {
        let _ = (caller, file, at);
        Err(Errno::OPNOTSUPP)
    }

    /// Writes; returns how many bytes.
    fn write(&self, caller: &Caller, file: &Self::File, at: u64, data: &[u8]) -> Result<usize> {
        let _ = (caller, file, at, data);
        Err(Errno::OPNOTSUPP)
    }

    /// A descriptor of the file was closed.
    fn flush(&self, caller: &Caller, file: &Self::File, owner: LockOwner) -> Result<()> {
        let _ = (caller, file, owner);
        Ok(())
    }

    /// The last descriptor is gone. The file itself is dropped after this. `flock_owner` holds a `flock` that goes with it.
    fn release(&self, caller: &Caller, node: NodeId, file: &Self::File, flock_owner: Option<LockOwner>) {
        let _ = (caller, node, file, flock_owner);
    }

    /// Makes a file's data durable, and its attributes unless `data_only`.
    fn fsync(&self, caller: &Caller, file: &Self::File, data_only: bool) -> Result<()> {
        let _ = (caller, file, data_only);
        Err(Errno::OPNOTSUPP)
    }

    /// Allocates or frees space.
    fn fallocate(&self, caller: &Caller, file: &Self::File, op: Fallocate) -> Result<()> {
        let _ = (caller, file, op);
        Err(Errno::OPNOTSUPP)
    }

    /// Finds the next data or hole at or after `offset`.
    fn lseek(&self, caller: &Caller, file: &Self::File, offset: u64, whence: Whence) -> Result<u64> {
        let _ = (caller, file, offset, whence);
        Err(Errno::OPNOTSUPP)
    }

    /// Copies between two files; returns how many bytes.
    fn copy_file_range(&self, caller: &Caller, op: CopyFileRange<'_, Self::File>) -> Result<u64> {
        let _ = (caller, op);
        Err(Errno::OPNOTSUPP)
    }

    /// Answers an ioctl on an open file, or on a folder (`file` is `None`): with a result (0 or positive) and data for the caller, no
    /// more than `op.output_max`.
    fn ioctl(&self, caller: &Caller, file: Option<&Self::File>, op: Ioctl<'_>) -> Result<(i32, Vec<u8>)> {
        let _ = (caller, file, op);
        Err(Errno::NOTTY)
    }

    /// Finds a lock that stands in the way.
    fn getlk(
        &self,
        caller: &Caller,
        node: NodeId,
        file: &Self::File,
        lock: LockRequest,
    ) -> Result<LockRange> {
        let _ = (caller, node, file, lock);
        Err(Errno::OPNOTSUPP)
    }

    /// Takes or gives back a lock, without waiting: EAGAIN where somebody else has it. Who wants to wait is asked for again whenever a
    /// lock was given back by this mount (`lock.wait` is never set here), and holds no thread meanwhile. A deadlock of locks is not
    /// found.
    fn setlk(&self, caller: &Caller, node: NodeId, file: &Self::File, lock: LockRequest) -> Result<()> {
        let _ = (caller, node, file, lock);
        Err(Errno::OPNOTSUPP)
    }

    /// Tells what a file is ready for now, without waiting.
    fn poll(&self, caller: &Caller, file: &Self::File, op: Poll) -> Result<PollEvents> {
        let _ = (caller, file, op);
        Ok(PollEvents::IN | PollEvents::OUT | PollEvents::READ_NORMAL | PollEvents::WRITE_NORMAL)
    }

    /// Makes a folder's entries durable.
    fn fsyncdir(&self, caller: &Caller, node: NodeId, data_only: bool) -> Result<()> {
        let _ = (caller, node, data_only);
        Err(Errno::OPNOTSUPP)
    }

    /// Checks access, where the kernel does not.
    fn access(&self, caller: &Caller, node: NodeId, mask: u32) -> Result<()> {
        let _ = (caller, node, mask);
        Err(Errno::OPNOTSUPP)
    }

    /// Lists a folder, once each time it is opened.
    fn list(&self, caller: &Caller, node: NodeId) -> Result<Vec<DirEntry>> {
        let _ = (caller, node);
        Err(Errno::NOTDIR)
    }

    /// Reads the state of the file system as a whole.
    fn statfs(&self, caller: &Caller, node: NodeId) -> Result<Statfs> {
        let _ = (caller, node);
        Ok(Statfs::default())
    }

    /// Reads an extended attribute.
    fn getxattr(&self, caller: &Caller, node: NodeId, name: &OsStr) -> Result<Vec<u8>> {
        let _ = (caller, node, name);
        Err(Errno::OPNOTSUPP)
    }

    /// Lists extended attributes.
    fn listxattr(&self, caller: &Caller, node: NodeId) -> Result<Vec<OsString>> {
        let _ = (caller, node);
        Err(Errno::OPNOTSUPP)
    }

    /// Sets an extended attribute; `flags` are `XATTR_*`.
    fn setxattr(&self, caller: &Caller, node: NodeId, name: &OsStr, value: &[u8], flags: u32) -> Result<()> {
        let _ = (caller, node, name, value, flags);
        Err(Errno::OPNOTSUPP)
    }

    /// Removes an extended attribute.
    fn removexattr(&self, caller: &Caller, node: NodeId, name: &OsStr) -> Result<()> {
        let _ = (caller, node, name);
        Err(Errno::OPNOTSUPP)
    }
}
