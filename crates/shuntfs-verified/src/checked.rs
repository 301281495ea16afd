//! One sealed file on a lower file system.
//!
//! A READ is answered from whole blocks: those that it touches are read straight into its payload, while what is missing of the
//! tree is fetched, and compared before any byte of them is the answer. One that touches a bad block, or what the lower file
//! lacks, is answered EIO and never short: the kernel would take the end of a short answer for the end of the file
//! (`fs/fuse/file.c`, `fuse_short_read`). It then asks page by page, so the neighbours stay readable.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use shuntfs::{
    Access, Backing, ByteRange, CacheHint, Cx, Delegation, Draft, Errno, Filled, Judge, LowerFile, Opened,
    ReadReply, Result,
};
use shuntfs_sys::data::read_ahead;
use shuntfs_verity::{Descriptor, Digest, Kernel, Level, Mismatch};

use crate::ahead::{LEAD_PIECE, Pace, Stream};
use crate::checks::Checks;
use crate::error::VerifiedError;
use crate::io::{QueueIo, ThreadIo};
use crate::join::join;
use crate::native::{self, Measure};
use crate::tree::{Fault, HashTree, Hashes, TreeSource};
use crate::verdicts::{FileName, Place};
use pollster::block_on;

/// How much one thread hashes of a READ before it is worth waking another one: what takes it about 100 microseconds. Waking a
/// thread on another CPU of a virtual machine takes half of that, and where the queues keep all CPUs busy it gains nothing: with
/// READs of 256 KiB in two parts each, a cold read of 250 MiB on two CPUs had 1,100 jobs for other threads.
fn hashed_alone(kernel: Kernel) -> usize {
    match kernel {
        Kernel::Avx512 => 512 << 10,
        Kernel::ShaNi => 256 << 10,
        _ => 128 << 10,
    }
}

/// One sealed file, open below.
#[derive(Debug)]
pub struct CheckedFile {
    pub(crate) tree: Arc<HashTree>,
    pub(crate) lower: Arc<LowerFile>,
    /// Below the root of what is sealed, for the log.
    pub(crate) path: String,
    path_hash: u64,
    pub(crate) checks: Arc<Checks>,
    /// Whether the lower file system verifies it, with the same digest.
    is_native: bool,
    /// Whether something was wrong with it, so that the next open looks for it anew.
    is_suspect: AtomicBool,
}

/// Where the bytes of a file and its tree come from.
pub(crate) struct Source {
    pub(crate) lower: Arc<LowerFile>,
    pub(crate) tree: TreeSource,
    pub(crate) path: String,
}

impl CheckedFile {
    /// The file with this descriptor, which comes from a manifest and is trusted.
    pub(crate) fn new(
        checks: &Arc<Checks>,
        descriptor: Descriptor,
        source: Source,
        measure: &dyn Measure,
    ) -> std::result::Result<Self, VerifiedError> {
        let tree = HashTree::new(descriptor, source.tree, checks)
            .map_err(|why| VerifiedError::Descriptor { path: source.path.clone(), why })?;
        let is_native = native::verifies(measure, &source.lower, &tree.digest());
        if is_native {
            checks.counters.native_files.bump();
        }
        let (tree, lower) = (Arc::new(tree), source.lower);
        let mut hasher = DefaultHasher::new();
        source.path.hash(&mut hasher);
        Ok(Self {
            tree,
            lower,
            path_hash: hasher.finish(),
            path: source.path,
            checks: Arc::clone(checks),
            is_native,
            is_suspect: AtomicBool::new(false),
        })
    }

