//! Exports whose servers are killed: what callers see of the disk, what becomes of the image, its locks, and the end. Needs root, /dev/fuse,
//! and in parts qemu-img, mkfs.ext4 and loop devices.

mod common;

#[path = "../../shuntfs-keeper/tests/callers/mod.rs"]
mod callers;
#[expect(dead_code, reason = "the tests of exports use more of it")]
#[path = "exporting/desk.rs"]
mod desk;
#[path = "../../shuntfs-keeper/tests/support/followed.rs"]
mod followed;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use callers::{Callers, Seen, is_caller, is_to_stop};
use common::{eventually, is_alive, run, servers_of, shunt, signal};
use desk::{Desk, Export, LoopDevice, is_mounted, tool};
use followed::Followed;
use rustix::fs::{AtFlags, CWD, FallocateFlags, Statx, StatxFlags, fallocate, statx};
use shuntfs_sys::{LockKind, LockSpec, ofd_test};
use shuntfs_testkit::seeded::Random;

const MIB: u64 = 1 << 20;
const SECTOR: usize = 512;
/// A fifth server that dies within a minute is the last.
const KILLS: u64 = 4;
const CALLERS: usize = 4;
/// What all callers write, a sector each in turns, so that they meet in each cluster.
const SHARED: usize = 4 << 20;
/// What each caller has for itself.
const OWN: usize = 6 << 20;
const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);
const ZERO: FallocateFlags = FallocateFlags::ZERO_RANGE.union(FallocateFlags::KEEP_SIZE);

/// An export that is kept.
struct Kept<'d> {
    export: Export<'d>,
    keeper: u32,
}

impl<'d> Kept<'d> {
    fn start(desk: &'d Desk, flags: &str, image: &str) -> Self {
        let log = desk.at("log");
        let flags = format!("--takeover crash --log-file {} {flags}", log.display());
        let export = desk.export(flags.trim(), image, "disk");
        let keeper = export.status()["takeover"]["keeper"].as_u64().expect("a process");
        Self { export, keeper: u32::try_from(keeper).expect("a process") }
    }

    /// What the server says; on a machine that is busy, the next one may take longer than `shunt status` waits.
    fn status(&self) -> serde_json::Value {
        let ask = || shunt(["status".as_ref(), "--json".as_ref(), self.export.file().as_os_str()]);
        let mut ran = ask();
        eventually("a server answers", || {
            if ran.code != Some(0) {
                ran = ask();
            }
            ran.code == Some(0)
        });
        serde_json::from_str(&ran.out).expect("JSON")
    }

    fn pid(&self) -> u32 {
        self.status()["pid"].as_u64().and_then(|pid| pid.try_into().ok()).expect("has a process")
    }

    /// Kills the server and waits for nothing. Which that was.
    fn kill(&self) -> u32 {
        let server = self.pid();
        assert_ne!(server, self.keeper);
        signal(server, "KILL");
        server
    }

    fn replaced(&self) -> u64 {
        self.status()["takeover"]["replaced"].as_u64().expect("a number")
    }

    /// Unmounts; nothing of it is there any more, and the image is nobody's.
    #[track_caller]
    fn umount(self, desk: &Desk, image: &str) -> String {
        let keeper = self.keeper;
        let out = self.export.umount().ok().out;
        eventually("the keeper ends", || !is_alive(keeper));
        is_gone(desk, image);
        out
    }
}

#[track_caller]
fn is_gone(desk: &Desk, image: &str) {
    eventually("no process is left", || servers_of(&desk.path()).is_empty());
    assert!(!is_mounted(&desk.at("disk")) && !desk.at("disk").exists(), "{}", log(desk));
    assert!(!is_locked(&desk.at(image)), "{}", log(desk));
}

fn log(desk: &Desk) -> String {
    fs::read_to_string(desk.at("log")).unwrap_or_default()
}

/// Whether somebody forbids others to write an image, as a writer does (byte 201 is QEMU's for that).
fn is_locked(image: &Path) -> bool {
    let file = File::open(image).expect("is there");
    ofd_test(&file, LockSpec { kind: LockKind::Write, start: 201, len: 1 }).expect("may ask").is_some()
}

