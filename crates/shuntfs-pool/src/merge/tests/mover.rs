//! Files that are moved because rules say so: which go and which stay, and what users may do meanwhile. The branches are on two file systems of
//! every machine's, as in the tests of files whose branches are full.

use std::cell::{Cell, RefCell};
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use shuntfs::{Access, Errno, Flow, Flows, NodeId, OpenFlags, Reason};
use shuntfs_rules::{Nobody, Rules};
use tempfile::TempDir;

use super::name;
use crate::file::lower_file;
use crate::merge::{self, BranchChange, BranchOptions, Errand, MergeOptions, Unmoved, carry_out};
use crate::mover::{self, MoverError, MoverFacts, MoverFile, MoverNews, MoverOutcome};
use crate::node::{Change, Marks};
use crate::op::{attr, lookup, open};
use crate::options::PoolOptions;
use crate::policy::BranchMode;
use crate::shared::Shared;
use crate::who::Who;
use crate::{PoolFile, mode};

const DAY: u64 = 24 * 60 * 60;

/// Everything goes from the branch in memory to the other one, once it is ten days old.
const AFTER_TEN_DAYS: &str = "[[rule]]\nname = 'old'\nmove = { to = 'id=slow', after = '10d' }\n";

/// A change of a branch that makes it no place for a file, and the words for that.
type Unfit = (fn(&mut MergeOptions), &'static str);

/// Something that is done while a file is copied, and why it stays.
type Meanwhile = (&'static str, fn(&Two), Unmoved);

/// A branch in memory, called `fast`, and one on a disk, called `slow`.
struct Two {
    folders: [TempDir; 2],
    shared: Shared,
}

impl Two {
    /// With files that were last used so many days ago: `0/d/file 30`.
    fn new(rules: &str, tree: &[&str], change: impl FnOnce(&mut MergeOptions)) -> Option<Self> {
        let folders = [tempfile::tempdir_in("/dev/shm").ok()?, tempfile::tempdir().ok()?];
        let device = |folder: &TempDir| folder.path().metadata().unwrap().dev();
        if device(&folders[0]) == device(&folders[1]) {
            shuntfs_testkit::skipped("the machine has one file system only");
            return None;
        }
        for file in tree {
            let (path, days) = file.split_once(' ').unwrap();
            let (number, path) = path.split_once('/').unwrap();
            let at = folders[number.parse::<usize>().unwrap()].path().join(path);
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            fs::write(&at, format!("{number}/{path}")).unwrap();
            age(&at, days.parse().unwrap());
        }
        let branch = |folder: &TempDir, id: &str| BranchOptions {
            id: Some(id.to_owned()),
            ..BranchOptions::new(folder.path())
        };
        let mut merge = MergeOptions::new(vec![branch(&folders[0], "fast"), branch(&folders[1], "slow")]);
        merge.min_free = 0;
        change(&mut merge);
        let options = PoolOptions { merge: Some(merge), ..PoolOptions::new("two") };
        let rules = Rules::parse(rules, "rules", None, &Nobody).unwrap();
        let shared = Shared::open_with(&options, Some(rules), None).unwrap();
        Some(Self { folders, shared })
    }

    fn at(&self, branch: usize, path: &str) -> PathBuf {
        self.folders[branch].path().join(path)
    }

    fn on(&self, path: &str) -> Vec<usize> {
        (0..2).filter(|branch| self.at(*branch, path).symlink_metadata().is_ok()).collect()
    }

    /// Looks a path up for somebody; that is never taken back.
    fn id(&self, path: &str) -> NodeId {
        let mut here = NodeId::ROOT;
        for component in path.split('/') {
            here = lookup::lookup(&self.shared, Who::root(), here, &name(component)).unwrap().node.unwrap();
        }
        here
    }

    /// Opens a file as the kernel does, which has its bytes flow this way.
    fn open(&self, path: &str, flags: u32, flow: Flow) -> PoolFile {
        let opened = open::open(&self.shared, Who::root(), self.id(path), OpenFlags(flags)).unwrap();
        opened.file.flows_by(&self.shared, Flows::both(flow, Reason::Wished));
        opened.file
    }

    fn run(&self, is_dry: bool) -> (MoverFacts, Vec<MoverFile>) {
        let mut files = Vec::new();
        let facts = mover::run(&self.shared, is_dry, &mut |news| {
            if let MoverNews::File(file) = news {
                files.push(file);
            }
            true
        });
        (facts.unwrap(), files)
    }

    /// What a run says of each file: its path, and why it stays if it does.
    fn said(&self, is_dry: bool) -> Vec<(String, Option<String>)> {
        self.run(is_dry).1.into_iter().map(|file| (file.path, file.why)).collect()
    }
}

/// Has a file be as if it was used and changed so many days ago.
fn age(path: &Path, days: u64) {
    let then = SystemTime::now() - Duration::from_secs(days * DAY);
    let times = fs::FileTimes::new().set_accessed(then).set_modified(then);
    File::options().write(true).open(path).unwrap().set_times(times).unwrap();
}

fn moved(paths: &[&str]) -> Vec<(String, Option<String>)> {
    paths.iter().map(|path| ((*path).to_owned(), None)).collect()
}

#[test]
fn what_is_old_is_moved_with_all_that_it_has_the_oldest_first() {
    let tree = ["0/new 9", "0/d/e/old 11", "0/older 20", "1/there 30"];
    let Some(two) = Two::new(AFTER_TEN_DAYS, &tree, |_| ()) else { return };
    let before = two.at(0, "d/e/old");
    fs::set_permissions(&before, fs::Permissions::from_mode(0o604)).unwrap();
    fs::set_permissions(two.at(0, "d"), fs::Permissions::from_mode(0o710)).unwrap();
    let stat = before.metadata().unwrap();
    // At first it is only looked.
    let (facts, files) = two.run(true);
    assert_eq!(two.said(true), moved(&["older", "d/e/old"]));
    assert!(
        facts.dry_run && !facts.running && (facts.moved_files, facts.left_files, facts.failures) == (2, 0, 0)
    );
    assert_eq!((files[1].outcome, files[1].rule.as_deref()), (MoverOutcome::WouldMove, Some("old")));
    assert_eq!(files[1].to.as_deref(), two.folders[1].path().canonicalize().unwrap().to_str());
    assert_eq!((two.on("older"), two.on("d/e/old"), two.on("d")), (vec![0], vec![0], vec![0]));
    let (facts, files) = two.run(false);
    assert_eq!(files.iter().map(|file| file.outcome).collect::<Vec<_>>(), [MoverOutcome::Moved; 2]);
    assert_eq!((facts.seen, facts.due_files, facts.done_files, facts.moved_files), (3, 2, 2, 2));
    assert_eq!((facts.due_bytes, facts.done_bytes), (facts.moved_bytes, facts.moved_bytes));
    assert_eq!(two.shared.merge.as_ref().unwrap().mover.facts(), Some(facts));
    assert_eq!(
        ["new", "older", "d/e/old", "there"].map(|path| two.on(path)),
        [vec![0], vec![1], vec![1], vec![1]]
    );
    // Asked before it is read.
    let now = two.at(1, "d/e/old").metadata().unwrap();
    assert_eq!(fs::read(two.at(1, "d/e/old")).unwrap(), b"0/d/e/old");
    let times = |of: &fs::Metadata| (of.mtime(), of.mtime_nsec(), of.atime(), of.atime_nsec());
    assert_eq!((now.mode(), times(&now)), (stat.mode(), times(&stat)));
    assert_eq!(two.at(1, "d").metadata().unwrap().mode() & 0o7777, 0o710);
    // It is done, and nothing that it looked up is left.
    assert_eq!(two.said(false), []);
    assert_eq!((two.shared.table.len(), two.shared.table.overdrawn()), (0, 0));
    assert_eq!(two.shared.merge.as_ref().unwrap().files_moved(), 0, "none because its branch was full");
}

#[test]
fn what_stays_is_said_with_the_reason() {
    let tree = [
        "0/linked 30",
        "0/both 30",
        "1/both 30",
        "0/written 30",
        "0/passing 30",
        "0/mapped 30",
        "0/coming 30",
        "0/locked 30",
    ];
    let Some(two) = Two::new(AFTER_TEN_DAYS, &tree, |_| ()) else { return };
    fs::hard_link(two.at(0, "linked"), two.at(0, "link")).unwrap();
    let written = two.open("written", mode::O_WRONLY, Flow::Relay);
    let passing = two.open("passing", mode::O_RDONLY, Flow::Passthrough);
    drop(two.open("mapped", mode::O_RDWR, Flow::Passthrough));
    let coming = open::open(&two.shared, Who::root(), two.id("coming"), OpenFlags(mode::O_RDONLY)).unwrap();
    two.shared.node(two.id("locked")).unwrap().mark(Marks::LOCKED_BELOW);
    for is_dry in [true, false] {
        let said = two.said(is_dry);
        let why = |path: &str| {
            let found = said.iter().find(|(said, _)| said == path);
            found
                .and_then(|(_, why)| why.clone())
                .unwrap_or_else(|| panic!("nothing is said of {path}: {said:?}"))
        };
        for (path, words) in [
            ("linked", "2 names"),
            ("link", "2 names"),
            ("both", "other branches have a file of its name"),
            ("written", "open for writing"),
            ("passing", "open in passthrough"),
            ("mapped", "a mapping may be left"),
            ("coming", "being opened"),
            ("locked", "it was locked"),
        ] {
            assert!(why(path).contains(words), "{path}: {}", why(path));
        }
        assert_eq!(said.len(), 8, "{said:?}");
    }
    assert_eq!((two.on("both"), two.on("written"), two.on("passing")), (vec![0, 1], vec![0], vec![0]));
    drop((written, passing, coming.file));
    assert_eq!(two.run(false).0.moved_files, 3);
    assert_eq!((two.on("written"), two.on("passing"), two.on("coming")), (vec![1], vec![1], vec![1]));
    assert!(
        Change::begin(&two.shared.node(two.id("mapped")).unwrap()).is_some(),
        "nobody is kept from changing it"
    );
}

#[test]
fn who_reads_through_the_server_goes_on_with_the_copy() {
    let Some(two) = Two::new(AFTER_TEN_DAYS, &["0/d/file 30"], |_| ()) else { return };
    let reads = two.open("d/file", mode::O_RDONLY, Flow::Relay);
    let lower = |file: &PoolFile| shuntfs_sys::path_of(&*file.reader(&two.shared).unwrap()).unwrap();
    assert_eq!(lower(&reads), two.at(0, "d/file").canonicalize().unwrap());
    assert_eq!(two.said(false), moved(&["d/file"]));
    assert_eq!(lower(&reads), two.at(1, "d/file").canonicalize().unwrap());
    assert_eq!(two.id("d/file"), reads.node.id, "it is the same file for the kernel");
}

/// A branch that takes nothing new is what an archive is; one that is read-only, too small or no branch any more is no place.
#[test]
fn the_first_branch_that_has_room_gets_it() {
    let archive = |merge: &mut MergeOptions| merge.branches[1].mode = BranchMode::NoCreate;
    let Some(two) = Two::new(AFTER_TEN_DAYS, &["0/file 30"], archive) else { return };
    assert_eq!(two.said(false), moved(&["file"]));
    let changes: [Unfit; 2] = [
        (|merge| merge.branches[1].mode = BranchMode::ReadOnly, "the mode of its branch is RO"),
        (|merge| merge.branches[1].min_free = Some(u64::MAX), "bytes are available"),
    ];
    for (change, words) in changes {
        let Some(two) = Two::new(AFTER_TEN_DAYS, &["0/file 30"], change) else { return };
        for is_dry in [true, false] {
            let (facts, files) = two.run(is_dry);
            let why = files[0].why.as_deref().unwrap();
            assert!(why.contains("no other branch will do") && why.contains(words), "{why}");
            assert_eq!((facts.moved_files, facts.left_files, files[0].outcome), (0, 1, MoverOutcome::Left));
        }
        assert_eq!(two.on("file"), [0]);
    }
    // What is beside it on its own file system makes no room, and is no worse a place for what is old.
    let beside = tempfile::tempdir_in("/dev/shm").unwrap();
    let third = |merge: &mut MergeOptions| {
        merge.branches.push(BranchOptions { id: Some("beside".into()), ..BranchOptions::new(beside.path()) });
    };
    let rules = "[[rule]]\nmove = { to = ['id=beside', 'id=slow'], after = '10d' }\n";
    let Some(two) = Two::new(rules, &["0/file 30"], third) else { return };
    assert_eq!(two.said(false), moved(&["file"]));
    assert!(beside.path().join("file").exists() && two.on("file").is_empty());
}

#[test]
fn a_branch_that_is_not_that_full_keeps_its_files() {
    let rules = "[[rule]]\nmove = { to = 'id=slow', when_fuller_than = '99%' }\n";
    let Some(two) = Two::new(rules, &["0/file 30"], |_| ()) else { return };
    assert_eq!((two.said(true), two.said(false), two.on("file")), (vec![], vec![], vec![0]));
}

#[test]
fn what_rules_hide_is_moved_and_stays_hidden() {
    let rules = format!("{AFTER_TEN_DAYS}[[rule]]\nname = 'secret'\npath = 'secret/**'\nhide = true\n");
    let Some(two) = Two::new(&rules, &["0/secret/file 30", "0/open 30"], |_| ()) else { return };
    assert!(two.shared.rules.is_some(), "they do more than place");
    assert_eq!(two.run(false).0.moved_files, 2);
    assert_eq!((two.on("secret/file"), two.on("open")), (vec![1], vec![1]));
    let folder = two.id("secret");
    let found = lookup::lookup(&two.shared, Who::root(), folder, &name("file"));
    assert_eq!(found.err(), Some(Errno::NOENT));
}

#[test]
fn nothing_is_followed_or_taken_for_a_file() {
    let elsewhere = tempfile::tempdir().unwrap();
    fs::write(elsewhere.path().join("victim"), "text").unwrap();
    age(&elsewhere.path().join("victim"), 30);
    let Some(two) = Two::new(AFTER_TEN_DAYS, &["0/file 30"], |_| ()) else { return };
    symlink(elsewhere.path(), two.at(0, "folder")).unwrap();
    symlink(elsewhere.path().join("victim"), two.at(0, "link")).unwrap();
    assert_eq!(two.said(false), moved(&["file"]));
    assert!(elsewhere.path().join("victim").exists() && two.on("folder") == [0] && two.on("link") == [0]);
    // On the way on the other branch there is a symlink: nothing is put behind it.
    let Some(two) = Two::new(AFTER_TEN_DAYS, &["0/d/file 30"], |_| ()) else { return };
    symlink(elsewhere.path(), two.at(1, "d")).unwrap();
    let (facts, files) = two.run(false);
    assert_eq!((facts.moved_files, two.on("d/file")), (0, vec![0]), "{files:?}");
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 1);
}

#[test]
fn one_runs_at_a_time_and_ends_when_nobody_listens() {
    let Some(two) = Two::new(AFTER_TEN_DAYS, &["0/a 30", "0/b 29", "0/c 28"], |_| ()) else { return };
    let mut told = 0;
    let facts = mover::run(&two.shared, false, &mut |news| {
        if !matches!(news, MoverNews::File(_)) {
            return true;
        }
        told += 1;
        let second = mover::run(&two.shared, true, &mut |_| true);
        assert_eq!(second, Err(MoverError::Busy));
        assert!(two.shared.merge.as_ref().unwrap().mover.facts().unwrap().running);
        false
    });
    let facts = facts.unwrap();
    assert!(facts.cancelled && (facts.moved_files, told) == (1, 1));
    assert_eq!(["a", "b", "c"].map(|path| two.on(path)), [vec![1], vec![0], vec![0]]);
    assert_eq!(two.run(false).0.moved_files, 2);
}

#[test]
fn rules_that_move_nothing_have_nothing_to_run() {
    for rules in ["[[rule]]\nplace = 'id=slow'\n", "[[rule]]\nmove = 'mount'\n"] {
        let Some(two) = Two::new(rules, &["0/a 30"], |_| ()) else { return };
        assert_eq!(mover::run(&two.shared, false, &mut |_| true), Err(MoverError::NoRules), "{rules}");
        assert_eq!(two.shared.merge.as_ref().unwrap().mover.facts(), None);
    }
    let folder = tempfile::tempdir().unwrap();
    let one = Shared::open(&PoolOptions::new(folder.path())).unwrap();
    assert_eq!(mover::run(&one, false, &mut |_| true), Err(MoverError::NotOfOneFolder));
}

/// A file on its way, with something done at the moment that it was copied and has not got its name.
fn carry(two: &Two, path: &str, meanwhile: &dyn Fn()) -> std::result::Result<u16, Unmoved> {
    let (folder, file) = path.rsplit_once('/').map_or((NodeId::ROOT, path), |(at, file)| (two.id(at), file));
    let node = two.shared.node(two.id(path)).unwrap();
    let (folder, file) = (two.shared.folder(folder).unwrap(), name(file));
    let stat = shuntfs_sys::stat_of(two.shared.descriptor(&node).unwrap()).unwrap();
    let errand = Errand {
        spot: folder.spot(&file),
        stat: &stat,
        to: &[1],
        makes_room: false,
        spoken_for: &|_| 0,
        copied: &|_| meanwhile(),
    };
    carry_out(&two.shared, &node, &errand, false)
}

#[test]
fn an_open_in_the_middle_does_not_pass_the_server() {
    let Some(two) = Two::new(AFTER_TEN_DAYS, &["0/file 30"], |_| ()) else { return };
    let kept = RefCell::new(None);
    let refused = Cell::new(None);
    let opens = |is_settled: bool| {
        let opened = open::open(&two.shared, Who::root(), two.id("file"), OpenFlags(mode::O_RDWR)).unwrap();
        refused.set(lower_file(&two.shared, &opened.file, Access::Register).err());
        if is_settled {
            opened.file.flows_by(&two.shared, Flows::both(Flow::Relay, Reason::Wished));
        }
        kept.replace(Some(opened.file));
    };
    // Of one that is not settled it is not known what it got.
    assert_eq!(carry(&two, "file", &|| opens(false)), Err(Unmoved::InUse));
    assert_eq!((refused.take(), two.on("file")), (Some(Errno::BUSY), vec![0]));
    kept.replace(None);
    assert_eq!(carry(&two, "file", &|| opens(true)), Ok(1));
    assert_eq!((refused.take(), two.on("file")), (Some(Errno::BUSY), vec![1]));
    // It goes on with the copy, and when it is not being moved, a file may pass.
    let file = kept.take().unwrap();
    let lower = shuntfs_sys::path_of(&*file.mover(&two.shared).unwrap()).unwrap();
    assert_eq!(lower, two.at(1, "file").canonicalize().unwrap());
    assert!(lower_file(&two.shared, &file, Access::Register).is_ok());
}

/// Where all was copied already, they waited until it had got to its disk: half a minute for some GiB.
#[test]
fn who_begins_to_change_it_does_not_wait_for_the_copy() {
    let Some(two) = Two::new(AFTER_TEN_DAYS, &["0/file 30"], |_| ()) else { return };
    let node = two.shared.node(two.id("file")).unwrap();
    let change = RefCell::new(None);
    let begins = || {
        let begun = Change::begin(&node);
        assert!(begun.is_some(), "it waits");
        change.replace(begun);
    };
    assert_eq!(carry(&two, "file", &begins), Err(Unmoved::Written));
    assert_eq!(two.on("file"), [0]);
    change.take();
    assert!(Change::begin(&node).is_some());
    assert_eq!(carry(&two, "file", &|| ()), Ok(1));
}

/// A program had the file open on its branch, beside the pool, and went on writing into what had no name any more.
#[test]
fn what_somebody_writes_beside_the_pool_stays() {
    let Some(two) = Two::new(AFTER_TEN_DAYS, &["0/file 30"], |_| ()) else { return };
    let open = |writes: bool| File::options().read(true).write(writes).open(two.at(0, "file")).unwrap();
    let writes = open(true);
    assert_eq!(two.said(false), [("file".to_owned(), Some(Unmoved::Written.to_string()))]);
    assert_eq!(two.on("file"), [0]);
    drop(writes);
    // Nor does it when that begins while it is copied.
    let late = RefCell::new(None);
    assert_eq!(carry(&two, "file", &|| drop(late.replace(Some(open(true))))), Err(Unmoved::Written));
    assert_eq!(two.on("file"), [0]);
    late.take();
    let reads = open(false);
    assert_eq!(carry(&two, "file", &|| ()), Ok(1));
    drop(reads);
}

/// The mover went on with a disk that was removed from the pool, for hours if it was large, and it could not be unmounted.
#[test]
fn a_branch_that_is_removed_is_left_alone() {
    let Some(two) = Two::new(AFTER_TEN_DAYS, &["0/file 30"], |_| ()) else { return };
    // Each of these is told as soon as it is met.
    let deep = two.at(0, &"d/".repeat(256));
    fs::create_dir_all(&deep).unwrap();
    for number in 0..20 {
        fs::create_dir_all(deep.parent().unwrap().join(number.to_string())).unwrap();
    }
    let remove = || {
        let gone = vec![two.folders[0].path().to_owned()];
        let merge = two.shared.merge.as_ref().unwrap();
        merge::change(&two.shared, merge, &BranchChange::Remove(gone)).unwrap();
    };
    let mut told = 0;
    let facts = mover::run(&two.shared, false, &mut |news| {
        if let MoverNews::File(_) = news {
            told += 1;
            if told == 1 {
                remove();
            }
        }
        true
    });
    assert_eq!((told, facts.unwrap().moved_files, two.on("file")), (1, 0, vec![0]));
    // A copy that was begun ends, too.
    let Some(two) = Two::new(AFTER_TEN_DAYS, &["0/file 30"], |_| ()) else { return };
    let remove = || {
        let gone = vec![two.folders[1].path().to_owned()];
        let merge = two.shared.merge.as_ref().unwrap();
        merge::change(&two.shared, merge, &BranchChange::Remove(gone)).unwrap();
    };
    let stays = carry(&two, "file", &remove).unwrap_err();
    assert!(matches!(stays, Unmoved::NoBranch(_)), "{stays:?}");
    assert_eq!(two.on("file"), [0]);
}

/// Nobody has it open, so nobody is kept from changing it on its branch.
#[test]
fn what_is_changed_in_the_middle_stays() {
    let changes: [Meanwhile; 4] = [
        ("its content", |two| fs::write(two.at(0, "d/file"), "8 bytes!").unwrap(), Unmoved::Changed),
        (
            "a second name",
            |two| fs::hard_link(two.at(0, "d/file"), two.at(0, "d/link")).unwrap(),
            Unmoved::Linked(2),
        ),
        (
            "a copy",
            |two| {
                fs::create_dir_all(two.at(1, "d")).unwrap();
                fs::write(two.at(1, "d/file"), "other").unwrap();
            },
            Unmoved::Copies,
        ),
        (
            "another name",
            |two| {
                let (folder, old, new) = (two.id("d"), name("file"), name("renamed"));
                let named = |name| crate::op::rename::Named { parent: folder, name };
                crate::op::rename::rename(&two.shared, Who::root(), named(&old), named(&new), 0).unwrap();
            },
            Unmoved::Renamed,
        ),
    ];
    for (what, change, why) in changes {
        let Some(two) = Two::new(AFTER_TEN_DAYS, &["0/d/file 30"], |_| ()) else { return };
        let is_first = Cell::new(true);
        let meanwhile = || {
            if is_first.take() {
                change(&two);
            }
        };
        let stays = carry(&two, "d/file", &meanwhile).unwrap_err();
        // Of two names the kernel tells either.
        let is_meant = stays == why || why == Unmoved::Linked(2) && stays == Unmoved::Renamed;
        assert!(is_meant, "{what}: {stays:?}");
        let there: Vec<_> =
            ["d/file", "d/renamed"].into_iter().filter(|path| two.at(0, path).exists()).collect();
        assert_eq!(there.len(), 1, "{what}");
        let own: Vec<_> =
            fs::read_dir(two.folders[1].path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(own.iter().all(|name| name == "d"), "{what}: {own:?}");
    }
}

/// Its mode is changed on its branch while it is copied.
#[test]
fn attributes_that_change_in_the_middle_come_along() {
    let Some(two) = Two::new(AFTER_TEN_DAYS, &["0/file 30"], |_| ()) else { return };
    let private = || fs::set_permissions(two.at(0, "file"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(carry(&two, "file", &private), Ok(1));
    assert_eq!(fs::metadata(two.at(1, "file")).unwrap().permissions().mode() & 0o7777, 0o600);
}

/// A file that nobody has opened yet has its mode changed: the move begins after that.
#[test]
fn a_change_of_what_nobody_has_open_is_waited_for() {
    let Some(two) = Two::new(AFTER_TEN_DAYS, &["0/file 30"], |_| ()) else { return };
    let node = two.shared.node(two.id("file")).unwrap();
    node.make_mobile();
    let change = Change::begin(&node).unwrap();
    std::thread::scope(|scope| {
        let moves = scope.spawn(|| two.run(false).0.moved_files);
        while !node.mobile().unwrap().is_moving() {
            std::thread::yield_now();
        }
        let set = shuntfs::SetAttr { mode: Some(0o600), ..shuntfs::SetAttr::default() };
        attr::setattr(&two.shared, Who::root(), node.id, (None, None), set).unwrap();
        drop(change);
        assert_eq!(moves.join().unwrap(), 1);
    });
    assert_eq!(two.on("file"), [1]);
    assert_eq!(two.at(1, "file").metadata().unwrap().mode() & 0o777, 0o600);
}
