//! Whoever makes an image that root exports has it name a file of the host, to read it through the export.
//!
//! They control every byte of the image, and what lies beside it in folders that they may write.

use std::fs::{self, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::time::Instant;

use crate::common::{LIMIT, run, shunt};
use crate::desk::{Desk, LoopDevice, tool};

const OTHER: u32 = 4001;
const TOOLS: &[&str] = &["qemu-img"];

/// An image of 1 MiB that says it stands on `name`, of somebody else.
fn image_on(desk: &Desk, image: &str, name: &str) {
    desk.qemu_img(&format!("create -q -f qcow2 {image} 1M")).ok();
    desk.qemu_img(&format!("rebase -u -b {name} -F raw {image}")).ok();
    chown(desk.at(image), Some(OTHER), Some(OTHER)).expect("is root's to give");
}

fn secret(desk: &Desk) -> std::path::PathBuf {
    let path = desk.at("secret");
    fs::write(&path, [b's'; 4096]).expect("writes");
    fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("is ours");
    path
}

#[track_caller]
fn refused(desk: &Desk, flags: &str, image: &str, words: &[&str]) {
    let before = Instant::now();
    let mut all = vec!["IMAGE cannot be shown", image];
    all.extend(words);
    desk.try_export(flags, image, "disk").fails(1, &all);
    assert!(!desk.at("disk").exists(), "nothing is left of it");
    assert!(before.elapsed() < LIMIT / 4, "nothing waits");
}

#[track_caller]
fn shown(desk: &Desk, flags: &str, image: &str) {
    let export = desk.export(flags, image, "disk");
    let mut read = [0; 4096];
    export.open_read().read_exact_at(&mut read, 0).expect("reads");
    assert_eq!(read, [b's'; 4096], "{flags}");
    export.umount().ok();
}

#[test]
fn privileged_an_image_of_somebody_else_reads_no_file_of_the_host() {
    let Some(desk) = Desk::new(TOOLS) else { return };
    let secret = secret(&desk);
    let absolute = secret.to_str().expect("is text");
    let up =
        format!("../{}/secret", desk.path().file_name().and_then(|name| name.to_str()).expect("is text"));
    let not_opened = "which is not opened: users other than root can write the image";
    for name in [absolute, "secret", &up, &format!("file:{absolute}")] {
        image_on(&desk, "theirs.qcow2", name);
        refused(&desk, "", "theirs.qcow2", &["secret", not_opened, "--backing follow", "--backing FILE"]);
        refused(&desk, "--writable", "theirs.qcow2", &[not_opened]);
        refused(&desk, "--backing none", "theirs.qcow2", &["the image is to be shown by itself"]);
        shown(&desk, "--backing follow", "theirs.qcow2");
    }
    // What the user names takes the place of what the image does.
    image_on(&desk, "theirs.qcow2", "/etc/shadow");
    shown(&desk, &format!("--backing {absolute}"), "theirs.qcow2");
    // Root's own, but for others to write.
    chown(desk.at("theirs.qcow2"), Some(0), Some(0)).expect("is root's");
    fs::set_permissions(desk.at("theirs.qcow2"), Permissions::from_mode(0o666)).expect("is ours");
    refused(&desk, "", "theirs.qcow2", &[not_opened]);
    fs::set_permissions(desk.at("theirs.qcow2"), Permissions::from_mode(0o644)).expect("is ours");
    desk.qemu_img("rebase -u -b secret -F raw theirs.qcow2").ok();
    shown(&desk, "", "theirs.qcow2");
}

#[test]
fn privileged_a_chain_ends_where_somebody_else_goes_on() {
    let Some(desk) = Desk::new(TOOLS) else { return };
    secret(&desk);
    image_on(&desk, "theirs.qcow2", "secret");
    // Root's image on theirs, which names the secret.
    desk.qemu_img("create -q -f qcow2 own.qcow2 1M").ok();
    desk.qemu_img("rebase -u -b theirs.qcow2 -F qcow2 own.qcow2").ok();
    let words =
        ["theirs.qcow2 stands on the backing file", "secret", "users other than root can write the image"];
    refused_of(&desk, "", &words);
    refused_of(
        &desk,
        &format!("--backing {}", desk.at("theirs.qcow2").display()),
        &["only one backing file was named"],
    );
    shown(&desk, "--backing follow", "own.qcow2");
    // The same with a format that is not said, which is looked for.
    desk.qemu_img("create -q -f qcow2 own.qcow2 1M").ok();
    name_by_hand(&desk.at("own.qcow2"), "theirs.qcow2");
    refused_of(&desk, "", &["theirs.qcow2"]);
}

#[track_caller]
fn refused_of(desk: &Desk, flags: &str, words: &[&str]) {
    let mut all = vec!["IMAGE cannot be shown"];
    all.extend(words);
    desk.try_export(flags, "own.qcow2", "disk").fails(1, &all);
}

#[test]
fn privileged_a_folder_of_somebody_else_leads_nowhere() {
    let Some(desk) = Desk::new(TOOLS) else { return };
    let secret = secret(&desk);
    // Root's image in somebody's folder, on a relative name: they put there what they like.
    fs::create_dir(desk.at("theirs")).expect("makes");
    fs::write(desk.at("theirs/base.raw"), [b's'; 4096]).expect("writes");
    desk.qemu_img("create -q -f qcow2 theirs/own.qcow2 1M").ok();
    desk.qemu_img("rebase -u -b base.raw -F raw theirs/own.qcow2").ok();
    shown(&desk, "", "theirs/own.qcow2");
    fs::remove_file(desk.at("theirs/base.raw")).expect("removes");
    symlink(&secret, desk.at("theirs/base.raw")).expect("links");
    chown(desk.at("theirs"), Some(OTHER), Some(OTHER)).expect("is root's to give");
    refused(
        &desk,
        "",
        "theirs/own.qcow2",
        &["base.raw", "users other than root decide what that name leads to"],
    );
}

/// A FUSE server says of its folders and files that they are root's, and where its symlinks lead.
#[test]
fn privileged_a_name_that_leads_through_a_fuse_file_system_is_not_followed() {
    let Some(desk) = Desk::new(TOOLS) else { return };
    for name in ["src", "mnt"] {
        fs::create_dir(desk.at(name)).expect("makes");
    }
    fs::write(desk.at("src/base.raw"), [b's'; 4096]).expect("writes");
    shunt(["mount".as_ref(), desk.at("src").as_os_str(), desk.at("mnt").as_os_str()]).ok();
    desk.qemu_img("create -q -f qcow2 own.qcow2 1M").ok();
    desk.qemu_img("rebase -u -b mnt/base.raw -F raw own.qcow2").ok();
    refused(&desk, "", "own.qcow2", &["base.raw", "users other than root decide what that name leads to"]);
    shown(&desk, "--backing follow", "own.qcow2");
    shunt(["umount".as_ref(), desk.at("mnt").as_os_str()]).ok();
}

#[test]
fn privileged_what_an_image_names_is_a_regular_file_or_not_opened() {
    let Some(desk) = Desk::new(&["qemu-img", "losetup", "mkfifo"]) else { return };
    secret(&desk);
    run(tool("mkfifo").arg(desk.at("fifo"))).ok();
    let held = fs::File::open(desk.at("secret")).expect("opens");
    let sparse = desk.raw("lower.raw", 1 << 20);
    let device = LoopDevice::over(&sparse);
    let names =
        ["fifo", "/dev/zero", "/dev/null", "/proc/kmsg", "/sys/kernel/uevent_seqnum", "/dev/full", "."];
    for name in names.into_iter().chain(device.iter().map(|device| device.0.as_str())) {
        image_on(&desk, "theirs.qcow2", name);
        refused(&desk, "--backing follow", "theirs.qcow2", &["the backing file of", "is not a regular file"]);
        refused(&desk, "", "theirs.qcow2", &["users other than root can write"]);
    }
    // A block device is opened where the user names it.
    if let Some(device) = &device {
        image_on(&desk, "theirs.qcow2", "fifo");
        let export = desk.export(&format!("--backing {}", device.0), "theirs.qcow2", "disk");
        let mut read = [0; 16];
        export.open_read().read_exact_at(&mut read, 0).expect("reads");
        assert_eq!(read, [1; 16]);
        export.umount().ok();
    }
    for name in [
        "json:{\"driver\":\"file\",\"filename\":\"/etc/shadow\"}",
        "nbd:unix:/run/x",
        "https://example.org/x",
    ] {
        desk.qemu_img("create -q -f qcow2 theirs.qcow2 1M").ok();
        name_by_hand(&desk.at("theirs.qcow2"), name);
        refused(&desk, "--backing follow", "theirs.qcow2", &["is not supported", name]);
        refused(&desk, "", "theirs.qcow2", &["is not supported"]);
    }
    // Control characters of a name stay in the image.
    name_by_hand(&desk.at("theirs.qcow2"), "\u{1b}[2Jx\nshunt: all is well");
    let said = desk.try_export("", "theirs.qcow2", "disk").fails(1, &["[2Jx"]);
    assert!(!said.err.contains('\u{1b}') && said.err.trim_end().lines().count() == 1, "{said:?}");
    // An image that names none is none where one is given.
    desk.qemu_img("create -q -f qcow2 alone.qcow2 1M").ok();
    desk.try_export("--backing /etc/hostname", "alone.qcow2", "disk").fails(1, &["names no backing file"]);
    drop(held);
}

/// Writes the name of a backing file behind all else of the first cluster.
fn name_by_hand(image: &Path, name: &str) {
    let file = fs::File::options().write(true).open(image).expect("opens");
    file.write_all_at(&60_000_u64.to_be_bytes(), 8).expect("writes");
    file.write_all_at(&u32::try_from(name.len()).expect("short").to_be_bytes(), 16).expect("writes");
    file.write_all_at(name.as_bytes(), 60_000).expect("writes");
}

#[test]
fn privileged_what_hangs_is_not_opened_as_an_image_either() {
    let Some(desk) = Desk::new(&["mkfifo"]) else { return };
    run(tool("mkfifo").arg(desk.at("fifo"))).ok();
    for flags in ["", "--writable", "--format raw", "--format qcow2 --writable"] {
        refused(&desk, flags, "fifo", &["neither a file nor a block device"]);
    }
}

/// A regression: a vmdk became a raw image, and the first write to its disk destroyed its header.
#[test]
fn privileged_an_image_of_another_format_is_not_taken_for_raw() {
    let Some(desk) = Desk::new(TOOLS) else { return };
    for (format, what) in [
        ("vmdk", "vmdk"),
        ("vdi", "vdi"),
        ("vhdx", "vhdx"),
        ("vpc", "vhd"),
        ("qed", "qed"),
        ("parallels", "parallels"),
    ] {
        let name = format!("y.{format}");
        if desk.qemu_img(&format!("create -q -f {format} {name} 8M")).code != Some(0) {
            eprintln!("SKIPPED: this qemu-img does not make {format}");
            continue;
        }
        let before = fs::read(desk.at(&name)).expect("reads");
        for flags in ["", "--writable"] {
            refused(&desk, flags, &name, &[what, "not supported", "qemu-img convert", "--format raw"]);
        }
        assert!(fs::read(desk.at(&name)).expect("reads") == before, "{format} is as it was");
        let export = desk.export("--writable --format raw", &name, "disk");
        export.umount().ok();
        // Nor as what an image stands on.
        desk.qemu_img("create -q -f qcow2 top.qcow2 8M").ok();
        name_by_hand(&desk.at("top.qcow2"), &name);
        refused(&desk, "", "top.qcow2", &[what, "top.qcow2 is unavailable"]);
    }
    if desk.qemu_img("create -q -f vpc -o subformat=fixed fixed.vhd 8M").code == Some(0) {
        refused(&desk, "--writable", "fixed.vhd", &["vhd"]);
    }
    desk.qemu_img("create -q -f qcow2 old.qcow 1M").ok();
    fs::File::options()
        .write(true)
        .open(desk.at("old.qcow"))
        .and_then(|file| file.write_all_at(&[1], 7))
        .expect("writes");
    refused(&desk, "--writable", "old.qcow", &["version 1", "not supported"]);
}

/// A guest that writes a raw disk makes a qcow2 image of it, which names a file of the host, and waits for the next export.
#[test]
fn privileged_a_guest_makes_no_qcow2_of_a_raw_disk() {
    let Some(desk) = Desk::new(TOOLS) else { return };
    secret(&desk);
    for flags in ["--writable", "--writable --growable", "--writable --flow served"] {
        desk.raw("disk.raw", 1 << 20);
        let export = desk.export(flags, "disk.raw", "disk");
        let file = export.open();
        let is_refused = |at: u64, bytes: &[u8]| {
            let error = file.write_at(bytes, at).expect_err("is refused");
            assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "{flags} {at}");
        };
        is_refused(0, b"QFI\xfb\0\0\0\x03");
        file.write_all_at(b"QFI", 0).expect("is nothing yet");
        is_refused(3, b"\xfb");
        file.write_all_at(b"\xeb", 0).expect("a boot sector may be written");
        file.write_all_at(b"FI\xfb\0", 1).expect("is none");
        is_refused(0, b"Q");
        drop(file);
        export.umount().ok();
        shunt_and_remove(&desk);
    }
    // Who says what it is may write anything.
    desk.raw("disk.raw", 1 << 20);
    let export = desk.export("--writable --format raw", "disk.raw", "disk");
    export.open().write_all_at(b"QFI\xfb\0\0\0\x03", 0).expect("its bytes are its owner's");
    export.umount().ok();
}

