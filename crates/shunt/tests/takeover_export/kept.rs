//! An export that is kept, and what is left of it.

use std::fs::{self, File};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use shuntfs_sys::{LockKind, LockSpec, ofd_test};

use crate::common::{Ends, eventually, is_alive, servers_of, shunt, signal};
use crate::desk::{Desk, Export, is_mounted};

/// A fifth server that dies within a minute is the last.
pub(crate) const KILLS: u64 = 4;

/// An export that is kept.
pub(crate) struct Kept<'d> {
    pub(crate) export: Export<'d>,
    pub(crate) keeper: u32,
}

impl<'d> Kept<'d> {
    pub(crate) fn start(desk: &'d Desk, flags: &str, image: &str) -> Self {
        let log = desk.at("log");
        let takeover = if flags.contains("--takeover") { "" } else { "--takeover crash " };
        let flags = format!("{takeover}--log-file {} {flags}", log.display());
        let export = desk.export(flags.trim(), image, "disk");
        let keeper = export.status()["takeover"]["keeper"].as_u64().expect("a process");
        Self { export, keeper: u32::try_from(keeper).expect("a process") }
    }

    /// What the server says; on a machine that is busy, the next one may take longer than `shunt status` waits.
    pub(crate) fn status(&self) -> serde_json::Value {
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

    pub(crate) fn pid(&self) -> u32 {
        self.status()["pid"].as_u64().and_then(|pid| pid.try_into().ok()).expect("has a process")
    }

    /// Kills the server and waits for nothing. Which that was.
    pub(crate) fn kill(&self) -> u32 {
        let server = self.pid();
        assert_ne!(server, self.keeper);
        signal(server, "KILL");
        server
    }

    pub(crate) fn replaced(&self) -> u64 {
        self.status()["takeover"]["replaced"].as_u64().expect("a number")
    }

    /// Unmounts; nothing of it is there any more, and the image is nobody's.
    #[track_caller]
    pub(crate) fn umount(self, desk: &Desk, image: &str) -> String {
        let keeper = self.keeper;
        let out = self.export.umount().ok().out;
        eventually("the keeper ends", || !is_alive(keeper));
        is_gone(desk, image);
        out
    }
}

#[track_caller]
pub(crate) fn is_gone(desk: &Desk, image: &str) {
    eventually("no process is left", || servers_of(&desk.path()).is_empty());
    assert!(!is_mounted(&desk.at("disk")) && !desk.at("disk").exists(), "{}", log(desk));
    assert!(!is_locked(&desk.at(image)), "{}", log(desk));
}

pub(crate) fn log(desk: &Desk) -> String {
    fs::read_to_string(desk.at("log")).unwrap_or_default()
}

/// Whether somebody forbids others to write an image, as a writer does (byte 201 is QEMU's for that).
pub(crate) fn is_locked(image: &Path) -> bool {
    let file = File::open(image).expect("is there");
    ofd_test(&file, LockSpec { kind: LockKind::Write, start: 201, len: 1 }).expect("may ask").is_some()
}

/// Does something while the lock of an image, which must never be free, is examined all the time. How often that was.
#[track_caller]
pub(crate) fn always_locked(desk: &Desk, image: &str, act: impl FnOnce()) -> u64 {
    let (is_over, asked, free) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let path = desk.at(image);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let file = File::open(&path).expect("is there");
            let spec = LockSpec { kind: LockKind::Write, start: 201, len: 1 };
            while !is_over.load(Ordering::Relaxed) {
                let held = ofd_test(&file, spec).expect("may ask");
                asked.fetch_add(1, Ordering::Relaxed);
                free.fetch_add(u64::from(held.is_none()), Ordering::Relaxed);
            }
        });
        let _ends = Ends(&is_over);
        act();
    });
    let (asked, free) = (asked.into_inner(), free.into_inner());
    assert!(asked > 1000 && free == 0, "{image}: {free} of {asked}");
    asked
}

/// No cluster of it is used twice or not counted; some may be counted and not used.
#[track_caller]
pub(crate) fn is_sound(desk: &Desk, image: &str) {
    let ran = desk.qemu_img(&format!("check -f qcow2 {image}"));
    assert!(matches!(ran.code, Some(0 | 3)), "{ran:?}");
}

/// The disk in an image.
#[track_caller]
pub(crate) fn disk_of(desk: &Desk, image: &str) -> Vec<u8> {
    if !image.ends_with("qcow2") {
        return fs::read(desk.at(image)).expect("reads");
    }
    desk.qemu_img(&format!("convert -f qcow2 -O raw {image} converted")).ok();
    let bytes = fs::read(desk.at("converted")).expect("reads");
    fs::remove_file(desk.at("converted")).expect("removes");
    bytes
}

/// Where two disks differ first.
pub(crate) fn difference(one: &[u8], other: &[u8]) -> Option<usize> {
    let differ = |place: &usize| one.get(*place) != other.get(*place);
    if one == other { None } else { (0..one.len().max(other.len())).find(differ) }
}

/// `SHUNTFS_TEST_SEED` says when servers are killed.
pub(crate) fn seed() -> u64 {
    std::env::var("SHUNTFS_TEST_SEED").map_or(1, |text| text.parse().expect("a number"))
}

/// More than the default need a program with other limits.
pub(crate) fn kills() -> u64 {
    std::env::var("SHUNTFS_TEST_KILLS").map_or(KILLS, |text| text.parse().expect("a number"))
}
