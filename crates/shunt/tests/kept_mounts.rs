//! What is reached by no file handle of the folder's file system goes on to be used while servers are killed: what is on other file systems that are
//! mounted below it, and removed folders. Needs root and /dev/fuse.

mod common;

#[path = "../../shuntfs-keeper/tests/callers/mod.rs"]
#[expect(dead_code, reason = "nobody calls here")]
mod callers;
mod kept;

use std::fs::{self, File, OpenOptions};
use std::io::Read as _;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Room, SHUNT, can_mount, eventually, run};
use kept::{Kept, status};

/// Another file system, in memory, until this is dropped.
struct Other(PathBuf);

impl Other {
    fn at(path: PathBuf) -> Self {
        fs::create_dir(&path).expect("makes");
        run(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&path)).ok();
        Self(path)
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _best_effort = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Kills the server, and waits until the next one answers.
fn kill(kept: &Kept) {
    kept.kill();
    status(&kept.room);
}

/// A path that leads through an open folder, as from a working directory.
fn through(folder: &File, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd()))
}

/// How many descriptors of the keeper and its servers lead to what is below a path.
fn held_below(kept: &Kept, path: &Path) -> usize {
    let all = fs::read_dir(format!("/proc/{}/fd", kept.keeper)).expect("its table").flatten();
    all.filter(|entry| fs::read_link(entry.path()).is_ok_and(|link| link.starts_with(path))).count()
}

fn use_another_mount(kept: &Kept, above: &Path) {
    let shown = kept.room.mnt().join("other");
    fs::create_dir_all(shown.join("deep/folder")).expect("makes");
    fs::write(shown.join("file"), "of another").expect("writes");
    fs::write(shown.join("deep/folder/inside"), "inside").expect("writes");
    let held = held_below(kept, above);
    let folder = File::open(shown.join("deep/folder")).expect("opens");
    let file = OpenOptions::new().read(true).write(true).open(shown.join("file")).expect("opens");
    let before = (folder.metadata().expect("stats").ino(), file.metadata().expect("stats").ino());
    for round in 0..3 {
        kill(kept);
        // By what the kernel knows, and not by a name that it looks up again.
        assert_eq!(
            folder.metadata().expect("the folder is there").ino(),
            before.0,
            "{round}: {}",
            kept.log()
        );
        file.write_all_at(format!("{round}").as_bytes(), 0).expect("writes");
        file.set_len(1).expect("cuts");
        assert_eq!(file.metadata().expect("the file is there").ino(), before.1, "{round}");
        assert_eq!(fs::read_to_string(through(&folder, "inside")).expect("reads"), "inside");
        fs::write(through(&folder, "new"), "new").expect("makes a name");
        fs::remove_file(through(&folder, "new")).expect("removes it");
        assert_eq!(fs::read_to_string(shown.join("file")).expect("reads"), format!("{round}"));
    }
    // Without a name, too.
    fs::remove_file(shown.join("file")).expect("removes");
    kill(kept);
    let mut text = String::new();
    (&file).read_to_string(&mut text).expect("reads");
    assert_eq!((text.as_str(), file.metadata().expect("stats").nlink()), ("2", 0));
    drop((file, folder));
    // Nothing keeps a descriptor that the kernel has forgotten.
    fs::remove_dir_all(shown.join("deep")).expect("removes");
    eventually("as many descriptors as before", || held_below(kept, above) <= held);
    assert!(!kept.log().contains("are not kept"), "{}", kept.log());
}

#[test]
fn privileged_what_is_on_another_mount_goes_on() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let other = Other::at(room.src().join("other"));
    let kept = Kept::in_room(room, &[]);
    use_another_mount(&kept, &other.0);
    kept.room.umount(&[]).ok();
    kept.is_gone();
}

/// Who works in a folder that was removed goes on, and is told the same as before.
#[test]
fn privileged_a_removed_folder_goes_on() {
    if !can_mount() {
        return;
    }
    let kept = Kept::start(&[]);
    let (shown, below) = (kept.room.mnt().join("gone"), kept.room.src());
    fs::create_dir(&shown).expect("makes");
    let folder = File::open(&shown).expect("opens");
    let ino = folder.metadata().expect("stats").ino();
    fs::remove_dir(&shown).expect("removes");
    for round in 0..3 {
        kill(&kept);
        // Attributes may be the kernel's own; a change is the server's.
        folder.set_permissions(fs::Permissions::from_mode(0o700 + round)).expect("it is there");
        let about = folder.metadata().expect("it is there");
        let seen = (about.ino(), about.nlink(), about.mode() & 0o777);
        assert_eq!(seen, (ino, 0, 0o700 + round), "{}", kept.log());
    }
    drop(folder);
    eventually("no descriptor is left", || held_below(&kept, &below.join("gone")) == 0);
    kept.room.umount(&[]).ok();
    kept.is_gone();
}

/// The same of one that was on several branches, whatever gets its name afterwards.
#[test]
fn privileged_a_removed_folder_of_several_branches_goes_on() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let branches = ["a", "b"].map(|name| room.path().join(name));
    branches.iter().for_each(|branch| fs::create_dir_all(branch.join("around/gone")).expect("makes"));
    let list = format!("{}:{}", branches[0].display(), branches[1].display());
    let log = format!("log_file={}", room.path().join("log").display());
    let mut mount = Command::new(SHUNT);
    mount.args(["mount", "--takeover", "crash", "-o", &log, "-o", "minfreespace=0"]);
    run(mount.arg(list).arg(room.mnt())).ok();
    let kept = Kept::of(room);
    let shown = kept.room.mnt().join("around/gone");
    let folder = File::open(&shown).expect("opens");
    let ino = folder.metadata().expect("stats").ino();
    fs::remove_dir(&shown).expect("removes");
    fs::create_dir(&shown).expect("makes another one");
    fs::set_permissions(&shown, fs::Permissions::from_mode(0o755)).expect("it is there");
    for round in 0..3 {
        kill(&kept);
        folder.set_permissions(fs::Permissions::from_mode(0o700 + round)).expect("it is there");
        let about = folder.metadata().expect("it is there");
        let seen = (about.ino(), about.nlink(), about.mode() & 0o777);
        assert_eq!(seen, (ino, 0, 0o700 + round), "{}", kept.log());
        assert!(fs::write(through(&folder, "new"), "new").is_err(), "nothing comes to it");
        let other = fs::metadata(&shown).expect("the other one is there");
        assert_eq!(other.mode() & 0o777, 0o755);
    }
    drop(folder);
    let held = |branch: &PathBuf| held_below(&kept, &branch.join("around/gone"));
    fs::remove_dir(&shown).expect("removes");
    eventually("no descriptor is left", || branches.iter().map(held).sum::<usize>() == 0);
    // One that is in use when its branch goes does not keep that.
    let (one, branch) = (kept.room.mnt().join("one"), &branches[1]);
    fs::create_dir(branch.join("one")).expect("makes");
    let folder = File::open(&one).expect("opens");
    fs::remove_dir(&one).expect("removes");
    run(Command::new(SHUNT).args(["branches", "remove"]).arg(kept.room.mnt()).arg(branch)).ok();
    kill(&kept);
    assert_eq!(held_below(&kept, &branch.join("one")), 0, "{}", kept.log());
    assert!(folder.set_permissions(fs::Permissions::from_mode(0o700)).is_err());
    drop(folder);
    kept.room.umount(&[]).ok();
    kept.is_gone();
}
