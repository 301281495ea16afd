//! The blocks of a manifest on disk: each is checked against the manifest's own tree before anybody sees it.
//!
//! Checked blocks, of the manifest and of its tree, are kept in a cache of a fixed size, so a walk up the tree ends at the
//! first block that is there: as a rule the one above.

use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use shuntfs_sys::{OsError, data};
use shuntfs_verity::{CheckError, Digest, Level, Shape, Verifier};

use super::codec::Blocks;
use crate::ManifestError;

/// Bytes of checked blocks that one manifest keeps, at most twice: an old half goes when the new one is full.
const CACHE_LEN: usize = 8 << 20;

/// A file and its tree, read through checks: a manifest, or, offline, any other.
#[derive(Debug)]
pub(crate) struct SealedBlocks {
    data: File,
    tree: Option<TreeFile>,
    verifier: Verifier,
    cache: Mutex<Cache>,
    reads: AtomicU64,
}

/// Where a stored tree is.
#[derive(Debug)]
pub(crate) struct TreeFile {
    pub(crate) file: File,
    /// Where in the file it starts.
    pub(crate) start: u64,
}

impl SealedBlocks {
    /// Nothing is read yet. A file of one block has no tree.
    pub(crate) fn new(data: File, tree: Option<TreeFile>, verifier: Verifier) -> Self {
        let blocks_max = (CACHE_LEN / verifier.descriptor().params().block_size().len()).max(1);
        let cache = Mutex::new(Cache { young: HashMap::new(), old: HashMap::new(), blocks_max });
        Self { data, tree, verifier, cache, reads: AtomicU64::new(0) }
    }

    /// The file, and that of its tree where it has one.
    pub(crate) fn files(&self) -> (&File, Option<&File>) {
        (&self.data, self.tree.as_ref().map(|tree| &tree.file))
    }

    /// How many blocks were read from disk.
    pub(crate) fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// A checked block of any level.
    fn checked(&self, level: Level, index: u64) -> Result<Arc<[u8]>, ManifestError> {
        if let Some(block) = self.cache.lock().find((level, index)) {
            return Ok(block);
        }
        let shape = self.verifier.shape();
        let expected = match shape.place_of(level, index) {
            Some(place) => hash_in(shape, &self.checked(place.level, place.index)?, place.offset)?,
            None => *self.verifier.descriptor().root_hash(),
        };
        let bytes = self.read(level, index)?;
        match self.verifier.check(level, index, &bytes, expected.as_bytes()) {
            Ok(_) => {}
            Err(CheckError::Mismatch(mismatch)) => return Err(ManifestError::Damaged(mismatch)),
            Err(_) => return Err(ManifestError::Malformed("a block beyond the last")),
        }
        let block: Arc<[u8]> = bytes.into();
        self.cache.lock().keep((level, index), block.clone());
        Ok(block)
    }

    fn read(&self, level: Level, index: u64) -> Result<Vec<u8>, ManifestError> {
        let range = self.verifier.shape().bytes_of(level, index..index.saturating_add(1));
        let len = usize::try_from(range.end - range.start).unwrap_or(0);
        let mut bytes = vec![0; len];
        let (file, start) = match (level, &self.tree) {
            (Level::Data, _) => (&self.data, range.start),
            (Level::Tree(_), Some(tree)) => (&tree.file, tree.start.saturating_add(range.start)),
            (Level::Tree(_), None) => return Err(ManifestError::Malformed("it has no tree")),
        };
        self.reads.fetch_add(1, Ordering::Relaxed);
        let mut filled = 0;
        while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match data::read_at(file, rest, start.saturating_add(filled as u64)).map_err(ManifestError::Io)? {
                0 => return Err(ManifestError::Io(OsError::IO)),
                len => filled += len,
            }
        }
        Ok(bytes)
    }
}

fn hash_in(shape: &Shape, block: &[u8], offset: usize) -> Result<Digest, ManifestError> {
    let algorithm = shape.params().algorithm();
    let bytes = block.get(offset..).and_then(|rest| rest.get(..algorithm.digest_len()));
    let digest = bytes.and_then(|bytes| Digest::new(algorithm, bytes).ok());
    digest.ok_or(ManifestError::Malformed("a tree block that is too short"))
}

impl Blocks for SealedBlocks {
    fn len(&self) -> u64 {
        self.verifier.descriptor().file_size()
    }

    fn block_size(&self) -> u32 {
        self.verifier.descriptor().params().block_size().bytes()
    }

    fn block(&self, index: u64) -> Result<Arc<[u8]>, ManifestError> {
        if index >= self.verifier.shape().blocks(Level::Data) {
            return Err(ManifestError::Malformed("it ends too early"));
        }
        self.checked(Level::Data, index)
    }
}

/// Blocks in two generations: what is used while it is old becomes young again.
#[derive(Debug)]
struct Cache {
    young: HashMap<(Level, u64), Arc<[u8]>>,
    old: HashMap<(Level, u64), Arc<[u8]>>,
    blocks_max: usize,
}

impl Cache {
    fn find(&mut self, key: (Level, u64)) -> Option<Arc<[u8]>> {
        if let Some(block) = self.young.get(&key) {
            return Some(block.clone());
        }
        let block = self.old.remove(&key)?;
        self.keep(key, block.clone());
        Some(block)
    }

    fn keep(&mut self, key: (Level, u64), block: Arc<[u8]>) {
        if self.young.len() >= self.blocks_max {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, block);
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn the_cache_has_a_bound_and_keeps_what_is_used() {
        let mut cache = Cache { young: HashMap::new(), old: HashMap::new(), blocks_max: 4 };
        let block: Arc<[u8]> = vec![1].into();
        for index in 0..100 {
            cache.keep((Level::Data, index), block.clone());
            cache.keep((Level::Tree(0), 0), block.clone());
            assert!(cache.find((Level::Tree(0), 0)).is_some());
            assert!(cache.young.len() <= 4 && cache.old.len() <= 4);
        }
        assert!(cache.find((Level::Data, 0)).is_none());
        assert!(cache.find((Level::Data, 99)).is_some());
    }
}
