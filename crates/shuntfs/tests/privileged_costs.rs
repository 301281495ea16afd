//! What the hot paths cost, counted: a READ and a WRITE allocate nothing on the way, and a repeated passthrough
//! open reaches us as one OPEN and one RELEASE. Needs CAP_SYS_ADMIN and /dev/fuse.
//!
//! # Safety
//! The allocator hands everything to the system's; it only counts.
#![expect(unsafe_code, reason = "a global allocator is the one way to count allocations")]

mod common;

#[path = "../examples/null.rs"]
#[allow(dead_code, reason = "its main is not called here")]
mod null;
#[path = "../examples/passthrough.rs"]
#[allow(dead_code, reason = "its main is not called here")]
mod passthrough;

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{Mounted, on_each_transport};
use null::Null;
use passthrough::Mirror;
use shuntfs::{Opcode, SessionOptions, TraceFilter};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
/// One test at a time: all threads of the process are counted.
static ALONE: Mutex<()> = Mutex::new(());

// SAFETY: every call is handed on as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's contract is the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract is the system's.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How much a round of 200 reads and writes allocates, in this whole process.
fn allocations_of(file: &File, bytes: &mut [u8]) -> u64 {
    let before = ALLOCATIONS.load(Ordering::SeqCst);
    for round in 0..200 {
        file.write_all_at(bytes, round * 4096).expect("writes");
        file.read_exact_at(bytes, round * 4096).expect("reads");
    }
    ALLOCATIONS.load(Ordering::SeqCst) - before
}

/// The least of some rounds: other threads of the test program may allocate at any time.
fn least(file: &File) -> u64 {
    let mut bytes = vec![1; 4096];
    (0..5).map(|_| allocations_of(file, &mut bytes)).min().expect("five rounds")
}

#[test]
fn served_reads_and_writes_allocate_nothing() {
    let _alone = ALONE.lock();
    on_each_transport(|options| {
        let mounted = Mounted::new(Null, options);
        let file = File::options().read(true).write(true).open(mounted.join("null")).expect("opens");
        assert_eq!(least(&file), 0);
        assert!(mounted.session().status().requests(Opcode::Read) >= 1000);
        drop(file);
        mounted.end();
    });
}

/// While somebody looks each request allocates a few times; when nobody does any more, it does not.
#[test]
fn requests_that_nobody_looks_at_any_more_allocate_nothing() {
    let _alone = ALONE.lock();
    on_each_transport(|options| {
        let mounted = Mounted::new(Null, options);
        let file = File::options().read(true).write(true).open(mounted.join("null")).expect("opens");
        let trace = mounted.session().trace(TraceFilter::default()).expect("there is room");
        assert!(least(&file) >= 400, "each of 400 requests leaves a record");
        drop(trace);
        assert_eq!(least(&file), 0);
        drop(file);
        mounted.end();
    });
}

#[test]
fn delegated_reads_and_writes_allocate_nothing() {
    let _alone = ALONE.lock();
    on_each_transport(|options| {
        let source = tempfile::tempdir().expect("a folder");
        std::fs::write(source.path().join("f"), vec![3; 200 * 4096]).expect("a lower file");
        let options = SessionOptions { passthrough: false, ..options.clone() };
        let mounted = Mounted::new(Mirror::new(source.path()).expect("a mirror"), &options);
        let file = File::options().read(true).write(true).open(mounted.join("f")).expect("opens");
        assert_eq!(least(&file), 0);
        assert!(mounted.session().status().requests(Opcode::Write) >= 1000);
        drop(file);
        mounted.end();
    });
}

#[test]
fn a_repeated_passthrough_open_is_two_requests() {
    let _alone = ALONE.lock();
    on_each_transport(|options| {
        let source = tempfile::tempdir().expect("a folder");
        std::fs::write(source.path().join("f"), vec![3; 4096]).expect("a lower file");
        let mounted = Mounted::new(Mirror::new(source.path()).expect("a mirror"), options);
        drop(File::open(mounted.join("f")).expect("opens"));
        let before: u64 = mounted.session().status().queues.values().sum();
        for _ in 0..100 {
            drop(File::open(mounted.join("f")).expect("opens"));
        }
        // RELEASE comes in the background.
        let count = || mounted.session().status().queues.values().sum::<u64>() - before;
        for _ in 0..200 {
            if mounted.session().status().nodes_open == 0 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let status = mounted.session().status();
        assert_eq!((status.requests(Opcode::Open), status.requests(Opcode::Release)), (101, 101));
        assert!(count() <= 202, "{} requests: {:?}", count(), status.ops);
        mounted.end();
    });
}

/// What a round of 200 allocates in this whole process: the least of five, as above.
fn least_of(mut round: impl FnMut(usize)) -> u64 {
    let one = |nth| {
        let before = ALLOCATIONS.load(Ordering::SeqCst);
        round(nth);
        ALLOCATIONS.load(Ordering::SeqCst) - before
    };
    (0..5).map(one).min().expect("five rounds")
}

/// Names and attributes allocate nothing, and an open with its close no more than it did before operations belonged to their slots
/// (commit 430ddad, counted by this test).
#[test]
fn names_attributes_and_opens_allocate_no_more_than_they_did() {
    let _alone = ALONE.lock();
    on_each_transport(|options| {
        let mounted = Mounted::new(Null, options);
        let path = mounted.join("null");
        let missing: Vec<_> = (0..1000).map(|nth| mounted.join(&format!("missing{nth}"))).collect();
        let lookups = least_of(|nth| {
            for path in &missing[nth * 200..][..200] {
                assert!(std::fs::metadata(path).is_err());
            }
        });
        let file = File::options().write(true).open(&path).expect("opens");
        let getattrs = least_of(|_| {
            for _ in 0..200 {
                // What is written makes the kernel ask.
                file.write_all_at(b"x", 0).expect("writes");
                file.metadata().expect("attributes");
            }
        });
        let opens = least_of(|_| {
            for _ in 0..200 {
                drop(File::open(&path).expect("opens"));
            }
            // Closes come in the background. 60 ms after the last of them the queue changes its class, which is no open's allocation.
            std::thread::sleep(std::time::Duration::from_millis(30));
        });
        std::thread::sleep(std::time::Duration::from_millis(100));
        let status = mounted.session().status();
        assert!(status.requests(Opcode::Lookup) >= 1000 && status.requests(Opcode::Getattr) >= 1000);
        assert_eq!(status.requests(Opcode::Release), 1000, "closes are counted with their opens");
        println!(
            "200 lookups, writes with getattr, opens with release: {lookups}, {getattrs}, {opens} allocations"
        );
        assert!((lookups, getattrs) == (0, 0) && opens <= 400, "{lookups}, {getattrs}, {opens}");
        drop(file);
        mounted.end();
    });
}
