//! Merges of folders of the machine's, asked as the kernel would.

use std::ffi::CString;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::sync::Arc;

use shuntfs::{Entry, Errno, LookupCount, Name, NodeId, OpenFlags, Result, SetAttr, SetTime, Timestamp};
use shuntfs_rules::{Known, Rules};
use tempfile::TempDir;

use super::{BranchChange, BranchOptions, InodeCalc, MergeOptions};
use crate::dir::{self, Records};
use crate::error::PoolError;
use crate::guard::Made;
use crate::lasting::Fleeting;
use crate::name_buf::NameBuf;
use crate::op::rename::Named;
use crate::op::{attr, create, lookup, make, open, remove, rename, xattr};
use crate::options::PoolOptions;
use crate::policy::{BranchMode, Policy};
use crate::shared::Shared;
use crate::who::Who;
use crate::{PoolFile, mode};

mod begun;
mod changes;
mod choices;
mod full;
mod handles;
mod mover;
mod places;
mod ruled;
mod sick;
mod stuck;

const FILE: Made = Made { mode: mode::FILE | 0o644, umask: 0o022 };
const FOLDER: Made = Made { mode: 0o755, umask: 0o022 };

/// Knows policies, and nobody.
struct Policies;

impl Known for Policies {
    fn user(&self, _: &str) -> Option<u32> {
        None
    }

    fn group(&self, _: &str) -> Option<u32> {
        None
    }

    fn policies(&self) -> &[&str] {
        &["all", "epff", "ff"]
    }
}

/// A merge of three folders, `a`, `b` and `c`; `d` is beside them.
struct Three {
    top: TempDir,
    shared: Shared,
}

impl Three {
    /// The tree is made by words: `a/x/` is a folder, `b/y` a file that holds its own path.
    fn new(tree: &[&str], change: impl FnOnce(&mut MergeOptions)) -> Self {
        Self::under(tree, None, change).unwrap()
    }

    /// The same under rules, where there are any.
    fn under(
        tree: &[&str],
        rules: Option<Rules>,
        change: impl FnOnce(&mut MergeOptions),
    ) -> std::result::Result<Self, PoolError> {
        let top = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c", "d"] {
            fs::create_dir(top.path().join(name)).unwrap();
        }
        for path in tree {
            let at = top.path().join(path);
            if path.ends_with('/') {
                fs::create_dir_all(at).unwrap();
            } else {
                fs::create_dir_all(at.parent().unwrap()).unwrap();
                fs::write(at, path).unwrap();
            }
        }
        let mut merge =
            MergeOptions::new(["a", "b", "c"].map(|name| BranchOptions::new(top.path().join(name))).into());
        merge.min_free = 0;
        merge.create = Policy::of("ff").unwrap();
        change(&mut merge);
        let options = PoolOptions { merge: Some(merge), ..PoolOptions::new("a:b:c") };
        let shared = Shared::open_with(&options, rules, None)?;
        Ok(Self { top, shared })
    }

    fn at(&self, path: &str) -> PathBuf {
        self.top.path().join(path)
    }

    /// On which branches a path is.
    fn on(&self, path: &str) -> String {
        ["a", "b", "c"]
            .into_iter()
            .filter(|name| self.at(name).join(path).symlink_metadata().is_ok())
            .collect()
    }

    /// Looks up a path.
    fn look(&self, path: &str) -> Result<Entry> {
        let (parent, last) = self.parent(path);
        let entry = lookup::lookup(&self.shared, Who::root(), parent, &name(last))?;
        if entry.node.is_none() { Err(Errno::NOENT) } else { Ok(entry) }
    }

    fn id(&self, path: &str) -> NodeId {
        if path.is_empty() { NodeId::ROOT } else { self.look(path).unwrap().node.unwrap() }
    }

    fn parent<'p>(&self, path: &'p str) -> (NodeId, &'p str) {
        match path.rsplit_once('/') {
            Some((folder, last)) => (self.id(folder), last),
            None => (NodeId::ROOT, path),
        }
    }

    fn create(&self, path: &str) -> Result<PoolFile> {
        let (parent, last) = self.parent(path);
        let flags = OpenFlags(mode::O_RDWR);
        create::create(&self.shared, Who::root(), parent, &name(last), FILE, flags)
            .map(|(_, opened)| opened.file)
    }

    fn mkdir(&self, path: &str) -> Result<Entry> {
        let (parent, last) = self.parent(path);
        make::mkdir(&self.shared, Who::root(), parent, &name(last), FOLDER)
    }

    fn unlink(&self, path: &str) -> Result<()> {
        let (parent, last) = self.parent(path);
        remove::unlink(&self.shared, Who::root(), parent, &name(last))
    }

    fn rmdir(&self, path: &str) -> Result<()> {
        let (parent, last) = self.parent(path);
        remove::rmdir(&self.shared, Who::root(), parent, &name(last))
    }

    fn rename(&self, from: &str, to: &str, flags: u32) -> Result<()> {
        let ((parent, old), (new_parent, new)) = (self.parent(from), self.parent(to));
        let (old, new) = (name(old), name(new));
        let (from, to) = (Named { parent, name: &old }, Named { parent: new_parent, name: &new });
        rename::rename(&self.shared, Who::root(), from, to, flags)
    }

    fn link(&self, from: &str, to: &str) -> Result<Entry> {
        let (parent, last) = self.parent(to);
        make::link(&self.shared, Who::root(), self.id(from), parent, &name(last))
    }

    /// What a path holds, as the merge shows it.
    fn read(&self, path: &str) -> String {
        let node = self.shared.node(self.id(path)).unwrap();
        let lower = self.shared.open_node(&node, mode::O_RDONLY).unwrap();
        let mut bytes = [0; 64];
        let len = shuntfs_sys::data::read_at(&lower, &mut bytes, 0).unwrap();
        String::from_utf8(bytes[..len].to_vec()).unwrap()
    }

    /// The names of a folder in the order in which they are listed, read so many records at a time.
    fn list(&self, path: &str, room: usize, plus: bool) -> Vec<String> {
        let opened = dir::open(&self.shared, Who::root(), self.id(path)).unwrap();
        let (mut names, mut cookie) = (Vec::new(), 0);
        loop {
            let mut some = Batch { plus, room, names: Vec::new() };
            dir::list(&self.shared, Who::root(), &opened.walk, cookie, &mut some).unwrap();
            let Some((_, last)) = some.names.last() else { return names };
            cookie = *last;
            names.extend(some.names.into_iter().map(|(name, _)| name));
        }
    }
}