/// No cluster of it is used twice or not counted; some may be counted and not used.
#[track_caller]
fn is_sound(desk: &Desk, image: &str) {
    let ran = desk.qemu_img(&format!("check -f qcow2 {image}"));
    assert!(matches!(ran.code, Some(0 | 3)), "{ran:?}");
}

/// The disk in an image.
#[track_caller]
fn disk_of(desk: &Desk, image: &str) -> Vec<u8> {
    if !image.ends_with("qcow2") {
        return fs::read(desk.at(image)).expect("reads");
    }
    desk.qemu_img(&format!("convert -f qcow2 -O raw {image} converted")).ok();
    let bytes = fs::read(desk.at("converted")).expect("reads");
    fs::remove_file(desk.at("converted")).expect("removes");
    bytes
}

/// A caller of the disk: it knows what it has written, and compares.
struct Caller {
    file: File,
    place: usize,
    random: Random,
    /// Its sectors of the shared part, by the byte that fills them.
    sectors: Vec<u8>,
    own: Vec<u8>,
    seen: Seen,
}

impl Caller {
    /// Of a folder with an export, as the first one that is not there yet.
    fn begin(folder: &Path) -> Self {
        let free = |place: &usize| File::create_new(folder.join(format!("caller-{place}"))).is_ok();
        let place = (0..CALLERS).find(free).expect("there is room for so many");
        let file = File::options().read(true).write(true).open(folder.join("disk")).expect("opens");
        let sectors = vec![0; SHARED / SECTOR / CALLERS];
        let random = Random::new(place as u64 + 1);
        Self { file, place, random, sectors, own: vec![0; OWN], seen: Seen::default() }
    }

    fn start_of_own(&self) -> usize {
        SHARED + self.place * OWN
    }

    fn step(&mut self) {
        match self.random.below(10) {
            0..=3 => self.write_sectors(),
            4 | 5 => self.write_own(),
            6 => self.free_own(),
            7 => {
                self.seen.call("fsync", || self.file.sync_data());
            }
            _ => self.compare_own(),
        }
    }

    /// A few sectors of the shared part, each between those of others.
    fn write_sectors(&mut self) {
        let first = self.random.below(self.sectors.len() - 8);
        for index in first..first + 8 {
            let (byte, at) = (self.random.byte(), ((index * CALLERS + self.place) * SECTOR) as u64);
            self.seen.call("pwrite of a sector", || self.file.write_all_at(&[byte; SECTOR], at));
            self.sectors[index] = byte;
        }
        let index = first + self.random.below(8);
        self.compare_sector(index);
    }

    fn compare_sector(&mut self, index: usize) {
        let (mut read, at) = ([0; SECTOR], ((index * CALLERS + self.place) * SECTOR) as u64);
        self.seen.call("pread of a sector", || self.file.read_exact_at(&mut read, at));
        if read != [self.sectors[index]; SECTOR] {
            eprintln!("sector {index} of caller {} is {}, not {}", self.place, read[0], self.sectors[index]);
            self.seen.wrong += 1;
        }
    }

    fn range(&mut self, len_max: usize) -> (usize, usize) {
        let len = (1 + self.random.below(len_max / SECTOR)) * SECTOR;
        (self.random.below((OWN - len) / SECTOR) * SECTOR, len)
    }

    fn write_own(&mut self) {
        let ((start, len), byte) = (self.range(300_000), self.random.byte());
        let at = (self.start_of_own() + start) as u64;
        self.seen.call("pwrite", || self.file.write_all_at(&vec![byte; len], at));
        self.own[start..start + len].fill(byte);
    }

    fn free_own(&mut self) {
        let (start, len) = self.range(200_000);
        let (at, mode) = ((self.start_of_own() + start) as u64, if len % 1024 == 0 { PUNCH } else { ZERO });
        let begun = Instant::now();
        match fallocate(&self.file, mode, at, len as u64) {
            Ok(()) => self.own[start..start + len].fill(0),
            // A file system below a raw image that has no call for it.
            Err(rustix::io::Errno::OPNOTSUPP) => {}
            Err(error) => {
                eprintln!("fallocate failed: {error}");
                self.seen.failed += 1;
            }
        }
        self.seen.calls += 1;
        self.seen.longest = self.seen.longest.max(begun.elapsed());
    }

