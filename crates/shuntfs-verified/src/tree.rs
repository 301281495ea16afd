//! The hash tree of one sealed file: which hashes its data blocks must have, from blocks that were checked themselves.
//!
//! A tree is stored with its root first. Blocks are read in *flights* ([`crate::cache`]): a flight that starts at the root takes
//! the upper levels along, as many as fit into [`TOP_BYTES`], and the first strip of the lowest, and with them the whole tree
//! of a small file; any other stays inside one level, and is compared with blocks of the level above, which are fetched at the
//! same time.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use shuntfs::{Errno, LowerFile};
use shuntfs_verity::{CheckError, Descriptor, Digest, Kernel, Level, Mismatch, Shape, Verifier};

use crate::ahead::{self, Pace};
use crate::cache::{Flight, Next};
use crate::checks::Checks;
use crate::io::TreeIo;
use crate::join::join;
use crate::verdicts::Place;

/// How much of the upper levels is read with the root.
const TOP_BYTES: u64 = 64 << 10;

/// One file's tree, where it lies, and how to compare with it.
pub(crate) struct HashTree {
    digest: Digest,
    verifier: Verifier,
    checks: Arc<Checks>,
    source: TreeSource,
    stored: OnceLock<Arc<LowerFile>>,
}

impl fmt::Debug for HashTree {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("HashTree").field("digest", &self.digest).finish_non_exhaustive()
    }
}

/// Opens the stored tree, when a block of it is needed first.
pub(crate) type TreeSource = Box<dyn Fn() -> Result<LowerFile, Errno> + Send + Sync>;

/// Why blocks cannot be had.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// One is not what was sealed.
    Bad(Box<Mismatch>),
    /// The lower file, or the tree, ends before they do.
    Short,
    /// Reading failed.
    Lower(Errno),
}

/// The hashes of some data blocks that follow each other.
#[derive(Debug)]
pub(crate) struct Hashes {
    /// Checked blocks of the lowest level, or the root hash.
    blocks: Vec<Arc<[u8]>>,
    /// The data block whose hash comes first in them.
    first: u64,
    arity: u64,
    hash_len: usize,
}

impl Hashes {
    /// The hashes of `blocks`, in runs that lie together.
    pub(crate) fn runs(&self, blocks: Range<u64>) -> impl Iterator<Item = (Range<u64>, &[u8])> {
        let mut at = blocks.start;
        std::iter::from_fn(move || {
            if at >= blocks.end {
                return None;
            }
            let slot = at.checked_sub(self.first)?;
            let bytes = self.blocks.get(usize::try_from(slot / self.arity).ok()?)?;
            let end = blocks.end.min(at + self.arity - slot % self.arity);
            let start = usize::try_from(slot % self.arity).ok()? * self.hash_len;
            let len = usize::try_from(end - at).ok()? * self.hash_len;
            let run = (at..end, bytes.get(start..start + len)?);
            at = end;
            Some(run)
        })
    }
}

impl HashTree {
    /// The tree of the file with this descriptor, whose digest is trusted.
    pub(crate) fn new(
        descriptor: Descriptor,
        source: TreeSource,
        checks: &Arc<Checks>,
    ) -> Result<Self, shuntfs_verity::Untrusted> {
        let digest = descriptor.digest();
        let verifier = Verifier::new(descriptor, &digest)?;
        Ok(Self { digest, verifier, checks: Arc::clone(checks), source, stored: OnceLock::new() })
    }

    pub(crate) fn digest(&self) -> Digest {
        self.digest
    }

    pub(crate) fn descriptor(&self) -> &Descriptor {
        self.verifier.descriptor()
    }

    /// The stored tree, if there is one and it can be opened.
    pub(crate) fn held(&self) -> Option<Arc<LowerFile>> {
        if self.shape().levels() == 0 { None } else { self.stored().ok() }
    }

    /// Has the tree read from this file, in which it is stored.
    pub(crate) fn hold(&self, stored: LowerFile) {
        self.stored.get_or_init(|| Arc::new(stored));
    }

    /// The way that blocks are hashed.
    pub(crate) fn kernel(&self) -> Kernel {
        self.verifier.kernel()
    }

    pub(crate) fn shape(&self) -> &Shape {
        self.verifier.shape()
    }

    /// The hashes that data blocks must have; there must be a tree.
    pub(crate) async fn hashes(
        &self,
        io: &impl TreeIo,
        blocks: Range<u64>,
        pace: Pace,
    ) -> Result<Hashes, Fault> {
        let params = self.shape().params();
        let (arity, hash_len) = (params.arity() as u64, params.algorithm().digest_len());
        let wanted = blocks.start / arity..blocks.end.div_ceil(arity);
        let first = wanted.start * arity;
        let blocks = if self.checks.reads_ahead {
            let about = ahead::about(self.shape(), &wanted, pace);
            self.level(io, 0, wanted, about).await?
        } else {
            // As fs-verity did it: each block by itself, when it is needed.
            let mut blocks = Vec::new();
            for block in wanted {
                blocks.extend(self.level(io, 0, block..block + 1, block..block + 1).await?);
            }
            blocks
        };
        Ok(Hashes { blocks, first, arity, hash_len })
    }

