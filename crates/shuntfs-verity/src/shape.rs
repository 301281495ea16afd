//! How many blocks a tree has, and where the hash of a block is in it.
//!
//! A tree is stored with its root level first; within a level, blocks are in the order of the file. Where the data is at
//! most one block there is no tree: that block's hash is the root hash.

use std::ops::Range;

use thiserror::Error;

use crate::{Level, Params};

/// The largest file: what fits into `loff_t`.
pub const FILE_SIZE_MAX: u64 = i64::MAX.unsigned_abs();

/// The most levels a tree can have (`FS_VERITY_MAX_LEVELS`; the kernel says EFBIG beyond). Blocks below 1 KiB, which no
/// kernel has, are not held to it, so that digests are those of `fsverity digest`.
pub const LEVELS_MAX: usize = 8;

/// The most blocks in a tree where blocks are smaller than pages: the kernel keeps a bit of each in 1 MiB.
pub const KERNEL_TREE_BLOCKS_MAX: u64 = 1 << 23;

/// Why there is no tree for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ShapeError {
    /// No file can be so large.
    #[error("a file of {file_size} bytes is larger than files can be")]
    FileSize {
        /// The size asked for.
        file_size: u64,
    },
    /// More than [`LEVELS_MAX`] levels.
    #[error(
        "a file of {file_size} bytes takes {levels} levels of blocks of {block_size} bytes; at most 8 are possible"
    )]
    Levels {
        /// The size asked for.
        file_size: u64,
        /// The levels it would take.
        levels: usize,
        /// The size of a block.
        block_size: u32,
    },
}

/// Why the kernel would not take a tree that is otherwise good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum KernelLimit {
    /// The kernel has blocks from 1 KiB to a page (before Linux 6.3, of a page only).
    #[error("the kernel has no blocks of {block_size} bytes on pages of {page_size}")]
    BlockSize {
        /// The size of a block.
        block_size: u32,
        /// The size of a page.
        page_size: u32,
    },
    /// More than [`KERNEL_TREE_BLOCKS_MAX`] blocks that are smaller than a page.
    #[error("the kernel takes at most 8388608 tree blocks that are smaller than a page, not {blocks}")]
    TreeBlocks {
        /// Blocks in the tree.
        blocks: u64,
    },
}

/// The shape of one file's tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    params: Params,
    file_size: u64,
    data_blocks: u64,
    /// Lowest first.
    levels: Vec<Row>,
}

/// One level of the tree, in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    blocks: u64,
    /// Of the level's first block, in the stored tree.
    start: u64,
}

/// Where a hash is in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The level of the block that holds the hash.
    pub level: Level,
    /// That block's index in its level.
    pub index: u64,
    /// That block's index in the stored tree.
    pub tree_block: u64,
    /// The hash's first byte in that block.
    pub offset: usize,
}

impl Shape {
    /// Computes the shape of a file's tree.
    ///
    /// # Errors
    /// Where the file is larger than [`FILE_SIZE_MAX`] or takes more than [`LEVELS_MAX`] levels.
    pub fn new(params: &Params, file_size: u64) -> Result<Self, ShapeError> {
        if file_size > FILE_SIZE_MAX {
            return Err(ShapeError::FileSize { file_size });
        }
        let block_size = params.block_size();
        let data_blocks = file_size.div_ceil(u64::from(block_size.bytes()));
        let arity = params.arity() as u64;
        let mut levels = Vec::new();
        let mut blocks = data_blocks;
        while blocks > 1 {
            blocks = blocks.div_ceil(arity);
            levels.push(Row { blocks, start: 0 });
        }
        if levels.len() > LEVELS_MAX && block_size.bytes() >= 1024 {
            return Err(ShapeError::Levels {
                file_size,
                levels: levels.len(),
                block_size: block_size.bytes(),
            });
        }
        let mut start = 0;
        for row in levels.iter_mut().rev() {
            row.start = start;
            start += row.blocks;
        }
        Ok(Self { params: *params, file_size, data_blocks, levels })
    }

    /// How the tree is made.
    #[must_use]
    pub const fn params(&self) -> &Params {
        &self.params
    }

    /// The file's size in bytes.
    #[must_use]
    pub const fn file_size(&self) -> u64 {
        self.file_size
    }

    /// Levels in the tree; 0 where the data is at most one block.
    #[must_use]
    pub const fn levels(&self) -> usize {
        self.levels.len()
    }

    /// The level whose only block has the root hash; `None` for an empty file, which has no block.
    #[must_use]
    pub fn top(&self) -> Option<Level> {
        match self.levels.len().to_le_bytes()[0] {
            0 if self.data_blocks == 0 => None,
            0 => Some(Level::Data),
            levels => Some(Level::Tree(levels - 1)),
        }
    }

    /// Blocks in a level; 0 for one that the tree does not have.
    #[must_use]
    pub fn blocks(&self, level: Level) -> u64 {
        match level {
            Level::Data => self.data_blocks,
            Level::Tree(level) => self.levels.get(usize::from(level)).map_or(0, |row| row.blocks),
        }
    }