    fn compare_own(&mut self) {
        let (start, len) = self.range(500_000);
        self.compare_part(start, len);
    }

    fn compare_part(&mut self, start: usize, len: usize) {
        let (mut read, at) = (vec![0; len], (self.start_of_own() + start) as u64);
        self.seen.call("pread", || self.file.read_exact_at(&mut read, at));
        let own = &self.own[start..start + len];
        if let Some(place) = difference(&read, own) {
            let (at, found, known) = (at + place as u64, read[place], own[place]);
            eprintln!("byte {at} of caller {} is {found}, not {known}", self.place);
            self.seen.wrong += 1;
        }
    }

    fn compare_all(&mut self) {
        (0..self.sectors.len()).for_each(|index| self.compare_sector(index));
        self.compare_part(0, OWN);
    }
}

/// Where two disks differ first.
fn difference(one: &[u8], other: &[u8]) -> Option<usize> {
    let differ = |place: &usize| one.get(*place) != other.get(*place);
    if one == other { None } else { (0..one.len().max(other.len())).find(differ) }
}

const STORM: &str = "privileged_no_call_fails_and_no_byte_is_wrong_while_servers_are_killed";

#[test]
fn privileged_no_call_fails_and_no_byte_is_wrong_while_servers_are_killed() {
    if let Some(folder) = is_caller() {
        let mut caller = Caller::begin(&folder);
        while !is_to_stop() {
            caller.step();
        }
        caller.compare_all();
        return caller.seen.say();
    }
    let Some(desk) = Desk::new(&["qemu-img"]) else { return };
    let mut random = Random::new(seed());
    for (flags, image, make) in [
        ("--writable", "disk.qcow2", "create -q -f qcow2 disk.qcow2 32M"),
        (
            "--writable --transport device",
            "small.qcow2",
            "create -q -f qcow2 -o cluster_size=4096 small.qcow2 32M",
        ),
        ("--writable", "top.qcow2", "create -q -f qcow2 -b zero.raw -F raw top.qcow2"),
        ("--writable", "disk.raw", "create -q -f raw disk.raw 32M"),
        (
            "--writable --growable --format raw --transport device",
            "grow.raw",
            "create -q -f raw grow.raw 32M",
        ),
    ] {
        desk.qemu_img("create -q -f raw zero.raw 32M").ok();
        desk.qemu_img(make).ok();
        let kept = Kept::start(&desk, flags, image);
        let callers = Callers::start(CALLERS, STORM, &desk.path());
        for replaced in 1..=kills() {
            std::thread::sleep(Duration::from_millis(50 + random.below(450) as u64));
            let server = kept.kill();
            assert_eq!(kept.replaced(), replaced, "{}", log(&desk));
            assert_ne!(kept.pid(), server);
        }
        std::thread::sleep(Duration::from_millis(100));
        let seen = callers.stop();
        println!("{image} {flags}: {seen:?}");
        assert!(seen.calls > 100, "{seen:?}");
        assert_eq!((seen.failed, seen.wrong), (0, 0), "{image} {flags}: {seen:?}");
        (0..CALLERS).for_each(|place| fs::remove_file(desk.at(&format!("caller-{place}"))).expect("removes"));
        let whole = fs::read(kept.export.file()).expect("reads");
        let said = kept.umount(&desk, image);
        assert!(said.contains("all that was written is on the disk"), "{said}");
        assert!(disk_of(&desk, image) == whole, "{image}: what was seen is in the image");
        if image.ends_with("qcow2") {
            is_sound(&desk, image);
        }
    }
}

/// `SHUNTFS_TEST_SEED` says when servers are killed.
fn seed() -> u64 {
    std::env::var("SHUNTFS_TEST_SEED").map_or(1, |text| text.parse().expect("a number"))
}

