//! READs answered through a pipe, against the lower file byte by byte. Needs CAP_SYS_ADMIN and /dev/fuse.

mod common;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::wishes::{Plan, Wishes, splice};
use common::{Mounted, can_mount, options};
use shuntfs::{CacheHint, Opcode, SessionOptions, TransportKind};
use tempfile::TempDir;

/// Below this a READ is copied, because that is cheaper.
const SPLICED_FROM: usize = 64 << 10;

/// A page and the header less than the pipe that anybody may have (`fs.pipe-max-size`), and a page for raggedness.
const LONGEST: usize = (1 << 20) - 2 * 4096;

struct Fixture {
    mounted: Mounted,
    lower: TempDir,
}

impl Fixture {
    /// Opens of its file bypass the page cache or not, so that READs are as the test reads, or as the kernel reads
    /// ahead.
    fn new(bytes: &[u8], cache: CacheHint, options: &SessionOptions) -> Self {
        let lower = tempfile::tempdir().expect("a folder");
        fs::write(lower.path().join("lower"), bytes).expect("a lower file");
        let plan = Arc::new(Plan::default());
        plan.push(splice(), cache);
        let mounted = Mounted::new(Wishes { lower: lower.path().join("lower"), plan }, options);
        Self { mounted, lower }
    }

    fn open(&self) -> File {
        File::open(self.mounted.join("file")).expect("opens")
    }

