//! What a mount gets from the kernel that it is on, and what it does where that kernel lacks something. Needs root and /dev/fuse.
//! `cargo xtask compat` runs these tests on other kernels.

mod common;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use common::{Room, SHUNT, can_mount, eventually, is_alive, run, servers_of, shunt, signal};
use serde_json::Value;
use shuntfs_sys::kernel::kernel_version;
use shuntfs_testkit::mounted::enable_uring;
use shuntfs_testkit::skipped;

/// More than one READ, and no whole number of pages.
const LEN: usize = (1 << 20) + 300_001;

fn bytes() -> Vec<u8> {
    (0..LEN).map(|at| u8::try_from(at % 251).expect("small")).collect()
}

fn ask(words: [&str; 2], path: &Path) -> Value {
    let ran = shunt(words.iter().map(OsStr::new).chain([path.as_os_str()])).ok();
    serde_json::from_str(&ran.out).expect("JSON")
}

fn status(mount: &Path) -> Value {
    ask(["status", "--json"], mount)
}

/// What `shunt why` says of a file: how that is known, its flow, and the reason.
fn why(file: &Path) -> [String; 3] {
    let why = ask(["why", "--json"], file);
    ["known", "flow", "reason"].map(|name| why[name].as_str().unwrap_or_default().to_owned())
}

/// Why a mount has no passthrough; `None` where it has.
fn passthrough_off(status: &Value) -> Option<&str> {
    status["session"]["negotiated"]["passthrough_off"].as_str()
}

fn open_new(file: &Path) -> File {
    File::options().read(true).write(true).create_new(true).open(file).expect("makes")
}

/// A file is made, written, asked about, read, moved and removed, and the mount is unmounted.
fn serves(transport: &str) {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    room.mount(&["--transport", transport]);
    let status = status(&room.mnt());
    assert_eq!(status["session"]["transport"]["kind"], transport, "{status}");
    let moved = if transport == "uring" { "relay" } else { "splice" };
    let (flow, reason) = passthrough_off(&status).map_or(("passthrough", "wished"), |reason| (moved, reason));
    let at = |name: &str| room.mnt().join(name);
    let file = open_new(&at("new"));
    file.write_all_at(&bytes(), 0).expect("writes");
    assert_eq!(why(&at("new")), ["settled", flow, reason]);
    drop(file);
    // Nobody has opened this one.
    assert_eq!(why(&at("hello"))[1], flow);
    assert!(fs::read(at("new")).expect("reads") == bytes());
    assert!(fs::read(room.src().join("new")).expect("is below") == bytes());
    fs::rename(at("new"), at("moved")).expect("moves");
    assert_eq!(fs::metadata(at("moved")).expect("is there").len(), LEN as u64);
    fs::remove_file(at("moved")).expect("removes");
    assert_eq!(fs::read_dir(room.mnt()).expect("lists").count(), 1);
    let pid = room.pid();
    room.umount(&[]).ok();
    assert!(!room.is_mounted());
    eventually("the server ends", || !is_alive(pid));
}

#[test]
fn privileged_device_serves() {
    serves("device");
}

#[test]
fn privileged_cloned_devices_serve() {
    serves("cloned");
}

#[test]
fn privileged_rings_serve_where_the_kernel_has_them() {
    if can_mount() && enable_uring() {
        serves("uring");
    }
}

#[test]
fn privileged_passthrough_where_the_kernel_has_it() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    fs::write(room.src().join("long"), bytes()).expect("writes");
    room.mount(&[]);
    if let Some(reason) = passthrough_off(&status(&room.mnt())) {
        assert_eq!(reason, "kernel_lacks");
        return skipped("this kernel has no FUSE passthrough (Linux 6.9)");
    }
    let file = File::options().read(true).write(true).open(room.mnt().join("long")).expect("opens");
    assert_eq!(why(&room.mnt().join("long")), ["settled", "passthrough", "wished"]);
    let mut seen = vec![0; LEN];
    file.read_exact_at(&mut seen, 0).expect("reads");
    assert!(seen == bytes());
    file.write_all_at(&[0xff; 5000], 100).expect("writes");
    assert_eq!(fs::read(room.src().join("long")).expect("is below")[100..5100], [0xff; 5000]);
    let status = status(&room.mnt());
    for operation in ["READ", "WRITE"] {
        let count = status["session"]["ops"][operation]["requests"].as_u64().unwrap_or_default();
        assert_eq!(count, 0, "{operation}: {status}");
    }
    drop(file);
    room.umount(&[]).ok();
}

/// A mount of a mount of a mount is stacked too deep for passthrough on each kernel.
#[test]
fn privileged_without_passthrough_the_server_moves_the_bytes() {
    if !can_mount() {
        return;
    }
    let below = Room::new();
    let middle = Room::new();
    let above = Room::new();
    below.mount(&[]);
    for (source, target) in [(&below, &middle), (&middle, &above)] {
        let paths = [source.mnt(), target.mnt()];
        run(Command::new(SHUNT).args(["mount", "--transport", "device"]).args(paths)).ok();
    }
    let lacks = passthrough_off(&status(&below.mnt())).is_some();
    let file = open_new(&above.mnt().join("new"));
    file.write_all_at(&bytes(), 0).expect("writes");
    let reason = if lacks { "kernel_lacks" } else { "too_deep" };
    assert_eq!(why(&above.mnt().join("new")), ["settled", "splice", reason]);
    let mut seen = vec![0; LEN];
    file.read_exact_at(&mut seen, 0).expect("reads");
    assert!(seen == bytes());
    drop(file);
    assert!(fs::read(below.src().join("new")).expect("is below") == bytes());
    let requests = &status(&above.mnt())["session"]["ops"]["WRITE"]["requests"];
    assert!(requests.as_u64() > Some(0), "{requests}");
    for room in [above, middle, below] {
        room.umount(&[]).ok();
    }
}

#[test]
fn privileged_a_killed_server_is_replaced_where_the_kernel_resends_requests() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let ran = room.try_mount(&["--takeover", "crash"]);
    if kernel_version() < (6, 9) {
        ran.fails(1, &["FUSE_HAS_RESEND", "Linux 6.9"]);
        assert!(!room.is_mounted() && servers_of(&room.path()).is_empty());
        return skipped("this kernel does not resend requests (Linux 6.9)");
    }
    ran.ok();
    let open = File::open(room.mnt().join("hello")).expect("opens");
    let killed = room.pid();
    signal(killed, "KILL");
    let mut seen = [0; 5];
    open.read_exact_at(&mut seen, 0).expect("is open");
    assert_eq!((&seen, room.read("hello").as_str()), (b"hello", "hello there\n"));
    assert_ne!(status(&room.mnt())["pid"].as_u64(), Some(u64::from(killed)));
    drop(open);
    room.umount(&[]).ok();
    eventually("no process is left", || servers_of(&room.path()).is_empty());
}