/// More than the default need a program with other limits.
fn kills() -> u64 {
    std::env::var("SHUNTFS_TEST_KILLS").map_or(KILLS, |text| text.parse().expect("a number"))
}

/// A file system on a loop device over an export; it does not outlive this.
struct Guest {
    mnt: PathBuf,
    device: Option<LoopDevice>,
}

impl Guest {
    /// `None` where there is no loop device.
    fn mount(desk: &Desk, file: &Path) -> Option<Self> {
        let device = LoopDevice::over(file)?;
        run(tool("mkfs.ext4").args(["-q", "-F", &device.0])).ok();
        let mnt = desk.at("mnt");
        fs::create_dir_all(&mnt).expect("makes");
        run(tool("mount").args(["-o", "discard", &device.0]).arg(&mnt)).ok();
        Some(Self { mnt, device: Some(device) })
    }

    /// Unmounts, and has the file system checked.
    #[track_caller]
    fn ends_sound(mut self) {
        run(tool("umount").arg(&self.mnt)).ok();
        let device = self.device.take().expect("has one");
        let ran = run(tool("e2fsck").args(["-f", "-n", &device.0]));
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = tool("umount").arg("-l").arg(&self.mnt).stderr(Stdio::null()).status();
    }
}

/// Writes files, has them made durable, reads them past the cache, and removes them.
fn use_files(folder: &Path) -> Seen {
    let (mut seen, own) = (Seen::default(), std::process::id());
    for number in 0_u64.. {
        if is_to_stop() {
            return seen;
        }
        let path = folder.join(format!("{own}-{}", number % 8));
        let bytes = vec![
            u8::try_from(number % 251).expect("small");
            4096 * (1 + usize::try_from(number % 90).expect("small"))
        ];
        let Some(file) = seen.call("open(O_CREAT)", || {
            File::options().read(true).write(true).create(true).truncate(true).open(&path)
        }) else {
            continue;
        };
        seen.call("write", || file.write_all_at(&bytes, 0));
        seen.call("fsync", || file.sync_all());
        seen.call("fadvise", || Ok(shuntfs_sys::data::forget_cached(&file)?));
        if seen.call("read", || fs::read(&path)).is_some_and(|read| read != bytes) {
            seen.wrong += 1;
        }
        if number % 3 == 0 {
            seen.call("unlink", || fs::remove_file(&path));
        }
    }
    seen
}

const GUEST: &str = "privileged_a_file_system_in_use_does_not_notice_that_servers_are_killed";

#[test]
fn privileged_a_file_system_in_use_does_not_notice_that_servers_are_killed() {
    if let Some(folder) = is_caller() {
        return use_files(&folder).say();
    }
    let Some(desk) = Desk::new(&["qemu-img", "mkfs.ext4", "e2fsck", "losetup"]) else { return };
    let mut random = Random::new(seed());
    for (flags, image, format) in [
        ("--writable", "disk.qcow2", "qcow2"),
        ("--writable", "disk.raw", "raw"),
        ("--writable --growable --format raw", "grow.raw", "raw"),
    ] {
        desk.qemu_img(&format!("create -q -f {format} {image} 256M")).ok();
        let kept = Kept::start(&desk, flags, image);
        let Some(guest) = Guest::mount(&desk, kept.export.file()) else {
            kept.umount(&desk, image);
            return;
        };
        let callers = Callers::start(2, GUEST, &guest.mnt);
        for replaced in 1..=kills() {
            std::thread::sleep(Duration::from_millis(50 + random.below(450) as u64));
            kept.kill();
            assert_eq!(kept.replaced(), replaced, "{}", log(&desk));
        }
        std::thread::sleep(Duration::from_millis(100));
        let seen = callers.stop();
        println!("{image} {flags}: {seen:?}");
        assert!(seen.calls > 20, "{seen:?}");
        assert_eq!((seen.failed, seen.wrong), (0, 0), "{image}: {seen:?}");
        guest.ends_sound();
        let of_export = || run(tool("losetup").arg("-j").arg(kept.export.file()));
        eventually("the loop device is given back", || of_export().out.is_empty());
        kept.umount(&desk, image);
        if format == "qcow2" {
            is_sound(&desk, image);
        }
    }
}