    /// Where a level starts: in bytes of the file for data, which is 0, else in bytes of the stored tree.
    ///
    /// # Panics
    /// For a level that the tree does not have.
    #[must_use]
    pub fn level_offset(&self, level: Level) -> u64 {
        match level {
            Level::Data => 0,
            Level::Tree(level) => self.levels[usize::from(level)].start * self.block_bytes(),
        }
    }

    /// Bytes of the stored tree: a multiple of the block size, 0 where there is no tree.
    #[must_use]
    pub fn tree_len(&self) -> u64 {
        self.tree_blocks() * self.block_bytes()
    }

    /// Blocks of the stored tree.
    #[must_use]
    pub fn tree_blocks(&self) -> u64 {
        self.levels.first().map_or(0, |lowest| lowest.start + lowest.blocks)
    }

    /// Where the hash of a level's block is. `None` for the top block, whose hash is the root hash in the descriptor, and for
    /// blocks that do not exist.
    #[must_use]
    pub fn place_of(&self, level: Level, index: u64) -> Option<Place> {
        let above = level.above();
        let Level::Tree(number) = above else { return None };
        let row = self.levels.get(usize::from(number))?;
        if index >= self.blocks(level) {
            return None;
        }
        let arity = self.params.arity();
        let slot = usize::try_from(index % arity as u64).expect("less than the arity");
        let index = index / arity as u64;
        let offset = slot * self.params.algorithm().digest_len();
        Some(Place { level: above, index, tree_block: row.start + index, offset })
    }

    /// The way from a block up to the root: where its hash is, where the hash of that block is, and so on. Empty for
    /// the top block.
    #[must_use]
    pub const fn path_of(&self, level: Level, index: u64) -> Path<'_> {
        Path { shape: self, at: (level, index) }
    }

    /// The level and the index in it of a block of the stored tree; `None` beyond its end.
    #[must_use]
    pub fn level_of(&self, tree_block: u64) -> Option<(Level, u64)> {
        if tree_block >= self.tree_blocks() {
            return None;
        }
        let number = self.levels.iter().position(|row| row.start <= tree_block)?;
        Some((Level::Tree(number.to_le_bytes()[0]), tree_block - self.levels[number].start))
    }

    /// The bytes of blocks: of the file for data, cut at its end, else of the stored tree.
    ///
    /// # Panics
    /// For a level that the tree does not have.
    #[must_use]
    pub fn bytes_of(&self, level: Level, blocks: Range<u64>) -> Range<u64> {
        let block_size = self.block_bytes();
        let end = blocks.end.min(self.blocks(level));
        let start = blocks.start.min(end);
        match level {
            // Beyond the end, too, the range is empty rather than turned around: the last block may be short.
            Level::Data => {
                let end = (end * block_size).min(self.file_size);
                (start * block_size).min(end)..end
            }
            Level::Tree(_) => {
                let offset = self.level_offset(level);
                offset + start * block_size..offset + end * block_size
            }
        }
    }

    /// Whether a kernel with pages of this size (from Linux 6.3 on) takes the tree.
    ///
    /// # Errors
    /// Where it does not, with the limit.
    pub fn kernel_limit(&self, page_size: u32) -> Result<(), KernelLimit> {
        let block_size = self.params.block_size().bytes();
        if block_size > page_size || block_size < 1024 {
            return Err(KernelLimit::BlockSize { block_size, page_size });
        }
        let blocks = self.tree_blocks();
        if block_size != page_size && blocks > KERNEL_TREE_BLOCKS_MAX {
            return Err(KernelLimit::TreeBlocks { blocks });
        }
        Ok(())
    }

    fn block_bytes(&self) -> u64 {
        u64::from(self.params.block_size().bytes())
    }
}

/// The way from a block to the root; see [`Shape::path_of`].
#[derive(Clone, Debug)]
pub struct Path<'a> {
    shape: &'a Shape,
    at: (Level, u64),
}

