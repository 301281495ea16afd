//! A server is killed at every point of an operation: before and after each of its system calls, from the moment in which it has read the request to
//! the moment in which it has answered. Whoever called gets what would have come without, and below there is what there would be. Needs CAP_SYS_ADMIN,
//! CAP_SYS_PTRACE and /dev/fuse; elsewhere it says so and passes.

#[path = "support/followed.rs"]
mod followed;
mod support;

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use followed::Followed;
use shuntfs_sys::xattr::{get_xattr, set_xattr};
use shuntfs_sys::{open_path_at, rename_at};
use shuntfs_testkit::identity::Identity;
use support::can_mount;
use support::kept::{Kept, lower_folders, ruled, with_state};
use support::wait_until;

/// The server is killed in at most so many places of one operation.
const POINTS_MAX: usize = 2000;
/// Every how many places, so that it does not take too long: odd, so that it is before calls and after them. `SHUNTFS_POINTS_STRIDE=1` is all.
const STRIDE: usize = 5;
/// The same under rules, where each operation has more of them.
const STRIDE_RULED: usize = 11;
/// A mount sees many servers, and each of them is slow while it is followed. With a smaller stride, it lives longer.
const LIVES: Duration = Duration::from_secs(240);

/// Where an operation works: a folder as it is on the mount, and what it is below, one folder or one on each branch.
struct Place {
    above: PathBuf,
    below: Vec<PathBuf>,
}

impl Place {
    fn first(&self) -> &Path {
        &self.below[0]
    }

    /// On how many branches that holds.
    fn count(&self, holds: impl Fn(&Path) -> bool) -> usize {
        self.below.iter().filter(|folder| holds(folder)).count()
    }

    /// How many of them have a name.
    fn have(&self, name: &str) -> usize {
        self.count(|folder| is_there(&folder.join(name)))
    }

    /// Whether a name is on one branch alone, and such.
    fn is_once(&self, name: &str, is_such: impl Fn(&Path) -> bool) -> bool {
        self.have(name) == 1 && self.count(|folder| is_such(&folder.join(name))) == 1
    }

    /// Whether somebody who may not cannot read it, and root can.
    fn is_denied(&self, name: &str) -> bool {
        let path = self.above.join(name);
        let refused = Identity::nobody().run(|| fs::read(&path)).map_err(|error| error.kind());
        refused.is_err_and(|kind| kind == io::ErrorKind::PermissionDenied) && fs::read(&path).is_ok()
    }

    /// Whether anybody reads these bytes.
    fn is_free(&self, name: &str, bytes: &[u8]) -> bool {
        let path = self.above.join(name);
        Identity::nobody().run(|| is(&path, bytes))
    }

    /// Does something in the folder on each branch.
    fn each(&self, mut act: impl FnMut(usize, &Path) -> io::Result<()>) -> io::Result<()> {
        self.below.iter().enumerate().try_for_each(|(index, folder)| act(index, folder))
    }
}

/// An operation: what must be there before, what is called, and what must be there below afterwards.
struct Operation {
    name: &'static str,
    prepare: fn(&Place) -> io::Result<()>,
    call: fn(&Path) -> io::Result<()>,
    check: fn(&Place) -> bool,
}

fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

fn is(path: &Path, bytes: &[u8]) -> bool {
    fs::read(path).is_ok_and(|found| found == bytes)
}

