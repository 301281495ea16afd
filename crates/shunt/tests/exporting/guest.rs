//! A machine of QEMU whose disk is an exported file: its firmware starts what is on the disk, and that reads and writes it.

use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Command;

use crate::common::run;
use crate::desk::Desk;
use crate::qcow2::disk_of;

const MIB: u64 = 1 << 20;
const SECTOR: usize = 512;
/// What the guest reads from its third sector, prints, and writes to its sixth.
const WORD: &[u8] = b"shown by shuntfs\n\0";
/// The guest says 16 to the port of `isa-debug-exit` where all went well, and 17 where the disk gave an error; QEMU's exit
/// code is twice that and one.
const WENT_WELL: i32 = 33;

/// The first sector of the disk: real mode, loaded to 0x7c00 with the disk's number in DL.
fn boot_sector() -> Vec<u8> {
    const PARTS: [&[u8]; 6] = [
        // cli; xor ax,ax; mov ds,ax; mov es,ax; mov ss,ax; mov sp,0x7c00; sti; push dx
        &[0xfa, 0x31, 0xc0, 0x8e, 0xd8, 0x8e, 0xc0, 0x8e, 0xd0, 0xbc, 0x00, 0x7c, 0xfb, 0x52],
        // Read a sector, the third (they are counted from 1), to 0x7e00:
        // mov ax,0x0201; mov cx,3; mov dh,0; mov bx,0x7e00; int 0x13; jc failed
        &[0xb8, 0x01, 0x02, 0xb9, 0x03, 0x00, 0xb6, 0x00, 0xbb, 0x00, 0x7e, 0xcd, 0x13, 0x72, 0x22],
        // Print it up to its first zero:
        // mov si,0x7e00; mov dx,0x3f8; next: lodsb; test al,al; jz written; out dx,al; jmp next
        &[0xbe, 0x00, 0x7e, 0xba, 0xf8, 0x03, 0xac, 0x84, 0xc0, 0x74, 0x03, 0xee, 0xeb, 0xf8],
        // Write it to the sixth:
        // written: pop dx; mov ax,0x0301; mov cx,6; mov dh,0; mov bx,0x7e00; int 0x13; jc failed
        &[0x5a, 0xb8, 0x01, 0x03, 0xb9, 0x06, 0x00, 0xb6, 0x00, 0xbb, 0x00, 0x7e, 0xcd, 0x13, 0x72, 0x04],
        // mov al,16; jmp say; failed: mov al,17
        &[0xb0, 0x10, 0xeb, 0x02, 0xb0, 0x11],
        // say: mov dx,0xf4; out dx,al; hlt: hlt; jmp hlt
        &[0xba, 0xf4, 0x00, 0xee, 0xf4, 0xeb, 0xfd],
    ];
    let mut sector = PARTS.concat();
    sector.resize(SECTOR - 2, 0);
    sector.extend([0x55, 0xaa]);
    sector
}

/// A raw image with the program and its word.
fn bootable(desk: &Desk, name: &str) {
    let file = fs::File::create_new(desk.at(name)).expect("makes");
    file.set_len(16 * MIB).expect("is long");
    file.write_all_at(&boot_sector(), 0).expect("writes");
    file.write_all_at(WORD, 2 * SECTOR as u64).expect("writes");
}

/// Starts a machine without acceleration, whose only disk is a file, and waits for its end.
#[track_caller]
fn boots(desk: &Desk, file: &str) {
    let disk = format!("file={file},format=raw,if=ide,index=0,media=disk,cache=none");
    let machine = ["-machine", "pc,accel=tcg", "-m", "32", "-nodefaults", "-display", "none", "-no-reboot"];
    let devices = ["-serial", "stdio", "-device", "isa-debug-exit,iobase=0xf4,iosize=0x04", "-drive", &disk];
    let mut qemu = Command::new("timeout");
    let ran = run(qemu
        .args(["--signal=KILL", "50", "qemu-system-x86_64"])
        .args(machine)
        .args(devices)
        .current_dir(desk.path()));
    assert_eq!(ran.code, Some(WENT_WELL), "{ran:?}");
    assert!(ran.out.contains("shown by shuntfs"), "{ran:?}");
}

#[test]
fn privileged_a_machine_starts_from_an_exported_disk() {
    let Some(desk) = Desk::new(&["qemu-img", "qemu-system-x86_64", "timeout"]) else { return };
    bootable(&desk, "disk.raw");
    desk.qemu_img("convert -f raw -O qcow2 disk.raw disk.qcow2").ok();
    let whole = |image: &str| {
        if image == "disk.raw" { fs::read(desk.at(image)).expect("reads") } else { disk_of(&desk, image) }
    };
    for (flags, image) in [
        ("--writable", "disk.raw"),
        ("--writable --growable", "disk.raw"),
        ("--writable --cache none", "disk.raw"),
        ("--writable", "disk.qcow2"),
        ("--writable --cache none", "disk.qcow2"),
    ] {
        let written = 5 * SECTOR..5 * SECTOR + WORD.len();
        let export = desk.export(flags, image, "disk");
        export.open().write_all_at(&[0; SECTOR], 5 * SECTOR as u64).expect("writes");
        boots(&desk, "disk");
        let seen = fs::read(export.file()).expect("reads");
        assert_eq!(
            &seen[written.clone()],
            WORD,
            "{flags} {image}: what the guest wrote is seen through the export"
        );
        export.umount().ok();
        assert_eq!(&whole(image)[written], WORD, "{flags} {image}: and is in the image");
    }
    desk.is_sound("disk.qcow2");
}
