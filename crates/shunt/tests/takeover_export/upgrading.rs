//! Exports that continue with another program while they are in use.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use shuntfs_testkit::seeded::Random;

use crate::MIB;
use crate::callers::{Callers, is_caller};
use crate::common::{Ran, SHUNT, is_alive, run, shunt};
use crate::desk::Desk;
use crate::guest::{NEEDED, in_use, use_files};
use crate::kept::{Kept, always_locked, is_gone, log, seed};
use crate::programs::{copy, impostor, program_of, upgrading};
use crate::storm::{CALLERS, use_disk, was_unnoticed};

/// `SHUNTFS_TEST_UPGRADES=20` is what was promised of each image.
fn upgrades() -> u64 {
    std::env::var("SHUNTFS_TEST_UPGRADES").map_or(5, |text| text.parse().expect("a number"))
}

fn upgrade(kept: &Kept<'_>, program: &Path) -> Ran {
    run(&mut upgrading(kept.export.file(), program))
}

fn programs(desk: &Desk) -> [PathBuf; 2] {
    ["one", "other"].map(|name| copy(Path::new(SHUNT), &desk.at(name)))
}

/// Replaces the program again and again.
fn upgrade_all(desk: &Desk, kept: &Kept<'_>, programs: &[PathBuf]) {
    let mut random = Random::new(seed());
    for (replaced, program) in (1..=upgrades()).zip(programs.iter().cycle()) {
        std::thread::sleep(Duration::from_millis(50 + random.below(250) as u64));
        let ran = upgrade(kept, program).ok();
        assert!(ran.out.contains("continues with") && ran.out.contains("keeper process"), "{ran:?}");
        assert_eq!(kept.replaced(), replaced, "{}", log(desk));
        assert_eq!([kept.keeper, kept.pid()].map(program_of), [program.clone(), program.clone()]);
    }
}

#[test]
fn privileged_no_call_fails_and_no_byte_is_wrong_while_the_program_is_replaced() {
    if let Some(folder) = is_caller() {
        return use_disk(&folder).say();
    }
    let test = "upgrading::privileged_no_call_fails_and_no_byte_is_wrong_while_the_program_is_replaced";
    let Some(desk) = Desk::new(&["qemu-img"]) else { return };
    let programs = programs(&desk);
    desk.qemu_img("create -q -f qcow2 base.qcow2 32M").ok();
    for (flags, image, make) in [
        ("--writable", "disk.qcow2", "create -q -f qcow2 -b base.qcow2 -F qcow2 disk.qcow2"),
        ("--writable --transport device", "disk.raw", "create -q -f raw disk.raw 32M"),
        ("--writable --host-cache none", "direct.raw", "create -q -f raw direct.raw 32M"),
    ] {
        desk.qemu_img(make).ok();
        let kept = Kept::start(&desk, flags, image);
        let callers = Callers::start(CALLERS, test, &desk.path());
        let first = program_of(kept.keeper);
        let asked = always_locked(&desk, image, || {
            upgrade_all(&desk, &kept, &programs);
            // The next server of the last program continues like any other, and after a fifth one that dies, the first program does: none of the others
            // has served for a minute.
            for killed in 1..=5 {
                assert_ne!(program_of(kept.keeper), first, "{}", log(&desk));
                kept.kill();
                assert_eq!(kept.replaced(), upgrades() + killed, "{}", log(&desk));
            }
            assert_eq!([kept.keeper, kept.pid()].map(program_of), [first.clone(), first.clone()]);
        });
        let seen = callers.stop();
        println!("{image} {flags}: {seen:?}; the lock was looked at {asked} times");
        was_unnoticed(&desk, kept, (image, &seen));
    }
}

/// The same on io_uring, where the next server of the last program cannot be made by a kill.
#[test]
fn privileged_on_io_uring_no_call_fails_and_no_byte_is_wrong_while_another_goes_on() {
    if let Some(folder) = is_caller() {
        return use_disk(&folder).say();
    }
    let test = "upgrading::privileged_on_io_uring_no_call_fails_and_no_byte_is_wrong_while_another_goes_on";
    let Some(desk) = Desk::new(&["qemu-img"]) else { return };
    if !shuntfs_testkit::mounted::enable_uring() {
        eprintln!("SKIPPED: FUSE over io_uring is not to be had here");
        return;
    }
    let programs = programs(&desk);
    desk.qemu_img("create -q -f qcow2 base.qcow2 32M").ok();
    for (flags, image, make) in [
        (
            "--takeover upgrade --writable",
            "disk.qcow2",
            "create -q -f qcow2 -b base.qcow2 -F qcow2 disk.qcow2",
        ),
        ("--takeover upgrade --writable --flow relay", "disk.raw", "create -q -f raw disk.raw 32M"),
    ] {
        desk.qemu_img(make).ok();
        let kept = Kept::start(&desk, flags, image);
        assert_eq!(kept.status()["session"]["transport"]["kind"], "uring");
        let callers = Callers::start(CALLERS, test, &desk.path());
        let asked = always_locked(&desk, image, || upgrade_all(&desk, &kept, &programs));
        let seen = callers.stop();
        println!("{image} {flags}: {seen:?}; the lock was looked at {asked} times");
        was_unnoticed(&desk, kept, (image, &seen));
    }
}

