//! What a guest frees is free on the host.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::common::run;
use crate::desk::{Desk, tool};

const MIB: u64 = 1 << 20;

fn on_host(desk: &Desk, image: &str) -> u64 {
    fs::metadata(desk.at(image)).expect("is there").blocks() * 512
}

/// The guest fills a file system, removes the files and trims: the image takes little room again, on the host, too.
#[test]
fn privileged_a_trimmed_file_system_gives_its_space_back_to_the_host() {
    let Some(desk) = Desk::new(&["qemu-img", "mkfs.ext4", "fstrim", "losetup"]) else { return };
    fs::create_dir(desk.at("mnt")).expect("makes");
    for (flags, image, make) in [
        ("--writable", "disk.qcow2", "create -q -f qcow2 disk.qcow2 256M"),
        ("--writable", "small.qcow2", "create -q -f qcow2 -o cluster_size=4096 small.qcow2 256M"),
        ("--writable", "disk.raw", "create -q -f raw disk.raw 256M"),
        ("--writable --growable --format raw", "grow.raw", "create -q -f raw grow.raw 256M"),
    ] {
        desk.qemu_img(make).ok();
        let export = desk.export(flags, image, "disk");
        run(tool("mkfs.ext4").args(["-q", "-F"]).arg(export.file())).ok();
        let mounted = run(tool("mount").args(["-o", "loop"]).arg(export.file()).arg(desk.at("mnt")));
        if mounted.code != Some(0) {
            eprintln!("SKIPPED: no loop device: {}", mounted.err);
            export.umount().ok();
            return;
        }
        let empty = on_host(&desk, image);
        fs::write(desk.at("mnt/large"), vec![7; 100 << 20]).expect("writes");
        fs::write(desk.at("mnt/kept"), vec![8; 3 << 20]).expect("writes");
        run(tool("sync").arg("-f").arg(desk.at("mnt"))).ok();
        let full = on_host(&desk, image);
        fs::remove_file(desk.at("mnt/large")).expect("removes");
        run(tool("sync").arg("-f").arg(desk.at("mnt"))).ok();
        run(tool("fstrim").arg(desk.at("mnt"))).ok();
        let trimmed = on_host(&desk, image);
        println!("{image}: {empty} bytes on the host when empty, {full} when full, {trimmed} when trimmed");
        assert!(full >= empty + 100 * MIB, "{image}: {empty} {full}");
        assert!(trimmed <= empty + 8 * MIB, "{image}: {empty} {full} {trimmed}");
        assert_eq!(fs::read(desk.at("mnt/kept")).expect("reads"), vec![8; 3 << 20]);
        // What was freed is used again, and the guest's file system is whole.
        fs::write(desk.at("mnt/again"), vec![9; 50 << 20]).expect("writes");
        run(tool("umount").arg(desk.at("mnt"))).ok();
        run(tool("fsck.ext4").args(["-f", "-n"]).arg(export.file())).ok();
        export.umount().ok();
        if image.ends_with("qcow2") {
            desk.is_sound(image);
        }
        // The file does not grow forever either: what was freed was written over.
        let len = fs::metadata(desk.at(image)).expect("is there").len();
        assert!(len <= 257 * MIB, "{len}");
    }
}
