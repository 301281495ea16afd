//! qcow2 images: what QEMU makes, shown; what is written, as QEMU sees it.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;

use crate::common::{run, shunt};
use crate::desk::{Desk, LoopDevice, tool};

const MIB: u64 = 1 << 20;
const TOOLS: &[&str] = &["qemu-img", "qemu-io"];

/// Runs qemu-io on an image that is not exported.
#[track_caller]
fn qemu_io(desk: &Desk, image: &str, commands: &[&str]) {
    let mut command = Command::new("qemu-io");
    command.args(["-f", "qcow2"]).current_dir(desk.path());
    for words in commands {
        command.args(["-c", words]);
    }
    let ran = run(command.arg(image)).ok();
    assert!(!ran.out.contains("failed") && !ran.out.contains("error"), "{ran:?}");
}

/// The disk in an image, as QEMU reads it.
pub(crate) fn disk_of(desk: &Desk, image: &str) -> Vec<u8> {
    let _another = fs::remove_file(desk.at("whole.raw"));
    desk.qemu_img(&format!("convert -f qcow2 -O raw {image} whole.raw")).ok();
    fs::read(desk.at("whole.raw")).expect("reads")
}

#[test]
fn privileged_a_file_system_lives_in_a_qcow2_image() {
    let Some(desk) = Desk::new(&["qemu-img", "mkfs.ext4", "e2fsck", "mount"]) else { return };
    desk.raw("seed.raw", 64 * MIB);
    run(tool("mkfs.ext4").args(["-q", "-F"]).arg(desk.at("seed.raw"))).ok();
    desk.qemu_img("convert -f raw -O qcow2 seed.raw disk.qcow2").ok();
    let export = desk.export("--writable", "disk.qcow2", "disk");
    desk.fill_file_system_of(&export);
    let seen = fs::read(export.file()).expect("reads");
    let ran = export.umount().ok();
    assert!(ran.out.contains("on the disk"), "{ran:?}");
    desk.is_sound("disk.qcow2");
    assert!(disk_of(&desk, "disk.qcow2") == seen, "QEMU sees what was seen");
    run(tool("e2fsck").args(["-f", "-n"]).arg(desk.at("whole.raw"))).ok();
}

#[test]
fn privileged_the_same_work_by_qemu_and_through_an_export_gives_the_same_disk() {
    let Some(desk) = Desk::new(TOOLS) else { return };
    for options in
        ["cluster_size=65536", "cluster_size=512", "cluster_size=2097152", "compat=0.10", "refcount_bits=1"]
    {
        for image in ["ours.qcow2", "theirs.qcow2"] {
            desk.qemu_img(&format!("create -q -f qcow2 -o {options} {image} 20M")).ok();
        }
        let work = [
            "write -P 1 0 1M",
            "write -P 2 1M 512",
            "write -P 3 1234k 70k",
            "write -P 4 19M 1M",
            "write -P 5 100k 4k",
            "write -z 200k 300k",
            "write -P 6 5000k 3000k",
        ];
        qemu_io(&desk, "theirs.qcow2", &work);
        let export = desk.export("--writable", "ours.qcow2", "disk");
        for words in work {
            let ran = export.qemu_io(words);
            assert!(ran.code == Some(0) && !ran.out.contains("failed"), "{options} {words}: {ran:?}");
        }
        desk.are_equal(("raw", "disk"), ("qcow2", "theirs.qcow2"));
        export.umount().ok();
        desk.is_sound("ours.qcow2");
        desk.are_equal(("qcow2", "ours.qcow2"), ("qcow2", "theirs.qcow2"));
        for name in ["ours.qcow2", "theirs.qcow2"] {
            fs::remove_file(desk.at(name)).expect("removes");
        }
    }
}