const OPERATIONS: [Operation; 9] = [
    Operation {
        name: "mkdir",
        prepare: |_| Ok(()),
        call: |folder| fs::create_dir(folder.join("new")),
        check: |place| place.is_once("new", Path::is_dir),
    },
    Operation {
        name: "rmdir",
        prepare: |place| fs::create_dir(place.first().join("old")),
        call: |folder| fs::remove_dir(folder.join("old")),
        check: |place| place.have("old") == 0,
    },
    Operation {
        name: "open(O_CREAT | O_EXCL) and close",
        prepare: |_| Ok(()),
        call: |folder| File::options().write(true).create_new(true).open(folder.join("new")).map(drop),
        check: |place| place.is_once("new", |path| is(path, b"")),
    },
    Operation {
        name: "open(O_TRUNC), write, close",
        prepare: |place| fs::write(place.first().join("old"), b"something longer"),
        call: |folder| fs::write(folder.join("old"), b"short"),
        check: |place| place.is_once("old", |path| is(path, b"short")),
    },
    Operation {
        name: "unlink",
        prepare: |place| fs::write(place.first().join("old"), b"old"),
        call: |folder| fs::remove_file(folder.join("old")),
        check: |place| place.have("old") == 0,
    },
    Operation {
        name: "rename over another file",
        prepare: |place| {
            let folder = place.first();
            fs::write(folder.join("old"), b"old").and_then(|()| fs::write(folder.join("new"), b"new"))
        },
        call: |folder| fs::rename(folder.join("old"), folder.join("new")),
        check: |place| place.have("old") == 0 && place.is_once("new", |path| is(path, b"old")),
    },
    Operation {
        name: "an exchange of two names",
        prepare: |place| {
            let folder = place.first();
            fs::write(folder.join("one"), b"one").and_then(|()| fs::write(folder.join("two"), b"two"))
        },
        call: |folder| {
            let folder = File::open(folder)?;
            Ok(rename_at(&folder, c"one", &folder, c"two", libc::RENAME_EXCHANGE)?)
        },
        check: |place| {
            place.is_once("one", |path| is(path, b"two")) && place.is_once("two", |path| is(path, b"one"))
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
        check: |place| {
            place.is_once("new", |path| fs::read_link(path).is_ok_and(|to| to == Path::new("target")))
        },
    },
    Operation {
        name: "a listing",
        prepare: |place| {
            let all = place.below.len();
            (0..5).try_for_each(|number| fs::write(place.below[number % all].join(number.to_string()), []))
        },
        call: |folder| {
            let found = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?.len();
            if found == 5 { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
        },
        check: |_| true,
    },
];

/// Of names that are on several branches.
const MERGED: [Operation; 11] = [
    Operation {
        name: "control file: the last branch goes",
        prepare: |place| {
            let last = place.below[2].parent().and_then(Path::to_str).expect("plain");
            let is_there = branches_of(&place.above)?.len() == 3;
            if is_there { Ok(()) } else { set_branches(&place.above, &format!("+{last}")) }
        },
        call: |folder| set_branches(folder, "->"),
        check: |place| branches_of(&place.above).is_ok_and(|left| left.len() == 2),
    },
    Operation {
        name: "rmdir of a folder on each branch",
        prepare: |place| place.each(|_, folder| fs::create_dir(folder.join("old"))),
        call: |folder| fs::remove_dir(folder.join("old")),
        check: |place| place.have("old") == 0 && !is_there(&place.above.join("old")),
    },
    Operation {
        name: "rmdir of a folder on each branch that is in use",
        prepare: |place| place.each(|_, folder| fs::create_dir(folder.join("old"))),
        call: |folder| {
            let held = File::open(folder.join("old"))?;
            fs::remove_dir(folder.join("old"))?;
            held.set_permissions(Permissions::from_mode(0o711))?;
            let (mode, links) = (held.metadata()?.mode() & 0o777, held.metadata()?.nlink());
            if (mode, links) == (0o711, 0) { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
        },
        check: |place| place.have("old") == 0 && !is_there(&place.above.join("old")),
    },
    Operation {
        name: "unlink of a file on each branch",
        prepare: |place| place.each(|_, folder| fs::write(folder.join("old"), b"old")),
        call: |folder| fs::remove_file(folder.join("old")),
        check: |place| place.have("old") == 0 && !is_there(&place.above.join("old")),
    },
    Operation {
        name: "rename of a folder on each branch",
        prepare: |place| {
            place.each(|index, folder| {
                fs::create_dir_all(folder.join("old/inner"))?;
                fs::write(folder.join(format!("old/inner/{index}")), b"x")
            })
        },
        call: |folder| {
            // Known to the kernel, which does not ask for it again.
            fs::metadata(folder.join("old/inner/1"))?;
            fs::rename(folder.join("old"), folder.join("new"))
        },
        check: |place| {
            let all = place.below.len();
            let shown = fs::read_dir(place.above.join("new/inner")).map_or(0, Iterator::count);
            let is_moved = |index: usize| is(&place.below[index].join(format!("new/inner/{index}")), b"x");
            place.have("old") == 0 && (0..all).all(is_moved) && shown == all
        },
    },
    Operation {
        name: "rename of a folder on each branch over an empty one",
        prepare: |place| {
            place.each(|index, folder| {
                fs::create_dir(folder.join("old"))?;
                fs::create_dir(folder.join("new"))?;
                fs::write(folder.join(format!("old/{index}")), b"x")
            })
        },
        call: |folder| fs::rename(folder.join("old"), folder.join("new")),
        check: |place| {
            let shown = fs::read_dir(place.above.join("new")).map_or(0, Iterator::count);
            place.have("old") == 0 && shown == place.below.len()
        },
    },
    Operation {
        name: "rename of a file on two branches over those of two",
        prepare: |place| {
            place.each(|index, folder| {
                if index > 0 {
                    fs::write(folder.join("old"), b"old")?;
                }
                if index < 2 { fs::write(folder.join("new"), b"new") } else { Ok(()) }
            })
        },
        call: |folder| fs::rename(folder.join("old"), folder.join("new")),
        check: |place| {
            place.have("old") == 0
                && place.have("new") == 2
                && place.count(|folder| is(&folder.join("new"), b"old")) == 2
                && is(&place.above.join("new"), b"old")
        },
    },
    Operation {
        name: "rename of a file over those of two branches, which the last one refuses",
        prepare: |place| {
            place.each(|index, folder| {
                fs::write(folder.join("old"), b"old")?;
                if index < 2 { fs::write(folder.join("new"), b"new") } else { set_immutable(folder, true) }
            })
        },
        call: |folder| match fs::rename(folder.join("old"), folder.join("new")) {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => Ok(()),
            other => other.and(Err(io::Error::other("it was done"))),
        },
        check: |place| {
            place.count(|folder| is(&folder.join("old"), b"old")) == 3
                && place.have("new") == 2
                && place.count(|folder| is(&folder.join("new"), b"new")) == 2
                && is(&place.above.join("old"), b"old")
                && is(&place.above.join("new"), b"new")
        },
    },
    Operation {
        name: "open(O_CREAT | O_EXCL) in a folder of one branch",
        prepare: |place| make_mine(&place.first().join("inner")),
        call: |folder| File::options().write(true).create_new(true).open(folder.join("inner/new")).map(drop),
        check: |place| {
            place.is_once("inner/new", |path| is(path, b""))
                && place.count(|folder| is_mine(&folder.join("inner"))) == place.have("inner")
        },
    },
    Operation {
        name: "mkdir in a folder of one branch",
        prepare: |place| make_mine(&place.first().join("inner")),
        call: |folder| fs::create_dir(folder.join("inner/new")),
        check: |place| {
            place.is_once("inner/new", Path::is_dir)
                && place.count(|folder| is_mine(&folder.join("inner"))) == place.have("inner")
        },
    },
    Operation {
        name: "link into a folder of another branch",
        prepare: |place| {
            make_mine(&place.first().join("inner"))?;
            fs::write(place.below[1].join("old"), b"old")
        },
        call: |folder| fs::hard_link(folder.join("old"), folder.join("inner/new")),
        check: |place| {
            let links = fs::metadata(place.below[1].join("inner/new")).map_or(0, |found| found.nlink());
            place.is_once("inner/new", |path| is(path, b"old"))
                && links == 2
                && is_mine(&place.below[1].join("inner"))
        },
    },
];

/// Of a pool whose first branch is a small file system.
const FULL: [Operation; 1] = [Operation {
    name: "full: a write that moves its file to another branch, and one more",
    prepare: |place| {
        let (top, old) = (place.first().parent().expect("is on a branch"), place.first().join("old"));
        let _none_at_first = fs::remove_file(top.join("filler"));
        fs::write(old, vec![b'o'; PIECE])?;
        match fs::write(top.join("filler"), vec![0; SMALL]) {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => Ok(()),
            filled => filled.and(Err(io::Error::other("it is not full"))),
        }
    },
    call: |folder| {
        let file = File::options().read(true).write(true).open(folder.join("old"))?;
        file.write_all_at(&[b'n'; PIECE], PIECE as u64)?;
        // By the same open file, wherever it is by now.
        file.write_all_at(&[b'm'; PIECE], 2 * PIECE as u64)?;
        let mut found = vec![0; 3 * PIECE];
        file.read_exact_at(&mut found, 0)?;
        if found == grown() { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
    },
    check: |place| {
        // Whichever servers had known it.
        let is_moved = is_there(&place.below[1].join("old")) || is_there(&place.below[2].join("old"));
        is_moved && place.is_once("old", |path| is(path, &grown())) && is(&place.above.join("old"), &grown())
    },
}];

fn grown() -> Vec<u8> {
    [[b'o'; PIECE], [b'n'; PIECE], [b'm'; PIECE]].concat()
}

const PIECE: usize = 16 << 10;
const SMALL: usize = 8 << 20;

/// A small file system, where a folder is.
struct Small(PathBuf);

impl Small {
    fn mount(folder: &Path) -> Self {
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={SMALL},mode=755"), "none"]).arg(folder);
        assert!(mount.status().expect("starts").success());
        Self(folder.to_owned())
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _best_effort = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Of names on two or more branches, under rules: what somebody else sees afterwards is what the rules say of the new names, and of these alone.
const RULED: [Operation; 9] = [
    Operation {
        name: "ruled: rename of a file on two branches into a denied folder",
        prepare: |place| {
            place.each(|index, folder| {
                fs::create_dir(folder.join("denied"))?;
                if index < 2 { fs::write(folder.join("old"), b"old") } else { Ok(()) }
            })
        },
        call: |folder| {
            fs::read(folder.join("old"))?;
            fs::rename(folder.join("old"), folder.join("denied/new"))
        },
        check: |place| {
            place.have("old") == 0 && place.have("denied/new") == 2 && place.is_denied("denied/new")
        },
    },
    Operation {
        name: "ruled: rename of a file on two branches out of a denied folder",
        prepare: |place| {
            place.each(|index, folder| {
                fs::create_dir(folder.join("denied"))?;
                if index < 2 { fs::write(folder.join("denied/old"), b"old") } else { Ok(()) }
            })
        },
        call: |folder| {
            fs::read(folder.join("denied/old"))?;
            fs::rename(folder.join("denied/old"), folder.join("new"))
        },
        check: |place| {
            place.have("denied/old") == 0 && place.have("new") == 2 && place.is_free("new", b"old")
        },
    },
    Operation {
        name: "ruled: rename of a file on two branches to a log",
        prepare: |place| {
            place.each(|index, folder| if index < 2 { fs::write(folder.join("old"), b"old") } else { Ok(()) })
        },
        call: |folder| fs::rename(folder.join("old"), folder.join("log")),
        check: |place| {
            let cut = File::options().write(true).open(place.above.join("log"));
            place.have("old") == 0 && place.have("log") == 2 && cut.is_err()
        },
    },
    Operation {
        name: "ruled: rename of a folder on each branch into a denied one",
        prepare: |place| {
            place.each(|index, folder| {
                fs::create_dir(folder.join("denied"))?;
                fs::create_dir_all(folder.join("old/inner"))?;
                fs::write(folder.join(format!("old/inner/{index}")), b"x")
            })
        },
        call: |folder| {
            fs::read(folder.join("old/inner/1"))?;
            fs::rename(folder.join("old"), folder.join("denied/new"))
        },
        check: |place| {
            let all = ["denied/new/inner/0", "denied/new/inner/1", "denied/new/inner/2"];
            place.have("old") == 0 && all.iter().all(|name| place.is_denied(name))
        },
    },
    Operation {
        name: "ruled: rename of a folder on each branch out of a denied one",
        prepare: |place| {
            place.each(|index, folder| {
                fs::create_dir_all(folder.join("denied/old/inner"))?;
                fs::write(folder.join(format!("denied/old/inner/{index}")), b"x")
            })
        },
        call: |folder| {
            fs::read(folder.join("denied/old/inner/1"))?;
            fs::rename(folder.join("denied/old"), folder.join("new"))
        },
        check: |place| {
            let all = ["new/inner/0", "new/inner/1", "new/inner/2"];
            place.have("denied/old") == 0 && all.iter().all(|name| place.is_free(name, b"x"))
        },
    },
    Operation {
        name: "ruled: an exchange of two folders",
        prepare: |place| {
            ["denied/one", "two/two"].iter().try_for_each(|name| {
                let path = place.first().join(name);
                path.parent().map_or(Ok(()), fs::create_dir)?;
                fs::write(path, b"x")
            })
        },
        call: |folder| {
            ["denied/one", "two/two"].iter().try_for_each(|name| fs::read(folder.join(name)).map(drop))?;
            let folder = File::open(folder)?;
            Ok(rename_at(&folder, c"denied", &folder, c"two", libc::RENAME_EXCHANGE)?)
        },
        check: |place| place.is_denied("denied/two") && place.is_free("two/one", b"x"),
    },
    Operation {
        name: "ruled: an exchange of two files",
        prepare: |place| {
            ["denied", "two"].iter().try_for_each(|name| fs::write(place.first().join(name), name))
        },
        call: |folder| {
            ["denied", "two"].iter().try_for_each(|name| fs::read(folder.join(name)).map(drop))?;
            let folder = File::open(folder)?;
            Ok(rename_at(&folder, c"denied", &folder, c"two", libc::RENAME_EXCHANGE)?)
        },
        check: |place| place.is_denied("denied") && place.is_free("two", b"denied"),
    },
    Operation {
        name: "ruled: link to a name that its maker cannot read",
        prepare: |place| fs::write(place.below[1].join("old"), b"old"),
        call: |folder| {
            fs::read(folder.join("old"))?;
            fs::hard_link(folder.join("old"), folder.join("unread"))
        },
        check: |place| {
            // By the strictest of its names.
            place.have("unread") == 1
                && fs::read(place.above.join("old")).is_err()
                && place.is_free("old", b"old")
        },
    },
    Operation {
        name: "ruled: unlink of the denied one of two names",
        prepare: |place| fs::write(place.below[1].join("denied"), b"old"),
        call: |folder| {
            // Not below, where nobody would know of it.
            fs::hard_link(folder.join("denied"), folder.join("free"))?;
            fs::remove_file(folder.join("denied"))
        },
        check: |place| place.have("denied") == 0 && place.is_free("free", b"old"),
    },
];

/// Has the pool above a folder change its branches, by its control file.
fn set_branches(folder: &Path, value: &str) -> io::Result<()> {
    let file = control_of(folder)?;
    Ok(set_xattr(&file, c"user.mergerfs.branches", value.as_bytes(), 0)?)
}

fn control_of(folder: &Path) -> io::Result<OwnedFd> {
    Ok(open_path_at(File::open(folder.parent().expect("is in the pool"))?, c".mergerfs")?)
}

/// Its branches.
fn branches_of(folder: &Path) -> io::Result<Vec<String>> {
    let (file, mut text) = (control_of(folder)?, [0; 4096]);
    let len = get_xattr(&file, c"user.mergerfs.srcmounts", &mut text)?;
    Ok(String::from_utf8_lossy(&text[..len]).split(':').map(str::to_owned).collect())
}

/// Makes a folder that tells itself from one that is not finished: by its mode, its owner and its time.
fn make_mine(path: &Path) -> io::Result<()> {
    fs::create_dir(path)?;
    chown(path, Some(1234), Some(1235))?;
    fs::set_permissions(path, Permissions::from_mode(0o751))
}

fn is_mine(path: &Path) -> bool {
    fs::metadata(path)
        .is_ok_and(|found| found.mode() & 0o7777 == 0o751 && (found.uid(), found.gid()) == (1234, 1235))
}

/// Whether names in a folder below stay as they are.
fn set_immutable(folder: &Path, is_immutable: bool) -> io::Result<()> {
    let mut chattr = std::process::Command::new("chattr");
    let status = chattr.arg(if is_immutable { "+i" } else { "-i" }).arg(folder).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other("chattr failed")) }
}

/// Has names below be changed again, whatever an operation has prepared.
struct Unlocked<'p>(&'p Place);

impl Drop for Unlocked<'_> {
    fn drop(&mut self) {
        let _best_effort = self.0.each(|_, folder| set_immutable(folder, false));
    }
}

/// Whether it got so far that the server was killed.
fn at_point(kept: &Kept, shown: &[PathBuf], operation: &Operation, point: usize) -> bool {
    let name = format!("{point}");
    let below: Vec<PathBuf> = shown.iter().map(|folder| folder.join(&name)).collect();
    let place = Place { above: kept.path().join(&name), below };
    place.each(|_, folder| fs::create_dir(folder)).expect("makes a folder");
    let _unlocked = operation.name.ends_with("refuses").then(|| Unlocked(&place));
    (operation.prepare)(&place).expect("is prepared");
    let above = place.above.clone();
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
    let lists = || place.below.iter().map(|folder| list(folder)).collect::<Vec<_>>();
    let is_right = (operation.check)(&place);
    assert!(is_right, "{}, killed at stop {point}: {:?}\n{}", operation.name, lists(), kept.said());
    is_killed
}

/// What is in a folder, and in the folders in it.
fn list(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.flat_map(|path| [vec![path.clone()], list(&path)].concat()).collect()
}

#[test]
fn privileged_a_server_may_be_killed_at_every_system_call() {
    if !can_mount() {
        return;
    }
    let stride = std::env::var("SHUNTFS_POINTS_STRIDE").ok().and_then(|stride| stride.parse().ok());
    let is_ruled = env!("CARGO_CRATE_NAME").contains("ruled");
    let (mut kills, stride) = (0, stride.unwrap_or(if is_ruled { STRIDE_RULED } else { STRIDE }));
    let lives = LIVES * u32::try_from(STRIDE / stride.min(STRIDE)).expect("is small");
    let only = std::env::var("SHUNTFS_POINTS_ONLY").unwrap_or_default();
    for operation in OPERATIONS
        .iter()
        .chain(&MERGED)
        .chain(&RULED)
        .chain(&FULL)
        .filter(|operation| operation.name.contains(&only))
    {
        let source = tempfile::tempdir().expect("a folder");
        let (shown, below) = lower_folders(source.path());
        if below.len() == 1 && MERGED.iter().any(|merged| merged.name == operation.name) {
            continue;
        }
        let rules = ruled(source.path());
        let is_full = env!("CARGO_CRATE_NAME").contains("full");
        if is_full != (operation.name == FULL[0].name)
            || rules.is_empty() && RULED.iter().any(|ruled| ruled.name == operation.name)
        {
            continue;
        }
        let _small = is_full.then(|| Small::mount(&below[0]));
        // What is in passthrough is not moved.
        let rules = if is_full { vec!["served".to_owned()] } else { rules };
        let words: Vec<&str> =
            [&*shown, "device", "1000"].into_iter().chain(rules.iter().map(|word| &**word)).collect();
        let Some(kept) = Kept::start_of(with_state(), &words, lives, |_| ()) else {
            return;
        };
        wait_until("a mount that is served", || fs::metadata(kept.path()).ok());
        let all = (1..POINTS_MAX).step_by(stride);
        let points = all.take_while(|point| at_point(&kept, &below, operation, *point)).count();
        println!("{}: killed at {points} points", operation.name);
        assert!(points > 2 && points < POINTS_MAX / stride, "{}: {points} points", operation.name);
        kills += points;
    }
    println!("{kills} kills");
}
