//! Data that is checked ahead of a sequential reader: what is read is what was sealed, and what is wrong is refused where it is.
//! Needs root and /dev/fuse.
#![expect(clippy::unwrap_used, reason = "also the helpers of tests report by panic")]

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{BLOCK, Fixture, content, each, flip, options, seal};
use shuntfs::TransportKind;
use shuntfs_testkit::lower::{Lower, LowerKind};
use shuntfs_testkit::skipped;
use shuntfs_verified::{DataReadahead, Seals, SealsOptions};

/// Ends inside a block, and inside a piece.
const LEN: usize = (12 << 20) + 70_005;

/// A sealed folder with one file, and what is in that.
fn sealed(lower: &Lower) -> (PathBuf, Vec<u8>) {
    let root = lower.folder("tree").unwrap();
    let whole = content(LEN);
    fs::write(root.join("file"), &whole).unwrap();
    seal(&root, &[]);
    (root, whole)
}

/// A mount that checks ahead however fast the lower file is: a busy machine must not decide what is tested.
fn mounted(root: &Path, transport: TransportKind) -> Fixture {
    let mut sealed = SealsOptions::new(root);
    sealed.checks.data_readahead = DataReadahead::Always;
    Fixture::of(Seals::open(&sealed).unwrap(), &options(transport))
}

/// Reads sequentially, a block at a time: the blocks that are refused. Every other must be what was sealed.
fn refused(path: &Path, whole: &[u8]) -> Vec<usize> {
    let file = File::open(path).unwrap();
    let mut room = vec![0; BLOCK];
    let mut refused = Vec::new();
    for (block, sealed) in whole.chunks(BLOCK).enumerate() {
        match file.read_exact_at(&mut room[..sealed.len()], (block * BLOCK) as u64) {
            Ok(()) => assert_eq!(&room[..sealed.len()], sealed, "block {block}"),
            Err(_) => refused.push(block),
        }
    }
    refused
}

/// Only there is a thread to spare.
fn checks_ahead(transport: TransportKind) -> bool {
    let cpus = std::thread::available_parallelism().unwrap().get();
    if transport == TransportKind::Uring && cpus == 1 {
        skipped("a second CPU is needed to check ahead");
    }
    transport == TransportKind::Uring && cpus > 1
}

#[test]
fn who_reads_on_by_rings_is_answered_from_what_was_checked_ahead() {
    each(&[LowerKind::Tmpfs, LowerKind::Ext4], |transport, lower| {
        let (root, whole) = sealed(lower);
        let fixture = mounted(&root, transport);
        for piece in [128 << 10, 40_000] {
            let mut file = File::open(fixture.path().join("file")).unwrap();
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
            let mut bytes = Vec::new();
            let mut room = vec![0; piece];
            while let read @ 1.. = file.read(&mut room).unwrap() {
                bytes.extend_from_slice(&room[..read]);
            }
            assert!(bytes == whole, "by {piece}");
        }
        let facts = fixture.facts();
        let expected = if checks_ahead(transport) { facts.reads / 4..facts.reads } else { 0..1 };
        assert!(expected.contains(&facts.reads_ahead), "{facts:?}");
        assert_eq!((facts.bad_blocks, facts.refused_reads), (0, 0));
    });
}

#[test]
fn what_is_wrong_ahead_is_refused_where_it_is_and_nowhere_else() {
    each(&[LowerKind::Tmpfs], |transport, lower| {
        let (root, whole) = sealed(lower);
        // The last block of one piece, one in the middle, the last of the file.
        let bad = [(4 << 20) / BLOCK - 1, (6 << 20) / BLOCK + 100, LEN / BLOCK];
        bad.iter().for_each(|block| flip(&root.join("file"), (block * BLOCK) as u64 + 7));
        let fixture = mounted(&root, transport);
        assert_eq!(refused(&fixture.path().join("file"), &whole), bad);
        let facts = fixture.facts();
        assert_eq!(facts.bad_blocks, bad.len() as u64, "each said once: {facts:?}");
        assert_eq!(facts.reads_ahead > 0, checks_ahead(transport), "{facts:?}");
    });
}

#[test]
fn a_file_that_ends_early_is_refused_from_there_on() {
    each(&[LowerKind::Tmpfs], |transport, lower| {
        let (root, whole) = sealed(lower);
        let kept = (7 << 20) / BLOCK + 3;
        OpenOptions::new()
            .write(true)
            .open(root.join("file"))
            .unwrap()
            .set_len((kept * BLOCK) as u64)
            .unwrap();
        let fixture = mounted(&root, transport);
        let missing: Vec<usize> = (kept..whole.chunks(BLOCK).len()).collect();
        assert_eq!(refused(&fixture.path().join("file"), &whole), missing);
        assert_eq!(fixture.facts().short_files, 1);
        assert_eq!(fixture.facts().reads_ahead > 0, checks_ahead(transport));
    });
}

/// Says that it is over, also where an assertion fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Bytes below that change all the time: a read gives what was sealed, or an error.
#[test]
fn nobody_sees_bytes_that_changed_after_they_were_checked() {
    each(&[LowerKind::Tmpfs], |transport, lower| {
        let (root, whole) = sealed(lower);
        let fixture = mounted(&root, transport);
        let over = AtomicBool::new(false);
        let mut clean = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut random = shuntfs_testkit::seeded::Random::new(5);
                while !over.load(Ordering::Relaxed) {
                    let offset = random.below(LEN) as u64;
                    flip(&root.join("file"), offset);
                    std::thread::sleep(Duration::from_micros(100));
                    flip(&root.join("file"), offset);
                }
            });
            let _over = Over(&over);
            let end = Instant::now() + Duration::from_millis(700);
            while Instant::now() < end {
                let path = fixture.path().join("file");
                rustix::fs::fadvise(File::open(&path).unwrap(), 0, None, rustix::fs::Advice::DontNeed)
                    .unwrap();
                clean += usize::from(refused(&path, &whole).is_empty());
            }
        });
        println!("{clean} whole reads without an error");
        assert_eq!(fixture.facts().reads_ahead > 0, checks_ahead(transport), "{:?}", fixture.facts());
    });
}
