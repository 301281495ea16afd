//! The file system that shows an image: one node, which is a regular file.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use imago::format::PreallocateMode;
use parking_lot::Mutex;
use shuntfs::{
    Attr, AttrReply, ByteRange, CacheHint, Cx, Delegation, Errno, Fallocate, FileType, Filesystem, Filled,
    Flow, InitError, LowerFile, NodeId, NodePlace, Offered, OpSet, OpenFlags, Opened, RangeMap, RangeSource,
    ReadReply, Result, SetAttr, Statfs, Timestamp, Wanted, Whence, WriteData, Written,
};
use shuntfs_sys::{Time, spawn, stat_of};

use crate::error::errno;
use crate::open::{Disk, Image};
use crate::options::{Exported, FlowWish};
use crate::status::ImageStatus;
use crate::surviving::{Facts, Keeping};

const S_IFREG: u32 = 0o100_000;
/// How long the kernel may keep attributes: nobody changes the image but through the export.
const TTL: Duration = Duration::from_secs(1);

const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 2;
const ZERO_RANGE: u32 = 0x10;

/// The operations on an image, as a file system.
#[derive(Debug)]
pub struct Export {
    pub(crate) image: Arc<Image>,
    how: Exported,
    pub(crate) owner: Mutex<Owner>,
    /// Where what is only in memory is kept for the next server.
    pub(crate) keeping: OnceLock<Arc<Keeping>>,
    /// Whether the kernel may move bytes by zero copy.
    zero_copy: AtomicBool,
}

/// A disk whose bytes are found at each request: those that lie together below are then moved, others put together.
#[derive(Debug)]
struct Found;

impl RangeMap for Found {
    fn source(&self, _: u64) -> (RangeSource, u64) {
        (RangeSource::Served, u64::MAX)
    }
}

/// An open of the one file there is.
#[derive(Debug)]
pub struct ExportFile {
    pub(crate) may_write: bool,
}

