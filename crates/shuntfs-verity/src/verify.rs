//! Blocks compared with hashes.
//!
//! Whoever reads a sealed file starts from a digest that it trusts. [`Verifier::new`] compares the descriptor with it; from then on
//! the root hash is trusted. [`Verifier::check`] compares blocks with the hashes of a block above that was checked before,
//! up to the root; how many checked blocks are kept, and where, is the caller's. [`Shape::path_of`] is the way up.

use thiserror::Error;

use crate::{BlockHasher, Descriptor, Digest, Kernel, Level, Shape, ShapeError};

/// Compares blocks of one file, and of its tree, with hashes.
#[derive(Clone, Debug)]
pub struct Verifier {
    descriptor: Descriptor,
    shape: Shape,
    hasher: BlockHasher,
}

/// Why a descriptor is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Untrusted {
    /// It is not the one whose digest is trusted.
    #[error("the descriptor's digest is {found}, which is not the one that is trusted")]
    Digest {
        /// The descriptor's.
        found: Digest,
    },
    /// It is, but no tree can be as it says.
    #[error(transparent)]
    Shape(#[from] ShapeError),
}

/// A block that is not what it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("block {block} of level {level}: want_hash={expected} real_hash={found}")]
pub struct Mismatch {
    /// Where the block is.
    pub level: Level,
    /// Its index in the level.
    pub block: u64,
    /// The hash that the block above, or the descriptor, has for it.
    pub expected: Digest,
    /// The hash of the bytes.
    pub found: Digest,
}

/// Why blocks are not believed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CheckError {
    /// The first block that does not match.
    #[error("{0}")]
    Mismatch(Box<Mismatch>),
    /// The bytes are not whole blocks of the level, or the hashes not one for each: what was read is too short or too long.
    #[error(
        "{len} bytes with {hashes_len} bytes of hashes are no blocks of level {level} from {first_block} on"
    )]
    Misfit {
        /// The level asked for.
        level: Level,
        /// The first block asked for.
        first_block: u64,
        /// Bytes given.
        len: usize,
        /// Bytes of hashes given.
        hashes_len: usize,
    },
}

/// Proves that blocks were compared and match: only [`Verifier`] makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "without it nothing shows that the bytes were checked"]
pub struct Checked {
    level: Level,
    first_block: u64,
    blocks: u64,
}

impl Checked {
    /// Where the blocks are.
    #[must_use]
    pub const fn level(&self) -> Level {
        self.level
    }

    /// The first of them.
    #[must_use]
    pub const fn first_block(&self) -> u64 {
        self.first_block
    }

    /// How many there are.
    #[must_use]
    pub const fn blocks(&self) -> u64 {
        self.blocks
    }
}

impl Verifier {
    /// Believes a descriptor whose digest is trusted.
    ///
    /// # Errors
    /// Where its digest is another.
    pub fn new(descriptor: Descriptor, trusted: &Digest) -> Result<Self, Untrusted> {
        let found = descriptor.digest();
        if found != *trusted {
            return Err(Untrusted::Digest { found });
        }
        let shape = Shape::new(descriptor.params(), descriptor.file_size())?;
        Ok(Self { descriptor, shape, hasher: BlockHasher::new(descriptor.params()) })
    }

    /// The descriptor.
    #[must_use]
    pub const fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// The way that blocks are hashed.
    #[must_use]
    pub fn kernel(&self) -> Kernel {
        self.hasher.kernel()
    }

    /// The tree's shape.
    #[must_use]
    pub const fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The hash that the top block must have.
    #[must_use]
    pub fn root_hash(&self) -> &[u8] {
        self.descriptor.root_hash().as_bytes()
    }

