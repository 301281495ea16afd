//! The tree against a copy in memory that counts reads, and can be spoiled.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use shuntfs_testkit::seeded::Random;
use shuntfs_verity::{Algorithm, BlockSize, Discard, Params, Salt, TreeBuilder, TreeSink};

use super::*;
use crate::options::{CheckOptions, TreeReadahead};
use pollster::block_on;

/// A stored tree in memory.
struct Stored {
    bytes: RefCell<Vec<u8>>,
    /// Reads, by offset and length.
    reads: RefCell<Vec<(u64, usize)>>,
    ahead: Cell<bool>,
    fails: Cell<Option<Errno>>,
}

impl TreeIo for Stored {
    async fn read(&self, _: &Arc<LowerFile>, len: usize, offset: u64) -> Result<Vec<u8>, Errno> {
        self.reads.borrow_mut().push((offset, len));
        if let Some(errno) = self.fails.get() {
            return Err(errno);
        }
        let bytes = self.bytes.borrow();
        let start = usize::try_from(offset).unwrap().min(bytes.len());
        Ok(bytes[start..(start + len).min(bytes.len())].to_vec())
    }

    fn is_ahead(&self) -> bool {
        self.ahead.get()
    }
}

fn pick(random: &mut Random, end: u64) -> u64 {
    random.number() % end
}

/// The hash that the test gives a data block.
fn leaf(block: u64, len: usize) -> Vec<u8> {
    block.to_le_bytes().into_iter().cycle().take(len).collect()
}

fn params(algorithm: Algorithm, block_size: u32) -> Params {
    Params::new(algorithm, BlockSize::new(block_size).unwrap(), Salt::new(b"salt").unwrap()).unwrap()
}

/// The tree of a file of so many blocks, whose data nobody needs.
fn made(params: &Params, blocks: u64, options: &CheckOptions) -> (HashTree, Stored) {
    fn build(params: &Params, blocks: u64, sink: impl TreeSink) -> Descriptor {
        let mut builder =
            TreeBuilder::new(params, blocks * u64::from(params.block_size().bytes()), sink).unwrap();
        for block in 0..blocks {
            builder.push_hashes(&leaf(block, params.algorithm().digest_len())).unwrap();
        }
        builder.finish().unwrap()
    }
    let mut bytes = Vec::new();
    let descriptor = build(params, blocks, &mut bytes);
    assert_eq!(build(params, blocks, Discard), descriptor);
    let source = || Ok(LowerFile::new(tempfile::tempfile().unwrap().into()));
    let tree = HashTree::new(descriptor, Box::new(source), &Checks::new(options)).unwrap();
    let stored = Stored {
        bytes: RefCell::new(bytes),
        reads: RefCell::default(),
        ahead: Cell::new(false),
        fails: Cell::new(None),
    };
    (tree, stored)
}

fn hashes_of(tree: &HashTree, io: &Stored, blocks: Range<u64>, pace: Pace) -> Result<Vec<u8>, Fault> {
    let hashes = match tree.cached_hashes(&blocks) {
        Some(hashes) => hashes,
        None => block_on(tree.hashes(io, blocks.clone(), pace))?,
    };
    let runs: Vec<_> = hashes.runs(blocks.clone()).map(|(run, bytes)| (run, bytes.to_vec())).collect();
    assert_eq!(runs.first().map(|(run, _)| run.start), Some(blocks.start));
    assert_eq!(runs.last().map(|(run, _)| run.end), Some(blocks.end));
    Ok(runs.into_iter().flat_map(|(_, bytes)| bytes).collect())
}

fn expected(params: &Params, blocks: Range<u64>) -> Vec<u8> {
    blocks.flat_map(|block| leaf(block, params.algorithm().digest_len())).collect()
}

#[test]
fn every_hash_is_found_whatever_the_shape() {
    for (algorithm, block_size, blocks) in [
        (Algorithm::Sha256, 4096, 2),
        (Algorithm::Sha256, 4096, 129),
        (Algorithm::Sha256, 1024, 40_000),
        (Algorithm::Sha512, 1024, 5000),
        (Algorithm::Sha512, 4096, 5000),
        (Algorithm::Sha256, 65536, 5000),
    ] {
        let params = params(algorithm, block_size);
        let (tree, io) = made(&params, blocks, &CheckOptions::default());
        let mut random = Random::new(blocks);
        for pace in [Pace::Random, Pace::Sequential] {
            for _ in 0..200 {
                let start = pick(&mut random, blocks);
                let end = (start + 1 + pick(&mut random, 300)).min(blocks);
                let found = hashes_of(&tree, &io, start..end, pace).unwrap();
                assert!(found == expected(&params, start..end), "{algorithm} {block_size} {start}..{end}");
            }
        }
        let facts = tree.checks.facts();
        assert!(facts.tree_blocks <= tree.shape().tree_blocks(), "a block was hashed twice: {facts:?}");
    }
}

