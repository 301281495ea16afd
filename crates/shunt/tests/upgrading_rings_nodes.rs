//! A mount on io_uring that goes on with another program while the kernel forgets nodes: each FORGET is carried out once, so that the server knows
//! no node in the end that the kernel does not know. Needs root, /dev/fuse, and FUSE over io_uring.

mod common;

#[expect(dead_code, reason = "nobody calls here")]
#[path = "../../shuntfs-keeper/tests/callers/mod.rs"]
mod callers;
mod kept;
mod programs;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use common::{Room, SHUNT, can_mount, eventually};
use kept::{Kept, status};
use programs::{copy, upgrading};
use shuntfs_testkit::mounted::enable_uring;

const FILES: usize = 700;
const UPGRADES: usize = 20;
const O_PATH: i32 = 0o10_000_000;

/// How many nodes the server knows.
fn nodes(room: &Room) -> u64 {
    let status = status(room);
    status["pool"]["nodes"].as_u64().unwrap_or_else(|| panic!("{status:#}"))
}

/// Files without a name that are held without being open: to let go of one makes the kernel forget its node, and asks the server nothing.
fn held(folder: &Path) -> Vec<File> {
    let hold = |number| {
        let path = folder.join(format!("held-{number}"));
        fs::write(&path, "x").expect("writes");
        let file = OpenOptions::new().read(true).custom_flags(O_PATH).open(&path).expect("opens");
        fs::remove_file(&path).expect("removes");
        file
    };
    (0..FILES).map(hold).collect()
}

/// A regression: the thread that reads the device rests after a FORGET, so that others gather, and a server that was killed meanwhile had not
/// carried it out.
#[test]
fn privileged_no_forget_is_lost_while_the_program_is_replaced_on_io_uring() {
    if !can_mount() {
        return;
    }
    if !enable_uring() {
        eprintln!("SKIPPED: FUSE over io_uring is not to be had here");
        return;
    }
    let _most = shuntfs_sys::limits::raise_nofile();
    let room = Room::new();
    let log = format!("log_file={}", room.path().join("log").display());
    room.mount(&["--takeover", "upgrade", "--transport", "uring", "-o", &log]);
    let kept = Kept::of(room);
    let mnt = kept.room.mnt();
    let before = nodes(&kept.room);
    let programs = ["one", "other"].map(|name| copy(Path::new(SHUNT), &kept.room.path().join(name)));
    for program in programs.iter().cycle().take(UPGRADES) {
        let mut held = held(&mnt);
        let mut replacing = upgrading(&mnt, program).spawn().expect("starts");
        // One after the other, so that some are on their way at the moment that counts.
        while replacing.try_wait().expect("is a child").is_none() {
            drop(held.pop());
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(replacing.wait().expect("is a child").success(), "{}", kept.log());
        assert!(held.len() < FILES);
    }
    eventually("no node is left that the kernel has forgotten", || nodes(&kept.room) <= before);
    kept.room.umount(&[]).ok();
    kept.is_gone();
}
