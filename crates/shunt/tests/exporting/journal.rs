//! A file system with a journal on an exported disk, whose server is killed in the middle of writes: what was made durable is there
//! afterwards, and the journal makes the rest whole.
//!
//! Not with zero copy (Linux 7.3): a loop device hands over pages that the journal got from `kmalloc`, which cannot be held, and zero copy
//! holds them (`folio_get` in `fuse_uring_set_up_zero_copy`). The kernel's memory is then broken, whatever the server does. So exports have none
//! by default, which this test shows there.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::{eventually, is_alive, run, signal};
use crate::cut::has_zero_copy;
use crate::desk::{Desk, Export, LoopDevice, tool};

const LEN: u64 = 96 << 20;
const WRITERS: u32 = 4;
/// So many files of each writer are left, the newest ones.
const KEPT: u32 = 12;

fn contents(writer: u32, number: u32) -> Vec<u8> {
    let word = (u64::from(writer) << 32 | u64::from(number)).to_le_bytes();
    word.repeat(12_500 + 97 * (number as usize % 13))
}

fn name(folder: &Path, writer: u32, number: u32) -> PathBuf {
    folder.join(format!("{writer}-{number}"))
}

/// Makes files durable, one after another, and removes old ones, until it is told to stop or nobody answers any more. Returns how many are
/// durable.
fn write(folder: &Path, writer: u32, (stop, durable): (&AtomicBool, &AtomicU64)) -> u32 {
    for number in 0.. {
        let path = name(folder, writer, number);
        let made = File::create(&path).and_then(|mut file| {
            file.write_all(&contents(writer, number))?;
            file.sync_all()
        });
        if made.is_err() || stop.load(Ordering::Relaxed) {
            return number + u32::from(made.is_ok());
        }
        durable.fetch_add(1, Ordering::Relaxed);
        if let Some(old) = number.checked_sub(KEPT) {
            // Whoever removes the last ones before the end cannot know what became of it.
            _ = fs::remove_file(name(folder, writer, old));
        }
    }
    unreachable!("files are counted in u32")
}

/// Kills the server while files are written. Returns how many of each writer were durable.
fn write_until_killed(export: &Export<'_>, folder: &Path) -> Vec<u32> {
    let (stop, durable) = (AtomicBool::new(false), AtomicU64::new(0));
    let pid = export.pid();
    std::thread::scope(|scope| {
        let shared = (&stop, &durable);
        let writers: Vec<_> =
            (0..WRITERS).map(|writer| scope.spawn(move || write(folder, writer, shared))).collect();
        eventually("files are made", || durable.load(Ordering::Relaxed) >= 30);
        signal(pid, "KILL");
        eventually("the server ends", || !is_alive(pid));
        eventually("nobody writes any more", || {
            writers.iter().all(std::thread::ScopedJoinHandle::is_finished)
        });
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().expect("no panic")).collect()
    })
}

fn survives(desk: &Desk, flags: &str, image: &str, direct: &str) {
    let what = format!("{flags} {image}, direct I/O {direct}");
    let inside = desk.at("inside");
    fs::create_dir_all(&inside).expect("makes");
    if image.contains("raw") {
        File::create(desk.at(image)).and_then(|file| file.set_len(LEN)).expect("makes");
    } else {
        desk.qemu_img(&format!("create -q -f qcow2 {image} {LEN}")).ok();
    }
    let export = desk.export(&format!("--writable {flags}"), image, "disk");
    run(tool("mkfs.ext4").args(["-q", "-F"]).arg(export.file())).ok();
    let Some(device) = LoopDevice::over(export.file()) else { return };
    // A kernel that cannot goes on without.
    _ = tool("losetup").arg(format!("--direct-io={direct}")).arg(&device.0).stderr(Stdio::null()).status();
    run(tool("mount").args([device.0.as_ref(), inside.as_os_str()])).ok();
    assert!(!has_zero_copy(&export), "{what}");
    let durable = write_until_killed(&export, &inside);
    run(tool("umount").arg(&inside)).ok();
    drop(device);
    _ = tool("umount").arg("-l").arg(export.file()).stderr(Stdio::null()).status();

    let export = desk.export(&format!("--writable {flags}"), image, "disk");
    let replayed = run(tool("e2fsck").args(["-y", "-E", "journal_only"]).arg(export.file()));
    assert!(matches!(replayed.code, Some(0 | 1)), "{what}: {replayed:?}");
    run(tool("e2fsck").args(["-f", "-n"]).arg(export.file())).ok();
    let Some(device) = LoopDevice::over(export.file()) else { return };
    run(tool("mount").args(["-o", "ro", &device.0]).arg(&inside)).ok();
    for (writer, durable) in (0..).zip(&durable) {
        for number in durable.saturating_sub(KEPT)..*durable {
            let read = fs::read(name(&inside, writer, number));
            let is_whole = read.as_ref().is_ok_and(|read| *read == contents(writer, number));
            assert!(is_whole, "{what}: {writer}-{number} of {durable}: {:?}", read.map(|read| read.len()));
        }
    }
    run(tool("umount").arg(&inside)).ok();
    drop(device);
    export.umount().ok();
}

#[test]
fn privileged_a_journal_survives_a_server_that_is_killed_in_the_middle_of_writes() {
    let Some(desk) = Desk::new(&["qemu-img", "mkfs.ext4", "e2fsck", "losetup"]) else { return };
    _ = shuntfs_testkit::mounted::Transport::Uring.is_available();
    for direct in ["off", "on"] {
        for (flags, image) in [("--flow relay --format raw", "disk.raw"), ("", "disk.qcow2")] {
            survives(&desk, flags, image, direct);
            fs::remove_file(desk.at(image)).expect("removes");
        }
    }
}
