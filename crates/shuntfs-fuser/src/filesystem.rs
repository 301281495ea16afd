//! The trait that a file system implements.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::time::SystemTime;

use crate::attr::TimeOrNow;
use crate::errno::Errno;
use crate::flags::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, FopenFlags, IoctlFlags, OpenFlags, PollEvents, PollFlags,
    RenameFlags, WriteFlags,
};
use crate::ids::{FileHandle, ForgetOne, INodeNo, LockOwner};
use crate::kernel_config::KernelConfig;
use crate::notify::PollNotifier;
use crate::reply::{
    ReplyAttr, ReplyBmap, ReplyData, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLock, ReplyLseek, ReplyPoll,
    ReplyStatfs, ReplyWrite, ReplyXattr,
};
use crate::reply_dir::{ReplyDirectory, ReplyDirectoryPlus};
use crate::reply_open::{ReplyCreate, ReplyOpen};
use crate::request::Request;

/// A file system. At most [`crate::Config::n_threads`] calls run at once, on threads of the session.
///
/// Each call has a reply, which may be answered now, or later from another thread. One that is dropped answers EIO. What is
/// not implemented answers ENOSYS (EPERM for `symlink` and `link`), which the kernel may remember, and says so in the log.
#[expect(clippy::too_many_arguments, reason = "fuser's interface")]
pub trait Filesystem: Send + Sync + 'static {
    /// Called once, before any other method. `config` tells what the kernel offers and takes what is wanted of it.
    ///
    /// # Errors
    /// What makes the mount impossible; it is given to whoever mounts.
    fn init(&mut self, req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let _ = (req, config);
        Ok(())
    }

    /// Called once, when the session has ended.
    fn destroy(&mut self) {}

    /// Finds a name in a folder. The node that it answers with counts as looked up once more.
    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let _ = (req, parent, name);
        reply.error(lacking("lookup"));
    }

    /// The kernel takes `nlookup` lookups of a node back; at 0 the node may be forgotten. Not all come before an unmount.
    fn forget(&self, req: &Request, ino: INodeNo, nlookup: u64) {
        let _ = (req, ino, nlookup);
    }

    /// The same for several nodes.
    fn batch_forget(&self, req: &Request, nodes: &[ForgetOne]) {
        for node in nodes {
            self.forget(req, node.nodeid(), node.nlookup());
        }
    }

    /// Reads attributes. `fh` is the open file where the caller asks by one and `FUSE_FILE_OPS` or the kernel says so.
    fn getattr(&self, req: &Request, ino: INodeNo, fh: Option<FileHandle>, reply: ReplyAttr) {
        let _ = (req, ino, fh);
        reply.error(lacking("getattr"));
    }

    /// Changes attributes: those that are given. The last four are of macOS and never given.
    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        fh: Option<FileHandle>,
        crtime: Option<SystemTime>,
        chgtime: Option<SystemTime>,
        bkuptime: Option<SystemTime>,
        flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let _ = (req, ino, mode, uid, gid, size, atime, mtime, ctime, fh, crtime, chgtime, bkuptime, flags);
        reply.error(lacking("setattr"));
    }

    /// Reads the target of a symlink.
    fn readlink(&self, req: &Request, ino: INodeNo, reply: ReplyData) {
        let _ = (req, ino);
        reply.error(lacking("readlink"));
    }

    /// Makes a file, a FIFO, a socket or a device.
    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let _ = (req, parent, name, mode, umask, rdev);
        reply.error(lacking("mknod"));
    }

    /// Makes a folder.
    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let _ = (req, parent, name, mode, umask);
        reply.error(lacking("mkdir"));
    }

    /// Removes a name of what is no folder.
    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _ = (req, parent, name);
        reply.error(lacking("unlink"));
    }

    /// Removes an empty folder.
    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _ = (req, parent, name);
        reply.error(lacking("rmdir"));
    }

    /// Makes a symlink.
    fn symlink(&self, req: &Request, parent: INodeNo, link_name: &OsStr, target: &Path, reply: ReplyEntry) {
        let _ = (req, parent, link_name, target, lacking("symlink"));
        reply.error(Errno::EPERM);
    }

    /// Moves a name.
    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let _ = (req, parent, name, newparent, newname, flags);
        reply.error(lacking("rename"));
    }

    /// Gives a node another name.
    fn link(&self, req: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        let _ = (req, ino, newparent, newname, lacking("link"));
        reply.error(Errno::EPERM);
    }

    /// Opens a file. The default has no open files: it answers 0.
    fn open(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let _ = (req, ino, flags);
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    /// Reads `size` bytes; fewer mean the end of the file.
    fn read(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let _ = (req, ino, fh, offset, size, flags, lock_owner);
        reply.error(lacking("read"));
    }

    /// Writes.
    fn write(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let _ = (req, ino, fh, offset, data, write_flags, flags, lock_owner);
        reply.error(lacking("write"));
    }

    /// A descriptor of an open file is closed: POSIX locks of `lock_owner` go. There may be several of an open file.
    fn flush(&self, req: &Request, ino: INodeNo, fh: FileHandle, lock_owner: LockOwner, reply: ReplyEmpty) {
        let _ = (req, ino, fh, lock_owner);
        reply.error(lacking("flush"));
    }

    /// The last descriptor of an open file is gone. Nobody sees the error of an answer.
    fn release(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        flags: OpenFlags,
        lock_owner: Option<LockOwner>,
        flush: bool,
        reply: ReplyEmpty,
    ) {
        let _ = (req, ino, fh, flags, lock_owner, flush);
        reply.ok();
    }

    /// Makes a file's data durable, and its attributes unless `datasync`.
    fn fsync(&self, req: &Request, ino: INodeNo, fh: FileHandle, datasync: bool, reply: ReplyEmpty) {
        let _ = (req, ino, fh, datasync);
        reply.error(lacking("fsync"));
    }

    /// Opens a folder. The default has no open folders: it answers 0.
    fn opendir(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let _ = (req, ino, flags);
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    /// Lists a folder from `offset` on: 0, or what a name was added with.
    fn readdir(&self, req: &Request, ino: INodeNo, fh: FileHandle, offset: u64, reply: ReplyDirectory) {
        let _ = (req, ino, fh, offset);
        reply.error(lacking("readdir"));
    }

    /// Lists a folder with nodes; only where `FUSE_DO_READDIRPLUS` was asked for.
    fn readdirplus(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        let _ = (req, ino, fh, offset);
        reply.error(lacking("readdirplus"));
    }

    /// The last descriptor of an open folder is gone.
    fn releasedir(&self, req: &Request, ino: INodeNo, fh: FileHandle, flags: OpenFlags, reply: ReplyEmpty) {
        let _ = (req, ino, fh, flags);
        reply.ok();
    }

    /// Makes a folder's names durable.
    fn fsyncdir(&self, req: &Request, ino: INodeNo, fh: FileHandle, datasync: bool, reply: ReplyEmpty) {
        let _ = (req, ino, fh, datasync);
        reply.error(lacking("fsyncdir"));
    }

    /// Reads the state of the file system as a whole. The default is empty and has names of 255 bytes.
    fn statfs(&self, req: &Request, ino: INodeNo, reply: ReplyStatfs) {
        let _ = (req, ino);
        reply.statfs(0, 0, 0, 0, 0, 512, 255, 0);
    }

    /// Sets an extended attribute. `position` is of macOS and 0.
    fn setxattr(
        &self,
        req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        position: u32,
        reply: ReplyEmpty,
    ) {
        let _ = (req, ino, name, value, flags, position);
        reply.error(lacking("setxattr"));
    }

    /// Reads an extended attribute, or how long it is where `size` is 0. One that does not fit `size` bytes is ERANGE.
    fn getxattr(&self, req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let _ = (req, ino, name, size);
        reply.error(lacking("getxattr"));
    }

    /// Lists the names of the extended attributes, each with a NUL, or how long that is where `size` is 0.
    fn listxattr(&self, req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let _ = (req, ino, size);
        reply.error(lacking("listxattr"));
    }

    /// Removes an extended attribute.
    fn removexattr(&self, req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _ = (req, ino, name);
        reply.error(lacking("removexattr"));
    }

    /// Answers `access(2)`, where the kernel does not check permissions.
    fn access(&self, req: &Request, ino: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        let _ = (req, ino, mask);
        reply.error(lacking("access"));
    }

    /// Makes a file and opens it. After ENOSYS the kernel sends `mknod` and `open`.
    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let _ = (req, parent, name, mode, umask, flags);
        reply.error(lacking("create"));
    }

    /// Finds a lock that is in the way of this one; only where `FUSE_POSIX_LOCKS` was asked for.
    fn getlk(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        lock_owner: LockOwner,
        start: u64,
        end: u64,
        typ: i32,
        pid: u32,
        reply: ReplyLock,
    ) {
        let _ = (req, ino, fh, lock_owner, start, end, typ, pid);
        reply.error(lacking("getlk"));
    }

    /// Takes a lock or gives it back; where `sleep`, answers when it has it.
    fn setlk(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        lock_owner: LockOwner,
        start: u64,
        end: u64,
        typ: i32,
        pid: u32,
        sleep: bool,
        reply: ReplyEmpty,
    ) {
        let _ = (req, ino, fh, lock_owner, start, end, typ, pid, sleep);
        reply.error(lacking("setlk"));
    }

    /// Tells which block of the device below a block of a file is.
    fn bmap(&self, req: &Request, ino: INodeNo, blocksize: u32, idx: u64, reply: ReplyBmap) {
        let _ = (req, ino, blocksize, idx);
        reply.error(lacking("bmap"));
    }

    /// Answers an ioctl, whose number says how much data goes each way.
    fn ioctl(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        flags: IoctlFlags,
        cmd: u32,
        in_data: &[u8],
        out_size: u32,
        reply: ReplyIoctl,
    ) {
        let _ = (req, ino, fh, flags, cmd, in_data, out_size);
        reply.error(lacking("ioctl"));
    }

    /// Tells what there is; with `FUSE_POLL_SCHEDULE_NOTIFY`, `ph` must be told when that changes.
    fn poll(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        ph: PollNotifier,
        events: PollEvents,
        flags: PollFlags,
        reply: ReplyPoll,
    ) {
        let _ = (req, ino, fh, ph, events, flags);
        reply.error(lacking("poll"));
    }

    /// Allocates or frees space.
    fn fallocate(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let _ = (req, ino, fh, offset, length, mode);
        reply.error(lacking("fallocate"));
    }

    /// Finds the next data or hole.
    fn lseek(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let _ = (req, ino, fh, offset, whence);
        reply.error(lacking("lseek"));
    }

    /// Copies from one file to another.
    fn copy_file_range(
        &self,
        req: &Request,
        ino_in: INodeNo,
        fh_in: FileHandle,
        offset_in: u64,
        ino_out: INodeNo,
        fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let _ = (req, ino_in, fh_in, offset_in, ino_out, fh_out, offset_out, len, flags);
        reply.error(lacking("copy_file_range"));
    }
}

/// What an operation that does not exist answers.
fn lacking(operation: &str) -> Errno {
    tracing::warn!("{operation} is not implemented");
    Errno::ENOSYS
}
