//! Files that change while they are read, sinks that fail, blocks that lie.
#![expect(clippy::unwrap_used, reason = "also the helpers of tests report by panic")]

use std::io::{self, Read};
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use shuntfs_verity::{
    Algorithm, BlockSize, BuildError, CheckError, Descriptor, Digest, Discard, Level, Params, ReadAt, Salt,
    ShapeError, TreeBuilder, TreeError, TreeSink, Untrusted, Verifier, build, build_at,
};

const BLOCK: usize = 4096;

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 7).to_le_bytes()[0] ^ at.to_le_bytes()[1]).collect()
}

fn threads(count: usize) -> NonZeroUsize {
    NonZeroUsize::new(count).unwrap()
}

fn sealed(data: &[u8], params: &Params) -> (Verifier, Vec<u8>) {
    let mut tree = Vec::new();
    let descriptor = build_at(params, data.len() as u64, data, &mut tree, threads(2)).unwrap();
    (Verifier::new(descriptor, &descriptor.digest()).unwrap(), tree)
}

#[test]
fn a_file_that_ends_early_or_goes_on_is_said() {
    let data = content(3 << 20);
    let params = Params::default();
    for count in [1, 4] {
        for wrong in [data.len() + 1, data.len() + (1 << 20)] {
            let shorter = build_at(&params, wrong as u64, &data[..], Discard, threads(count));
            assert!(matches!(shorter, Err(BuildError::Shorter { found, .. }) if found == data.len() as u64));
            let shorter = build(&params, wrong as u64, &data[..], Discard, threads(count));
            assert!(matches!(shorter, Err(BuildError::Shorter { found, .. }) if found == data.len() as u64));
        }
        for wrong in [0, data.len() - 1, data.len() - (1 << 20)] {
            let longer = build_at(&params, wrong as u64, &data[..], Discard, threads(count));
            assert!(matches!(longer, Err(BuildError::Longer { expected }) if expected == wrong as u64));
            let longer = build(&params, wrong as u64, &data[..], Discard, threads(count));
            assert!(matches!(longer, Err(BuildError::Longer { .. })));
        }
    }
    let huge = build_at(&params, u64::MAX, &data[..], Discard, threads(1));
    assert!(matches!(huge, Err(BuildError::Tree(TreeError::Shape(ShapeError::FileSize { .. })))));
}

/// Reads a few bytes at a time, is interrupted now and then, and fails or panics from a byte on.
struct Rough<'a> {
    data: &'a [u8],
    bad_from: u64,
    panics: bool,
    calls: AtomicUsize,
}

impl ReadAt for Rough<'_> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let calls = self.calls.fetch_add(1, Ordering::Relaxed);
        if calls.is_multiple_of(3) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        if offset >= self.bad_from {
            assert!(!self.panics, "as ordered");
            return Err(io::Error::other("a bad disk"));
        }
        let len = buffer.len().min(70_001);
        self.data.read_at(&mut buffer[..len], offset)
    }
}

#[test]
fn short_and_interrupted_reads_are_gone_on_with() {
    let data = content((5 << 20) + 77);
    let (verifier, wanted) = sealed(&data, &Params::default());
    let rough = Rough { data: &data, bad_from: u64::MAX, panics: false, calls: AtomicUsize::new(0) };
    let mut tree = Vec::new();
    let size = data.len() as u64;
    let descriptor = build_at(&Params::default(), size, &rough, &mut tree, threads(3)).unwrap();
    assert_eq!(descriptor, *verifier.descriptor());
    assert!(tree == wanted);
}

#[test]
fn a_bad_disk_ends_it_with_the_place() {
    let data = content(20 << 20);
    for bad_from in [0, 9 << 20, (20 << 20) - 1] {
        let rough = Rough { data: &data, bad_from, panics: false, calls: AtomicUsize::new(0) };
        let failed = build_at(&Params::default(), data.len() as u64, &rough, Discard, threads(4));
        assert!(matches!(failed, Err(BuildError::Read { offset, .. }) if offset >= bad_from));
        let rough = Rough { data: &data, bad_from, panics: true, calls: AtomicUsize::new(0) };
        let build = || build_at(&Params::default(), data.len() as u64, &rough, Discard, threads(4));
        assert!(
            catch_unwind(AssertUnwindSafe(build)).is_err(),
            "a panic ends the call instead of hanging it"
        );
    }
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _buffer: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("a bad disk"))
        }
    }
    let failed = build(&Params::default(), 10, Broken, Discard, threads(2));
    assert!(matches!(failed, Err(BuildError::Read { offset: 0, .. })));
}

