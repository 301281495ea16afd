//! A blocking file system, served.

use std::ffi::{CStr, OsStr, OsString};
use std::future::Future;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use shuntfs_wire::{ByteRange, Errno, LockOwner, LookupCount, Name, NodeId, Result};

use super::filesystem::{BlockingFilesystem, Caller, DirEntry, New};
use super::released::Released;
use crate::args::{
    CopyFileRange, Create, Fallocate, Ioctl, Link, LockRange, LockRequest, LockType, Mkdir, Mknod, OpSet,
    Rename, SetAttr, SetXattr, Symlink, Tmpfile, Whence,
};
use crate::attr::{AttrReply, Birth, Entry, Statfs};
use crate::cx::Cx;
use crate::delegation::{Opened, OpenedDir};
use crate::file_type::FileType;
use crate::filesystem::{Filesystem, IoctlTarget};
use crate::init::{InitError, Offered, Wanted};
use crate::open_flags::OpenFlags;
use crate::poll::{Poll, PollEvents};
use crate::reply::{DirSink, Filled, IoctlReply, Listed, ReadReply, WriteData, Written};
use crate::trace::NodePlace;

/// Serves a [`BlockingFilesystem`]: `shuntfs::serve(Blocking::new(fs), ...)`.
#[derive(Debug)]
pub struct Blocking<F> {
    fs: Arc<F>,
    released: Released,
}

impl<F: BlockingFilesystem> Blocking<F> {
    /// The file system to be served.
    pub fn new(fs: F) -> Self {
        Self { fs: Arc::new(fs), released: Released::default() }
    }

    /// Runs `work` on the offload pool. What it uses it owns: the request stays here.
    fn run<T, W>(&self, cx: &Cx<'_>, work: W) -> impl Future<Output = Result<T>> + use<F, T, W>
    where
        T: Send + 'static,
        W: FnOnce(&F, &Caller) -> Result<T> + Send + 'static,
    {
        let (fs, caller) = (Arc::clone(&self.fs), Caller::of(cx));
        cx.offload(move || work(&fs, &caller))
    }

    /// Tells those who wait for a lock to try again, where a close may have given one back.
    fn closed(&self) {
        if F::OPS.intersects(OpSet::POSIX_LOCKS | OpSet::FLOCK_LOCKS) {
            self.released.tell();
        }
    }
}

fn owned(name: Name<'_>) -> OsString {
    name.as_os_str().to_owned()
}

fn owned_c(name: &CStr) -> OsString {
    OsStr::from_bytes(name.to_bytes()).to_owned()
}

fn shared<T>(opened: Opened<T>) -> Opened<Arc<T>> {
    let Opened { file, delegation, cache, flush } = opened;
    Opened { file: Arc::new(file), delegation, cache, flush }
}

impl<F: BlockingFilesystem> Filesystem for Blocking<F> {
    type File = Arc<F::File>;
    type Dir = Vec<DirEntry>;

    const OPS: OpSet = F::OPS.union(OpSet::OPENDIR);

    fn init(&self, offered: &Offered) -> std::result::Result<Wanted, InitError> {
        let wanted = self.fs.init(offered)?;
        Ok(Wanted { ops: wanted.ops.map(|ops| ops | OpSet::OPENDIR), ..wanted })
    }

    fn root_type(&self) -> FileType {
        self.fs.root_type()
    }

    fn forget(&self, node: NodeId, lookups: LookupCount) {
        self.fs.forget(node, lookups);
    }

    fn place_of(&self, node: NodeId, _: Option<&Self::File>) -> Option<NodePlace> {
        self.fs.place_of(node)
    }

    async fn lookup(&self, cx: &Cx<'_>, parent: NodeId, name: Name<'_>) -> Result<Entry> {
        let name = owned(name);
        self.run(cx, move |fs, caller| fs.lookup(caller, parent, &name)).await
    }

    async fn lookup_node(&self, cx: &Cx<'_>, node: NodeId) -> Result<Entry> {
        self.run(cx, move |fs, caller| fs.lookup_node(caller, node)).await
    }

