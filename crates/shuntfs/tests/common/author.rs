//! A file system whose author does everything wrong that the interface lets through: leaks, drops and joins operations, returns and
//! panics while they are under way, and polls with wakers of its own. Each file is one way to do so.

use std::future::{Future, poll_fn};
use std::io::{PipeWriter, Write};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use shuntfs::{
    Attr, AttrReply, Backing, ByteRange, CacheHint, Cx, Delegation, Entry, Errno, Filesystem, Filled, Judge,
    LockRequest, LockType, LowerFile, Name, NodeId, OpSet, OpenFlags, Opened, RangeMap, RangeSource,
    ReadReply, Result, WriteData, Written,
};

/// What each file's handler does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// READ: answers with [`PLAIN`] at once.
    Plain,
    /// READ: the same, but waits for the gate while the bytes lie in the payload.
    Waits,
    /// READ: polls a read of the pipe once, forgets it, and returns EMLINK.
    Forgets,
    /// READ: the same, and panics.
    Panics,
    /// READ: gives a read of the hung file up when the gate opens, and returns EMLINK.
    Selects,
    /// READ: awaits many reads of the lower file at once.
    Joins,
    /// READ: lends a draft to threads that wait for the gate, forgets them, and returns EMLINK.
    Lends,
    /// READ: wakes itself until the gate opens.
    Spins,
    /// READ: blocks its thread until the gate opens.
    Blocks,
    /// READ: awaits a read of the pipe by a waker that panics.
    Wakes,
    /// READ: awaits a signal by a waker of its own.
    Nested,
    /// WRITE: polls a write to the pipe once, forgets it, and says that all is written.
    Writes,
    /// Bytes come from a lower file that is opened anew for each request, and closed when it was named.
    Ranges,
    /// Bytes are the lower file's.
    Relayed,
}

const WAYS: [(&[u8], Way); 14] = [
    (b"plain", Way::Plain),
    (b"waits", Way::Waits),
    (b"forgets", Way::Forgets),
    (b"panics", Way::Panics),
    (b"selects", Way::Selects),
    (b"joins", Way::Joins),
    (b"lends", Way::Lends),
    (b"spins", Way::Spins),
    (b"blocks", Way::Blocks),
    (b"wakes", Way::Wakes),
    (b"nested", Way::Nested),
    (b"writes", Way::Writes),
    (b"ranges", Way::Ranges),
    (b"relayed", Way::Relayed),
];

/// What fills a plain answer.
pub(crate) const PLAIN: u8 = b'p';
/// How long every file is, the lower one too, whose byte at an offset is [`pattern`].
pub(crate) const SIZE: usize = 1 << 20;
/// How much a handler that joins reads at a time, and how often.
const JOINED: (usize, usize) = (512, 128);

pub(crate) fn pattern(offset: usize) -> u8 {
    u8::try_from(offset % 251).expect("small")
}

/// What the test gives to the handlers and sees of them.
#[derive(Debug)]
pub(crate) struct Stage {
    /// Gives its bytes when the test says so, or takes no more.
    pub(crate) pipe: Arc<LowerFile>,
    /// Where what the pipe gives is put in.
    pub(crate) into: PipeWriter,
    pub(crate) lower: Arc<LowerFile>,
    /// A file whose reads cannot be ended.
    pub(crate) hung: Mutex<Option<Arc<LowerFile>>>,
    pub(crate) gate: Arc<Gate>,
    /// Parts of drafts that were looked at whole, and those that had changed.
    pub(crate) seen: [AtomicUsize; 2],
    pub(crate) interrupted: AtomicUsize,
}

/// Keeps threads waiting until it is opened.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    is_open: Mutex<bool>,
    opens: Condvar,
}

impl Gate {
    pub(crate) fn open(&self) {
        *self.is_open.lock().expect("whole") = true;
        self.opens.notify_all();
    }

    pub(crate) fn is_open(&self) -> bool {
        *self.is_open.lock().expect("whole")
    }

    fn wait(&self) {
        let is_open = self.is_open.lock().expect("whole");
        drop(self.opens.wait_while(is_open, |is_open| !*is_open).expect("whole"));
    }
}

pub(crate) struct Author(pub(crate) Arc<Stage>);

/// Polls a future once, and never again.
async fn poll_once<F: Future>(future: &mut Pin<Box<F>>) -> bool {
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_ready())).await
}