/// A disk that is full after some bytes, and counts what it gets.
struct Full {
    room: usize,
    most: usize,
}

impl TreeSink for Full {
    fn put(&mut self, _offset: u64, blocks: &[u8]) -> io::Result<()> {
        self.most = self.most.max(blocks.len());
        self.room = self.room.checked_sub(blocks.len()).ok_or(io::ErrorKind::StorageFull)?;
        Ok(())
    }
}

#[test]
fn a_full_disk_ends_it() {
    let data = content(30 << 20);
    let (verifier, tree) = sealed(&data, &Params::default());
    for room in [0, 1, 100_000, tree.len() - 1] {
        let sink = Full { room, most: 0 };
        let failed = build_at(&Params::default(), data.len() as u64, &data[..], sink, threads(4));
        let Err(BuildError::Tree(TreeError::Sink(error))) = failed else { panic!("{failed:?}") };
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
    let mut sink = Full { room: tree.len(), most: 0 };
    let built = build_at(&Params::default(), data.len() as u64, &data[..], &mut sink, threads(4)).unwrap();
    assert_eq!(built, *verifier.descriptor());
    assert_eq!((sink.room, sink.most), (0, 16 * BLOCK), "every byte comes once, 16 blocks at most at a time");
}

/// A thread that is far ahead of the slowest waits: what it holds is bounded.
#[test]
fn threads_do_not_run_away_from_a_slow_one() {
    struct Slow {
        data: Vec<u8>,
        first: Mutex<bool>,
        ahead: AtomicUsize,
    }
    impl ReadAt for Slow {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            let is_first = offset == 0 && std::mem::take(&mut *self.first.lock().unwrap());
            if is_first {
                std::thread::sleep(std::time::Duration::from_millis(300));
                // Everybody else has come to rest by now.
                println!("{} chunks were read meanwhile", self.ahead.load(Ordering::SeqCst));
                assert!(self.ahead.load(Ordering::SeqCst) <= 256 + 4, "bounded");
            }
            self.ahead.fetch_add(1, Ordering::SeqCst);
            let start = usize::try_from(offset).unwrap() % self.data.len();
            let len = buffer.len().min(self.data.len() - start);
            buffer[..len].copy_from_slice(&self.data[start..start + len]);
            // The file is 100 MiB, of which 1 MiB is held.
            Ok(if offset >= 100 << 20 { 0 } else { len })
        }
    }
    let slow = Slow { data: content(1 << 20), first: Mutex::new(true), ahead: AtomicUsize::new(0) };
    let built = build_at(&Params::default(), 100 << 20, &slow, Discard, threads(3)).unwrap();
    let whole = slow.data.repeat(100);
    let (verifier, _) = sealed(&whole, &Params::default());
    assert_eq!(built, *verifier.descriptor());
}

#[test]
fn too_many_and_too_few_hashes_are_refused() {
    let params = Params::default();
    let builder = |size| TreeBuilder::new(&params, size, Discard).unwrap();
    let mut one = builder(1);
    assert!(matches!(one.push_hashes(&[0; 64]), Err(TreeError::Hashes { wanted: 1, given: 2 })));
    let mut many = builder(300 * BLOCK as u64);
    many.push_hashes(&[0; 299 * 32]).unwrap();
    assert!(matches!(many.finish(), Err(TreeError::Hashes { wanted: 300, given: 299 })));
    assert!(matches!(builder(0).push_hashes(&[0; 32]), Err(TreeError::Hashes { wanted: 0, .. })));
    assert!(builder(0).finish().is_ok());
}

#[test]
fn a_descriptor_is_believed_for_its_digest_alone() {
    let data = content(100_000);
    let (verifier, _) = sealed(&data, &Params::default());
    let descriptor = *verifier.descriptor();
    let bytes = descriptor.to_bytes();
    for bit in 0..8 * bytes.len() {
        let mut bad = bytes;
        bad[bit / 8] ^= 1 << (bit % 8);
        let Ok(parsed) = Descriptor::parse(&bad) else { continue };
        let refused = Verifier::new(parsed, &descriptor.digest()).err();
        assert!(matches!(refused, Some(Untrusted::Digest { .. })), "bit {bit}");
    }
    // One that is trusted, but that no tree can have.
    let params = Params::new(Algorithm::Sha512, BlockSize::new(1024).unwrap(), Salt::NONE).unwrap();
    let beyond = Descriptor::new(&params, 1 << 43, Digest::zero(Algorithm::Sha512)).unwrap();
    let refused = Verifier::new(beyond, &beyond.digest()).err();
    assert!(matches!(refused, Some(Untrusted::Shape(ShapeError::Levels { levels: 9, .. }))));
}

