//! A mount of several branches whose servers are killed, and whose branches change meanwhile. Needs root and /dev/fuse.

mod common;

#[path = "../../shuntfs-keeper/tests/callers/mod.rs"]
mod callers;
mod kept;
mod programs;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use callers::{Callers, is_caller};
use common::{Room, SHUNT, can_mount, run, shunt};
use kept::{Kept, call, status};
use programs::{copy, program_of, upgrading};

const CALLERS: usize = 3;
/// A fifth server that dies within a minute is the last.
const KILLS: u64 = 4;

/// A pool of the branches `a` and `b`; `c` is there for later.
fn start() -> Kept {
    let room = Room::new();
    let branch = |name: &str| {
        let path = room.path().join(name);
        fs::create_dir(&path).expect("makes");
        path
    };
    let [a, b, _] = ["a", "b", "c"].map(branch);
    fs::write(a.join("of-a"), "of a").expect("writes");
    fs::create_dir(b.join("folder")).expect("makes");
    fs::write(b.join("folder/of-b"), "of b").expect("writes");
    let list = format!("{}:{}", a.display(), b.display());
    let log = format!("log_file={}", room.path().join("log").display());
    let mut mount = Command::new(SHUNT);
    mount.args(["mount", "--takeover", "crash", "-o", &log, "-o", "minfreespace=0", "--create", "rand"]);
    run(mount.arg(list).arg(room.mnt())).ok();
    Kept::of(room)
}

fn branches(room: &Room) -> Vec<PathBuf> {
    let ran = shunt(["branches".as_ref(), "list".as_ref(), "--json".as_ref(), room.mnt().as_os_str()]).ok();
    let all: serde_json::Value = serde_json::from_str(&ran.out).expect("JSON");
    let all = all["branches"].as_array().or(all.as_array()).expect("a list").clone();
    all.iter().map(|branch| branch["path"].as_str().expect("a path").into()).collect()
}

fn change(room: &Room, how: &str, branch: &Path) {
    let (mnt, words) = (room.mnt(), ["branches", how]);
    shunt(words.iter().map(AsRef::as_ref).chain([mnt.as_os_str(), branch.as_os_str()])).ok();
}

#[test]
fn privileged_no_call_fails_on_branches_while_servers_are_killed() {
    if let Some(folder) = is_caller() {
        return call(&folder).say();
    }
    if !can_mount() {
        return;
    }
    let kept = start();
    let test = "privileged_no_call_fails_on_branches_while_servers_are_killed";
    let callers = Callers::start(CALLERS, test, &kept.room.mnt().join("folder"));
    for replaced in 1..=KILLS {
        std::thread::sleep(Duration::from_millis(250));
        kept.kill();
        assert_eq!(status(&kept.room)["takeover"]["replaced"].as_u64(), Some(replaced), "{}", kept.log());
    }
    let seen = callers.stop();
    println!("{seen:?}");
    assert!(seen.calls > 100 && (seen.failed, seen.wrong) == (0, 0), "{seen:?}\n{}", kept.log());
    let left = ["a", "b"].map(|name| kept.room.path().join(name).join("folder"));
    let left = left.iter().flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    assert_eq!(left.map(|entry| entry.file_name()).collect::<Vec<_>>(), ["of-b"]);
    kept.room.umount(&[]).ok();
    kept.is_gone();
}

/// The branches in force are the next server's, and the next program's, wherever their paths lead by then.
#[test]
fn privileged_the_branches_in_force_go_on() {
    if !can_mount() {
        return;
    }
    let kept = start();
    let (room, branch) = (&kept.room, |name: &str| kept.room.path().join(name));
    fs::write(branch("c").join("of-c"), "of c").expect("writes");
    change(room, "add", &branch("c"));
    let numbers = || {
        ["of-a", "folder", "folder/of-b", "of-c"]
            .map(|name| fs::metadata(room.mnt().join(name)).expect("is shown").ino())
    };
    let before = numbers();
    fs::rename(branch("a"), branch("moved")).expect("renames");
    fs::create_dir(branch("a")).expect("makes");
    kept.kill();
    let all = [branch("a"), branch("b"), branch("c")];
    assert_eq!(branches(room), all, "{}", kept.log());
    assert_eq!((room.read("of-a"), room.read("of-c")), ("of a".to_owned(), "of c".to_owned()));
    assert_eq!(numbers(), before);
    change(room, "remove", &branch("b"));
    kept.kill();
    assert_eq!(branches(room), [branch("a"), branch("c")], "{}", kept.log());
    assert!(!room.mnt().join("folder").exists());
    let program = copy(Path::new(SHUNT), &branch("program"));
    run(&mut upgrading(&room.mnt(), &program)).ok();
    assert_eq!(program_of(kept.keeper), program);
    assert_eq!(branches(room), [branch("a"), branch("c")], "{}", kept.log());
    assert_eq!((room.read("of-a"), room.read("of-c")), ("of a".to_owned(), "of c".to_owned()));
    let why = shunt(["why".as_ref(), room.mnt().join("of-c").as_os_str()]).ok().out;
    assert!(why.contains(branch("c").to_str().expect("plain")), "{why}");
    fs::write(room.mnt().join("new"), "new").expect("is made");
    assert!(!branch("a").join("new").exists(), "the folder that is shown is called otherwise");
    kept.kill();
    assert_eq!(room.read("new"), "new");
    room.umount(&[]).ok();
    kept.is_gone();
}
