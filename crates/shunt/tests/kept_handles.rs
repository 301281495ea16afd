//! Handles of files that outlive the mount (`--handles`) while servers are killed and replaced: as an NFS server uses them. Needs root and /dev/fuse.

mod common;

#[path = "../../shuntfs-keeper/tests/callers/mod.rs"]
mod callers;
mod kept;
#[path = "kept/known.rs"]
mod known;
mod programs;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use callers::{Callers, Seen, is_caller, is_to_stop};
use common::{Room, SHUNT, can_mount, eventually, run, signal};
use kept::{Kept, status};
use known::{Known, by_handle, forget, handle, text};
use programs::{copy, program_of, upgrading};
use rustix::fs::OFlags;
use shuntfs_sys::{FileHandle, OsError, handle_of, open_by_handle};
use shuntfs_testkit::lower::{Lower, LowerKind, LowerSpec};
use shuntfs_testkit::say;

const CALLERS: usize = 3;
/// A fifth server that dies within a minute is the last.
const KILLS: u64 = 4;
const MIB: usize = 1 << 20;

fn mount(source: impl AsRef<std::ffi::OsStr>, flags: &[&str]) -> Kept {
    let room = Room::new();
    let log = format!("log_file={}", room.path().join("log").display());
    let mut mount = Command::new(SHUNT);
    mount.args(["mount", "--takeover", "crash", "--handles", "-o", &log]).args(flags);
    run(mount.arg(source).arg(room.mnt())).ok();
    Kept::of(room)
}

/// Kills the server, and waits until the next one answers.
fn kill(kept: &Kept) {
    kept.kill();
    status(&kept.room);
}

fn hold_over_servers(kept: Kept) {
    let known = Known::make(kept.room.mnt());
    known.holds("at the begin");
    for round in 0..2 {
        kill(&kept);
        known.holds(&format!("after kill {round}: {}", kept.log()));
        forget();
        kill(&kept);
        known.holds(&format!("after kill {round}, forgotten: {}", kept.log()));
    }
    let program = copy(Path::new(SHUNT), &kept.room.path().join("program"));
    run(&mut upgrading(&kept.room.mnt(), &program)).ok();
    assert_eq!(program_of(kept.keeper), program);
    known.holds(&format!("after an upgrade: {}", kept.log()));
    forget();
    known.holds("after an upgrade, forgotten");
    drop(known);
    kept.room.umount(&[]).ok();
    kept.is_gone();
}

#[test]
fn privileged_handles_hold_over_servers_and_programs() {
    if !can_mount() {
        return;
    }
    for kind in [LowerKind::Tmpfs, LowerKind::Ext4, LowerKind::Xfs, LowerKind::Btrfs] {
        let Some(lower) = Lower::make(kind).expect("a file system or none") else { continue };
        for cache in ["default", "none"] {
            hold_over_servers(mount(lower.path(), &["--cache", cache]));
            for entry in fs::read_dir(lower.path()).expect("lists").flatten() {
                let path = entry.path();
                let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
                removed.expect("removes");
            }
        }
        say(&format!("handles of files on {kind} hold over servers"));
    }
}

fn list(disks: [&Lower; 2]) -> String {
    let named = |(disk, id): (&Lower, &str)| format!("{}=RW,id={id}", disk.path().display());
    [(disks[0], "x"), (disks[1], "y")].map(named).join(":")
}

#[test]
fn privileged_handles_on_several_branches_hold_over_servers_and_programs() {
    if !can_mount() {
        return;
    }
    for kind in [LowerKind::Tmpfs, LowerKind::Ext4, LowerKind::Xfs, LowerKind::Btrfs] {
        let disk = || Lower::make(kind).expect("a file system or none");
        let (Some(one), Some(two)) = (disk(), disk()) else { continue };
        // The folder is on both.
        fs::create_dir_all(two.path().join("folder/deep")).expect("makes");
        hold_over_servers(mount(
            list([&one, &two]),
            &["--minfreespace", "0", "--cache", "none", "--create", "ff"],
        ));
        say(&format!("handles of files on two branches of {kind} hold over servers"));
    }
}