struct Batch {
    plus: bool,
    room: usize,
    names: Vec<(String, u64)>,
}

impl Records for Batch {
    fn wants_entries(&self) -> bool {
        self.plus
    }

    fn fits(&self, _: usize) -> bool {
        self.names.len() < self.room
    }

    fn push(&mut self, _: u64, cookie: u64, _: u8, name: &std::ffi::CStr) -> bool {
        self.names.push((name.to_str().unwrap().to_owned(), cookie));
        true
    }

    fn push_entry(&mut self, _: &Entry, cookie: u64, name: &std::ffi::CStr) -> bool {
        self.push(0, cookie, 0, name)
    }
}

fn name(name: &str) -> NameBuf {
    let name = CString::new(name).unwrap();
    NameBuf::new(Name::new(&name).unwrap()).unwrap()
}

fn policy(name: &str) -> &'static Policy {
    Policy::of(name).unwrap()
}

#[test]
fn files_are_those_of_the_first_branch_and_folders_of_all() {
    let three = Three::new(&["a/x/one", "b/x/two", "c/x/one", "b/only", "c/both", "b/both/in"], |_| ());
    assert_eq!(three.read("x/one"), "a/x/one");
    assert_eq!(three.read("x/two"), "b/x/two");
    assert_eq!(three.read("only"), "b/only");
    assert_eq!(three.read("both/in"), "b/both/in", "a folder on an earlier branch hides a file");
    assert_eq!(three.look("x/three").err(), Some(Errno::NOENT));
    assert_eq!(three.id("x"), three.id("x"));
    let (x, below) = (three.look("x").unwrap(), fs::metadata(three.at("a/x")).unwrap());
    assert_eq!((x.attr.mode, x.attr.nlink), (below.mode(), u32::try_from(below.nlink()).unwrap()));
    let numbers = ["x", "x/one", "x/two", "only"].map(|path| three.look(path).unwrap().attr.ino);
    assert!((1..4).all(|index| !numbers[..index].contains(&numbers[index])), "{numbers:x?}");
}

#[test]
fn the_search_policy_says_which_copy_is_shown() {
    let three = Three::new(&["a/x", "b/x", "c/x"], |merge| merge.search = policy("newest"));
    for (branch, secs) in [("a", 10), ("b", 30), ("c", 20)] {
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(secs);
        fs::File::options().write(true).open(three.at(branch).join("x")).unwrap().set_modified(time).unwrap();
    }
    assert_eq!(three.read("x"), "b/x");
}

