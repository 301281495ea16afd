//! What a real kernel believes after a lower call failed in the middle of a change. Needs root and /dev/fuse.
//!
//! The defect: a folder that was made below, and could then not be looked at, was not there through the mount for as long as names
//! hold, which is forever.
//!
//! And what a ring reads and writes for a queue: each of it fails once, on a real kernel, because a fake one has no rings.
//!
//! Faults hold for the whole process: every test here has them to itself.
#![expect(clippy::unwrap_used, reason = "also the helpers of tests report by panic")]

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use shuntfs::{MountOptions, Session, SessionOptions, Transport, TransportKind};
use shuntfs_fake::{Failed, Faults, OsError};
use shuntfs_pool::{FlowWish, Pool, PoolOptions};
use shuntfs_sys::data::forget_cached;
use shuntfs_sys::open::O_DIRECT;
use shuntfs_testkit::limit::wait_until;
use shuntfs_testkit::supervisor::Supervisor;
use shuntfs_testkit::{mounted, skipped};

/// More lower calls than any change takes.
const CALLS_MAX: u64 = 50;
/// More than all that is read and written in one run.
const TRANSFERS_MAX: u64 = 500;
const ROUNDS_MAX: usize = 30;
const PIECE: usize = 64 << 10;
const EIO: i32 = 5;

type Change = fn(&Path) -> io::Result<()>;

const CHANGES: [(&str, Change); 6] = [
    ("mkdir", |mnt| fs::create_dir(mnt.join("new"))),
    ("create", |mnt| fs::File::create_new(mnt.join("new")).map(drop)),
    ("symlink", |mnt| symlink("there", mnt.join("new"))),
    ("link", |mnt| fs::hard_link(mnt.join("file"), mnt.join("new"))),
    ("chmod", |mnt| fs::set_permissions(mnt.join("file"), fs::Permissions::from_mode(0o4600))),
    ("chown", |mnt| chown(mnt.join("file"), Some(71_001), Some(71_002))),
];

/// Names and attributes, and what a listing has.
fn seen(folder: &Path) -> Vec<Option<(u32, u64, u32, u64)>> {
    let of = |path: &Path| {
        let found = path.symlink_metadata().ok()?;
        Some((found.mode(), found.nlink(), found.uid(), found.size()))
    };
    let count = fs::read_dir(folder).unwrap().count() as u64;
    let mut seen: Vec<_> = ["new", "file"].map(|name| of(&folder.join(name))).into();
    seen.push(of(folder));
    seen.push(Some((0, count, 0, 0)));
    seen
}

fn kinds() -> Vec<TransportKind> {
    if fs::metadata("/dev/fuse").is_err() {
        skipped("there is no /dev/fuse");
        return Vec::new();
    }
    let mut kinds = vec![TransportKind::Device, TransportKind::Cloned];
    if mounted::enable_uring() {
        kinds.push(TransportKind::Uring);
    } else {
        skipped("FUSE over io_uring cannot be turned on");
    }
    kinds
}

/// With few slots, so that one that is lost is missed.
fn mount(pool: &PoolOptions, mnt: &Path, kind: TransportKind) -> (Session, Supervisor) {
    let transport = Transport::Only(kind);
    let options = SessionOptions { transport, queues: Some(2), depth: 2, ..SessionOptions::default() };
    let pool = Arc::new(Pool::open(pool).unwrap());
    let session = Session::mount(pool, mnt, &MountOptions::default(), &options).unwrap();
    (session, Supervisor::of(mnt, Duration::from_secs(60)).unwrap())
}

#[test]
fn what_failed_half_way_is_looked_at_again() {
    for kind in kinds() {
        let mut doubted = 0;
        for (name, change) in CHANGES {
            for nth in 0.. {
                assert!(nth < CALLS_MAX, "{name} has no end");
                let (is_clean, was_made) = fails(kind, nth, (name, change));
                doubted += usize::from(was_made);
                if is_clean {
                    break;
                }
            }
        }
        assert!(doubted > 4, "only {doubted} changes were made that then failed");
    }
}

/// Makes the n-th lower call of a change fail; whether there was none, and whether the change was made and failed.
fn fails(kind: TransportKind, nth: u64, (name, change): (&str, Change)) -> (bool, bool) {
    let faults = Faults::alone();
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let (lower, mnt) = (folders[0].path(), folders[1].path());
    fs::write(lower.join("file"), "bytes").unwrap();
    let (session, _supervisor) = mount(&PoolOptions::new(lower), mnt, kind);
    // The kernel has it all, and that there is no such name.
    let before = seen(mnt);
    assert_eq!(before, seen(lower));
    faults.fail(nth..nth + 1, OsError::IO);
    let outcome = change(mnt);
    let failed = faults.stop();
    let what = format!("{name} on {kind}, call {nth} ({:?}) failed, and {outcome:?}", failed.at);
    assert_eq!(seen(mnt), seen(lower), "{what}");
    if failed.at.is_none() {
        outcome.unwrap_or_else(|error| panic!("{what}: {error}"));
        drop(session);
        return (true, false);
    }
    let was_made = outcome.is_err() && seen(lower) != before;
    drop(session);
    (false, was_made)
}

/// What a queue's ring reads and writes below: linked with an answer, into a slot, out of one.
#[test]
fn each_transfer_of_a_ring_fails() {
    for kind in kinds() {
        for flow in [FlowWish::Relay, FlowWish::Served] {
            each_transfer_fails(kind, flow);
        }
    }
}

