//! Exports whose servers are killed: what callers see of the disk, what happens to the image, its locks, and the end. Needs root, /dev/fuse,
//! and in parts qemu-img, mkfs.ext4 and loop devices.

#[path = "../common/mod.rs"]
mod common;

#[path = "../../../shuntfs-keeper/tests/callers/mod.rs"]
mod callers;
#[expect(dead_code, reason = "the tests of exports use more of it")]
#[path = "../exporting/desk.rs"]
mod desk;
#[path = "../../../shuntfs-keeper/tests/support/followed.rs"]
mod followed;
mod guest;
mod kept;
mod points;
#[path = "../programs/mod.rs"]
mod programs;
mod storm;
mod upgrading;

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{eventually, is_alive, run, servers_of, shunt, signal};
use desk::{Desk, is_mounted, tool};
use kept::{KILLS, Kept, always_locked, disk_of, is_gone, is_locked, is_sound, log};
use rustix::fs::{AtFlags, CWD, FallocateFlags, Statx, StatxFlags, statx};

const MIB: u64 = 1 << 20;
const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);
const ZERO: FallocateFlags = FallocateFlags::ZERO_RANGE.union(FallocateFlags::KEEP_SIZE);

#[test]
fn privileged_the_image_is_locked_all_the_time() {
    let Some(desk) = Desk::new(&["qemu-img"]) else { return };
    desk.qemu_img("create -q -f qcow2 disk.qcow2 32M").ok();
    desk.raw("disk.raw", 4 * MIB);
    for image in ["disk.qcow2", "disk.raw"] {
        let kept = Kept::start(&desk, "--writable", image);
        let asked = always_locked(&desk, image, || {
            for _ in 0..KILLS {
                kept.kill();
                // In the gap as well as after it.
                for flags in ["--writable", ""] {
                    desk.try_export(flags, image, "other").fails(1, &["is in use"]);
                }
                let open = kept.export.open();
                open.write_all_at(b"still there", 4096).expect("is served");
            }
        });
        println!("{image}: asked for the lock {asked} times");
        kept.umount(&desk, image);
        desk.export("--writable", image, "disk").umount().ok();
    }
}

#[test]
fn privileged_open_files_go_on_as_they_were() {
    let Some(desk) = Desk::new(&[]) else { return };
    desk.raw("disk.raw", 4 * MIB);
    for (flags, reads, writes) in [
        ("--writable", "passthrough", "splice"),
        ("--writable --growable --format raw", "passthrough", "passthrough"),
        ("--writable --flow served", "served", "served"),
    ] {
        let kept = Kept::start(&desk, flags, "disk.raw");
        let why = || shunt(["why".as_ref(), kept.export.file().as_os_str()]).ok().out;
        let read = kept.export.open_read();
        assert!(why().contains(reads), "{}", why());
        drop(read);
        let open = kept.export.open();
        assert!(why().contains(writes), "{}", why());
        let before = why();
        for number in 1..=2_u8 {
            open.write_all_at(&[number; 5000], MIB).expect("writes");
            kept.kill();
            let mut seen = [0; 5000];
            open.read_exact_at(&mut seen, MIB).expect("reads");
            assert_eq!(seen, [number; 5000]);
            assert_eq!(why(), before);
            // Another one gets the same, with the number that the kernel knows.
            let other = kept.export.open();
            other.write_all_at(&[number + 10; 100], 2 * MIB).expect("writes");
            other.sync_all().expect("is durable");
        }
        drop(open);
        let descriptors = || fs::read_dir(format!("/proc/{}/fd", kept.keeper)).expect("may look").count();
        let first = descriptors();
        kept.kill();
        assert_eq!(kept.replaced(), 3);
        eventually("no descriptor is left over", || descriptors() <= first);
        kept.umount(&desk, "disk.raw");
    }
}

/// Attributes, of the server and not of the kernel's cache.
fn asked(file: &Path) -> Statx {
    statx(CWD, file, AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS).expect("is served")
}