#[test]
fn privileged_a_backing_chain_is_read_through_and_only_the_image_is_written() {
    let Some(desk) = Desk::new(TOOLS) else { return };
    fs::create_dir(desk.at("below")).expect("makes");
    desk.raw("below/base.raw", 4 * MIB);
    desk.qemu_img("create -q -f qcow2 -b base.raw -F raw below/middle.qcow2").ok();
    qemu_io(&desk, "below/middle.qcow2", &["write -P 11 64k 64k", "write -z 128k 64k"]);
    desk.qemu_img("create -q -f qcow2 -b below/middle.qcow2 -F qcow2 top.qcow2 6M").ok();
    let before = [fs::read(desk.at("below/base.raw")), fs::read(desk.at("below/middle.qcow2"))];
    let expected = disk_of(&desk, "top.qcow2");
    let export = desk.export("--writable", "top.qcow2", "disk");
    assert_eq!(export.len(), 6 * MIB);
    assert!(fs::read(export.file()).expect("reads") == expected);
    let layers = export.status()["image"]["layers"].as_array().expect("layers").len();
    assert_eq!(layers, 3);
    // In the middle of clusters that are below: the rest of them is copied.
    let file = export.open();
    file.write_all_at(&[0x77; 100], 70_000).expect("writes");
    file.write_all_at(&[0x78; 4096], 5 * MIB).expect("writes beyond what is below");
    let mut model = expected;
    model[70_000..70_100].fill(0x77);
    model[5 << 20..][..4096].fill(0x78);
    assert!(fs::read(export.file()).expect("reads") == model);
    drop(file);
    export.umount().ok();
    desk.is_sound("top.qcow2");
    assert!(disk_of(&desk, "top.qcow2") == model);
    for (path, was) in ["below/base.raw", "below/middle.qcow2"].iter().zip(before) {
        assert!(fs::read(desk.at(path)).expect("reads") == was.expect("was read"), "{path} was written");
    }
}

/// A regression: a device is not zeroed in parts of blocks, which made writes that begin or end in the middle of one EINVAL.
#[test]
fn privileged_a_qcow2_image_lives_on_a_block_device() {
    let Some(desk) = Desk::new(&["qemu-img", "losetup"]) else { return };
    File::create_new(desk.at("device")).and_then(|file| file.set_len(32 * MIB)).expect("sparse");
    let Some(device) = LoopDevice::over(&desk.at("device")) else { return };
    desk.qemu_img(&format!("create -q -f qcow2 {} 16M", device.0)).ok();
    for cache in ["writeback", "none"] {
        let export = desk.export(&format!("--writable --format qcow2 --cache {cache}"), &device.0, "disk");
        let mut model = fs::read(export.file()).expect("reads");
        let file = export.open();
        for (offset, len) in
            [(1000, 1), (100_001, 70_000), (1 << 20, 65536), (3_000_007, 1_000_003), (9_999_999, 2)]
        {
            file.write_all_at(&vec![6; len], offset as u64).expect("writes");
            model[offset..offset + len].fill(6);
        }
        fallocate(&file, FallocateFlags::ZERO_RANGE, 100_500, 1003).expect("zeroes");
        model[100_500..101_503].fill(0);
        assert!(fs::read(export.file()).expect("reads") == model, "{cache}");
        drop(file);
        export.umount().ok();
        desk.is_sound(&device.0);
        assert!(disk_of(&desk, &device.0) == model, "{cache}");
    }
}

#[test]
fn privileged_compressed_clusters_are_read_and_written_over() {
    let Some(desk) = Desk::new(TOOLS) else { return };
    let image = desk.raw("disk.raw", 8 * MIB);
    desk.qemu_img("convert -c -f raw -O qcow2 disk.raw disk.qcow2").ok();
    let export = desk.export("--writable", "disk.qcow2", "disk");
    let mut model = fs::read(&image).expect("reads");
    assert!(fs::read(export.file()).expect("reads") == model);
    let file = export.open();
    for (offset, byte) in [(0, 9), (65_530, 8), (700_000, 7)] {
        file.write_all_at(&[byte; 100], offset).expect("writes");
        let place = usize::try_from(offset).expect("small");
        model[place..place + 100].fill(byte);
    }
    assert!(fs::read(export.file()).expect("reads") == model);
    drop(file);
    export.umount().ok();
    desk.is_sound("disk.qcow2");
    assert!(disk_of(&desk, "disk.qcow2") == model);
}

