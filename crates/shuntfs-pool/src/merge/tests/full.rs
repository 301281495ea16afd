//! Files that are moved to another branch: what goes with them, and which stay. The branches are on two file systems of every machine's: one in
//! memory, and that of the temporary files.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::PathBuf;

use shuntfs::{Entry, Errno, NodeId, OpenFlags, Result};
use tempfile::TempDir;

use super::name;
use crate::guard::{Changing, ContentChanges, Guard};
use crate::merge::{BranchChange, BranchOptions, MergeOptions, MoveOnFull, relocate};
use crate::node::{Change, Marks};
use crate::op::{lookup, make, open, remove, rename};
use crate::options::PoolOptions;
use crate::policy::BranchMode;
use crate::shared::Shared;
use crate::who::Who;
use crate::{PoolFile, mode};

/// A branch in memory with a tree, and one on a disk, or the other way round.
struct Two {
    folders: [TempDir; 2],
    shared: Shared,
}

impl Two {
    fn new(tree: &[&str], change: impl FnOnce(&mut MergeOptions)) -> Option<Self> {
        let folders = [tempfile::tempdir_in("/dev/shm").ok()?, tempfile::tempdir().ok()?];
        let device = |folder: &TempDir| folder.path().metadata().unwrap().dev();
        if device(&folders[0]) == device(&folders[1]) {
            shuntfs_testkit::skipped("the machine has one file system only");
            return None;
        }
        for path in tree {
            let (number, path) = path.split_at(1);
            let at = folders[number.parse::<usize>().unwrap()].path().join(&path[1..]);
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            fs::write(at, path).unwrap();
        }
        let mut merge =
            MergeOptions::new(folders.iter().map(|folder| BranchOptions::new(folder.path())).collect());
        merge.min_free = 0;
        change(&mut merge);
        let options = PoolOptions { merge: Some(merge), ..PoolOptions::new("two") };
        let shared = Shared::open(&options).unwrap();
        Some(Self { folders, shared })
    }

    fn at(&self, branch: usize, path: &str) -> PathBuf {
        self.folders[branch].path().join(path)
    }

    fn on(&self, path: &str) -> Vec<usize> {
        (0..2).filter(|branch| self.at(*branch, path).symlink_metadata().is_ok()).collect()
    }

    fn look(&self, path: &str) -> Result<Entry> {
        let (parent, last) = self.parent(path);
        lookup::lookup(&self.shared, Who::root(), parent, &name(last))
    }

    fn id(&self, path: &str) -> NodeId {
        if path.is_empty() { NodeId::ROOT } else { self.look(path).unwrap().node.unwrap() }
    }

    fn parent<'p>(&self, path: &'p str) -> (NodeId, &'p str) {
        path.rsplit_once('/').map_or((NodeId::ROOT, path), |(folder, last)| (self.id(folder), last))
    }

    fn open(&self, path: &str) -> PoolFile {
        open::open(&self.shared, Who::root(), self.id(path), OpenFlags(mode::O_RDWR)).unwrap().file
    }

    /// Moves a file that is open; why not, in words.
    fn moved(&self, file: &PoolFile) -> std::result::Result<(), String> {
        relocate(&self.shared, &file.node, file.is_backed(), 1).map_err(|why| why.to_string())
    }

    /// Changes a file that is open for writing; which lower file that was.
    fn written(&self, file: &PoolFile) -> PathBuf {
        let change = ContentChanges { file, how: Changing::Write };
        let target =
            Guard::new(&self.shared, Who::root()).judge(change).unwrap().target(&self.shared).unwrap();
        target.allocate(0, 0, 4096).unwrap();
        shuntfs_sys::path_of(&*file.mover(&self.shared).unwrap()).unwrap()
    }
}

#[test]
fn a_file_is_the_same_one_on_the_other_branch() {
    for (from, to) in [(0, 1), (1, 0)] {
        let tree = format!("{from}/d/e/file");
        let Some(two) = Two::new(&[&tree], |_| ()) else { return };
        let before = two.at(from, "d/e/file");
        fs::set_permissions(&before, fs::Permissions::from_mode(0o604)).unwrap();
        fs::set_permissions(two.at(from, "d"), fs::Permissions::from_mode(0o710)).unwrap();
        let stat = before.metadata().unwrap();
        let file = two.open("d/e/file");
        let reads =
            open::open(&two.shared, Who::root(), file.node.id, OpenFlags(mode::O_RDONLY)).unwrap().file;
        let branch = |number| two.shared.branches.at(number);
        let (from_number, to_number) = (u16::from(from == 1), u16::from(to == 1));
        assert_eq!((branch(from_number).opens(), branch(to_number).opens()), (2, 0));
        // It has lower files already, which are given up.
        file.mover(&two.shared).unwrap();
        reads.reader(&two.shared).unwrap();
        assert_eq!(two.moved(&file), Ok(()));
        assert_eq!((two.on("d/e/file"), two.on("d/e")), (vec![to], vec![0, 1]));
        assert_eq!((branch(from_number).opens(), branch(to_number).opens()), (0, 2));
        let now = two.at(to, "d/e/file").metadata().unwrap();
        assert_eq!(
            (now.mode(), now.mtime(), now.mtime_nsec()),
            (stat.mode(), stat.mtime(), stat.mtime_nsec())
        );
        assert_eq!(fs::read(two.at(to, "d/e/file")).unwrap(), b"/d/e/file");
        assert_eq!(two.at(to, "d").metadata().unwrap().mode() & 0o7777, 0o710);
        let (again, merge) = (two.look("d/e/file").unwrap(), two.shared.merge.as_ref().unwrap());
        assert_eq!((again.node, merge.files_moved()), (Some(file.node.id), 1));
        assert_eq!(two.written(&file), two.at(to, "d/e/file").canonicalize().unwrap());
        let read = shuntfs_sys::path_of(&*reads.reader(&two.shared).unwrap()).unwrap();
        assert_eq!(read, two.at(to, "d/e/file").canonicalize().unwrap());
        // And back, where the folders are there still.
        assert_eq!(two.moved(&file), Ok(()));
        assert_eq!((two.on("d/e/file"), file.node.moves()), (vec![from], 2));
        rename_file(&two, "d/e/file", "d/renamed").unwrap();
        assert_eq!(two.on("d/renamed"), [from]);
        remove::unlink(&two.shared, Who::root(), two.id("d"), &name("renamed")).unwrap();
        assert!(two.on("d/renamed").is_empty());
    }
}