/// One operation on a disk of 64 MiB with clusters of 4 KiB, at its own place for each time that a server is killed.
struct Operation {
    name: &'static str,
    flags: &'static str,
    make: &'static str,
    /// Bytes between two places.
    apart: u64,
    prepare: fn(&File, u64) -> io::Result<()>,
    call: fn(&File, u64) -> io::Result<()>,
    /// What the disk has then.
    leaves: fn(&mut Vec<u8>, usize),
}

const EMPTY: &str = "create -q -f qcow2 -o cluster_size=4096 disk.qcow2 64M";
const ON_BASE: &str = "create -q -f qcow2 -b base.raw -F raw -o cluster_size=4096 disk.qcow2";
/// A table of the second kind leads to 32 KiB, and a block of counts to 128 KiB.
const TINY: &str = "create -q -f qcow2 -o cluster_size=512 disk.qcow2 64M";

fn fill(disk: &mut [u8], at: usize, len: usize, byte: u8) {
    disk[at..at + len].fill(byte);
}

const OPERATIONS: [Operation; 7] = [
    Operation {
        name: "a write to new clusters",
        flags: "--writable",
        make: EMPTY,
        apart: 24 << 10,
        prepare: |_, _| Ok(()),
        call: |disk, at| disk.write_all_at(&[7; 10_000], at + 1000),
        leaves: |disk, at| fill(disk, at + 1000, 10_000, 7),
    },
    Operation {
        name: "a write that takes a new table",
        flags: "--writable",
        make: TINY,
        apart: 32 << 10,
        prepare: |_, _| Ok(()),
        call: |disk, at| disk.write_all_at(&[8; 5000], at + 20_000),
        leaves: |disk, at| fill(disk, at + 20_000, 5000, 8),
    },
    Operation {
        name: "a write to a cluster of the backing file, and an fsync",
        flags: "--writable",
        make: ON_BASE,
        apart: 16 << 10,
        prepare: |_, _| Ok(()),
        call: |disk, at| disk.write_all_at(&[9; 700], at + 5000).and_then(|()| disk.sync_data()),
        leaves: |disk, at| fill(disk, at + 5000, 700, 9),
    },
    Operation {
        name: "a discard",
        flags: "--writable",
        make: ON_BASE,
        apart: 64 << 10,
        prepare: |disk, at| disk.write_all_at(&vec![3; 40_000], at),
        call: |disk, at| Ok(fallocate(disk, PUNCH, at + 300, 50_000)?),
        leaves: |disk, at| {
            fill(disk, at, 300, 3);
            fill(disk, at + 300, 50_000, 0);
        },
    },
    Operation {
        name: "zeroes",
        flags: "--writable",
        make: ON_BASE,
        apart: 64 << 10,
        prepare: |disk, at| disk.write_all_at(&vec![4; 20_000], at),
        call: |disk, at| Ok(fallocate(disk, ZERO, at + 5000, 30_000)?),
        leaves: |disk, at| {
            fill(disk, at, 5000, 4);
            fill(disk, at + 5000, 30_000, 0);
        },
    },
    Operation {
        name: "growth by a write",
        flags: "--writable --growable",
        make: EMPTY,
        apart: 0,
        prepare: |_, _| Ok(()),
        call: |disk, _| disk.write_all_at(&[5; 9216], disk.metadata()?.len()),
        leaves: |disk, _| disk.resize(disk.len() + 9216, 5),
    },
    Operation {
        name: "growth by an allocation",
        flags: "--writable",
        make: EMPTY,
        apart: 0,
        prepare: |_, _| Ok(()),
        call: |disk, _| {
            let len = disk.metadata()?.len();
            Ok(fallocate(disk, FallocateFlags::empty(), len, 20_480)?)
        },
        leaves: |disk, _| disk.resize(disk.len() + 20_480, 0),
    },
];

