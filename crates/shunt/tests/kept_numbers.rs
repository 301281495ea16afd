//! Inode numbers that go by paths stay what they are while servers are killed. Needs root and /dev/fuse.

mod common;

#[path = "../../shuntfs-keeper/tests/callers/mod.rs"]
mod callers;
mod kept;
mod programs;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirEntryExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use callers::{Callers, Seen, is_caller, is_to_stop};
use common::{Room, SHUNT, can_mount, run};
use kept::{Kept, status};
use programs::{copy, program_of, upgrading};
use rustix::fs::{CWD, RenameFlags, renameat_with};

const CALLERS: usize = 3;
/// A fifth server that dies within a minute is the last.
const KILLS: u64 = 4;

/// A pool of two branches whose numbers go by paths. The kernel keeps nothing, so each look asks the server.
fn start(flags: &[&str]) -> Room {
    let room = Room::new();
    let branch = |name: &str| {
        let path = room.path().join(name);
        fs::create_dir_all(path.join("folder")).expect("makes");
        path
    };
    let [a, b] = ["a", "b"].map(branch);
    let log = format!("log_file={}", room.path().join("log").display());
    let mut mount = Command::new(SHUNT);
    mount.args(["mount", "--inode-calc", "path-hash", "--cache", "none", "--create", "ff"]);
    mount.args(["-o", "minfreespace=0", "-o", &log]).args(flags);
    run(mount.arg(format!("{}:{}", a.display(), b.display())).arg(room.mnt())).ok();
    room
}

fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    Ok(renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)?)
}

fn ino(file: &File) -> io::Result<u64> {
    file.metadata().map(|about| about.ino())
}

/// Opens, moves, links, exchanges, replaces and removes files, and looks at the numbers of those that are open. `next` is called between two steps.
fn numbers_of_changes(mnt: &Path, mut next: impl FnMut()) -> Vec<(String, u64)> {
    let at = |name: &str| mnt.join("folder").join(name);
    let (long, longer) = ("l".repeat(100), "m".repeat(255));
    let make = |name: &str| {
        fs::write(at(name), name).expect("makes");
        File::open(at(name)).expect("opens")
    };
    let mut files: Vec<(String, File)> =
        ["moved", "linked", "one", "other", "removed", "replaced", "new", &long]
            .map(|name| (name.to_owned(), make(name)))
            .into();
    fs::create_dir_all(at("inner/deep")).expect("makes");
    files.push(("inside".to_owned(), make("inner/deep/inside")));
    let mut seen = Vec::new();
    let mut look = |step: &str| {
        next();
        // By what is open, and not by a name that would be looked up again.
        for (name, file) in &files {
            seen.push((format!("{name} after {step}"), ino(file).expect("is open")));
        }
    };
    look("the begin");
    fs::rename(at("moved"), at("elsewhere")).expect("moves");
    look("a move");
    fs::hard_link(at("linked"), at("second")).expect("links");
    look("a link");
    exchange(&at("one"), &at("other")).expect("exchanges");
    look("an exchange");
    fs::rename(at("new"), at("replaced")).expect("replaces");
    look("a replacement");
    // The one that was replaced keeps its number, and does not go along.
    fs::rename(at("replaced"), at("further")).expect("moves");
    look("a move of what replaced another");
    fs::remove_file(at("removed")).expect("removes");
    look("a removal");
    let again = make("removed");
    fs::rename(at("removed"), at("back")).expect("moves");
    look("a move of one that has a removed one's name");
    fs::rename(at(&long), at(&longer)).expect("moves");
    look("a move to a long name");
    fs::rename(at("inner"), at("outer")).expect("moves");
    look("a move of a folder");
    fs::remove_file(at("linked")).expect("removes");
    look("the removal of one of two names");
    for entry in fs::read_dir(mnt.join("folder")).expect("lists").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let found = entry.metadata().expect("is there").ino();
        assert_eq!(entry.ino(), found, "{name}: listed, and asked for");
        seen.push((format!("{name} by its name"), found));
    }
    seen.push(("one that was made anew".to_owned(), ino(&again).expect("is open")));
    // Files without a name in a folder without one.
    fs::create_dir(at("gone")).expect("makes");
    let nameless = make("gone/file");
    fs::remove_file(at("gone/file")).expect("removes");
    next();
    seen.push(("one that was removed".to_owned(), ino(&nameless).expect("is open")));
    seen.sort();
    seen
}