impl Iterator for Path<'_> {
    type Item = Place;

    fn next(&mut self) -> Option<Place> {
        let place = self.shape.place_of(self.at.0, self.at.1)?;
        self.at = (place.level, place.index);
        Some(place)
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::{Algorithm, BlockSize, Salt};

    fn shape(algorithm: Algorithm, block_size: u32, file_size: u64) -> Result<Shape, ShapeError> {
        let block_size = BlockSize::any(block_size, algorithm).unwrap();
        Shape::new(&Params::new(algorithm, block_size, Salt::NONE).unwrap(), file_size)
    }

    fn default(file_size: u64) -> Shape {
        Shape::new(&Params::default(), file_size).unwrap()
    }

    #[test]
    fn at_most_one_block_has_no_tree() {
        for size in [0, 1, 4095, 4096] {
            let shape = default(size);
            assert_eq!((shape.levels(), shape.tree_len()), (0, 0), "{size}");
            assert_eq!(shape.top(), (size > 0).then_some(Level::Data));
            assert_eq!(shape.place_of(Level::Data, 0), None);
        }
        assert_eq!((default(4097).levels(), default(4097).tree_len()), (1, 4096));
    }

    #[test]
    fn the_root_level_is_stored_first() {
        // 64000 blocks of data, as the kernel dumps it: 500 + 4 + 1 blocks.
        let shape = default(64000 * 4096 - 5);
        assert_eq!((shape.levels(), shape.tree_blocks(), shape.top()), (3, 505, Some(Level::Tree(2))));
        let starts: Vec<u64> = (0..3).map(|level| shape.level_offset(Level::Tree(level)) / 4096).collect();
        assert_eq!(starts, [5, 1, 0]);
        let last = shape.place_of(Level::Data, 63999).unwrap();
        assert_eq!(last, Place { level: Level::Tree(0), index: 499, tree_block: 504, offset: 127 * 32 });
        assert_eq!(shape.place_of(Level::Data, 64000), None);
        let path: Vec<u64> = shape.path_of(Level::Data, 63999).map(|place| place.tree_block).collect();
        assert_eq!(path, [504, 4, 0]);
        assert_eq!(shape.bytes_of(Level::Data, 63999..70000), 63999 * 4096..64000 * 4096 - 5);
        assert_eq!(shape.bytes_of(Level::Tree(1), 1..9), 2 * 4096..5 * 4096);
        let end = 64000 * 4096 - 5;
        assert_eq!(shape.bytes_of(Level::Data, 70000..80000), end..end);
    }

    #[test]
    fn every_stored_block_belongs_to_one_level() {
        let shape = shape(Algorithm::Sha512, 1024, 10_000_000).unwrap();
        for tree_block in 0..shape.tree_blocks() {
            let (level, index) = shape.level_of(tree_block).unwrap();
            let bytes = shape.bytes_of(level, index..index + 1);
            assert_eq!(bytes, tree_block * 1024..(tree_block + 1) * 1024);
        }
        assert_eq!(shape.level_of(shape.tree_blocks()), None);
    }

    #[test]
    fn files_beyond_8_tib_are_arithmetic() {
        let tib = 1_u64 << 40;
        let shape = default(9 * tib + 1);
        let data = 9 * tib / 4096 + 1;
        assert_eq!(shape.blocks(Level::Data), data);
        assert_eq!(shape.levels(), 5);
        let leaf = shape.place_of(Level::Data, data - 1).unwrap();
        assert_eq!((leaf.index, leaf.tree_block), (data / 128, shape.tree_blocks() - 1));
        assert_eq!(shape.path_of(Level::Data, data - 1).last().unwrap().tree_block, 0);
        // The largest file of all: 2^51 blocks, in 8 levels of 128.
        let shape = default(FILE_SIZE_MAX);
        assert_eq!((shape.blocks(Level::Data), shape.levels()), (1 << 51, 8));
        assert_eq!(shape.blocks(Level::Tree(7)), 1);
        assert_eq!(shape.place_of(Level::Data, (1 << 51) - 1).unwrap().tree_block, shape.tree_blocks() - 1);
    }

    #[test]
    fn limits_are_said() {
        assert_eq!(
            Shape::new(&Params::default(), FILE_SIZE_MAX + 1),
            Err(ShapeError::FileSize { file_size: FILE_SIZE_MAX + 1 })
        );
        // 16 hashes of 64 bytes in a block: 16^8 blocks of 1 KiB are 4 TiB, the most for 8 levels.
        let most = 1_u64 << 42;
        assert_eq!(shape(Algorithm::Sha512, 1024, most).unwrap().levels(), 8);
        let beyond = shape(Algorithm::Sha512, 1024, most + 1);
        assert_eq!(beyond, Err(ShapeError::Levels { file_size: most + 1, levels: 9, block_size: 1024 }));
        assert_eq!(shape(Algorithm::Sha256, 64, FILE_SIZE_MAX).unwrap().levels(), 57);
        assert!(shape(Algorithm::Sha256, 1 << 30, FILE_SIZE_MAX).is_ok());
    }

    #[test]
    fn the_kernels_limits_are_said() {
        let of =
            |block_size, size, page| shape(Algorithm::Sha256, block_size, size).unwrap().kernel_limit(page);
        assert_eq!(of(4096, 1 << 60, 4096), Ok(()));
        assert_eq!(of(1024, 1 << 20, 4096), Ok(()));
        assert_eq!(of(8192, 1, 4096), Err(KernelLimit::BlockSize { block_size: 8192, page_size: 4096 }));
        assert_eq!(of(512, 1, 4096), Err(KernelLimit::BlockSize { block_size: 512, page_size: 4096 }));
        assert!(
            matches!(of(4096, 1 << 42, 65536), Err(KernelLimit::TreeBlocks { blocks }) if blocks > 1 << 23)
        );
        assert_eq!(of(4096, (1 << 42) - (1 << 40), 65536), Ok(()));
    }
}
