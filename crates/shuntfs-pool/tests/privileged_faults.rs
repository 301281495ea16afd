//! What a real kernel believes after a lower call failed in the middle of a change. Needs root and /dev/fuse.
//!
//! The defect: a folder that was made below, and could then not be looked at, was not there through the mount for as long as names
//! hold, which is for ever.
//!
//! Faults hold for the whole process: the only test of its program.
#![expect(clippy::unwrap_used, reason = "also the helpers of tests report by panic")]

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use shuntfs::{MountOptions, Session, SessionOptions, Transport, TransportKind};
use shuntfs_fake::{Faults, OsError};
use shuntfs_pool::{Pool, PoolOptions};
use shuntfs_testkit::supervisor::Supervisor;
use shuntfs_testkit::{mounted, skipped};

/// More lower calls than any change takes.
const CALLS_MAX: u64 = 50;

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

#[test]
fn what_failed_half_way_is_looked_at_again() {
    if fs::metadata("/dev/fuse").is_err() {
        skipped("there is no /dev/fuse");
        return;
    }
    for kind in [TransportKind::Device, TransportKind::Cloned, TransportKind::Uring] {
        if kind == TransportKind::Uring && !mounted::enable_uring() {
            skipped("FUSE over io_uring cannot be turned on");
            continue;
        }
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
    let pool = Arc::new(Pool::open(&PoolOptions::new(lower)).unwrap());
    let options =
        SessionOptions { transport: Transport::Only(kind), queues: Some(2), ..SessionOptions::default() };
    let session = Session::mount(pool, mnt, &MountOptions::default(), &options).unwrap();
    let _supervisor = Supervisor::of(mnt, Duration::from_secs(60)).unwrap();
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