#[test]
fn the_block_that_differs_is_named() {
    let data = content(100 * BLOCK - 5);
    let (verifier, tree) = sealed(&data, &Params::default());
    let mut bad = data.clone();
    bad[17 * BLOCK] ^= 1;
    bad[99 * BLOCK + 90] ^= 0x80;
    let hashes = &tree[..100 * 32];
    let Err(CheckError::Mismatch(first)) = verifier.check(Level::Data, 0, &bad, hashes) else { panic!() };
    assert_eq!(
        (first.level, first.block, first.expected.as_bytes()),
        (Level::Data, 17, &tree[17 * 32..18 * 32])
    );
    assert_ne!(first.expected, first.found);
    assert!(first.to_string().starts_with("block 17 of level -1: want_hash=sha256:"));
    let all = verifier.mismatches(Level::Data, 0, &bad, hashes).unwrap();
    assert_eq!(all.iter().map(|mismatch| mismatch.block).collect::<Vec<_>>(), [17, 99]);
    // The neighbours are good.
    let good =
        verifier.check(Level::Data, 18, &bad[18 * BLOCK..99 * BLOCK], &hashes[18 * 32..99 * 32]).unwrap();
    assert_eq!((good.level(), good.first_block(), good.blocks()), (Level::Data, 18, 81));
    let root = verifier.root_hash();
    assert!(verifier.check(Level::Tree(0), 0, &tree, root).is_ok());
    let mut torn = tree.clone();
    torn[BLOCK - 1] = 1;
    let Err(CheckError::Mismatch(padding)) = verifier.check(Level::Tree(0), 0, &torn, root) else { panic!() };
    assert_eq!((padding.level, padding.block), (Level::Tree(0), 0));
}

#[test]
fn bytes_that_are_no_blocks_are_refused_before_anything_is_hashed() {
    let data = content(10 * BLOCK + 100);
    let (verifier, tree) = sealed(&data, &Params::default());
    let hashes = |from: usize, to: usize| &tree[from * 32..to * 32];
    let refused = |level, first, bytes: &[u8], hashes: &[u8]| {
        matches!(verifier.check(level, first, bytes, hashes), Err(CheckError::Misfit { .. }))
    };
    assert!(verifier.check(Level::Data, 0, &data, hashes(0, 11)).is_ok());
    // A read that came back short in the middle of the file, or at its end.
    assert!(refused(Level::Data, 0, &data[..5 * BLOCK - 1], hashes(0, 5)));
    assert!(refused(Level::Data, 0, &data[..data.len() - 1], hashes(0, 11)));
    assert!(refused(Level::Data, 10, &data[10 * BLOCK..][..99], hashes(10, 11)));
    assert!(refused(Level::Data, 0, &data, hashes(0, 10)));
    assert!(refused(Level::Data, 0, &data[..BLOCK], hashes(0, 2)));
    assert!(refused(Level::Data, 12, &data[..BLOCK], &[]));
    // Found by the fuzz target `verity_blocks`: from the first block that does not exist on, a part of a block.
    assert!(refused(Level::Data, 11, &data[..99], &[]));
    assert!(refused(Level::Data, u64::MAX, &data[..BLOCK], hashes(0, 1)));
    assert!(refused(Level::Tree(0), 0, &tree[..BLOCK - 1], verifier.root_hash()));
    assert!(refused(Level::Tree(0), 0, &[&tree[..], &[0; BLOCK]].concat(), verifier.root_hash()));
    assert!(refused(Level::Tree(1), 0, &tree, verifier.root_hash()));
    assert!(refused(Level::Tree(255), 0, &tree, verifier.root_hash()));
}

/// Where a page is larger than a block, what is mapped beyond the end of the file must be zeroes.
#[test]
fn what_follows_the_end_in_the_last_page_must_be_zeroes() {
    let params = Params::new(Algorithm::Sha256, BlockSize::new(1024).unwrap(), Salt::NONE).unwrap();
    let data = content(5 * 1024 + 10);
    let (verifier, tree) = sealed(&data, &params);
    let mut page = data[4096..].to_vec();
    page.resize(4096, 0);
    let hashes = &tree[4 * 32..6 * 32];
    assert_eq!(verifier.check(Level::Data, 4, &page, hashes).map(|checked| checked.blocks()), Ok(2));
    for (at, block) in [(1024 + 10, 5), (2 * 1024, 6), (4095, 7)] {
        page[at] = 1;
        let Err(CheckError::Mismatch(bad)) = verifier.check(Level::Data, 4, &page, hashes) else { panic!() };
        assert_eq!((bad.level, bad.block), (Level::Data, block));
        page[at] = 0;
    }
}