/// Runs on one mount, each with another lower call that fails, until none is left. On devices the lower files are those of another
/// mount, which may hang, and so their transfers go through the ring, too.
fn each_transfer_fails(kind: TransportKind, flow: FlowWish) {
    let faults = Faults::alone();
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let [lower, between, mnt] = folders.each_ref().map(tempfile::TempDir::path);
    fs::write(lower.join("file"), content(5 * PIECE + 77)).unwrap();
    fs::write(lower.join("other"), content(PIECE)).unwrap();
    let stacked = kind != TransportKind::Uring;
    let below = stacked.then(|| mount(&PoolOptions::new(lower), between, TransportKind::Device));
    let source = if stacked { between } else { lower };
    let mounted = mount(&PoolOptions { flow, ..PoolOptions::new(source) }, mnt, kind);
    // By the line that begins them.
    let (mut by_ring, mut told) = (BTreeMap::new(), 0);
    for round in 0.. {
        // What was begun before a run may be counted in it, so that the last call of a run is not met each time.
        assert!(round < ROUNDS_MAX, "no read or no write of a ring failed: {by_ring:?}");
        told += fail_each_call(&faults, (lower, mnt), &format!("{flow:?} on {kind}"), &mut by_ring);
        if by_ring.len() >= 2 && told >= 2 {
            break;
        }
    }
    println!("{flow:?} on {kind}: transfers of rings that failed, by line: {by_ring:?}");
    drop((mounted, below));
}

/// How many failures callers saw.
fn fail_each_call(
    faults: &Faults,
    (lower, mnt): (&Path, &Path),
    what: &str,
    by_ring: &mut BTreeMap<u32, u32>,
) -> usize {
    let (mut told, mut before) = (0, usize::MAX);
    // The first run is clean, so that what is opened once and for all is open.
    for nth in [u64::MAX].into_iter().chain(0..) {
        faults.fail(nth..nth.saturating_add(1), OsError::IO);
        let done = transfer(lower, mnt);
        let Failed { at, .. } = faults.stop();
        let what = format!("{what}, call {nth} ({at:?}) failed, and {done:?}");
        let errors: Vec<_> = done.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
        assert!(errors.iter().all(|error| error.raw_os_error() == Some(EIO)), "{what}");
        told += errors.len();
        if let Some(at) = at.filter(|at| at.file().ends_with("shuntfs-runtime/src/slots.rs")) {
            *by_ring.entry(at.line()).or_insert(0) += 1;
        }
        for outcome in transfer(lower, mnt) {
            outcome.unwrap_or_else(|error| panic!("{what}: it does not go on: {error}"));
        }
        before = if nth == u64::MAX { descriptors() } else { before };
        // Files are released a moment after their close, and a queue that waits keeps the last one that it read until its next request.
        let are_closed = wait_until(Duration::from_secs(10), || {
            descriptors() <= before || {
                ask_each_queue(mnt);
                false
            }
        });
        assert!(are_closed, "{what}: {} descriptors, {before} before", descriptors());
        if at.is_none() && nth != u64::MAX {
            assert!(errors.is_empty(), "{what}");
            return told;
        }
        assert!(nth == u64::MAX || nth < TRANSFERS_MAX, "the run has no end");
    }
    unreachable!("numbers do not end")
}

#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct Piece([u8; PIECE]);

/// Reads and writes in each way. What succeeds has the right bytes.
fn transfer(lower: &Path, mnt: &Path) -> Vec<io::Result<()>> {
    let there = fs::read(lower.join("file")).unwrap();
    let direct = |write: bool| {
        let name = if write { "other" } else { "file" };
        fs::File::options().read(true).write(write).custom_flags(O_DIRECT.cast_signed()).open(mnt.join(name))
    };
    let mut piece = Box::new(Piece([0; PIECE]));
    let marked = fs::read(lower.join("other")).unwrap()[0].wrapping_add(1);
    piece.0.fill(marked);
    let written = direct(true).and_then(|file| {
        file.write_all_at(&piece.0, 0)?;
        assert!(fs::read(lower.join("other"))? == piece.0, "written");
        Ok(())
    });
    let read = direct(false).and_then(|file| {
        file.read_exact_at(&mut piece.0, PIECE as u64)?;
        assert!(piece.0 == there[PIECE..2 * PIECE], "direct");
        // The file ends within the piece.
        let len = file.read_at(&mut piece.0, 5 * PIECE as u64)?;
        assert!(piece.0[..len] == there[5 * PIECE..], "the end of the file, direct");
        Ok(())
    });
    // The last one: how many READs the kernel makes of it is not always the same.
    let cached = fs::File::open(mnt.join("file")).and_then(|file| {
        forget_cached(&file)?;
        let mut bytes = vec![0; there.len()];
        file.read_exact_at(&mut bytes, 0)?;
        assert!(bytes == there, "cached");
        Ok(())
    });
    vec![written, read, cached]
}

/// A request from each CPU.
fn ask_each_queue(mnt: &Path) {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    let all = sched_getaffinity(None).unwrap();
    for cpu in (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu)) {
        let mut one = CpuSet::new();
        one.set(cpu);
        sched_setaffinity(None, &one).unwrap();
        let name = format!("nothing {}", ASKED.fetch_add(1, Ordering::Relaxed));
        assert!(mnt.join(name).symlink_metadata().is_err());
    }
    sched_setaffinity(None, &all).unwrap();
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|index| ((index * 7 + 13) % 251 + index / 4096).to_le_bytes()[0]).collect()
}
