//! Raw images, block devices and nothing at all: sizes, growth, permissions, holes, locks, ends.

use std::fs::{self, File, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::process::{Command, Stdio};

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;

use crate::common::{eventually, is_alive, run, shunt, signal};
use crate::desk::{Desk, LoopDevice, is_mounted, tool};

const MIB: u64 = 1 << 20;

fn errno(error: &std::io::Error) -> Option<Errno> {
    error.raw_os_error().map(Errno::from_raw_os_error)
}

#[test]
fn privileged_a_read_only_export_refuses_writes() {
    let Some(desk) = Desk::new(&[]) else { return };
    let image = desk.raw("disk.raw", 4 * MIB);
    let export = desk.export("", "disk.raw", "disk");
    let metadata = fs::metadata(export.file()).expect("answers");
    assert_eq!((metadata.len(), metadata.mode()), (4 * MIB, 0o100_400));
    assert_eq!(fs::read(export.file()).expect("reads"), fs::read(&image).expect("reads"));
    let refused = File::options().write(true).open(export.file()).expect_err("no writer gets in");
    assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
    let refused = fs::set_permissions(export.file(), Permissions::from_mode(0o600)).expect_err("no bit");
    assert_eq!(errno(&refused), Some(Errno::ROFS));
    fs::set_permissions(export.file(), Permissions::from_mode(0o444)).expect("others may read");
    assert_eq!(fs::metadata(export.file()).expect("answers").mode(), 0o100_444);
    assert_eq!(export.umount().ok().out, "", "there was nothing to make durable");
    assert!(!desk.at("disk").exists(), "the file was made for the export, and goes with it");
}

#[test]
fn privileged_the_mode_and_the_owner_of_a_writable_export_can_be_changed() {
    let Some(desk) = Desk::new(&[]) else { return };
    desk.raw("disk.raw", MIB);
    let export = desk.export("--writable", "disk.raw", "disk");
    assert_eq!(fs::metadata(export.file()).expect("answers").mode(), 0o100_600);
    fs::set_permissions(export.file(), Permissions::from_mode(0o660)).expect("changes");
    std::os::unix::fs::chown(export.file(), Some(1234), Some(5678)).expect("others get in");
    let metadata = fs::metadata(export.file()).expect("answers");
    assert_eq!((metadata.mode(), metadata.uid(), metadata.gid()), (0o100_660, 1234, 5678));
    export.umount().ok();
    let export = desk.export("--writable --allow-other=off", "disk.raw", "disk");
    let refused = std::os::unix::fs::chown(export.file(), Some(1), None).expect_err("nobody else gets in");
    assert_eq!(errno(&refused), Some(Errno::OPNOTSUPP));
}

#[test]
fn privileged_a_disk_ends_where_it_ends_unless_it_may_grow() {
    let Some(desk) = Desk::new(&[]) else { return };
    let image = desk.raw("disk.raw", MIB);
    for flow in ["auto", "relay", "served"] {
        let export = desk.export(&format!("--writable --flow {flow}"), "disk.raw", "disk");
        let file = export.open();
        assert_eq!(errno(&file.write_at(b"x", MIB).expect_err("the end")), Some(Errno::NOSPC), "{flow}");
        assert_eq!(errno(&file.write_at(b"x", 9 * MIB).expect_err("beyond")), Some(Errno::NOSPC), "{flow}");
        assert_eq!(file.write_at(&[7; 4096], MIB - 1000).expect("what fits"), 1000, "{flow}");
        assert_eq!((export.len(), fs::metadata(&image).expect("there").len()), (MIB, MIB), "{flow}");
        drop(file);
        export.umount().ok();
    }
    for (flow, flag) in [("passthrough", "auto"), ("relay", "relay"), ("served", "served")] {
        let export =
            desk.export(&format!("--writable --growable --format raw --flow {flag}"), "disk.raw", "disk");
        let before = export.len();
        let file = export.open();
        file.write_all_at(&[9; 5000], before + 4096).expect("grows");
        assert_eq!(export.len(), before + 4096 + 5000, "{flow}");
        let flows = &export.status()["session"]["flows"];
        let moved = ["relay", "splice"].iter().any(|moved| flows[moved].as_u64() > Some(0));
        assert!(flows[flow].as_u64() > Some(0) || moved && flow != "served", "{flow}: {flows}");
        drop(file);
        export.umount().ok();
    }
}

#[test]
fn privileged_truncate_and_fallocate_resize_as_on_a_file() {
    let Some(desk) = Desk::new(&[]) else { return };
    let image = desk.raw("disk.raw", 4 * MIB);
    let export = desk.export("--writable", "disk.raw", "disk");
    let file = export.open();
    file.set_len(MIB).expect("shrinks");
    assert_eq!((export.len(), fs::metadata(&image).expect("there").len()), (MIB, MIB));
    file.set_len(8 * MIB).expect("grows");
    assert_eq!(export.len(), 8 * MIB);
    let blocks = || fs::metadata(&image).expect("there").blocks();
    let before = blocks();
    fallocate(&file, FallocateFlags::empty(), 8 * MIB, MIB).expect("allocates");
    assert_eq!(export.len(), 9 * MIB);
    assert!(blocks() > before, "the disk has room for it");
    let keep = FallocateFlags::KEEP_SIZE;
    fallocate(&file, keep, 9 * MIB, MIB).expect("nothing of it is inside");
    assert_eq!(export.len(), 9 * MIB);
}

#[test]
fn privileged_holes_are_found_made_and_freed() {
    let Some(desk) = Desk::new(&[]) else { return };
    let image = desk.raw("disk.raw", 4 * MIB);
    let export = desk.export("--writable", "disk.raw", "disk");
    let file = export.open();
    assert_eq!(seek(&file, SeekFrom::Hole(0)).expect("finds"), 4096);
    assert_eq!(seek(&file, SeekFrom::Data(4096)).expect("finds"), 65536);
    assert_eq!(seek(&file, SeekFrom::Data(2 * MIB)), Err(Errno::NXIO));
    assert_eq!(seek(&file, SeekFrom::Data(4 * MIB)), Err(Errno::NXIO));
    let blocks = fs::metadata(&image).expect("there").blocks();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, punch, 0, 128 << 10).expect("punches");
    assert!(fs::metadata(&image).expect("there").blocks() < blocks);
    let mut read = [1; 4096];
    file.read_exact_at(&mut read, 65536).expect("reads");
    assert_eq!(read, [0; 4096]);
    assert_eq!(seek(&file, SeekFrom::Data(0)).expect("finds"), 128 << 10);
    file.sync_all().expect("is durable");
}