#[test]
fn privileged_what_is_only_in_memory_survives() {
    let Some(desk) = Desk::new(&[]) else { return };
    let flags = "--takeover crash --writable --growable --format null --size 1G";
    let words = flags.split(' ').chain(["--log-file"]);
    let mut command = Command::new(common::SHUNT);
    command.arg("export").args(words).arg(desk.at("log")).arg(desk.at("disk"));
    run(&mut command).ok();
    let file = desk.at("disk");
    let pid = || {
        let ran = shunt(["status".as_ref(), "--json".as_ref(), file.as_os_str()]).ok();
        let status: serde_json::Value = serde_json::from_str(&ran.out).expect("JSON");
        status["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).expect("a process")
    };
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("changes");
    std::os::unix::fs::chown(&file, Some(4001), Some(4002)).expect("changes");
    let open = File::options().write(true).open(&file).expect("opens");
    for number in 1..=3_u64 {
        open.write_all_at(&[1; 100], number << 30).expect("grows");
        signal(pid(), "KILL");
        let found = asked(&file);
        assert_eq!((found.stx_mode & 0o7777, found.stx_uid, found.stx_gid), (0o640, 4001, 4002));
        assert_eq!(found.stx_size, (number << 30) + 100);
    }
    open.set_len(5000).expect("shrinks");
    signal(pid(), "KILL");
    assert_eq!(asked(&file).stx_size, 5000);
    drop(open);
    shunt(["umount".as_ref(), file.as_os_str()]).ok();
    eventually("no process is left", || servers_of(&desk.path()).is_empty());
    assert!(!file.exists());
}

#[test]
fn privileged_it_is_asked_before_and_after_its_server_is_killed() {
    let Some(desk) = Desk::new(&["qemu-img"]) else { return };
    desk.qemu_img("create -q -f qcow2 disk.qcow2 32M").ok();
    // Over itself: the next server has the image from the keeper, because its name leads to the export.
    let flags = format!("--takeover crash --writable --log-file {}", desk.at("log").display());
    let export = desk.export(&flags, "disk.qcow2", "disk.qcow2");
    let text = |command: &str| shunt([command.as_ref(), export.file().as_os_str()]).ok().out;
    let status = export.status();
    assert_eq!(status["session"]["source"], format!("image:{}", export.file().display()));
    for words in ["no server was replaced", "1 server was replaced", "2 servers were replaced"] {
        let said = text("status");
        assert!(said.contains(words) && said.contains("watches"), "{said}");
        assert!(said.contains("qcow2, 33554432 bytes, writable"), "{said}");
        assert!(text("why").contains("clusters"), "{}", text("why"));
        let list = shunt(["list"]).ok().out;
        assert!(list.lines().any(|line| line.contains("disk.qcow2") && line.contains("cloned")), "{list}");
        assert_eq!(export.status()["session"]["path"], export.file().to_str().expect("plain"));
        export.open().write_all_at(words.as_bytes(), MIB).expect("writes");
        signal(export.pid(), "KILL");
        let mut seen = vec![0; words.len()];
        export.open_read().read_exact_at(&mut seen, MIB).expect("reads");
        assert_eq!(seen, words.as_bytes());
    }
    let said = export.umount().ok().out;
    assert!(said.contains("all that was written is on the disk"), "{said}");
    eventually("no process is left", || servers_of(&desk.path()).is_empty());
    is_sound(&desk, "disk.qcow2");
    assert!(!is_locked(&desk.at("disk.qcow2")));
}

/// Ends an export in some way.
type End = fn(&Kept<'_>);

#[test]
fn privileged_nothing_is_left_however_it_ends() {
    let Some(desk) = Desk::new(&[]) else { return };
    desk.raw("disk.raw", MIB);
    let ends: [(&str, End); 6] = [
        ("umount", |kept| drop(run(tool("umount").arg(kept.export.file())).ok())),
        ("SIGTERM to the keeper", |kept| signal(kept.keeper, "TERM")),
        ("SIGTERM to the server", |kept| signal(kept.export.pid(), "TERM")),
        ("an abort", |kept| drop(run(tool("umount").arg("-f").arg(kept.export.file())))),
        ("SIGTERM while it is open", |kept| {
            let open = kept.export.open();
            signal(kept.keeper, "TERM");
            eventually("it is detached", || !is_mounted(kept.export.file()));
            open.write_all_at(&[6; 100], 0).expect("is served");
        }),
        ("its server is killed at the end, and no other one comes", |kept| {
            let open = kept.export.open();
            open.write_all_at(&[6; 100], 0).expect("is served");
            let server = kept.export.pid();
            run(tool("umount").arg("-l").arg(kept.export.file())).ok();
            signal(kept.keeper, "STOP");
            signal(server, "KILL");
            drop(open);
            std::thread::sleep(Duration::from_millis(100));
            signal(kept.keeper, "CONT");
        }),
    ];
    for (how, end) in ends {
        for kills in [0, 1] {
            let kept = Kept::start(&desk, "--writable", "disk.raw");
            (0..kills).for_each(|_| assert!(kept.kill() > 0));
            assert_eq!(kept.export.len(), MIB, "{how}");
            end(&kept);
            let keeper = kept.keeper;
            eventually(how, || !is_alive(keeper));
            is_gone(&desk, "disk.raw");
            assert!(!log(&desk).contains("is lost"), "{how}: {}", log(&desk));
        }
    }
}

#[test]
fn privileged_a_server_goes_on_without_its_keeper_and_ends_well() {
    let Some(desk) = Desk::new(&["qemu-img"]) else { return };
    desk.qemu_img("create -q -f qcow2 disk.qcow2 32M").ok();
    let kept = Kept::start(&desk, "--writable", "disk.qcow2");
    kept.kill();
    let server = kept.export.pid();
    signal(kept.keeper, "KILL");
    eventually("the server notices", || log(&desk).contains("no other server follows this one"));
    let text = shunt(["status".as_ref(), kept.export.file().as_os_str()]).ok().out;
    assert!(text.contains("keeper     DEAD"), "{text}");
    kept.export.open().write_all_at(&vec![2; 70_000], MIB).expect("is served");
    assert!(is_locked(&desk.at("disk.qcow2")));
    assert_eq!(kept.export.pid(), server);
    let said = kept.export.umount().ok().out;
    assert!(said.contains("all that was written is on the disk"), "{said}");
    is_gone(&desk, "disk.qcow2");
    desk.is_sound("disk.qcow2");
    assert!(disk_of(&desk, "disk.qcow2")[1 << 20..][..70_000].iter().all(|byte| *byte == 2));
}

/// Kills each server as soon as there is one.
fn kill_all(keeper: u32) {
    let end = Instant::now() + Duration::from_secs(60);
    while is_alive(keeper) {
        assert!(Instant::now() < end, "it does not end");
        let path = format!("/proc/{keeper}/task/{keeper}/children");
        for server in fs::read_to_string(path).unwrap_or_default().split_whitespace() {
            let _gone_by_now = run(Command::new("kill").arg("-KILL").arg(server));
        }
    }
}

#[test]
fn privileged_a_crash_loop_ends_with_a_message_and_the_image_is_whole() {
    let Some(desk) = Desk::new(&["qemu-img"]) else { return };
    desk.qemu_img("create -q -f qcow2 disk.qcow2 32M").ok();
    let mut server = desk.export_in_foreground("--takeover crash --writable", "disk.qcow2", "disk");
    let open = File::options().read(true).write(true).open(desk.at("disk")).expect("opens");
    open.write_all_at(&vec![3; 100_000], MIB).expect("writes");
    kill_all(server.id());
    assert_eq!(server.ends(), Some(1), "{}", server.log());
    let said = server.log();
    assert!(said.contains("given up, and the connection was ended: 5 servers died within 60s"), "{said}");
    assert!(open.write_at(&[4; 100], 0).is_err(), "nobody serves it");
    drop(open);
    is_gone(&desk, "disk.qcow2");
    is_sound(&desk, "disk.qcow2");
    let disk = disk_of(&desk, "disk.qcow2");
    assert!(disk[1 << 20..][..100_000].iter().all(|byte| *byte == 3), "what was answered is there");
}

/// As an ordinary user, by fusermount3 and without passthrough.
#[test]
fn privileged_ordinary_users_may_keep_an_export() {
    let Some(desk) = Desk::new(&["fusermount3"]) else { return };
    if fs::metadata("/dev/fuse").is_ok_and(|device| device.permissions().mode() & 0o6 != 0o6) {
        eprintln!("SKIPPED: ordinary users may not open /dev/fuse");
        return;
    }
    let (image, disk, program) = (desk.raw("disk.raw", MIB), desk.at("disk"), desk.at("shunt"));
    run(Command::new("cp").arg(common::SHUNT).arg(&program)).ok();
    for path in [&program, &desk.path()] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("is ours");
    }
    std::os::unix::fs::chown(&image, Some(65534), Some(65534)).expect("gives");
    let nobody = |program: &Path| {
        let mut command = Command::new(program);
        command.uid(65534).gid(65534).env_remove("XDG_RUNTIME_DIR").current_dir("/");
        command
    };
    run(nobody(&program).args(["export", "--takeover", "crash", "--writable"]).arg(&image).arg(&disk)).ok();
    for word in ["first", "second"] {
        let write = "printf %s \"$1\" | dd of=\"$2\" bs=512 seek=3 conv=notrunc status=none";
        run(nobody(Path::new("sh")).args(["-c", write, "sh", word]).arg(&disk)).ok();
        let status = run(nobody(&program).args(["status", "--json"]).arg(&disk)).ok().out;
        let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
        signal(status["pid"].as_u64().and_then(|pid| pid.try_into().ok()).expect("a process"), "KILL");
        let read = "dd if=\"$1\" bs=512 skip=3 count=1 status=none | tr -d '\\0\\001'";
        let seen = run(nobody(Path::new("sh")).args(["-c", read, "sh"]).arg(&disk)).ok().out;
        assert!(seen.starts_with(word), "{seen}");
    }
    let said = run(nobody(&program).arg("umount").arg(&disk)).ok().out;
    assert!(said.contains("all that was written is on the disk"), "{said}");
    is_gone(&desk, "disk.raw");
}

#[test]
fn privileged_what_no_other_server_could_go_on_with_is_refused() {
    let Some(desk) = Desk::new(&[]) else { return };
    desk.raw("disk.raw", MIB);
    let ran = desk.try_export("--takeover crash --transport uring", "disk.raw", "disk");
    ran.fails(2, &["--takeover crash is not possible with io_uring", "--transport cloned"]);
    desk.try_export("--takeover crash --foreground --transport uring", "disk.raw", "disk")
        .fails(2, &["io_uring"]);
    desk.try_export("--takeover always", "disk.raw", "disk").fails_with_usage();
    desk.try_export("--takeover crash", "none.raw", "disk").fails(1, &["none.raw", "No such file"]);
    assert!(!desk.at("disk").exists() && servers_of(&desk.path()).is_empty());
    // Without the option nothing is as with it.
    let export = desk.export("--takeover off --writable", "disk.raw", "disk");
    assert_eq!(export.status().get("takeover"), None);
    assert_eq!(servers_of(&desk.path()).len(), 1);
    export.umount().ok();
}
