//! File systems without async, mounted, with what is not asked for every day: locks, polls, ioctls, space, copies, handles. Needs
//! CAP_SYS_ADMIN and /dev/fuse; elsewhere it says so and passes.
#![expect(clippy::unwrap_used, reason = "also the helpers of tests report by panic")]

mod common;

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use common::desk::{BIRTH, Desk, FILE, GET, Numbered, SET, Seen};
use common::{Mounted, on_each_transport};
use shuntfs::{Blocking, MountOptions, Opcode, Paths, SessionOptions};
use shuntfs_sys::event::wait_readable;
use shuntfs_sys::{OsError, data, handle_of, open_by_handle};
use shuntfs_testkit::raw::{Lock, LockKind, LockOwner, ioctl_int, lock, test_lock};
use shuntfs_testkit::serial;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(30);

fn desk(options: &SessionOptions) -> (TempDir, Arc<Seen>, Mounted) {
    let source = tempfile::tempdir().unwrap();
    fs::write(source.path().join("file"), "0123456789").unwrap();
    fs::write(source.path().join("other"), "").unwrap();
    let desk = Desk::new(source.path());
    let seen = Arc::clone(&desk.seen);
    let mount = MountOptions { default_permissions: false, ..MountOptions::default() };
    (source, seen, Mounted::with(Blocking::new(Paths::new(desk)), &mount, options))
}

