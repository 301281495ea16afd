//! A file on a disk that forgets what was not made durable when its power is cut.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use shuntfs::{
    Attr, AttrReply, ByteRange, CacheHint, Cx, Errno, Fallocate, FileType, Filesystem, Filled, NodeId, OpSet,
    OpenFlags, Opened, ReadReply, Result, SetAttr, WriteData, Written,
};

const PUNCH_HOLE: u32 = 2;
const ZERO_RANGE: u32 = 0x10;
/// What a disk writes whole or not at all.
pub(crate) const SECTOR: usize = 512;

/// What was done to the file, in this order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    Write {
        offset: u64,
        bytes: Vec<u8>,
    },
    Zero {
        offset: u64,
        len: u64,
    },
    Size(u64),
    /// All before it is durable.
    Sync,
}

/// The file, and what was done to it.
#[derive(Debug)]
pub(crate) struct PowerCut {
    state: Mutex<State>,
    /// The error of every `fsync`, by its number; 0 for none.
    pub(crate) sync_error: AtomicU32,
}

#[derive(Debug)]
struct State {
    bytes: Vec<u8>,
    log: Vec<Op>,
}

impl PowerCut {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        Self { state: Mutex::new(State { bytes, log: Vec::new() }), sync_error: AtomicU32::new(0) }
    }

    /// What was done.
    pub(crate) fn log(&self) -> Vec<Op> {
        self.state.lock().log.clone()
    }

    fn apply(&self, op: Op) {
        let mut state = self.state.lock();
        apply(&mut state.bytes, &op);
        state.log.push(op);
    }

    fn attr(&self) -> AttrReply {
        let size = self.state.lock().bytes.len() as u64;
        let attr = Attr { blksize: 4096, ..Attr::new(1, FileType::Regular, 0o600).with_size(size) };
        attr.valid_for(Duration::ZERO)
    }
}

fn apply(file: &mut Vec<u8>, op: &Op) {
    let place = |offset: &u64| usize::try_from(*offset).expect("fits into memory");
    match op {
        Op::Write { offset, bytes } => {
            let (start, end) = (place(offset), place(offset) + bytes.len());
            file.resize(file.len().max(end), 0);
            file[start..end].copy_from_slice(bytes);
        }
        Op::Zero { offset, len } => {
            let end = (place(offset) + place(len)).min(file.len());
            if place(offset) < end {
                file[place(offset)..end].fill(0);
            }
        }
        Op::Size(size) => file.resize(place(size), 0),
        Op::Sync => {}
    }
}

/// What the disk may hold after the power was cut when `upto` things had been done: all that was durable by then, and of each
/// sector that was written since any of the states that it was in. `choose` picks one of so many.
pub(crate) fn after_cut(
    base: &[u8],
    log: &[Op],
    upto: usize,
    mut choose: impl FnMut(usize) -> usize,
) -> Vec<u8> {
    let synced = log[..upto].iter().rposition(|op| *op == Op::Sync).unwrap_or(0);
    let mut file = base.to_vec();
    log[..synced].iter().for_each(|op| apply(&mut file, op));
    // Each sector that was touched, with how many of the later ops it has seen.
    let later = &log[synced..upto];
    let mut seen: BTreeMap<usize, usize> = BTreeMap::new();
    let mut longest = file.len();
    for op in later {
        for sector in sectors(op) {
            seen.entry(sector).or_insert_with(|| choose(later.len() + 1));
        }
        if let Op::Write { offset, bytes } = op {
            longest = longest.max(usize::try_from(*offset).expect("fits") + bytes.len());
        }
    }
    let mut whole = file.clone();
    whole.resize(longest, 0);
    let size_seen = choose(later.len() + 1);
    let mut len = file.len();
    for (number, op) in later.iter().enumerate() {
        match op {
            Op::Size(size) if number < size_seen => len = usize::try_from(*size).expect("fits"),
            Op::Write { offset, bytes } => {
                let start = usize::try_from(*offset).expect("fits");
                for range in pieces(start, bytes.len()) {
                    if seen.get(&(range.start / SECTOR)).is_some_and(|seen| number < *seen) {
                        whole[range.clone()].copy_from_slice(&bytes[range.start - start..range.end - start]);
                        len = len.max(range.end);
                    }
                }
            }
            Op::Zero { offset, len } => {
                for range in
                    pieces(usize::try_from(*offset).expect("fits"), usize::try_from(*len).expect("fits"))
                {
                    let range = range.start.min(whole.len())..range.end.min(whole.len());
                    if seen.get(&(range.start / SECTOR)).is_some_and(|seen| number < *seen) {
                        whole[range].fill(0);
                    }
                }
            }
            Op::Size(_) | Op::Sync => {}
        }
    }
    whole.resize(len, 0);
    whole
}

/// A range of bytes, cut where sectors begin.
fn pieces(start: usize, len: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let end = start + len;
    let mut at = start;
    std::iter::from_fn(move || {
        let next = ((at / SECTOR + 1) * SECTOR).min(end);
        (at < end).then(|| std::mem::replace(&mut at, next)..next)
    })
}

fn sectors(op: &Op) -> std::ops::Range<usize> {
    let (offset, len) = match op {
        Op::Write { offset, bytes } => (*offset, bytes.len() as u64),
        Op::Zero { offset, len } => (*offset, *len),
        Op::Size(_) | Op::Sync => return 0..0,
    };
    let place = |at: u64| usize::try_from(at).expect("fits into memory");
    place(offset) / SECTOR..place(offset + len).div_ceil(SECTOR)
}

impl Filesystem for PowerCut {
    type File = ();
    type Dir = ();

    const OPS: OpSet = OpSet::OPEN.union(OpSet::FSYNC).union(OpSet::FALLOCATE);

    fn root_type(&self) -> FileType {
        FileType::Regular
    }

    async fn getattr(&self, _: &Cx<'_>, _: NodeId, _: Option<&()>) -> Result<AttrReply> {
        Ok(self.attr())
    }

    async fn setattr(&self, _: &Cx<'_>, _: NodeId, _: Option<&()>, set: SetAttr) -> Result<AttrReply> {
        if let Some(size) = set.size {
            self.apply(Op::Size(size));
        }
        Ok(self.attr())
    }

    async fn open(&self, _: &Cx<'_>, _: NodeId, _: OpenFlags) -> Result<Opened<()>> {
        Ok(Opened::served(()).with_cache(CacheHint::Direct))
    }

    async fn read<'q>(&self, _: &Cx<'_>, (): &(), at: ByteRange, reply: ReadReply<'q>) -> Result<Filled<'q>> {
        reply.copy_from_slice(at.of(&self.state.lock().bytes))
    }

    async fn write(&self, _: &Cx<'_>, (): &(), offset: u64, data: WriteData<'_>) -> Result<Written> {
        let bytes = data.as_slice().to_vec();
        let written = u32::try_from(bytes.len()).map(Written).map_err(|_| Errno::INVAL);
        self.apply(Op::Write { offset, bytes });
        written
    }

    async fn fsync(&self, _: &Cx<'_>, (): &(), _: bool) -> Result<()> {
        match self.sync_error.load(Ordering::Relaxed) {
            0 => {
                self.apply(Op::Sync);
                Ok(())
            }
            _ => Err(Errno::IO),
        }
    }

    async fn fallocate(&self, _: &Cx<'_>, (): &(), op: Fallocate) -> Result<()> {
        if op.mode & (PUNCH_HOLE | ZERO_RANGE) == 0 {
            return Err(Errno::OPNOTSUPP);
        }
        self.apply(Op::Zero { offset: op.offset, len: op.len });
        Ok(())
    }
}
