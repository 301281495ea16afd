//! Handles of files on several branches: what they hold over, and where they lead to nothing. Needs root and /dev/fuse.
//!
//! Every mount has a supervisor outside of this process that aborts it, so that nothing hangs for longer.
#![expect(clippy::unwrap_used, reason = "also the helpers of tests report by panic")]

mod mounted;

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{DirEntryExt as _, MetadataExt as _};
use std::path::Path;
use std::time::Duration;

use shuntfs_pool::policy::Policy;
use shuntfs_pool::{
    BranchChange, BranchOptions, Cache, Fleeting, FlowWish, InodeCalc, MergeOptions, Pool, PoolError,
    PoolOptions,
};
use shuntfs_sys::{FileHandle, OsError};
use shuntfs_testkit::limit::wait_until;
use shuntfs_testkit::lower::{Lower, LowerKind};
use shuntfs_testkit::{say, serial, skipped};

use mounted::Mounted;
use mounted::bound::Bound;
use mounted::handles::{O_DIRECTORY, O_PATH, fd_path};

const MIB: usize = 1 << 20;
/// `FILEID_INO64_GEN_PARENT`, and `FILEID_IS_CONNECTABLE` (Linux 6.13): only a file whose folders are found is good.
const WITH_PARENT: i32 = 0x82 | 0x10000;

/// `None` where nothing can be mounted, and then the reason was said.
fn start(options: &PoolOptions) -> Option<Mounted> {
    Mounted::new(Pool::open(options).unwrap(), Vec::new())
}

impl Mounted {
    /// Where a folder's handle leads to in the mount, and what is listed there.
    fn listed(&self, handle: &FileHandle) -> shuntfs_sys::Result<(String, Vec<String>)> {
        let folder = self.by_handle(handle, O_DIRECTORY)?;
        let path = fs::read_link(fd_path(&folder)).unwrap();
        let path = path.strip_prefix(self.top.path()).unwrap().to_str().unwrap().to_owned();
        let mut names: Vec<_> = fs::read_dir(fd_path(&folder))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        Ok((path, names))
    }
}

fn branch(path: &Path, id: &str) -> BranchOptions {
    BranchOptions { id: Some(id.to_owned()), ..BranchOptions::new(path) }
}

/// A pool whose handles last, and whose files are made on the first branch.
fn with_handles(branches: Vec<BranchOptions>) -> PoolOptions {
    let create = Policy::of("ff").unwrap();
    let merge = MergeOptions { create, min_free: 0, ..MergeOptions::new(branches) };
    PoolOptions { merge: Some(merge), cache: Cache::Second, handles: true, ..PoolOptions::new("disks") }
}

fn mount(branches: &[(&Path, &str)]) -> Option<Mounted> {
    let branches = branches.iter().map(|(path, id)| branch(path, id)).collect();
    start(&with_handles(branches))
}