    /// Compares blocks that follow each other with their hashes. `expected_hashes` must come from a block that was checked
    /// itself, or from [`root_hash`](Self::root_hash) for the top block.
    ///
    /// The last data block of the file may end with the file, or be padded: then the padding must be zeroes. Whole data blocks
    /// beyond the end of the file may follow where a page is larger than a block: they need no hash and must be zeroes, too, as
    /// the kernel wants it.
    ///
    /// # Errors
    /// The first block that does not match, or that the lengths do not fit each other.
    pub fn check(
        &self,
        level: Level,
        first_block: u64,
        bytes: &[u8],
        expected_hashes: &[u8],
    ) -> Result<Checked, CheckError> {
        let mut first = None;
        let checked = self.compare(level, first_block, (bytes, expected_hashes), |mismatch| {
            first.get_or_insert(mismatch);
        })?;
        first.map_or(Ok(checked), |mismatch| Err(CheckError::Mismatch(Box::new(mismatch))))
    }

    /// Like [`check`](Self::check), and goes on: returns every block that does not match.
    ///
    /// # Errors
    /// That the lengths do not fit each other.
    pub fn mismatches(
        &self,
        level: Level,
        first_block: u64,
        bytes: &[u8],
        expected_hashes: &[u8],
    ) -> Result<Vec<Mismatch>, CheckError> {
        let mut all = Vec::new();
        let _ = self.compare(level, first_block, (bytes, expected_hashes), |mismatch| all.push(mismatch))?;
        Ok(all)
    }

    fn compare(
        &self,
        level: Level,
        first_block: u64,
        (bytes, expected_hashes): (&[u8], &[u8]),
        mut differs: impl FnMut(Mismatch),
    ) -> Result<Checked, CheckError> {
        let params = self.descriptor.params();
        let (block_size, algorithm) = (params.block_size().len(), params.algorithm());
        let inside = self.inside(level, first_block, bytes.len(), expected_hashes.len());
        let hashed = inside.ok_or(CheckError::Misfit {
            level,
            first_block,
            len: bytes.len(),
            hashes_len: expected_hashes.len(),
        })?;
        let digest = |bytes: &[u8]| Digest::new(algorithm, bytes).expect("whole hashes");
        let mut found = Vec::with_capacity(expected_hashes.len());
        self.hasher.hash_blocks(&bytes[..hashed], &mut found);
        let pairs = expected_hashes
            .chunks_exact(algorithm.digest_len())
            .zip(found.chunks_exact(algorithm.digest_len()));
        let mut block = first_block;
        for (expected, found) in pairs {
            if expected != found {
                differs(Mismatch { level, block, expected: digest(expected), found: digest(found) });
            }
            block += 1;
        }
        let checked = Checked { level, first_block, blocks: block - first_block };
        for past_end in bytes[hashed..].chunks(block_size) {
            if past_end.iter().any(|byte| *byte != 0) {
                let hash = |bytes: &[u8]| {
                    let mut out = Vec::new();
                    self.hasher.hash_blocks(bytes, &mut out);
                    digest(&out)
                };
                differs(Mismatch { level, block, expected: hash(&[0]), found: hash(past_end) });
            }
            block += 1;
        }
        Ok(checked)
    }

    /// How many of the bytes have hashes; `None` where bytes and hashes do not fit each other and the level.
    fn inside(&self, level: Level, first_block: u64, len: usize, hashes_len: usize) -> Option<usize> {
        let params = self.descriptor.params();
        let (block_size, digest_len) = (params.block_size().len(), params.algorithm().digest_len());
        let left = self.shape.blocks(level).checked_sub(first_block)?;
        let blocks = left.min(len.div_ceil(block_size) as u64);
        if hashes_len as u64 != blocks * digest_len as u64 {
            return None;
        }
        let blocks = usize::try_from(blocks).ok()?;
        if len.is_multiple_of(block_size) {
            let fits = level == Level::Data || len == blocks * block_size;
            return fits.then_some(blocks * block_size);
        }
        // Cut at the end of the file, to the byte.
        let all = self.shape.bytes_of(level, first_block..first_block.checked_add(blocks as u64)?);
        (level == Level::Data && all.end - all.start == len as u64).then_some(len)
    }
}