    async fn lookup_parent(&self, cx: &Cx<'_>, node: NodeId) -> Result<Entry> {
        self.run(cx, move |fs, caller| fs.lookup_parent(caller, node)).await
    }

    async fn getattr(&self, cx: &Cx<'_>, node: NodeId, file: Option<&Arc<F::File>>) -> Result<AttrReply> {
        let file = file.cloned();
        self.run(cx, move |fs, caller| fs.getattr(caller, node, file.as_deref())).await
    }

    async fn setattr(
        &self,
        cx: &Cx<'_>,
        node: NodeId,
        file: Option<&Arc<F::File>>,
        set: SetAttr,
    ) -> Result<AttrReply> {
        let file = file.cloned();
        self.run(cx, move |fs, caller| fs.setattr(caller, node, file.as_deref(), set)).await
    }

    async fn statx(&self, cx: &Cx<'_>, node: NodeId) -> Result<(AttrReply, Birth)> {
        self.run(cx, move |fs, caller| fs.statx(caller, node)).await
    }

    async fn readlink<'q>(&self, cx: &Cx<'_>, node: NodeId, reply: ReadReply<'q>) -> Result<Filled<'q>> {
        let target = self.run(cx, move |fs, caller| fs.readlink(caller, node)).await?;
        reply.copy_from_slice(target.as_os_str().as_bytes())
    }

    async fn mknod(&self, cx: &Cx<'_>, op: Mknod<'_>) -> Result<Entry> {
        let rdev = op.rdev;
        let new = New { place: (op.parent, owned(op.name)), mode: op.mode, umask: op.umask };
        self.run(cx, move |fs, caller| fs.mknod(caller, &new, rdev)).await
    }

    async fn mkdir(&self, cx: &Cx<'_>, op: Mkdir<'_>) -> Result<Entry> {
        let new = New { place: (op.parent, owned(op.name)), mode: op.mode, umask: op.umask };
        self.run(cx, move |fs, caller| fs.mkdir(caller, &new)).await
    }

    async fn symlink(&self, cx: &Cx<'_>, op: Symlink<'_>) -> Result<Entry> {
        let (parent, name, target) = (op.parent, owned(op.name), PathBuf::from(owned_c(op.target)));
        self.run(cx, move |fs, caller| fs.symlink(caller, parent, &name, &target)).await
    }

    async fn link(&self, cx: &Cx<'_>, op: Link<'_>) -> Result<Entry> {
        let (node, parent, name) = (op.node, op.parent, owned(op.name));
        self.run(cx, move |fs, caller| fs.link(caller, node, parent, &name)).await
    }

    async fn unlink(&self, cx: &Cx<'_>, parent: NodeId, name: Name<'_>) -> Result<()> {
        let name = owned(name);
        self.run(cx, move |fs, caller| fs.unlink(caller, parent, &name)).await
    }

    async fn rmdir(&self, cx: &Cx<'_>, parent: NodeId, name: Name<'_>) -> Result<()> {
        let name = owned(name);
        self.run(cx, move |fs, caller| fs.rmdir(caller, parent, &name)).await
    }

    async fn rename(&self, cx: &Cx<'_>, op: Rename<'_>) -> Result<()> {
        let (parent, name) = (op.parent, owned(op.name));
        let (new_parent, new_name, flags) = (op.new_parent, owned(op.new_name), op.flags);
        self.run(cx, move |fs, caller| fs.rename(caller, (parent, &name), (new_parent, &new_name), flags))
            .await
    }

    async fn open(&self, cx: &Cx<'_>, node: NodeId, flags: OpenFlags) -> Result<Opened<Self::File>> {
        self.run(cx, move |fs, caller| fs.open(caller, node, flags)).await.map(shared)
    }

    async fn create(&self, cx: &Cx<'_>, op: Create<'_>) -> Result<(Entry, Opened<Self::File>)> {
        let flags = op.flags;
        let new = New { place: (op.parent, owned(op.name)), mode: op.mode, umask: op.umask };
        let (entry, opened) = self.run(cx, move |fs, caller| fs.create(caller, &new, flags)).await?;
        Ok((entry, shared(opened)))
    }

