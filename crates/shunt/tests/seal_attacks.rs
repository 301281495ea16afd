//! Attacks on sealing, from the command line.
//!
//! Adversary: whoever owns the sealed folder or can write its store, before and while root seals it. They put links,
//! hard links, pipes and files of others where the store has its own, and want root to overwrite, remove, or sign what
//! it should not; or to wait forever.

mod common;

use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{Ends, Ran, SHUNT, run};
use tempfile::TempDir;

const NOBODY: u32 = 65534;
const SECRET: &str = "what nobody but its owner may change\n";

struct Room(TempDir);

impl Room {
    /// A folder `t` with some files, the key `key`, and `victim`, a folder that is no business of sealing.
    fn new() -> Self {
        let room = Self(tempfile::tempdir().expect("a folder"));
        fs::create_dir_all(room.at("t/a")).expect("makes");
        fs::write(room.at("t/a/large"), vec![7; 300_000]).expect("writes");
        fs::write(room.at("t/small"), "small").expect("writes");
        fs::create_dir(room.at("victim")).expect("makes");
        for name in ["file", "0", "f".repeat(62).as_str()] {
            fs::write(room.at("victim").join(name), SECRET).expect("writes");
        }
        room.shunt(&["seal", "key", "new", "key"]).ok();
        room
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn shunt(&self, words: &[&str]) -> Ran {
        run(Command::new(SHUNT).args(words).current_dir(self.0.path()))
    }

    /// Nothing of the victim's was touched.
    #[track_caller]
    fn assert_untouched(&self, what: &str) {
        let mut names: Vec<_> = fs::read_dir(self.at("victim"))
            .expect("reads")
            .map(|entry| entry.expect("reads").file_name().into_string().expect("is text"))
            .collect();
        names.sort();
        assert_eq!(names, ["0".to_owned(), "f".repeat(62), "file".to_owned()], "{what}");
        for name in names {
            let path = self.at("victim").join(name);
            assert_eq!(fs::read_to_string(&path).expect("reads"), SECRET, "{what}: {}", path.display());
        }
    }
}

fn remove(path: &Path) {
    if path.is_dir() && !path.is_symlink() {
        fs::remove_dir_all(path).expect("removes");
    } else if path.symlink_metadata().is_ok() {
        fs::remove_file(path).expect("removes");
    }
}

fn fifo(path: &Path) {
    run(Command::new("mkfifo").arg(path)).ok();
}

const FILES: [&str; 8] = ["progress", "unchanged", "seal", "inodes", "lock", "store", "making", "making.new"];

#[test]
fn links_in_place_of_a_stores_files_are_not_followed() {
    for name in FILES {
        for is_hard in [false, true] {
            let room = Room::new();
            room.shunt(&["seal", "t"]).ok();
            fs::write(room.at("t/new"), vec![1; 10_000]).expect("writes");
            let place = room.at("t/.shunt").join(name);
            remove(&place);
            let victim = room.at("victim/file");
            if is_hard { fs::hard_link(&victim, &place) } else { symlink(&victim, &place) }.expect("links");
            let ran = room.shunt(&["seal", "t"]);
            room.assert_untouched(&format!("{name} {is_hard} {ran:?}"));
            // What is only replaced is no hindrance.
            if ["progress", "unchanged", "inodes", "making", "making.new"].contains(&name) {
                ran.ok();
                room.shunt(&["seal", "verify", "t"]).ok();
            }
        }
    }
}

#[test]
fn links_in_place_of_a_stores_folders_are_not_followed() {
    for name in ["trees", "manifests", "staging", "trees/ff", ""] {
        let room = Room::new();
        room.shunt(&["seal", "t"]).ok();
        fs::write(room.at("t/new"), vec![1; 10_000]).expect("writes");
        let place = if name.is_empty() { room.at("t/.shunt") } else { room.at("t/.shunt").join(name) };
        remove(&place);
        symlink(room.at("victim"), &place).expect("links");
        let ran = room.shunt(&["seal", "t"]);
        room.assert_untouched(&format!("{name} {ran:?}"));
    }
    // All of them at once: whichever the tree of `new` goes to.
    let room = Room::new();
    room.shunt(&["seal", "t"]).ok();
    for number in 0..=255 {
        let place = room.at(&format!("t/.shunt/trees/{number:02x}"));
        remove(&place);
        symlink(room.at("victim"), &place).expect("links");
    }
    room.shunt(&["seal", "t"])
        .fails(1, &["t is not sealed", ".shunt/trees/", "it is a symlink, not a folder"]);
    room.assert_untouched("all of trees");
}

#[test]
fn pipes_in_a_store_are_not_waited_for() {
    for name in FILES {
        let room = Room::new();
        room.shunt(&["seal", "t"]).ok();
        let place = room.at("t/.shunt").join(name);
        remove(&place);
        fifo(&place);
        // Whether it is replaced or refused: it ends.
        room.shunt(&["seal", "t"]);
        room.shunt(&["seal", "verify", "t"]);
        room.shunt(&["seal", "show", "t"]);
    }
}

#[test]
fn pipes_in_place_of_files_are_refused() {
    let room = Room::new();
    fifo(&room.at("pipe"));
    for words in [
        &["digest", "pipe"][..],
        &["sign", "pipe", "--key", "key"],
        &["seal", "pipe"],
        &["sign", "t/small", "--key", "pipe"],
        &["seal", "t", "--key", "pipe"],
        &["verify", "t", "--trust", "pipe"],
    ] {
        room.shunt(words).fails(1, &["pipe", "a FIFO"]);
    }
    for name in ["t/small.sig", "t/small.fsv_meta"] {
        fifo(&room.at(name));
        let ran =
            room.shunt(&["seal", "verify", "t/small", "--trust", "key.pub"]).fails(1, &[name, "a FIFO"]);
        assert!(ran.out.is_empty(), "{ran:?}");
        fs::remove_file(room.at(name)).expect("removes");
    }
    room.shunt(&["seal", "t/small"]).ok();
    fs::remove_file(room.at("t/small")).expect("removes");
    fifo(&room.at("t/small"));
    room.shunt(&["seal", "verify", "t/small"]).fails(1, &["t/small"]);
}

#[test]
fn side_files_overwrite_nothing_else() {
    for (words, name) in [
        (&["sign", "t/small", "--key", "key"][..], "t/small.sig"),
        (&["seal", "t/small"], "t/small.fsv_meta"),
        (&["digest", "t/small", "--out-descriptor", "out"], "out"),
        (&["digest", "t/a/large", "--out-merkle-tree", "out"], "out"),
    ] {
        let room = Room::new();
        let place = room.at(name);
        symlink(room.at("victim/file"), &place).expect("links");
        room.shunt(words).fails(1, &[name, "it is a symlink, not a regular file"]);
        room.assert_untouched(name);
        remove(&place);
        fs::hard_link(room.at("victim/file"), &place).expect("links");
        room.shunt(words).ok();
        room.assert_untouched(name);
        assert_ne!(fs::read(&place).expect("reads"), SECRET.as_bytes());
        remove(&place);
        fifo(&place);
        room.shunt(words).fails(1, &[name, "it is a FIFO, not a regular file"]);
    }
}

/// A regression: `FILE.sig` was looked for by its path when FILE had been hashed, and came to whatever folder was there by then.
#[test]
fn a_signature_comes_to_the_file_that_was_hashed() {
    let room = Room::new();
    let large = room.at("t/a/large");
    // Long enough to hash that the folder can be swapped meanwhile, and no bytes on the disk.
    fs::File::create(&large).and_then(|file| file.set_len(256 << 20)).expect("makes");
    let mut command = Command::new(SHUNT);
    command.args(["sign", "t/a/large", "--key", "key"]).current_dir(room.0.path());
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("starts");
    let opened = || {
        let files = fs::read_dir(format!("/proc/{}/fd", child.id())).into_iter().flatten().flatten();
        files.into_iter().any(|file| fs::read_link(file.path()).is_ok_and(|leads| leads == large))
    };
    common::eventually("the file is being hashed", || opened() || !common::is_alive(child.id()));
    fs::rename(room.at("t/a"), room.at("t/away")).expect("moves");
    symlink(room.at("victim"), room.at("t/a")).expect("links");
    assert_eq!(common::wait(&mut child), Some(0));
    room.assert_untouched("signed");
    assert!(room.at("t/away/large.sig").is_file());
}

/// Root is told the path of a store, and somebody else decides what it leads to.
#[test]
fn a_store_whose_path_others_decide_is_not_written() {
    let room = Room::new();
    if fs::metadata(room.at("t")).expect("is there").uid() != 0 {
        println!("SKIPPED: only root gives files away");
        return;
    }
    fs::create_dir(room.at("other")).expect("makes");
    fs::write(room.at("other/file"), "other").expect("writes");
    room.shunt(&["seal", "other", "--store", "own"]).ok();
    fs::create_dir(room.at("theirs")).expect("makes");
    symlink("../own", room.at("theirs/link")).expect("links");
    chown(room.at("theirs"), Some(NOBODY), None).expect("gives");
    for words in [
        &["--store", "theirs/link", "--adopt"][..],
        &["--store", "theirs/link", "--adopt", "--shared-store"],
        &["--store", "theirs/new"],
    ] {
        let ran = room.shunt(&[&["seal", "t"], words].concat());
        ran.fails(1, &["the store theirs/", "theirs belongs to user 65534"]);
        assert!(!room.at("theirs/new").exists());
    }
    room.shunt(&["seal", "verify", "other", "--store", "own"]).ok();
    room.shunt(&["seal", "t", "--store", "theirs/new", "--shared-store"]).ok();
    // Nobody else decides here, links or not.
    symlink("own", room.at("link")).expect("links");
    room.shunt(&["seal", "t", "--store", "link", "--adopt"]).ok();
}

/// A file in a sealed folder is changed, and gets a side file that fits: the folder's seal decides.
#[test]
fn a_side_file_in_a_sealed_folder_decides_nothing() {
    let room = Room::new();
    room.shunt(&["seal", "t", "--key", "key"]).ok();
    // Signed by the same key, too, as an older version of the file may have been.
    fs::write(room.at("t/small"), "SMALL").expect("writes");
    room.shunt(&["seal", "t/small", "--key", "key"]).ok();
    for more in [&[][..], &["--trust", "key.pub"]] {
        let ran = room.shunt(&[&["verify", "t/small"], more].concat());
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.out.contains("small") || ran.err.contains("small"), "{ran:?}");
    }
    // Nothing but the side file is asked outside of it.
    fs::remove_dir_all(room.at("t/.shunt")).expect("removes");
    room.shunt(&["seal", "verify", "t/small", "--trust", "key.pub"]).ok();
}

