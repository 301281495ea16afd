//! A FUSE server below a sealed tree that is not what it says: one file, with the digest that was sealed and any bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use shuntfs::{
    Attr, AttrReply, ByteRange, Cx, Entry, Errno, FileType, Filesystem, Filled, Ioctl, IoctlReply,
    IoctlTarget, Name, NodeId, OpSet, OpenFlags, Opened, ReadReply, Result,
};
use shuntfs_verified::seal_ioctl;
use shuntfs_verity::Digest;

/// How long it can be stopped for.
const HANG: Duration = Duration::from_secs(30);

/// The file system. Its file is `file`.
#[derive(Debug)]
pub(crate) struct Liar {
    /// What is read of the file.
    pub(crate) bytes: Vec<u8>,
    /// What it says that the kernel has measured.
    pub(crate) digest: Digest,
    pub(crate) state: Arc<State>,
}

/// What a test has in its hand.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// How often it was asked for the digest.
    pub(crate) measured: AtomicU64,
    /// Whether it answers nothing about its file.
    pub(crate) hangs: AtomicBool,
    /// How many wait for an answer.
    pub(crate) waiting: AtomicU64,
}

fn file() -> NodeId {
    NodeId::new(2).unwrap()
}

impl Liar {
    fn attr(&self, node: NodeId) -> AttrReply {
        let attr = if node == file() {
            Attr::new(2, FileType::Regular, 0o644).with_size(self.bytes.len() as u64)
        } else {
            Attr::new(1, FileType::Directory, 0o755)
        };
        attr.valid_for(Duration::ZERO)
    }

    fn may_hang(&self) {
        self.state.waiting.fetch_add(1, Ordering::SeqCst);
        let start = std::time::Instant::now();
        while self.state.hangs.load(Ordering::SeqCst) && start.elapsed() < HANG {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.state.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Filesystem for Liar {
    type File = ();
    type Dir = ();

    const OPS: OpSet = OpSet::OPEN.union(OpSet::IOCTL);

    async fn lookup(&self, _: &Cx<'_>, _: NodeId, name: Name<'_>) -> Result<Entry> {
        if name.as_bytes() != b"file" {
            return Err(Errno::NOENT);
        }
        self.may_hang();
        Ok(Entry::new(file(), self.attr(file())))
    }

    async fn getattr(&self, _: &Cx<'_>, node: NodeId, _: Option<&()>) -> Result<AttrReply> {
        Ok(self.attr(node))
    }

    async fn open(&self, _: &Cx<'_>, _: NodeId, _: OpenFlags) -> Result<Opened<()>> {
        Ok(Opened::served(()))
    }

    async fn read<'q>(&self, _: &Cx<'_>, (): &(), at: ByteRange, reply: ReadReply<'q>) -> Result<Filled<'q>> {
        reply.copy_from_slice(at.of(&self.bytes))
    }

    async fn ioctl<'q>(
        &self,
        _: &Cx<'_>,
        _: IoctlTarget<'_, Self>,
        op: Ioctl<'_>,
        reply: IoctlReply<'q>,
    ) -> Result<Filled<'q>> {
        self.state.measured.fetch_add(1, Ordering::SeqCst);
        let room = usize::try_from(op.output_max).unwrap_or(0);
        let said = seal_ioctl(&self.digest, op.command, op.input, room).ok_or(Errno::NOTTY)?;
        reply.answer(0, &said?)
    }
}
