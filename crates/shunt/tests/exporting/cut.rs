//! Transfers that are cut short: the server is killed, its connection aborted, a caller killed, the lower file cut. With zero
//! copy (Linux 7.3) the caller's own pages are in the hands of the server's ring then.
//!
//! The kernel tells a caller of an abort at once. It keeps the pages until the server's ring lets go of them (`fuse_zero_copy_release`,
//! fs/fuse/dev_uring.c, Linux 7.3), so with zero copy a transfer that has begun may end after the caller was told: its bytes come to the
//! same memory, or what the caller has put there since goes to the place of the WRITE that failed. Nothing else may.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::OFlags;
use shuntfs_testkit::fusectl::Connection;
use shuntfs_testkit::mounted::Transport;
use shuntfs_testkit::seeded::Random;

use crate::common::{Ends, eventually, is_alive, signal};
use crate::desk::{Desk, Export, tool};

pub(crate) const MIB: usize = 1 << 20;
pub(crate) const LEN: usize = 24 * MIB;
/// What a buffer is filled with while nobody may write to it; no word of a disk looks so.
const FILL: u64 = 0xeeee_eeee_eeee_eeee;

/// Memory on a page, for direct I/O, as words.
pub(crate) struct Words {
    bytes: Vec<u8>,
    start: usize,
}

impl Words {
    pub(crate) fn new() -> Self {
        let bytes = vec![0xee; MIB + 4096];
        let start = bytes.as_ptr().align_offset(4096);
        Self { bytes, start }
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..][..MIB]
    }

    pub(crate) fn fill(&mut self) {
        self.bytes().fill(0xee);
    }

    /// Nothing came but, if that may be, late bytes of the READ of that place.
    pub(crate) fn is_left_alone(&mut self, late: Option<usize>) {
        match late {
            Some(at) => assert_eq!(stray(self.bytes(), at, true), None, "came after the end"),
            None => assert!(self.bytes().iter().all(|byte| *byte == 0xee), "written to after the end"),
        }
    }

    /// It is what a disk without holes has there.
    pub(crate) fn holds(&mut self, at: usize) {
        assert_eq!(stray(self.bytes(), at, false), None, "read");
    }

    /// Each word of the disk tells which 4 KiB block it belongs to.
    pub(crate) fn mark(&mut self, at: usize, version: u32) {
        for (block, bytes) in (at / 4096 + 1..).zip(self.bytes().chunks_exact_mut(4096)) {
            let word = (block as u64) << 32 | u64::from(version);
            bytes.chunks_exact_mut(8).for_each(|place| place.copy_from_slice(&word.to_ne_bytes()));
        }
    }
}

/// The first word that is neither a zero, nor what the block of this place may hold, nor, if that may be, the fill or a part of it: a late
/// WRITE takes the words that are being filled.
fn stray(bytes: &[u8], at: usize, may_be_fill: bool) -> Option<String> {
    let words = bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("eight")));
    words.enumerate().find_map(|(index, word)| {
        let place = at + index * 8;
        let block = (place / 4096 + 1) as u64;
        let is_of =
            |byte: u64| [FILL >> 32, block].iter().any(|right| (right ^ word >> 32) >> byte & 0xff == 0);
        let is_right =
            word == 0 || word >> 32 == block || (may_be_fill && [0, 8, 16, 24].into_iter().all(is_of));
        (!is_right).then(|| format!("{word:#x} at {place}"))
    })
}

/// What the callers have in common.
#[derive(Default)]
struct Work {
    stop: AtomicBool,
    transfers: AtomicU64,
    /// Each ends one caller.
    errors: Mutex<Vec<String>>,
}

