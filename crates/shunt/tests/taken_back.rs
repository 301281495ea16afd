//! A mount that went on with another program, whose servers then die again and again: it goes back to the program before, and callers lose no call. Needs
//! root and /dev/fuse.

mod common;

#[path = "../../shuntfs-keeper/tests/callers/mod.rs"]
mod callers;
mod kept;
mod programs;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use callers::{Callers, is_caller};
use common::{Room, SHUNT, can_mount, eventually, is_alive, run, shunt};
use kept::{Kept, PAGE, call, settled_files, status};
use programs::{copy, impostor, program_of, upgrading};

const CALLERS: usize = 3;
/// A fifth server that dies within a minute is the last of its program.
const KILLS: u64 = 5;
/// A program has proved itself after a minute.
const PROVED: Duration = Duration::from_secs(60);

fn text(kept: &Kept, name: &str) -> Option<String> {
    status(&kept.room)["takeover"][name].as_str().map(str::to_owned)
}

fn other(kept: &Kept, name: &str) -> PathBuf {
    copy(Path::new(SHUNT), &kept.room.path().join(name))
}

fn upgrade(kept: &Kept, program: &Path) {
    run(&mut upgrading(&kept.room.mnt(), program)).ok();
    assert_eq!(program_of(kept.keeper), program);
    assert_eq!(text(kept, "program").map(PathBuf::from).as_deref(), Some(program));
    assert_eq!(text(kept, "taken_back"), None);
}

/// Kills as many servers of the program that runs as are too many, while callers call.
fn kill_all(kept: &Kept) {
    for _ in 0..KILLS {
        std::thread::sleep(Duration::from_millis(100));
        kept.kill();
    }
}

/// The mount has gone back to `program`, and says of which one, and why.
#[track_caller]
fn went_back(kept: &Kept, program: &Path, from: &Path) {
    eventually("the program before serves again", || {
        let status = shunt(["status".as_ref(), "--json".as_ref(), kept.room.mnt().as_os_str()]);
        status.out.contains("servers died within") || !kept.room.is_mounted()
    });
    assert!(is_alive(kept.keeper) && kept.room.is_mounted(), "{}", kept.log());
    assert_eq!([kept.keeper, kept.room.pid()].map(program_of), [program, program], "{}", kept.log());
    assert_eq!(text(kept, "program").map(PathBuf::from).as_deref(), Some(program));
    let why = format!("{}: {KILLS} servers died within 60s", from.display());
    assert_eq!(text(kept, "taken_back").as_deref(), Some(why.as_str()));
    let shown = shunt(["status".as_ref(), kept.room.mnt().as_os_str()]).ok().out;
    assert!(shown.contains(&format!("TAKEN BACK: {why}\n")), "{shown}");
    assert!(shown.contains(&format!("{} serves again\n", program.display())), "{shown}");
    let log = kept.log();
    // The impostor has no log.
    let is_told = log.contains(&format!("goes back to the program before: {why}"));
    assert_eq!(is_told, !from.ends_with("crashes"), "{log}");
    assert!(log.contains(&format!("goes on again, because another program did not: {why}")), "{log}");
}

/// How many descriptors of a keeper lead elsewhere than to lower files, which are kept for a while.
fn beside_files(kept: &Kept) -> usize {
    let files = settled_files(kept.keeper);
    files.iter().filter(|file| !file.starts_with(kept.room.src())).count()
}

/// How many nodes the kernel knows, once it has forgotten what nobody uses.
fn nodes(kept: &Kept) -> Option<u64> {
    fs::write("/proc/sys/vm/drop_caches", "2").expect("is root's");
    status(&kept.room)["pool"]["nodes"].as_u64()
}