#[test]
fn privileged_an_image_is_shown_over_itself_and_is_there_again_afterwards() {
    let Some(desk) = Desk::new(&[]) else { return };
    let image = desk.raw("disk.raw", MIB);
    let inode = fs::metadata(&image).expect("there").ino();
    let export = desk.export("--writable", "disk.raw", "disk.raw");
    assert_ne!(fs::metadata(&image).expect("answers").ino(), inode);
    export.open().write_all_at(b"through itself", 100).expect("writes");
    desk.try_export("", "disk.raw", "disk.raw").fails(1, &["shows", "already"]);
    let ran = export.umount().ok();
    assert!(ran.out.contains("on the disk"), "{ran:?}");
    assert_eq!(fs::metadata(&image).expect("there").ino(), inode);
    let mut read = [0; 14];
    File::open(&image).expect("opens").read_exact_at(&mut read, 100).expect("reads");
    assert_eq!(&read, b"through itself");
}

#[test]
fn privileged_nothing_is_as_large_as_it_is_said_to_be() {
    let Some(desk) = Desk::new(&[]) else { return };
    let file = desk.at("nothing");
    let nothing = |flags: &str| {
        let words = flags.split(' ').filter(|flag| !flag.is_empty());
        run(Command::new(crate::common::SHUNT).args(["export", "--format", "null"]).args(words).arg(&file))
    };
    nothing("--size 5T --writable").ok();
    assert_eq!(fs::metadata(&file).expect("answers").len(), 5 << 40);
    let open = File::options().read(true).write(true).open(&file).expect("opens");
    open.write_all_at(&[1; 4096], 4 << 40).expect("is dropped");
    let mut read = [1; 4096];
    open.read_exact_at(&mut read, 4 << 40).expect("reads");
    assert_eq!(read, [0; 4096]);
    assert_eq!(errno(&open.write_at(&[1], 5 << 40).expect_err("the end")), Some(Errno::NOSPC));
    assert_eq!(seek(&open, SeekFrom::Data(0)), Err(Errno::NXIO));
    drop(open);
    shunt(["umount".as_ref(), file.as_os_str()]).ok();
    nothing("--size 1X").fails_with_usage();
    assert!(!file.exists());
}

