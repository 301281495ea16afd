//! A file system of one folder and one file, whose opens wish for what the test says.

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use shuntfs::{
    Access, Attr, AttrReply, Backing, ByteRange, CacheHint, Create, Cx, Delegation, DirSink, Entry, Errno,
    FileType, Filesystem, Filled, Flows, Listed, LookupCount, LowerFile, Name, NodeId, OpSet, OpenFlags,
    Opened, OpenedDir, RangeMap, ReadReply, Result, SetAttr, WriteData, Written,
};

/// What the next opens wish for; the last one again and again.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) wishes: Mutex<VecDeque<(Delegation, CacheHint)>>,
    pub(crate) settled: Mutex<Vec<Flows>>,
    pub(crate) panics: AtomicBool,
    pub(crate) forgotten: AtomicU64,
}

/// The file system; its file is `file` and shows the lower file's bytes, whichever way they come.
pub(crate) struct Wishes {
    pub(crate) lower: PathBuf,
    pub(crate) plan: Arc<Plan>,
}

/// An open file, with a lower one of its own.
pub(crate) struct Open {
    lower: File,
}

pub(crate) fn file_node() -> NodeId {
    NodeId::new(2).expect("not zero")
}

impl Plan {
    pub(crate) fn push(&self, wish: Delegation, cache: CacheHint) {
        self.wishes.lock().expect("whole").push_back((wish, cache));
    }

    fn next(&self) -> (Delegation, CacheHint) {
        let mut wishes = self.wishes.lock().expect("whole");
        if wishes.len() > 1 {
            wishes.pop_front().expect("not empty")
        } else {
            wishes.front().cloned().expect("a wish")
        }
    }
}

pub(crate) fn passthrough() -> Delegation {
    Delegation::Passthrough(Backing::OfNode)
}

pub(crate) fn splice() -> Delegation {
    Delegation::Splice(Backing::OfNode)
}

pub(crate) fn ranges(map: impl RangeMap + 'static) -> Delegation {
    Delegation::PerRange(Arc::new(map))
}

impl Wishes {
    fn attr(&self, node: NodeId) -> Result<AttrReply> {
        let attr = match node {
            NodeId::ROOT => Attr::new(1, FileType::Directory, 0o755),
            node if node == file_node() => {
                let found = std::fs::metadata(&self.lower)?;
                Attr { blocks: found.blocks(), size: found.size(), ..Attr::new(2, FileType::Regular, 0o666) }
            }
            _ => return Err(Errno::STALE),
        };
        Ok(attr.valid_for(Duration::ZERO))
    }

    fn lower(&self) -> Result<File> {
        Ok(File::options().read(true).write(true).open(&self.lower)?)
    }
}

impl Filesystem for Wishes {
    type File = Open;
    type Dir = ();

    const OPS: OpSet = OpSet::OPEN.union(OpSet::CREATE);

    fn forget(&self, _: NodeId, lookups: LookupCount) {
        self.plan.forgotten.fetch_add(lookups.0, Ordering::SeqCst);
    }

    fn opened(&self, _: NodeId, _: &Open, flows: Flows) {
        assert!(!self.plan.panics.load(Ordering::SeqCst), "told to");
        self.plan.settled.lock().expect("whole").push(flows);
    }

    fn lower_file(&self, _: NodeId, _: &Open, _: Access) -> Result<Arc<LowerFile>> {
        Ok(Arc::new(LowerFile::new(OwnedFd::from(self.lower()?))))
    }

    async fn lookup(&self, _: &Cx<'_>, _: NodeId, name: Name<'_>) -> Result<Entry> {
        if name.as_bytes() != b"file" {
            return Err(Errno::NOENT);
        }
        Ok(Entry::new(file_node(), self.attr(file_node())?).with_ttl(Duration::MAX))
    }

    async fn getattr(&self, _: &Cx<'_>, node: NodeId, _: Option<&Open>) -> Result<AttrReply> {
        self.attr(node)
    }

    async fn setattr(&self, _: &Cx<'_>, node: NodeId, _: Option<&Open>, set: SetAttr) -> Result<AttrReply> {
        if let Some(size) = set.size {
            self.lower()?.set_len(size)?;
        }
        self.attr(node)
    }

    async fn open(&self, _: &Cx<'_>, _: NodeId, _: OpenFlags) -> Result<Opened<Open>> {
        let (delegation, cache) = self.plan.next();
        Ok(Opened::new(Open { lower: self.lower()? }, delegation).with_cache(cache))
    }

    /// Whatever the name, it makes the one file again.
    async fn create(&self, _: &Cx<'_>, _: Create<'_>) -> Result<(Entry, Opened<Open>)> {
        let entry = Entry::new(file_node(), self.attr(file_node())?);
        let (delegation, cache) = self.plan.next();
        Ok((entry, Opened::new(Open { lower: self.lower()? }, delegation).with_cache(cache)))
    }

    async fn read<'q>(
        &self,
        cx: &Cx<'_>,
        file: &Open,
        at: ByteRange,
        reply: ReadReply<'q>,
    ) -> Result<Filled<'q>> {
        assert!(cx.pid() != 0);
        let mut out = reply.cursor();
        out.read_at(&file.lower, at.offset, at.len as usize)?;
        Ok(out.finish())
    }

    async fn write(&self, _: &Cx<'_>, file: &Open, at: u64, data: WriteData<'_>) -> Result<Written> {
        let written = file.lower.write_at(data.as_slice(), at)?;
        u32::try_from(written).map(Written).map_err(|_| Errno::IO)
    }

    async fn opendir(&self, _: &Cx<'_>, _: NodeId, _: OpenFlags) -> Result<OpenedDir<()>> {
        Ok(OpenedDir::new(()))
    }

    async fn readdir<'q>(
        &self,
        _: &Cx<'_>,
        _: NodeId,
        (): &(),
        _: u64,
        out: DirSink<'q>,
    ) -> Result<Listed<'q>> {
        Ok(out.finish())
    }
}
