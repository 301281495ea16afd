//! Sealing that is killed, that runs out of room, whose data changes or must not be touched.

mod common;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{Ran, SHUNT, apart, can_mount, run};
use serde_json::Value;
use tempfile::TempDir;

/// Files of the tree that is killed while it is sealed.
const FILES: u64 = 250;

struct Room(TempDir);

impl Room {
    fn new() -> Self {
        let room = Self(tempfile::tempdir().expect("a folder"));
        fs::create_dir(room.at("t")).expect("makes");
        room.shunt(&["seal", "key", "new", "key"]).ok();
        room
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn shunt(&self, words: &[&str]) -> Ran {
        run(Command::new(SHUNT).args(words).current_dir(self.0.path()))
    }

    fn json(&self, words: &[&str]) -> Value {
        serde_json::from_str(&self.shunt(&[words, &["--json"]].concat()).ok().out).expect("JSON")
    }

    /// Files of holes: quickly made, and hashed like any other. No two are equal.
    fn fill(&self, round: u64) {
        for index in 0..FILES {
            let file = File::create(self.at(&format!("t/file{index}"))).expect("makes");
            file.set_len((1 << 20) + 8192 * index + round).expect("grows");
        }
    }

    /// Starts sealing, and kills it when `is_time` says so; whether it had not ended by then.
    fn seal_and_kill(&self, mut is_time: impl FnMut(Instant) -> bool) -> bool {
        let mut child = Command::new(SHUNT)
            .args(["seal", "t", "--key", "key", "--jobs", "1"])
            .current_dir(self.0.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("starts");
        let start = Instant::now();
        while !is_time(start) {
            assert!(start.elapsed() < common::LIMIT, "sealing does not end");
            if child.try_wait().expect("is a child").is_some() {
                return false;
            }
            thread::sleep(Duration::from_millis(1));
        }
        let is_killed = child.try_wait().expect("is a child").is_none();
        child.kill().expect("is a child");
        child.wait().expect("is a child");
        is_killed
    }
}

/// The names of all files below a folder.
fn files(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).expect("reads") {
        let path = entry.expect("reads").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.insert(path);
        }
    }
    found
}

#[test]
fn a_killed_run_leaves_the_old_seal_and_the_next_one_goes_on() {
    let room = Room::new();
    room.fill(0);
    let mut random = 0x9e37_79b9_u64;
    for round in 1..=2 {
        let old = room.json(&["seal", "t", "--key", "key"])["digest"].clone();
        let listed = room.json(&["show", "t", "--trust", "key.pub", "--list"])["list"].clone();
        room.fill(round);
        // What it will be, by a run that nobody kills.
        let start = Instant::now();
        let new =
            room.json(&["seal", "t", "--key", "key", "--store", &format!("other{round}"), "--jobs", "1"]);
        let whole = start.elapsed();
        let store = room.at("t/.shunt");
        let mut kills = 0;
        let is_writing = || fs::read_dir(store.join("staging")).is_ok_and(|mut names| names.next().is_some());
        for number in 0..6 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let after =
                whole.mul_f64(f64::from(u32::try_from(random >> 40).expect("24 bits")) / f64::from(1 << 24));
            // The first in the middle of it for sure, the others anywhere.
            let is_time =
                |start: Instant| if number == 0 { is_writing() } else { start.elapsed() >= after / number };
            kills += u32::from(room.seal_and_kill(is_time));
            let shown = room.json(&["show", "t", "--trust", "key.pub", "--list"]);
            assert!(shown["digest"] == old || shown["digest"] == new["digest"], "after {after:?}: {shown}");
            if shown["digest"] == old {
                assert_eq!(shown["list"], listed, "the old manifest is whole");
                room.shunt(&["seal", "verify", "t", "--trust", "key.pub"]).fails(1, &["not as sealed"]);
            }
            // Half-written files are those of one run; it may have been killed while it made the folder anew.
            assert!(fs::read_dir(store.join("staging")).map_or(0, Iterator::count) <= 3);
        }
        assert!(kills > 0, "no run was killed");
        let sealed = room.json(&["seal", "t", "--key", "key"]);
        assert_eq!(sealed["digest"], new["digest"]);
        room.shunt(&["seal", "verify", "t", "--trust", "key.pub"]).ok();
        // Nothing is left over: the store is what one run makes that nobody kills.
        let below = |store: &Path| -> BTreeSet<PathBuf> {
            files(store).iter().map(|path| path.strip_prefix(store).expect("is below").to_owned()).collect()
        };
        assert_eq!(below(&store), below(&room.at(&format!("other{round}"))));
        fs::remove_dir_all(room.at(&format!("other{round}"))).expect("removes");
    }
}