    /// The digest that it was sealed with.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.tree.digest()
    }

    /// The size that it was sealed with.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.tree.shape().file_size()
    }

    /// Whether the lower file system verifies every page of it, so that nobody else has to.
    #[must_use]
    pub fn is_native(&self) -> bool {
        self.is_native
    }

    /// Whether a call that asks its file system may wait for another machine, or another server.
    pub(crate) fn lower_can_block(&self) -> bool {
        self.lower.can_block()
    }

    /// Whether something was found wrong with it.
    pub(crate) fn is_suspect(&self) -> bool {
        self.is_suspect.load(Ordering::Relaxed)
    }

    /// Something was found wrong with it.
    pub(crate) fn suspect(&self) {
        self.is_suspect.store(true, Ordering::Relaxed);
    }

    /// How its bytes are to flow: by the kernel where the lower file system verifies them and passthrough is available, else
    /// checked here.
    #[must_use]
    pub fn delegation(&self) -> Delegation {
        if self.is_native { Delegation::VerifiedBelow(Backing::OfNode) } else { Delegation::Verified }
    }

    /// The answer to an open of it: the pages that the kernel has were checked when they came.
    #[must_use]
    pub fn opened<T>(&self, file: T) -> Opened<T> {
        Opened { file, delegation: self.delegation(), cache: CacheHint::Keep, flush: false }
    }

    /// The lower file, for a delegation to it; only where it verifies by itself may bytes of it go unseen.
    ///
    /// # Errors
    /// EIO where somebody would move bytes that were not checked.
    pub fn lower_file(&self, access: Access) -> Result<Arc<LowerFile>> {
        let _ = access;
        if self.is_native { Ok(Arc::clone(&self.lower)) } else { Err(Errno::IO) }
    }

    /// READ.
    ///
    /// # Errors
    /// EIO where a block is touched that is not what was sealed, or is missing; else those of reading below.
    pub async fn read<'q>(
        &self,
        cx: &Cx<'_>,
        stream: &Stream,
        at: ByteRange,
        reply: ReadReply<'q>,
    ) -> Result<Filled<'q>> {
        let len = (at.len as usize).min(reply.capacity()) as u64;
        let end = at.offset.saturating_add(len).min(self.size());
        if at.offset >= end {
            return Ok(reply.cursor().finish());
        }
        let job = Job::new(self, at.offset..end);
        self.checks.counters.reads.bump();
        let pace = self.look_ahead(cx, stream, &job);
        let known_bad = self.recall(&job);
        let may_foresee = self.checks.hands > 1 && reply.came_by_ring();
        if may_foresee && pace == Pace::Random {
            stream.pieces.passed(u64::MAX);
        } else if may_foresee && known_bad.is_none() {
            let pieces = stream.pieces.with(&job.span);
            self.check_ahead(cx, stream, &job);
            if let Some(pieces) = pieces
                && self.are_good(&pieces, stream, &job).await
            {
                let outcome = self.answer_from(&pieces, at.offset..end, reply).await;
                return outcome.map_err(|fault| self.refuse(fault, &job));
            }
        }
        let outcome = match known_bad {
            Some(bad) => Err(Fault::Bad(Box::new(bad))),
            None if job.len() <= reply.draft_max() => {
                self.read_in_place(cx, (stream, pace), &job, reply).await
            }
            None => Box::pin(self.read_apart(cx, pace, &job, reply)).await,
        };
        outcome.map_err(|fault| self.refuse(fault, &job))
    }

    /// Reads whole blocks into the payload.
    async fn read_in_place<'q>(
        &self,
        cx: &Cx<'_>,
        (stream, pace): (&Stream, Pace),
        job: &Job,
        reply: ReadReply<'q>,
    ) -> std::result::Result<Filled<'q>, Fault> {
        let len = u32::try_from(job.len()).map_err(|_| Fault::Lower(Errno::INVAL))?;
        let range = ByteRange { offset: job.span.start, len };
        let io = QueueIo(cx);
        let (hashes, draft) = match self.tree.cached_hashes(&job.blocks) {
            Some(hashes) => {
                let start = Instant::now();
                let draft = reply.draft_from(cx, &self.lower, range).await;
                stream.took(start.elapsed());
                (Ok(hashes), draft)
            }
            None if self.checks.reads_ahead => {
                let missing = Box::pin(self.tree.hashes(&io, job.blocks.clone(), pace));
                join(missing, reply.draft_from(cx, &self.lower, range)).await
            }
            None => {
                let draft = reply.draft_from(cx, &self.lower, range).await;
                (Box::pin(self.tree.hashes(&io, job.blocks.clone(), pace)).await, draft)
            }
        };
        let draft = draft.map_err(Fault::Lower)?;
        let hashes = Arc::new(hashes?);
        if draft.as_slice().len() < job.len() {
            return Err(Fault::Short);
        }
        self.check(&draft, job, &hashes).await?;
        Ok(draft.keep(job.kept.clone()))
    }

    /// Reads whole blocks into memory apart, because they have no room in the payload: a large direct READ that begins or
    /// ends inside a block.
    async fn read_apart<'q>(
        &self,
        cx: &Cx<'_>,
        pace: Pace,
        job: &Job,
        reply: ReadReply<'q>,
    ) -> std::result::Result<Filled<'q>, Fault> {
        let io = QueueIo(cx);
        let bytes = cx.read_lower(&self.lower, vec![0; job.len()], job.span.start);
        let (hashes, bytes) = join(self.hashes(&io, job, pace), bytes).await;
        let (hashes, bytes) = (hashes?, bytes.map_err(Fault::Lower)?);
        if bytes.len() < job.len() {
            return Err(Fault::Short);
        }
        let (tree, blocks) = (Arc::clone(&self.tree), job.blocks.clone());
        let kept = job.kept.clone();
        let checked = cx.offload(move || compare(&tree, &hashes, blocks, &bytes).map(|()| bytes)).await?;
        self.count(job);
        reply.copy_from_slice(&checked[kept]).map_err(Fault::Lower)
    }

    async fn hashes(
        &self,
        io: &QueueIo<'_, '_>,
        job: &Job,
        pace: Pace,
    ) -> std::result::Result<Hashes, Fault> {
        match self.tree.cached_hashes(&job.blocks) {
            Some(hashes) => Ok(hashes),
            None => self.tree.hashes(io, job.blocks.clone(), pace).await,
        }
    }

    /// Hashes the blocks of a draft and compares them; long ones on several threads.
    async fn check(
        &self,
        draft: &Draft<'_>,
        job: &Job,
        hashes: &Arc<Hashes>,
    ) -> std::result::Result<(), Fault> {
        self.count(job);
        let block_size = self.tree.shape().params().block_size().len();
        let alone = hashed_alone(self.tree.kernel());
        let parts = parts(job.len(), block_size, (alone, self.checks.hands));
        if parts.len() <= 1 {
            return compare(&self.tree, hashes, job.blocks.clone(), draft.as_slice());
        }
        let (tree, hashes, first) = (Arc::clone(&self.tree), Arc::clone(hashes), job.blocks.start);
        let judge: Judge<std::result::Result<(), Fault>> = Arc::new(move |bytes, part| {
            let start = first + (part.start / block_size) as u64;
            compare(&tree, &hashes, start..start + bytes.len().div_ceil(block_size) as u64, bytes)
        });
        draft.examine(&parts, &judge).await.into_iter().collect()
    }

    fn count(&self, job: &Job) {
        self.checks.counters.data_blocks.add(job.blocks.end - job.blocks.start);
    }

    /// Notes how the file is read, and has the next strip of the tree fetched where that is sequential.
    fn look_ahead(&self, cx: &Cx<'_>, stream: &Stream, job: &Job) -> Pace {
        let pace = stream.note(&job.span);
        if pace == Pace::Sequential
            && let Some(lead) = stream.leads(job.span.end, self.size())
        {
            self.read_ahead(cx, lead);
        }
        if pace == Pace::Random || !self.checks.reads_ahead || self.tree.shape().levels() == 0 {
            return Pace::Random;
        }
        let next = self.tree.strip_of(job.blocks.end - 1) + 1;
        if stream.asks_ahead(next) && self.tree.lacks_strip(next) {
            let tree = Arc::clone(&self.tree);
            // Nobody waits for it, and what is wrong with it whoever needs it is told.
            drop(cx.offload(move || drop(block_on(tree.strip(&ThreadIo, next)))));
        }
        pace
    }

    /// Has the lower file system read ahead. It takes what it does as a hint, and so does whoever cannot give it.
    fn read_ahead(&self, cx: &Cx<'_>, lead: Range<u64>) {
        let lower = Arc::clone(&self.lower);
        let can_block = lower.can_block();
        let ask = move || {
            let mut start = lead.start;
            while start < lead.end && read_ahead(&*lower, start, LEAD_PIECE.min(lead.end - start)).is_ok() {
                start += LEAD_PIECE;
            }
        };
        if can_block { drop(cx.offload(ask)) } else { ask() }
    }

    /// What tells it from others with the same bytes.
    fn name(&self) -> FileName {
        FileName { digest: self.tree.digest(), path: self.path_hash }
    }

    /// A block of the job that was just found bad.
    fn recall(&self, job: &Job) -> Option<Mismatch> {
        let place = |block| Place::of(self.name(), Level::Data, block);
        job.blocks.clone().find_map(|block| self.checks.verdicts.recent(place(block)))
    }

    /// What the caller is told, after the log was.
    fn refuse(&self, fault: Fault, job: &Job) -> Errno {
        let counters = &self.checks.counters;
        counters.refused_reads.bump();
        self.suspect();
        let file = &*self.path;
        match fault {
            Fault::Bad(bad) => {
                if self.checks.verdicts.note(self.name(), *bad) {
                    counters.bad_blocks.bump();
                    let Mismatch { level, block, expected, found } = *bad;
                    tracing::error!(file, block, %level, %expected, %found, "FILE CORRUPTED: a block is not what was sealed");
                }
                Errno::IO
            }
            Fault::Short => {
                let (offset, sealed) = (job.span.start, self.size());
                if self.checks.verdicts.note_short(self.name()) {
                    counters.short_files.bump();
                    tracing::error!(
                        file,
                        offset,
                        sealed,
                        "FILE TRUNCATED: bytes that were sealed are missing"
                    );
                }
                Errno::IO
            }
            Fault::Lower(errno) => {
                tracing::warn!(file, offset = job.span.start, %errno, "a sealed file cannot be read");
                errno
            }
        }
    }
}