#[test]
fn listings_have_each_name_once_whatever_their_pieces() {
    let mut tree: Vec<String> = (0..40).map(|number| format!("a/x/{number}")).collect();
    tree.extend((20..60).map(|number| format!("b/x/{number}")));
    tree.extend((50..90).map(|number| format!("c/x/{number}")));
    let tree: Vec<&str> = tree.iter().map(String::as_str).collect();
    let three = Three::new(&tree, |_| ());
    let mut expected: Vec<String> = (0..90).map(|number| number.to_string()).collect();
    expected.extend([".", ".."].map(str::to_owned));
    expected.sort();
    for room in [1, 7, 1000] {
        for plus in [false, true] {
            let mut names = three.list("x", room, plus);
            names.sort();
            assert_eq!(names, expected, "{room} {plus}");
        }
    }
}

#[test]
fn a_listing_goes_back_to_any_of_its_cookies() {
    // More than are marked, on each branch.
    let tree: Vec<String> = [("a", 0..50), ("b", 40..110), ("c", 30..150)]
        .into_iter()
        .flat_map(|(branch, numbers)| numbers.map(move |number| format!("{branch}/x/{number}")))
        .collect();
    let three = Three::new(&tree.iter().map(String::as_str).collect::<Vec<_>>(), |_| ());
    let opened = dir::open(&three.shared, Who::root(), three.id("x")).unwrap();
    let read = |cookie, room| {
        let mut some = Batch { plus: false, room, names: Vec::new() };
        dir::list(&three.shared, Who::root(), &opened.walk, cookie, &mut some).unwrap();
        some.names
    };
    let all = read(0, 1000);
    assert_eq!(all.len(), 152);
    for step in 0..152 {
        // Back and forth.
        let index = step * 67 % 152;
        assert_eq!(read(all[index].1, 1000), all[index + 1..], "after {index}");
    }
    // On a descriptor that has listed nothing yet, too.
    let opened = dir::open(&three.shared, Who::root(), three.id("x")).unwrap();
    let mut some = Batch { plus: false, room: 1000, names: Vec::new() };
    dir::list(&three.shared, Who::root(), &opened.walk, all[70].1, &mut some).unwrap();
    assert_eq!(some.names, all[71..]);
}

#[test]
fn new_things_are_made_where_the_policy_says_and_the_path_is_made_there() {
    let three = Three::new(&["c/deep/er/there"], |_| ());
    let deep = three.at("c/deep");
    fs::set_permissions(&deep, fs::Permissions::from_mode(0o2751)).unwrap();
    drop(three.create("deep/er/new").unwrap());
    assert_eq!((three.on("deep/er/new"), three.on("deep/er/there")), ("a".into(), "c".into()));
    let (made, from) = (fs::metadata(three.at("a/deep")).unwrap(), fs::metadata(&deep).unwrap());
    assert_eq!((made.mode(), made.uid(), made.gid()), (from.mode(), from.uid(), from.gid()));
    assert_eq!(three.read("deep/er/there"), "c/deep/er/there");
    assert_eq!(three.mkdir("deep/folder").unwrap().attr.mode & 0o7777, 0o2755);
    assert_eq!(three.on("deep/folder"), "a");
    let three = Three::new(&["c/deep/"], |merge| merge.create = policy("epff"));
    drop(three.create("deep/new").unwrap());
    drop(three.create("new").unwrap());
    assert_eq!((three.on("deep/new"), three.on("new")), ("c".into(), "a".into()));
    let three = Three::new(&["c/deep/"], |merge| merge.create = policy("all"));
    three.mkdir("deep/folder").unwrap();
    drop(three.create("deep/file").unwrap());
    assert_eq!((three.on("deep/folder"), three.on("deep/file")), ("abc".into(), "a".into()));
}

#[test]
fn modes_and_space_leave_branches_out() {
    let modes = |modes: [BranchMode; 3]| {
        Three::new(&["a/x", "b/y", "c/folder/"], move |merge| {
            merge.branches.iter_mut().zip(modes).for_each(|(branch, mode)| branch.mode = mode);
        })
    };
    let three = modes([BranchMode::ReadOnly, BranchMode::NoCreate, BranchMode::ReadWrite]);
    drop(three.create("new").unwrap());
    assert_eq!(three.on("new"), "c");
    assert_eq!(three.unlink("x").err(), Some(Errno::ROFS));
    let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    let set =
        |path| attr::setattr(&three.shared, Who::root(), three.id(path), (None, None), mode).map(|_| ());
    assert_eq!((set("x"), set("y")), (Err(Errno::ROFS), Ok(())));
    assert_eq!(three.link("x", "z").map(|_| ()), Err(Errno::ROFS));
    three.unlink("y").unwrap();
    let three = modes([BranchMode::ReadOnly; 3]);
    assert_eq!(three.create("new").map(|_| ()), Err(Errno::ROFS));
    assert_eq!(three.mkdir("new").map(|_| ()), Err(Errno::ROFS));
    let three = Three::new(&[], |merge| merge.min_free = u64::MAX);
    assert_eq!(three.create("new").map(|_| ()), Err(Errno::NOSPC));
}

