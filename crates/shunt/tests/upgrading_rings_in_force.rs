//! What was in force on a mount on io_uring before its program was replaced is in force afterwards: rules, handles, locks, who owns what is made, and who
//! may do what. Needs root, /dev/fuse, and FUSE over io_uring. `SHUNTFS_TEST_UPGRADES` says how often each is upgraded.

mod common;

#[path = "../../shuntfs-keeper/tests/callers/mod.rs"]
#[allow(dead_code, reason = "the callers here are threads, and processes that lock")]
mod callers;
mod kept;
#[path = "kept/known.rs"]
mod known;
#[path = "programs/lockers.rs"]
mod lockers;
mod programs;
#[path = "programs/rings.rs"]
mod rings;
#[path = "kept/ruled.rs"]
mod ruled;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::{Ends, Room, SHUNT, eventually, run};
use kept::{Kept, status};
use known::{Known, by_handle, forget, handle, text};
use lockers::{KINDS, Locker, has_perl, is_free};
use rings::Programs;
use ruled::{RULES, Ruled, nobody, refused};
use shuntfs_sys::OsError;
use shuntfs_sys::locks::{LockKind, LockSpec, ofd_lock};
use shuntfs_testkit::identity::{Identity, NOBODY};
use shuntfs_testkit::lower::{Lower, LowerKind, LowerSpec};

const UPGRADES: u64 = 4;
const MIB: usize = 1 << 20;
/// A group that nobody is in, unless a test says so.
const TEAM: u32 = 1234;

fn upgrades() -> u64 {
    rings::upgrades(UPGRADES)
}

/// Rules that were read last are in force under the next program, whatever their file has by then; and what that one is told to read, it goes by.
#[test]
fn privileged_the_rules_that_were_read_last_are_in_force_on_io_uring() {
    if !rings::can_ring() {
        return;
    }
    for below in ["src", "a:b"] {
        let ruled = Ruled::start(below, "uring", RULES);
        let programs = Programs::of(&ruled.kept);
        fs::write(ruled.at("more"), "more").expect("root may");
        let more = || nobody(|| fs::read_to_string(ruled.at("more")));
        let stricter = format!("{RULES}[[rule]]\npath = 'more'\nuid = {NOBODY}\ndeny = 'EACCES'\n");
        let log = OpenOptions::new().append(true).open(ruled.at("log")).expect("may");
        for count in 1..=upgrades() {
            let is_denied = !count.is_multiple_of(2);
            ruled.reread(if is_denied { &stricter } else { RULES });
            eventually("they are read again", || more().is_err() == is_denied);
            // Nobody asks for these to be read.
            fs::write(
                &ruled.rules,
                if is_denied { RULES } else { "[[rule]]\npath = 'free'\ndeny = 'EIO'\n" },
            )
            .expect("writes");
            programs.replace(&ruled.kept, count);
            ruled.is_ruled();
            let expected = is_denied.then_some(io::ErrorKind::PermissionDenied);
            assert_eq!(refused(more()), expected, "{count}: {}", ruled.kept.log());
            assert_eq!(status(&ruled.kept.room)["rules"]["rules"], if is_denied { 5 } else { 4 });
            // What may only grow grows, by who has it open and by who opens it now.
            (&log).write_all(b"b\n").expect("may grow");
            assert_eq!(refused(log.set_len(0)), Some(io::ErrorKind::PermissionDenied), "{count}");
            let writes = OpenOptions::new().write(true).open(ruled.at("log"));
            assert_eq!(refused(writes), Some(io::ErrorKind::PermissionDenied), "{count}");
            // By the name under which the program before knew it.
            let moved = ruled.at("denied/f");
            fs::rename(&moved, ruled.at("denied/g")).expect("root may");
            assert!(nobody(|| fs::read(ruled.at("denied/g"))).is_err(), "{count}");
            fs::rename(ruled.at("denied/g"), &moved).expect("root may");
        }
        let grown = fs::read_to_string(ruled.below("log")).expect("is there");
        assert_eq!(grown, format!("a\n{}", "b\n".repeat(usize::try_from(upgrades()).expect("few"))));
        drop(log);
        ruled.ends();
    }
}

fn two(disks: [&Lower; 2]) -> String {
    let named = |(disk, id): (&Lower, &str)| format!("{}=RW,id={id}", disk.path().display());
    [(disks[0], "x"), (disks[1], "y")].map(named).join(":")
}

fn mount_with_handles(source: &str, flags: &[&str]) -> Kept {
    let room = Room::new();
    let log = format!("log_file={}", room.path().join("log").display());
    let mut mount = Command::new(SHUNT);
    mount.arg("mount").args(rings::FLAGS).args(["--handles", "-o", &log]).args(flags);
    run(mount.arg(source).arg(room.mnt())).ok();
    Kept::of(room)
}

