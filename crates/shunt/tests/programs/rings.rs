//! Mounts on io_uring whose program is replaced, and processes that use them.
#![allow(dead_code, reason = "each test program uses some of it")]

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use shuntfs_testkit::mounted::enable_uring;

use crate::callers::{Seen, is_to_stop};
use crate::common::{Ran, Room, SHUNT, can_mount, run, servers_of};
use crate::kept::{Kept, PAGE, call, status};
use crate::programs::{copy, program_of, upgrading};

pub(crate) const FLAGS: [&str; 4] = ["--takeover", "upgrade", "--transport", "uring"];

/// How often a program is replaced, if nobody asks for another number.
pub(crate) fn upgrades(without: u64) -> u64 {
    std::env::var("SHUNTFS_TEST_UPGRADES").ok().and_then(|count| count.parse().ok()).unwrap_or(without)
}

pub(crate) fn upgrade(kept: &Kept, program: &Path) -> Ran {
    run(&mut upgrading(&kept.room.mnt(), program))
}

/// Whether this process may mount on io_uring; says so where it may not.
pub(crate) fn can_ring() -> bool {
    can_mount() && {
        let is_there = enable_uring();
        if !is_there {
            eprintln!("SKIPPED: FUSE over io_uring is not to be had here");
        }
        is_there
    }
}

/// A mount on io_uring that can be upgraded; `None` where there is no io_uring for FUSE.
pub(crate) fn start(flags: &[&str]) -> Option<Kept> {
    if !can_ring() {
        return None;
    }
    let room = Room::new();
    let log = format!("log_file={}", room.path().join("log").display());
    room.mount(&[&FLAGS[..], &["-o", &log], flags].concat());
    Some(Kept::of(room))
}

/// Two programs, which replace each other.
pub(crate) struct Programs([PathBuf; 2]);

impl Programs {
    pub(crate) fn of(kept: &Kept) -> Self {
        Self(["one", "other"].map(|name| copy(Path::new(SHUNT), &kept.room.path().join(name))))
    }

    /// Has the mount go on with the program that it does not run, for the `count`-th time.
    #[track_caller]
    pub(crate) fn replace(&self, kept: &Kept, count: u64) {
        upgrade(kept, self.next(count)).ok();
        self.has_replaced(kept, count);
    }

    /// The program that is to go on when one is replaced for the `count`-th time.
    pub(crate) fn next(&self, count: u64) -> &Path {
        &self.0[usize::from(count.is_multiple_of(2))]
    }

    /// The mount has gone on with the program that it did not run before.
    #[track_caller]
    pub(crate) fn has_replaced(&self, kept: &Kept, count: u64) {
        let status = status(&kept.room);
        assert_eq!(status["takeover"]["replaced"].as_u64(), Some(count), "{}", kept.log());
        assert_eq!(status["session"]["transport"]["kind"], "uring");
        assert_eq!([kept.keeper, kept.room.pid()].map(program_of), [self.next(count); 2]);
        has_no_ring(kept);
    }
}

/// No process of the mount has a descriptor of a ring: another process that held it would keep callers waiting after a crash, unkillable.
pub(crate) fn has_no_ring(kept: &Kept) {
    let processes = servers_of(&kept.room.path());
    assert!(processes.len() >= 2 && processes.contains(&kept.keeper), "{processes:?}");
    for process in processes {
        let Ok(entries) = fs::read_dir(format!("/proc/{process}/fd")) else { continue };
        let links = entries.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
        let rings: Vec<PathBuf> = links.filter(|link| link.to_string_lossy().contains("io_uring")).collect();
        assert_eq!(rings, Vec::<PathBuf>::new(), "of process {process}");
    }
}

/// Each in turn: names are made, moved and removed; or bytes are written and read through a descriptor that stays open.
pub(crate) fn work(folder: &Path) -> Seen {
    if std::process::id().is_multiple_of(2) {
        return call(folder);
    }
    let mut seen = Seen::default();
    let path = folder.join(format!("{}-bytes", std::process::id()));
    let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).expect("opens");
    let mut model = vec![0_u8; 64 * PAGE];
    let mut state = u64::from(std::process::id()) | 1;
    file.set_len(model.len() as u64).expect("grows");
    while !is_to_stop() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = usize::try_from(state >> 40).expect("small") % (model.len() - 3 * PAGE);
        let len = 1 + usize::try_from(state >> 20 & 0x1fff).expect("small");
        let byte = state.to_le_bytes()[6];
        model[at..at + len].fill(byte);
        seen.call("pwrite", || file.write_all_at(&vec![byte; len], at as u64));
        let mut room = vec![0; 2 * PAGE];
        seen.call("pread", || file.read_exact_at(&mut room, at as u64));
        seen.wrong += u64::from(room[..] != model[at..at + 2 * PAGE]);
        // Direct, so that it comes to the server although the kernel has it.
        let direct = {
            use std::os::unix::fs::OpenOptionsExt;
            seen.call("open(O_DIRECT)", || File::options().read(true).custom_flags(O_DIRECT).open(&path))
        };
        drop(direct);
    }
    let mut all = vec![0; model.len()];
    seen.call("pread", || file.read_exact_at(&mut all, 0));
    seen.wrong += u64::from(all != model);
    seen.call("unlink", || fs::remove_file(&path));
    seen
}

const O_DIRECT: i32 = 0o40000;