#[test]
fn privileged_neither_qemu_nor_a_second_export_writes_what_is_exported() {
    let Some(desk) = Desk::new(&["qemu-io"]) else { return };
    desk.raw("disk.raw", MIB);
    let export = desk.export("--writable", "disk.raw", "disk");
    desk.try_export("", "disk.raw", "other").fails(1, &["disk.raw is in use", "for writing"]);
    desk.try_export("--writable", "disk.raw", "other").fails(1, &["disk.raw is in use"]);
    assert!(!desk.at("other").exists());
    let qemu = |flags: &[&str]| {
        run(Command::new("qemu-io")
            .args(flags)
            .args(["-f", "raw", "-c", "read 0 512"])
            .arg(desk.at("disk.raw")))
    };
    let refused = qemu(&[]);
    assert!(refused.code != Some(0) && refused.err.contains("lock"), "{refused:?}");
    export.umount().ok();
    // Readers share, with one another and with QEMU.
    let export = desk.export("", "disk.raw", "disk");
    let other = desk.export("", "disk.raw", "other");
    qemu(&["-r"]).ok();
    assert_ne!(qemu(&[]).code, Some(0));
    other.umount().ok();
    export.umount().ok();
    qemu(&[]).ok();
}

#[test]
fn privileged_what_qemu_writes_is_not_exported() {
    let Some(desk) = Desk::new(&["qemu-io"]) else { return };
    let image = desk.raw("disk.raw", MIB);
    let mut qemu = Command::new("qemu-io")
        .args(["-f", "raw"])
        .arg(&image)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("starts");
    // It opens the image before it asks for commands.
    eventually("QEMU has it", || desk.try_export("", "disk.raw", "disk").code == Some(1));
    desk.try_export("", "disk.raw", "disk").fails(1, &["in use", "for writing"]);
    drop(qemu.stdin.take());
    assert!(qemu.wait().expect("ends").success());
    desk.export("", "disk.raw", "disk").umount().ok();
}

#[test]
fn privileged_a_signal_ends_an_export_and_nothing_is_lost() {
    let Some(desk) = Desk::new(&[]) else { return };
    let image = desk.raw("disk.raw", MIB);
    let mut server = desk.export_in_foreground("--writable", "disk.raw", "disk");
    let file = File::options().write(true).open(desk.at("disk")).expect("opens");
    file.write_all_at(&[5; 8192], 0).expect("writes");
    drop(file);
    signal(server.id(), "TERM");
    assert_eq!(server.ends(), Some(0), "{}", server.log());
    assert!(!is_mounted(&desk.at("disk")) && server.log().contains("is on its disk"), "{}", server.log());
    assert_eq!(fs::read(&image).expect("reads")[..8192], [5; 8192]);
}

