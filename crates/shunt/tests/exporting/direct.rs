//! Direct I/O: that of the callers, of any alignment, and ours below (`--cache none`).

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use shuntfs_sys::{data, stat_of};
use shuntfs_testkit::seeded::Random;

use crate::common::{run, shunt};
use crate::desk::{Desk, tool};

const MIB: u64 = 1 << 20;

fn direct() -> i32 {
    i32::try_from(OFlags::DIRECT.bits()).expect("small")
}

fn open_direct(path: &Path) -> File {
    File::options().read(true).write(true).custom_flags(direct()).open(path).expect("opens for direct I/O")
}

/// Bytes in memory that lies on a multiple of so many, and on no larger one.
struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    fn new(memory: usize, len: usize, byte: u8) -> Self {
        let bytes = vec![byte; len + 2 * 8192];
        let page = bytes.as_ptr().align_offset(8192);
        Self { bytes, start: page + memory, len }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..][..self.len]
    }
}

/// What statx claims is taken, and where it claims nothing everything is: on every way but passthrough.
#[test]
fn privileged_direct_io_takes_every_alignment_that_the_file_claims() {
    let Some(desk) = Desk::new(&["qemu-img"]) else { return };
    desk.raw("disk.raw", MIB);
    desk.qemu_img("convert -f raw -O qcow2 disk.raw disk.qcow2").ok();
    for (flags, image) in [
        ("--flow served", "disk.raw"),
        ("--flow relay", "disk.raw"),
        ("--flow relay --growable", "disk.raw"),
        ("--cache none", "disk.raw"),
        ("--cache none", "disk.qcow2"),
        ("", "disk.qcow2"),
        ("--transport device", "disk.qcow2"),
    ] {
        let export = desk.export(&format!("--writable {flags}"), image, "disk");
        let file = open_direct(export.file());
        let claim = stat_of(&file).expect("answers").dio_align;
        let tried = match claim {
            Some(align) => vec![(align.memory as usize, align.offset as usize)],
            None => vec![(1, 1), (4, 1), (512, 512), (1, 512), (4096, 4096), (4096, 1)],
        };
        let mut model = fs::read(export.file()).expect("reads");
        for (round, (memory, unit)) in (1_u8..).zip(tried) {
            for (at, len) in
                [(unit, 3 * unit), (40 * unit, 8192 / unit * unit), (65536, unit), (0, 70_000 / unit * unit)]
            {
                let mut buffer = Buffer::new(memory, len, round * 16 + 1);
                file.write_all_at(buffer.bytes(), at as u64)
                    .unwrap_or_else(|error| panic!("{flags} {image} {memory} {unit}: {at}+{len}: {error}"));
                model[at..at + len].copy_from_slice(buffer.bytes());
                let mut read = Buffer::new(memory, len + unit, 0);
                file.read_exact_at(read.bytes(), (at / 2 / unit * unit) as u64).expect("reads");
                let from = at / 2 / unit * unit;
                assert!(read.bytes()[..] == model[from..from + len + unit], "{flags} {image}: {from}+{len}");
            }
        }
        drop(file);
        assert!(fs::read(export.file()).expect("reads") == model, "{flags} {image}");
        export.umount().ok();
    }
}

/// A regression: of a write that begins before a cluster, at no multiple of a sector, the rest is aligned in the image file and not in memory. It
/// went past the page cache by a call that failed (EINVAL), so the write fell short, or failed.
#[test]
fn privileged_a_write_may_cross_into_a_cluster_from_any_byte_on() {
    const CLUSTER: u64 = 64 << 10;
    let Some(desk) = Desk::new(&["qemu-img"]) else { return };
    desk.qemu_img("create -q -f qcow2 disk.qcow2 1M").ok();
    let export = desk.export("--writable --cache none", "disk.qcow2", "disk");
    let file = export.open();
    for (cluster, before) in (1_u64..).zip([100_u16, 1, 48, 511, 4095]) {
        // In the image file the second one comes first.
        for place in [2 * cluster, 2 * cluster - 1] {
            file.write_all_at(&vec![1; 64 << 10], place * CLUSTER).expect("writes");
        }
        let (at, bytes) = (2 * cluster * CLUSTER - u64::from(before), vec![7; usize::from(before) + 4096]);
        assert_eq!(file.write_at(&bytes, at).expect("writes"), bytes.len(), "{before} bytes before");
        let mut read = vec![0; bytes.len()];
        file.read_exact_at(&mut read, at).expect("reads");
        assert!(read == bytes, "{before} bytes before");
    }
    drop(file);
    export.umount().ok();
}