fn shunt_and_remove(desk: &Desk) {
    shunt(["list"]).ok();
    fs::remove_file(desk.at("disk.raw")).expect("removes");
}

#[test]
fn privileged_options_that_mean_nothing_are_said() {
    let Some(desk) = Desk::new(TOOLS) else { return };
    desk.raw("a.raw", 1 << 20);
    desk.try_export("--format null", "a.raw", "disk").fails(2, &["--format null shows no IMAGE", "a.raw"]);
    let said = shunt(["export", "--help"]).ok().out;
    assert!(said.contains("[OPTIONS] <IMAGE> <FILE>"), "{said}");
    assert!(said.contains("K, M, G, T, P"), "{said}");
    // The default has a name, and nothing that is hidden is proposed for it.
    desk.export("--read-only", "a.raw", "disk").umount().ok();
    let said = desk.try_export("--read-onyl", "a.raw", "disk");
    assert!(said.code == Some(2) && said.err.contains("'--read-only'"), "{said:?}");
    desk.qemu_img("create -q -f qcow2 b.qcow2 1M").ok();
    let said = desk.try_export("--flow passthrough", "b.qcow2", "disk").ok();
    assert!(said.err.contains("--flow is of raw images"), "{said:?}");
    shunt(["umount".as_ref(), desk.at("disk").as_os_str()]).ok();
    // Where a message names the cure, it is one.
    fs::write(desk.at("c"), b"QFI\xfb\0\0\0\x03").expect("writes");
    let said = desk.try_export("", "c", "disk").fails(1, &["cut off"]);
    assert!(!said.err.contains("qemu-img convert"), "{said:?}");
    let said = desk.try_export("--format qcow2", "a.raw", "disk").fails(1, &["not a qcow2 image"]);
    assert!(!said.err.contains("qemu-img convert"), "{said:?}");
}
