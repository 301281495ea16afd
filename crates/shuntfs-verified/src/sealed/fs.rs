//! The file system itself.
//!
//! What is sealed cannot be changed and says EPERM, as fs-verity does, root's wish or not; what does not exist cannot be made and
//! says EROFS.

use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use shuntfs::{
    Access, AttrReply, ByteRange, Create, Cx, DirSink, Entry, Errno, Filesystem, Filled, InitError, Ioctl,
    IoctlReply, IoctlTarget, Link, Listed, LockOwner, LookupCount, LowerFile, Mkdir, Mknod, Name, NodeId,
    NodePlace, Offered, OpSet, OpenFlags, Opened, OpenedDir, ReadReply, Rename, Result, SetAttr, SetXattr,
    Statfs, Symlink, Tmpfile, Wanted,
};
use shuntfs_seal::{Node, NodeKind};
use shuntfs_sys::{FsMagic, filesystem_of};

use super::{attr, dir, ioctl, xattr};
use crate::ahead::Stream;
use crate::checked::CheckedFile;
use crate::seals::Seals;

/// `O_TRUNC`
const TRUNC: u32 = 0o1000;

/// A sealed tree, and nothing else.
#[derive(Debug)]
pub struct Sealed {
    seals: Arc<Seals>,
    passthrough: bool,
    /// Whether another server may follow this one.
    survives: AtomicBool,
}

/// An open file.
#[derive(Debug)]
pub struct SealedFile {
    /// `None` where a server before had it open and this one cannot check it: nobody reads it then.
    checked: Option<Arc<CheckedFile>>,
    stream: Stream,
    /// By what it is checked, for the next server.
    pub(super) kept: Option<OwnedFd>,
}

impl SealedFile {
    pub(super) fn new(checked: Option<Arc<CheckedFile>>, kept: Option<OwnedFd>) -> Self {
        Self { checked, stream: Stream::default(), kept }
    }

    fn checked(&self) -> Result<&Arc<CheckedFile>> {
        self.checked.as_ref().ok_or(Errno::IO)
    }
}

/// An open folder.
#[derive(Debug)]
pub struct SealedDir;

impl Sealed {
    /// Shows a sealed tree. With `passthrough`, the kernel moves the bytes of files that the lower file system verifies.
    #[must_use]
    pub fn new(seals: Arc<Seals>, passthrough: bool) -> Self {
        Self { seals, passthrough, survives: AtomicBool::new(false) }
    }

    pub(super) fn seals(&self) -> Arc<Seals> {
        Arc::clone(&self.seals)
    }

    /// What is opened from now on is kept for the next server.
    pub(super) fn survives(&self) {
        self.survives.store(true, Ordering::Relaxed);
    }

    /// Runs what reads manifest or tree where that may wait: here, or on the offload pool.
    async fn run<T: Send + 'static>(
        &self,
        cx: &Cx<'_>,
        operation: impl FnOnce(&Seals) -> T + Send + 'static,
    ) -> T {
        if !self.seals.can_block() {
            return operation(&self.seals);
        }
        let seals = Arc::clone(&self.seals);
        cx.offload(move || operation(&seals)).await
    }
}

/// What an open asks for, where the manifest has it as a file.
fn wanted(seals: &Seals, id: NodeId, flags: OpenFlags) -> Result<Node> {
    let node = attr::node(seals.manifest(), id)?;
    if node.kind == NodeKind::Folder {
        return Err(Errno::ISDIR);
    }
    if flags.may_write() || flags.0 & TRUNC != 0 {
        return Err(Errno::PERM);
    }
    Ok(node)
}

fn open(seals: &Seals, node: &Node) -> Result<Arc<CheckedFile>> {
    seals.file(node).map_err(|error| {
        tracing::error!(%error, "a sealed file cannot be opened");
        error.errno()
    })
}

/// Answers with bytes that are in memory.
fn answer<'q>(reply: ReadReply<'q>, bytes: &[u8]) -> Result<Filled<'q>> {
    // An empty value is bytes, too: a bare length would be answered to who asks for the length only.
    if bytes.is_empty() && reply.capacity() > 0 {
        Ok(reply.cursor().finish())
    } else {
        reply.copy_from_slice(bytes)
    }
}