impl Work {
    /// Reads and writes a MiB at a time until it is told to stop, or nobody answers any more. Returns where a WRITE failed.
    fn transfer(&self, file: &File, seed: u32, may_be_late: bool) -> Option<usize> {
        let (mut random, mut words) = (Random::new(u64::from(seed)), Words::new());
        let (is_read, mut failed) = (seed.is_multiple_of(2), None);
        while !self.stop.load(Ordering::Relaxed) {
            let at = random.below((LEN - MIB) / 4096) * 4096;
            let done = if is_read {
                words.fill();
                let read = file.read_at(words.bytes(), at as u64);
                assert_eq!(stray(words.bytes(), at, true), None, "read: {read:?}");
                if let Ok(len) = read {
                    assert_eq!(stray(&words.bytes()[..len], at, false), None, "of {len}");
                }
                read
            } else {
                words.mark(at, seed);
                file.write_at(words.bytes(), at as u64)
            };
            match done {
                Ok(_) => _ = self.transfers.fetch_add(1, Ordering::Relaxed),
                Err(error) => {
                    let what = if is_read { "READ" } else { "WRITE" };
                    self.errors.lock().expect("no panic").push(format!("{what} at {at}: {error}"));
                    failed = Some(at);
                    break;
                }
            }
        }
        // From here on the memory is the caller's own.
        words.fill();
        for _ in 0..30 {
            std::thread::sleep(Duration::from_millis(10));
            words.is_left_alone(failed.filter(|_| is_read && may_be_late));
        }
        failed.filter(|_| !is_read)
    }

    fn begun(&self, more: u64) {
        let now = self.transfers.load(Ordering::Relaxed);
        eventually("transfers go on", || {
            self.transfers.load(Ordering::Relaxed) >= now + more || !self.errors().is_empty()
        });
    }

    fn errors(&self) -> Vec<String> {
        self.errors.lock().expect("no panic").clone()
    }
}

#[derive(Clone, Copy, Debug)]
enum Cut {
    Kill,
    Abort,
}

/// A killed caller and, of a raw image, a lower file that is cut and grows again; others go on.
fn disturb(desk: &Desk, export: &Export<'_>, work: &Work, image: &Path, is_raw: bool) {
    for round in 0..6_u64 {
        let mut dd = Command::new("dd");
        dd.args(["if=/dev/zero", "oflag=direct", "conv=notrunc", "bs=1M", "count=16"]);
        if round % 2 == 0 {
            dd = Command::new("dd");
            dd.args(["of=/dev/null", "iflag=direct", "bs=1M", "count=16"]).arg(arg("if=", export.file()));
        } else {
            dd.arg(arg("of=", export.file()));
        }
        let mut caller = dd.stderr(Stdio::null()).spawn().expect("starts");
        std::thread::sleep(Duration::from_millis(5 + 7 * round));
        caller.kill().expect("is ours");
        caller.wait().expect("ends");
    }
    work.begun(8);
    if is_raw {
        let lower = File::options().write(true).open(image).expect("opens");
        for len in [LEN / 2 + 4096, 0, LEN / 3 * 2] {
            lower.set_len(len as u64).expect("cuts");
            work.begun(4);
            lower.set_len(LEN as u64).expect("grows");
            work.begun(4);
        }
    }
    assert_eq!(work.errors(), [""; 0], "nobody else is disturbed");
    assert!(desk.path().is_dir());
}

fn arg(name: &str, path: &Path) -> String {
    format!("{name}{}", path.display())
}