#[test]
fn a_killed_run_is_gone_on_with() {
    let room = Room::new();
    room.fill(0);
    // Killed once it has written down what it has hashed.
    let progress = room.at("t/.shunt/progress");
    let is_noted = |_| fs::metadata(&progress).is_ok_and(|found| found.len() > 51);
    assert!(room.seal_and_kill(is_noted), "the run was over before it wrote down anything");
    room.shunt(&["seal", "show", "t"]).fails(1, &["not sealed"]);
    let sealed = room.json(&["seal", "t", "--key", "key"]);
    let number = |name: &str| sealed[name].as_u64().expect("a number");
    assert!(number("resumed") > 0 && number("hashed") + number("resumed") == FILES, "{sealed}");
    assert!(!progress.exists());
    room.shunt(&["seal", "verify", "t", "--trust", "key.pub"]).ok();
    let clean = room.json(&["seal", "t", "--key", "key", "--store", "other"]);
    assert_eq!(clean["digest"], sealed["digest"]);
}

#[test]
fn data_that_changes_while_it_is_sealed_is_said_and_not_sealed() {
    let room = Room::new();
    room.fill(0);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut file = File::options().append(true).open(room.at("t/file249")).expect("opens");
            while !is_over.load(Ordering::Relaxed) {
                file.write_all(b"more").expect("writes");
                thread::sleep(Duration::from_millis(1));
            }
        });
        let ran = room.shunt(&["seal", "t", "--key", "key"]);
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(ran.code, Some(1), "{ran:?}");
        for said in ["t is not sealed", "changed while it was sealed", "changed: t/file249", "try again"] {
            assert!(ran.err.contains(said), "{ran:?}");
        }
        assert!(ran.out.is_empty(), "{ran:?}");
    });
    room.shunt(&["seal", "show", "t"]).fails(1, &["t is not sealed"]);
    room.shunt(&["seal", "t", "--key", "key"]).ok();
    room.shunt(&["seal", "verify", "t", "--trust", "key.pub"]).ok();
}

#[test]
fn privileged_a_full_disk_is_said_and_the_old_seal_stays() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    room.fill(0);
    fs::create_dir(room.at("small")).expect("makes");
    // The trees of the files take 3 MB, those of the first three almost nothing.
    let script = r#"
        cd "$2"
        mount -t tmpfs -o size=2m small small
        mkdir all; mv t/file[3-9]* t/file1* t/file2?* all
        "$1" seal t --key key --store small/store
        cp small/store/seal before
        mv all/* t
        code=0; "$1" seal t --key key --store small/store 2> said || code=$?
        [ "$code" = 1 ]
        grep -q 't is not sealed' said; grep -q 'No space left' said
        cmp small/store/seal before
        [ "$(ls small/store/staging | wc -l)" = 0 ]
        code=0; "$1" verify t --trust key.pub --store small/store > found || code=$?
        [ "$code" = 1 ]
        ! grep -v 'not sealed$\|mtime\|not as sealed$\|^t/' found
        mount -o remount,size=64m small
        "$1" seal t --key key --store small/store
        "$1" verify t --trust key.pub --store small/store
        umount small
    "#;
    run(apart(script).arg(room.0.path())).ok();
}

#[test]
fn privileged_data_that_is_read_only_has_its_store_elsewhere() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    room.fill(0);
    fs::write(room.at("t/text"), "sealed\n").expect("writes");
    fs::create_dir(room.at("ro")).expect("makes");
    fs::create_dir(room.at("mnt")).expect("makes");
    let script = r#"
        cd "$2"
        mount --bind t ro
        mount -o remount,bind,ro ro
        code=0; "$1" seal ro --key key 2> said || code=$?
        [ "$code" = 1 ]
        grep -q 'Read-only file system' said
        "$1" seal ro --key key --store store
        "$1" verify ro --trust key.pub --store store
        "$1" mount --verify=required --trust key.pub --seal-store store ro mnt
        trap 'umount -l mnt' EXIT
        [ "$(cat mnt/text)" = sealed ]
        [ "$(ls mnt | wc -l)" = 251 ]
        trap - EXIT
        umount mnt
    "#;
    run(apart(script).arg(room.0.path())).ok();
    assert!(!room.at("t/.shunt").exists());
}