impl Filesystem for Sealed {
    type File = SealedFile;
    type Dir = SealedDir;

    // Without OPENDIR, folders are opened for nothing and their listings are kept forever. FSYNC, FLUSH and locks are the
    // kernel's own, and cost nothing.
    const OPS: OpSet = OpSet::OPEN
        .union(OpSet::XATTR)
        .union(OpSet::IOCTL)
        .union(OpSet::CREATE)
        .union(OpSet::TMPFILE)
        .union(OpSet::LINK)
        .union(OpSet::RENAME2);

    fn init(&self, _: &Offered) -> std::result::Result<Wanted, InitError> {
        let stacked = filesystem_of(self.seals.root()).is_ok_and(|found| found.magic == FsMagic::OVERLAY);
        Ok(Wanted {
            passthrough: self.passthrough,
            stack_depth: if stacked { 2 } else { 1 },
            // A list that was sealed must hold: with the mode alone, groups would get what only its mask allows.
            posix_acl: true,
            auto_inval_data: false,
            ..Wanted::default()
        })
    }

    fn forget(&self, node: NodeId, lookups: LookupCount) {
        dir::forget(node, lookups);
    }

    fn place_of(&self, node: NodeId, _: Option<&SealedFile>) -> Option<NodePlace> {
        if self.seals.can_block() {
            return None;
        }
        let node = attr::node(self.seals.manifest(), node).ok()?;
        let names = self.seals.manifest().path_of(node.index).ok()?;
        Some(NodePlace::new(names.join(&b'/')))
    }

    fn lower_file(&self, _: NodeId, file: &SealedFile, access: Access) -> Result<Arc<LowerFile>> {
        file.checked()?.lower_file(access)
    }

    async fn lookup(&self, cx: &Cx<'_>, parent: NodeId, name: Name<'_>) -> Result<Entry> {
        if !self.seals.can_block() {
            return attr::lookup(self.seals.manifest(), parent, name.as_bytes());
        }
        let name = name.as_bytes().to_vec();
        self.run(cx, move |seals| attr::lookup(seals.manifest(), parent, &name)).await
    }

    async fn getattr(&self, cx: &Cx<'_>, node: NodeId, _: Option<&SealedFile>) -> Result<AttrReply> {
        self.run(cx, move |seals| attr::stat(seals.manifest(), node)).await
    }

    async fn setattr(&self, _: &Cx<'_>, _: NodeId, _: Option<&SealedFile>, _: SetAttr) -> Result<AttrReply> {
        Err(Errno::PERM)
    }

    async fn readlink<'q>(&self, cx: &Cx<'_>, node: NodeId, reply: ReadReply<'q>) -> Result<Filled<'q>> {
        let target = self.run(cx, move |seals| {
            let index = attr::index(node)?;
            seals.manifest().link_target(index).map_err(|error| attr::told(&error))
        });
        answer(reply, &target.await?)
    }

    async fn mknod(&self, _: &Cx<'_>, _: Mknod<'_>) -> Result<Entry> {
        Err(Errno::ROFS)
    }

    async fn mkdir(&self, _: &Cx<'_>, _: Mkdir<'_>) -> Result<Entry> {
        Err(Errno::ROFS)
    }

    async fn symlink(&self, _: &Cx<'_>, _: Symlink<'_>) -> Result<Entry> {
        Err(Errno::ROFS)
    }

    async fn link(&self, _: &Cx<'_>, _: Link<'_>) -> Result<Entry> {
        Err(Errno::ROFS)
    }

    async fn unlink(&self, _: &Cx<'_>, _: NodeId, _: Name<'_>) -> Result<()> {
        Err(Errno::PERM)
    }

    async fn rmdir(&self, _: &Cx<'_>, _: NodeId, _: Name<'_>) -> Result<()> {
        Err(Errno::PERM)
    }

    async fn rename(&self, _: &Cx<'_>, _: Rename<'_>) -> Result<()> {
        Err(Errno::PERM)
    }