const GUEST: &str = "upgrading::privileged_a_file_system_in_use_does_not_notice_that_the_program_is_replaced";

#[test]
fn privileged_a_file_system_in_use_does_not_notice_that_the_program_is_replaced() {
    if let Some(folder) = is_caller() {
        return use_files(&folder).say();
    }
    let Some(desk) = Desk::new(&NEEDED) else { return };
    let programs = programs(&desk);
    for image in ["disk.qcow2", "disk.raw"] {
        in_use(&desk, ("--writable", image), GUEST, |kept| upgrade_all(&desk, kept, &programs));
    }
}

/// Nothing stops for a program that cannot continue, and one that fails late gives the place back.
#[test]
fn privileged_a_program_that_cannot_continue_an_export_changes_nothing() {
    let Some(desk) = Desk::new(&["qemu-img"]) else { return };
    desk.qemu_img("create -q -f qcow2 base.qcow2 32M").ok();
    desk.qemu_img("create -q -f qcow2 -b base.qcow2 -F qcow2 disk.qcow2").ok();
    let kept = Kept::start(&desk, "--writable", "disk.qcow2");
    let (program, folder) = (program_of(kept.keeper), desk.path());
    let file = kept.export.open();
    let is_served = |byte: u8| {
        file.write_all_at(&[byte; 70_000], MIB).expect("is served");
        let mut read = [0; 70_000];
        file.read_exact_at(&mut read, MIB).expect("is served");
        assert_eq!(read, [byte; 70_000]);
    };
    is_served(1);
    let server = kept.pid();
    always_locked(&desk, "disk.qcow2", || {
        for (way, words) in [
            ("newer", "it reads states of the layouts [77], and this program writes [1, 2]"),
            ("exits", "a trial of the program failed (exit status: 7)"),
            ("lies", "it works"),
            ("hangs", "was not over after 10s"),
        ] {
            upgrade(&kept, &impostor(&folder, way)).fails(1, &["was not upgraded", words]);
            assert_eq!(kept.pid(), server, "{way}: the server was stopped");
            is_served(2);
        }
        // What is tried gets the files and the tables in memory, and not the device.
        let words = ["disk.qcow2", "base.qcow2", "memfd:shunt-tables", "memfd:shunt-export"];
        let looks = upgrade(&kept, &impostor(&folder, "looks")).fails(1, &words);
        assert!(!looks.err.contains("/dev/fuse") && !looks.err.contains("socket:"), "{looks:?}");
        for (byte, (way, words)) in (3..).zip([
            ("begins-not", "it does not want to"),
            ("fails", "its server does not want to"),
            ("dies", "its server ended before it was ready"),
            ("late", "its server was not ready after 1s"),
        ]) {
            let server = kept.pid();
            upgrade(&kept, &impostor(&folder, way)).fails(1, &["was not upgraded", words]);
            assert!(is_alive(kept.keeper) && kept.pid() != server, "{way}: {}", log(&desk));
            assert_eq!(
                [kept.keeper, kept.pid()].map(program_of),
                [program.clone(), program.clone()],
                "{way}"
            );
            is_served(byte);
        }
        // And another one can still continue.
        let [other, _] = programs(&desk);
        upgrade(&kept, &other).ok();
        assert_eq!(program_of(kept.keeper), other);
        is_served(9);
    });
    drop(file);
    kept.umount(&desk, "disk.qcow2");
    desk.is_sound("disk.qcow2");
}

/// What is not in the image survives, and what an export has beside its disk ends as always.
#[test]
fn privileged_what_an_export_is_beside_its_image_survives_the_program() {
    let Some(desk) = Desk::new(&["qemu-img"]) else { return };
    desk.qemu_img("create -q -f qcow2 disk.qcow2 32M").ok();
    let [other, _] = programs(&desk);
    let place = |name: &str| desk.at(name);
    // Over itself: its name leads to the export.
    let flags = format!("--takeover crash --writable --log-file {}", place("log").display());
    let export = desk.export(&flags, "disk.qcow2", "disk.qcow2");
    export.open().write_all_at(b"before", MIB).expect("writes");
    run(&mut upgrading(export.file(), &other)).ok();
    let mut read = [0; 6];
    export.open_read().read_exact_at(&mut read, MIB).expect("is served");
    assert_eq!(&read, b"before");
    assert_eq!(export.status()["session"]["source"], format!("image:{}", export.file().display()));
    let said = export.umount().ok().out;
    assert!(said.contains("all that was written is on the disk"), "{said}");
    // Without an image, and with attributes that are only in memory.
    let null = place("disk");
    shunt(
        ["export", "--takeover=crash", "--writable", "--growable", "--format=null", "--size=1G"]
            .map(Into::into)
            .into_iter()
            .chain([null.clone().into_os_string()]),
    )
    .ok();
    std::fs::File::options()
        .write(true)
        .open(&null)
        .and_then(|file| file.write_all_at(b"x", 2 << 30))
        .expect("grows");
    run(&mut upgrading(&null, &other)).ok();
    assert_eq!(std::fs::metadata(&null).expect("is served").len(), (2 << 30) + 1);
    shunt(["umount".as_ref(), null.as_os_str()]).ok();
    is_gone(&desk, "disk.qcow2");
}
