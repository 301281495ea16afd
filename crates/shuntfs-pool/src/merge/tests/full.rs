//! Files that are moved to another branch: what goes with them, and which stay. The branches are on two file systems of every machine's: one in
//! memory, and that of the temporary files.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::sync::Arc;

use shuntfs::{Entry, Errno, LowerFile, NodeId, OpenFlags, Result};
use shuntfs_rules::Redact;
use tempfile::TempDir;

use super::name;
use crate::branch::Why;
use crate::guard::{Changing, ContentChanges, Guard};
use crate::merge::{BranchChange, BranchOptions, MergeOptions, MoveOnFull, check_move, relocate};
use crate::node::{Change, Marks, Move, Node};
use crate::op::{lookup, make, open, remove, rename, room};
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
        self.moved_for(file, file.is_backed(), 1)
    }

    fn moved_for(&self, file: &PoolFile, is_backed: bool, len: u64) -> std::result::Result<(), String> {
        let moved = check_move(&self.shared, &file.node, is_backed).and_then(|()| {
            Move::begin(&file.node).map_or(Ok(()), |moving| relocate(&self.shared, moving, len))
        });
        moved.map_err(|why| why.to_string())
    }

    /// The node of a file for somebody who sees nothing of it.
    fn hidden(&self, node: &Node) -> Arc<Node> {
        let view = self.shared.views.of(&[Redact::Whole]);
        let make = |id, identity| Node::new(id, identity, view, node.mode());
        self.shared.table.obtain(node.key().clone(), view, None, make).0
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
    assert!(two.moved_for(&file, true, 1).unwrap_err().contains("in passthrough"));
    let full = two.moved_for(&file, false, u64::MAX).unwrap_err();
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

/// What was set by name before the file was open came to the old file, which had lost its name by then.
#[test]
fn a_change_that_began_before_the_first_open_is_waited_for() {
    let Some(two) = Two::new(&["0/file"], |_| ()) else { return };
    let node = two.shared.node(two.id("file")).unwrap();
    let change = room::begin(&two.shared, &node);
    assert!(node.mobile().is_some(), "it is counted");
    let file = two.open("file");
    std::thread::scope(|scope| {
        let mover = scope.spawn(|| two.moved(&file));
        while !node.make_mobile().is_moving() && !mover.is_finished() {
            std::thread::yield_now();
        }
        assert!(two.on("file") == [0] && !mover.is_finished());
        fs::set_permissions(two.at(0, "file"), fs::Permissions::from_mode(0o600)).unwrap();
        drop(change);
        assert_eq!(mover.join().unwrap(), Ok(()));
    });
    assert_eq!(two.at(1, "file").metadata().unwrap().mode() & 0o7777, 0o600);
}

/// Somebody may know the file by a view of it that hides something. What is open so goes on with the old file, and so would what is set by it.
#[test]
fn other_views_of_a_file_keep_it_where_it_is_or_wait() {
    let Some(two) = Two::new(&["0/file"], |_| ()) else { return };
    let file = two.open("file");
    let hidden = two.hidden(&file.node);
    hidden.opened(false);
    assert!(two.moved(&file).unwrap_err().contains("a part of it is hidden"));
    hidden.closed(false);
    let change = room::begin(&two.shared, &hidden);
    std::thread::scope(|scope| {
        let mover = scope.spawn(|| two.moved(&file));
        while !hidden.make_mobile().is_moving() && !mover.is_finished() {
            std::thread::yield_now();
        }
        assert!(two.on("file") == [0] && Change::begin(&file.node).is_none());
        // After it was looked at, and before it is copied.
        let path = two.at(0, "file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        rustix::fs::setxattr(&path, "user.note", b"new", rustix::fs::XattrFlags::empty()).unwrap();
        drop(change);
        assert_eq!(mover.join().unwrap(), Ok(()));
    });
    let (moved, mut value) = (two.at(1, "file"), [0; 8]);
    assert_eq!(moved.metadata().unwrap().mode() & 0o7777, 0o640);
    let len = rustix::fs::getxattr(&moved, "user.note", &mut value).unwrap();
    assert_eq!(&value[..len], b"new");
    assert!(Change::begin(&hidden).is_some());
}

/// A mode that was taken back on the branch while the file was copied was that of the beginning again.
#[test]
fn attributes_that_are_changed_beside_the_pool_at_the_end_keep_it_where_it_is() {
    let Some(two) = Two::new(&["0/file"], |_| ()) else { return };
    let file = two.open("file");
    let removal = two.shared.merge.as_ref().unwrap().switching.hold(NodeId::ROOT, c"file").unwrap();
    std::thread::scope(|scope| {
        let mover = scope.spawn(|| two.moved(&file));
        // It waits for the removal.
        while !file.node.make_mobile().is_committed() && !mover.is_finished() {
            std::thread::yield_now();
        }
        fs::set_permissions(two.at(0, "file"), fs::Permissions::from_mode(0o600)).unwrap();
        drop(removal);
        assert!(mover.join().unwrap().is_err());
    });
    assert_eq!((two.on("file"), two.at(0, "file").metadata().unwrap().mode() & 0o7777), (vec![0], 0o600));
    assert_eq!(two.moved(&file), Ok(()));
    assert_eq!(two.at(1, "file").metadata().unwrap().mode() & 0o7777, 0o600);
}

/// An old copy on a branch that was set aside was shown when that came back, and the file was behind it.
#[test]
fn a_branch_that_cannot_be_asked_keeps_files_from_coming_behind_it() {
    let Some(two) = Two::new(&["0/file", "0/other"], |_| ()) else { return };
    let (file, other) = (two.open("file"), two.open("other"));
    let beside = tempfile::tempdir_in("/dev/shm").unwrap();
    let merge = two.shared.merge.as_ref().unwrap();
    let change = |change| super::super::change(&two.shared, merge, &change).unwrap();
    change(BranchChange::Prepend(vec![BranchOptions::new(beside.path())]));
    let health = &two.shared.branches.at(2).health;
    health.set_aside(Why::Silent);
    assert!(two.moved(&file).unwrap_err().contains("that does not answer may have a file of its name"));
    assert_eq!(two.on("file"), [0]);
    health.take_back();
    assert_eq!(two.moved(&file), Ok(()));
    change(BranchChange::Remove(vec![beside.path().to_owned()]));
    // Behind the one that it comes to it hides nothing.
    let behind = tempfile::tempdir_in("/dev/shm").unwrap();
    change(BranchChange::Append(vec![BranchOptions::new(behind.path())]));
    let last = two.shared.branches.order().last().copied().unwrap();
    two.shared.branches.at(last).health.set_aside(Why::Silent);
    two.shared.root.parts().unwrap().set_aside(last);
    assert_eq!((two.moved(&other), two.on("other")), (Ok(()), vec![1]));
}

/// The close of such a file panicked, and nobody who sees less could look at it any more.
#[test]
fn a_file_of_which_others_see_less_is_closed_after_it_was_moved() {
    let Some(two) = Two::new(&["0/file"], |_| ()) else { return };
    two.shared.node(two.id("file")).unwrap().mark(Marks::VARIES);
    let (file, again) = (two.open("file"), two.open("file"));
    assert_eq!(two.moved(&file), Ok(()));
    let gates = &two.shared.copies.gates;
    assert!(!gates.look(&file.node), "it is open for writing");
    drop(file);
    assert!(!gates.are_free());
    drop(again);
    assert!(gates.are_free());
}

/// Nobody would have closed it before the kernel forgot the file, and its space was not free.
#[test]
fn a_descriptor_that_comes_late_is_not_kept_where_the_file_was() {
    let Some(two) = Two::new(&["0/file"], |_| ()) else { return };
    let file = two.open("file");
    let before = file.node.place();
    let fd = shuntfs_sys::reopen(&*two.shared.descriptor(&file.node).unwrap(), mode::O_PATH).unwrap();
    assert_eq!(two.moved(&file), Ok(()));
    two.shared.adopt(&file.node, before, Arc::new(LowerFile::new(fd)));
    assert!(!before.is_held() && !std::ptr::eq(before, file.node.place()));
}

/// What suited the first disk need not suit the other.
#[test]
fn a_file_that_was_moved_is_not_opened_for_direct_io_below() {
    let Some(two) = Two::new(&["0/file"], |_| ()) else { return };
    let flags = OpenFlags(mode::O_RDWR | mode::O_DIRECT);
    let file = open::open(&two.shared, Who::root(), two.id("file"), flags);
    let Ok(file) = file.map(|opened| opened.file) else {
        shuntfs_testkit::skipped("what is in memory knows no direct IO here");
        return;
    };
    let is_direct = || {
        let flags = rustix::fs::fcntl_getfl(&*file.mover(&two.shared).unwrap()).unwrap();
        flags.contains(rustix::fs::OFlags::DIRECT)
    };
    assert!(is_direct());
    assert_eq!(two.moved(&file), Ok(()));
    assert!(!is_direct());
}