/// The kernel did not know of a file, which is shown on a branch that is read-only; nothing says that of the other ones.
#[test]
fn what_cannot_be_opened_for_writing_says_nothing_of_where_it_would_be_made() {
    let three = Three::new(&["a/x", "b/x"], |merge| {
        merge.branches[0].mode = BranchMode::ReadOnly;
        merge.branches[2].mode = BranchMode::ReadOnly;
    });
    assert_eq!(three.create("x").map(|_| ()), Err(Errno::ROFS));
    drop(three.create("y").unwrap());
    assert_eq!(three.on("y"), "b");
}

#[test]
fn all_copies_of_a_name_are_removed_and_no_folder_that_holds_something() {
    let three = Three::new(&["a/x", "c/x", "a/f/", "b/f/", "c/f/in"], |_| ());
    three.unlink("x").unwrap();
    assert_eq!((three.on("x"), three.look("x").err()), (String::new(), Some(Errno::NOENT)));
    let folder = three.id("f");
    assert_eq!(three.rmdir("f"), Err(Errno::NOTEMPTY));
    assert_eq!(three.on("f"), "abc", "none of them went");
    three.unlink("f/in").unwrap();
    three.rmdir("f").unwrap();
    assert_eq!(three.on("f"), "");
    assert!(attr::getattr(&three.shared, folder).is_ok(), "somebody may work in it");
    three.mkdir("f").unwrap();
    assert_ne!(three.id("f"), folder, "it is another one");
}

#[test]
fn a_rename_stays_on_its_branch() {
    let three = Three::new(&["a/x", "b/y", "c/f/in", "b/z"], |_| ());
    let node = three.id("y");
    three.rename("y", "f/y", 0).unwrap();
    assert_eq!((three.on("f/y"), three.on("f"), three.id("f/y")), ("b".into(), "bc".into(), node));
    // What had the name elsewhere goes.
    three.rename("x", "z", 0).unwrap();
    assert_eq!((three.on("z"), three.read("z")), ("a".into(), "a/x".into()));
    assert_eq!(three.rename("z", "f/in", mode::RENAME_NOREPLACE), Err(Errno::EXIST));
    assert_eq!(three.rename("z", "f/in", mode::RENAME_EXCHANGE), Err(Errno::XDEV));
    assert_eq!(three.rename("z", "w", mode::RENAME_WHITEOUT), Err(Errno::INVAL));
    let three = Three::new(&["b/y", "c/f/"], |merge| merge.create = policy("epmfs"));
    assert_eq!(three.rename("y", "f/y", 0), Err(Errno::XDEV), "its path is not there");
    assert_eq!(three.link("y", "f/y").map(|_| ()), Err(Errno::XDEV));
}

#[test]
fn a_folder_moves_on_all_its_branches() {
    let three = Three::new(&["a/f/one", "c/f/two", "b/g/", "c/h/in"], |_| ());
    let node = three.id("f");
    let inside = three.id("f/two");
    assert_eq!(three.rename("f", "h", 0), Err(Errno::NOTEMPTY));
    assert_eq!((three.on("f"), three.on("h")), ("ac".into(), "c".into()));
    three.rename("f", "g", 0).unwrap();
    assert_eq!((three.on("f"), three.on("g")), (String::new(), "ac".into()));
    assert_eq!((three.id("g"), three.id("g/two"), three.read("g/one")), (node, inside, "a/f/one".into()));
    three.rename("g", "h/g", 0).unwrap();
    assert_eq!((three.on("h/g"), three.on("h"), three.id("h/g")), ("ac".into(), "ac".into(), node));
}

#[test]
fn hard_links_stay_on_the_branch_of_their_file() {
    let three = Three::new(&["b/x", "c/f/"], |_| ());
    let linked = three.link("x", "f/y").unwrap();
    assert_eq!((three.on("f/y"), linked.attr.nlink, three.id("f/y")), ("b".into(), 2, three.id("x")));
}

