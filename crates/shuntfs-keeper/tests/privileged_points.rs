//! A server is killed at every point of an operation: before and after each of its system calls, from the moment in which it has read the request to
//! the moment in which it has answered. Whoever called gets what would have come without, and below there is what there would be. Needs CAP_SYS_ADMIN,
//! CAP_SYS_PTRACE and /dev/fuse; elsewhere it says so and passes.

#[path = "support/followed.rs"]
mod followed;
mod support;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use followed::Followed;
use shuntfs_sys::rename_at;
use support::can_mount;
use support::kept::{Kept, with_state};
use support::wait_until;

/// The server is killed in at most so many places of one operation.
const POINTS_MAX: usize = 600;
/// Every how many places, so that it does not take too long: odd, so that it is before calls and after them. `SHUNTFS_POINTS_STRIDE=1` is all.
const STRIDE: usize = 5;
/// A mount sees many servers, and each of them is slow while it is followed.
const LIVES: Duration = Duration::from_secs(240);

/// An operation: what must be there before, what is called, and what must be there below afterwards.
struct Operation {
    name: &'static str,
    prepare: fn(&Path) -> io::Result<()>,
    call: fn(&Path) -> io::Result<()>,
    check: fn(&Path) -> bool,
}

fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

const OPERATIONS: [Operation; 9] = [
    Operation {
        name: "mkdir",
        prepare: |_| Ok(()),
        call: |folder| fs::create_dir(folder.join("new")),
        check: |folder| folder.join("new").is_dir(),
    },
    Operation {
        name: "rmdir",
        prepare: |folder| fs::create_dir(folder.join("old")),
        call: |folder| fs::remove_dir(folder.join("old")),
        check: |folder| !is_there(&folder.join("old")),
    },
    Operation {
        name: "open(O_CREAT | O_EXCL) and close",
        prepare: |_| Ok(()),
        call: |folder| File::options().write(true).create_new(true).open(folder.join("new")).map(drop),
        check: |folder| {
            fs::metadata(folder.join("new")).is_ok_and(|found| found.is_file() && found.len() == 0)
        },
    },
    Operation {
        name: "open(O_TRUNC), write, close",
        prepare: |folder| fs::write(folder.join("old"), b"something longer"),
        call: |folder| fs::write(folder.join("old"), b"short"),
        check: |folder| fs::read(folder.join("old")).is_ok_and(|bytes| bytes == b"short"),
    },
    Operation {
        name: "unlink",
        prepare: |folder| fs::write(folder.join("old"), b"old"),
        call: |folder| fs::remove_file(folder.join("old")),
        check: |folder| !is_there(&folder.join("old")),
    },
    Operation {
        name: "rename over another file",
        prepare: |folder| {
            fs::write(folder.join("old"), b"old").and_then(|()| fs::write(folder.join("new"), b"new"))
        },
        call: |folder| fs::rename(folder.join("old"), folder.join("new")),
        check: |folder| {
            !is_there(&folder.join("old")) && fs::read(folder.join("new")).is_ok_and(|bytes| bytes == b"old")
        },
    },
    Operation {
        name: "an exchange of two names",
        prepare: |folder| {
            fs::write(folder.join("one"), b"one").and_then(|()| fs::write(folder.join("two"), b"two"))
        },
        call: |folder| {
            let folder = File::open(folder)?;
            Ok(rename_at(&folder, c"one", &folder, c"two", libc::RENAME_EXCHANGE)?)
        },
        check: |folder| {
            let is = |name: &str, bytes: &[u8]| fs::read(folder.join(name)).is_ok_and(|found| found == bytes);
            is("one", b"two") && is("two", b"one")
        },
    },
    Operation {
        name: "symlink and readlink",
        prepare: |_| Ok(()),
        call: |folder| {
            symlink("target", folder.join("new"))?;
            let target = fs::read_link(folder.join("new"))?;
            if target == Path::new("target") { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
        },
        check: |folder| fs::read_link(folder.join("new")).is_ok_and(|target| target == Path::new("target")),
    },
    Operation {
        name: "a listing",
        prepare: |folder| (0..5).try_for_each(|number| fs::write(folder.join(number.to_string()), [])),
        call: |folder| {
            let found = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?.len();
            if found == 5 { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
        },
        check: |_| true,
    },
];

/// Whether it got so far that the server was killed.
fn at_point(kept: &Kept, source: &Path, operation: &Operation, point: usize) -> bool {
    let name = format!("{point}");
    let (below, above) = (source.join(&name), kept.path().join(&name));
    fs::create_dir(&below).expect("makes a folder");
    (operation.prepare)(&below).expect("is prepared");
    // Known to the kernel, so that the operation alone is counted.
    fs::metadata(&above).expect("is served");
    let server = kept.next_server(None);
    let mut followed = Followed::begin(server);
    followed.settle();
    let call = operation.call;
    let calls = std::thread::spawn(move || call(&above));
    let seen = followed.go_on(point, || calls.is_finished());
    let is_killed = seen >= point && !calls.is_finished();
    // Where it is done, too, because nobody follows the next one.
    followed.kill();
    let outcome = calls.join().expect("no panic");
    assert!(outcome.is_ok(), "{}, killed at stop {point}: {outcome:?}\n{}", operation.name, kept.said());
    kept.next_server(Some(server));
    assert!((operation.check)(&below), "{}, killed at stop {point}: {:?}", operation.name, list(&below));
    is_killed
}

fn list(folder: &Path) -> Vec<std::ffi::OsString> {
    fs::read_dir(folder).expect("lists").flatten().map(|entry| entry.file_name()).collect()
}

#[test]
fn privileged_a_server_may_be_killed_at_every_system_call() {
    if !can_mount() {
        return;
    }
    let stride = std::env::var("SHUNTFS_POINTS_STRIDE").ok().and_then(|stride| stride.parse().ok());
    let (mut kills, stride) = (0, stride.unwrap_or(STRIDE));
    for operation in &OPERATIONS {
        let source = tempfile::tempdir().expect("a folder");
        let path = source.path().to_str().expect("plain").to_owned();
        let Some(kept) = Kept::start_of(with_state(), &[&path, "device", "1000"], LIVES, |_| ()) else {
            return;
        };
        wait_until("a mount that is served", || fs::metadata(kept.path()).ok());
        let all = (1..POINTS_MAX).step_by(stride);
        let points = all.take_while(|point| at_point(&kept, source.path(), operation, *point)).count();
        println!("{}: killed at {points} points", operation.name);
        assert!(points > 2 && points < POINTS_MAX / stride, "{}: {points} points", operation.name);
        kills += points;
    }
    println!("{kills} kills");
}