#[test]
fn side_files_tell_no_more_than_the_data() {
    for (mode, wanted) in [(0o600, 0o600), (0o640, 0o640), (0o644, 0o644), (0o755, 0o644), (0o4711, 0o600)] {
        let room = Room::new();
        fs::set_permissions(room.at("t/small"), Permissions::from_mode(mode)).expect("is ours");
        room.shunt(&["seal", "sign", "t/small", "--key", "key"]).ok();
        room.shunt(&["seal", "t/small"]).ok();
        for name in ["t/small.sig", "t/small.fsv_meta"] {
            let found = fs::metadata(room.at(name)).expect("is there").mode() & 0o7777;
            assert_eq!(found, wanted, "{name} of {mode:o}: {found:o}");
        }
    }
}

/// A bit for the group is another group's where root makes the side file.
#[test]
fn privileged_side_files_tell_no_other_group() {
    let room = Room::new();
    if chown(room.at("t/small"), Some(NOBODY), Some(NOBODY)).is_err() {
        return println!("SKIPPED: giving files away needs root");
    }
    for (mode, wanted) in [(0o640, 0o600), (0o604, 0o600), (0o644, 0o644)] {
        fs::set_permissions(room.at("t/small"), Permissions::from_mode(mode)).expect("is root");
        room.shunt(&["seal", "t/small"]).ok();
        let found = fs::metadata(room.at("t/small.fsv_meta")).expect("is there").mode() & 0o7777;
        assert_eq!(found, wanted, "{mode:o}: {found:o}");
    }
}