    /// The same, where all that it takes is in memory.
    pub(crate) fn cached_hashes(&self, blocks: &Range<u64>) -> Option<Hashes> {
        let params = self.shape().params();
        let (arity, hash_len) = (params.arity() as u64, params.algorithm().digest_len());
        if self.shape().levels() == 0 {
            return Some(Hashes {
                blocks: vec![self.verifier.root_hash().into()],
                first: 0,
                arity,
                hash_len,
            });
        }
        let wanted = blocks.start / arity..blocks.end.div_ceil(arity);
        let first = wanted.start * arity;
        let blocks = self.checks.cache.ready(self.digest, self.stored_blocks(0, &wanted))?;
        Some(Hashes { blocks, first, arity, hash_len })
    }

    /// Fetches a strip of the lowest level ahead of whoever needs it.
    pub(crate) async fn strip(&self, io: &impl TreeIo, strip: u64) -> Result<(), Fault> {
        let blocks = self.strip_blocks(strip);
        if !blocks.is_empty() {
            self.level(io, 0, blocks.clone(), blocks).await?;
        }
        Ok(())
    }

    /// The strip that holds the hash of a data block.
    pub(crate) fn strip_of(&self, data_block: u64) -> u64 {
        data_block / self.shape().params().arity() as u64 / ahead::strip_len(self.shape())
    }

    /// Whether a strip is not here, and not being fetched.
    pub(crate) fn lacks_strip(&self, strip: u64) -> bool {
        let blocks = self.strip_blocks(strip);
        !blocks.is_empty() && !self.checks.cache.has(self.digest, self.stored_blocks(0, &blocks))
    }

    fn strip_blocks(&self, strip: u64) -> Range<u64> {
        let len = ahead::strip_len(self.shape());
        let end = self.shape().blocks(Level::Tree(0));
        (strip * len).min(end)..((strip + 1) * len).min(end)
    }

    /// Checked blocks of a level; what is missing is read, and with it what is missing right beside it of `about`.
    async fn level(
        &self,
        io: &impl TreeIo,
        level: u8,
        wanted: Range<u64>,
        about: Range<u64>,
    ) -> Result<Vec<Arc<[u8]>>, Fault> {
        let wanted = self.stored_blocks(level, &wanted);
        let top = self.top();
        let mut about = self.stored_blocks(level, &about);
        if wanted.start < top && self.checks.reads_ahead {
            about = 0..top.max(wanted.end);
        }
        loop {
            match self.checks.cache.next(self.digest, wanted.clone(), &about) {
                Next::Ready(blocks) => return Ok(blocks),
                Next::Wait(block) => self.checks.cache.landed(self.digest, block).await,
                Next::Load(flight) => match self.load(io, self.in_one_level(flight)).await {
                    // Something beside what is wanted may be spoiled, and must not spoil this.
                    Err(Fault::Bad(_) | Fault::Short) if about != wanted => about = wanted.clone(),
                    outcome => outcome?,
                },
            }
        }
    }

