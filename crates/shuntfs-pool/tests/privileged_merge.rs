//! Merges of several file systems, mounted for real. Needs root and /dev/fuse.
#![expect(clippy::unwrap_used, reason = "also the helpers of tests report by panic")]

mod mounted;

use std::fs;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::fs::{XattrFlags, lgetxattr, llistxattr, lsetxattr};
use rustix::io::Errno;
use shuntfs::{MountOptions, Opcode, SessionOptions};
use shuntfs_pool::{Cache, MergeOptions, Pool, PoolOptions};
use shuntfs_testkit::limit::wait_until;
use shuntfs_testkit::lower::LowerKind;
use shuntfs_testkit::program::{have, run};
use shuntfs_testkit::skipped;

use mounted::bound::Bound;
use mounted::{Mounted, disks, merge};

const LIMIT: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;
const ROFS: Option<i32> = Some(30);
const NOSPC: Option<i32> = Some(28);

/// On disks in memory of so many MiB; `None` where it cannot be had, and then the reason was said.
fn start(sizes: &[u64], create: &str, min_free: u64) -> Option<Mounted> {
    start_on(LowerKind::Tmpfs, Cache::None, sizes, create, min_free)
}

fn start_on(kind: LowerKind, cache: Cache, sizes: &[u64], create: &str, min_free: u64) -> Option<Mounted> {
    let disks = disks(kind, sizes)?;
    let merge = Some(MergeOptions { min_free, ..merge(&disks, create) });
    let pool = Pool::open(&PoolOptions { merge, cache, ..PoolOptions::new("disks") }).unwrap();
    // By its type the tools find it.
    let how = MountOptions { allow_other: true, subtype: "mergerfs".into(), ..MountOptions::default() };
    let defaults = SessionOptions::default();
    let backing_ids_kept = if cache == Cache::None { 0 } else { defaults.backing_ids_kept };
    Mounted::with(pool, disks, &how, &SessionOptions { backing_ids_kept, ..defaults })
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn disks_that_are_full_or_read_only_get_nothing_new() {
    let Some(mounted) = start(&[64, 64, 48], "mfs", 32 * MIB) else { return };
    fs::write(mounted.below(0, "filler"), vec![0; 40 << 20]).unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    fs::write(mounted.at("first"), "first").unwrap();
    assert_eq!(mounted.on("first"), [1], "the fullest gets nothing");
    mounted.disks[1].remount(true).unwrap();
    // Nobody has told the pool: the creation meets it, and goes to another disk.
    fs::create_dir(mounted.at("folder")).unwrap();
    fs::write(mounted.at("second"), "second").unwrap();
    assert_eq!((mounted.on("folder"), mounted.on("second")), (vec![2], vec![2]));
    assert_eq!(fs::read_to_string(mounted.at("first")).unwrap(), "first");
    assert_eq!(fs::remove_file(mounted.at("first")).unwrap_err().raw_os_error(), ROFS);
    assert_eq!(fs::write(mounted.at("first"), "").unwrap_err().raw_os_error(), ROFS);
    fs::write(mounted.below(2, "filler"), vec![0; 30 << 20]).unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    let refused = fs::write(mounted.at("third"), "").unwrap_err().raw_os_error();
    assert!([NOSPC, ROFS].contains(&refused), "{refused:?}");
    fs::write(mounted.at("folder/../second"), "still").unwrap();
    assert_eq!(names(&mounted.at("")), ["filler", "first", "folder", "second"]);
}

/// A rename of what is at one place on two branches was done twice, which undid it, and then took the content away.
#[test]
fn folders_that_branches_share_lose_nothing() {
    let Some(mounted) = start(&[16, 16], "ff", 0) else { return };
    fs::create_dir(mounted.below(0, "s")).unwrap();
    fs::create_dir(mounted.below(1, "s")).unwrap();
    let _shared = Bound::new(&mounted.below(0, "s"), mounted.below(1, "s"));
    fs::write(mounted.below(0, "s/f"), "new").unwrap();
    fs::write(mounted.below(0, "s/g"), "old").unwrap();
    fs::rename(mounted.at("s/f"), mounted.at("s/g")).unwrap();
    assert_eq!(fs::read_to_string(mounted.at("s/g")).unwrap(), "new");
    fs::rename(mounted.at("s/g"), mounted.at("s/h")).unwrap();
    assert_eq!(names(&mounted.at("s")), ["h"]);
    fs::create_dir(mounted.at("s/d")).unwrap();
    fs::remove_dir(mounted.at("s/d")).unwrap();
    fs::remove_file(mounted.at("s/h")).unwrap();
}

#[test]
fn bytes_of_every_branch_pass_through() {
    let Some(mounted) = start(&[64, 64], "ff", 0) else { return };
    if let Some(reason) = mounted.session.status().negotiated.passthrough_off {
        skipped(&format!("no passthrough: {reason}"));
        return;
    }
    for disk in [0, 1] {
        fs::write(mounted.below(disk, &format!("file-{disk}")), vec![7; 300_000]).unwrap();
        let path = mounted.at(&format!("file-{disk}"));
        assert_eq!(fs::read(&path).unwrap(), vec![7; 300_000]);
        let mut file = fs::File::options().append(true).open(&path).unwrap();
        file.write_all(b"more").unwrap();
        assert_eq!(fs::metadata(mounted.below(disk, &format!("file-{disk}"))).unwrap().len(), 300_004);
    }
    let status = mounted.session.status();
    assert_eq!((status.requests(Opcode::Read), status.requests(Opcode::Write)), (0, 0));
}

/// What the server makes for a caller, the path included, has the owners that it should.
#[test]
fn what_users_make_is_theirs_on_whatever_branch() {
    const USER: u32 = 71_001;
    let Some(mounted) = start(&[64, 64], "ff", 0) else { return };
    fs::set_permissions(mounted.top.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let home = mounted.below(1, "home/user");
    fs::create_dir_all(&home).unwrap();
    chown(&home, Some(USER), Some(USER)).unwrap();
    fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).unwrap();
    let as_user = |script: &str| {
        let words = [format!("--reuid={USER}"), format!("--regid={USER}"), "--clear-groups".into()];
        let mut command = Command::new("setpriv");
        command.args(words).args(["sh", "-ec", script, "sh"]).arg(mounted.at("home"));
        command.status().unwrap().success()
    };
    assert!(as_user("cd \"$1/user\"; umask 027; mkdir d; echo x > d/f; ln d/f g; mv d/f h"));
    assert_eq!(mounted.on("home/user/h"), [0]);
    for (path, mode) in [("home/user", 0o700), ("home/user/d", 0o750), ("home/user/h", 0o640)] {
        let found = fs::metadata(mounted.below(0, path)).unwrap();
        assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), (USER, USER, mode), "{path}");
    }
    let home = fs::metadata(mounted.below(0, "home")).unwrap();
    assert_eq!(
        (home.uid(), home.mode() & 0o7777),
        (0, fs::metadata(mounted.below(1, "home")).unwrap().mode() & 0o7777)
    );
    assert!(!as_user("mkdir \"$1/other\" 2>/dev/null"), "it is not the user's folder");
    assert!(mounted.on("home/other").is_empty());
}