#[test]
fn what_is_changed_of_a_folder_is_changed_on_all_branches() {
    let three = Three::new(&["a/f/", "c/f/"], |_| ());
    let (id, who) = (three.id("f"), Who::root());
    let time = Timestamp { secs: 1_000_000, nanos: 7 };
    let set = SetAttr { mode: Some(0o710), mtime: Some(SetTime::At(time)), ..SetAttr::default() };
    let reply = attr::setattr(&three.shared, who, id, (None, None), set).unwrap();
    assert_eq!((reply.attr.mode & 0o7777, reply.attr.mtime), (0o710, time));
    let value = xattr::Set { name: c"user.x", value: b"1", flags: 0, kill_sgid: false };
    let has_xattrs = xattr::set(&three.shared, who, id, value).is_ok();
    for branch in ["a", "c"] {
        let folder = three.at(branch).join("f");
        let below = fs::metadata(&folder).unwrap();
        assert_eq!((below.mode() & 0o7777, below.mtime(), below.mtime_nsec()), (0o710, 1_000_000, 7));
        let mut found = [0; 8];
        let len = rustix::fs::getxattr(&folder, "user.x", &mut found);
        assert!(!has_xattrs || len == Ok(1), "{branch}: {len:?}");
    }
}

#[test]
fn file_systems_are_counted_once() {
    let three = Three::new(&[], |_| ());
    let (all, one) = (
        attr::statfs(&three.shared, NodeId::ROOT).unwrap(),
        shuntfs_sys::filesystem_of(three.shared.first_branch().root()).unwrap(),
    );
    assert_eq!((all.blocks, all.files, all.frsize), (one.blocks, one.files, one.frsize));
}

#[test]
fn what_the_kernel_forgets_is_forgotten() {
    let three = Three::new(&["a/f/x", "b/f/y"], |_| ());
    let (folder, file) = (three.id("f"), three.id("f/y"));
    let merge = three.shared.merge.as_ref().unwrap();
    assert_eq!((merge.folders.len(), three.shared.table.len()), (1, 2));
    three.shared.forget(file, LookupCount(1));
    three.shared.forget(folder, LookupCount(2));
    assert_eq!((merge.folders.len(), three.shared.table.len(), three.shared.descriptors.len()), (0, 0, 0));
    assert_eq!(attr::getattr(&three.shared, folder).err(), Some(Errno::STALE));
}

#[test]
fn branches_that_cannot_be_are_refused() {
    let top = tempfile::tempdir().unwrap();
    for name in ["a/in", "b"] {
        fs::create_dir_all(top.path().join(name)).unwrap();
    }
    fs::write(top.path().join("file"), "").unwrap();
    std::os::unix::fs::symlink("a", top.path().join("link")).unwrap();
    let open = |names: &[&str], change: fn(&mut PoolOptions)| {
        let branches = names.iter().map(|name| BranchOptions::new(top.path().join(name))).collect();
        let mut options = PoolOptions { merge: Some(MergeOptions::new(branches)), ..PoolOptions::new("x") };
        change(&mut options);
        Shared::open(&options).err()
    };
    assert_eq!(open(&["a", "b"], |_| ()), None);
    assert!(matches!(open(&["a", "a"], |_| ()), Some(PoolError::SameBranch { .. })));
    assert!(matches!(open(&["a", "link"], |_| ()), Some(PoolError::SameBranch { .. })));
    assert!(matches!(open(&["a", "a/in"], |_| ()), Some(PoolError::BranchInside { .. })));
    assert!(matches!(open(&["a/in", "b", "a"], |_| ()), Some(PoolError::BranchInside { .. })));
    assert!(matches!(open(&["a", "nowhere"], |_| ()), Some(PoolError::Missing { .. })));
    assert!(matches!(open(&["a", "file"], |_| ()), Some(PoolError::NotAFolder { .. })));
    assert!(matches!(open(&[], |_| ()), Some(PoolError::NoBranch)));
    assert!(matches!(open(&["a"; 300], |_| ()), Some(PoolError::TooManyBranches { count: 300, .. })));
    let handles = open(&["a", "b"], |options| options.handles = true).unwrap();
    let is_refused =
        matches!(handles, PoolError::Handles { why: Fleeting::PartOfMore | Fleeting::Below, .. });
    assert!(is_refused, "{handles}");
    let renumbered = open(&["a", "b"], |options| {
        options.handles = true;
        options.merge.as_mut().unwrap().inode_calc = InodeCalc::HybridHash;
    });
    assert!(matches!(renumbered, Some(PoolError::Handles { why: Fleeting::Renumbered, .. })));
}