/// In passthrough the lower file's own rules hold, whatever they are, and nothing else is claimed.
#[test]
fn privileged_direct_io_in_passthrough_is_that_of_the_lower_file() {
    let Some(desk) = Desk::new(&[]) else { return };
    let image = desk.raw("disk.raw", MIB);
    let outcomes = |path: &Path| -> Vec<(Option<usize>, Option<usize>)> {
        let file = open_direct(path);
        let tried = [(1, 1), (512, 512), (4096, 512), (4096, 4096), (4, 4096)];
        let outcome = |(memory, unit): (usize, usize)| {
            let mut buffer = Buffer::new(memory, 3 * unit, 7);
            let written = file.write_at(buffer.bytes(), unit as u64).ok();
            (written, file.read_at(buffer.bytes(), unit as u64).ok())
        };
        tried.into_iter().map(outcome).collect()
    };
    let lower = outcomes(&image);
    let export = desk.export("--writable --growable --format raw", "disk.raw", "disk");
    let shown = outcomes(export.file());
    let flows = &export.status()["session"]["flows"];
    if flows["passthrough"].as_u64() > Some(0) {
        assert_eq!(shown, lower);
        let claim = stat_of(open_direct(export.file())).expect("answers").dio_align;
        assert_eq!(claim, None, "nothing is claimed");
    } else {
        eprintln!("SKIPPED: no passthrough here: {flows}");
    }
    export.umount().ok();
}

/// How much of a file the page cache holds.
fn cached(path: &Path) -> u64 {
    let ran = run(tool("fincore").args(["--bytes", "--noheadings", "--output", "RES"]).arg(path)).ok();
    ran.out.trim().parse().expect("a number")
}

fn forget(path: &Path) {
    let file = File::open(path).expect("opens");
    file.sync_all().expect("is durable");
    data::forget_cached(&file).expect("fadvise");
}

#[test]
fn privileged_data_goes_past_the_page_cache_only_where_that_is_wished() {
    let Some(desk) = Desk::new(&["qemu-img", "fincore"]) else { return };
    let raw = desk.at("disk.raw");
    fs::write(&raw, vec![3; 16 << 20]).expect("writes");
    forget(&raw);
    if cached(&raw) > MIB || File::options().read(true).custom_flags(direct()).open(&raw).is_err() {
        eprintln!("SKIPPED: {} is on a file system that is all page cache", raw.display());
        return;
    }
    desk.qemu_img("convert -f raw -O qcow2 disk.raw disk.qcow2").ok();
    for (image, cache) in
        [("disk.raw", "writeback"), ("disk.raw", "none"), ("disk.qcow2", "writeback"), ("disk.qcow2", "none")]
    {
        let path = desk.at(image);
        let export = desk.export(&format!("--writable --cache {cache}"), image, "disk");
        forget(&path);
        let file = export.open();
        for at in (0..8 * MIB).step_by(65536) {
            file.write_all_at(Buffer::new(0, 65536, 9).bytes(), at).expect("writes");
        }
        // By zero copy it is the caller's memory that direct I/O wants aligned.
        let mut read = Buffer::new(0, 65536, 0);
        for at in (0..16 * MIB).step_by(65536) {
            file.read_exact_at(read.bytes(), at).expect("reads");
            assert_eq!(read.bytes()[100], if at < 8 * MIB { 9 } else { 3 });
        }
        // The tables of a qcow2 image are read through the cache in any case.
        let held = cached(&path);
        assert_eq!(held < MIB, cache == "none", "{image}, --cache {cache}: {held} bytes are cached");
        drop(file);
        export.umount().ok();
    }
}

/// The kernel would go by the flags of whoever opens the export; so nothing is in passthrough.
#[test]
fn privileged_without_the_page_cache_the_server_moves_all_bytes() {
    let Some(desk) = Desk::new(&[]) else { return };
    desk.raw("disk.raw", MIB);
    for flags in ["", "--writable", "--writable --growable --format raw"] {
        let export = desk.export(&format!("--cache none {flags}"), "disk.raw", "disk");
        assert_eq!(fs::read(export.file()).expect("reads").len() as u64, MIB);
        let flows = &export.status()["session"]["flows"];
        let of_server = [&flows["served"], &flows["ranges"]].map(|flow| flow.as_u64().unwrap_or(0));
        assert_eq!((flows["passthrough"].as_u64(), of_server.iter().sum()), (Some(0), 1_u64), "{flows}");
        let status = shunt(["status".as_ref(), export.file().as_os_str()]).ok().out;
        assert!(status.contains("past the page cache"), "{status}");
        export.umount().ok();
    }
}