#[test]
fn privileged_a_busy_export_is_said_to_be_busy_and_a_detached_one_is_served_to_the_end() {
    let Some(desk) = Desk::new(&[]) else { return };
    let image = desk.raw("disk.raw", MIB);
    let export = desk.export("--writable", "disk.raw", "disk");
    let file = export.open();
    let pid = export.pid();
    shunt(["umount".as_ref(), export.file().as_os_str()]).fails(1, &["is busy"]);
    file.write_all_at(&[1; 4096], 0).expect("goes on");
    shunt(["umount".as_ref(), "--lazy".as_ref(), export.file().as_os_str()]).ok();
    file.write_all_at(&[3; 4096], 0).expect("is served to the end");
    drop(file);
    eventually("the server ends", || !is_alive(pid));
    assert_eq!(fs::read(&image).expect("reads")[..4096], [3; 4096]);
}

#[test]
fn privileged_a_file_system_lives_in_a_raw_image() {
    let Some(desk) = Desk::new(&["mkfs.ext4", "e2fsck", "mount"]) else { return };
    let image = desk.raw("disk.raw", 64 * MIB);
    run(tool("mkfs.ext4").args(["-q", "-F"]).arg(&image)).ok();
    let export = desk.export("--writable", "disk.raw", "disk");
    desk.fill_file_system_of(&export);
    let seen = fs::read(export.file()).expect("reads");
    let ran = export.umount().ok();
    assert!(ran.out.contains("on the disk"), "{ran:?}");
    assert!(fs::read(&image).expect("reads") == seen);
    run(tool("e2fsck").args(["-f", "-n"]).arg(&image)).ok();
}

#[test]
fn privileged_a_block_device_is_a_raw_image() {
    let Some(desk) = Desk::new(&["losetup"]) else { return };
    let image = desk.raw("disk.raw", 4 * MIB);
    let Some(device) = LoopDevice::over(&image) else { return };
    let words = ["export", "--writable", device.0.as_str()];
    for cache in ["writeback", "none"] {
        let file = desk.at("disk");
        run(Command::new(crate::common::SHUNT).args(words).arg(&file).args(["--cache", cache])).ok();
        assert_eq!(fs::metadata(&file).expect("answers").len(), 4 * MIB);
        let open = File::options().read(true).write(true).open(&file).expect("opens");
        open.write_all_at(&[6; 5000], 70_000).expect("writes");
        assert_eq!(errno(&open.write_at(&[6], 4 * MIB).expect_err("the end")), Some(Errno::NOSPC));
        assert_eq!(errno(&open.set_len(MIB).expect_err("is as large as it is")), Some(Errno::OPNOTSUPP));
        open.sync_all().expect("is durable");
        let mut read = [0; 5000];
        open.read_exact_at(&mut read, 70_000).expect("reads");
        assert_eq!(read, [6; 5000]);
        drop(open);
        shunt(["umount".as_ref(), file.as_os_str()]).ok();
    }
    drop(device);
}

#[test]
fn privileged_without_the_page_cache_below_every_alignment_is_still_taken() {
    let Some(desk) = Desk::new(&[]) else { return };
    let image = desk.raw("disk.raw", 1_000_001);
    let export = desk.export("--writable --cache none", "disk.raw", "disk");
    let file = export.open();
    let mut model = fs::read(&image).expect("reads");
    for (offset, len) in [(0, 4096), (1, 1), (4095, 2), (8192, 65536), (999_000, 1001), (513, 70_000)] {
        let bytes: Vec<u8> = (0..len).map(|at| u8::try_from((at + offset) % 251).expect("small")).collect();
        file.write_all_at(&bytes, offset as u64).expect("writes");
        model[offset..offset + len].copy_from_slice(&bytes);
    }
    assert!(fs::read(export.file()).expect("reads") == model);
    drop(file);
    export.umount().ok();
    assert!(fs::read(&image).expect("reads") == model);
}