/// The numbers of "." and, at the top, of ".." were changed twice.
#[test]
fn a_folder_lists_itself_with_its_own_number() {
    let Some(mounted) = start(&[16, 16], "ff", 0) else { return };
    fs::create_dir(mounted.at("folder")).unwrap();
    for path in ["", "folder"] {
        let folder = fs::File::open(mounted.at(path)).unwrap();
        let mut entries = rustix::fs::Dir::read_from(&folder).unwrap().map(Result::unwrap);
        let itself = entries.find(|entry| entry.file_name() == c".").unwrap();
        assert_eq!(itself.ino(), fs::metadata(mounted.at(path)).unwrap().ino(), "{path:?}");
    }
}

#[test]
fn large_folders_are_listed_and_removed_through_the_kernel() {
    let Some(mounted) = start(&[64, 64, 64], "rand", 0) else { return };
    fs::create_dir(mounted.at("many")).unwrap();
    let mut expected: Vec<String> =
        (0..3000).map(|number| format!("a name of some length {number}")).collect();
    for name in &expected {
        fs::write(mounted.at("many").join(name), "").unwrap();
    }
    expected.sort();
    assert_eq!(mounted.on("many"), [0, 1, 2]);
    assert_eq!(names(&mounted.at("many")), expected);
    // As rm does: it lists and removes in turns.
    fs::remove_dir_all(mounted.at("many")).unwrap();
    assert!(mounted.on("many").is_empty());
}