fn open(mounted: &Mounted, name: &str) -> File {
    File::options().read(true).write(true).open(mounted.join(name)).unwrap()
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// More wait for a lock than there are threads to wait in; they hold up nobody, and each gets it.
#[test]
fn who_waits_for_a_lock_holds_no_thread() {
    let _serial = serial();
    on_each_transport(|options| {
        let options = SessionOptions { offload_threads: 1, depth: 16, ..options.clone() };
        let (_source, seen, mounted) = desk(&options);
        for flock in [false, true] {
            let take = |file: &File, wait: bool| {
                let all = Lock { owner: LockOwner::Description, kind: LockKind::Exclusive, start: 2, len: 3 };
                match (flock, wait) {
                    (true, true) => file.lock().is_ok(),
                    (true, false) => file.try_lock().is_ok(),
                    (false, wait) => lock(file, &all, wait).is_ok(),
                }
            };
            let give = |file: &File| {
                let all = Lock { owner: LockOwner::Description, kind: LockKind::Unlock, start: 2, len: 3 };
                if flock { file.unlock().unwrap() } else { lock(file, &all, false).unwrap() }
            };
            let holder = open(&mounted, "file");
            assert!(take(&holder, false));
            assert!(!take(&open(&mounted, "file"), false), "somebody has it");
            if !flock {
                let asked = Lock { owner: LockOwner::Description, kind: LockKind::Shared, start: 0, len: 0 };
                let found = test_lock(open(&mounted, "file"), &asked).unwrap();
                assert_eq!(
                    found.map(|(kind, start, len, _)| (kind, start, len)),
                    Some((LockKind::Exclusive, 2, 3))
                );
            }
            let before = seen.refusals.load(Ordering::SeqCst);
            std::thread::scope(|scope| {
                let waiters: Vec<_> = (0..3)
                    .map(|_| {
                        scope.spawn(|| {
                            let file = open(&mounted, "file");
                            assert!(take(&file, true));
                            give(&file);
                        })
                    })
                    .collect();
                until("all wait", || seen.refusals.load(Ordering::SeqCst) >= before + 3);
                for _ in 0..20 {
                    assert_eq!(fs::read_to_string(mounted.join("file")).unwrap(), "0123456789");
                }
                assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
                give(&holder);
                waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
            });
            assert!(take(&holder, false));
            give(&holder);
        }
        mounted.end();
    });
}

/// A lock goes with the close of who has it, and a waiter can be stopped.
#[test]
fn closes_give_locks_back_and_waiters_can_be_killed() {
    let _serial = serial();
    on_each_transport(|options| {
        let (_source, seen, mounted) = desk(options);
        let waits_for_it = || {
            let before = seen.refusals.load(Ordering::SeqCst);
            let waiter =
                Command::new("flock").arg("-x").arg(mounted.join("file")).arg("true").spawn().unwrap();
            until("it waits", || seen.refusals.load(Ordering::SeqCst) > before);
            waiter
        };
        let holder = open(&mounted, "file");
        holder.lock().unwrap();
        let mut killed = waits_for_it();
        killed.kill().unwrap();
        assert!(!killed.wait().unwrap().success(), "it was killed while it waited");
        let mut waits = waits_for_it();
        assert!(waits.try_wait().unwrap().is_none());
        drop(holder);
        assert!(waits.wait().unwrap().success());
        assert!(mounted.session().status().requests(Opcode::Setlkw) >= 2);
        mounted.end();
    });
}

#[test]
fn space_copies_and_polls_are_served_by_paths() {
    let _serial = serial();
    const PUNCH_HOLE: u32 = 2 | 1;
    on_each_transport(|options| {
        let (source, seen, mounted) = desk(options);
        let (file, other) = (open(&mounted, "file"), open(&mounted, "other"));
        data::fallocate(&file, 0, 0, 1 << 20).unwrap();
        assert_eq!(fs::metadata(source.path().join("file")).unwrap().len(), 1 << 20);
        data::fallocate(&file, PUNCH_HOLE, 1 << 16, 1 << 16).unwrap();
        data::write_at(&file, b"data", 1 << 18).unwrap();
        file.sync_data().unwrap_or_default();
        let lower = File::open(source.path().join("file")).unwrap();
        for from in [0, 1 << 16, (1 << 18) + 1] {
            assert_eq!(data::seek_hole(&file, from), data::seek_hole(&lower, from));
            assert_eq!(data::seek_data(&file, from), data::seek_data(&lower, from));
        }
        assert_eq!(data::copy_range(&file, 2, &other, 1, 5), Ok(5));
        assert_eq!(fs::read(source.path().join("other")).unwrap(), b"\x0023456");
        let status = mounted.session().status();
        assert!(status.requests(Opcode::CopyFileRange) + status.requests(Opcode::CopyFileRange64) >= 1);
        assert!(status.requests(Opcode::Lseek) >= 6 && status.requests(Opcode::Fallocate) == 2);
        assert_eq!(wait_readable(&[file.as_fd()], Some(Duration::ZERO)), Ok(false));
        seen.ready.store(true, Ordering::SeqCst);
        assert_eq!(wait_readable(&[file.as_fd()], Some(Duration::ZERO)), Ok(true));
        drop((file, other));
        mounted.end();
    });
}

#[test]
fn ioctls_births_access_and_folders_are_served_by_paths() {
    let _serial = serial();
    on_each_transport(|options| {
        let (source, seen, mounted) = desk(options);
        fs::create_dir(mounted.join("folder")).unwrap();
        fs::write(source.path().join("closed"), "").unwrap();
        let (file, folder) = (open(&mounted, "file"), File::open(mounted.join("folder")).unwrap());
        let mut number = 21;
        ioctl_int(&file, SET, &mut number).unwrap();
        for (target, expected) in [(&file, 21), (&folder, 42)] {
            number = 0;
            ioctl_int(target, GET, &mut number).unwrap();
            assert_eq!(number, expected);
        }
        assert!(ioctl_int(&file, GET + 7, &mut number).is_err());
        let born = SystemTime::UNIX_EPOCH + Duration::new(BIRTH.unsigned_abs(), 7);
        assert_eq!(fs::metadata(mounted.join("file")).unwrap().created().unwrap(), born);
        folder.sync_all().unwrap();
        assert_eq!(seen.folders_synced.load(Ordering::SeqCst), 1);
        let may_write = |name: &str| {
            let tested = Command::new("sh").args(["-c", "test -w \"$0\""]).arg(mounted.join(name)).status();
            tested.unwrap().success()
        };
        assert!(may_write("file") && !may_write("closed"));
        drop((file, folder));
        mounted.end();
    });
}

#[test]
fn nodes_are_found_by_number_and_made_without_a_name() {
    let _serial = serial();
    const O_TMPFILE: i32 = 0o20_000_000 | 0o200_000;
    on_each_transport(|options| {
        let first = Mounted::new(Blocking::new(Numbered), options);
        let handle = |path: &str| handle_of(File::open(first.join(path)).unwrap()).unwrap().0;
        let (file, folder) = (handle("folder/file"), handle("folder"));
        first.end();
        let second = Mounted::new(Blocking::new(Numbered), options);
        let root = File::open(second.path()).unwrap();
        let mut text = String::new();
        File::from(open_by_handle(&root, &file, 0).unwrap()).read_to_string(&mut text).unwrap();
        assert_eq!(text, "by its number");
        let opened = File::from(open_by_handle(&root, &folder, 0o200_000).unwrap());
        assert_eq!(opened.metadata().unwrap().ino(), 10);
        let mut other = file.bytes().to_vec();
        other[4] ^= 0x40;
        let nobodys = shuntfs_sys::FileHandle::new(file.kind(), &other).unwrap();
        assert_eq!(open_by_handle(&root, &nobodys, 0).err(), Some(OsError::STALE));
        let how = |folder: &str| {
            File::options().read(true).write(true).custom_flags(O_TMPFILE).open(second.join(folder))
        };
        let nameless = how("folder").unwrap();
        assert_ne!(nameless.metadata().unwrap().ino(), FILE.get());
        drop((root, opened, nameless));
        second.end();
    });
}