/// Numbers of paths are the same in all mounts, so a mount whose server is killed at each step must show those of one whose server lives.
#[test]
fn privileged_numbers_of_paths_are_the_next_servers_and_the_next_programs() {
    if !can_mount() {
        return;
    }
    let calm = start(&[]);
    let expected = numbers_of_changes(&calm.mnt(), || ());
    calm.umount(&[]).ok();
    // So that the comparison says something.
    let number = |what: &str| expected.iter().find(|(name, _)| name == what).expect("was seen").1;
    assert_ne!(number("moved after the begin"), number("moved after a move"));
    assert_eq!(number("one after an exchange"), number("other after the begin"));
    assert_eq!(number("replaced after a replacement"), number("new after a replacement"));
    assert_ne!(number("replaced after a removal"), number("new after a removal"));
    assert_ne!(number("inside after the begin"), number("inside after a move of a folder"));
    let replaced = std::cell::Cell::new(0);
    // A fifth server that dies within a minute is the last, so three mounts share the steps.
    for part in 0..3 {
        let kept = Kept::of(start(&["--takeover", "crash"]));
        let mut step = 0;
        let seen = numbers_of_changes(&kept.room.mnt(), || {
            if step % 3 == part {
                kept.kill();
                status(&kept.room);
                replaced.set(replaced.get() + 1);
            }
            step += 1;
        });
        assert_eq!(seen, expected, "{part}\n{}", kept.log());
        kept.room.umount(&[]).ok();
        kept.is_gone();
    }
    assert_eq!(replaced.get(), 12);
    // Another program.
    let kept = Kept::of(start(&["--takeover", "crash"]));
    let program = copy(Path::new(SHUNT), &kept.room.path().join("program"));
    let mut step = 0;
    let seen = numbers_of_changes(&kept.room.mnt(), || {
        if step % 4 == 1 {
            run(&mut upgrading(&kept.room.mnt(), &program)).ok();
        }
        step += 1;
    });
    assert_eq!(seen, expected, "{}", kept.log());
    assert_eq!(program_of(kept.keeper), program);
    kept.room.umount(&[]).ok();
    kept.is_gone();
}

/// The numbers of a caller's names, which it alone uses.
struct Names {
    paths: [PathBuf; 3],
    numbers: [u64; 3],
}

impl Names {
    fn learn(folder: &Path) -> io::Result<Self> {
        let own = std::process::id();
        // Some are so long that they take several records.
        let paths = ["x".to_owned(), "y".repeat(60), "z".repeat(180)]
            .map(|name| folder.join(format!("{own}-{name}")));
        let mut numbers = [0; 3];
        for (path, number) in paths.iter().zip(&mut numbers) {
            *number = ino(&File::create(path)?)?;
            fs::remove_file(path)?;
        }
        Ok(Self { paths, numbers })
    }
}

fn call(folder: &Path) -> Seen {
    let mut seen = Seen::default();
    let names = seen.call("learn", || Names::learn(folder));
    let Some(Names { paths: [a, b, c], numbers }) = names else { return seen };
    while !is_to_stop() {
        let Some(first) = seen.call("create", || File::create_new(&a)) else { continue };
        let Some(second) = seen.call("create", || File::create_new(&b)) else { continue };
        let mut has = |what: &str, expected: [usize; 2]| {
            let expected = expected.map(|index| numbers[index]);
            let found = [&first, &second].map(|file| seen.call("fstat", || ino(file)).unwrap_or(0));
            if found != expected {
                seen.wrong += 1;
                eprintln!("{what}: {found:x?}, and {expected:x?} is right");
            }
            what.len()
        };
        let mut step = |what: &str, act: &dyn Fn() -> io::Result<()>, expected: [usize; 2]| {
            if let Err(error) = act() {
                eprintln!("{what} failed: {error}");
                return false;
            }
            has(what, expected) > 0
        };
        let done = step("made", &|| Ok(()), [0, 1])
            && step("exchanged", &|| exchange(&a, &b), [1, 0])
            && step("moved", &|| fs::rename(&a, &c), [1, 2])
            && step("replaced", &|| fs::rename(&c, &b), [1, 1])
            // The first one has no name any more.
            && step("moved on", &|| fs::rename(&b, &c), [1, 2])
            && step("removed", &|| fs::remove_file(&c), [1, 2]);
        if !done {
            seen.failed += 1;
            [&a, &b, &c].iter().for_each(|path| drop(fs::remove_file(path)));
        }
    }
    seen
}

#[test]
fn privileged_numbers_of_paths_are_right_while_servers_are_killed() {
    if let Some(folder) = is_caller() {
        return call(&folder).say();
    }
    if !can_mount() {
        return;
    }
    let kept = Kept::of(start(&["--takeover", "crash"]));
    let test = "privileged_numbers_of_paths_are_right_while_servers_are_killed";
    let callers = Callers::start(CALLERS, test, &kept.room.mnt().join("folder"));
    for replaced in 1..=KILLS {
        std::thread::sleep(Duration::from_millis(300));
        kept.kill();
        assert_eq!(status(&kept.room)["takeover"]["replaced"].as_u64(), Some(replaced), "{}", kept.log());
    }
    std::thread::sleep(Duration::from_millis(300));
    let seen = callers.stop();
    println!("{seen:?}");
    assert!(seen.calls > 100 && (seen.failed, seen.wrong) == (0, 0), "{seen:?}\n{}", kept.log());
    kept.room.umount(&[]).ok();
    kept.is_gone();
}
