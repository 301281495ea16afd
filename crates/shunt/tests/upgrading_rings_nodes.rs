//! A mount on io_uring that goes on with another program while the kernel forgets nodes: each FORGET is carried out once, so that the server knows
//! no node in the end that the kernel does not know. Needs root, /dev/fuse, and FUSE over io_uring.

mod common;

#[allow(dead_code, reason = "what it shares with others needs the types alone")]
#[path = "../../shuntfs-keeper/tests/callers/mod.rs"]
mod callers;
mod kept;
mod programs;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use common::{Room, SHUNT, can_mount, eventually, run};
use kept::{Kept, status};
use programs::{copy, upgrading};
use shuntfs_testkit::mounted::enable_uring;

const FILES: usize = 400;
const UPGRADES: u64 = 20;

/// Has the kernel forget what is not in use, on this mount alone.
fn forget(folder: &Path) {
    let remounted = Command::new("mount").args(["-i", "-o", "remount"]).arg(folder).output().expect("runs");
    assert!(remounted.status.success(), "{remounted:?}");
}

/// How many nodes the server knows.
fn nodes(room: &Room) -> u64 {
    let status = status(room);
    status["pool"]["nodes"].as_u64().unwrap_or_else(|| panic!("{status:#}"))
}

#[test]
fn privileged_no_forget_is_lost_while_the_program_is_replaced_on_io_uring() {
    if !can_mount() {
        return;
    }
    if !enable_uring() {
        eprintln!("SKIPPED: FUSE over io_uring is not to be had here");
        return;
    }
    let room = Room::new();
    for number in 0..FILES {
        fs::write(room.src().join(format!("file-{number}")), "x").expect("writes");
    }
    let log = format!("log_file={}", room.path().join("log").display());
    room.mount(&["--takeover", "upgrade", "--transport", "uring", "-o", &log]);
    let kept = Kept::of(room);
    let mnt = kept.room.mnt();
    forget(&mnt);
    let before = nodes(&kept.room);
    let programs = ["one", "other"].map(|name| copy(Path::new(SHUNT), &kept.room.path().join(name)));
    let (is_over, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for number in 0..FILES {
                    fs::metadata(mnt.join(format!("file-{number}"))).expect("is there");
                }
                forget(&mnt);
                rounds.fetch_add(1, Ordering::Relaxed);
            }
        });
        for program in programs.iter().cycle().take(UPGRADES as usize) {
            std::thread::sleep(Duration::from_millis(50));
            let ran = run(&mut upgrading(&mnt, program));
            if ran.code != Some(0) {
                is_over.store(true, Ordering::Relaxed);
            }
            ran.ok();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    println!("{} times all was forgotten", rounds.load(Ordering::Relaxed));
    assert!(rounds.load(Ordering::Relaxed) > 0);
    forget(&mnt);
    eventually("no node is left that the kernel has forgotten", || nodes(&kept.room) <= before);
    kept.room.umount(&[]).ok();
    kept.is_gone();
}