#[test]
fn branches_come_and_go() {
    let three = Three::new(&["a/f/one", "b/f/two", "d/f/three", "d/f/deep/in", "d/one", "c/one"], |_| ());
    let merge = three.shared.merge.as_ref().unwrap();
    let branch = |name: &str| BranchOptions::new(three.at(name));
    let change = |change: BranchChange| super::change(&three.shared, merge, &change);
    let paths = |branches: Vec<crate::BranchFacts>| -> Vec<String> {
        branches.iter().map(|one| one.path.file_name().unwrap().to_str().unwrap().to_owned()).collect()
    };
    let (folder, shown) = (three.id("f"), three.read("one"));
    assert_eq!((shown.as_str(), three.look("f/three").err()), ("c/one", Some(Errno::NOENT)));
    // Without a new look at it, as for a working directory.
    assert_eq!(paths(change(BranchChange::Append(vec![branch("d")])).unwrap()), ["a", "b", "c", "d"]);
    let parts = three.shared.node(folder).unwrap();
    assert_eq!(parts.parts().unwrap().all().len(), 3);
    assert_eq!((three.id("f"), three.read("f/three")), (folder, "d/f/three".into()));
    assert_eq!(three.read("one"), "c/one", "it is behind");
    let deep = three.id("f/deep");
    assert_eq!(
        paths(change(BranchChange::Set(["d", "b", "a"].map(branch).to_vec())).unwrap()),
        ["d", "b", "a"]
    );
    assert_eq!(three.read("one"), "d/one", "it is before");
    assert_eq!(paths(change(BranchChange::Remove(vec![three.at("d")])).unwrap()), ["b", "a"]);
    assert_eq!(
        (three.look("one").err(), three.look("f/deep").err()),
        (Some(Errno::NOENT), Some(Errno::NOENT))
    );
    let mut names = three.list("f", 1000, false);
    names.sort();
    assert_eq!(names, [".", "..", "one", "two"]);
    assert_eq!(three.read("f/one"), "a/f/one");
    assert!(attr::getattr(&three.shared, deep).is_err(), "nothing there was open");
    // The same folder once more is another branch.
    assert_eq!(paths(change(BranchChange::Prepend(vec![branch("d")])).unwrap()), ["d", "b", "a"]);
    assert_eq!((three.read("one"), three.id("f")), ("d/one".into(), folder));
}

#[test]
fn changes_of_branches_that_cannot_be_change_nothing() {
    let three = Three::new(&["a/f/in", "d/one"], |_| ());
    let merge = three.shared.merge.as_ref().unwrap();
    let branch = |name: &str| BranchOptions::new(three.at(name));
    let change = |change: BranchChange| super::change(&three.shared, merge, &change).err();
    for (refused, text) in [
        (BranchChange::Append(vec![branch("d"), branch("b")]), "are the same folder"),
        (BranchChange::Append(vec![branch("d"), branch("gone")]), "gone"),
        (BranchChange::Prepend(vec![branch("a/f")]), "is inside the branch"),
        (BranchChange::Remove(vec![three.at("d")]), "is no branch"),
        (BranchChange::Remove(["a", "b", "c"].map(|name| three.at(name)).to_vec()), "needs a branch"),
        (BranchChange::Set(Vec::new()), "needs a branch"),
    ] {
        let error = change(refused.clone()).map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(text), "{refused:?}: {error}");
    }
    assert_eq!(
        (three.look("one").err(), three.shared.branches.order()[..] == [0, 1, 2]),
        (Some(Errno::NOENT), true)
    );
}

#[test]
fn what_may_be_done_on_a_branch_changes() {
    let three = Three::new(&[], |_| ());
    let merge = three.shared.merge.as_ref().unwrap();
    let list = |mode| {
        let branch = |name: &str| BranchOptions::new(three.at(name));
        BranchChange::Set(vec![BranchOptions { mode, ..branch("a") }, branch("b"), branch("c")])
    };
    super::change(&three.shared, merge, &list(BranchMode::NoCreate)).unwrap();
    drop(three.create("new").unwrap());
    super::change(&three.shared, merge, &list(BranchMode::ReadWrite)).unwrap();
    drop(three.create("other").unwrap());
    assert_eq!((three.on("new"), three.on("other")), ("b".into(), "a".into()));
}

