//! Folders and files in memory, whose numbers outlive a mount, and which answer the operations that a test chooses.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use shuntfs::{
    Attr, AttrReply, ByteRange, CacheHint, Create, Cx, DirSink, Entry, Errno, FileType, Filesystem, Filled,
    Generation, InitError, Listed, Mkdir, Name, NodeId, Offered, OpSet, OpenFlags, Opened, OpenedDir, Poll,
    PollEvents, PollHandle, ReadReply, Result, SetAttr, Wanted, WriteData, Written,
};

/// The file system of one mount.
pub(crate) struct Shelf {
    pub(crate) state: Arc<State>,
    pub(crate) wanted: Wanted,
}

/// What there is, and what happened; several mounts may show it.
#[derive(Default)]
pub(crate) struct State {
    items: Mutex<HashMap<NodeId, Item>>,
    made: AtomicU64,
    /// Open files that were not dropped yet.
    pub(crate) open: AtomicUsize,
    pub(crate) released: AtomicUsize,
    /// Whether files have something to be read.
    pub(crate) ready: AtomicBool,
    /// Who asked to be told of it.
    pub(crate) waiter: Mutex<Option<PollHandle>>,
    /// The generation of what is made from now on.
    pub(crate) generation: AtomicU64,
}

struct Item {
    parent: NodeId,
    generation: Generation,
    content: Content,
}

enum Content {
    Folder(BTreeMap<Vec<u8>, NodeId>),
    File(Vec<u8>),
}

/// An open file.
pub(crate) struct Open(Arc<State>);

impl Open {
    fn new(state: &Arc<State>) -> Self {
        state.open.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(state))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

impl State {
    /// An empty shelf.
    pub(crate) fn new() -> Arc<Self> {
        let state = Self::default();
        state.made.store(1, Ordering::SeqCst);
        let root = Item {
            parent: NodeId::ROOT,
            generation: Generation(0),
            content: Content::Folder(BTreeMap::new()),
        };
        state.items.lock().insert(NodeId::ROOT, root);
        Arc::new(state)
    }

    /// Takes a node away from everywhere, and gives its number to a new, empty file of the name.
    pub(crate) fn replace(&self, node: NodeId) {
        let generation = Generation(self.generation.fetch_add(1, Ordering::SeqCst) + 1);
        if let Some(item) = self.items.lock().get_mut(&node) {
            (item.generation, item.content) = (generation, Content::File(Vec::new()));
        }
    }

    /// The bytes of a file.
    pub(crate) fn bytes(&self, node: NodeId) -> Vec<u8> {
        match self.items.lock().get(&node) {
            Some(Item { content: Content::File(bytes), .. }) => bytes.clone(),
            _ => Vec::new(),
        }
    }

    fn entry(&self, node: NodeId) -> Result<Entry> {
        let items = self.items.lock();
        let item = items.get(&node).ok_or(Errno::STALE)?;
        Ok(Entry::new(node, attr(node, item)).with_generation(item.generation))
    }

    fn make(&self, parent: NodeId, name: Name<'_>, content: Content) -> Result<NodeId> {
        let node = NodeId::try_from(self.made.fetch_add(1, Ordering::SeqCst) + 1)?;
        let generation = Generation(self.generation.load(Ordering::SeqCst));
        let mut items = self.items.lock();
        let Some(Item { content: Content::Folder(names), .. }) = items.get_mut(&parent) else {
            return Err(Errno::NOTDIR);
        };
        names.insert(name.as_bytes().to_vec(), node);
        items.insert(node, Item { parent, generation, content });
        Ok(node)
    }

    fn with_bytes<T>(&self, node: NodeId, work: impl FnOnce(&mut Vec<u8>) -> T) -> Result<T> {
        match self.items.lock().get_mut(&node) {
            Some(Item { content: Content::File(bytes), .. }) => Ok(work(bytes)),
            Some(_) => Err(Errno::ISDIR),
            None => Err(Errno::STALE),
        }
    }
}

fn attr(node: NodeId, item: &Item) -> AttrReply {
    let attr = match &item.content {
        Content::Folder(_) => Attr::new(node.get(), FileType::Directory, 0o755),
        Content::File(bytes) => Attr::new(node.get(), FileType::Regular, 0o644).with_size(bytes.len() as u64),
    };
    attr.valid_for(Duration::MAX)
}

impl Filesystem for Shelf {
    type File = Open;
    type Dir = ();

    const OPS: OpSet =
        OpSet::CREATE.union(OpSet::OPEN).union(OpSet::POLL).union(OpSet::EXPORT).union(OpSet::POSIX_LOCKS);

    fn init(&self, _: &Offered) -> std::result::Result<Wanted, InitError> {
        Ok(self.wanted)
    }