#[test]
fn privileged_a_program_that_dies_of_each_request_gives_the_place_back() {
    if let Some(folder) = is_caller() {
        return call(&folder).say();
    }
    if !can_mount() {
        return;
    }
    for transport in ["cloned", "device"] {
        let kept = Kept::start(&["--transport", transport]);
        let program = program_of(kept.keeper);
        fs::write(kept.room.src().join("open"), [7; PAGE]).expect("writes");
        let open = File::options().read(true).write(true).open(kept.room.mnt().join("open")).expect("opens");
        let (known, files) = (nodes(&kept), beside_files(&kept));
        let test = "privileged_a_program_that_dies_of_each_request_gives_the_place_back";
        let callers = Callers::start(CALLERS, test, &kept.room.mnt());
        std::thread::sleep(Duration::from_millis(250));
        let bad = impostor(&kept.room.path(), "crashes");
        // It served for a moment.
        let words = ["was upgraded, and the program before serves again", "5 servers died within 60s"];
        run(&mut upgrading(&kept.room.mnt(), &bad)).fails(1, &words);
        went_back(&kept, &program, &bad);
        let status = status(&kept.room);
        assert_eq!(status["takeover"]["replaced"].as_u64(), Some(1 + KILLS));
        assert_eq!(status["session"]["transport"]["kind"], transport);
        open.write_all_at(&[9; PAGE], 0).expect("is open");
        let mut page = [0; PAGE];
        open.read_exact_at(&mut page, 0).expect("is open");
        assert_eq!(page, [9; PAGE]);
        // A server that dies now is one of the program before, whose deaths count from then on, and the reason stays known.
        kept.kill();
        went_back(&kept, &program, &bad);
        std::thread::sleep(Duration::from_millis(250));
        let seen = callers.stop();
        println!("{transport}: {seen:?}");
        // A server that is killed after it has counted a lookup and before it has noted that leaves one: the first server of the program before, and this one.
        eventually("lookups are counted as before", || {
            nodes(&kept).zip(known).is_some_and(|(now, before)| now <= before + 2 * CALLERS as u64)
        });
        assert_eq!(beside_files(&kept), files, "{:?}", settled_files(kept.keeper));
        upgrade(&kept, &other(&kept, "good"));
        drop(open);
        kept.was_unnoticed(&seen);
    }
}

/// What changed under the other program stays: the program before goes on from there.
#[test]
fn privileged_branches_that_changed_meanwhile_go_back() {
    if let Some(folder) = is_caller() {
        return call(&folder).say();
    }
    if !can_mount() {
        return;
    }
    let room = Room::new();
    for name in ["a", "b", "c"] {
        fs::create_dir_all(room.path().join(name).join("folder")).expect("makes");
        fs::write(room.path().join(name).join(name), name).expect("writes");
    }
    let list = format!("{}:{}", room.path().join("a").display(), room.path().join("b").display());
    let log = format!("log_file={}", room.path().join("log").display());
    let mut mount = Command::new(SHUNT);
    mount.args(["mount", "--takeover", "crash", "-o", &log, "-o", "minfreespace=0", "--create", "rand"]);
    run(mount.arg(list).arg(room.mnt())).ok();
    let kept = Kept::of(room);
    let program = program_of(kept.keeper);
    let bad = other(&kept, "bad");
    upgrade(&kept, &bad);
    for (how, branch) in [("add", "c"), ("remove", "b")] {
        let (mnt, branch) = (kept.room.mnt(), kept.room.path().join(branch));
        shunt(["branches".as_ref(), how.as_ref(), mnt.as_os_str(), branch.as_os_str()]).ok();
    }
    let test = "privileged_branches_that_changed_meanwhile_go_back";
    let callers = Callers::start(CALLERS, test, &kept.room.mnt().join("folder"));
    kill_all(&kept);
    went_back(&kept, &program, &bad);
    assert_eq!((kept.room.read("a"), kept.room.read("c")), ("a".to_owned(), "c".to_owned()));
    assert!(!kept.room.mnt().join("b").exists(), "it was removed");
    let seen = callers.stop();
    println!("{seen:?}");
    assert!(seen.calls > 100 && (seen.failed, seen.wrong) == (0, 0), "{seen:?}\n{}", kept.log());
    kept.room.umount(&[]).ok();
    kept.is_gone();
}

/// From a program that has not proved itself to a third one: whichever of them fails, the first one is gone back to, once one has served.
#[test]
fn privileged_the_last_program_that_has_proved_itself_is_gone_back_to() {
    if !can_mount() {
        return;
    }
    let kept = Kept::start(&[]);
    let program = program_of(kept.keeper);
    let [second, third] = ["second", "third"].map(|name| other(&kept, name));
    let files = beside_files(&kept);
    upgrade(&kept, &second);
    upgrade(&kept, &third);
    kill_all(&kept);
    went_back(&kept, &program, &third);
    // The one that serves is gone back to from a program that never served, and stays one that has not proved itself.
    upgrade(&kept, &second);
    let fails = impostor(&kept.room.path(), "fails");
    run(&mut upgrading(&kept.room.mnt(), &fails)).fails(1, &["its server does not want to"]);
    assert_eq!(program_of(kept.keeper), second);
    assert_eq!(text(&kept, "taken_back").as_deref(), Some("its server does not want to"));
    kill_all(&kept);
    went_back(&kept, &program, &second);
    assert_eq!(beside_files(&kept), files, "{:?}", settled_files(kept.keeper));
    kept.room.umount(&[]).ok();
    kept.is_gone();
}