#[test]
fn privileged_snapshots_are_shown_and_survive_writes() {
    let Some(desk) = Desk::new(TOOLS) else { return };
    desk.qemu_img("create -q -f qcow2 disk.qcow2 4M").ok();
    qemu_io(&desk, "disk.qcow2", &["write -P 1 0 2M"]);
    desk.qemu_img("snapshot -c before disk.qcow2").ok();
    let before = disk_of(&desk, "disk.qcow2");
    qemu_io(&desk, "disk.qcow2", &["write -P 2 1M 1M"]);
    let export = desk.export("--writable", "disk.qcow2", "disk");
    export.open().write_all_at(&[3; 65536], 0).expect("writes");
    export.umount().ok();
    desk.is_sound("disk.qcow2");
    let now = disk_of(&desk, "disk.qcow2");
    assert_eq!((now[0], now[100_000], now[3 << 19]), (3, 1, 2));
    for name in ["before", "1"] {
        let export = desk.export(&format!("--snapshot {name}"), "disk.qcow2", "disk");
        assert!(fs::read(export.file()).expect("reads") == before, "{name}");
        assert!(File::options().write(true).open(export.file()).is_err());
        export.umount().ok();
    }
    desk.try_export("--snapshot after", "disk.qcow2", "disk").fails(1, &["`after`", "before"]);
    let refused = desk.try_export("--snapshot before --writable", "disk.qcow2", "disk");
    assert_eq!(refused.code, Some(2), "{refused:?}");
}

#[test]
fn privileged_zeroes_free_clusters_and_holes_are_found() {
    let Some(desk) = Desk::new(TOOLS) else { return };
    desk.qemu_img("create -q -f qcow2 disk.qcow2 8M").ok();
    let export = desk.export("--writable", "disk.qcow2", "disk");
    let file = export.open();
    assert_eq!(seek(&file, SeekFrom::Data(0)), Err(Errno::NXIO));
    file.write_all_at(&vec![1; 4 << 20], MIB).expect("writes");
    assert_eq!(seek(&file, SeekFrom::Data(0)).expect("finds"), MIB);
    assert_eq!(seek(&file, SeekFrom::Hole(MIB)).expect("finds"), 5 * MIB);
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, punch, 2 * MIB - 100, MIB + 200).expect("punches");
    fallocate(&file, FallocateFlags::ZERO_RANGE, 4 * MIB, 1000).expect("zeroes");
    let refused = fallocate(&file, FallocateFlags::empty(), 0, MIB);
    assert_eq!(refused, Err(Errno::OPNOTSUPP), "as QEMU");
    let mut model = vec![0; 8 << 20];
    model[1 << 20..5 << 20].fill(1);
    model[(2 << 20) - 100..(3 << 20) + 100].fill(0);
    model[4 << 20..][..1000].fill(0);
    assert!(fs::read(export.file()).expect("reads") == model);
    assert_eq!(seek(&file, SeekFrom::Hole(MIB)).expect("finds"), 2 * MIB);
    drop(file);
    export.umount().ok();
    desk.is_sound("disk.qcow2");
    assert!(disk_of(&desk, "disk.qcow2") == model);
}

