//! When reading through a pool sets the time of access below (`noatime`, `relatime`, `strictatime`, `nodiratime`). Needs root and
//! /dev/fuse.
#![expect(clippy::unwrap_used, reason = "also the helpers of tests report by panic")]

mod mounted;

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_OMIT, utimensat};
use shuntfs::{MountOptions, SessionOptions, Transport, TransportKind};
use shuntfs_pool::{AccessTime, AccessTimes, FlowWish, Pool, PoolOptions};
use shuntfs_testkit::lower::{Lower, LowerKind};
use shuntfs_testkit::mounted::enable_uring;
use shuntfs_testkit::skipped;

use mounted::Mounted;
use mounted::bound::Bound;
use mounted::handles::fd_path;

const HOUR: Duration = Duration::from_secs(3600);

/// What is read: in the source, and on a file system that is mounted in it.
const READ: [(&str, bool); 8] = [
    ("", true),
    ("folder", true),
    ("file", false),
    ("program", false),
    ("link", false),
    ("other", true),
    ("other/file", false),
    ("other/link", false),
];

fn mount(root: &Path, kind: TransportKind, flow: FlowWish, access_times: AccessTimes) -> Mounted {
    let pool = Pool::open(&PoolOptions { flow, access_times, ..PoolOptions::new(root) }).unwrap();
    let how = MountOptions { nosuid: false, ..MountOptions::default() };
    let options = SessionOptions { transport: Transport::Only(kind), depth: 4, ..SessionOptions::default() };
    Mounted::with(pool, Vec::new(), &how, &options).unwrap()
}

fn set_accessed(path: &Path, time: SystemTime) {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let spec = |tv_nsec| Timespec { tv_sec: since.as_secs().try_into().unwrap(), tv_nsec };
    let times = Timestamps { last_access: spec(0), last_modification: spec(UTIME_OMIT) };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// Reads it as what it is.
fn read(path: &Path) {
    if path.ends_with("program") {
        assert!(Command::new(path).status().unwrap().success());
    } else if path.is_symlink() {
        fs::read_link(path).unwrap();
    } else if path.is_dir() {
        assert!(fs::read_dir(path).unwrap().count() > 0);
    } else {
        assert_eq!(fs::read(path).unwrap(), b"read");
    }
}

/// Which of [`READ`] get another time of access than this one when they are read through a mount.
fn touched(root: &Path, mnt: &Path, accessed: SystemTime) -> Vec<&'static str> {
    for (name, _) in READ {
        set_accessed(&root.join(name), accessed);
    }
    let time_of = |name: &str| fs::symlink_metadata(root.join(name)).unwrap().atime();
    let times: Vec<_> = READ.iter().map(|(name, _)| time_of(name)).collect();
    READ.iter().for_each(|(name, _)| read(&mnt.join(name)));
    let is_touched = |&(index, name): &(usize, &str)| time_of(name) != times[index];
    let names = READ.iter().map(|(name, _)| *name).enumerate();
    names.filter(is_touched).map(|(_, name)| name).collect()
}

fn make(root: &Path) {
    for folder in ["folder", "other"] {
        fs::create_dir_all(root.join(folder)).unwrap();
        fs::write(root.join(folder).join("name"), "").unwrap();
    }
    for folder in ["", "other"] {
        fs::write(root.join(folder).join("file"), "read").unwrap();
        symlink("file", root.join(folder).join("link")).unwrap();
    }
    fs::copy("/bin/true", root.join("program")).unwrap();
}