#[test]
fn what_is_not_a_store_is_not_taken_for_one() {
    for name in ["manifests/pod.yaml", "trees/x/y", "staging/0", "progress", "seal", "readme"] {
        let room = Room::new();
        let path = room.at("deploy").join(name);
        fs::create_dir_all(path.parent().expect("has one")).expect("makes");
        fs::write(&path, SECRET).expect("writes");
        room.shunt(&["seal", "t", "--store", "deploy"]).fails(1, &["deploy is not empty", "not the store"]);
        assert_eq!(fs::read_to_string(&path).expect("is there"), SECRET, "{name}");
        assert_eq!(fs::read_dir(room.at("deploy")).expect("reads").count(), 1, "{name}: nothing was added");
    }
}

#[test]
fn a_store_removes_only_what_it_made() {
    let room = Room::new();
    room.shunt(&["seal", "t", "--store", "store"]).ok();
    let hex = "ab".repeat(32);
    let foreign: Vec<_> = ["manifests/pod.yaml", "trees/x/y", "staging/0", "notes"]
        .map(str::to_owned)
        .into_iter()
        .chain([format!("manifests/{hex}"), format!("trees/ab/{}", &hex[2..])])
        .map(|name| room.at("store").join(name))
        .collect();
    for path in &foreign {
        fs::create_dir_all(path.parent().expect("has one")).expect("makes");
        fs::write(path, SECRET).expect("writes");
    }
    let before = fs::read_dir(room.at("store/manifests")).expect("reads").count();
    fs::write(room.at("t/a/large"), vec![8; 300_000]).expect("writes");
    room.shunt(&["seal", "t", "--store", "store"]).ok();
    for path in &foreign {
        assert_eq!(fs::read_to_string(path).expect("is there"), SECRET, "{}", path.display());
    }
    let after = fs::read_dir(room.at("store/manifests")).expect("reads").count();
    assert_eq!(before, after, "its own are removed");
    room.shunt(&["seal", "verify", "t", "--store", "store"]).ok();
}