    async fn tmpfile(&self, cx: &Cx<'_>, op: Tmpfile) -> Result<(Entry, Opened<Self::File>)> {
        let (entry, opened) = self.run(cx, move |fs, caller| fs.tmpfile(caller, op)).await?;
        Ok((entry, shared(opened)))
    }

    async fn read<'q>(
        &self,
        cx: &Cx<'_>,
        file: &Arc<F::File>,
        at: ByteRange,
        reply: ReadReply<'q>,
    ) -> Result<Filled<'q>> {
        let file = Arc::clone(file);
        let bytes = self.run(cx, move |fs, caller| fs.read(caller, &file, at)).await?;
        reply.copy_from_slice(&bytes)
    }

    async fn write(&self, cx: &Cx<'_>, file: &Arc<F::File>, at: u64, data: WriteData<'_>) -> Result<Written> {
        let (file, bytes) = (Arc::clone(file), data.as_slice().to_vec());
        let written = self.run(cx, move |fs, caller| fs.write(caller, &file, at, &bytes)).await?;
        Ok(data.part(0, written.min(data.as_slice().len())).written())
    }

    async fn flush(&self, cx: &Cx<'_>, file: &Arc<F::File>, owner: LockOwner) -> Result<()> {
        let file = Arc::clone(file);
        let flushed = self.run(cx, move |fs, caller| fs.flush(caller, &file, owner)).await;
        self.closed();
        flushed
    }

    async fn release(&self, cx: &Cx<'_>, node: NodeId, file: Arc<Self::File>, owner: Option<LockOwner>) {
        let done = self.run(cx, move |fs, caller| {
            fs.release(caller, node, &file, owner);
            drop(file);
            Ok(())
        });
        // Nobody hears of it.
        let _: Result<()> = done.await;
        self.closed();
    }

    async fn fsync(&self, cx: &Cx<'_>, file: &Arc<F::File>, data_only: bool) -> Result<()> {
        let file = Arc::clone(file);
        self.run(cx, move |fs, caller| fs.fsync(caller, &file, data_only)).await
    }

    async fn fallocate(&self, cx: &Cx<'_>, file: &Arc<F::File>, op: Fallocate) -> Result<()> {
        let file = Arc::clone(file);
        self.run(cx, move |fs, caller| fs.fallocate(caller, &file, op)).await
    }

    async fn lseek(&self, cx: &Cx<'_>, file: &Arc<F::File>, offset: u64, whence: Whence) -> Result<u64> {
        let file = Arc::clone(file);
        self.run(cx, move |fs, caller| fs.lseek(caller, &file, offset, whence)).await
    }

    async fn copy_file_range(&self, cx: &Cx<'_>, op: CopyFileRange<'_, Self::File>) -> Result<u64> {
        let (from, to) = (Arc::clone(op.from), Arc::clone(op.to));
        let CopyFileRange { from_node, from_offset, to_node, to_offset, len, flags, .. } = op;
        self.run(cx, move |fs, caller| {
            let (from, to) = (&*from, &*to);
            let op = CopyFileRange { from_node, from, from_offset, to_node, to, to_offset, len, flags };
            fs.copy_file_range(caller, op)
        })
        .await
    }

    async fn ioctl<'q>(
        &self,
        cx: &Cx<'_>,
        target: IoctlTarget<'_, Self>,
        op: Ioctl<'_>,
        reply: IoctlReply<'q>,
    ) -> Result<Filled<'q>> {
        let file = match target {
            IoctlTarget::File(file) => Some(Arc::clone(file)),
            IoctlTarget::Dir(_) => None,
        };
        let Ioctl { node, command, argument, output_max, dir, .. } = op;
        let input = op.input.to_vec();
        let answered = self.run(cx, move |fs, caller| {
            let op = Ioctl { node, command, argument, input: &input, output_max, dir };
            fs.ioctl(caller, file.as_deref(), op)
        });
        let (result, data) = answered.await?;
        reply.answer(result, &data)
    }

    async fn getlk(
        &self,
        cx: &Cx<'_>,
        node: NodeId,
        file: &Self::File,
        lock: LockRequest,
    ) -> Result<LockRange> {
        let file = Arc::clone(file);
        self.run(cx, move |fs, caller| fs.getlk(caller, node, &file, lock)).await
    }

    async fn setlk(&self, cx: &Cx<'_>, node: NodeId, file: &Self::File, lock: LockRequest) -> Result<()> {
        loop {
            let (seen, file) = (self.released.count(), Arc::clone(file));
            let once = LockRequest { wait: false, ..lock };
            match self.run(cx, move |fs, caller| fs.setlk(caller, node, &file, once)).await {
                Err(Errno::AGAIN) if lock.wait => {}
                outcome => {
                    // A shared lock may take the place of an exclusive one.
                    if outcome.is_ok() && lock.range.kind != LockType::Write {
                        self.released.tell();
                    }
                    return outcome;
                }
            }
            if !self.released.since(seen, cx).await {
                return Err(Errno::INTR);
            }
        }
    }

    async fn poll(&self, cx: &Cx<'_>, file: &Self::File, op: Poll) -> Result<PollEvents> {
        let file = Arc::clone(file);
        self.run(cx, move |fs, caller| fs.poll(caller, &file, op)).await
    }

    async fn opendir(&self, cx: &Cx<'_>, node: NodeId, _: OpenFlags) -> Result<OpenedDir<Self::Dir>> {
        self.run(cx, move |fs, caller| fs.list(caller, node)).await.map(OpenedDir::new)
    }

    async fn readdir<'q>(
        &self,
        _: &Cx<'_>,
        _: NodeId,
        listing: &Self::Dir,
        cookie: u64,
        out: DirSink<'q>,
    ) -> Result<Listed<'q>> {
        Ok(out.list(cookie, listing.iter().map(|entry| (entry.ino, entry.kind, entry.name.as_bytes()))))
    }

    async fn fsyncdir(&self, cx: &Cx<'_>, _: &Self::Dir, data_only: bool) -> Result<()> {
        let node = cx.node();
        self.run(cx, move |fs, caller| fs.fsyncdir(caller, node, data_only)).await
    }

    async fn access(&self, cx: &Cx<'_>, node: NodeId, mask: u32) -> Result<()> {
        self.run(cx, move |fs, caller| fs.access(caller, node, mask)).await
    }

    async fn statfs(&self, cx: &Cx<'_>, node: NodeId) -> Result<Statfs> {
        self.run(cx, move |fs, caller| fs.statfs(caller, node)).await
    }

    async fn getxattr<'q>(
        &self,
        cx: &Cx<'_>,
        node: NodeId,
        name: &CStr,
        reply: ReadReply<'q>,
    ) -> Result<Filled<'q>> {
        let name = owned_c(name);
        let value = self.run(cx, move |fs, caller| fs.getxattr(caller, node, &name)).await?;
        reply.copy_from_slice(&value)
    }

    async fn listxattr<'q>(&self, cx: &Cx<'_>, node: NodeId, reply: ReadReply<'q>) -> Result<Filled<'q>> {
        let names = self.run(cx, move |fs, caller| fs.listxattr(caller, node)).await?;
        let names: Vec<u8> = names.iter().flat_map(|name| [name.as_bytes(), b"\0"].concat()).collect();
        reply.copy_from_slice(&names)
    }

    async fn setxattr(&self, cx: &Cx<'_>, op: SetXattr<'_>) -> Result<()> {
        let (node, name, value, flags) = (op.node, owned_c(op.name), op.value.to_vec(), op.flags);
        self.run(cx, move |fs, caller| fs.setxattr(caller, node, &name, &value, flags)).await
    }

    async fn removexattr(&self, cx: &Cx<'_>, node: NodeId, name: &CStr) -> Result<()> {
        let name = owned_c(name);
        self.run(cx, move |fs, caller| fs.removexattr(caller, node, &name)).await
    }
}