/// A file that is open, and its mount has ended: whoever uses it has an error.
fn has_ended(kept: &Kept, open: &File) {
    kept.is_gone();
    assert!(open.set_len(5).is_err(), "nobody serves it");
    assert!(kept.log().contains("5 servers died within 60s"), "{}", kept.log());
}

fn ends_without_a_way_back(kept: &Kept, open: &File) {
    kill_all(kept);
    has_ended(kept, open);
    assert!(!kept.log().contains("goes back"), "{}", kept.log());
}

#[test]
fn privileged_a_program_that_has_proved_itself_is_on_its_own() {
    if !can_mount() {
        return;
    }
    let kept = Kept::start(&[]);
    let files = beside_files(&kept);
    upgrade(&kept, &other(&kept, "next"));
    let open = File::options().write(true).open(kept.room.mnt().join("hello")).expect("opens");
    // Each death begins the time anew.
    std::thread::sleep(Duration::from_secs(5));
    let killed = Instant::now();
    kept.kill();
    assert_eq!(kept.room.read("hello"), "hello there\n");
    let held = beside_files(&kept);
    std::thread::sleep(PROVED.saturating_sub(killed.elapsed() + Duration::from_secs(2)));
    let is_let_go = || kept.log().contains("has served for 60s, and the one before is let go of");
    assert!(!is_let_go() || killed.elapsed() > PROVED, "{}", kept.log());
    eventually("it has proved itself", is_let_go);
    let now = beside_files(&kept);
    println!("descriptors before, while the program before is held, and now: {files}, {held}, {now}");
    assert_eq!(now + 1, held, "{:?}", settled_files(kept.keeper));
    ends_without_a_way_back(&kept, &open);
}

/// Its own file is no other program.
#[test]
fn privileged_nobody_goes_back_to_the_program_that_runs() {
    if !can_mount() {
        return;
    }
    let kept = Kept::start(&[]);
    let program = program_of(kept.keeper);
    let open = File::options().write(true).open(kept.room.mnt().join("hello")).expect("opens");
    upgrade(&kept, &program);
    ends_without_a_way_back(&kept, &open);
}

/// It is tried first, and where it cannot go on, the mount ends as it does without it.
#[test]
fn privileged_a_program_before_that_cannot_go_on_is_not_gone_back_to() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let program = copy(Path::new(SHUNT), &room.path().join("exits"));
    let log = format!("log_file={}", room.path().join("log").display());
    let mut mount = Command::new(&program);
    run(mount.args(["mount", "--takeover", "crash", "-o", &log]).arg(room.src()).arg(room.mnt())).ok();
    let kept = Kept::of(room);
    let open = File::options().write(true).open(kept.room.mnt().join("hello")).expect("opens");
    upgrade(&kept, &other(&kept, "next"));
    // Into the same file, which no process runs now.
    let another = impostor(&kept.room.path(), "exits");
    run(Command::new("cp").arg(another).arg(&program)).ok();
    kill_all(&kept);
    has_ended(&kept, &open);
    let log = kept.log();
    assert!(log.contains("goes back to the program before: "), "{log}");
    let why = "the program before cannot be gone back to: a trial of the program failed (exit status: 7)";
    assert!(log.contains(why), "{log}");
}

/// While another program runs, nothing keeps the owner of its file from writing to it.
#[test]
fn privileged_a_program_before_that_others_can_change_is_not_gone_back_to() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let program = copy(Path::new(SHUNT), &room.path().join("theirs"));
    std::os::unix::fs::chown(&program, Some(1000), None).expect("is root");
    let log = format!("log_file={}", room.path().join("log").display());
    let mut mount = Command::new(&program);
    run(mount.args(["mount", "--takeover", "crash", "-o", &log]).arg(room.src()).arg(room.mnt())).ok();
    let kept = Kept::of(room);
    let open = File::options().write(true).open(kept.room.mnt().join("hello")).expect("opens");
    upgrade(&kept, &other(&kept, "next"));
    kill_all(&kept);
    has_ended(&kept, &open);
    let why =
        format!("the program before cannot be gone back to: {} belongs to user 1000", program.display());
    assert!(kept.log().contains(&why), "{}", kept.log());
}