#[test]
fn privileged_a_qcow2_disk_grows_where_it_may() {
    let Some(desk) = Desk::new(TOOLS) else { return };
    desk.qemu_img("create -q -f qcow2 disk.qcow2 1M").ok();
    let export = desk.export("--writable", "disk.qcow2", "disk");
    let file = export.open();
    assert!(file.write_at(&[1], MIB).is_err());
    file.set_len(3 * MIB).expect("grows");
    file.set_len(2 * MIB).expect("shrinks");
    fallocate(&file, FallocateFlags::empty(), 2 * MIB, MIB).expect("allocates beyond the end");
    assert_eq!(export.len(), 3 * MIB);
    drop(file);
    export.umount().ok();
    desk.is_sound("disk.qcow2");
    let export = desk.export("--writable --growable", "disk.qcow2", "disk");
    export.open().write_all_at(&[9; 100], 600 * MIB).expect("grows, and its first table with it");
    assert_eq!(export.len(), 600 * MIB + 100);
    export.umount().ok();
    desk.is_sound("disk.qcow2");
    let said = desk.qemu_img("info --output=json disk.qcow2").ok().out;
    assert!(said.contains("629145700") || said.contains("629145"), "{said}");
}

#[test]
fn privileged_an_image_over_itself_can_be_a_qcow2() {
    let Some(desk) = Desk::new(TOOLS) else { return };
    desk.qemu_img("create -q -f qcow2 disk.qcow2 2M").ok();
    let export = desk.export("--writable", "disk.qcow2", "disk.qcow2");
    let said = run(Command::new("qemu-img").args(["info", "-f", "raw"]).arg(export.file())).ok().out;
    assert!(said.contains("virtual size: 2 MiB"), "{said}");
    export.qemu_io("write -P 5 0 1M").ok();
    export.umount().ok();
    desk.is_sound("disk.qcow2");
    assert_eq!(disk_of(&desk, "disk.qcow2")[1_000_000], 5);
}

/// QEMU reads its disk from the exported file, as a guest's would be: past the page cache, many requests at once.
#[test]
fn privileged_qemu_uses_an_exported_disk() {
    let Some(desk) = Desk::new(TOOLS) else { return };
    desk.raw("disk.raw", 16 * MIB);
    desk.qemu_img("convert -f raw -O qcow2 disk.raw disk.qcow2").ok();
    let export = desk.export("--writable", "disk.qcow2", "disk");
    let bench = |words: &str| {
        let ran = run(Command::new("qemu-img")
            .args(["bench", "-t", "none", "-f", "raw", "-d", "64", "-c", "2000"])
            .args(words.split(' ').filter(|word| !word.is_empty()))
            .arg(export.file()));
        assert!(ran.code == Some(0) && ran.out.contains("Run completed"), "{ran:?}");
    };
    bench("-s 4096");
    bench("-s 65536 -w --pattern=90 --flush-interval=100");
    desk.qemu_img("compare -f raw -F raw disk disk").ok();
    let seen = fs::read(export.file()).expect("reads");
    assert!(seen[..16 << 20].iter().all(|byte| *byte == 90));
    export.umount().ok();
    desk.is_sound("disk.qcow2");
    assert!(disk_of(&desk, "disk.qcow2") == seen);
}

#[test]
fn privileged_list_status_and_why_know_exports() {
    let Some(desk) = Desk::new(TOOLS) else { return };
    desk.qemu_img("create -q -f qcow2 disk.qcow2 2M").ok();
    let export = desk.export("--writable --queues 2 --transport cloned", "disk.qcow2", "disk");
    export.open().write_all_at(&[1; 4096], 0).expect("writes");
    let list = shunt(["list"]).ok().out;
    assert!(list.lines().any(|line| line.contains("disk.qcow2") && line.contains("cloned")), "{list}");
    let status = shunt(["status".as_ref(), export.file().as_os_str()]).ok().out;
    for words in ["2 queues of 32", "qcow2, 2097152 bytes, writable", "LATENCY", "WRITE"] {
        assert!(status.contains(words), "no `{words}` in {status}");
    }
    let why = shunt(["why".as_ref(), export.file().as_os_str()]).ok().out;
    assert!(why.contains("served") && why.contains("clusters"), "{why}");
}
