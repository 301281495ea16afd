//! A file's data against its tree. First all of it is hashed, at full speed; only where the root hash differs are blocks looked
//! at one by one.

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::ops::Range;

use shuntfs_verity::{BuildError, Descriptor, Level, TreeError, TreeSink, Verifier, build_at};

use super::finding::Fault;
use crate::manifest::{Blocks, SealedBlocks, TreeFile};
use crate::spread::Counted;
use crate::{ManifestError, Progress};

/// Compares a file with its descriptor, which is trusted, and with its stored tree, which is not.
pub(super) fn check(
    descriptor: &Descriptor,
    file: &File,
    tree: Result<Option<TreeFile>, String>,
    threads: NonZeroUsize,
    progress: &dyn Progress,
) -> Option<Fault> {
    let found = match file.metadata() {
        Ok(found) => found.len(),
        Err(error) => return Some(Fault::Unreadable(error.to_string())),
    };
    let sealed = descriptor.file_size();
    if found != sealed {
        return Some(Fault::Size { sealed, found });
    }
    let mut compared = Compared { tree: tree.as_ref().ok().and_then(Option::as_ref), differs: None };
    let source = Counted { file, progress };
    let built = match build_at(descriptor.params(), sealed, &source, &mut compared, threads) {
        Ok(built) => built,
        Err(BuildError::Tree(TreeError::Sink(error))) => return Some(Fault::Tree(error.to_string())),
        Err(error) => return Some(Fault::Unreadable(error.to_string())),
    };
    let differs = compared.differs;
    match (built == *descriptor, tree, differs) {
        (true, Err(why), _) => Some(Fault::Tree(why)),
        (true, Ok(_), Some(offset)) => Some(Fault::Tree(format!("it differs at byte {offset}"))),
        (true, Ok(_), None) => None,
        (false, tree, _) => Some(locate(descriptor, file, tree.ok().flatten())),
    }
}

/// Finds the blocks that differ, as far as the stored tree can be trusted.
fn locate(descriptor: &Descriptor, file: &File, tree: Option<TreeFile>) -> Fault {
    let block_size = descriptor.params().block_size().bytes();
    let (mut blocks, mut first, mut unknown): (Vec<Range<u64>>, _, _) = (Vec::new(), None, 0);
    let sealed = file.try_clone().map_err(|error| error.to_string()).and_then(|file| {
        let verifier = Verifier::new(*descriptor, &descriptor.digest()).map_err(|error| error.to_string())?;
        Ok((verifier.shape().blocks(Level::Data), SealedBlocks::new(file, tree, verifier)))
    });
    let (count, sealed) = match sealed {
        Ok(sealed) => sealed,
        Err(error) => return Fault::Unreadable(error),
    };
    for index in 0..count {
        match sealed.block(index) {
            Ok(_) => {}
            Err(ManifestError::Damaged(mismatch)) if mismatch.level == Level::Data => {
                first.get_or_insert(*mismatch);
                match blocks.last_mut() {
                    Some(run) if run.end == index => run.end += 1,
                    _ => blocks.push(index..index + 1),
                }
            }
            Err(_) => unknown += 1,
        }
    }
    Fault::Data { blocks, block_size, first, unknown }
}

/// Compares the tree that is made with the one that is stored.
struct Compared<'a> {
    tree: Option<&'a TreeFile>,
    /// The first byte of the first blocks that differ.
    differs: Option<u64>,
}

impl TreeSink for Compared<'_> {
    fn put(&mut self, offset: u64, blocks: &[u8]) -> io::Result<()> {
        let Some(tree) = self.tree else { return Ok(()) };
        let mut stored = vec![0; blocks.len()];
        let at = tree.start.saturating_add(offset);
        std::os::unix::fs::FileExt::read_exact_at(&tree.file, &mut stored, at)?;
        if let Some(first) = stored.iter().zip(blocks).position(|(stored, made)| stored != made) {
            self.differs.get_or_insert(offset + first as u64);
        }
        Ok(())
    }
}