/// The first of two to end; the other is dropped.
async fn first<T>(one: impl Future<Output = ()>, other: impl Future<Output = T>) -> Option<T> {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|cx| match (other.as_mut().poll(cx), one.as_mut().poll(cx)) {
        (Poll::Ready(value), _) => Poll::Ready(Some(value)),
        (_, Poll::Ready(())) => Poll::Ready(None),
        _ => Poll::Pending,
    })
    .await
}

/// All of several futures.
async fn all<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut futures: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    poll_fn(|cx| {
        for (future, done) in &mut futures {
            if done.is_none()
                && let Poll::Ready(value) = future.as_mut().poll(cx)
            {
                *done = Some(value);
            }
        }
        if futures.iter().all(|(_, done)| done.is_some()) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    futures.into_iter().filter_map(|(_, done)| done).collect()
}

/// Polls a future only when that future's own waker was woken, as collections of futures do.
async fn by_its_own_waker<F: Future>(future: F) -> F::Output {
    struct Own {
        is_woken: AtomicBool,
        outer: Waker,
    }
    impl Wake for Own {
        fn wake(self: Arc<Self>) {
            self.is_woken.store(true, Ordering::SeqCst);
            self.outer.wake_by_ref();
        }
    }
    let mut future = pin!(future);
    let mut own: Option<Arc<Own>> = None;
    poll_fn(|cx| {
        let outer = cx.waker().clone();
        let own = own.get_or_insert_with(|| Arc::new(Own { is_woken: true.into(), outer }));
        if !own.is_woken.swap(false, Ordering::SeqCst) {
            return Poll::Pending;
        }
        future.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(own))))
    })
    .await
}

/// A waker whose loop does not survive it.
struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("told to");
    }
}