fn rename_file(two: &Two, from: &str, to: &str) -> Result<()> {
    let ((parent, old), (new_parent, new)) = (two.parent(from), two.parent(to));
    let (old, new) = (name(old), name(new));
    let from = rename::Named { parent, name: &old };
    rename::rename(&two.shared, Who::root(), from, rename::Named { parent: new_parent, name: &new }, 0)
}

#[test]
fn what_is_not_moved_is_said_with_the_reason() {
    let tree = ["0/file", "0/linked", "0/both", "1/both", "0/gone", "0/mapped", "0/locked"];
    let Some(two) = Two::new(&tree, |_| ()) else { return };
    let linked = two.open("linked");
    let link = make::link(&two.shared, Who::root(), linked.node.id, NodeId::ROOT, &name("link"));
    assert!(link.is_ok() && two.moved(&linked).unwrap_err().contains("2 names"));
    assert!(two.moved(&two.open("both")).unwrap_err().contains("other branches have a file of its name"));
    let gone = two.open("gone");
    remove::unlink(&two.shared, Who::root(), NodeId::ROOT, &name("gone")).unwrap();
    assert!(two.moved(&gone).unwrap_err().contains("it has no name"));
    for (path, mark, words) in [
        ("mapped", Marks::MAPPED_BELOW, "a mapping may be left"),
        ("locked", Marks::LOCKED_BELOW, "it was locked"),
    ] {
        let file = two.open(path);
        file.node.mark(mark);
        assert!(two.moved(&file).unwrap_err().contains(words), "{path}");
    }
    let file = two.open("file");
    let relocated = relocate(&two.shared, &file.node, true, 1);
    assert!(relocated.unwrap_err().to_string().contains("in passthrough"));
    let full = relocate(&two.shared, &file.node, false, u64::MAX).unwrap_err().to_string();
    assert!(full.contains(two.at(1, "").to_str().unwrap().trim_end_matches('/')), "{full}");
    assert!(full.contains("bytes are available, and 18446744073709551615 are to be left"), "{full}");
    let merge = two.shared.merge.as_ref().unwrap();
    merge.settings.set_moves(MoveOnFull::OFF);
    assert!(two.moved(&file).unwrap_err().contains("turned off"));
    assert_eq!((two.on("file"), two.on("linked"), merge.files_moved()), (vec![0], vec![0], 0));
    assert!(Change::begin(&file.node).is_some(), "nobody is kept from changing it");
}

#[test]
fn branches_that_take_nothing_new_are_no_place_for_it() {
    for (mode, words) in [(BranchMode::NoCreate, "its mode is NC"), (BranchMode::ReadOnly, "its mode is RO")]
    {
        let Some(two) = Two::new(&["0/file"], |merge| merge.branches[1].mode = mode) else { return };
        let why = two.moved(&two.open("file")).unwrap_err();
        assert!(why.contains("no other branch will do") && why.contains(words), "{why}");
    }
    // Of the same file system there is nothing to win.
    let Some(two) = Two::new(&["0/file"], |merge| merge.branches.truncate(1)) else { return };
    let beside = tempfile::tempdir_in("/dev/shm").unwrap();
    let change = BranchChange::Append(vec![BranchOptions::new(beside.path())]);
    super::super::change(&two.shared, two.shared.merge.as_ref().unwrap(), &change).unwrap();
    assert!(two.moved(&two.open("file")).unwrap_err().contains("none on another file system"));
}

/// A folder on the other branch has a file in its place, or the name.
#[test]
fn what_is_in_the_way_on_the_other_branch_keeps_it_where_it_is() {
    let Some(two) = Two::new(&["0/d/file", "0/name"], |_| ()) else { return };
    let (inside, named) = (two.open("d/file"), two.open("name"));
    fs::write(two.at(1, "d"), "in the way").unwrap();
    symlink("nowhere", two.at(1, "name")).unwrap();
    assert!(two.moved(&inside).unwrap_err().contains("copying it there failed"));
    assert!(two.moved(&named).unwrap_err().contains("other branches have a file of its name"));
    assert_eq!((two.on("d/file"), fs::read(two.at(0, "name")).unwrap()), (vec![0], b"/name".to_vec()));
}

#[test]
fn names_of_unfinished_copies_are_neither_seen_nor_taken() {
    const NAME: &str = ".shunt-moving-0123456789abcdef";
    let Some(two) = Two::new(&["0/file"], |_| ()) else { return };
    fs::write(two.at(1, NAME), "half").unwrap();
    assert_eq!(two.look(NAME).err(), Some(Errno::NOENT));
    let renamed = rename_file(&two, "file", NAME);
    assert_eq!((renamed, two.on("file")), (Err(Errno::PERM), vec![0]));
    // Mounted again, the branches are cleaned.
    let options = two.shared.options.clone();
    drop(two.shared);
    Shared::open(&options).unwrap();
    assert!(!two.folders[1].path().join(NAME).exists());
}
