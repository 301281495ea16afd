//! The trait that a file system implements.

use shuntfs_wire::{ByteRange, Errno, LookupCount, Name, NodeId, Result};

use crate::args::{
    CopyFileRange, Create, Fallocate, Ioctl, Link, LockRange, LockRequest, Mkdir, Mknod, OpSet, Rename,
    SetAttr, SetXattr, Symlink, Tmpfile, Whence,
};
use crate::attr::{AttrReply, Birth, Entry, Statfs};
use crate::cx::Cx;
use crate::delegation::{Access, Flows, LowerFile, Opened, OpenedDir};
use crate::file_type::FileType;
use crate::init::{InitError, Offered, Wanted};
use crate::notify::Notifier;
use crate::open_flags::OpenFlags;
use crate::poll::{Poll, PollEvents};
use crate::reply::{DirSink, Filled, IoctlReply, Listed, ReadReply, WriteData, Written};
use crate::trace::NodePlace;

/// A file system. Its state is shared by all queues; the future of each request lives and dies in one queue.
///
/// Only [`Filesystem::getattr`] has no default; a file system of files in one folder also has [`Filesystem::lookup`],
/// [`Filesystem::open`], [`Filesystem::read`], [`Filesystem::opendir`] and [`Filesystem::readdir`]:
///
/// ```no_run
/// use std::path::Path;
/// use std::time::Duration;
///
/// use shuntfs::*;
///
/// /// One file, whose text never changes.
/// struct Hello;
///
/// const TEXT: &[u8] = b"Hello, world!\n";
/// const FILE: NodeId = NodeId::new(2).unwrap();
///
/// fn attr(node: NodeId) -> AttrReply {
///     let attr = match node {
///         FILE => Attr::new(2, FileType::Regular, 0o444).with_size(TEXT.len() as u64),
///         _ => Attr::new(1, FileType::Directory, 0o555),
///     };
///     attr.valid_for(Duration::MAX)
/// }
///
/// impl Filesystem for Hello {
///     type File = ();
///     type Dir = ();
///
///     async fn lookup(&self, _: &Cx<'_>, _: NodeId, name: Name<'_>) -> Result<Entry> {
///         if name.as_bytes() == b"hello" { Ok(Entry::new(FILE, attr(FILE))) } else { Err(Errno::NOENT) }
///     }
///
///     async fn getattr(&self, _: &Cx<'_>, node: NodeId, _: Option<&()>) -> Result<AttrReply> {
///         Ok(attr(node))
///     }
///
///     async fn open(&self, _: &Cx<'_>, _: NodeId, _: OpenFlags) -> Result<Opened<()>> {
///         Ok(Opened::served(()))
///     }
///
///     async fn read<'q>(
///         &self,
///         _: &Cx<'_>,
///         _: &(),
///         at: ByteRange,
///         reply: ReadReply<'q>,
///     ) -> Result<Filled<'q>> {
///         reply.copy_from_slice(at.of(TEXT))
///     }
///
///     async fn opendir(&self, _: &Cx<'_>, _: NodeId, _: OpenFlags) -> Result<OpenedDir<()>> {
///         Ok(OpenedDir::cached(()))
///     }
///
///     async fn readdir<'q>(
///         &self,
///         _: &Cx<'_>,
///         _: NodeId,
///         _: &(),
///         cookie: u64,
///         out: DirSink<'q>,
///     ) -> Result<Listed<'q>> {
///         Ok(out.list(cookie, [(2, FileType::Regular, "hello")]))
///     }
/// }
///
/// # fn main() -> std::result::Result<(), shuntfs::ServeError> {
/// shuntfs::serve(Hello, Path::new("/mnt/hello"), &MountOptions::default(), &SessionOptions::default())?;
/// # Ok(())
/// # }
/// ```
///
/// Methods that answer with bytes take a reply whose lifetime (`'q`) their result names: both must be written out.
///
/// # Blocking
///
/// Blocking work goes through [`Cx::offload`], whose work owns what it uses: state that it shares with the file system is in an
/// `Arc` within it, and a reply stays behind and is filled from what comes back. What blocks inline stalls its queue: the request
/// itself, and others that the queue has read and not answered. On [`crate::TransportKind::Device`] and
/// [`crate::TransportKind::Cloned`] another queue goes on with the rest after 50 to 100 milliseconds, so that a mount stops where as
/// many handlers block as it has queues ([`crate::SessionOptions::queues`]). On [`crate::TransportKind::Uring`] the kernel gives
/// requests to the queue of the caller's CPU: whoever calls from there waits, and callers on other CPUs go on. What waits for
/// another request of the same mount must never do so inline. There is no reactor beyond the queue's own: sockets and timers of an async runtime belong into threads of
/// that runtime, and its join handles can be awaited here.
///
/// # Panics
///
/// An operation that panics is answered EIO; the panic is logged and counted ([`crate::Status::panics`]), and the mount goes on. A
/// panic of [`Filesystem::place_of`] is counted too, and logged once; no request suffers from it. Other panics outside of operations, in
/// a waker or a `Drop` of the author's, end the process.
///
/// # Threads
///
/// Queue threads have a file mode mask of 0, lack `CAP_FSETID` and `CAP_SYS_RESOURCE`, may be pinned to a CPU and may be in the
/// scheduling class `SCHED_IDLE`. A thread that an operation starts inherits all of it, and shares the mask with its queue, until it
/// calls [`crate::leave_queue`]; those of [`Cx::offload`] have done so.
///
/// # Operations
///
/// Operations that are not in [`Filesystem::OPS`] are answered ENOSYS by the library and their methods are never called. A method
/// that answers ENOSYS itself has EOPNOTSUPP sent, because the kernel would remember ENOSYS for the whole connection.
pub trait Filesystem: Sized + Send + Sync + 'static {
    /// State of one open file; a READ may arrive on another queue than its OPEN.
    type File: Send + Sync + 'static;
    /// State of one open folder.
    type Dir: Send + Sync + 'static;

    /// The optional operations that this type implements; [`Filesystem::init`] may choose fewer of them. Default: none.
    const OPS: OpSet = OpSet::empty();

    /// Says what it wants of what the kernel offers. Called once, before any other method. Default: [`Wanted::default`].
    ///
    /// # Errors
    /// What makes the mount impossible; it is said to whoever mounts.
    fn init(&self, offered: &Offered) -> std::result::Result<Wanted, InitError> {
        let _ = offered;
        Ok(Wanted::default())
    }

    /// Gives the way to tell the kernel of changes, before the first request arrives. Default: nothing.
    fn mounted(&self, notifier: Notifier) {
        drop(notifier);
    }

    /// What the root is: the mount is refused at a place of another type, where the kernel would answer EIO to everything. Default: a
    /// folder.
    fn root_type(&self) -> FileType {
        FileType::Directory
    }

    /// The kernel takes back `lookups` of a node's lookup count. At zero the node may be forgotten, unless it is the root, which
    /// the kernel holds without a lookup. Default: nothing, for nodes that stay as long as the mount.
    fn forget(&self, node: NodeId, lookups: LookupCount) {
        let _ = (node, lookups);
    }

    /// Tells how the bytes of an open file will flow, and why, before the caller gets the file.
    fn opened(&self, node: NodeId, file: &Self::File, flows: Flows) {
        let _ = (node, file, flows);
    }

    /// The lower file of a delegation to [`crate::Backing::OfNode`]. For [`Access::Register`] without a
    /// descriptor of its own kind an `O_PATH` one is best. Called inline; must not block for long.
    ///
    /// # Errors
    /// Those of opening the lower file. For [`Access::Register`] ENOSPC says that the file is better not passed through now, because its lower
    /// file system may become full before it is closed: the open flows by us, for [`crate::Reason::NearFull`].
    fn lower_file(
        &self,
        node: NodeId,
        file: &Self::File,
        access: Access,
    ) -> Result<std::sync::Arc<LowerFile>> {
        let _ = (node, file, access);
        Err(Errno::BADF)
    }

    /// Whether [`Filesystem::write`] takes the WRITEs of a file whose bytes the library moves that are to leave suid
    /// and sgid: those of callers above such rules, and stores through a shared mapping. The library's threads lack
    /// `CAP_FSETID`, so what they move strips them. Asked at each such WRITE, inline; must not block.
    fn keeps_set_ids(&self, file: &Self::File) -> bool {
        let _ = file;
        false
    }

    /// Whether the lower file of [`crate::Backing::OfNode`] may become another one while `file` is open, as when it is moved to another disk.
    /// Then [`Filesystem::lower_file`] is asked at each READ whose bytes the library moves, and its WRITEs are given to
    /// [`Filesystem::write`], which hears what is wrong below. Asked at each of these, inline; must not block.
    fn exchanges_lower(&self, file: &Self::File) -> bool {
        let _ = file;
        false
    }

    /// Whether [`Filesystem::write`] takes WRITEs of an open file whose data nobody has seen (zero copy): it then calls
    /// [`crate::WriteData::write_to`], which moves the data from where the caller has it, or [`crate::WriteData::bytes`], and never
    /// [`crate::WriteData::as_slice`]. Otherwise the library fetches the data first. Asked at the open and at each such WRITE, inline;
    /// must not block.
    fn takes_unseen_data(&self, file: &Self::File) -> bool {
        let _ = file;
        false
    }

    /// Where a node is, for people: what a [`crate::Trace`] and the log of requests that take too long show. Called only while somebody looks,
    /// by queues and by a thread that watches them, also while operations hang: must not block, nor wait for a lock that an operation
    /// holds during a call that may. `file` is one that is open, where a request names one. Default: not known.
    fn place_of(&self, node: NodeId, file: Option<&Self::File>) -> Option<NodePlace> {
        let _ = (node, file);
        None
    }

    /// Finds a name in a folder and raises the lookup count of its node by one ([`crate::NodeTable`] counts). `.` and `..`
    /// never arrive.
    async fn lookup(&self, cx: &Cx<'_>, parent: NodeId, name: Name<'_>) -> Result<Entry> {
        let _ = (cx, parent, name);
        Err(Errno::NOTDIR)
    }

    /// Finds a node by its number alone, for a file handle, and raises its lookup count by one. The answer must have that number, and
    /// the generation of the node that has it now: the kernel compares it with the handle's. Asked for with [`OpSet::EXPORT`].
    ///
    /// # Errors
    /// ESTALE where no node has the number.
    async fn lookup_node(&self, cx: &Cx<'_>, node: NodeId) -> Result<Entry> {
        let _ = (cx, node);
        Err(Errno::STALE)
    }

    /// Finds the folder of a folder and raises its lookup count by one, for a file handle of a folder. Asked for with
    /// [`OpSet::EXPORT`]. The kernel then lists the parent and takes the name whose inode number is the folder's.
    ///
    /// # Errors
    /// ESTALE where there is none.
    async fn lookup_parent(&self, cx: &Cx<'_>, node: NodeId) -> Result<Entry> {
        let _ = (cx, node);
        Err(Errno::STALE)
    }

    /// Reads the attributes of a node.
    async fn getattr(&self, cx: &Cx<'_>, node: NodeId, file: Option<&Self::File>) -> Result<AttrReply>;

    /// Changes attributes and returns all of them.
    async fn setattr(
        &self,
        cx: &Cx<'_>,
        node: NodeId,
        file: Option<&Self::File>,
        set: SetAttr,
    ) -> Result<AttrReply> {
        let _ = (cx, node, file, set);
        Err(Errno::OPNOTSUPP)
    }

    /// Reads the attributes and the time of birth.
    async fn statx(&self, cx: &Cx<'_>, node: NodeId) -> Result<(AttrReply, Birth)> {
        let _ = (cx, node);
        Err(Errno::NOSYS)
    }

    /// Reads the target of a symlink.
    async fn readlink<'q>(&self, cx: &Cx<'_>, node: NodeId, reply: ReadReply<'q>) -> Result<Filled<'q>> {
        let _ = (cx, node, reply);
        Err(Errno::INVAL)
    }

    /// Makes a file, a FIFO, a socket or a device.
    async fn mknod(&self, cx: &Cx<'_>, op: Mknod<'_>) -> Result<Entry> {
        let _ = (cx, op);
        Err(Errno::OPNOTSUPP)
    }

    /// Makes a folder.
    async fn mkdir(&self, cx: &Cx<'_>, op: Mkdir<'_>) -> Result<Entry> {
        let _ = (cx, op);
        Err(Errno::OPNOTSUPP)
    }

    /// Makes a symlink.
    async fn symlink(&self, cx: &Cx<'_>, op: Symlink<'_>) -> Result<Entry> {
        let _ = (cx, op);
        Err(Errno::OPNOTSUPP)
    }

    /// Gives a node another name.
    async fn link(&self, cx: &Cx<'_>, op: Link<'_>) -> Result<Entry> {
        let _ = (cx, op);
        Err(Errno::OPNOTSUPP)
    }

    /// Removes a name of what is not a folder.
    async fn unlink(&self, cx: &Cx<'_>, parent: NodeId, name: Name<'_>) -> Result<()> {
        let _ = (cx, parent, name);
        Err(Errno::OPNOTSUPP)
    }

    /// Removes an empty folder.
    async fn rmdir(&self, cx: &Cx<'_>, parent: NodeId, name: Name<'_>) -> Result<()> {
        let _ = (cx, parent, name);
        Err(Errno::OPNOTSUPP)
    }

    /// Moves a name.
    async fn rename(&self, cx: &Cx<'_>, op: Rename<'_>) -> Result<()> {
        let _ = (cx, op);
        Err(Errno::OPNOTSUPP)
    }

    /// Opens a file. `flags` hold `O_TRUNC` where the caller gave it; the file is then to be truncated.
    async fn open(&self, cx: &Cx<'_>, node: NodeId, flags: OpenFlags) -> Result<Opened<Self::File>> {
        let _ = (cx, node, flags);
        Err(Errno::OPNOTSUPP)
    }

    /// Makes a file, or opens it where `flags` lack `O_EXCL` and it exists.
    async fn create(&self, cx: &Cx<'_>, op: Create<'_>) -> Result<(Entry, Opened<Self::File>)> {
        let _ = (cx, op);
        Err(Errno::NOSYS)
    }

    /// Makes a file without a name.
    async fn tmpfile(&self, cx: &Cx<'_>, op: Tmpfile) -> Result<(Entry, Opened<Self::File>)> {
        let _ = (cx, op);
        Err(Errno::OPNOTSUPP)
    }

    /// Reads. Called only for bytes that no delegation covers. Fewer bytes than asked for mean the end.
    async fn read<'q>(
        &self,
        cx: &Cx<'_>,
        file: &Self::File,
        at: ByteRange,
        reply: ReadReply<'q>,
    ) -> Result<Filled<'q>> {
        let _ = (cx, file, at, reply);
        Err(Errno::OPNOTSUPP)
    }

    /// Writes. Called only for bytes that no delegation covers, or that [`Filesystem::keeps_set_ids`] or
    /// [`Filesystem::exchanges_lower`] asks for.
    /// Offsets are explicit, also of `O_APPEND` files.
    async fn write(&self, cx: &Cx<'_>, file: &Self::File, at: u64, data: WriteData<'_>) -> Result<Written> {
        let _ = (cx, file, at, data);
        Err(Errno::OPNOTSUPP)
    }

    /// A descriptor of the file was closed; POSIX locks of `owner` go. Sent only where the open asked for it.
    async fn flush(&self, cx: &Cx<'_>, file: &Self::File, owner: shuntfs_wire::LockOwner) -> Result<()> {
        let _ = (cx, file, owner);
        Ok(())
    }

    /// The last descriptor is gone. `flock_owner` holds a `flock` that goes with it.
    async fn release(
        &self,
        cx: &Cx<'_>,
        node: NodeId,
        file: std::sync::Arc<Self::File>,
        flock_owner: Option<shuntfs_wire::LockOwner>,
    ) {
        let _ = (cx, node, file, flock_owner);
    }

    /// Makes a file's data durable, and its attributes unless `data_only`.
    async fn fsync(&self, cx: &Cx<'_>, file: &Self::File, data_only: bool) -> Result<()> {
        let _ = (cx, file, data_only);
        Err(Errno::OPNOTSUPP)
    }

    /// Allocates or frees space.
    async fn fallocate(&self, cx: &Cx<'_>, file: &Self::File, op: Fallocate) -> Result<()> {
        let _ = (cx, file, op);
        Err(Errno::OPNOTSUPP)
    }

    /// Finds the next data or hole at or after `offset`.
    async fn lseek(&self, cx: &Cx<'_>, file: &Self::File, offset: u64, whence: Whence) -> Result<u64> {
        let _ = (cx, file, offset, whence);
        Err(Errno::OPNOTSUPP)
    }

    /// Copies between two files below; returns how many bytes.
    async fn copy_file_range(&self, cx: &Cx<'_>, op: CopyFileRange<'_, Self::File>) -> Result<u64> {
        let _ = (cx, op);
        Err(Errno::OPNOTSUPP)
    }

    /// Answers an ioctl. `input` of `op` is a copy; the reply's room is the payload.
    async fn ioctl<'q>(
        &self,
        cx: &Cx<'_>,
        file: IoctlTarget<'_, Self>,
        op: Ioctl<'_>,
        reply: IoctlReply<'q>,
    ) -> Result<Filled<'q>> {
        let _ = (cx, file, op, reply);
        Err(Errno::NOTTY)
    }

    /// Finds a lock that stands in the way of `lock`; `LockType::Unlock` where there is none.
    async fn getlk(
        &self,
        cx: &Cx<'_>,
        node: NodeId,
        file: &Self::File,
        lock: LockRequest,
    ) -> Result<LockRange> {
        let _ = (cx, node, file, lock);
        Err(Errno::OPNOTSUPP)
    }

    /// Takes or gives back a lock; where `lock.wait` holds, waits, watching [`Cx::interrupted`]. Where another one that
    /// waits would leave less than an eighth of its queue's requests to others, who may have to unlock, `lock.wait` does not hold, and
    /// the caller is told ENOLCK instead of EAGAIN or EACCES.
    async fn setlk(&self, cx: &Cx<'_>, node: NodeId, file: &Self::File, lock: LockRequest) -> Result<()> {
        let _ = (cx, node, file, lock);
        Err(Errno::OPNOTSUPP)
    }

    /// Tells what a file is ready for now. Where `op` names a waiter, [`crate::Notifier::poll`] must be called when that
    /// changes, and the kernel asks again. Must not wait. Asked for with [`OpSet::POLL`].
    async fn poll(&self, cx: &Cx<'_>, file: &Self::File, op: Poll) -> Result<PollEvents> {
        let _ = (cx, file, op);
        Ok(PollEvents::IN | PollEvents::OUT | PollEvents::READ_NORMAL | PollEvents::WRITE_NORMAL)
    }

    /// Opens a folder.
    async fn opendir(&self, cx: &Cx<'_>, node: NodeId, flags: OpenFlags) -> Result<OpenedDir<Self::Dir>> {
        let _ = (cx, node, flags);
        Err(Errno::NOTDIR)
    }

    /// Lists a folder from a cookie on (0 is the start), until the sink is full or the folder at its end. A folder that is at hand
    /// as a whole is listed by [`DirSink::list`]. With `out.wants_entries()` records may carry a full [`Entry`]
    /// ([`DirSink::push_entry`]), which saves the LOOKUPs; its lookup count rises by one where the sink took the record.
    async fn readdir<'q>(
        &self,
        cx: &Cx<'_>,
        node: NodeId,
        dir: &Self::Dir,
        cookie: u64,
        out: DirSink<'q>,
    ) -> Result<Listed<'q>> {
        let _ = (cx, node, dir, cookie, out);
        Err(Errno::NOTDIR)
    }

    /// The folder was closed.
    async fn releasedir(&self, cx: &Cx<'_>, node: NodeId, dir: std::sync::Arc<Self::Dir>) {
        let _ = (cx, node, dir);
    }

    /// Makes a folder's entries durable.
    async fn fsyncdir(&self, cx: &Cx<'_>, dir: &Self::Dir, data_only: bool) -> Result<()> {
        let _ = (cx, dir, data_only);
        Err(Errno::OPNOTSUPP)
    }

    /// Reads the state of the file system as a whole. Default: [`Statfs::default`].
    async fn statfs(&self, cx: &Cx<'_>, node: NodeId) -> Result<Statfs> {
        let _ = (cx, node);
        Ok(Statfs::default())
    }

    /// Reads an extended attribute. A reply with no room asks for the length alone: [`ReadReply::length`].
    async fn getxattr<'q>(
        &self,
        cx: &Cx<'_>,
        node: NodeId,
        name: &std::ffi::CStr,
        reply: ReadReply<'q>,
    ) -> Result<Filled<'q>> {
        let _ = (cx, node, name, reply);
        Err(Errno::OPNOTSUPP)
    }

    /// Lists extended attributes, each name with its NUL. A reply with no room asks for the length alone.
    async fn listxattr<'q>(&self, cx: &Cx<'_>, node: NodeId, reply: ReadReply<'q>) -> Result<Filled<'q>> {
        let _ = (cx, node, reply);
        Err(Errno::OPNOTSUPP)
    }

    /// Sets an extended attribute.
    async fn setxattr(&self, cx: &Cx<'_>, op: SetXattr<'_>) -> Result<()> {
        let _ = (cx, op);
        Err(Errno::OPNOTSUPP)
    }

    /// Removes an extended attribute.
    async fn removexattr(&self, cx: &Cx<'_>, node: NodeId, name: &std::ffi::CStr) -> Result<()> {
        let _ = (cx, node, name);
        Err(Errno::OPNOTSUPP)
    }

    /// Checks access, where the kernel does not (no `default_permissions`).
    async fn access(&self, cx: &Cx<'_>, node: NodeId, mask: u32) -> Result<()> {
        let _ = (cx, node, mask);
        Err(Errno::OPNOTSUPP)
    }
}

/// What an ioctl is called on.
#[derive(Debug)]
pub enum IoctlTarget<'r, F: Filesystem> {
    /// An open file.
    File(&'r F::File),
    /// An open folder.
    Dir(&'r F::Dir),
}