fn write(folder: &Path, path: &str) {
    fs::create_dir_all(folder.join(path).parent().unwrap()).unwrap();
    fs::write(folder.join(path), path).unwrap();
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Two disks of a kind; `None` where they cannot be had, and then the reason was said.
fn disks(kind: LowerKind) -> Option<[Lower; 2]> {
    Some([Lower::make(kind).unwrap()?, Lower::make(kind).unwrap()?])
}

/// What an NFS server needs, on file systems of all kinds: over the kernel's memory and the mount, with the branches in another
/// order, with a disk mounted elsewhere, and without one of them.
#[test]
fn handles_hold_over_the_kernels_memory_and_the_mount() {
    let _serial = serial();
    for kind in [LowerKind::Tmpfs, LowerKind::Ext4, LowerKind::Xfs, LowerKind::Btrfs] {
        let Some([one, two]) = disks(kind) else { continue };
        if !holds(one.path(), two.path()) {
            return;
        }
        say(&format!("handles of files on two branches of {kind} hold"));
    }
}

struct Known {
    first: FileHandle,
    second: FileHandle,
    both: FileHandle,
    deep: FileHandle,
    leaf: FileHandle,
    removed: FileHandle,
}

impl Known {
    /// With both branches, whatever their order, where the folder on both is called so.
    fn check(&self, mounted: &Mounted, both: &str, what: &str) {
        assert_eq!(mounted.text(&self.first).as_deref(), Ok("both/first"), "{what}");
        assert_eq!(mounted.text(&self.second).as_deref(), Ok("both/second"), "{what}");
        assert_eq!(mounted.text(&self.leaf).as_deref(), Ok("only/deep/leaf"), "{what}");
        assert_eq!(mounted.text(&self.removed), Err(OsError::STALE), "{what}");
        assert_eq!(mounted.listed(&self.both), Ok((both.to_owned(), names(&["first", "second"]))), "{what}");
        assert_eq!(mounted.listed(&self.deep), Ok(("only/deep".to_owned(), names(&["leaf"]))), "{what}");
    }

    fn all(mounted: &Mounted) -> Self {
        let [first, second, both] = ["both/first", "both/second", "both"].map(|name| mounted.handle(name));
        let [deep, leaf, removed] =
            ["only/deep", "only/deep/leaf", "removed"].map(|name| mounted.handle(name));
        Self { first, second, both, deep, leaf, removed }
    }
}

/// Whether anything can be mounted here.
fn holds(one: &Path, two: &Path) -> bool {
    write(one, "both/first");
    // The eldest is on the first branch.
    std::thread::sleep(Duration::from_millis(20));
    for path in ["both/second", "only/deep/leaf", "removed"] {
        write(two, path);
    }
    let Some(first) = mount(&[(one, "one"), (two, "two")]) else { return false };
    let known = Known::all(&first);
    fs::remove_file(first.at("removed")).unwrap();
    known.check(&first, "both", "as the kernel remembers them");
    first.forget_all();
    known.check(&first, "both", "when it does not");
    assert_eq!(first.handle("both"), known.both, "looked up by its name it is the same node");
    // Both parts of the folder move.
    fs::rename(first.at("both"), first.at("only/moved")).unwrap();
    fs::rename(first.at("only/moved"), first.at("moved")).unwrap();
    first.forget_all();
    known.check(&first, "moved", "a folder that moved");
    let number = fs::metadata(first.at("moved")).unwrap().ino();
    first.end();
    let swapped = mount(&[(two, "two"), (one, "one")]).unwrap();
    known.check(&swapped, "moved", "branches in another order");
    assert_eq!(
        fs::metadata(swapped.at("moved")).unwrap().ino(),
        number,
        "an NFS client sees the number, too"
    );
    assert_eq!(swapped.handle("moved/second"), known.second);
    swapped.end();
    let place = tempfile::tempdir().unwrap();
    let bound = Bound::new(two, place.path());
    let elsewhere = mount(&[(one, "one"), (place.path(), "two")]).unwrap();
    known.check(&elsewhere, "moved", "a disk that is mounted elsewhere");
    elsewhere.end();
    let called = mount(&[(one, "one"), (place.path(), "other")]).unwrap();
    assert_eq!(called.text(&known.second), Err(OsError::STALE), "a branch with another identity");
    assert_eq!(called.text(&known.first).as_deref(), Ok("both/first"));
    called.end();
    bound.end();
    let without = mount(&[(one, "one")]).unwrap();
    for gone in [&known.second, &known.deep, &known.leaf] {
        assert_eq!(without.by_handle(gone, O_PATH).err(), Some(OsError::STALE), "its branch is not there");
    }
    assert_eq!(without.listed(&known.both), Ok(("moved".to_owned(), names(&["first"]))));
    without.end();
    let without = mount(&[(two, "two")]).unwrap();
    assert_eq!(
        without.listed(&known.both),
        Err(OsError::STALE),
        "it was numbered by the branch that is gone"
    );
    assert_eq!(without.text(&known.second).as_deref(), Ok("both/second"));
    without.end();
    true
}

/// A folder is made on a further branch whenever something new in it goes there, and clients hold on to its handle.
#[test]
fn a_folder_keeps_its_handle_when_it_comes_to_another_branch() {
    let _serial = serial();
    let Some([one, two]) = disks(LowerKind::Ext4) else { return };
    let (one, two) = (one.path(), two.path());
    write(two, "a/b/old");
    let Some(mounted) = mount(&[(one, "one"), (two, "two")]) else { return };
    let handles = ["a", "a/b"].map(|name| mounted.handle(name));
    let numbers = ["a", "a/b"].map(|name| fs::metadata(mounted.at(name)).unwrap().ino());
    std::thread::sleep(Duration::from_millis(20));
    write(mounted.top.path(), "a/b/new");
    assert!(one.join("a/b/new").exists(), "it is on the first branch");
    let check = |mounted: &Mounted, what: &str| {
        assert_eq!(mounted.listed(&handles[1]), Ok(("a/b".to_owned(), names(&["new", "old"]))), "{what}");
        assert_eq!(mounted.listed(&handles[0]), Ok(("a".to_owned(), names(&["b"]))), "{what}");
        assert_eq!(["a", "a/b"].map(|name| mounted.handle(name)), handles, "{what}");
        assert_eq!(["a", "a/b"].map(|name| fs::metadata(mounted.at(name)).unwrap().ino()), numbers, "{what}");
    };
    check(&mounted, "known");
    mounted.forget_all();
    check(&mounted, "forgotten");
    mounted.end();
    for branches in [[(one, "one"), (two, "two")], [(two, "two"), (one, "one")]] {
        let mounted = mount(&branches).unwrap();
        let root = fs::metadata(mounted.top.path()).unwrap().ino();
        assert_eq!(root, 1, "whichever branch is the first");
        check(&mounted, "mounted again");
        mounted.end();
    }
    // The kernel finds a folder's name by its number in the listing, which looks no names up where nothing is cached.
    for cache in [Cache::Second, Cache::None] {
        let options = with_handles(vec![branch(one, "one"), branch(two, "two")]);
        let mounted = start(&PoolOptions { cache, ..options }).unwrap();
        for known in [false, true] {
            let listed = fs::read_dir(mounted.top.path()).unwrap().map(Result::unwrap);
            let listed: Vec<_> =
                listed.filter(|entry| entry.file_name() == "a").map(|entry| entry.ino()).collect();
            assert_eq!(listed, [numbers[0]], "{cache:?}, and the folder is known: {known}");
            assert_eq!(fs::metadata(mounted.at("a")).unwrap().ino(), numbers[0]);
        }
        mounted.forget_all();
        check(&mounted, "with another cache");
        mounted.end();
    }
    // It goes from the branch that it is numbered by.
    fs::remove_dir_all(two.join("a")).unwrap();
    let mounted = mount(&[(one, "one"), (two, "two")]).unwrap();
    assert_eq!(mounted.listed(&handles[1]), Err(OsError::STALE));
    assert_eq!(fs::read_to_string(mounted.at("a/b/new")).unwrap(), "a/b/new", "it is on the other one still");
    mounted.end();
}

/// An NFS server that checks subtrees (`subtree_check`) has the folder of each file in its handle, and asks for the folders around it up to
/// the root.
#[test]
fn a_file_is_found_in_its_folder() {
    let _serial = serial();
    let Some([one, two]) = disks(LowerKind::Ext4) else { return };
    write(one.path(), "a/both/first");
    std::thread::sleep(Duration::from_millis(20));
    write(two.path(), "a/both/second");
    let branches = [(one.path(), "one"), (two.path(), "two")];
    let Some(mounted) = mount(&branches) else { return };
    let connected = |file: &str, folder: &str| {
        let parts = [mounted.handle(file), mounted.handle(folder)];
        FileHandle::new(WITH_PARENT, &parts.each_ref().map(FileHandle::bytes).concat()).unwrap()
    };
    let files = ["a/both/first", "a/both/second"];
    let handles = files.map(|file| connected(file, "a/both"));
    let wrong = connected("a/both/second", "a");
    let check = |mounted: &Mounted| {
        for (handle, path) in handles.iter().zip(files) {
            let file = mounted.by_handle(handle, 0).unwrap();
            assert_eq!(fs::read_link(fd_path(&file)).unwrap(), mounted.at(path));
        }
    };
    if mounted.by_handle(&handles[0], 0).err() == Some(OsError::INVAL) {
        skipped("this kernel connects no file by its handle (Linux 6.13)");
        return;
    }
    mounted.forget_all();
    check(&mounted);
    mounted.forget_all();
    assert_eq!(mounted.by_handle(&wrong, 0).err(), Some(OsError::STALE), "it is not in that folder");
    mounted.end();
    let again = mount(&branches).unwrap();
    check(&again);
    again.end();
}

/// Numbers can be made up, and inodes are given again: a handle leads to what it was of, or nowhere.
#[test]
fn a_handle_of_something_else_leads_nowhere() {
    let _serial = serial();
    let Some([one, two]) = disks(LowerKind::Ext4) else { return };
    let (one, two) = (one.path(), two.path());
    write(one, "same");
    write(two, "same");
    write(two, "later");
    write(two, "folder/in");
    write(one, "covered");
    write(two, "covered/in");
    let branches = [(one, "one"), (two, "two")];
    let Some(mounted) = mount(&branches) else { return };
    let (same, later, folder) = (mounted.handle("same"), mounted.handle("later"), mounted.handle("folder"));
    mounted.forget_all();
    let changed = |at: usize, bit: u8| {
        let mut bytes = same.bytes().to_vec();
        bytes[at] ^= bit;
        FileHandle::new(same.kind(), &bytes).unwrap()
    };
    for (at, bit) in (0..12).flat_map(|at| [0, 3, 7].map(|bit| (at, 1 << bit))) {
        let got = mounted.by_handle(&changed(at, bit), O_PATH);
        assert_eq!(got.err(), Some(OsError::STALE), "byte {at} bit {bit:#x}");
    }
    assert_eq!(mounted.text(&same).as_deref(), Ok("same"));
    // Removed below while nobody remembers it, and its inode given to others.
    mounted.forget_all();
    let inode = |path: &Path| fs::metadata(path).unwrap().ino();
    let removed = [inode(&two.join("later")), inode(&two.join("folder"))];
    fs::remove_file(two.join("later")).unwrap();
    fs::remove_dir_all(two.join("folder")).unwrap();
    let mut given_again: Vec<u64> = Vec::new();
    for number in 0..60 {
        let path = two.join(format!("new {number}"));
        if number % 2 == 0 {
            fs::write(&path, "new").unwrap()
        } else {
            fs::create_dir(&path).unwrap()
        }
        given_again.extend(removed.iter().filter(|gone| **gone == inode(&path)).copied());
    }
    assert!(!given_again.is_empty(), "ext4 gives inodes again");
    for gone in [&later, &folder] {
        assert_eq!(mounted.by_handle(gone, O_PATH).err(), Some(OsError::STALE));
    }
    assert!(mounted.at("new 59").exists());
    for gone in [&later, &folder] {
        assert_eq!(mounted.by_handle(gone, O_PATH).err(), Some(OsError::STALE), "with its inode in use");
    }
    // A folder that a file hides has no node.
    fs::remove_file(one.join("covered")).unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    let hidden = mounted.handle("covered");
    assert!(mounted.listed(&hidden).is_ok());
    fs::write(one.join("covered"), "file").unwrap();
    mounted.forget_all();
    assert_eq!(mounted.by_handle(&hidden, O_PATH).err(), Some(OsError::STALE), "a file hides it now");
    mounted.end();
}

/// While it is mounted branches go and come, and what is mounted over one takes its handles away.
#[test]
fn handles_go_and_come_with_their_branch() {
    let _serial = serial();
    let Some([one, two]) = disks(LowerKind::Ext4) else { return };
    let (one, two) = (one.path(), two.path());
    write(one, "one");
    write(two, "folder/two");
    let Some(mounted) = mount(&[(one, "one"), (two, "two")]) else { return };
    let (first, second) = (mounted.handle("one"), mounted.handle("folder/two"));
    let change = |change: BranchChange| {
        // A close is told after it, and what is open when its branch goes is another file when that is back.
        assert!(wait_until(Duration::from_secs(10), || mounted.session.status().nodes_open == 0));
        mounted.observer.change_branches(&change).map(|left| left.len())
    };
    // As with a disk that is checked in between, and the kernel remembers the files.
    assert_eq!(change(BranchChange::Remove(vec![two.to_owned()])), Ok(1));
    fs::write(two.join("folder/two"), "folder/two, changed").unwrap();
    assert_eq!(change(BranchChange::Append(vec![branch(two, "two")])), Ok(2));
    assert_eq!(mounted.text(&second).as_deref(), Ok("folder/two, changed"));
    assert_eq!(mounted.handle("folder/two"), second);
    mounted.forget_all();
    assert_eq!(mounted.text(&second).as_deref(), Ok("folder/two, changed"));
    fs::write(mounted.at("folder/two"), "folder/two").unwrap();
    assert_eq!(change(BranchChange::Remove(vec![two.to_owned()])), Ok(1));
    mounted.forget_all();
    assert_eq!(mounted.text(&second), Err(OsError::STALE));
    assert_eq!(mounted.text(&first).as_deref(), Ok("one"));
    let inside = two.join("folder");
    let refused = change(BranchChange::Append(vec![branch(&inside, "two")]));
    assert!(matches!(refused, Err(PoolError::Handles { why: Fleeting::PartOfMore, .. })), "{refused:?}");
    assert_eq!(change(BranchChange::Prepend(vec![branch(two, "two")])), Ok(2));
    assert_eq!(mounted.text(&second).as_deref(), Ok("folder/two"), "it is there again");
    let place = tempfile::tempdir().unwrap();
    let bound = Bound::new(place.path(), &inside);
    mounted.forget_all();
    assert_eq!(mounted.text(&second), Err(OsError::STALE), "something is mounted below its branch");
    assert_eq!(mounted.text(&first).as_deref(), Ok("one"), "and not below the other");
    bound.end();
    assert_eq!(mounted.text(&second).as_deref(), Ok("folder/two"));
    mounted.end();
}

/// A file that is moved because its branch is full has another inode. What the kernel knows of it stays good, and so does its handle for as long;
/// then it has a new one.
#[test]
fn a_file_that_is_moved_to_another_branch_gets_a_new_handle() {
    let _serial = serial();
    let Some(disks) = mounted::disks(LowerKind::Tmpfs, &[8, 64]) else { return };
    let branches = vec![branch(disks[0].path(), "one"), branch(disks[1].path(), "two")];
    let options = PoolOptions { flow: FlowWish::Relay, ..with_handles(branches) };
    let Some(mounted) = start(&options) else { return };
    let mut file = File::create(mounted.at("file")).unwrap();
    let before = mounted.handle("file");
    for _ in 0..16 {
        file.write_all(&vec![7; MIB]).unwrap();
    }
    assert_eq!(mounted.observer.facts().files_moved, 1);
    let len = |handle: &FileHandle| mounted.by_handle(handle, 0).map(|file| file.metadata().unwrap().len());
    assert_eq!(len(&before), Ok(16 * MIB as u64), "while it is open");
    // The kernel takes a node of another generation for another file, and the open one for broken.
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(fs::metadata(mounted.at("file")).unwrap().len(), 16 * MIB as u64);
    file.write_all(b"more").unwrap();
    drop(file);
    mounted.forget_all();
    assert_eq!(len(&before), Err(OsError::STALE));
    let after = mounted.handle("file");
    assert_ne!(after, before);
    mounted.forget_all();
    assert_eq!(len(&after), Ok(16 * MIB as u64 + 4));
    mounted.end();
}

#[test]
fn where_handles_cannot_last_a_pool_is_refused() {
    let _serial = serial();
    let Some([one, two]) = disks(LowerKind::Tmpfs) else { return };
    let why = |options: &PoolOptions| match Pool::open(options) {
        Err(PoolError::Handles { why, .. }) => Some(why),
        Ok(_) => None,
        Err(other) => panic!("{other}"),
    };
    let both = |second: &Path| with_handles(vec![branch(one.path(), "one"), branch(second, "two")]);
    assert_eq!(why(&both(two.path())), None);
    let folder = two.folder("folder").unwrap();
    assert_eq!(why(&both(&folder)), Some(Fleeting::PartOfMore));
    assert_eq!(why(&both(Path::new("/proc"))), Some(Fleeting::Below));
    let place = tempfile::tempdir().unwrap();
    let bound = Bound::new(place.path(), &folder);
    assert_eq!(why(&both(two.path())), Some(Fleeting::Covered));
    bound.end();
    for (name, calc) in InodeCalc::ALL {
        let mut options = both(two.path());
        options.merge.as_mut().unwrap().inode_calc = calc;
        let expected = match name {
            "devino-hash" | "devino-hash32" => None,
            "passthrough" => Some(Fleeting::Alike),
            _ => Some(Fleeting::Renumbered),
        };
        assert_eq!(why(&options), expected, "{name}");
    }
}