/// Who the file belongs to, and who may do what; kept in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl Export {
    /// Shows an image.
    #[must_use]
    pub fn new(image: Arc<Image>, how: Exported) -> Self {
        let mode = if image.writable { 0o600 } else { 0o400 };
        let owner = Owner { mode, uid: spawn::effective_uid(), gid: spawn::effective_gid() };
        Self {
            image,
            how,
            owner: Mutex::new(owner),
            keeping: OnceLock::new(),
            zero_copy: AtomicBool::new(false),
        }
    }

    /// What is only in memory.
    pub(crate) fn facts(&self) -> Facts {
        Facts { owner: *self.owner.lock(), size: self.image.size(), lost: 0 }
    }

    fn keep(&self, change: impl FnOnce(&mut Facts)) -> Result<()> {
        self.keeping.get().map_or(Ok(()), |keeping| keeping.change(change))
    }

    /// Notes the size of a null image, which is nowhere else.
    fn keep_size(&self) -> Result<()> {
        self.keep(|facts| facts.size = self.image.size())
    }

    /// What is shown.
    #[must_use]
    pub fn status(&self) -> ImageStatus {
        ImageStatus { growable: self.how.growable, ..self.image.status() }
    }

    /// The flow that an open for reading wishes for.
    #[must_use]
    pub fn read_flow(&self) -> Flow {
        match self.delegation(false).of_reads() {
            Delegation::Passthrough(_) => Flow::Passthrough,
            Delegation::Splice(_) => Flow::Splice,
            Delegation::PerRange(_) => Flow::Ranges,
            _ => Flow::Served,
        }
    }

    /// Whether writes pass by the server only because the image's format was not said.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        matches!(&self.image.disk, Disk::Raw(raw) if raw.is_watched() && self.how.growable)
            && self.how.flow == FlowWish::Passthrough
    }

    pub(crate) fn delegation(&self, may_write: bool) -> Delegation {
        match &self.image.disk {
            Disk::Raw(raw) => match raw.delegation(may_write, self.how.growable, self.how.flow) {
                // Past the page cache.
                Delegation::Served => self.found(),
                delegation => delegation,
            },
            Disk::Qcow2(_) => self.found(),
            Disk::Null(_) => Delegation::Served,
        }
    }

    /// How bytes flow whose place is found at each request, which only moves them.
    fn found(&self) -> Delegation {
        let has_zero_copy = self.zero_copy.load(Ordering::Relaxed) && self.how.flow != FlowWish::Served;
        if has_zero_copy { Delegation::PerRange(Arc::new(Found)) } else { Delegation::Served }
    }

    fn size(&self) -> Result<u64> {
        match &self.image.disk {
            Disk::Raw(raw) => raw.look().map_err(|error| errno(&error)),
            _ => Ok(self.image.size()),
        }
    }

    fn attr(&self) -> Result<AttrReply> {
        let size = self.size()?;
        let owner = *self.owner.lock();
        let below = self.image.file.as_ref().and_then(|file| stat_of(&**file).ok());
        let time = |pick: fn(&shuntfs_sys::Stat) -> Time| {
            below.as_ref().map_or_else(Timestamp::default, |stat| timestamp(pick(stat)))
        };
        let blocks = below.as_ref().filter(|stat| stat.is_file()).map(|stat| stat.blocks);
        let attr = Attr {
            ino: 1,
            size,
            blocks: blocks.unwrap_or(0),
            atime: time(|stat| stat.atime),
            mtime: time(|stat| stat.mtime),
            ctime: time(|stat| stat.ctime),
            mode: S_IFREG | owner.mode,
            nlink: 1,
            uid: owner.uid,
            gid: owner.gid,
            rdev: 0,
            blksize: 4096,
        };
        Ok(AttrReply { attr, ttl: TTL })
    }

    async fn resize(&self, cx: &Cx<'_>, size: u64) -> Result<()> {
        match &self.image.disk {
            Disk::Raw(raw) => raw.resize(cx, size).await,
            Disk::Qcow2(qcow2) => qcow2.resize(size).await,
            Disk::Null(null) => {
                null.resize(size);
                self.keep_size()
            }
        }
    }

    /// How many of `len` bytes fit at `offset`: all of them where the disk may grow, and then it has.
    async fn room(&self, offset: u64, len: u64) -> Result<u64> {
        let size = self.image.size();
        let end = offset.checked_add(len).ok_or(Errno::FBIG)?;
        if end <= size {
            return Ok(len);
        }
        if !self.how.growable {
            return size.checked_sub(offset).filter(|room| *room > 0).ok_or(Errno::NOSPC);
        }
        match &self.image.disk {
            // A file grows by being written to.
            Disk::Raw(_) => {}
            Disk::Qcow2(qcow2) => qcow2.grow(end, PreallocateMode::None).await?,
            Disk::Null(null) => {
                null.reaches(end);
                self.keep_size()?;
            }
        }
        Ok(len)
    }

    async fn make_durable(&self, cx: &Cx<'_>, data_only: bool) -> Result<()> {
        match &self.image.disk {
            Disk::Raw(raw) => raw.sync(cx, data_only).await,
            Disk::Qcow2(qcow2) => qcow2.sync().await.map_err(|error| errno(&error)),
            Disk::Null(_) => Ok(()),
        }
    }

    fn set_owner(&self, set: SetAttr) -> Result<()> {
        let mut owner = self.owner.lock();
        let mut wanted = *owner;
        if let Some(mode) = set.mode {
            if mode & 0o222 != 0 && !self.image.writable {
                return Err(Errno::ROFS);
            }
            wanted.mode = mode & 0o777;
        }
        if set.uid.is_some() || set.gid.is_some() {
            // Nobody else gets in, so there is nothing to give away.
            if !self.how.allow_other {
                return Err(Errno::OPNOTSUPP);
            }
            wanted.uid = set.uid.unwrap_or(owner.uid);
            wanted.gid = set.gid.unwrap_or(owner.gid);
        }
        self.keep(|facts| facts.owner = wanted)?;
        *owner = wanted;
        Ok(())
    }

    async fn allocate(&self, cx: &Cx<'_>, op: Fallocate) -> Result<()> {
        let end = op.offset.checked_add(op.len).ok_or(Errno::FBIG)?;
        let size = self.size()?;
        let kept = op.mode & KEEP_SIZE != 0;
        let op = if kept && end > size {
            let len = size.saturating_sub(op.offset);
            if len == 0 {
                return Ok(());
            }
            Fallocate { len, ..op }
        } else {
            op
        };
        match (&self.image.disk, op.mode & !KEEP_SIZE) {
            (Disk::Raw(raw), 0 | PUNCH_HOLE | ZERO_RANGE) => raw.fallocate(cx, op).await,
            (Disk::Null(null), 0 | PUNCH_HOLE | ZERO_RANGE) => {
                if !kept {
                    null.reaches(end);
                }
                self.keep_size()
            }
            (Disk::Qcow2(qcow2), PUNCH_HOLE) => qcow2.punch(op.offset, op.len).await,
            (Disk::Qcow2(qcow2), ZERO_RANGE) => {
                if end > size && !kept {
                    qcow2.grow(end, PreallocateMode::None).await?;
                }
                qcow2.zero(op.offset, op.len).await
            }
            // It had been done when its server died: the size is changed last.
            (Disk::Qcow2(_), 0) if cx.is_begun() && end == size => Ok(()),
            // What is inside of the disk is not allocated ahead, as in QEMU; what is beyond its end is.
            (Disk::Qcow2(_), 0) if kept || op.offset < size => Err(Errno::OPNOTSUPP),
            (Disk::Qcow2(qcow2), 0) => {
                qcow2.grow(op.offset, PreallocateMode::None).await?;
                qcow2.grow(end, PreallocateMode::FullAllocate).await
            }
            _ => Err(Errno::OPNOTSUPP),
        }
    }
}