    /// How many READs were spliced, once there are at least so many: an answer is counted after it left.
    fn spliced(&self, at_least: u64) -> u64 {
        let count = || self.mounted.session().status().spliced_reads;
        for _ in 0..500 {
            if count() >= at_least {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        count()
    }
}

fn on_each_device(test: impl Fn(&SessionOptions)) {
    if !can_mount() {
        return;
    }
    for kind in [TransportKind::Device, TransportKind::Cloned] {
        println!("on {kind}");
        test(&options(kind));
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|index| u8::try_from((index * 31 + index / 4096) % 251).expect("below 251")).collect()
}

#[test]
fn large_reads_are_spliced_and_small_ones_are_not() {
    on_each_device(|options| {
        let bytes = pattern(4 << 20);
        let fixture = Fixture::new(&bytes, CacheHint::Direct, options);
        let file = fixture.open();
        let mut seen = vec![0_u8; LONGEST];
        for round in 0..8_usize {
            let at = round * (256 << 10);
            file.read_exact_at(&mut seen[..SPLICED_FROM], at as u64).expect("reads");
            assert!(seen[..SPLICED_FROM] == bytes[at..][..SPLICED_FROM], "at {at}");
        }
        assert_eq!(fixture.spliced(8), 8, "each of them");
        for round in 0..8_usize {
            file.read_exact_at(&mut seen[..4096], round as u64 * 4096).expect("reads");
            assert!(seen[..4096] == bytes[round * 4096..][..4096]);
        }
        assert_eq!(fixture.spliced(9), 8, "none of them");
        file.read_exact_at(&mut seen, 0).expect("reads");
        assert!(seen == bytes[..LONGEST]);
        assert_eq!(fixture.spliced(9), 9, "the longest READ, too");
        assert_eq!(fixture.mounted.session().status().requests(Opcode::Read), 17);
        drop(file);
        fixture.mounted.end();
    });
}

#[test]
fn odd_ranges_and_ends_read_as_the_lower_file() {
    on_each_device(|options| {
        let len = 3_000_019;
        let bytes = pattern(len);
        let fixture = Fixture::new(&bytes, CacheHint::Direct, options);
        let file = fixture.open();
        let mut seen = vec![0xee; 2 << 20];
        let around = |size: usize| [size - 1, size, size + 1];
        for at in [0, 1, 4095, 4096, 4097, 65_535, 1 << 20, len - 70_000, len - 1, len, len + 5] {
            for size in around(SPLICED_FROM).into_iter().chain(around(1 << 20)).chain(around(131_072 + 4096))
            {
                let expected = bytes.get(at..).unwrap_or_default();
                let expected = &expected[..size.min(expected.len())];
                seen[..size].fill(0xee);
                let count = file.read_at(&mut seen[..size], at as u64).expect("reads");
                assert_eq!(count, expected.len(), "{size} at {at}");
                assert!(seen[..count] == *expected, "{size} at {at}");
            }
        }
        let spliced = fixture.spliced(31);
        assert!(spliced > 30, "{spliced} were spliced");
        drop(file);
        fixture.mounted.end();
    });
}

#[test]
fn cached_and_mapped_reads_are_spliced_by_readahead() {
    on_each_device(|options| {
        let bytes = pattern(2_000_003);
        let fixture = Fixture::new(&bytes, CacheHint::Drop, options);
        assert!(fs::read(fixture.mounted.join("file")).expect("reads") == bytes);
        let spliced = fixture.spliced(5);
        assert!(spliced > 4, "{spliced} were spliced");
        fixture.mounted.end();
    });
}

#[test]
fn holes_read_as_zeroes() {
    on_each_device(|options| {
        let fixture = Fixture::new(b"", CacheHint::Direct, options);
        let lower = File::options().write(true).open(fixture.lower.path().join("lower")).expect("opens");
        lower.set_len(1 << 30).expect("a sparse file");
        lower.write_all_at(&[7; 5000], 600_000).expect("writes");
        let file = fixture.open();
        let mut seen = vec![1; LONGEST];
        file.read_exact_at(&mut seen, 0).expect("reads");
        assert!(seen[..600_000].iter().chain(&seen[605_000..]).all(|byte| *byte == 0));
        assert!(seen[600_000..605_000] == [7; 5000]);
        file.read_exact_at(&mut seen, (1 << 30) - LONGEST as u64).expect("reads");
        assert!(seen.iter().all(|byte| *byte == 0));
        assert!(fixture.spliced(2) >= 2);
        drop(file);
        fixture.mounted.end();
    });
}

#[test]
fn many_readers_see_the_same_bytes() {
    on_each_device(|options| {
        let bytes = pattern(5 << 20);
        let fixture = Fixture::new(&bytes, CacheHint::Direct, options);
        std::thread::scope(|scope| {
            for job in 0..8_usize {
                let (file, bytes) = (fixture.open(), &bytes);
                scope.spawn(move || {
                    let mut seen = vec![0; 300_000];
                    for round in 0..60_usize {
                        let at = (job * 997_001 + round * 333_333) % (5 << 20);
                        let size = SPLICED_FROM + (round * 12_347 + job) % 230_000;
                        let count = file.read_at(&mut seen[..size], at as u64).expect("reads");
                        assert_eq!(count, size.min(bytes.len() - at));
                        assert!(seen[..count] == bytes[at..at + count], "{size} at {at}");
                    }
                });
            }
        });
        let spliced = fixture.spliced(301);
        assert!(spliced > 300, "{spliced} were spliced");
        assert_eq!(fixture.mounted.session().status().ops["READ"].errors, 0);
        fixture.mounted.end();
    });
}

/// A file that shrinks and grows under a read gives a short answer or zeroes, never an error and never other bytes.
#[test]
fn a_file_cut_meanwhile_loses_nothing_else() {
    on_each_device(|options| {
        let fixture = Fixture::new(&vec![b'c'; 1 << 20], CacheHint::Direct, options);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let lower = File::options().write(true).open(fixture.lower.path().join("lower")).expect("opens");
            let over = &over;
            scope.spawn(move || {
                let whole = vec![b'c'; 1 << 20];
                while !over.load(Ordering::SeqCst) {
                    lower.set_len(70_001).expect("cuts");
                    lower.write_all_at(&whole, 0).expect("writes");
                }
            });
            let file = fixture.open();
            let mut seen = vec![0; 1 << 20];
            for _ in 0..400 {
                seen.fill(0xee);
                let count = file.read_at(&mut seen, 0).expect("a read never fails");
                assert!(count >= 70_001, "{count}");
                assert!(seen[..count].iter().all(|byte| [0, b'c'].contains(byte)), "bytes of the file");
            }
            over.store(true, Ordering::SeqCst);
        });
        fixture.mounted.end();
    });
}