/// One READ, in blocks.
#[derive(Debug)]
pub(crate) struct Job {
    /// The blocks that it touches.
    blocks: Range<u64>,
    /// Their bytes in the file.
    pub(crate) span: Range<u64>,
    /// What of these is the answer.
    kept: Range<usize>,
}

impl Job {
    fn new(file: &CheckedFile, wanted: Range<u64>) -> Self {
        let shape = file.tree.shape();
        let block_size = u64::from(shape.params().block_size().bytes());
        let blocks = wanted.start / block_size..wanted.end.div_ceil(block_size);
        let span = shape.bytes_of(Level::Data, blocks.clone());
        let from = |offset: u64| usize::try_from(offset - span.start).unwrap_or(usize::MAX);
        Self { kept: from(wanted.start)..from(wanted.end), blocks, span }
    }

    fn len(&self) -> usize {
        usize::try_from(self.span.end - self.span.start).unwrap_or(usize::MAX)
    }
}

/// Compares data blocks with their hashes.
pub(crate) fn compare(
    tree: &HashTree,
    hashes: &Hashes,
    blocks: Range<u64>,
    bytes: &[u8],
) -> std::result::Result<(), Fault> {
    let block_size = tree.shape().params().block_size().len();
    let mut rest = bytes;
    let mut next = blocks.start;
    for (run, expected) in hashes.runs(blocks.clone()) {
        let len = usize::try_from(run.end - run.start).map_err(|_| Fault::Short)? * block_size;
        let (part, more) = rest.split_at(len.min(rest.len()));
        tree.compare(Level::Data, run.start, part, expected)?;
        rest = more;
        next = run.end;
    }
    // Not one block may be left without a hash.
    if next == blocks.end && rest.is_empty() { Ok(()) } else { Err(Fault::Short) }
}