/// A file that was moved to another branch keeps its number, and the generation of where it was first: else what is open would fail.
#[test]
fn privileged_a_file_that_was_moved_goes_on_under_its_handle() {
    if !can_mount() {
        return;
    }
    let disk = |size: usize| {
        let spec = LowerSpec::new(LowerKind::Tmpfs).size(size as u64);
        spec.make().expect("a file system").expect("tmpfs is always there")
    };
    let (small, large) = (disk(4 * MIB), disk(64 * MIB));
    let flags = ["--minfreespace", "0", "--cache", "none", "--create", "ff", "--flow", "relay"];
    let kept = mount(list([&small, &large]), &flags);
    let path = kept.room.mnt().join("grows");
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).expect("makes");
    let before = handle(&path);
    for _ in 0..8 {
        file.write_all(&[7; MIB]).expect("is moved");
    }
    assert!(large.path().join("grows").exists() && !small.path().join("grows").exists());
    let ino = file.metadata().expect("is open").ino();
    for round in 0..3 {
        assert_eq!(handle(&path), before, "{round}: {}", kept.log());
        let mut bytes = vec![0; 8 * MIB];
        file.read_exact_at(&mut bytes, 0).expect("is open");
        assert!(bytes == vec![7; 8 * MIB] && file.metadata().expect("is open").ino() == ino);
        file.write_all_at(&[7; 5000], 3 * MIB as u64).expect("is open");
        let mut found = by_handle(&kept.room.mnt(), &before).expect("the kernel remembers it");
        let mut text = Vec::new();
        found.read_to_end(&mut text).expect("reads");
        assert_eq!(text.len(), 8 * MIB);
        kill(&kept);
    }
    // Its number is let go of with it.
    drop(file);
    fs::remove_file(&path).expect("removes");
    kill(&kept);
    assert_eq!(text(&kept.room.mnt(), &before), Err(OsError::STALE));
    kept.room.umount(&[]).ok();
    kept.is_gone();
}

/// Something that is mounted below the folder hides what handles lead to, and does not end the mount when its server is killed.
#[test]
fn privileged_what_is_mounted_below_meanwhile_does_not_end_the_mount() {
    if !can_mount() {
        return;
    }
    struct Covers(PathBuf);
    impl Drop for Covers {
        fn drop(&mut self) {
            let _gone_already = Command::new("umount").args(["-q", "-l"]).arg(&self.0).output();
        }
    }
    let Some(lower) = Lower::make(LowerKind::Ext4).expect("a file system or none") else { return };
    let second = Lower::make(LowerKind::Ext4).expect("a file system or none").expect("as the first");
    for is_list in [false, true] {
        let kept = if is_list {
            mount(list([&lower, &second]), &["--minfreespace", "0"])
        } else {
            mount(lower.path(), &[])
        };
        let mnt = kept.room.mnt();
        fs::write(mnt.join("file"), "text").expect("writes");
        fs::create_dir_all(mnt.join("below")).expect("makes");
        let known = handle(&mnt.join("file"));
        let below = [lower.path(), second.path()].map(|path| path.join("below"));
        let below = below.into_iter().find(|path| path.exists()).expect("is on one");
        run(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&below)).ok();
        let covers = Covers(below);
        kill(&kept);
        assert_eq!(kept.room.read("file"), "text", "{}", kept.log());
        forget();
        // It is on the branch that is covered, or on the other one.
        let found = text(&mnt, &known);
        assert!(found == Err(OsError::STALE) || is_list && found.as_deref() == Ok("text"), "{found:?}");
        drop(covers);
        kill(&kept);
        assert_eq!(text(&mnt, &known).as_deref(), Ok("text"), "{}", kept.log());
        fs::remove_file(mnt.join("file")).expect("removes");
        kept.room.umount(&[]).ok();
        kept.is_gone();
    }
}

