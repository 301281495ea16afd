//! A file is moved because its branch is full, and each of the lower calls that this takes fails once. Needs root and /dev/fuse.
//!
//! Faults hold for the whole process: every test here has them to itself.
#![expect(clippy::unwrap_used, reason = "also the helpers of tests report by panic")]

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::panic::Location;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use shuntfs::{MountOptions, Session, SessionOptions};
use shuntfs_fake::{Faults, OsError};
use shuntfs_pool::policy::Policy;
use shuntfs_pool::{BranchOptions, Cache, FlowWish, MergeOptions, Observer, Pool, PoolOptions};
use shuntfs_testkit::lower::{Lower, LowerKind, LowerSpec};
use shuntfs_testkit::skipped;
use shuntfs_testkit::supervisor::Supervisor;

const MIB: usize = 1 << 20;
/// The first disk has room for four of these.
const PIECE: usize = 256 << 10;
/// More lower calls than a move takes.
const CALLS_MAX: u64 = 400;

fn bytes(offset: usize, len: usize) -> Vec<u8> {
    (offset..offset + len).map(|at| u8::try_from(at / 512 % 251).unwrap()).collect()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn mount(disks: [&Lower; 2], mnt: &Path) -> Option<(Session, Observer, Supervisor)> {
    let branches = disks.map(|disk| BranchOptions::new(disk.path()));
    let create = Policy::of("ff").unwrap();
    let merge = MergeOptions { create, min_free: 0, ..MergeOptions::new(branches.into()) };
    let (cache, flow) = (Cache::Second, FlowWish::Relay);
    let pool =
        Pool::open(&PoolOptions { merge: Some(merge), cache, flow, ..PoolOptions::new("two") }).unwrap();
    let observer = pool.observer();
    match Session::mount(Arc::new(pool), mnt, &MountOptions::default(), &SessionOptions::default()) {
        Ok(session) => Some((session, observer, Supervisor::of(mnt, Duration::from_secs(120)).unwrap())),
        Err(error) => {
            skipped(&format!("cannot mount here: {error}"));
            None
        }
    }
}

/// Between the name that a copy gets and the one that the file loses, the file is synced as well as its folder: btrfs makes nothing durable of what has
/// no name, and after a power failure there was an empty file.
fn check_order(places: &[&Location<'_>]) {
    let files: Vec<&str> = places.iter().map(|place| place.file()).collect();
    let is = |number: usize, file: &str| files.get(number).is_some_and(|called| called.ends_with(file));
    let named = (0..files.len()).find(|number| is(*number, "names.rs") && is(number + 1, "data.rs"));
    let named = named.unwrap_or_else(|| panic!("it is not synced after it got its name: {files:?}"));
    let meanwhile = (named + 1..files.len()).take_while(|number| !is(*number, "names.rs"));
    assert_eq!(meanwhile.filter(|number| is(*number, "data.rs")).count(), 2, "{files:?}");
}

#[test]
fn whatever_fails_the_file_is_whole_in_one_place() {
    for error in [OsError::IO, OsError::NOSPC] {
        let faults = Faults::alone();
        let spec = |size: usize| LowerSpec::new(LowerKind::Tmpfs).size((size * MIB) as u64).make().unwrap();
        let (Some(first), Some(second)) = (spec(1), spec(8)) else { return };
        let mnt = tempfile::tempdir().unwrap();
        let Some((session, observer, _supervisor)) = mount([&first, &second], mnt.path()) else { return };
        let mut nth = 0;
        loop {
            assert!(nth < CALLS_MAX, "it has no end");
            let name = format!("file-{nth}");
            let path = mnt.path().join(&name);
            let file =
                OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
            let reader = File::open(&path).unwrap();
            file.write_all_at(&bytes(0, 3 * PIECE), 0).unwrap();
            assert_eq!(names(first.path()), [name.as_str()]);
            faults.fail(nth..nth + 1, error);
            let outcome = file.write_all_at(&bytes(3 * PIECE, 2 * PIECE), (3 * PIECE) as u64);
            let (places, failed) = (faults.places(), faults.stop());
            let what = format!("call {nth} ({:?}) failed by {error}, and {outcome:?}", failed.at);
            let disks = [first.path(), second.path()];
            let there: Vec<&Path> = disks.into_iter().filter(|disk| disk.join(&name).exists()).collect();
            assert_eq!(there.len(), 1, "{what}");
            let below = fs::read(there[0].join(&name)).unwrap();
            assert!(below.starts_with(&bytes(0, 3 * PIECE)), "{what}");
            if outcome.is_err() {
                // Nothing is stuck: it works at the next try.
                file.write_all_at(&bytes(3 * PIECE, 2 * PIECE), (3 * PIECE) as u64).unwrap();
            }
            let mut seen = vec![0; 5 * PIECE];
            for open in [&file, &reader] {
                open.read_exact_at(&mut seen, 0).unwrap();
                assert!(seen == bytes(0, 5 * PIECE), "{what}");
            }
            assert!(fs::read(&path).unwrap() == bytes(0, 5 * PIECE), "{what}");
            assert!(fs::read(second.path().join(&name)).unwrap() == bytes(0, 5 * PIECE), "{what}");
            assert!(names(first.path()).is_empty(), "{what}");
            fs::remove_file(&path).unwrap();
            assert!(names(second.path()).is_empty(), "{what}");
            if failed.at.is_none() {
                check_order(&places);
                break;
            }
            nth += 1;
        }
        assert!(nth > 20, "only {nth} calls");
        assert_eq!((observer.facts().files_moved, observer.facts().overdrawn), (nth + 1, 0));
        session.unmount().unwrap();
    }
}
