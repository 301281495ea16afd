//! A mount of several branches whose servers are killed, and whose branches change meanwhile. Needs root and /dev/fuse.

mod common;

#[path = "../../shuntfs-keeper/tests/callers/mod.rs"]
mod callers;
#[path = "../../shuntfs-keeper/tests/support/followed.rs"]
mod followed;
mod kept;
mod programs;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use callers::{Callers, is_caller};
use common::{Room, SHUNT, can_mount, run, shunt, wait};
use followed::Followed;
use kept::{Kept, call, status};
use programs::{copy, program_of, upgrading};

const CALLERS: usize = 3;
/// A fifth server that dies within a minute is the last.
const KILLS: u64 = 4;
/// Every how many places of a change a server is killed: odd, so that it is before system calls and after them.
const STRIDE: usize = 7;

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

/// Kills the server, and waits until the next one answers.
fn kill(kept: &Kept) {
    kept.kill();
    status(&kept.room);
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
    kill(&kept);
    let all = [branch("a"), branch("b"), branch("c")];
    assert_eq!(branches(room), all, "{}", kept.log());
    assert_eq!((room.read("of-a"), room.read("of-c")), ("of a".to_owned(), "of c".to_owned()));
    assert_eq!(numbers(), before);
    change(room, "remove", &branch("b"));
    kill(&kept);
    assert_eq!(branches(room), [branch("a"), branch("c")], "{}", kept.log());
    assert!(!room.mnt().join("folder").exists());
    let program = copy(Path::new(SHUNT), &branch("program"));
    run(&mut upgrading(&room.mnt(), &program)).ok();
    assert_eq!(program_of(kept.keeper), program);
    assert_eq!(branches(room), [branch("a"), branch("c")], "{}", kept.log());
    assert_eq!((room.read("of-a"), room.read("of-c")), ("of a".to_owned(), "of c".to_owned()));
    let why = shunt(["why".as_ref(), room.mnt().join("of-c").as_os_str()]).ok().out;
    assert!(
        why.contains("an open would flow by") && why.contains("a new one of this name would be made"),
        "{why}"
    );
    fs::write(room.mnt().join("new"), "new").expect("is made");
    assert!(!branch("a").join("new").exists(), "the folder that is shown is called otherwise");
    kill(&kept);
    assert_eq!(room.read("new"), "new");
    room.umount(&[]).ok();
    kept.is_gone();
}

/// Removes the branch `b`, or adds it if it is missing, and kills the server at a place of that. Whether it got so far.
fn is_killed_in_a_change(kept: &Kept, place: usize) -> bool {
    let (room, b) = (&kept.room, kept.room.path().join("b"));
    let is_there = || branches(room).contains(&b);
    let how = if is_there() { "remove" } else { "add" };
    // Known to the kernel: names, that there are none, and a listing.
    let shown = || {
        let names = ["of-a", "folder", "folder/of-b"].map(|name| room.mnt().join(name).exists());
        let listed = fs::read_dir(room.mnt()).expect("lists").flatten().count();
        (names, listed)
    };
    let expected = |is_there: bool| ([true, is_there, is_there], 1 + usize::from(is_there));
    assert_eq!(shown(), expected(is_there()));
    let mut followed = Followed::begin_with_later_threads(room.pid());
    followed.settle();
    let mut change = Command::new(SHUNT);
    change.args(["branches", how]).arg(room.mnt()).arg(&b).stdout(Stdio::null()).stderr(Stdio::null());
    let mut change = change.spawn().expect("starts");
    let mut is_over = || !matches!(change.try_wait(), Ok(None));
    let seen = followed.go_on(place, &mut is_over);
    let is_killed = seen >= place && !is_over();
    followed.kill();
    wait(&mut change);
    status(room);
    let is_there = is_there();
    assert_eq!(shown(), expected(is_there), "{how}, killed at stop {place}: {is_there}\n{}", kept.log());
    is_killed
}

/// A server that died between noting a change and telling the kernel left it with names of branches that the next server did not have, for as long
/// as the kernel keeps names.
#[test]
fn privileged_the_kernel_is_told_of_a_change_whenever_the_server_dies() {
    if !can_mount() {
        return;
    }
    let (mut place, mut kills) = (1, 0);
    for is_first in [true, false] {
        loop {
            let kept = start();
            if !is_first {
                change(&kept.room, "remove", &kept.room.path().join("b"));
            }
            let mut is_over = false;
            for _ in 0..KILLS {
                is_over = is_over || !is_killed_in_a_change(&kept, place);
                place += STRIDE;
                kills += 1;
            }
            kept.room.umount(&[]).ok();
            kept.is_gone();
            if is_over {
                break;
            }
        }
        place = 2;
    }
    println!("{kills} kills");
    assert!(kills > 20, "{kills} kills");
}

/// A server notes on which branches it removes a file's copies. The next one removes these and no others, whatever the order of the branches is by then.
#[test]
fn privileged_a_removal_goes_on_where_it_was_to_be_whatever_becomes_of_the_branches() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let all = ["a", "b", "c"].map(|name| room.path().join(name));
    for branch in &all {
        fs::create_dir(branch).expect("makes");
        fs::write(branch.join("file"), branch.to_str().expect("plain")).expect("writes");
    }
    let list = |order: [usize; 3]| order.map(|at| all[at].to_str().expect("plain")).join(":");
    let log = format!("log_file={}", room.path().join("log").display());
    let mut mount = Command::new(SHUNT);
    // The copy on the first branch goes, and others stay.
    mount.args(["mount", "--takeover", "crash", "-o", &log, "-o", "minfreespace=0,func.unlink=epff"]);
    run(mount.arg(list([0, 1, 2])).arg(room.mnt())).ok();
    let (kept, path) = (Kept::of(room), |at: usize| all[at].join("file"));
    let shown = kept.room.mnt().join("file");
    fs::metadata(&shown).expect("is there");
    let mut followed = Followed::begin_with_later_threads(kept.room.pid());
    followed.settle();
    let removal = std::thread::spawn(move || fs::remove_file(shown));
    assert!(followed.stop_before(libc::SYS_unlinkat, || removal.is_finished()), "{}", kept.log());
    let mut change = Command::new(SHUNT);
    change.args(["branches", "set"]).arg(kept.room.mnt()).arg(list([2, 1, 0])).stdout(Stdio::null());
    let mut change = change.spawn().expect("starts");
    followed.go_on(usize::MAX, || !matches!(change.try_wait(), Ok(None)));
    assert_eq!(wait(&mut change), Some(0), "{}", kept.log());
    assert!((0..3).all(|at| path(at).exists()), "it has not gone on");
    followed.kill();
    removal.join().expect("no panic").expect("it is done");
    assert_eq!([0, 1, 2].map(|at| path(at).exists()), [false, true, true], "{}", kept.log());
    assert_eq!(branches(&kept.room), [2, 1, 0].map(|at| all[at].clone()));
    kept.room.umount(&[]).ok();
    kept.is_gone();
}