/// Kills the server at a stop of the operation; whether the operation got so far.
fn at_point(desk: &Desk, kept: &Kept<'_>, operation: &Operation, (point, at): (usize, u64)) -> bool {
    let file = kept.export.open();
    (operation.prepare)(&file, at).expect("is prepared");
    let server = kept.pid();
    let mut followed = Followed::begin(server);
    followed.settle();
    let (call, caller) = (operation.call, file.try_clone().expect("a descriptor"));
    let calls = std::thread::spawn(move || call(&caller, at));
    let seen = followed.go_on(point, || calls.is_finished());
    let is_killed = seen >= point && !calls.is_finished();
    // Where it is done, too, because nobody follows the next one.
    followed.kill();
    let outcome = calls.join().expect("no panic");
    assert!(outcome.is_ok(), "{}, killed at stop {point}: {outcome:?}\n{}", operation.name, log(desk));
    eventually("the next server", || kept.pid() != server);
    is_killed
}

/// `SHUNTFS_POINTS_STRIDE=1` is all; odd, so that it is before calls and after them.
fn stride() -> usize {
    std::env::var("SHUNTFS_POINTS_STRIDE").map_or(7, |text| text.parse().expect("a number"))
}

#[test]
fn privileged_a_server_may_be_killed_at_every_system_call() {
    const POINTS_MAX: usize = 400;
    let mut kills = 0;
    for operation in &OPERATIONS {
        // One desk for each, because a desk has a time limit.
        let Some(desk) = Desk::new(&["qemu-img"]) else { return };
        desk.raw("base.raw", 64 * MIB);
        desk.qemu_img(operation.make).ok();
        let mut model = disk_of(&desk, "disk.qcow2");
        let (mut points, mut count, mut is_over) = ((1..).step_by(stride()), 0_u64, false);
        while !is_over {
            let kept = Kept::start(&desk, operation.flags, "disk.qcow2");
            for _ in 0..KILLS {
                let (point, at) = (points.next().expect("has no end"), count * operation.apart);
                is_over = !at_point(&desk, &kept, operation, (point, at)) || point > POINTS_MAX;
                (operation.leaves)(&mut model, usize::try_from(at).expect("small"));
                count += 1;
                let whole = fs::read(kept.export.file()).expect("reads");
                assert_eq!(
                    difference(&whole, &model),
                    None,
                    "{}, killed at stop {point}, written at {at}",
                    operation.name
                );
                if is_over {
                    break;
                }
            }
            kept.umount(&desk, "disk.qcow2");
            is_sound(&desk, "disk.qcow2");
            assert!(disk_of(&desk, "disk.qcow2") == model, "{}", operation.name);
        }
        println!("{}: killed at {} points", operation.name, count - 1);
        assert!(count > 2 && count < POINTS_MAX as u64, "{}: {count} points", operation.name);
        kills += count - 1;
    }
    println!("{kills} kills");
}

#[test]
fn privileged_the_image_is_locked_all_the_time() {
    let Some(desk) = Desk::new(&["qemu-img"]) else { return };
    desk.qemu_img("create -q -f qcow2 disk.qcow2 32M").ok();
    desk.raw("disk.raw", 4 * MIB);
    for image in ["disk.qcow2", "disk.raw"] {
        let kept = Kept::start(&desk, "--writable", image);
        let (is_over, asked, free) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let file = File::open(desk.at(image)).expect("is there");
                let spec = LockSpec { kind: LockKind::Write, start: 201, len: 1 };
                while !is_over.load(Ordering::Relaxed) {
                    let held = ofd_test(&file, spec).expect("may ask");
                    asked.fetch_add(1, Ordering::Relaxed);
                    free.fetch_add(u64::from(held.is_none()), Ordering::Relaxed);
                }
            });
            for _ in 0..KILLS {
                kept.kill();
                // In the gap as well as after it.
                for flags in ["--writable", ""] {
                    desk.try_export(flags, image, "other").fails(1, &["is in use"]);
                }
                let open = kept.export.open();
                open.write_all_at(b"still there", 4096).expect("is served");
            }
            is_over.store(true, Ordering::Relaxed);
        });
        let (asked, free) = (asked.into_inner(), free.into_inner());
        println!("{image}: asked for the lock {asked} times");
        assert!(asked > 1000 && free == 0, "{image}: {free} of {asked}");
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
