//! A sealed folder on the fake kernel, and each lower call of a run made to fail, one in each run: what is read is what was
//! sealed, or nothing is.
//!
//! Faults hold for the whole process: every test here has them to itself.
#![expect(clippy::unwrap_used, reason = "also the helpers of tests report by panic")]

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{BLOCK, content, flip, open, seal};
use shuntfs::{Errno, Result};
use shuntfs_fake::{Failed, Fake, Faults, O_CREAT, O_RDONLY, O_RDWR, OsError, Settings};
use shuntfs_verified::{Sealed, Seals};

/// A run that is over before this many calls is clean.
const CALLS_MAX: u64 = 5000;

const FILES: [(&str, usize); 5] =
    [("/empty", 0), ("/short", 1), ("/block", BLOCK), ("/deep/long", 700_001), ("/deep/second", 50_000)];

fn sealed(root: &Path) {
    fs::create_dir(root.join("deep")).unwrap();
    for (path, len) in FILES {
        fs::write(root.join(&path[1..]), content(len)).unwrap();
    }
    symlink("deep/long", root.join("link")).unwrap();
    fs::hard_link(root.join("short"), root.join("deep/hard")).unwrap();
    seal(root, &[]);
}

/// The seal, opened anew so that nothing is cached, and its mount.
fn mount(root: &Path, passthrough: bool) -> (Arc<Seals>, Fake) {
    let seals = open(root, None).unwrap();
    let sealed = Arc::new(Sealed::new(Arc::clone(&seals), passthrough));
    (seals, Fake::mount_with(sealed, &Settings::default()).unwrap())
}

/// Looks at all of it. What succeeds must be as it was sealed.
fn look(fake: &Fake) -> Vec<Result<()>> {
    let mut done = vec![
        fake.names("/").map(|names| assert_eq!(names, ["block", "deep", "empty", "link", "short"])),
        fake.names("/deep").map(|names| assert_eq!(names, ["hard", "long", "second"])),
        fake.readlink("/link").map(|target| assert_eq!(target, b"deep/long")),
        fake.get_xattr("/short", "user.none").map_or_else(
            |errno| if errno == Errno::NODATA { Ok(()) } else { Err(errno) },
            |value| panic!("{value:?}"),
        ),
        fake.statfs().map(drop),
        fake.open("/deep/hard", O_RDONLY)
            .and_then(|file| file.read_to_end())
            .map(|bytes| assert!(bytes == content(1))),
    ];
    for (path, len) in FILES {
        done.push(fake.stat(path).map(|attr| assert_eq!(attr.size, len as u64, "{path}")));
        done.push(fake.open(path, O_RDONLY).and_then(|file| {
            let whole = content(len);
            let tail = len.saturating_sub(5000);
            assert!(file.read_at(tail as u64, 10_000)? == whole[tail..], "the end of {path}");
            assert!(file.read_to_end()? == whole, "{path}");
            Ok(())
        }));
    }
    done
}

fn assert_closed_to_writers(fake: &Fake) {
    for outcome in [
        fake.open("/short", O_RDWR).map(drop),
        fake.open("/new", O_RDWR | O_CREAT).map(drop),
        fake.truncate("/short", 0).map(drop),
        fake.unlink("/short"),
        fake.rename("/short", "/elsewhere"),
    ] {
        assert!(outcome.is_err(), "it is sealed");
    }
}

#[test]
fn a_sealed_folder_is_what_was_sealed() {
    // Faults of other tests are not for this one.
    let _alone = Faults::alone();
    for passthrough in [false, true] {
        let lower = tempfile::tempdir().unwrap();
        sealed(lower.path());
        let (seals, fake) = mount(lower.path(), passthrough);
        assert!(look(&fake).iter().all(Result::is_ok));
        fake.drop_caches();
        assert!(look(&fake).iter().all(Result::is_ok));
        assert_closed_to_writers(&fake);
        fake.wander(7, 200).unwrap();
        flip(&lower.path().join("deep/long"), 300_000);
        fake.drop_caches();
        let file = fake.open("/deep/long", O_RDONLY).unwrap();
        let wrong = 300_000 / BLOCK * BLOCK;
        assert_eq!(file.read_at(wrong as u64 + 5, 10), Err(Errno::IO));
        assert!(file.read_at(0, wrong).unwrap() == content(wrong));
        drop(file);
        assert_eq!(seals.facts().bad_blocks, 1);
        fake.end();
    }
}

#[test]
fn what_no_kernel_sends_is_answered() {
    let _alone = Faults::alone();
    let lower = tempfile::tempdir().unwrap();
    sealed(lower.path());
    for seed in 0..5 {
        let (_, fake) = mount(lower.path(), true);
        fake.babble(seed, 500).unwrap();
        assert!(fake.stat("/").is_ok(), "it goes on");
        fake.finish().unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
    }
}

#[test]
fn whatever_fails_below_nothing_but_what_was_sealed_is_read() {
    let faults = Faults::alone();
    let lower = tempfile::tempdir().unwrap();
    sealed(lower.path());
    let descriptors = || fs::read_dir("/proc/self/fd").unwrap().count();
    for error in [OsError::IO, OsError::MFILE] {
        // What is opened once and for all is open before.
        drop(mount(lower.path(), true));
        let (mut before, mut told) = (usize::MAX, 0);
        for nth in 0.. {
            assert!(nth < CALLS_MAX, "the run has no end");
            let (seals, fake) = mount(lower.path(), nth % 2 == 0);
            faults.fail(nth..nth + 1, error);
            let is_told = look(&fake).iter().any(Result::is_err);
            let Failed { calls, at, .. } = faults.stop();
            told += u64::from(is_told);
            let what = format!("{error:?} at call {nth} ({at:?})");
            assert!(look(&fake).iter().all(Result::is_ok), "{what}: it does not go on");
            assert_closed_to_writers(&fake);
            assert_eq!(seals.facts().bad_blocks, 0, "{what}: taken for a block that is wrong");
            let totals = fake.finish().unwrap_or_else(|broken| panic!("{what}: {broken}"));
            assert_eq!(totals.backing_ids, 0, "{what}");
            drop(seals);
            // Threads that are no queue's may end a moment later.
            let end = Instant::now() + Duration::from_secs(10);
            while descriptors() > before && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(1));
            }
            before = before.min(descriptors());
            assert!(descriptors() <= before, "{what}: descriptors that nobody closed");
            if at.is_none() {
                assert!(!is_told, "nothing was made to fail, and something did");
                println!("{error:?}: {calls} calls, of which callers saw {told} fail");
                assert!(told > calls / 4, "only {told} of {calls} failures were seen");
                break;
            }
        }
    }
}