#[test]
fn a_removed_branch_is_held_while_something_there_is_open() {
    let three = Three::new(&["b/one"], |_| ());
    let merge = three.shared.merge.as_ref().unwrap();
    let node = three.id("one");
    let opened = open::open(&three.shared, Who::root(), node, OpenFlags(mode::O_RDONLY)).unwrap().file;
    super::change(&three.shared, merge, &BranchChange::Remove(vec![three.at("b")])).unwrap();
    assert!(merge.has_removed() && three.look("one").is_err());
    assert!(attr::getattr(&three.shared, node).is_ok());
    crate::file::release(&three.shared, Arc::new(opened));
    assert!(!merge.has_removed());
    let held =
        fs::read_dir("/proc/self/fd").unwrap().flatten().filter_map(|fd| fs::read_link(fd.path()).ok());
    let branch = three.at("b");
    assert!(held.into_iter().all(|path| !path.starts_with(&branch)), "nothing of it is open");
}

#[test]
fn an_open_folder_lists_where_it_was_opened() {
    let three = Three::new(&["a/x/one", "b/x/two"], |_| ());
    let opened = dir::open(&three.shared, Who::root(), three.id("x")).unwrap();
    // Another folder takes the name, which the caller may not list.
    fs::rename(three.at("a/x"), three.at("a/old")).unwrap();
    fs::create_dir(three.at("a/x")).unwrap();
    fs::write(three.at("a/x/secret"), "").unwrap();
    three.look("x").unwrap();
    let mut some = Batch { plus: false, room: 100, names: Vec::new() };
    dir::list(&three.shared, Who::root(), &opened.walk, 0, &mut some).unwrap();
    let mut names: Vec<_> = some.names.into_iter().map(|(name, _)| name).collect();
    names.sort();
    assert_eq!(names, [".", "..", "one", "two"]);
}

/// The path was made on a further branch: the folder that has the name now was taken for the one that was removed, and a nameless file came to
/// it whoever may enter it.
#[test]
fn nothing_comes_to_a_folder_that_was_removed() {
    for is_replaced in [false, true] {
        let three = Three::new(&["c/d/", "c/e/"], |_| ());
        let id = three.id("d");
        if is_replaced {
            three.rename("e", "d", 0).unwrap();
            three.rmdir("d").unwrap();
        } else {
            three.rmdir("d").unwrap();
        }
        three.mkdir("d").unwrap();
        assert_eq!(three.on("d"), "a");
        let nameless = create::tmpfile(&three.shared, Who::root(), id, FILE, OpenFlags(mode::O_RDWR));
        assert_eq!(nameless.err(), Some(Errno::NOENT), "{is_replaced}");
        let made = three.shared.node(id).unwrap();
        assert_eq!(made.parts().unwrap().all().len(), 1, "it is on no further branch");
    }
}

/// The first branch said whether a file or a folder moves, whatever was shown.
#[test]
fn what_moves_is_of_the_kind_that_is_shown() {
    let three = Three::new(&["a/x/", "b/x"], |merge| merge.search = policy("newest"));
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(60);
    fs::File::options().write(true).open(three.at("b/x")).unwrap().set_modified(later).unwrap();
    three.rename("x", "y", 0).unwrap();
    assert_eq!((three.on("x"), three.on("y")), ("a".into(), "b".into()));
    assert_eq!(three.read("y"), "b/x");
}

#[test]
fn what_moves_is_what_is_shown() {
    let three = Three::new(&["a/x", "b/x"], |merge| merge.action = policy("newest"));
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(60);
    fs::File::options().write(true).open(three.at("b/x")).unwrap().set_modified(later).unwrap();
    assert_eq!(three.rename("x", "y", 0), Err(Errno::XDEV), "the newest is hidden");
    assert_eq!((three.on("x"), three.on("y")), ("ab".into(), String::new()));
}

#[test]
fn listings_give_back_what_they_remember() {
    let tree: Vec<String> =
        (0..100).flat_map(|number| ["a", "b", "c"].map(|one| format!("{one}/x/{number}"))).collect();
    let three = Three::new(&tree.iter().map(String::as_str).collect::<Vec<_>>(), |_| ());
    let merge = three.shared.merge.as_ref().unwrap();
    let opened = dir::open(&three.shared, Who::root(), three.id("x")).unwrap();
    let mut some = Batch { plus: false, room: 1000, names: Vec::new() };
    dir::list(&three.shared, Who::root(), &opened.walk, 0, &mut some).unwrap();
    assert_eq!((some.names.len(), merge.room.taken()), (102, 102));
    drop(opened);
    assert_eq!(merge.room.taken(), 0);
}

