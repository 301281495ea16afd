//! Locks that are kept below (`--locks lower`) on a mount whose servers are killed: who holds one holds it, and who waits gets it once. Needs root and
//! /dev/fuse.

mod common;

#[path = "../../shuntfs-keeper/tests/callers/mod.rs"]
#[expect(dead_code, reason = "the callers here are threads")]
mod callers;
mod kept;

use std::fs::{self, File, OpenOptions};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use common::{can_mount, eventually, wait};
use kept::Kept;
use rustix::fs::{FlockOperation, fcntl_lock};
use shuntfs_sys::locks::{FlockOp, LockKind, LockSpec, flock, ofd_lock};

const FIRST: LockSpec = LockSpec { kind: LockKind::Write, start: 0, len: 10 };
const NOTHING: LockSpec = LockSpec { kind: LockKind::Unlock, start: 0, len: 0 };

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).expect("opens")
}

fn start(transport: &str) -> Kept {
    let kept = Kept::start(&["--locks", "lower", "--transport", transport]);
    for name in ["ofd", "flock", "posix"] {
        fs::write(kept.room.src().join(name), "some bytes, and more").expect("writes");
    }
    kept
}

/// Kills the server, and waits for the next one.
fn kill(kept: &Kept) {
    kept.kill();
    fs::metadata(kept.room.mnt()).expect("the next one answers");
}

/// Whether somebody else gets a lock on a file, through the mount or below; it is given back at once.
fn is_free(path: &Path, is_flock: bool) -> bool {
    let file = open(path);
    // A close tells the server later.
    if is_flock {
        flock(&file, FlockOp::Exclusive, false).and_then(|()| flock(&file, FlockOp::Unlock, false)).is_ok()
    } else {
        ofd_lock(&file, FIRST, false).and_then(|()| ofd_lock(&file, NOTHING, false)).is_ok()
    }
}

#[test]
fn privileged_who_holds_a_lock_holds_it_over_kills() {
    if !can_mount() {
        return;
    }
    for transport in ["device", "cloned"] {
        let kept = start(transport);
        let (mnt, src) = (kept.room.mnt(), kept.room.src());
        let (by_range, whole, of_process) =
            (open(&mnt.join("ofd")), open(&mnt.join("flock")), open(&mnt.join("posix")));
        let take = || {
            ofd_lock(&by_range, FIRST, false).expect("is free");
            flock(&whole, FlockOp::Exclusive, false).expect("is free");
            fcntl_lock(&of_process, FlockOperation::NonBlockingLockExclusive).expect("is free");
        };
        let is_held = |round: u32| {
            for (name, is_flock) in [("ofd", false), ("flock", true)] {
                assert!(!is_free(&src.join(name), is_flock), "{name} below, {round}: {}", kept.log());
                assert!(!is_free(&mnt.join(name), is_flock), "{name} on the mount, {round}");
            }
            // Closing another descriptor of it in this process would give it back.
            assert!(!is_free(&src.join("posix"), false), "posix below, {round}");
            // Beyond the range there is room.
            let other = open(&mnt.join("ofd"));
            ofd_lock(&other, LockSpec { start: 10, len: 1, ..FIRST }, false).expect("nobody has that");
            ofd_lock(&other, NOTHING, false).expect("gives it back");
        };
        take();
        is_held(0);
        for round in 1..=2 {
            kill(&kept);
            is_held(round);
            // Once more changes nothing.
            take();
        }
        ofd_lock(&by_range, NOTHING, false).expect("gives it back");
        assert!(is_free(&src.join("ofd"), false) && is_free(&mnt.join("ofd"), false));
        flock(&whole, FlockOp::Unlock, false).expect("gives it back");
        assert!(is_free(&src.join("flock"), true) && is_free(&mnt.join("flock"), true));
        // By a close, after another kill.
        take();
        kill(&kept);
        is_held(3);
        drop((by_range, whole, of_process));
        eventually("they go with the files", || {
            is_free(&src.join("ofd"), false)
                && is_free(&src.join("flock"), true)
                && is_free(&src.join("posix"), false)
        });
        kept.room.umount(&[]).ok();
        kept.is_gone();
    }
}

#[test]
fn privileged_a_file_that_is_closed_between_two_servers_leaves_no_lock() {
    if !can_mount() {
        return;
    }
    let kept = start("cloned");
    let (mnt, src) = (kept.room.mnt(), kept.room.src());
    for _ in 0..3 {
        let (by_range, whole) = (open(&mnt.join("ofd")), open(&mnt.join("flock")));
        ofd_lock(&by_range, FIRST, false).expect("is free");
        flock(&whole, FlockOp::Exclusive, false).expect("is free");
        kept.kill();
        drop((by_range, whole));
        eventually("they go with the files", || {
            is_free(&src.join("ofd"), false) && is_free(&src.join("flock"), true)
        });
        fs::metadata(&mnt).expect("the next one answers");
    }
    kept.room.umount(&[]).ok();
    kept.is_gone();
}

/// Four servers die under those who wait. None is answered twice, or by an error, and the one who has the lock is alone.
#[test]
fn privileged_who_waits_over_kills_gets_the_lock_once() {
    if !can_mount() {
        return;
    }
    for is_flock in [false, true] {
        let kept = start("cloned");
        let name = if is_flock { "flock" } else { "ofd" };
        let (path, below) = (kept.room.mnt().join(name), open(&kept.room.src().join(name)));
        let lock = |file: &File, wait: bool| {
            if is_flock { flock(file, FlockOp::Exclusive, wait) } else { ofd_lock(file, FIRST, wait) }
        };
        let unlock = |file: &File| {
            if is_flock { flock(file, FlockOp::Unlock, false) } else { ofd_lock(file, NOTHING, false) }
        };
        lock(&below, false).expect("is free");
        let (holders, turns) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let file = open(&path);
                    lock(&file, true).expect("gets it");
                    assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "alone");
                    turns.fetch_add(1, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(50));
                    holders.fetch_sub(1, Ordering::SeqCst);
                    unlock(&file).expect("gives it back");
                });
            }
            for _ in 0..4 {
                std::thread::sleep(Duration::from_millis(200));
                kill(&kept);
                assert_eq!(turns.load(Ordering::SeqCst), 0, "somebody below has it");
            }
            // Somebody who waits is killed between two servers, and takes nothing along.
            let mut gone = Command::new("flock").arg(&path).arg("true").stdin(Stdio::null()).spawn();
            if let Ok(gone) = &mut gone {
                std::thread::sleep(Duration::from_millis(200));
                gone.kill().expect("is a child");
                wait(gone);
            }
            unlock(&below).expect("gives it back");
        });
        assert_eq!(turns.load(Ordering::SeqCst), 3);
        eventually("it is free", || is_free(&path, is_flock));
        drop(below);
        kept.room.umount(&[]).ok();
        kept.is_gone();
    }
}