/// 250 MiB and a bit: 64000 blocks, 505 blocks of tree.
const USUAL: u64 = 64_000;

#[test]
fn a_sequential_reader_costs_a_read_for_eight_mebibytes() {
    let params = Params::default();
    let (tree, io) = made(&params, USUAL, &CheckOptions::default());
    for start in (0..USUAL).step_by(32) {
        hashes_of(&tree, &io, start..start + 32, Pace::Sequential).unwrap();
    }
    let facts = tree.checks.facts();
    assert_eq!(facts.tree_reads, 500_u64.div_ceil(16), "strips, the first one with the top");
    assert!(facts.tree_reads * 4 <= (USUAL * 4096) >> 20, "at most one for 4 MiB");
    assert_eq!((facts.tree_blocks, facts.tree_bytes), (505, 505 * 4096), "each once");
    let strips = io.reads.borrow().iter().filter(|(_, len)| *len == 64 << 10).count();
    assert_eq!(strips, 30, "all but the first and the last");
    for start in (0..USUAL).step_by(256) {
        hashes_of(&tree, &io, start..start + 256, Pace::Sequential).unwrap();
    }
    assert_eq!(tree.checks.facts().tree_reads, facts.tree_reads, "all of it is kept");
}

#[test]
fn without_readahead_each_block_is_read_by_itself() {
    let params = Params::default();
    let options = CheckOptions { tree_readahead: TreeReadahead::Off, ..CheckOptions::default() };
    let (tree, io) = made(&params, USUAL, &options);
    for start in (0..USUAL).step_by(64) {
        let end = (start + 300).min(USUAL);
        let found = hashes_of(&tree, &io, start..end, Pace::Sequential).unwrap();
        assert!(found == expected(&params, start..end), "{start}");
    }
    assert!(io.reads.borrow().iter().all(|(_, len)| *len == 4096));
    let facts = tree.checks.facts();
    assert_eq!((facts.tree_reads, facts.tree_reads_ahead, facts.tree_blocks), (505, 0, 505));
}

#[test]
fn what_is_ahead_is_not_read_again() {
    let (tree, io) = made(&Params::default(), USUAL, &CheckOptions::default());
    io.ahead.set(true);
    assert!(tree.lacks_strip(3));
    block_on(tree.strip(&io, 3)).unwrap();
    assert!(!tree.lacks_strip(3) && !tree.lacks_strip(1 << 40), "there is no such strip");
    block_on(tree.strip(&io, 1 << 40)).unwrap();
    let before = tree.checks.facts();
    assert_eq!((before.tree_reads, before.tree_reads_ahead), (2, 2));
    io.ahead.set(false);
    let first = 3 * 16 * 128;
    assert_eq!(tree.strip_of(first), 3);
    hashes_of(&tree, &io, first..first + 2048, Pace::Sequential).unwrap();
    assert_eq!(tree.checks.facts().tree_reads, before.tree_reads);
}

#[test]
fn random_readers_pay_less_than_the_kernel_makes_them() {
    for seed in 1..=8 {
        let (tree, io) = made(&Params::default(), USUAL, &CheckOptions::default());
        let mut random = Random::new(seed);
        for _ in 0..500 {
            let block = pick(&mut random, USUAL);
            hashes_of(&tree, &io, block..block + 1, Pace::Random).unwrap();
        }
        let facts = tree.checks.facts();
        assert!(facts.tree_reads <= 320, "seed {seed}: {facts:?}; the kernel's own takes 0.65 a read");
        assert!(facts.tree_bytes <= 505 * 4096, "seed {seed}: {facts:?}");
    }
}

#[test]
fn a_small_tree_is_read_at_once() {
    let (tree, io) = made(&Params::default(), 1500, &CheckOptions::default());
    hashes_of(&tree, &io, 1400..1401, Pace::Random).unwrap();
    assert_eq!(*io.reads.borrow(), [(0, 13 * 4096)]);
}