#[test]
fn reading_sets_the_time_of_access_as_the_mount_was_asked() {
    if fs::metadata("/dev/fuse").is_err() {
        skipped("there is no /dev/fuse");
        return;
    }
    use AccessTime::{Never, Relative, Strict};
    let times = |kept, not_of_folders| AccessTimes { kept, not_of_folders };
    let all: Vec<_> = READ.iter().map(|(name, _)| *name).collect();
    let files: Vec<_> = READ.iter().filter(|(_, is_folder)| !is_folder).map(|(name, _)| *name).collect();
    let none = Vec::new();
    for (kind, flow) in [
        (TransportKind::Device, FlowWish::Passthrough),
        (TransportKind::Cloned, FlowWish::Relay),
        (TransportKind::Uring, FlowWish::Passthrough),
        (TransportKind::Uring, FlowWish::Served),
    ] {
        if kind == TransportKind::Uring && !enable_uring() {
            skipped("FUSE over io_uring cannot be turned on");
            continue;
        }
        let Some(lower) = Lower::make(LowerKind::Ext4).unwrap() else { return };
        let Some(other) = Lower::make(LowerKind::Tmpfs).unwrap() else { return };
        let root = lower.folder("tree").unwrap();
        fs::create_dir(root.join("other")).unwrap();
        let bound = Bound::new(other.path(), root.join("other"));
        make(&root);
        // Before the last change of attributes, and after it: `relatime`, which the lower mounts have, tells these apart.
        for (asked, old, young) in [
            (times(None, false), &all, &none),
            (times(Some(Relative), false), &all, &none),
            (times(Some(Never), false), &none, &none),
            (times(Some(Strict), false), &all, &all),
            (times(None, true), &files, &none),
            (times(Some(Strict), true), &files, &files),
        ] {
            let now = SystemTime::now();
            for (accessed, expected) in [(now - HOUR, old), (now + HOUR, young)] {
                // Anew, so that nothing is read from the kernel's caches.
                let mounted = mount(&root, kind, flow, asked);
                let seen = touched(&root, mounted.top.path(), accessed);
                assert_eq!(&seen, expected, "{kind}, {flow:?}, {asked:?}, {accessed:?}");
            }
        }
        drop(bound);
    }
}

#[test]
fn a_file_without_a_name_is_opened_again() {
    if fs::metadata("/dev/fuse").is_err() {
        skipped("there is no /dev/fuse");
        return;
    }
    let never = AccessTimes { kept: Some(AccessTime::Never), not_of_folders: false };
    for kind in [LowerKind::Tmpfs, LowerKind::Ext4, LowerKind::Xfs, LowerKind::Btrfs] {
        let Some(lower) = Lower::make(kind).unwrap() else { continue };
        let root = lower.folder("tree").unwrap();
        for flow in [FlowWish::Passthrough, FlowWish::Served] {
            fs::write(root.join("file"), "read").unwrap();
            let mounted = mount(&root, TransportKind::Device, flow, never);
            let file = File::open(mounted.at("file")).unwrap();
            fs::remove_file(mounted.at("file")).unwrap();
            assert_eq!(fs::read(fd_path(&file)).unwrap(), b"read", "{kind}, {flow:?}");
        }
    }
}

/// A regression: what is opened through a mount of the pool's own was written, too, when the lower mount was read-only since.
#[test]
fn a_lower_mount_that_became_read_only_is_not_written() {
    if fs::metadata("/dev/fuse").is_err() {
        skipped("there is no /dev/fuse");
        return;
    }
    let never = AccessTimes { kept: Some(AccessTime::Never), not_of_folders: false };
    for flow in [FlowWish::Passthrough, FlowWish::Served] {
        let Some(lower) = Lower::make(LowerKind::Ext4).unwrap() else { return };
        let bound = tempfile::tempdir().unwrap();
        let bound_at = Bound::new(lower.path(), bound.path());
        fs::write(bound.path().join("file"), "read").unwrap();
        let mounted = mount(bound.path(), TransportKind::Device, flow, never);
        let file = mounted.at("file");
        assert_eq!(fs::read(&file).unwrap(), b"read");
        let remount = Command::new("mount").args(["-o", "remount,bind,ro"]).arg(bound.path()).status();
        assert!(remount.unwrap().success());
        assert!(fs::write(&file, "written").is_err(), "{flow:?}");
        assert_eq!(fs::read(lower.path().join("file")).unwrap(), b"read", "{flow:?}");
        drop(mounted);
        drop(bound_at);
    }
}
