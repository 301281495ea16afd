//! A server whose table of descriptors is full: callers get EMFILE for what needs one more, nothing is made by halves, names can be removed anyway,
//! and nothing is left of it afterwards. Needs CAP_SYS_ADMIN and /dev/fuse; elsewhere it says so and passes.
#![expect(unsafe_code, reason = "a test limits the descriptors of the program that it starts")]

#[path = "../../shuntfs-keeper/tests/support/mod.rs"]
mod support;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use support::kept::{Kept, lower_folders_of};
use support::{can_mount, wait_until};

/// So many descriptors the keeper and its servers have.
const DESCRIPTORS: u64 = 256;
const FILES: usize = 300;
const FOLDERS: usize = 20;
const MADE_MAX: usize = 20;
const LIVES: Duration = Duration::from_secs(120);

fn limit_descriptors(command: &mut Command) {
    let limit = libc::rlimit { rlim_cur: DESCRIPTORS, rlim_max: DESCRIPTORS };
    let set = move || {
        // SAFETY: `limit` is a limit.
        let set = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
        if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: it makes one system call.
    unsafe { command.pre_exec(set) };
}

fn file(number: usize) -> String {
    format!("file-{number}")
}

fn folder(number: usize) -> String {
    format!("folder-{number}")
}

/// It was done, or refused for want of a descriptor.
#[track_caller]
fn is_done<T>(outcome: io::Result<T>) -> bool {
    match outcome {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.raw_os_error(), Some(libc::EMFILE), "{error}");
            false
        }
    }
}

/// A file that is open, and that the server can read.
fn open(path: &Path) -> io::Result<File> {
    let file = File::open(path)?;
    let mut byte = [0];
    file.read_exact_at(&mut byte, 0)?;
    Ok(file)
}

fn exercise(kind: &str, are_branches: bool, further: &[&str]) {
    if !can_mount() {
        return;
    }
    let source = tempfile::tempdir().expect("a folder");
    let (shown, below) = lower_folders_of(source.path(), are_branches);
    for (at, folder_below) in below.iter().enumerate() {
        (0..FILES)
            .filter(|number| number % below.len() == at)
            .try_for_each(|number| fs::write(folder_below.join(file(number)), "x"))
            .expect("writes");
        (0..FOLDERS).try_for_each(|number| fs::create_dir(folder_below.join(folder(number)))).expect("makes");
    }
    let words = [&[&*shown, kind, "1000", "served"], further].concat();
    let Some(kept) = Kept::start_of("kept_pool", &words, LIVES, limit_descriptors) else { return };
    wait_until("a mount that is served", || fs::metadata(kept.path()).ok());
    let (above, held) = (kept.path().to_owned(), kept.descriptors(source.path()).1);
    fill_and_empty(&kept, &above, &below, further.is_empty());
    let left = || Some(kept.descriptors(source.path()).1).filter(|left| *left <= held);
    wait_until("as many descriptors as before", left);
}

/// Opens files until the server refuses one.
fn open_all(kept: &Kept, above: &Path) -> Vec<File> {
    let all: Vec<File> = (0..FILES)
        .map(|number| open(&above.join(file(number))))
        .take_while(|open| {
            open.as_ref()
                .inspect_err(|error| assert_eq!(error.raw_os_error(), Some(libc::EMFILE), "{error}"))
                .is_ok()
        })
        .flatten()
        .collect();
    println!("{} files are open", all.len());
    assert!(all.len() > 50 && all.len() < FILES, "{}\n{}", all.len(), kept.said());
    all
}

fn fill_and_empty(kept: &Kept, above: &Path, below: &[PathBuf], has_handles: bool) {
    let there = |name: &str| below.iter().filter(|folder| folder.join(name).exists()).count();
    // In use, too.
    let used = File::open(above.join(folder(0))).expect("opens");
    let all = open_all(kept, above);
    // One that is not used yet may need none.
    let mut made = Vec::new();
    while made.len() < MADE_MAX {
        let name = format!("new-{}", made.len());
        match File::options().write(true).create_new(true).open(above.join(&name)) {
            Ok(file) => made.push(file),
            refused => {
                assert!(!is_done(refused) && there(&name) == 0, "nothing is made by halves");
                break;
            }
        }
        assert_eq!(there(&name), 1);
    }
    let is_made = is_done(fs::create_dir(above.join("new")));
    assert_eq!(there("new") > 0, is_made, "nor a folder");
    let listed = fs::read_dir(above).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    if let Ok(listed) = &listed {
        assert_eq!(listed.len(), FILES + FOLDERS + made.len() + usize::from(is_made), "all of it is listed");
    }
    is_done(listed);
    let [from, to] = [file(FILES - 1), "moved".to_owned()];
    let is_moved = is_done(fs::rename(above.join(&from), above.join(&to)));
    assert_eq!((there(&from), there(&to)), if is_moved { (0, 1) } else { (1, 0) });
    if is_moved {
        fs::rename(above.join(&to), above.join(&from)).expect("as before");
    }
    // What is not open, what is in use, and what is open. Where there are no handles, a name that the kernel does not know cannot be looked up.
    let removed = if has_handles { FOLDERS } else { 1 };
    let is_gone = |name: &str, removed: io::Result<()>| {
        removed.unwrap_or_else(|error| panic!("{name}: {error}\n{}", kept.said()));
        assert_eq!(there(name), 0);
    };
    if has_handles {
        is_gone(&file(FILES - 1), fs::remove_file(above.join(file(FILES - 1))));
    }
    for number in 0..removed {
        is_gone(&folder(number), fs::remove_dir(above.join(folder(number))));
    }
    for (number, open) in all.iter().enumerate() {
        is_gone(&file(number), fs::remove_file(above.join(file(number))));
        let mut byte = [0];
        open.read_exact_at(&mut byte, 0).expect("it is open still");
        assert_eq!((byte, open.metadata().expect("it is there").nlink()), ([b'x'], 0), "{number}");
    }
    for number in 0..made.len() {
        let name = format!("new-{number}");
        is_gone(&name, fs::remove_file(above.join(&name)));
    }
    drop((all, used, made));
    for number in removed..FOLDERS {
        is_gone(&folder(number), fs::remove_dir(above.join(folder(number))));
    }
    if is_made {
        is_gone("new", fs::remove_dir(above.join("new")));
    }
    let left = |number: &usize| there(&file(*number)) > 0;
    for number in (0..FILES).filter(left) {
        wait_until("room again", || open(&above.join(file(number))).ok());
        fs::remove_file(above.join(file(number))).expect("is removed");
    }
    File::options().write(true).create_new(true).open(above.join("new")).expect("is made");
    is_gone("new", fs::remove_file(above.join("new")));
    assert!(below.iter().all(|folder| fs::read_dir(folder).expect("lists").count() == 0));
}

#[test]
fn privileged_one_folder() {
    exercise("device", false, &[]);
}

#[test]
fn privileged_branches() {
    exercise("cloned", true, &[]);
}

/// Each file and folder that the kernel knows takes a descriptor.
#[test]
fn privileged_one_folder_without_handles() {
    exercise("device", false, &["without-handles"]);
}

#[test]
fn privileged_branches_without_handles() {
    exercise("cloned", true, &["without-handles"]);
}