    /// A flight that does not begin at the root cannot be compared beyond its level: the one below begins with the hashes of
    /// a block that is not in it.
    fn in_one_level<'c>(&self, mut flight: Flight<'c>) -> Flight<'c> {
        let blocks = flight.blocks();
        if blocks.start > 0
            && let Some((level, index)) = self.shape().level_of(blocks.start)
        {
            flight.cut(blocks.start + self.shape().blocks(level) - index);
        }
        flight
    }

    /// Reads the blocks of a flight and checks them.
    async fn load(&self, io: &impl TreeIo, flight: Flight<'_>) -> Result<(), Fault> {
        let blocks = flight.blocks();
        self.recall(&blocks)?;
        let parents = async {
            match self.shape().level_of(blocks.start) {
                Some((Level::Tree(level), index)) if blocks.start > 0 => {
                    self.parents(io, level, index, &blocks).await
                }
                _ => Ok(Vec::new()),
            }
        };
        let (parents, bytes) = join(parents, self.read(io, &blocks)).await;
        let (parents, bytes) = (parents?, bytes?);
        self.check(&blocks, &bytes, parents).inspect_err(|fault| {
            if let Fault::Bad(bad) = fault {
                self.checks.verdicts.suspect(self.digest, **bad);
            }
        })?;
        let block_size = self.shape().params().block_size().len();
        flight.land(bytes.chunks(block_size).map(Arc::from));
        Ok(())
    }

    /// The hashes of the blocks of a flight that does not begin at the root, from the checked blocks above them.
    async fn parents(
        &self,
        io: &impl TreeIo,
        level: u8,
        index: u64,
        blocks: &Range<u64>,
    ) -> Result<Vec<u8>, Fault> {
        let arity = self.shape().params().arity() as u64;
        let hash_len = self.shape().params().algorithm().digest_len();
        let count = blocks.end - blocks.start;
        let above = index / arity..(index + count).div_ceil(arity);
        // Calls itself with the next level up; there are at most 8.
        let above_blocks = Box::pin(self.level(io, level + 1, above.clone(), above.clone())).await?;
        let first = above.start * arity;
        let hashes = Hashes { blocks: above_blocks, first, arity, hash_len };
        Ok(hashes.runs(index..index + count).flat_map(|(_, run)| run).copied().collect())
    }

    /// Compares the blocks of a flight, level by level from the root down. `above` has the hashes of the first level in it, where
    /// that is not the root's.
    fn check(&self, blocks: &Range<u64>, bytes: &[u8], mut above: Vec<u8>) -> Result<(), Fault> {
        let block_size = self.shape().params().block_size().len();
        let hash_len = self.shape().params().algorithm().digest_len();
        let mut at = blocks.start;
        if at == 0 {
            above = self.verifier.root_hash().to_vec();
        }
        let mut rest = bytes;
        while at < blocks.end {
            let Some((level, index)) = self.shape().level_of(at) else { return Err(Fault::Short) };
            let count = (blocks.end - at).min(self.shape().blocks(level) - index);
            let len = usize::try_from(count).unwrap_or(usize::MAX).saturating_mul(block_size);
            let (part, below) = rest.split_at_checked(len).ok_or(Fault::Short)?;
            let expected = above.get(..part.len() / block_size * hash_len).ok_or(Fault::Short)?;
            self.compare(level, index, part, expected)?;
            self.checks.counters.tree_blocks.add(count);
            // The level below is compared with these; it begins with the first hash of the first of them.
            above = part.to_vec();
            at += count;
            rest = below;
        }
        Ok(())
    }

    /// Compares blocks with hashes; what is bad is told.
    pub(crate) fn compare(
        &self,
        level: Level,
        first: u64,
        bytes: &[u8],
        expected: &[u8],
    ) -> Result<(), Fault> {
        match self.verifier.check(level, first, bytes, expected) {
            Ok(_checked) => Ok(()),
            Err(CheckError::Mismatch(mismatch)) => Err(Fault::Bad(mismatch)),
            Err(_) => Err(Fault::Short),
        }
    }

    /// What was just found bad is not read again at once.
    fn recall(&self, blocks: &Range<u64>) -> Result<(), Fault> {
        for block in blocks.clone() {
            if let Some((level, index)) = self.shape().level_of(block)
                && let Some(bad) = self.checks.verdicts.recent(Place::of_tree(self.digest, level, index))
            {
                return Err(Fault::Bad(Box::new(bad)));
            }
        }
        Ok(())
    }

    async fn read(&self, io: &impl TreeIo, blocks: &Range<u64>) -> Result<Vec<u8>, Fault> {
        let block_size = self.shape().params().block_size().len();
        let count = usize::try_from(blocks.end - blocks.start).map_err(|_| Fault::Short)?;
        let stored = self.stored().map_err(Fault::Lower)?;
        let offset = blocks.start * block_size as u64;
        let counters = &self.checks.counters;
        counters.tree_reads.bump();
        if io.is_ahead() {
            counters.tree_reads_ahead.bump();
        }
        let bytes = io.read(&stored, count * block_size, offset).await.map_err(Fault::Lower)?;
        counters.tree_bytes.add(bytes.len() as u64);
        if bytes.len() < count * block_size { Err(Fault::Short) } else { Ok(bytes) }
    }

    fn stored(&self) -> Result<Arc<LowerFile>, Errno> {
        if let Some(stored) = self.stored.get() {
            return Ok(Arc::clone(stored));
        }
        let opened = Arc::new((self.source)()?);
        Ok(Arc::clone(self.stored.get_or_init(|| opened)))
    }

    /// The numbers that blocks of a level have in the stored tree.
    fn stored_blocks(&self, level: u8, blocks: &Range<u64>) -> Range<u64> {
        let block_size = u64::from(self.shape().params().block_size().bytes());
        let start = self.shape().level_offset(Level::Tree(level)) / block_size;
        start + blocks.start..start + blocks.end
    }

    /// How many blocks are read with the root.
    fn top(&self) -> u64 {
        let fits = (TOP_BYTES / u64::from(self.shape().params().block_size().bytes())).max(1);
        let upper = self.stored_blocks(0, &(0..0)).start;
        if upper > fits {
            fits
        } else {
            (upper + ahead::strip_len(self.shape())).min(self.shape().tree_blocks())
        }
    }
}

#[cfg(test)]
mod tests;