#[test]
fn a_store_is_of_one_tree() {
    let room = Room::new();
    fs::create_dir(room.at("other")).expect("makes");
    room.shunt(&["seal", "t", "--store", "store", "--key", "key"]).ok();
    let refused = ["store is the store of ", "/t, not of ", "--adopt"];
    room.shunt(&["seal", "other", "--store", "store", "--key", "key"]).fails(1, &refused);
    room.shunt(&["seal", "verify", "t", "--store", "store", "--trust", "key.pub"]).ok();
    room.shunt(&["seal", "t"]).ok();
    room.shunt(&["seal", "other", "--store", "t/.shunt"]).fails(1, &["t/.shunt is the store of", "not of "]);
    // A tree that was moved, and one that was made anew in its place, are still the store's.
    fs::rename(room.at("t"), room.at("moved")).expect("moves");
    // Its name in signed seals is the sealer's word, and not what the folder is called today.
    let seal = ["seal", "moved", "--store", "store", "--key", "key"];
    room.shunt(&seal).fails(1, &["is of tree `t`", "--tree t"]);
    let seal = [&seal[..], &["--tree", "t"]].concat();
    room.shunt(&seal).ok();
    room.shunt(&["seal", "moved"]).ok();
    fs::rename(room.at("moved"), room.at("gone")).expect("moves");
    fs::create_dir(room.at("moved")).expect("makes");
    room.shunt(&seal).ok();
    // And whoever says so gets it for another.
    room.shunt(&["seal", "other", "--store", "store", "--key", "key", "--adopt"]).ok();
    room.shunt(&["seal", "verify", "other", "--store", "store", "--trust", "key.pub"]).ok();
    room.shunt(&seal).fails(1, &["--adopt"]);
}

#[test]
fn a_store_in_the_tree_hides_no_folder_of_it() {
    let room = Room::new();
    for store in ["t", "t/a", "t/new", "t/a/new/deep", "t/../t/a/x"] {
        room.shunt(&["seal", "t", "--store", store]).fails(1, &["inside the tree to seal"]);
    }
    symlink(room.at("t/a"), room.at("link")).expect("links");
    room.shunt(&["seal", "t", "--store", "link/store"]).fails(1, &["inside the tree to seal"]);
    assert!(!room.at("t/new").exists() && !room.at("t/a/new").exists(), "nothing was made");
    // The usual place by its name is what it always was.
    room.shunt(&["seal", "t", "--store", "t/.shunt"]).ok();
    // Nor is one that was put there since.
    room.shunt(&["seal", "t", "--store", "store"]).ok();
    fs::rename(room.at("store"), room.at("t/a/store")).expect("moves");
    room.shunt(&["seal", "verify", "t", "--store", "t/a/store"]).fails(1, &["not as sealed"]);
}