/// So many names in `x` on each branch, each on one branch only and beginning with its letter; and these names.
fn names_on_each(counts: [usize; 3]) -> (Three, Vec<String>) {
    let names: Vec<String> = ["a", "b", "c"]
        .into_iter()
        .zip(counts)
        .flat_map(|(branch, count)| (0..count).map(move |number| format!("{branch}{number}")))
        .collect();
    let tree: Vec<String> = names.iter().map(|name| format!("{}/x/{name}", &name[..1])).collect();
    let three = Three::new(&tree.iter().map(String::as_str).collect::<Vec<_>>(), |_| ());
    (three, names)
}

/// One READDIR: names, and the cookies after them.
fn read_on(three: &Three, opened: &dir::PoolDir, cookie: u64, room: usize) -> Vec<(String, u64)> {
    let mut some = Batch { plus: false, room, names: Vec::new() };
    dir::list(&three.shared, Who::root(), &opened.walk, cookie, &mut some).unwrap();
    some.names
}

/// Of the first 100 records 51 are used, the last of which is on `branch`. Their names are removed, and the listing goes on behind them.
fn go_back_after_removals(counts: [usize; 3], branch: &str) {
    let (three, names) = names_on_each(counts);
    let opened = dir::open(&three.shared, Who::root(), three.id("x")).unwrap();
    let mut used = read_on(&three, &opened, 0, 100);
    assert_eq!(used.len(), 100);
    used.truncate(51);
    let (last, mut cookie) = used[50].clone();
    assert!(last.starts_with(branch), "{last}");
    for (name, _) in used.iter().filter(|(name, _)| !name.starts_with('.')) {
        fs::remove_file(three.at(&format!("{}/x/{name}", &name[..1]))).unwrap();
    }
    let mut expected: Vec<String> = names.into_iter().chain([".", ".."].map(str::to_owned)).collect();
    expected.retain(|name| used.iter().all(|(one, _)| one != name));
    let mut rest = Vec::new();
    loop {
        let some = read_on(&three, &opened, cookie, 100);
        let Some((_, next)) = some.last() else { break };
        cookie = *next;
        rest.extend(some.into_iter().map(|(name, _)| name));
    }
    rest.sort();
    expected.sort();
    assert_eq!(rest, expected, "{counts:?}");
}

/// Names that were left were counted in place of those that were removed, and so never listed: `rm -r` ended with ENOTEMPTY.
#[test]
fn a_listing_goes_back_exactly_whatever_was_removed() {
    go_back_after_removals([100, 100, 100], "a");
}

#[test]
fn a_listing_goes_back_exactly_beyond_a_border_of_branches() {
    go_back_after_removals([30, 100, 100], "b");
    go_back_after_removals([10, 20, 100], "c");
    // With `.` and `..`, the last record of its branch.
    go_back_after_removals([49, 100, 100], "a");
}

/// As `rm -r` does it with a small buffer.
#[test]
fn a_folder_is_emptied_as_it_is_listed() {
    let tree: Vec<String> = [("a", 0..100), ("b", 60..160), ("c", 90..260)]
        .into_iter()
        .flat_map(|(branch, numbers)| numbers.map(move |number| format!("{branch}/x/{number}")))
        .collect();
    let three = Three::new(&tree.iter().map(String::as_str).collect::<Vec<_>>(), |_| ());
    let opened = dir::open(&three.shared, Who::root(), three.id("x")).unwrap();
    let mut cookie = 0;
    loop {
        let mut some = read_on(&three, &opened, cookie, 100);
        some.truncate(51);
        let Some((_, next)) = some.last() else { break };
        cookie = *next;
        for (name, _) in some.iter().filter(|(name, _)| !name.starts_with('.')) {
            three.unlink(&format!("x/{name}")).unwrap();
        }
    }
    three.rmdir("x").unwrap();
}

/// Its position is no longer kept: a mark leads there.
#[test]
fn a_listing_goes_back_to_what_was_listed_long_ago() {
    let (three, _) = names_on_each([100, 100, 4300]);
    let opened = dir::open(&three.shared, Who::root(), three.id("x")).unwrap();
    let all = read_on(&three, &opened, 0, 10_000);
    assert_eq!(all.len(), 4502);
    for index in [0, 30, 31, 32, 101, 102, 150, 201, 202, 300, 404, 405, 406, 4000, 4501] {
        assert_eq!(read_on(&three, &opened, all[index].1, 10_000), all[index + 1..], "after {index}");
    }
}