fn cut(desk: &Desk, flags: &str, image: &str, how: Cut) {
    let (path, is_raw) = (desk.at(image), image.contains("raw"));
    if is_raw {
        File::create(&path).and_then(|file| file.set_len(LEN as u64)).expect("makes");
    } else {
        desk.qemu_img(&format!("create -q -f qcow2 {image} {LEN}")).ok();
    }
    let export = desk.export(&format!("--writable {flags}"), image, "disk");
    let (pid, work) = (export.pid(), Work::default());
    let connection = Connection::of(export.file()).expect("a table").expect("is mounted");
    let direct = i32::try_from(OFlags::DIRECT.bits()).expect("small");
    let open = |flags| {
        File::options().read(true).write(true).custom_flags(flags).open(export.file()).expect("opens")
    };
    let (direct, paged) = (open(direct), open(0));
    let failed = std::thread::scope(|scope| {
        let _ends = Ends(&work.stop);
        let is_late = has_zero_copy(&export);
        let callers: Vec<_> = (0..8)
            .map(|seed| {
                let (file, work) = (if seed < 5 { &direct } else { &paged }, &work);
                scope.spawn(move || work.transfer(file, seed, is_late))
            })
            .collect();
        work.begun(8);
        disturb(desk, &export, &work, &path, is_raw);
        say_flow(&export, flags, image);
        match how {
            Cut::Kill => signal(pid, "KILL"),
            Cut::Abort => connection.abort().expect("aborts"),
        }
        eventually("the server ends", || !is_alive(pid));
        std::thread::sleep(Duration::from_millis(100));
        work.stop.store(true, Ordering::Relaxed);
        callers.into_iter().filter_map(|caller| caller.join().expect("no panic")).collect::<Vec<usize>>()
    });
    assert!(!work.errors().is_empty(), "the end came in the middle");
    // What the page cache has of it is right, whoever put it there.
    let mut words = Words::new();
    for at in (0..LEN).step_by(MIB) {
        if let Ok(len) = paged.read_at(words.bytes(), at as u64) {
            assert_eq!(stray(&words.bytes()[..len], at, false), None, "{flags} {image} {how:?}: cached");
        }
    }
    drop((direct, paged));
    _ = tool("umount").arg("-l").arg(export.file()).stderr(Stdio::null()).status();
    let raw = if is_raw {
        path
    } else {
        // 3: leaked clusters, which are no corruption.
        let check = desk.qemu_img(&format!("check -f qcow2 {image}"));
        assert!(matches!(check.code, Some(0 | 3)), "{check:?}");
        desk.qemu_img(&format!("convert -f qcow2 -O raw {image} {image}.raw")).ok();
        desk.at(&format!("{image}.raw"))
    };
    let bytes = fs::read(raw).expect("reads");
    assert_eq!(bytes.len(), LEN);
    for at in (0..LEN).step_by(4096) {
        let is_of_failed = failed.iter().any(|failed| (*failed..*failed + MIB).contains(&at));
        assert_eq!(stray(&bytes[at..at + 4096], at, is_of_failed), None, "{flags} {image} {how:?}: below");
    }
}

pub(crate) fn has_zero_copy(export: &Export<'_>) -> bool {
    export.status()["session"]["transport"]["zero_copy_off"].is_null()
}

/// Which way the transfers went, for whoever reads the output.
fn say_flow(export: &Export<'_>, flags: &str, image: &str) {
    match export.status()["session"]["transport"]["zero_copy_off"].as_str() {
        Some(why) if why.contains("7.3") => {
            eprintln!("SKIPPED: {flags} {image} by zero copy: this kernel has none")
        }
        Some(why) => eprintln!("SKIPPED: {flags} {image} by zero copy: {why}"),
        // What was never written to has no place in a qcow2 image, and is read without it.
        None => eventually("READs by zero copy", || {
            export.status()["session"]["read_flows"]["zero_copy"].as_u64().is_some_and(|moved| moved > 0)
        }),
    }
}

#[test]
fn privileged_a_server_that_is_killed_in_the_middle_of_transfers_leaves_no_bytes_astray() {
    cut_each(Cut::Kill);
}

#[test]
fn privileged_a_connection_that_is_aborted_in_the_middle_of_transfers_leaves_no_bytes_astray() {
    cut_each(Cut::Abort);
}

fn cut_each(how: Cut) {
    let _is_said = Transport::Uring.is_available();
    for (flags, image) in [
        ("--zero-copy on --flow relay --format raw", "disk.raw"),
        ("--zero-copy on --flow relay --format raw --growable", "disk.raw"),
        ("--zero-copy on", "disk.qcow2"),
    ] {
        // Each has its own time, which a slow machine needs.
        let Some(desk) = Desk::new(&["qemu-img"]) else { return };
        cut(&desk, flags, image, how);
    }
}

/// A regression: a word of which only six bytes had been filled yet when a late WRITE took it.
#[test]
fn words_of_other_places_are_told_from_those_that_were_half_filled() {
    const AT: usize = 10_192_216;
    let found = |word: u64, may_be_fill| stray(&word.to_ne_bytes(), AT, may_be_fill).is_some();
    assert_eq!([found(0xeeee_eeee_eeee, true), found(0xeeee_eeee_eeee, false)], [false, true]);
    assert_eq!([found(0x9b9_0000_0003, false), found(FILL, true), found(FILL, false)], [false, false, true]);
    for other in [0x9b8_0000_0003, 0x0ab9_eeee_eeee, 1 << 32] {
        assert!(found(other, true), "{other:#x}");
    }
}