#[test]
fn privileged_a_store_that_others_can_write_is_refused() {
    let room = Room::new();
    room.shunt(&["seal", "t", "--key", "key"]).ok();
    let store = room.at("t/.shunt");
    if chown(&store, Some(NOBODY), None).is_err() {
        return println!("SKIPPED: giving files away needs root");
    }
    let refused = ["t is not sealed", "belongs to user 65534", "--shared-store"];
    room.shunt(&["seal", "t", "--key", "key"]).fails(1, &refused);
    room.shunt(&["seal", "t", "--key", "key", "--shared-store"]).ok();
    chown(&store, Some(0), None).expect("is root");
    for mode in [0o777, 0o720, 0o702] {
        fs::set_permissions(&store, Permissions::from_mode(mode)).expect("is ours");
        room.shunt(&["seal", "t", "--key", "key"]).fails(1, &["can be written by others", "chmod go-w"]);
    }
    // Whoever verifies is told that anybody can have made it, unless a key says who did.
    let said = room.shunt(&["seal", "verify", "t"]).ok().err;
    assert!(said.contains("can be written by others") && said.contains("--trust"), "{said}");
    assert_eq!(room.shunt(&["seal", "verify", "t", "--trust", "key.pub"]).ok().err, "");
    fs::set_permissions(&store, Permissions::from_mode(0o755)).expect("is ours");
    room.shunt(&["seal", "t", "--key", "key"]).ok();
}

#[test]
fn a_signature_covers_what_its_maker_has_hashed() {
    let room = Room::new();
    let hashed = |words: &[&str], wanted: &str| {
        let said = room.shunt(words).ok().out;
        assert!(said.contains(wanted), "{words:?}: {said}");
    };
    room.shunt(&["seal", "key", "new", "other"]).ok();
    hashed(&["seal", "t"], "2 hashed, 0 unchanged");
    hashed(&["seal", "t"], "0 hashed, 2 unchanged");
    // Whoever can write the store could have written down any hash.
    hashed(&["seal", "t", "--key", "key"], "2 hashed, 0 unchanged");
    hashed(&["seal", "t", "--key", "key"], "0 hashed, 2 unchanged");
    hashed(&["seal", "t", "--key", "other"], "2 hashed, 0 unchanged");
    hashed(&["seal", "t", "--key", "other", "--rehash"], "2 hashed, 0 unchanged");
    hashed(&["seal", "t", "--key", "other"], "0 hashed, 2 unchanged");
    // By a bit of what is written down a file is not known again.
    let path = room.at("t/.shunt/unchanged");
    let whole = fs::read(&path).expect("reads");
    for at in 51..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        fs::write(&path, bytes).expect("writes");
        if at % 7 == 0 {
            hashed(&["seal", "t", "--key", "other"], "1 hashed, 1 unchanged");
        }
    }
}

#[test]
fn a_signed_seal_is_not_replaced_by_an_unsigned_one_by_mistake() {
    let room = Room::new();
    room.shunt(&["seal", "t", "t/small", "--key", "key"]).ok();
    let refused = ["is signed by ", "--unsigned"];
    room.shunt(&["seal", "t"]).fails(1, &refused);
    room.shunt(&["seal", "t/small"]).fails(1, &refused);
    fs::write(room.at("t/.shunt/unchanged"), "").expect("writes");
    room.shunt(&["seal", "t"]).fails(1, &refused);
    room.shunt(&["seal", "verify", "t/small", "--trust", "key.pub"]).ok();
    let shown = room.shunt(&["seal", "show", "t", "--trust", "key.pub"]).ok();
    assert!(shown.out.contains("a key that is trusted"), "{shown:?}");
    room.shunt(&["seal", "t/small", "--unsigned"]).ok();
    room.shunt(&["seal", "t", "--unsigned"]).ok();
    room.shunt(&["seal", "show", "t", "--trust", "key.pub"]).fails(1, &["is not signed"]);
    room.shunt(&["seal", "t", "--unsigned", "--key", "key"]).fails_with_usage();
}