fn timestamp(time: Time) -> Timestamp {
    Timestamp { secs: time.secs, nanos: time.nanos }
}

impl Filesystem for Export {
    type File = ExportFile;
    type Dir = ();

    const OPS: OpSet =
        OpSet::OPEN.union(OpSet::FLUSH).union(OpSet::FSYNC).union(OpSet::FALLOCATE).union(OpSet::LSEEK);

    fn init(&self, offered: &Offered) -> std::result::Result<Wanted, InitError> {
        self.zero_copy.store(offered.zero_copy(), Ordering::Relaxed);
        // Two, so that an image on an overlay can be in passthrough, too.
        Ok(Wanted { stack_depth: 2, ..Wanted::default() })
    }

    fn lower_file(&self, _: NodeId, _: &ExportFile, _: shuntfs::Access) -> Result<Arc<LowerFile>> {
        match &self.image.disk {
            Disk::Raw(raw) => Ok(Arc::clone(&raw.lower)),
            _ => Err(Errno::BADF),
        }
    }

    /// Nothing looks at what is written, but at the first bytes of a raw image, of which it takes a copy.
    fn takes_unseen_data(&self, _: &ExportFile) -> bool {
        true
    }

    fn root_type(&self) -> FileType {
        FileType::Regular
    }

    fn place_of(&self, node: NodeId, _: Option<&ExportFile>) -> Option<NodePlace> {
        (node == NodeId::ROOT).then(NodePlace::default)
    }

    async fn getattr(&self, _: &Cx<'_>, _: NodeId, _: Option<&ExportFile>) -> Result<AttrReply> {
        self.attr()
    }