/// The kernel kept the listing of one open folder. When somebody else listed the folder, which had changed, it dropped that and went on in another
/// open one by a cookie of it: as many names were left out there as had been removed.
#[test]
fn a_folder_is_emptied_by_a_listing_while_others_list_it() {
    for cache in [Cache::Default, Cache::Second, Cache::None] {
        let Some(mounted) = start_on(LowerKind::Tmpfs, cache, &[64, 64, 64], "rand", 0) else {
            return;
        };
        let many = mounted.at("many");
        fs::create_dir(&many).unwrap();
        for number in 0..3000 {
            fs::write(many.join(format!("a name of some length {number}")), "").unwrap();
        }
        assert_eq!(names(&many).len(), 3000);
        for (count, entry) in fs::read_dir(&many).unwrap().enumerate() {
            fs::remove_file(entry.unwrap().path()).unwrap();
            if count % 100 == 0 {
                assert!(fs::read_dir(&many).unwrap().next().is_some());
            }
        }
        assert_eq!(names(&many), [""; 0], "{cache:?}");
        fs::remove_dir(&many).unwrap();
    }
}

/// It is not looked up again, and failed as a whole.
#[test]
fn a_folder_that_is_held_open_goes_on_where_it_was_not_removed() {
    for cache in [Cache::Default, Cache::None] {
        let Some(mounted) = start_on(LowerKind::Tmpfs, cache, &[16, 16], "ff", 0) else { return };
        for (disk, path) in [(0, "x/first"), (1, "x/second")] {
            fs::create_dir(mounted.below(disk, "x")).unwrap();
            fs::write(mounted.below(disk, path), path).unwrap();
        }
        let held = fs::File::open(mounted.at("x")).unwrap();
        let folder = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
        fs::remove_dir_all(mounted.below(0, "x")).unwrap();
        assert_eq!(fs::read_to_string(folder.join("second")).unwrap(), "x/second");
        fs::write(folder.join("new"), "new").unwrap();
        assert_eq!((mounted.on("x/new"), names(&folder)), (vec![0], vec!["new".into(), "second".into()]));
    }
}

/// What `user.mergerfs.WHAT` says of a path.
fn asked(path: &Path, what: &str) -> Result<String, Errno> {
    let mut value = [0; 4096];
    let len = lgetxattr(path, format!("user.mergerfs.{what}"), &mut value)?;
    Ok(String::from_utf8(value[..len].to_vec()).unwrap())
}

impl Mounted {
    /// What is asked of a path: the disk where it is shown, its path in the mount, and the disks that have it.
    fn places(&self, path: &str) -> Result<(usize, String, Vec<usize>), Errno> {
        let at = self.at(path);
        let disk = |base: &str| {
            self.disks.iter().position(|disk| disk.path().canonicalize().unwrap() == Path::new(base))
        };
        let (base, relative) = (asked(&at, "basepath")?, asked(&at, "relpath")?);
        assert_eq!(asked(&at, "fullpath")?, format!("{base}{relative}"));
        let all = asked(&at, "allpaths")?;
        let all = all.split('\0').map(|full| disk(full.strip_suffix(&relative).unwrap()).unwrap());
        Ok((disk(&base).unwrap(), relative.clone(), all.collect()))
    }
}