/// Handles of files on several branches lead to the same files; that of one which was moved to another branch does not follow from where it is, and is
/// written down.
#[test]
fn privileged_handles_on_branches_hold_over_programs_on_io_uring() {
    if !rings::can_ring() {
        return;
    }
    let disk = |size: usize| {
        let spec = LowerSpec::new(LowerKind::Tmpfs).size(size as u64);
        spec.make().expect("a file system").expect("tmpfs is always there")
    };
    let (small, large) = (disk(4 * MIB), disk(64 * MIB));
    let flags = ["--minfreespace", "0", "--cache", "none", "--create", "ff", "--flow", "relay"];
    let kept = mount_with_handles(&two([&small, &large]), &flags);
    let (programs, mnt) = (Programs::of(&kept), kept.room.mnt());
    let known = Known::make(mnt.clone());
    let path = mnt.join("grows");
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).expect("makes");
    let before = handle(&path);
    for _ in 0..8 {
        file.write_all(&[7; MIB]).expect("is moved");
    }
    assert!(large.path().join("grows").exists() && !small.path().join("grows").exists());
    let ino = file.metadata().expect("is open").ino();
    for count in 1..=upgrades() {
        programs.replace(&kept, count);
        known.holds(&format!("after upgrade {count}: {}", kept.log()));
        assert_eq!(handle(&path), before, "{count}: {}", kept.log());
        let found = by_handle(&mnt, &before).expect("the kernel remembers it").metadata().expect("stats");
        assert_eq!((found.ino(), found.len()), (ino, 8 * MIB as u64), "{count}");
        let mut bytes = [0; 100];
        file.read_exact_at(&mut bytes, 3 * MIB as u64).expect("is open");
        assert!(bytes == [7; 100] && file.metadata().expect("is open").ino() == ino, "{count}");
        forget();
    }
    // Its number is let go of with it.
    drop(file);
    fs::remove_file(&path).expect("removes");
    programs.replace(&kept, upgrades() + 1);
    assert_eq!(text(&mnt, &before), Err(OsError::STALE));
    drop(known);
    kept.room.umount(&[]).ok();
    kept.is_gone();
}

/// A lock of a living process excludes others under each program, on the mount and below, and is given back when its owner ends, however that is.
#[test]
fn privileged_a_lock_is_held_for_as_long_as_its_owner_lives_on_io_uring() {
    if !has_perl() {
        return;
    }
    let Some(kept) = rings::start(&["--locks", "lower"]) else { return };
    let (programs, mnt, src) = (Programs::of(&kept), kept.room.mnt(), kept.room.src());
    let names = ["lives", "ends", "killed", "given-back"];
    let paths: Vec<(&str, String)> =
        KINDS.iter().flat_map(|kind| names.map(|name| (*kind, format!("{kind}-{name}")))).collect();
    for (_, name) in &paths {
        fs::write(src.join(name), "some bytes, and more").expect("writes");
    }
    let mut owners: Vec<Locker> =
        paths.iter().map(|(kind, name)| Locker::start(kind, &mnt.join(name))).collect();
    owners.iter_mut().for_each(Locker::has_it);
    // Locks that were given back before are nobody's.
    owners.iter_mut().skip(3).step_by(names.len()).for_each(Locker::gives_back);
    let are_held = |when: &str, is_held: &dyn Fn(&str) -> bool| {
        for (kind, name) in &paths {
            for folder in [&src, &mnt] {
                let is_free = is_free(kind, &folder.join(name));
                assert_eq!(is_free, !is_held(name), "{name} in {folder:?} {when}: {}", kept.log());
            }
        }
        // Beyond what was locked there is room.
        for kind in ["posix", "ofd"] {
            let file = File::options().write(true).open(mnt.join(format!("{kind}-lives"))).expect("opens");
            let beyond = LockSpec { kind: LockKind::Write, start: 10, len: 1 };
            ofd_lock(&file, beyond, false).expect("nobody has that");
        }
    };
    let was_not_given_back = |name: &str| !name.ends_with("given-back");
    are_held("at the begin", &was_not_given_back);
    for count in 1..=upgrades() {
        programs.replace(&kept, count);
        are_held(&format!("after upgrade {count}"), &was_not_given_back);
    }
    for (place, owner) in owners.iter_mut().enumerate() {
        match place % names.len() {
            1 => owner.ends(),
            2 => owner.is_killed(),
            _ => {}
        }
    }
    let lives = |name: &str| name.ends_with("lives");
    eventually("they go with their owners", || {
        paths
            .iter()
            .filter(|(_, name)| !lives(name))
            .all(|(kind, name)| is_free(kind, &src.join(name)) && is_free(kind, &mnt.join(name)))
    });
    are_held("once the others have ended", &lives);
    programs.replace(&kept, upgrades() + 1);
    are_held("after the last upgrade", &lives);
    drop(owners);
    eventually("they go with their owners", || {
        paths.iter().all(|(kind, name)| is_free(kind, &src.join(name)))
    });
    kept.room.umount(&[]).ok();
    kept.is_gone();
}