/// What four threads do to stripes of their own, whose clusters they share: writes, discards and reads, from and to memory at any place.
fn share_clusters(file: &File, cached: &File, seed: u64) {
    const STRIPE: usize = 8192;
    const PUNCH_HOLE_KEEP_SIZE: u32 = 3;
    let work = |thread: usize| {
        let mut random = Random::new(seed * 10 + thread as u64);
        let mut model: Vec<Option<Vec<u8>>> = vec![None; 32];
        for round in 0..400 {
            let at = random.below(model.len());
            let place = ((at * 4 + thread) * STRIPE) as u64;
            let file = if random.below(2) == 0 { file } else { cached };
            let mut buffer = Buffer::new([0, 512, 2048, 1, 4095][random.below(5)], STRIPE, 0xee);
            match (random.below(8), &model[at]) {
                (0, _) => {
                    data::fallocate(file, PUNCH_HOLE_KEEP_SIZE, place, STRIPE as u64).expect("discards");
                    model[at] = Some(vec![0; STRIPE]);
                }
                (1..=3, _) | (_, None) => {
                    buffer.bytes().iter_mut().for_each(|byte| *byte = random.number().to_le_bytes()[0]);
                    file.write_all_at(buffer.bytes(), place).expect("writes");
                    model[at] = Some(buffer.bytes().to_vec());
                }
                (_, Some(written)) => {
                    file.read_exact_at(buffer.bytes(), place).expect("reads");
                    assert!(buffer.bytes() == written.as_slice(), "thread {thread}, round {round}: {place}");
                }
            }
        }
    };
    std::thread::scope(|scope| (0..4).for_each(|thread| drop(scope.spawn(move || work(thread)))));
}

/// A regression on Linux 7.3, where the caller's own pages are moved: direct I/O below refused those that are not aligned (EINVAL).
/// And where clusters are found and moved at each request, nothing reads or writes one that a discard has given away.
#[test]
fn privileged_the_callers_memory_may_lie_anywhere_while_clusters_come_and_go() {
    let Some(desk) = Desk::new(&["qemu-img"]) else { return };
    desk.raw("disk.raw", MIB);
    if File::options().read(true).custom_flags(direct()).open(desk.at("disk.raw")).is_err() {
        eprintln!("SKIPPED: no direct I/O in {}", desk.path().display());
        return;
    }
    desk.qemu_img("convert -f raw -O qcow2 disk.raw disk.qcow2").ok();
    let bytes = fs::read(desk.at("disk.raw")).expect("reads");
    for (seed, (flags, image)) in (1..).zip([
        ("--zero-copy on --cache none", "disk.qcow2"),
        ("--zero-copy on --cache none --format raw", "disk.raw"),
        ("--zero-copy on", "disk.qcow2"),
        ("--zero-copy on --flow relay --format raw", "disk.raw"),
    ]) {
        if seed <= 2 {
            let export = desk.export(flags, image, "disk");
            let file = File::options().read(true).custom_flags(direct()).open(export.file()).expect("opens");
            for (memory, len) in [(0, 4096), (512, 65536), (48, 65536), (4095, 300_000), (1, 512)] {
                let mut buffer = Buffer::new(memory, len, 0xee);
                file.read_exact_at(buffer.bytes(), 65536)
                    .unwrap_or_else(|error| panic!("{image}: {memory} {len}: {error}"));
                assert!(buffer.bytes()[..] == bytes[65536..][..len], "{image}: {memory} {len}");
            }
            drop(file);
            export.umount().ok();
        }
        let export = desk.export(&format!("--writable {flags}"), image, "disk");
        let (file, cached) = (open_direct(export.file()), export.open());
        share_clusters(&file, &cached, seed);
        let session = &export.status()["session"];
        if session["transport"]["zero_copy_off"].is_null() {
            let moved = [&session["read_flows"], &session["written_flows"]];
            assert!(
                moved.iter().all(|flows| flows["zero_copy"].as_u64() > Some(0)),
                "{flags} {image}: {moved:?}"
            );
        } else {
            eprintln!("SKIPPED: {flags} {image} by zero copy: {}", session["transport"]["zero_copy_off"]);
        }
        drop((file, cached));
        export.umount().ok();
        if image == "disk.qcow2" {
            desk.qemu_img("check disk.qcow2").ok();
        }
    }
}

/// Not shown through the page cache by stealth.
#[test]
fn privileged_a_file_system_without_direct_io_is_named() {
    let Some(desk) = Desk::new(&[]) else { return };
    fs::create_dir(desk.at("ram")).expect("makes");
    run(tool("mount").args(["-t", "ramfs", "none"]).arg(desk.at("ram"))).ok();
    desk.raw("ram/disk.raw", MIB);
    let refused = desk.try_export("--writable --cache none", "ram/disk.raw", "disk");
    refused.fails(1, &["IMAGE cannot be shown", "ram/disk.raw", "Invalid argument"]);
    let export = desk.export("--writable", "ram/disk.raw", "disk");
    export.open().write_all_at(&[1; 4096], 0).expect("through the page cache it is shown");
    export.umount().ok();
}