#[test]
fn damaged_trees_are_made_again() {
    let room = Room::new();
    room.shunt(&["seal", "t"]).ok();
    let tree = fs::read_dir(room.at("t/.shunt/trees"))
        .expect("reads")
        .map(|folder| folder.expect("reads").path())
        .find_map(|folder| fs::read_dir(folder).expect("reads").next())
        .expect("there is a tree")
        .expect("reads")
        .path();
    let mut bytes = fs::read(&tree).expect("reads");
    bytes[500] ^= 1;
    fs::write(&tree, &bytes).expect("writes");
    let ran = room.shunt(&["seal", "verify", "t"]);
    assert!(ran.out.contains("its tree is not: it differs at byte 500"), "{ran:?}");
    let said = room.shunt(&["seal", "t", "--repair"]).ok().out;
    assert!(said.contains("1 hashed, 1 unchanged"), "{said}");
    room.shunt(&["seal", "verify", "t"]).ok();
    fs::remove_file(&tree).expect("removes");
    room.shunt(&["seal", "t", "--repair"]).ok();
    room.shunt(&["seal", "verify", "t"]).ok();
    // A tree whose data is not what was sealed is not made again: that would seal the damage.
    fs::remove_file(&tree).expect("removes");
    let digest = room.shunt(&["seal", "show", "t"]).ok().out;
    let unchanged = room.at("t/.shunt/unchanged");
    let known = fs::read(&unchanged).expect("reads");
    fs::write(room.at("t/a/large"), vec![9; 300_000]).expect("writes");
    fs::write(&unchanged, known).expect("writes");
    room.shunt(&["seal", "t", "--repair"]).ok();
    assert_ne!(room.shunt(&["seal", "show", "t"]).ok().out, digest, "a file that was changed is sealed anew");
}

/// Somebody who owns the store changes folders into links while it is written.
#[test]
fn privileged_folders_that_become_links_meanwhile_lead_nowhere() {
    let room = Room::new();
    for index in 0..100 {
        fs::write(room.at(&format!("t/file{index}")), vec![index; 9000]).expect("writes");
    }
    room.shunt(&["seal", "t"]).ok();
    if chown(room.at("t/.shunt"), Some(NOBODY), Some(NOBODY)).is_err() {
        return println!("SKIPPED: giving files away needs root");
    }
    let names: Vec<String> = ["trees", "manifests", "staging"]
        .map(str::to_owned)
        .into_iter()
        .chain((0..=255).map(|number| format!("trees/{number:02x}")))
        .collect();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ends = Ends(&is_over);
        scope.spawn(|| {
            let aside = room.at("t/.shunt/aside");
            for name in names.iter().cycle() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                let place = room.at("t/.shunt").join(name);
                if fs::rename(&place, &aside).is_ok() {
                    drop(symlink(room.at("victim"), &place));
                    thread::yield_now();
                    drop(fs::remove_file(&place));
                    drop(fs::rename(&aside, &place));
                }
            }
        });
        for round in 0..20 {
            for index in 0..100 {
                fs::write(room.at(&format!("t/file{index}")), vec![index + round; 9000]).expect("writes");
            }
            room.shunt(&["seal", "t", "--shared-store"]);
        }
    });
    room.assert_untouched("the race");
}

/// A room whose `t/d` was sealed with a file and is a link to `t/e` since, where other bytes have the same name.
fn with_link_in_place_of_a_folder() -> Room {
    let room = Room::new();
    for (folder, text) in [("d", "good"), ("e", "other")] {
        fs::create_dir(room.at("t").join(folder)).expect("makes");
        fs::write(room.at("t").join(folder).join("f"), text).expect("writes");
    }
    room.shunt(&["seal", "t", "--key", "key", "--tree", "t"]).ok();
    fs::rename(room.at("t/d"), room.at("elsewhere")).expect("moves");
    symlink("e", room.at("t/d")).expect("links");
    room
}

#[test]
fn a_link_in_place_of_a_sealed_folder_is_not_followed_to_what_is_asked_for() {
    let room = with_link_in_place_of_a_folder();
    let digest = room.shunt(&["seal", "show", "t", "--json"]).ok().out;
    let digest = digest.split('"').find(|word| word.starts_with("sha256:")).expect("has one").to_owned();
    let named = ["--trust", "key.pub", "--tree", "t", "--digest", &digest];
    for path in ["t/d/f", "t/d/", "t/d", "t/d//f", "t/./d/f", "t/a/../d/f", "t/../t/d/f"] {
        let ran = room.shunt(&[&["verify", path][..], &named].concat());
        assert!(ran.out.contains("t/d"), "{path}: {ran:?}");
        ran.fails(1, &["1 is not as sealed"]);
        room.shunt(&[&["verify", path, "--json"][..], &named].concat()).fails(1, &["1 is not as sealed"]);
        room.shunt(&["seal", "verify", "--store", "t/.shunt", "t", path]).fails(1, &["1 is not as sealed"]);
    }
    let behind = "its `..` is behind what is no folder";
    for (path, why) in [
        ("t/d/../small", behind),
        ("t/d/f/../../small", behind),
        ("t/gone/../small", "No such file or directory"),
    ] {
        room.shunt(&["seal", "verify", path]).fails(1, &[why]);
        room.shunt(&["seal", "verify", "--store", "t/.shunt", "t", path]).fails(1, &[why]);
    }
    // From within, and by a link of one's own.
    symlink("t/d", room.at("own")).expect("links");
    room.shunt(&["seal", "verify", "own/f"]).fails(1, &["1 is not as sealed"]);
    run(Command::new(SHUNT).args(["verify", "../d/f"]).current_dir(room.at("t/a")))
        .fails(1, &["1 is not as sealed"]);
}