    async fn setattr(
        &self,
        cx: &Cx<'_>,
        _: NodeId,
        _: Option<&ExportFile>,
        set: SetAttr,
    ) -> Result<AttrReply> {
        let times = set.atime.is_some() || set.mtime.is_some();
        if times && set.size.is_none() {
            return Err(Errno::OPNOTSUPP);
        }
        if set.size.is_some() && !self.image.writable {
            return Err(Errno::ACCES);
        }
        self.set_owner(set)?;
        if let Some(size) = set.size {
            self.resize(cx, size).await?;
        }
        self.attr()
    }

    async fn open(&self, _: &Cx<'_>, _: NodeId, flags: OpenFlags) -> Result<Opened<ExportFile>> {
        let may_write = flags.may_write();
        if may_write && !self.image.writable {
            return Err(Errno::ACCES);
        }
        let delegation = self.delegation(may_write);
        Ok(Opened::new(ExportFile { may_write }, delegation).with_cache(CacheHint::Direct))
    }

    async fn read<'q>(
        &self,
        cx: &Cx<'_>,
        _: &ExportFile,
        at: ByteRange,
        reply: ReadReply<'q>,
    ) -> Result<Filled<'q>> {
        match &self.image.disk {
            Disk::Raw(raw) => raw.ways(at.offset, at.len.into()).read(cx, reply, at.offset).await,
            Disk::Qcow2(qcow2) => qcow2.read(cx, at, reply).await,
            Disk::Null(null) => {
                let left = usize::try_from(null.size().saturating_sub(at.offset)).unwrap_or(usize::MAX);
                let mut out = reply.cursor();
                out.zeroes(out.left().min(left))?;
                Ok(out.finish())
            }
        }
    }

    async fn write(&self, cx: &Cx<'_>, file: &ExportFile, at: u64, data: WriteData<'_>) -> Result<Written> {
        if !file.may_write {
            return Err(Errno::ACCES);
        }
        let room = self.room(at, data.len() as u64).await?;
        let data = data.part(0, usize::try_from(room).map_err(|_| Errno::IO)?);
        match &self.image.disk {
            Disk::Raw(raw) => raw.write(cx, at, data).await,
            Disk::Qcow2(qcow2) => qcow2.write(cx, at, data).await,
            Disk::Null(_) => u32::try_from(room).map(Written).map_err(|_| Errno::IO),
        }
    }

    /// Hands to the image file what is kept in memory. Not at FLUSH, for which a close would wait.
    async fn release(&self, _: &Cx<'_>, _: NodeId, file: Arc<ExportFile>, _: Option<shuntfs::LockOwner>) {
        if let (true, Disk::Qcow2(qcow2)) = (file.may_write, &self.image.disk)
            && let Err(error) = qcow2.flush().await
        {
            // Tried again at the next fsync and at the end, which tell it.
            tracing::warn!("the tables of the image cannot be written: {error}");
        }
    }

    async fn fsync(&self, cx: &Cx<'_>, _: &ExportFile, data_only: bool) -> Result<()> {
        if self.image.writable { self.make_durable(cx, data_only).await } else { Ok(()) }
    }

    async fn fallocate(&self, cx: &Cx<'_>, file: &ExportFile, op: Fallocate) -> Result<()> {
        if !file.may_write {
            return Err(Errno::ACCES);
        }
        self.allocate(cx, op).await
    }

    async fn lseek(&self, cx: &Cx<'_>, _: &ExportFile, offset: u64, whence: Whence) -> Result<u64> {
        match &self.image.disk {
            Disk::Raw(raw) => raw.seek(cx, offset, whence).await,
            Disk::Qcow2(qcow2) => qcow2.seek(offset, whence).await,
            Disk::Null(null) if offset >= null.size() => Err(Errno::NXIO),
            Disk::Null(_) if whence == Whence::Hole => Ok(offset),
            Disk::Null(_) => Err(Errno::NXIO),
        }
    }

    async fn statfs(&self, _: &Cx<'_>, _: NodeId) -> Result<Statfs> {
        let blocks = self.image.size().div_ceil(4096);
        Ok(Statfs { blocks, files: 1, ..Statfs::default() })
    }
}
