//! A file system of one folder and one file that does what a good one does not: it panics, answers ENOSYS, waits
//! forever, and answers attributes from what it was asked.

use std::ffi::CStr;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use shuntfs::{
    Attr, AttrReply, Cx, DirSink, Entry, Errno, FileType, Filesystem, Filled, InitError, Ioctl, IoctlReply,
    IoctlTarget, Listed, LockRequest, LookupCount, Name, NodeId, Offered, OpSet, OpenFlags, Opened,
    OpenedDir, ReadReply, Result, SetXattr, Statfs, Wanted,
};

/// What happened, for the test to see.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) forgotten: AtomicU64,
    pub(crate) released: AtomicU64,
    pub(crate) interrupted: AtomicU64,
    pub(crate) size: AtomicU64,
}

#[derive(Debug, Default)]
pub(crate) struct Odd(pub(crate) Arc<Seen>);

/// An open file says when it is gone.
#[derive(Debug)]
pub(crate) struct Open(Arc<Seen>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.released.fetch_add(1, Ordering::SeqCst);
    }
}

impl Odd {
    fn attr(&self, node: NodeId) -> AttrReply {
        let size = self.0.size.load(Ordering::SeqCst);
        let attr = match node {
            NodeId::ROOT => Attr::new(1, FileType::Directory, 0o777),
            node => Attr { size, ..Attr::new(node.get(), FileType::Regular, 0o666) },
        };
        attr.valid_for(Duration::MAX)
    }
}

/// Resolves to `None` where `one` does first.
async fn first<T>(one: impl Future<Output = ()>, other: impl Future<Output = T>) -> Option<T> {
    let (mut one, mut other) = (pin!(one), pin!(other));
    std::future::poll_fn(|cx| match (other.as_mut().poll(cx), one.as_mut().poll(cx)) {
        (Poll::Ready(value), _) => Poll::Ready(Some(value)),
        (_, Poll::Ready(())) => Poll::Ready(None),
        _ => Poll::Pending,
    })
    .await
}

impl Filesystem for Odd {
    type File = Open;
    type Dir = ();

    const OPS: OpSet =
        OpSet::OPEN.union(OpSet::XATTR).union(OpSet::IOCTL).union(OpSet::FLOCK_LOCKS).union(OpSet::FSYNC);

    fn init(&self, _: &Offered) -> std::result::Result<Wanted, InitError> {
        // More than this type answers: the library takes the part that both agree on.
        Ok(Wanted { ops: Some(OpSet::all()), ..Wanted::default() })
    }

    fn forget(&self, _: NodeId, lookups: LookupCount) {
        self.0.forgotten.fetch_add(lookups.0, Ordering::SeqCst);
    }

    async fn lookup(&self, cx: &Cx<'_>, _: NodeId, name: Name<'_>) -> Result<Entry> {
        match name.as_bytes() {
            b"panics" => panic!("told to"),
            b"panics-later" => {
                cx.offload(|| std::thread::sleep(Duration::from_millis(5))).await;
                panic!("told to, after a while")
            }
            b"nosys" => Err(Errno::NOSYS),
            b"missing" => Ok(Entry::negative(Duration::MAX)),
            b"offloaded" => Err(cx.offload(|| Errno::DQUOT).await),
            _ => {
                let node = NodeId::new(2).ok_or(Errno::IO)?;
                Ok(Entry::new(node, self.attr(node)))
            }
        }
    }

    async fn getattr(&self, _: &Cx<'_>, node: NodeId, _: Option<&Open>) -> Result<AttrReply> {
        Ok(self.attr(node))
    }

    async fn open(&self, _: &Cx<'_>, _: NodeId, _: OpenFlags) -> Result<Opened<Open>> {
        Ok(Opened::served(Open(Arc::clone(&self.0))).with_flush())
    }

    async fn fsync(&self, _: &Cx<'_>, _: &Open, _: bool) -> Result<()> {
        Err(Errno::NOSYS)
    }

    async fn setlk(&self, cx: &Cx<'_>, _: NodeId, _: &Open, lock: LockRequest) -> Result<()> {
        if !lock.wait {
            return Err(Errno::AGAIN);
        }
        if first(cx.interrupted(), std::future::pending::<()>()).await.is_none() {
            self.0.interrupted.fetch_add(1, Ordering::SeqCst);
        }
        Err(Errno::INTR)
    }

    async fn ioctl<'q>(
        &self,
        _: &Cx<'_>,
        _: IoctlTarget<'_, Self>,
        op: Ioctl<'_>,
        reply: IoctlReply<'q>,
    ) -> Result<Filled<'q>> {
        // The input is a copy, so it can be read while the reply is written.
        let answer = vec![op.input.first().copied().unwrap_or_default(); op.output_max as usize];
        reply.answer(3, &answer)
    }

    async fn getxattr<'q>(
        &self,
        cx: &Cx<'_>,
        _: NodeId,
        name: &CStr,
        reply: ReadReply<'q>,
    ) -> Result<Filled<'q>> {
        if name.to_bytes() == b"user.waits" {
            // The reply, which holds the request's memory, is there meanwhile.
            cx.interrupted().await;
            self.0.interrupted.fetch_add(1, Ordering::SeqCst);
            return if reply.capacity() == 1 { Err(Errno::IO) } else { Err(Errno::INTR) };
        }
        if name.to_bytes().starts_with(b"user.mirror") {
            let value = name.to_bytes().repeat(8);
            return if reply.capacity() == 0 {
                Ok(reply.length(value.len()))
            } else {
                reply.copy_from_slice(&value)
            };
        }
        Err(Errno::NODATA)
    }

    async fn listxattr<'q>(&self, _: &Cx<'_>, _: NodeId, reply: ReadReply<'q>) -> Result<Filled<'q>> {
        reply.copy_from_slice(b"user.mirror\0user.other\0")
    }

    async fn setxattr(&self, _: &Cx<'_>, op: SetXattr<'_>) -> Result<()> {
        if op.value == b"fine" { Ok(()) } else { Err(Errno::NOSPC) }
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

    async fn statfs(&self, _: &Cx<'_>, _: NodeId) -> Result<Statfs> {
        Ok(Statfs { blocks: 77, namelen: 99, ..Statfs::default() })
    }
}