#[test]
fn a_spoiled_block_is_named_and_its_neighbours_are_good() {
    let params = Params::default();
    let (good, io) = made(&params, USUAL, &CheckOptions::default());
    let total = good.shape().tree_blocks();
    for spoiled in [0, 1, 4, 5, 6, 7, 200, total - 1] {
        let (tree, io_bad) = made(&params, USUAL, &CheckOptions::default());
        let (level, index) = tree.shape().level_of(spoiled).unwrap();
        let at = usize::try_from(spoiled * 4096 + 77).unwrap();
        io_bad.bytes.borrow_mut()[at] ^= 4;
        let mut outcomes = BTreeMap::new();
        for block in (0..USUAL).step_by(128) {
            let outcome = hashes_of(&tree, &io_bad, block..block + 1, Pace::Random);
            if let Ok(found) = &outcome {
                assert!(*found == hashes_of(&good, &io, block..block + 1, Pace::Random).unwrap());
            }
            outcomes.insert(block / 128, outcome);
        }
        let faults: Vec<_> = outcomes
            .iter()
            .filter_map(|(leaf, outcome)| Some((*leaf, outcome.as_ref().err()?.clone())))
            .collect();
        assert!(!faults.is_empty(), "block {spoiled}");
        for (_, fault) in &faults {
            let Fault::Bad(bad) = fault else { panic!("{fault:?}") };
            assert_eq!((bad.level, bad.block), (level, index), "block {spoiled}");
        }
        let below = match level {
            Level::Tree(0) => index..index + 1,
            Level::Tree(1) => index * 128..((index + 1) * 128).min(500),
            _ => 0..500,
        };
        assert!(faults.iter().map(|(leaf, _)| *leaf).eq(below), "block {spoiled}: exactly what is below it");
    }
}

#[test]
fn a_tree_that_ends_early_or_fails_is_said() {
    let (tree, io) = made(&Params::default(), USUAL, &CheckOptions::default());
    io.bytes.borrow_mut().truncate(300 * 4096);
    assert!(hashes_of(&tree, &io, 0..1, Pace::Random).is_ok());
    let last = USUAL - 1..USUAL;
    assert_eq!(hashes_of(&tree, &io, last.clone(), Pace::Random), Err(Fault::Short));
    io.fails.set(Some(Errno::IO));
    assert_eq!(hashes_of(&tree, &io, last, Pace::Random), Err(Fault::Lower(Errno::IO)));
    assert!(hashes_of(&tree, &io, 0..1, Pace::Random).is_ok(), "what is checked stays");
}

/// With a cache that holds next to nothing, parts of levels are gone whenever they are needed again.
#[test]
fn a_cache_that_is_too_small_is_slow_and_right() {
    let options = CheckOptions { tree_cache: 0, ..CheckOptions::default() };
    let params = params(Algorithm::Sha512, 4096);
    let (tree, io) = made(&params, 40_000, &options);
    let mut random = Random::new(5);
    for _ in 0..2000 {
        let start = pick(&mut random, 40_000);
        let end = (start + 1 + pick(&mut random, 200)).min(40_000);
        let pace = if pick(&mut random, 2) == 0 { Pace::Random } else { Pace::Sequential };
        assert!(hashes_of(&tree, &io, start..end, pace).unwrap() == expected(&params, start..end));
    }
    let facts = tree.checks.facts();
    assert!(facts.tree_cached <= facts.tree_cache_max, "{facts:?}");
    assert!(facts.tree_blocks > tree.shape().tree_blocks(), "it did not all fit: {facts:?}");
}

#[test]
fn many_readers_make_one_read_of_each_block() {
    let params = Params::default();
    let folder = tempfile::tempdir().unwrap();
    let (made_tree, io) = made(&params, USUAL, &CheckOptions::default());
    let path = folder.path().join("tree");
    std::fs::write(&path, &*io.bytes.borrow()).unwrap();
    let descriptor = *made_tree.verifier.descriptor();
    let source = move || Ok(LowerFile::new(std::fs::File::open(&path).map_err(|_| Errno::IO)?.into()));
    let checks = Checks::new(&CheckOptions::default());
    let tree = HashTree::new(descriptor, Box::new(source), &checks).unwrap();
    let threads = std::thread::available_parallelism().map_or(4, NonZeroUsize::get).max(8);
    std::thread::scope(|scope| {
        for number in 0..threads as u64 {
            let tree = &tree;
            scope.spawn(move || {
                let mut random = Random::new(number);
                for _ in 0..300 {
                    let start = pick(&mut random, USUAL - 64);
                    let pace = if pick(&mut random, 2) == 0 { Pace::Random } else { Pace::Sequential };
                    let hashes =
                        block_on(tree.hashes(&crate::io::ThreadIo, start..start + 64, pace)).unwrap();
                    let found: Vec<u8> =
                        hashes.runs(start..start + 64).flat_map(|(_, run)| run).copied().collect();
                    assert!(found == expected(&Params::default(), start..start + 64));
                }
            });
        }
    });
    let facts = checks.facts();
    assert!(facts.tree_blocks <= 505 && facts.tree_bytes <= 505 * 4096, "{facts:?}");
}