impl Author {
    fn plain<'q>(at: ByteRange, reply: ReadReply<'q>) -> Result<Filled<'q>> {
        let mut out = reply.cursor();
        let left = SIZE.saturating_sub(usize::try_from(at.offset).unwrap_or(SIZE));
        out.put(&vec![PLAIN; left.min(at.len as usize)])?;
        Ok(out.finish())
    }

    async fn wait(&self, cx: &Cx<'_>) {
        let gate = Arc::clone(&self.0.gate);
        cx.offload(move || gate.wait()).await;
    }

    async fn joined(&self, cx: &Cx<'_>, at: ByteRange) -> Result<Vec<u8>> {
        let (len, count) = JOINED;
        let read = |nth: usize| {
            let offset = at.offset + (nth * len) as u64;
            cx.read_lower(&self.0.lower, vec![0; len], offset)
        };
        all((0..count).map(read).collect())
            .await
            .into_iter()
            .collect::<Result<Vec<_>>>()
            .map(|all| all.concat())
    }

    async fn lend(&self, cx: &Cx<'_>, at: ByteRange, reply: ReadReply<'_>) -> Result<()> {
        let draft = reply.draft_from(cx, &self.0.lower, at).await?;
        let (stage, start) = (Arc::clone(&self.0), usize::try_from(at.offset).expect("64 bits"));
        let judge: Judge<()> = Arc::new(move |bytes, part| {
            if part.start > 0 {
                stage.gate.wait();
                let is_whole = (0..).zip(bytes).all(|(at, byte)| *byte == pattern(start + part.start + at));
                stage.seen[usize::from(!is_whole)].fetch_add(1, Ordering::SeqCst);
            }
        });
        let parts: Vec<_> = (0..4).map(|part| part * 4096..(part + 1) * 4096).collect();
        let mut examined = Box::pin(draft.examine(&parts, &judge));
        assert!(!poll_once(&mut examined).await);
        std::mem::forget(examined);
        Ok(())
    }

    async fn misbehave<'q>(
        &self,
        cx: &Cx<'_>,
        way: Way,
        at: ByteRange,
        reply: ReadReply<'q>,
    ) -> Result<Filled<'q>> {
        match way {
            Way::Waits => {
                let filled = Self::plain(at, reply);
                self.wait(cx).await;
                filled
            }
            Way::Forgets | Way::Panics => {
                let mut reading = Box::pin(reply.read_from(cx, &self.0.pipe, u64::MAX));
                assert!(!poll_once(&mut reading).await);
                std::mem::forget(reading);
                assert!(way == Way::Forgets, "told to");
                Err(Errno::MLINK)
            }
            Way::Selects => {
                let hung = self.0.hung.lock().expect("whole").clone().ok_or(Errno::BADF)?;
                match first(self.wait(cx), reply.read_from(cx, &hung, at.offset)).await {
                    Some(filled) => filled,
                    None => Err(Errno::MLINK),
                }
            }
            Way::Joins => reply.copy_from_slice(&self.joined(cx, at).await?),
            Way::Lends => self.lend(cx, at, reply).await.and(Err(Errno::MLINK)),
            Way::Spins => {
                poll_fn(|cx| {
                    cx.waker().wake_by_ref();
                    if self.0.gate.is_open() { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
                Self::plain(at, reply)
            }
            Way::Blocks => {
                self.0.gate.wait();
                Self::plain(at, reply)
            }
            Way::Wakes => {
                let mut reading = pin!(reply.read_from(cx, &self.0.pipe, u64::MAX));
                let waker = Waker::from(Arc::new(Panics));
                assert!(reading.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
                (&self.0.into).write_all(b"bytes").map_err(|_| Errno::IO)?;
                std::future::pending().await
            }
            Way::Nested => {
                by_its_own_waker(cx.interrupted()).await;
                self.0.interrupted.fetch_add(1, Ordering::SeqCst);
                Err(Errno::INTR)
            }
            _ => Self::plain(at, reply),
        }
    }
}

/// The lower file's bytes, by a descriptor of their own each time.
#[derive(Debug)]
struct Anew(Arc<LowerFile>);

impl RangeMap for Anew {
    fn source(&self, offset: u64) -> (RangeSource, u64) {
        use std::os::fd::AsFd;
        let fd = self.0.as_fd().try_clone_to_owned().expect("dup");
        // Not of the whole file, which would be lifted to passthrough.
        (RangeSource::Lower(Arc::new(LowerFile::new(fd)), offset), 1 << 16)
    }
}

fn way_of(node: NodeId) -> Option<Way> {
    usize::try_from(node.get()).ok()?.checked_sub(2).and_then(|at| WAYS.get(at)).map(|(_, way)| *way)
}

fn attr(node: NodeId) -> AttrReply {
    let attr = match node {
        NodeId::ROOT => Attr { ino: 1, mode: 0o040_755, nlink: 2, ..Attr::default() },
        node => Attr { ino: node.get(), mode: 0o100_666, nlink: 1, size: SIZE as u64, ..Attr::default() },
    };
    AttrReply { attr, ttl: Duration::MAX }
}

impl Filesystem for Author {
    type File = Way;
    type Dir = ();

    const OPS: OpSet = OpSet::OPEN.union(OpSet::FLOCK_LOCKS);

    async fn lookup(&self, _: &Cx<'_>, _: NodeId, name: Name<'_>) -> Result<Entry> {
        let at = WAYS.iter().position(|(known, _)| *known == name.as_bytes()).ok_or(Errno::NOENT)?;
        let node = NodeId::new(at as u64 + 2).ok_or(Errno::IO)?;
        Ok(Entry::new(node, attr(node)))
    }

    async fn getattr(&self, _: &Cx<'_>, node: NodeId, _: Option<&Way>) -> Result<AttrReply> {
        Ok(attr(node))
    }

    async fn open(&self, _: &Cx<'_>, node: NodeId, _: OpenFlags) -> Result<Opened<Way>> {
        let file = way_of(node).ok_or(Errno::ISDIR)?;
        let delegation = match file {
            Way::Ranges => Delegation::PerRange(Arc::new(Anew(Arc::clone(&self.0.lower)))),
            Way::Relayed => Delegation::Splice(Backing::File(Arc::clone(&self.0.lower))),
            _ => Delegation::Served,
        };
        Ok(Opened { file, delegation, cache: CacheHint::Direct, flush: false })
    }

    async fn read<'q>(
        &self,
        cx: &Cx<'_>,
        file: &Way,
        at: ByteRange,
        reply: ReadReply<'q>,
    ) -> Result<Filled<'q>> {
        self.misbehave(cx, *file, at, reply).await
    }

    /// Whoever waits for a lock has it when the gate opens.
    async fn setlk(&self, cx: &Cx<'_>, _: NodeId, _: &Way, lock: LockRequest) -> Result<()> {
        if lock.range.kind == LockType::Unlock || self.0.gate.is_open() {
            return Ok(());
        }
        if !lock.wait {
            return Err(Errno::AGAIN);
        }
        self.wait(cx).await;
        Ok(())
    }

    async fn write(&self, cx: &Cx<'_>, _: &Way, _: u64, data: WriteData<'_>) -> Result<Written> {
        let mut writing = Box::pin(data.write_to(cx, &self.0.pipe, u64::MAX));
        assert!(!poll_once(&mut writing).await);
        std::mem::forget(writing);
        Ok(Written(u32::try_from(data.as_slice().len()).expect("short")))
    }
}