    async fn open(&self, cx: &Cx<'_>, node: NodeId, flags: OpenFlags) -> Result<Opened<SealedFile>> {
        let wanted = self.run(cx, move |seals| wanted(seals, node, flags)).await?;
        let checked = match self.seals.file_at_once(&wanted) {
            Some(checked) => checked,
            None => {
                // Another server may be mounted in the tree, and may not answer.
                let seals = Arc::clone(&self.seals);
                cx.offload(move || open(&seals, &wanted)).await?
            }
        };
        let kept = match self.survives.load(Ordering::Relaxed) {
            false => None,
            true if !checked.lower_can_block() => Some(checked.outlive(0, true)?),
            true => {
                let checked = Arc::clone(&checked);
                Some(cx.offload(move || checked.outlive(0, true)).await?)
            }
        };
        Ok(checked.opened(SealedFile::new(Some(Arc::clone(&checked)), kept)))
    }

    async fn create(&self, _: &Cx<'_>, _: Create<'_>) -> Result<(Entry, Opened<SealedFile>)> {
        Err(Errno::ROFS)
    }

    async fn tmpfile(&self, _: &Cx<'_>, _: Tmpfile) -> Result<(Entry, Opened<SealedFile>)> {
        Err(Errno::ROFS)
    }

    async fn read<'q>(
        &self,
        cx: &Cx<'_>,
        file: &SealedFile,
        at: ByteRange,
        reply: ReadReply<'q>,
    ) -> Result<Filled<'q>> {
        file.checked()?.read(cx, &file.stream, at, reply).await
    }

    async fn release(&self, cx: &Cx<'_>, _: NodeId, file: Arc<SealedFile>, _: Option<LockOwner>) {
        if file.checked.as_ref().is_some_and(|checked| checked.lower_can_block()) {
            // A close may be asked about, too.
            cx.offload(move || drop(file)).await;
        }
    }

    async fn ioctl<'q>(
        &self,
        _: &Cx<'_>,
        file: IoctlTarget<'_, Self>,
        op: Ioctl<'_>,
        reply: IoctlReply<'q>,
    ) -> Result<Filled<'q>> {
        let digest = match file {
            IoctlTarget::File(file) => Some(file.checked()?.digest()),
            IoctlTarget::Dir(_) => None,
        };
        let room = usize::try_from(op.output_max).unwrap_or(0);
        let data = ioctl::answer(digest.as_ref(), op.command, op.input, room)?;
        reply.answer(0, &data)
    }

    async fn opendir(&self, cx: &Cx<'_>, node: NodeId, _: OpenFlags) -> Result<OpenedDir<SealedDir>> {
        let kind =
            self.run(cx, move |seals| attr::node(seals.manifest(), node).map(|node| node.kind)).await?;
        if kind != NodeKind::Folder {
            return Err(Errno::NOTDIR);
        }
        Ok(OpenedDir { dir: SealedDir, cache: true })
    }

    async fn readdir<'q>(
        &self,
        cx: &Cx<'_>,
        node: NodeId,
        _: &SealedDir,
        cookie: u64,
        mut out: DirSink<'q>,
    ) -> Result<Listed<'q>> {
        let how = (out.wants_entries(), dir::count_max(&out));
        let records = self.run(cx, move |seals| dir::records(seals.manifest(), node, cookie, how)).await?;
        dir::hand(&records, &mut out);
        Ok(out.finish())
    }

    async fn statfs(&self, _: &Cx<'_>, _: NodeId) -> Result<Statfs> {
        Ok(attr::statfs(self.seals.manifest()))
    }

    async fn getxattr<'q>(
        &self,
        cx: &Cx<'_>,
        node: NodeId,
        name: &CStr,
        reply: ReadReply<'q>,
    ) -> Result<Filled<'q>> {
        let name = name.to_bytes().to_vec();
        let value = self.run(cx, move |seals| xattr::get(seals.manifest(), node, &name)).await?;
        answer(reply, &value)
    }

    async fn listxattr<'q>(&self, cx: &Cx<'_>, node: NodeId, reply: ReadReply<'q>) -> Result<Filled<'q>> {
        let is_superuser = cx.uid() == 0;
        let names = self.run(cx, move |seals| xattr::list(seals.manifest(), node, is_superuser)).await?;
        answer(reply, &names)
    }

    async fn setxattr(&self, _: &Cx<'_>, _: SetXattr<'_>) -> Result<()> {
        Err(Errno::PERM)
    }

    async fn removexattr(&self, _: &Cx<'_>, _: NodeId, _: &CStr) -> Result<()> {
        Err(Errno::PERM)
    }
}