#[test]
fn a_link_in_place_of_a_sealed_folder_does_not_lead_to_another_sealed_folder() {
    let room = Room::new();
    for folder in ["t/d", "other"] {
        fs::create_dir(room.at(folder)).expect("makes");
        fs::write(room.at(folder).join("f"), folder).expect("writes");
    }
    room.shunt(&["seal", "t", "other", "--key", "key"]).ok();
    remove(&room.at("t/d"));
    symlink("../other", room.at("t/d")).expect("links");
    for path in ["t/d/f", "t/d", "t/d/"] {
        room.shunt(&["seal", "verify", path, "--trust", "key.pub"]).fails(1, &["1 is not as sealed"]);
    }
}

#[test]
fn links_above_a_sealed_folder_are_followed() {
    let room = Room::new();
    room.shunt(&["seal", "t"]).ok();
    symlink("t", room.at("whole")).expect("links");
    symlink(room.at("t/a"), room.at("part")).expect("links");
    fs::create_dir(room.at("t/nested")).expect("makes");
    fs::write(room.at("t/nested/file"), "text").expect("writes");
    room.shunt(&["seal", "t/nested"]).ok();
    for path in ["whole", "whole/", "whole/small", "part", "part/large", "part/../small", "victim/../t/small"]
    {
        let ran = room.shunt(&["seal", "verify", path]);
        if !["whole", "whole/"].contains(&path) {
            ran.ok();
        }
    }
    // The nearest one counts.
    room.shunt(&["seal", "verify", "t/nested/file"]).ok();
    room.shunt(&["seal", "verify", "whole/nested"]).ok();
    room.shunt(&["seal", "verify", "--store", "t/.shunt", "whole", "t/small", "whole/a", "part/large"]).ok();
    for from in ["t/a", "t/nested"] {
        run(Command::new(SHUNT).args(["verify", "../small", "../../t/small"]).current_dir(room.at(from)))
            .ok();
    }
    room.shunt(&["seal", "verify", "--store", "t/.shunt", "t", "victim/file"]).fails(2, &["is not in"]);
}

/// Whoever opens the lock waits for the owner of a lease on it, for 45 seconds where the kernel is as it comes.
#[test]
fn a_lease_on_the_lock_is_not_waited_for() {
    const HOLD: &str = r#"$SIG{IO} = "IGNORE"; open(F, "<", $ARGV[0]) or exit 1; $| = 1;
        print fcntl(F, 1024, 0) ? "held\n" : "not held\n"; <STDIN>"#;
    let room = Room::new();
    room.shunt(&["seal", "t"]).ok();
    let mut perl = Command::new("perl");
    perl.args(["-e", HOLD]).arg(room.at("t/.shunt/lock")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut holder) = perl.spawn() else { return println!("SKIPPED: needs perl") };
    let mut said = String::new();
    BufReader::new(holder.stdout.take().expect("is piped")).read_line(&mut said).expect("reads");
    let started = Instant::now();
    let ran = room.shunt(&["seal", "t", "--shared-store"]);
    let lasted = started.elapsed();
    drop(holder.stdin.take());
    holder.wait().expect("ends");
    if said != "held\n" {
        return println!("SKIPPED: no leases here");
    }
    assert!(lasted < Duration::from_secs(20), "{lasted:?} {ran:?}");
    ran.fails(1, &["another shunt is sealing into this store"]);
    room.shunt(&["seal", "t", "--shared-store"]).ok();
}