/// What a file is found as that was removed; `None` if its handle is stale. The kernel knows it until its last RELEASE is answered, which waits while
/// no server runs, and it is open below for as long.
fn found_still(read: impl Fn() -> io::Result<String>) -> Option<io::Result<String>> {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let found = read();
        if found.as_ref().map_err(io::Error::raw_os_error) == Err(Some(OsError::STALE.raw_os_error())) {
            return None;
        }
        if Instant::now() > end || !matches!(&found, Ok(text) if text == "made") {
            return Some(found);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Opens files by their handles, and makes, moves and removes others whose handles end with them.
fn call(folder: &Path) -> Seen {
    const FILES: usize = 40;
    let mut seen = Seen::default();
    let own = std::process::id();
    let own_folder = folder.join(own.to_string());
    seen.call("mkdir", || fs::create_dir(&own_folder));
    let at = |number: usize| own_folder.join(number.to_string());
    let mut handles = Vec::new();
    for number in 0..FILES {
        seen.call("write", || fs::write(at(number), number.to_string()));
        handles.push(handle(&at(number)));
    }
    let Some(root) = seen.call("open", || File::open(folder)) else { return seen };
    let read = |handle: &FileHandle| -> io::Result<String> {
        let mut text = String::new();
        File::from(open_by_handle(&root, handle, 0)?).read_to_string(&mut text)?;
        Ok(text)
    };
    for round in 0.. {
        if is_to_stop() {
            break;
        }
        let number = round % FILES;
        let found = seen.call("open_by_handle_at", || read(&handles[number]));
        if found.is_some_and(|text| text != number.to_string()) {
            eprintln!("a file that stays is another one");
            seen.wrong += 1;
        }
        let (path, moved) = (own_folder.join("made"), own_folder.join("moved"));
        let Some(mut file) = seen.call("create", || File::create_new(&path)) else { continue };
        seen.call("write", || file.write_all(b"made"));
        drop(file);
        let made = seen.call("name_to_handle_at", || Ok(handle_of(File::open(&path)?)?.0));
        seen.call("rename", || fs::rename(&path, &moved));
        let Some(made) = made else { continue };
        let found = seen.call("open_by_handle_at", || read(&made));
        if found.as_ref().is_some_and(|text| text != "made") {
            eprintln!("a file that was made is another one: {found:?}");
            seen.wrong += 1;
        }
        seen.call("unlink", || fs::remove_file(&moved));
        if let Some(gone) = found_still(|| read(&made)) {
            eprintln!("a file that was removed is found: {gone:?}");
            seen.wrong += 1;
        }
    }
    seen.call("remove", || fs::remove_dir_all(&own_folder));
    seen
}

#[test]
fn privileged_no_handle_is_lost_while_servers_are_killed() {
    if let Some(folder) = is_caller() {
        return call(&folder).say();
    }
    if !can_mount() {
        return;
    }
    let Some(lower) = Lower::make(LowerKind::Ext4).expect("a file system or none") else { return };
    let second = Lower::make(LowerKind::Ext4).expect("a file system or none").expect("as the first");
    let flags = ["--minfreespace", "0", "--create", "rand"];
    let mounts: [(String, &[&str]); 3] = [
        (lower.path().display().to_string(), &["--transport", "device"]),
        (lower.path().display().to_string(), &["--transport", "cloned"]),
        (list([&lower, &second]), &flags),
    ];
    for (source, flags) in mounts {
        let kept = mount(source, flags);
        let test = "privileged_no_handle_is_lost_while_servers_are_killed";
        let callers = Callers::start(CALLERS, test, &kept.room.mnt());
        for replaced in 1..=KILLS {
            std::thread::sleep(Duration::from_millis(200));
            forget();
            std::thread::sleep(Duration::from_millis(50));
            kept.kill();
            assert_eq!(status(&kept.room)["takeover"]["replaced"].as_u64(), Some(replaced), "{}", kept.log());
        }
        std::thread::sleep(Duration::from_millis(300));
        let seen = callers.stop();
        say(&format!("{seen:?}"));
        assert!(seen.calls > 300 && (seen.failed, seen.wrong) == (0, 0), "{seen:?}\n{}", kept.log());
        kept.room.umount(&[]).ok();
        kept.is_gone();
    }
}

/// What a server goes through whose branch is away, or back.
#[derive(Clone, Copy, Debug)]
enum Change {
    Kill,
    Upgrade,
}

impl Change {
    /// Lets it happen, for the `count`-th time.
    fn happen(self, kept: &Kept, count: usize) {
        match self {
            Self::Kill => kill(kept),
            Self::Upgrade => {
                let program = copy(Path::new(SHUNT), &kept.room.path().join(format!("program{count}")));
                run(&mut upgrading(&kept.room.mnt(), &program)).ok();
                assert_eq!(program_of(kept.keeper), program);
            }
        }
    }
}

/// A branch is removed, and back after these changes; then the names are looked up, and others follow.
#[derive(Debug)]
struct History {
    away: &'static [Change],
    back: &'static [Change],
}

/// A removed branch is back, and what was known of it before the kill is known again by the same number. The kernel gives back what it had counted
/// before that, and may do so late: what is in use since stays, however many servers there were meanwhile, and nothing stays that is not in use.
#[test]
fn privileged_a_late_forget_of_a_removed_branch_takes_nothing_away() {
    use Change::{Kill, Upgrade};
    if !can_mount() {
        return;
    }
    for transport in ["device", "cloned"] {
        for history in [
            History { away: &[Kill], back: &[] },
            History { away: &[Kill, Kill, Kill], back: &[] },
            History { away: &[Kill], back: &[Kill] },
            History { away: &[Upgrade, Upgrade], back: &[Upgrade] },
            History { away: &[Kill, Upgrade], back: &[Upgrade, Kill] },
        ] {
            println!("{history:?} on {transport}");
            is_counted_over(transport, &history);
        }
    }
}

fn is_counted_over(transport: &str, History { away, back }: &History) {
    /// The kernel gives back lookups before or after it asks for new ones, in turns of some dozen requests.
    const ROUNDS: usize = 30;
    let disk = || Lower::make(LowerKind::Tmpfs).expect("a file system").expect("tmpfs is always there");
    let (one, two) = (disk(), disk());
    fs::write(one.path().join("stays"), "stays").expect("writes");
    for round in 0..ROUNDS {
        fs::write(two.path().join(format!("file{round}")), "text").expect("writes");
    }
    let kept =
        mount(list([&one, &two]), &["--transport", transport, "--minfreespace", "0", "--cache", "none"]);
    let (mnt, path) = (kept.room.mnt(), |round: usize| kept.room.mnt().join(format!("file{round}")));
    let path_alone = i32::try_from(OFlags::PATH.bits()).expect("small");
    let hold =
        |path: &Path| OpenOptions::new().read(true).custom_flags(path_alone).open(path).expect("is found");
    let known = || status(&kept.room)["pool"]["nodes"].as_u64().expect("a number");
    let before = known();
    // So the kernel knows them for longer than the branch is there.
    let held: Vec<File> = (0..ROUNDS).map(|round| hold(&path(round))).collect();
    let branch = format!("{}=RW,id=y", two.path().display());
    run(Command::new(SHUNT).args(["branches", "remove"]).arg(&mnt).arg(two.path())).ok();
    away.iter().enumerate().for_each(|(count, change)| change.happen(&kept, count));
    run(Command::new(SHUNT).args(["branches", "add"]).arg(&mnt).arg(&branch)).ok();
    if !back.is_empty() {
        // The others are looked up for the first time under the last server.
        (0..ROUNDS / 2).for_each(|round| assert!(path(round).exists(), "{round}: it is back"));
        back.iter().enumerate().for_each(|(count, change)| change.happen(&kept, away.len() + count));
    }
    let server = kept.room.server().expect("answers");
    let mut lost = Vec::new();
    for (round, held) in held.into_iter().enumerate() {
        fs::metadata(mnt.join("stays")).expect("is there");
        signal(server, "STOP");
        drop(held);
        // What was used lately is passed over once.
        (0..3).for_each(|_| forget());
        let path = path(round);
        let found = std::thread::scope(|scope| {
            let finder = scope.spawn(|| hold(&path));
            std::thread::sleep(Duration::from_millis(20));
            signal(server, "CONT");
            finder.join().expect("does not panic")
        });
        // FORGETs are read one after the other with other requests.
        for _ in 0..20 {
            fs::metadata(mnt.join("none")).expect_err("there is none");
        }
        if fs::read(format!("/proc/self/fd/{}", found.as_raw_fd())).ok().as_deref() != Some(b"text") {
            lost.push(round);
        }
    }
    assert_eq!(lost, [0_usize; 0], "{}", kept.log());
    assert!(!kept.log().contains("more lookups forgotten than made"), "{}", kept.log());
    eventually("nothing is known that is not in use", || {
        forget();
        known() <= before
    });
    kept.room.umount(&[]).ok();
    kept.is_gone();
}
