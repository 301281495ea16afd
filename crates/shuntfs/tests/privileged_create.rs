//! CREATE of a file system that answers no OPEN. The kernel learns that opens are not answered at the first OPEN, and from then on
//! sends no RELEASE, not even for a file that CREATE opened: whatever such an answer kept would be kept for ever.

mod common;

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use common::{Mounted, on_each_transport};
use parking_lot::Mutex;
use shuntfs::{
    Attr, AttrReply, ByteRange, Create, Cx, Entry, Errno, FileType, Filesystem, Filled, Name, NodeId, OpSet,
    Opcode, OpenFlags, Opened, ReadReply, Result, SetAttr, WriteData, Written,
};

/// What there is of the file system.
#[derive(Default)]
struct State {
    names: Mutex<HashMap<Vec<u8>, NodeId>>,
    bytes: Mutex<HashMap<NodeId, Vec<u8>>>,
    made: AtomicU64,
    /// Open files that were not dropped yet.
    open: AtomicUsize,
    released: AtomicUsize,
}

/// Files in one folder.
struct Files(Arc<State>);

struct Open(Arc<State>);

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

impl Files {
    fn attr(&self, node: NodeId) -> AttrReply {
        let attr = match self.0.bytes.lock().get(&node) {
            Some(bytes) => Attr::new(node.get(), FileType::Regular, 0o644).with_size(bytes.len() as u64),
            None => Attr::new(node.get(), FileType::Directory, 0o755),
        };
        attr.valid_for(Duration::MAX)
    }
}

impl Filesystem for Files {
    type File = Open;
    type Dir = ();

    const OPS: OpSet = OpSet::CREATE;

    async fn lookup(&self, _: &Cx<'_>, _: NodeId, name: Name<'_>) -> Result<Entry> {
        let found = self.0.names.lock().get(name.as_bytes()).copied();
        Ok(found.map_or(Entry::negative(Duration::MAX), |node| Entry::new(node, self.attr(node))))
    }

    async fn getattr(&self, _: &Cx<'_>, node: NodeId, _: Option<&Open>) -> Result<AttrReply> {
        Ok(self.attr(node))
    }

    async fn setattr(&self, _: &Cx<'_>, node: NodeId, _: Option<&Open>, set: SetAttr) -> Result<AttrReply> {
        if let (Some(size), Some(bytes)) = (set.size, self.0.bytes.lock().get_mut(&node)) {
            bytes.resize(usize::try_from(size).map_err(|_| Errno::FBIG)?, 0);
        }
        Ok(self.attr(node))
    }

    async fn open(&self, _: &Cx<'_>, node: NodeId, _: OpenFlags) -> Result<Opened<Open>> {
        assert_ne!(node, NodeId::ROOT);
        Ok(Opened::served(Open::new(&self.0)))
    }

    async fn create(&self, _: &Cx<'_>, op: Create<'_>) -> Result<(Entry, Opened<Open>)> {
        let number = self.0.made.fetch_add(1, Ordering::SeqCst) + 2;
        let node = NodeId::try_from(number)?;
        self.0.names.lock().insert(op.name.as_bytes().to_vec(), node);
        self.0.bytes.lock().insert(node, Vec::new());
        Ok((Entry::new(node, self.attr(node)), Opened::served(Open::new(&self.0))))
    }

    async fn unlink(&self, _: &Cx<'_>, _: NodeId, name: Name<'_>) -> Result<()> {
        self.0.names.lock().remove(name.as_bytes()).ok_or(Errno::NOENT).map(drop)
    }

    async fn read<'q>(
        &self,
        cx: &Cx<'_>,
        _: &Open,
        at: ByteRange,
        reply: ReadReply<'q>,
    ) -> Result<Filled<'q>> {
        let node = cx.node();
        reply.copy_from_slice(at.of(self.0.bytes.lock().get(&node).ok_or(Errno::STALE)?))
    }

    async fn write(&self, cx: &Cx<'_>, _: &Open, at: u64, data: WriteData<'_>) -> Result<Written> {
        let mut bytes = self.0.bytes.lock();
        let bytes = bytes.get_mut(&cx.node()).ok_or(Errno::STALE)?;
        let start = usize::try_from(at).map_err(|_| Errno::FBIG)?;
        bytes.resize(bytes.len().max(start + data.as_slice().len()), 0);
        bytes[start..start + data.as_slice().len()].copy_from_slice(data.as_slice());
        Ok(data.written())
    }

    async fn release(&self, _: &Cx<'_>, _: NodeId, _: Arc<Open>, _: Option<shuntfs::LockOwner>) {
        self.0.released.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn what_create_opens_is_not_kept_where_opens_are_not_answered() {
    const COUNT: u64 = 500;
    on_each_transport(|options| {
        let state = Arc::new(State::default());
        let mounted = Mounted::new(Files(Arc::clone(&state)), options);
        for index in 0..COUNT {
            let path = mounted.join("file");
            let mut file = File::create_new(&path).unwrap();
            file.write_all(index.to_string().as_bytes()).unwrap();
            file.sync_all().unwrap();
            drop(file);
            // This OPEN is what tells the kernel; so are the ones of all later rounds, if there are any.
            assert_eq!(fs::read_to_string(&path).unwrap(), index.to_string());
            fs::remove_file(&path).unwrap();
        }
        let status = mounted.session().status();
        assert_eq!((status.requests(Opcode::Create), status.requests(Opcode::Open)), (COUNT, 1));
        assert!(status.requests(Opcode::Release) <= 1, "the kernel sends none once it knows");
        assert_eq!(status.nodes_open, 0);
        assert_eq!(state.open.load(Ordering::SeqCst), 0, "open files of {COUNT}");
        assert_eq!(state.released.load(Ordering::SeqCst), 0, "there is nothing to be released");
        assert_eq!((status.malformed, status.panics), (0, 0));
        mounted.end();
    });
}
