//! Callers that write, compare and free the same clusters and their own, while servers are killed.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::fallocate;
use shuntfs_testkit::seeded::Random;

use crate::callers::{Callers, Seen, is_caller, is_to_stop};
use crate::desk::Desk;
use crate::kept::{Kept, difference, disk_of, is_sound, kills, log, seed};
use crate::{PUNCH, ZERO};

const SECTOR: usize = 512;
pub(crate) const CALLERS: usize = 4;
/// What all callers write, a sector each in turns, so that they meet in each cluster.
const SHARED: usize = 4 << 20;
/// What each caller has for itself.
const OWN: usize = 6 << 20;

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
    /// Of a folder with an export, as the first one that does not exist yet.
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

/// Uses a disk until it is to stop, and compares all of it then.
pub(crate) fn use_disk(folder: &Path) -> Seen {
    let mut caller = Caller::begin(folder);
    while !is_to_stop() {
        caller.step();
    }
    caller.compare_all();
    caller.seen
}

const STORM: &str = "storm::privileged_no_call_fails_and_no_byte_is_wrong_while_servers_are_killed";

#[test]
fn privileged_no_call_fails_and_no_byte_is_wrong_while_servers_are_killed() {
    if let Some(folder) = is_caller() {
        return use_disk(&folder).say();
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
        was_unnoticed(&desk, kept, (image, &seen));
    }
}

/// Callers noticed nothing, and what they saw last is in the image.
#[track_caller]
pub(crate) fn was_unnoticed(desk: &Desk, kept: Kept<'_>, (image, seen): (&str, &Seen)) {
    assert!(seen.calls > 100, "{seen:?}");
    assert_eq!((seen.failed, seen.wrong), (0, 0), "{image}: {seen:?}\n{}", log(desk));
    (0..CALLERS).for_each(|place| fs::remove_file(desk.at(&format!("caller-{place}"))).expect("removes"));
    let whole = fs::read(kept.export.file()).expect("reads");
    let said = kept.umount(desk, image);
    assert!(said.contains("all that was written is on the disk"), "{said}");
    assert!(disk_of(desk, image) == whole, "{image}: what was seen is in the image");
    if image.ends_with("qcow2") {
        is_sound(desk, image);
    }
}