/// Cuts `len` bytes into parts of whole blocks for at most so many hands, where there is more than one does alone.
fn parts(len: usize, block_size: usize, (alone, hands): (usize, usize)) -> Vec<Range<usize>> {
    let count = len.div_ceil(alone).clamp(1, hands.max(1));
    let part = len.div_ceil(count).next_multiple_of(block_size);
    (0..count)
        .map(|number| (number * part).min(len)..((number + 1) * part).min(len))
        .filter(|part| !part.is_empty())
        .collect()
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn parts_are_whole_blocks_and_cover_everything() {
        const HASHED_ALONE: usize = 128 << 10;
        for (len, block, hands) in [
            (1, 4096, 2),
            (HASHED_ALONE, 4096, 8),
            (HASHED_ALONE + 1, 4096, 8),
            (1 << 20, 4096, 2),
            (1 << 20, 65536, 64),
            ((1 << 20) - 5, 1024, 3),
            (300_000, 65536, 0),
        ] {
            let parts = parts(len, block, (HASHED_ALONE, hands));
            let what = format!("{len} {block} {hands}: {parts:?}");
            assert!(parts.len() <= hands.max(1) && !parts.is_empty(), "{what}");
            assert_eq!(parts.first().map(|part| part.start), Some(0), "{what}");
            assert_eq!(parts.last().map(|part| part.end), Some(len), "{what}");
            assert!(parts.windows(2).all(|two| two[0].end == two[1].start), "{what}");
            assert!(parts.iter().all(|part| part.start % block == 0), "{what}");
            assert_eq!(parts.len() == 1, len <= HASHED_ALONE || hands <= 1, "{what}");
        }
    }
}