/// Who made a name of the mount, as the folder below says.
fn owner_of(path: &Path) -> (u32, u32) {
    let made = fs::symlink_metadata(path).expect("is there");
    (made.uid(), made.gid())
}

/// Folders for root, for all, and for a group.
fn room_of_many() -> Room {
    let room = Room::new();
    fs::set_permissions(room.path(), fs::Permissions::from_mode(0o755)).expect("is ours");
    for (name, mode) in [("all", 0o777), ("root", 0o755), ("team", 0o2775)] {
        let path = room.src().join(name);
        fs::create_dir(&path).expect("makes");
        if name == "team" {
            chown(&path, None, Some(TEAM)).expect("root may");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("is ours");
    }
    fs::write(room.src().join("secret"), "secret").expect("writes");
    fs::set_permissions(room.src().join("secret"), fs::Permissions::from_mode(0o600)).expect("is ours");
    room
}

/// What a user makes is the user's, with the group of a folder that gives it on; and nobody may do what is not allowed.
fn each_is_who_it_is(kept: &Kept, count: u64) {
    let (mnt, src) = (kept.room.mnt(), kept.room.src());
    let all = |name: &str| format!("all/{name}-{count}");
    nobody(|| {
        fs::write(mnt.join(all("file")), "x").expect("may");
        fs::create_dir(mnt.join(all("folder"))).expect("may");
        symlink("file", mnt.join(all("link"))).expect("may");
        assert_eq!(refused(fs::read(mnt.join("secret"))), Some(io::ErrorKind::PermissionDenied));
        assert_eq!(refused(fs::write(mnt.join("root/x"), "x")), Some(io::ErrorKind::PermissionDenied));
        assert_eq!(refused(fs::write(mnt.join("team/x"), "x")), Some(io::ErrorKind::PermissionDenied));
        let to_root = chown(mnt.join(all("file")), Some(0), None);
        assert_eq!(refused(to_root), Some(io::ErrorKind::PermissionDenied));
    });
    let team = format!("team/file-{count}");
    Identity::nobody().groups(&[TEAM]).run(|| fs::write(mnt.join(&team), "x").expect("is in the group"));
    fs::write(mnt.join(all("root")), "x").expect("may");
    for name in ["file", "folder", "link"] {
        assert_eq!(owner_of(&src.join(all(name))), (NOBODY, NOBODY), "{name}, {count}");
    }
    assert_eq!(owner_of(&src.join(&team)), (NOBODY, TEAM), "{count}");
    assert_eq!(owner_of(&src.join(all("root"))), (0, 0), "{count}");
    assert_eq!(fs::read_to_string(mnt.join("secret")).expect("root may"), "secret");
}

/// Two users make files at each moment, of which each is its maker's.
#[test]
fn privileged_what_is_made_is_its_makers_on_io_uring() {
    if !rings::can_ring() {
        return;
    }
    let room = room_of_many();
    let log = format!("log_file={}", room.path().join("log").display());
    room.mount(&[&rings::FLAGS[..], &["-o", &log, "-o", "allow_other"]].concat());
    let kept = Kept::of(room);
    let programs = Programs::of(&kept);
    let (stop, made) = (AtomicBool::new(false), [AtomicU64::new(0), AtomicU64::new(0)]);
    let make = |user: &str, made: &AtomicU64| {
        let path = |number: u64| PathBuf::from(format!("all/{user}-{number}"));
        while !stop.load(Ordering::SeqCst) {
            let number = made.fetch_add(1, Ordering::SeqCst);
            let name = path(number);
            File::create_new(kept.room.mnt().join(&name)).expect("may");
            let expected = if user == "root" { (0, 0) } else { (NOBODY, NOBODY) };
            assert_eq!(owner_of(&kept.room.src().join(&name)), expected, "{name:?}");
            fs::remove_file(kept.room.mnt().join(&name)).expect("may");
        }
    };
    std::thread::scope(|scope| {
        let _ends = Ends(&stop);
        scope.spawn(|| make("root", &made[0]));
        scope.spawn(|| nobody(|| make("user", &made[1])));
        each_is_who_it_is(&kept, 0);
        for count in 1..=upgrades() {
            programs.replace(&kept, count);
            each_is_who_it_is(&kept, count);
        }
    });
    println!("{} upgrades, made {made:?}", upgrades());
    assert!(made.iter().all(|made| made.load(Ordering::SeqCst) > 10), "{made:?}");
    kept.room.umount(&[]).ok();
    kept.is_gone();
}