/// What mergerfs-tools ask, and what they go by.
#[test]
fn places_and_settings_are_asked_through_the_kernel() {
    let Some(mounted) = start(&[64, 64, 64], "ff", 0) else { return };
    for (disk, path) in [(0, "d/both"), (1, "d/both"), (2, "d/e/last")] {
        fs::create_dir_all(mounted.below(disk, path).parent().unwrap()).unwrap();
        fs::write(mounted.below(disk, path), path).unwrap();
    }
    assert_eq!(mounted.places(""), Ok((0, "/".into(), vec![0, 1, 2])));
    assert_eq!(mounted.places("d"), Ok((0, "/d".into(), vec![0, 1, 2])));
    assert_eq!(mounted.places("d/both"), Ok((0, "/d/both".into(), vec![0, 1])));
    assert_eq!(mounted.places("d/e/last"), Ok((2, "/d/e/last".into(), vec![2])));
    fs::hard_link(mounted.at("d/e/last"), mounted.at("d/other")).unwrap();
    for name in ["d/e/last", "d/other", "d/e/last"] {
        assert_eq!(mounted.places(name), Ok((2, format!("/{name}"), vec![2])));
    }
    // What is done below is known at the next question.
    fs::rename(mounted.below(0, "d/both"), mounted.below(0, "d/moved")).unwrap();
    assert_eq!(mounted.places("d/both"), Ok((1, "/d/both".into(), vec![1])));
    assert_eq!(mounted.places("d/moved"), Ok((0, "/d/moved".into(), vec![0])));
    std::os::unix::fs::symlink("both", mounted.at("d/link")).unwrap();
    assert_eq!(mounted.places("d/link"), Err(Errno::NODATA), "the kernel asks nobody");
    // A length that is too small is told, and then asked with more room.
    assert_eq!(lgetxattr(mounted.at("d"), "user.mergerfs.allpaths", &mut [0; 3]), Err(Errno::RANGE));

    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let own = mounts.lines().find(|line| line.contains(mounted.top.path().to_str().unwrap())).unwrap();
    assert!(own.contains(" - fuse.mergerfs "), "{own}");
    assert!(names(&mounted.at("")) == ["d"] && mounted.at(".mergerfs").exists());
    let control = mounted.at(".mergerfs");
    let mut keys = [0; 4096];
    let len = llistxattr(&control, &mut keys).unwrap();
    let keys = std::str::from_utf8(&keys[..len]).unwrap().split_terminator('\0');
    let values: Vec<_> =
        keys.map(|key| asked(&control, key.strip_prefix("user.mergerfs.").unwrap()).unwrap()).collect();
    assert_eq!(values.len(), 16);
    let sources = asked(&control, "srcmounts").unwrap();
    assert_eq!(sources.split(':').count(), 3);
    assert!(sources.split(':').all(|path| Path::new(path).is_dir()));
    let create = "user.mergerfs.category.create";
    let set = |value: &str| lsetxattr(&control, create, value.as_bytes(), XattrFlags::empty());
    assert_eq!((set("nothing"), set("mspmfs")), (Err(Errno::INVAL), Ok(())));
    assert_eq!(asked(&control, "category.create").unwrap(), "mspmfs");
    let branches =
        |value: String| lsetxattr(&control, "user.mergerfs.branches", value.as_bytes(), XattrFlags::empty());
    let last = mounted.disks[2].path().to_str().unwrap();
    assert_eq!((branches(format!("-{last}")), mounted.at("d/other").exists()), (Ok(()), false));
    // Of this very mount it is asked, and refused.
    assert!(branches(format!("+{}", mounted.top.path().to_str().unwrap())).is_err());
    assert_eq!((branches(format!("+{last}")), mounted.at("d/other").exists()), (Ok(()), true));
    assert_eq!(fs::read(&control).unwrap_err().raw_os_error(), Some(1));
    assert_eq!(fs::remove_file(&control).unwrap_err().raw_os_error(), Some(1));
}

/// Whoever can read the settings cannot change them for it.
#[test]
fn users_read_settings_and_change_none() {
    if !have(&["setpriv", "setfattr", "getfattr"]) {
        return;
    }
    let Some(mounted) = start(&[64], "ff", 0) else { return };
    fs::set_permissions(mounted.top.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let as_user = |group: u32, words: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=71001", &format!("--regid={group}"), "--clear-groups"]);
        run(command.args(words).arg(mounted.at(".mergerfs")), LIMIT).unwrap().status.success()
    };
    let name = "user.mergerfs.category.create";
    for group in [71_001, 0] {
        assert!(as_user(group, &["getfattr", "-n", name]));
        for (name, value) in
            [(name, "mfs"), ("user.mergerfs.minfreespace", "1T"), ("user.mergerfs.branches", "-/")]
        {
            assert!(!as_user(group, &["setfattr", "-n", name, "-v", value]), "{name}");
        }
        assert!(!as_user(group, &["chmod", "666"]) && !as_user(group, &["chown", "71001"]));
        assert!(!as_user(group, &["rm", "-f"]) && !as_user(group, &["mv", "-T", "/dev/null"]));
    }
    assert_eq!(asked(&mounted.at(".mergerfs"), "category.create").unwrap(), "ff");
    assert_eq!(asked(&mounted.at(".mergerfs"), "minfreespace").unwrap(), "0");
}

/// The file system below may have forgotten every name of a file that the mount's kernel knows. Then the path is looked up again.
#[test]
fn names_that_are_not_known_below_are_looked_up_again() {
    let Some(mounted) = start_on(LowerKind::Ext4, Cache::Default, &[64, 64], "ff", 0) else {
        return;
    };
    fs::create_dir(mounted.below(1, "d")).unwrap();
    fs::write(mounted.below(1, "d/f"), "f").unwrap();
    // This keeps the names here, and nothing below.
    let held = fs::File::options().read(true).custom_flags(0o10_000_000).open(mounted.at("d/f")).unwrap();
    // A remount makes the file system forget names that nobody holds.
    mounted.disks[1].remount(false).unwrap();
    let before = mounted.session.status().requests(Opcode::Lookup);
    assert_eq!(mounted.places("d/f"), Ok((1, "/d/f".into(), vec![1])));
    let looked = mounted.session.status().requests(Opcode::Lookup) - before;
    assert!(looked > 0, "the kernel was told to look again");
    drop(held);
}

