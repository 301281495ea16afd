//! What a keeper costs in memory, a node: what is written down of it for the next server, and where that is. Needs file handles, and so
//! CAP_DAC_READ_SEARCH; elsewhere it says so and passes.
//!
//! # Safety
//! The allocator hands everything to the system's; it only counts.
#![expect(unsafe_code, reason = "a global allocator is the one way to count allocations")]
#![expect(clippy::unwrap_used, reason = "also the helpers of tests report by panic")]

mod fake;

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs::File;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use fake::settings;
use rustix::fs::{FileType, Mode, OFlags, mknodat};
use shuntfs::{Session, TransportKind};
use shuntfs_fake::{Fake, Settings};
use shuntfs_pool::{BranchOptions, Cache, InodeCalc, MergeOptions, Pool, PoolOptions};
use shuntfs_sys::{handle_of, open_by_handle};
use shuntfs_testkit::{say, skipped};

/// A table that grows when each of its 64 parts has 112 entries, at 7,168, is emptiest then.
const NODES: usize = 8000;
const STEP: usize = 500;

struct Counting;

static LIVE: AtomicI64 = AtomicI64::new(0);

// SAFETY: every call is handed on as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(len_of(layout), Ordering::Relaxed);
        // SAFETY: the caller's contract is the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE.fetch_sub(len_of(layout), Ordering::Relaxed);
        // SAFETY: the caller's contract is the system's.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What the allocator of glibc takes for it: multiples of 16 bytes, of which eight are its own.
fn len_of(layout: Layout) -> i64 {
    i64::try_from((layout.size() + 8).next_multiple_of(16)).unwrap_or(i64::MAX)
}

/// The bytes in use, allocated and of the state, each time that the kernel has looked up so many files more.
fn walked(options: &PoolOptions, settings: &Settings, is_kept: bool) -> Vec<i64> {
    let (mut fake, device) = Fake::bare(settings).unwrap();
    let pool = Arc::new(Pool::open(options).unwrap());
    let mut state = None;
    let session = if is_kept {
        let mut keep =
            |file: BorrowedFd<'_>| file.try_clone_to_owned().map(|file| state = Some(File::from(file)));
        Session::serve_surviving(pool, device, &settings.session, |_, _, file| keep(file)).unwrap()
    } else {
        Session::serve(pool, device, &settings.session).unwrap()
    };
    fake.greet(settings).unwrap();
    let in_use = || {
        let state = state.as_ref().map_or(0, |state| state.metadata().unwrap().blocks() * 512);
        LIVE.load(Ordering::SeqCst) + i64::try_from(state).unwrap()
    };
    let mut bytes = vec![in_use()];
    for first in (0..NODES).step_by(STEP) {
        for file in first..first + STEP {
            fake.lstat(&format!("/{file}")).unwrap();
        }
        bytes.push(in_use());
    }
    fake.end();
    session.wait();
    bytes
}

/// How many bytes a node takes more with a keeper than without one: the most at any time, from 2000 nodes on.
fn most(options: &PoolOptions) -> i64 {
    let settings = settings(TransportKind::Device);
    // In this order: no ring is made in this process afterwards.
    let [off, kept] = [false, true].map(|is_kept| walked(options, &settings, is_kept));
    let more = |at: usize| (kept[at] - kept[0]) - (off[at] - off[0]);
    let a_node = |at: usize| more(at) / i64::try_from(at * STEP).unwrap();
    (4..off.len()).map(a_node).max().unwrap()
}

fn fill(folder: &Path) {
    let folder = File::open(folder).unwrap();
    for file in 0..NODES {
        mknodat(&folder, file.to_string(), FileType::RegularFile, Mode::RUSR, 0).unwrap();
    }
}

/// It would keep a descriptor of each file.
fn has_handles(lower: &Path) -> bool {
    let lower = File::open(lower).unwrap();
    let opened = handle_of(&lower).and_then(|handle| open_by_handle(&lower, &handle.0, OFlags::PATH.bits()));
    opened.is_ok()
}

#[test]
fn a_node_that_is_kept_takes_so_many_bytes() {
    let lower = fake::folder();
    if !has_handles(lower.path()) {
        return skipped("files cannot be opened by their handles");
    }
    fill(lower.path());
    let merged = |calc| {
        let mut merge = MergeOptions::new(vec![BranchOptions::new(lower.path())]);
        merge.inode_calc = calc;
        PoolOptions { merge: Some(merge), cache: Cache::None, ..PoolOptions::new("lower") }
    };
    for (what, options, limit) in [
        ("a folder", PoolOptions::new(lower.path()), 140),
        ("branches", merged(InodeCalc::DevinoHash), 140),
        ("branches, numbers by path", merged(InodeCalc::PathHash), 280),
    ] {
        let most = most(&options);
        say(&format!("{what}: {most} bytes a node"));
        assert!(most < limit, "{what}: {most} bytes a node");
    }
}