    async fn lookup(&self, _: &Cx<'_>, parent: NodeId, name: Name<'_>) -> Result<Entry> {
        let found = match self.state.items.lock().get(&parent) {
            Some(Item { content: Content::Folder(names), .. }) => names.get(name.as_bytes()).copied(),
            _ => return Err(Errno::STALE),
        };
        found.map_or(Ok(Entry::negative(Duration::MAX)), |node| self.state.entry(node))
    }

    async fn lookup_node(&self, _: &Cx<'_>, node: NodeId) -> Result<Entry> {
        self.state.entry(node)
    }

    async fn lookup_parent(&self, _: &Cx<'_>, node: NodeId) -> Result<Entry> {
        let parent = self.state.items.lock().get(&node).map(|item| item.parent);
        self.state.entry(parent.ok_or(Errno::STALE)?)
    }

    async fn getattr(&self, _: &Cx<'_>, node: NodeId, _: Option<&Open>) -> Result<AttrReply> {
        self.state.items.lock().get(&node).map(|item| attr(node, item)).ok_or(Errno::STALE)
    }

    async fn setattr(&self, _: &Cx<'_>, node: NodeId, _: Option<&Open>, set: SetAttr) -> Result<AttrReply> {
        if let Some(size) = set.size {
            let size = usize::try_from(size).map_err(|_| Errno::FBIG)?;
            self.state.with_bytes(node, |bytes| bytes.resize(size, 0))?;
        }
        self.state.items.lock().get(&node).map(|item| attr(node, item)).ok_or(Errno::STALE)
    }

    async fn mkdir(&self, _: &Cx<'_>, op: Mkdir<'_>) -> Result<Entry> {
        let node = self.state.make(op.parent, op.name, Content::Folder(BTreeMap::new()))?;
        self.state.entry(node)
    }

    async fn unlink(&self, _: &Cx<'_>, parent: NodeId, name: Name<'_>) -> Result<()> {
        match self.state.items.lock().get_mut(&parent) {
            Some(Item { content: Content::Folder(names), .. }) => {
                names.remove(name.as_bytes()).ok_or(Errno::NOENT).map(drop)
            }
            _ => Err(Errno::STALE),
        }
    }

    async fn open(&self, _: &Cx<'_>, node: NodeId, _: OpenFlags) -> Result<Opened<Open>> {
        assert_ne!(node, NodeId::ROOT);
        Ok(Opened::served(Open::new(&self.state)).with_cache(CacheHint::Keep))
    }

    async fn create(&self, _: &Cx<'_>, op: Create<'_>) -> Result<(Entry, Opened<Open>)> {
        let node = self.state.make(op.parent, op.name, Content::File(Vec::new()))?;
        Ok((self.state.entry(node)?, Opened::served(Open::new(&self.state)).with_cache(CacheHint::Keep)))
    }

    async fn read<'q>(
        &self,
        cx: &Cx<'_>,
        _: &Open,
        at: ByteRange,
        reply: ReadReply<'q>,
    ) -> Result<Filled<'q>> {
        reply.copy_from_slice(&self.state.with_bytes(cx.node(), |bytes| at.of(bytes).to_vec())?)
    }

    async fn write(&self, cx: &Cx<'_>, _: &Open, at: u64, data: WriteData<'_>) -> Result<Written> {
        let start = usize::try_from(at).map_err(|_| Errno::FBIG)?;
        let end = start + data.as_slice().len();
        self.state.with_bytes(cx.node(), |bytes| {
            bytes.resize(bytes.len().max(end), 0);
            bytes[start..end].copy_from_slice(data.as_slice());
        })?;
        Ok(data.written())
    }

    async fn poll(&self, _: &Cx<'_>, _: &Open, op: Poll) -> Result<PollEvents> {
        // The waiter first: what becomes ready in between is told, if for nothing.
        if let Some(waiter) = op.waiter {
            *self.state.waiter.lock() = Some(waiter);
        }
        let is_ready = self.state.ready.load(Ordering::SeqCst);
        Ok(if is_ready { PollEvents::IN | PollEvents::READ_NORMAL } else { PollEvents::empty() })
    }

    async fn release(&self, _: &Cx<'_>, _: NodeId, _: Arc<Open>, _: Option<shuntfs::LockOwner>) {
        self.state.released.fetch_add(1, Ordering::SeqCst);
    }

    async fn opendir(&self, _: &Cx<'_>, _: NodeId, _: OpenFlags) -> Result<OpenedDir<()>> {
        Ok(OpenedDir::new(()))
    }

    async fn readdir<'q>(
        &self,
        _: &Cx<'_>,
        node: NodeId,
        (): &(),
        cookie: u64,
        out: DirSink<'q>,
    ) -> Result<Listed<'q>> {
        match self.state.items.lock().get(&node) {
            Some(Item { content: Content::Folder(names), .. }) => {
                Ok(out.list(cookie, names.iter().map(|(name, node)| (node.get(), None, name))))
            }
            _ => Err(Errno::NOTDIR),
        }
    }
}
