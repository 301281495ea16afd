//! Whether a stored tree is what it must be: level by level from the root hash down, without the file's data.

use std::fs::File;

use shuntfs_verity::{Descriptor, Level, Verifier};

use crate::Store;
use crate::store::read_exact_at;

/// Bytes of a tree that are read at a time.
const BATCH_LEN: u64 = 1 << 20;

/// Whether the store has the tree of a file, and all of it is right. Only the lowest level, which is nearly all of a
/// tree, is not held in memory.
pub(super) fn is_whole(store: &Store, descriptor: &Descriptor) -> bool {
    match store.open_tree(descriptor) {
        Ok(sealed) => sealed.tree.is_none_or(|tree| is_right(descriptor, &tree).is_some()),
        Err(_) => false,
    }
}

fn is_right(descriptor: &Descriptor, tree: &File) -> Option<()> {
    let verifier = Verifier::new(*descriptor, &descriptor.digest()).ok()?;
    let (shape, hash_len) = (verifier.shape(), descriptor.params().algorithm().digest_len());
    let block_len = u64::from(descriptor.params().block_size().bytes());
    let batch = (BATCH_LEN / block_len).max(1);
    let mut expected = verifier.root_hash().to_vec();
    for number in (0..u8::try_from(shape.levels()).ok()?).rev() {
        let level = Level::Tree(number);
        let (mut blocks, mut hashes) = (0..shape.blocks(level), Vec::new());
        while !blocks.is_empty() {
            let run = blocks.start..(blocks.start + batch).min(blocks.end);
            let range = shape.bytes_of(level, run.clone());
            let mut bytes = vec![0; usize::try_from(range.end - range.start).ok()?];
            read_exact_at(tree, &mut bytes, range.start).ok()?;
            let place = |block: u64| usize::try_from(block).ok()?.checked_mul(hash_len);
            let wanted = expected.get(place(run.start)?..place(run.end)?)?;
            let _checked = verifier.check(level, run.start, &bytes, wanted).ok()?;
            if number > 0 {
                hashes.extend_from_slice(&bytes);
            }
            blocks.start = run.end;
        }
        expected = hashes;
    }
    Some(())
}