/// Tools level disks by moving files below, and look how full they are after each.
#[test]
fn what_is_removed_below_frees_its_space_at_once() {
    let Some(mounted) = start(&[64], "ff", 0) else { return };
    let free = || rustix::fs::statvfs(mounted.disks[0].path()).unwrap().f_bavail;
    let before = free();
    for name in ["read", "made"] {
        fs::write(mounted.below(0, "read"), vec![1; 4 << 20]).unwrap();
        fs::write(mounted.at("made"), vec![1; 4 << 20]).unwrap();
        assert_eq!(fs::read(mounted.at(name)).unwrap().len(), 4 << 20);
        assert!(fs::metadata(mounted.at(name)).is_ok() && asked(&mounted.at(name), "allpaths").is_ok());
        for name in ["read", "made"] {
            fs::remove_file(mounted.below(0, name)).unwrap();
        }
        // A close is told after it.
        assert!(wait_until(Duration::from_secs(10), || free() == before), "{} of {before}", free());
    }
}

/// mergerfs-tools as they are. `SHUNTFS_MERGERFS_TOOLS` names the folder that has them.
#[test]
fn the_tools_of_mergerfs_run_unmodified() {
    let Some(tools) = std::env::var_os("SHUNTFS_MERGERFS_TOOLS").map(PathBuf::from) else {
        skipped("SHUNTFS_MERGERFS_TOOLS does not name a folder of mergerfs-tools");
        return;
    };
    if !have(&["python3", "rsync"]) {
        return;
    }
    let Some(mounted) = start(&[64, 64, 64], "ff", 0) else { return };
    let top = mounted.top.path().to_str().unwrap();
    let call = |tool: &str, words: &[&str]| {
        let mut command = Command::new("python3");
        command.arg(tools.join(format!("mergerfs.{tool}"))).args(words);
        run(&mut command, LIMIT).unwrap().ok(tool).unwrap()
    };
    let ctl = |words: &[&str]| call("ctl", &[&["-m", top], words].concat());
    assert!(ctl(&["info"]).lines().filter(|line| line.starts_with("    - ")).count() == 3);
    assert!(ctl(&["list", "options"]).contains("user.mergerfs.category.create"));
    assert!(ctl(&["list", "values"]).contains("user.mergerfs.category.create: ff"));
    assert_eq!(ctl(&["set", "category.create", "mfs"]), "");
    assert!(ctl(&["get", "category.create"]).ends_with("user.mergerfs.category.create: mfs\n"));
    assert!(ctl(&["set", "category.create", "x"]).contains("Invalid argument"));
    let last = mounted.disks[2].path().to_str().unwrap();
    assert_eq!(ctl(&["remove", "path", last]), "");
    assert!(!ctl(&["info"]).contains(last));
    assert!(ctl(&["add", "path", "/nowhere"]).contains("No such file"));
    assert_eq!(ctl(&["add", "path", last]), "");

    fs::create_dir(mounted.below(0, "d")).unwrap();
    for number in 0..4 {
        fs::write(mounted.below(0, &format!("d/f{number}")), vec![b'x'; 6 << 20]).unwrap();
    }
    fs::hard_link(mounted.below(0, "d/f0"), mounted.below(0, "d/g0")).unwrap();
    let all = || -> Vec<Vec<usize>> {
        ["d/f0", "d/f1", "d/f2", "d/f3", "d/g0"].iter().map(|path| mounted.on(path)).collect()
    };
    call("dup", &["-c", "2", "-e", top]);
    assert!(all().iter().all(|on| on.len() == 2), "{:?}", all());
    // One copy is made different, and its owner's rights put right again.
    let copy = mounted.below(mounted.on("d/f1")[1], "d/f1");
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(call("fsck", &["-v", top]).contains(copy.to_str().unwrap()));
    call("fsck", &["-v", "-f", "newest", top]);
    assert!(!call("fsck", &["-v", top]).contains("f1"));
    call("dedup", &["-v", "-e", "-d", "mergerfs", top]);
    assert_eq!(all(), vec![vec![0]; 5], "what is shown is kept");
    // The names of one file are moved one by one, and the disks have the same then, as far as whole files go.
    call("balance", &["-p", "12", top]);
    assert!((1..3).all(|disk| names(&mounted.below(disk, "")).contains(&"d".into())), "{:?}", all());
    call("consolidate", &["-e", &format!("{top}/d")]);
    let after = all();
    assert!(after.iter().all(|on| on.len() == 1 && on == &after[0]), "{after:?}");
    for path in ["d/f0", "d/f1", "d/f2", "d/f3", "d/g0"] {
        assert_eq!(fs::read(mounted.at(path)).unwrap(), vec![b'x'; 6 << 20]);
    }
}
