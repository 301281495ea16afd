//! A tree from hashes: one pass, bounded memory.
//!
//! Each level has a buffer of at most [`BATCH`] blocks (or one, where blocks are large). A full buffer goes to the sink in
//! one piece, its blocks are hashed at once, and the hashes go to the level above: so a tree of three levels takes 192 KiB
//! of memory however large the file is.

use std::io;

use thiserror::Error;

use crate::{BlockHasher, Descriptor, Digest, Level, Params, Shape, ShapeError};

/// Blocks of a level that are written and hashed at once: as many as the widest kernel has lanes.
const BATCH: usize = 16;

/// A buffer of more bytes is not made for the sake of hashing several blocks at once.
const BUFFER_LEN_MAX: usize = 1 << 20;

/// Where the blocks of a tree go.
pub trait TreeSink {
    /// Takes whole blocks that belong at `offset` of the stored tree. Levels are filled from the lowest up, which are stored last:
    /// offsets jump, but every byte comes once.
    ///
    /// # Errors
    /// What writing them says; building ends with it.
    fn put(&mut self, offset: u64, blocks: &[u8]) -> io::Result<()>;
}

impl<S: TreeSink + ?Sized> TreeSink for &mut S {
    fn put(&mut self, offset: u64, blocks: &[u8]) -> io::Result<()> {
        (**self).put(offset, blocks)
    }
}

/// The tree in memory.
impl TreeSink for Vec<u8> {
    fn put(&mut self, offset: u64, blocks: &[u8]) -> io::Result<()> {
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let end = start + blocks.len();
        if self.len() < end {
            self.resize(end, 0);
        }
        self[start..end].copy_from_slice(blocks);
        Ok(())
    }
}

/// Keeps nothing: for whoever wants the digest alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct Discard;

impl TreeSink for Discard {
    fn put(&mut self, _offset: u64, _blocks: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

/// Why a tree was not made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TreeError {
    /// There is no tree for a file of this size.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// The hashes are not one for each block of the file.
    #[error("a file of {wanted} blocks came with {given} hashes or more")]
    Hashes {
        /// Blocks in the file.
        wanted: u64,
        /// Whole hashes that were given.
        given: u64,
    },
    /// The sink could not take a block.
    #[error("the tree cannot be written: {0}")]
    Sink(#[source] io::Error),
}

/// Makes tree and descriptor from the hashes of the data blocks, in order.
#[derive(Debug)]
pub struct TreeBuilder<S> {
    shape: Shape,
    hasher: BlockHasher,
    sink: S,
    levels: Vec<Pending>,
    /// Of the data blocks.
    hashes: u64,
    /// The hash of the only block, where there is no tree.
    only: Vec<u8>,
}

/// What of a level is not written yet.
#[derive(Debug, Default)]
struct Pending {
    hashes: Vec<u8>,
    /// Blocks of this level that were written.
    written: u64,
}

impl<S: TreeSink> TreeBuilder<S> {
    /// Starts a tree for a file whose size is known.
    ///
    /// # Errors
    /// [`TreeError::Shape`] where there is none for it.
    pub fn new(params: &Params, file_size: u64, sink: S) -> Result<Self, TreeError> {
        Ok(Self::of(Shape::new(params, file_size)?, BlockHasher::new(params), sink))
    }

    pub(crate) fn of(shape: Shape, hasher: BlockHasher, sink: S) -> Self {
        let levels = (0..shape.levels()).map(|_| Pending::default()).collect();
        Self { shape, hasher, sink, levels, hashes: 0, only: Vec::new() }
    }

    /// The tree's shape.
    #[must_use]
    pub const fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Takes whole hashes of data blocks, in the order of the file.
    ///
    /// # Errors
    /// Where they are more than the file has blocks, or the sink fails.
    ///
    /// # Panics
    /// Where `hashes` ends within a hash.
    pub fn push_hashes(&mut self, hashes: &[u8]) -> Result<(), TreeError> {
        let digest_len = self.shape.params().algorithm().digest_len();
        assert!(hashes.len().is_multiple_of(digest_len), "whole hashes are pushed");
        let wanted = self.shape.blocks(Level::Data);
        self.hashes += (hashes.len() / digest_len) as u64;
        if self.hashes > wanted {
            return Err(TreeError::Hashes { wanted, given: self.hashes });
        }
        if self.levels.is_empty() {
            self.only.extend_from_slice(hashes);
            return Ok(());
        }
        self.add(0, hashes)
    }

    /// Writes what is left and returns the descriptor.
    ///
    /// # Errors
    /// Where hashes are missing, or the sink fails.
    ///
    /// # Panics
    /// Never: the last level's hash is the algorithm's.
    pub fn finish(mut self) -> Result<Descriptor, TreeError> {
        let wanted = self.shape.blocks(Level::Data);
        if self.hashes != wanted {
            return Err(TreeError::Hashes { wanted, given: self.hashes });
        }
        let params = *self.shape.params();
        for level in 0..self.levels.len() {
            let used = self.levels[level].hashes.len();
            self.levels[level].hashes.resize(used.next_multiple_of(params.block_size().len()), 0);
            if used > 0 {
                self.flush(level)?;
            }
        }
        let root_hash = if wanted == 0 {
            Digest::zero(params.algorithm())
        } else {
            Digest::new(params.algorithm(), &self.only).expect("one hash is left at the top")
        };
        Ok(Descriptor::new(&params, self.shape.file_size(), root_hash).expect("the shape is a file's"))
    }

    fn buffer_len(&self) -> usize {
        let block = self.shape.params().block_size().len();
        if block * BATCH <= BUFFER_LEN_MAX { block * BATCH } else { block }
    }

    fn add(&mut self, level: usize, mut hashes: &[u8]) -> Result<(), TreeError> {
        while !hashes.is_empty() {
            let room = self.buffer_len() - self.levels[level].hashes.len();
            let (now, later) = hashes.split_at(room.min(hashes.len()));
            self.levels[level].hashes.extend_from_slice(now);
            hashes = later;
            if now.len() == room {
                self.flush(level)?;
            }
        }
        Ok(())
    }

    /// Writes a level's whole blocks and hashes them into the level above.
    fn flush(&mut self, level: usize) -> Result<(), TreeError> {
        let number = Level::Tree(level.to_le_bytes()[0]);
        let block = self.shape.params().block_size().len();
        let pending = &mut self.levels[level];
        let mut blocks = std::mem::take(&mut pending.hashes);
        let offset = self.shape.level_offset(number) + pending.written * block as u64;
        pending.written += (blocks.len() / block) as u64;
        self.sink.put(offset, &blocks).map_err(TreeError::Sink)?;
        let mut above = Vec::new();
        self.hasher.hash_blocks(&blocks, &mut above);
        blocks.clear();
        self.levels[level].hashes = blocks;
        if level + 1 == self.levels.len() {
            self.only = above;
            return Ok(());
        }
        self.add(level + 1, &above)
    }
}
