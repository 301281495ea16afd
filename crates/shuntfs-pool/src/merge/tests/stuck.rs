//! Whoever hangs on a disk, and whoever waits for them: others are neither blamed for it nor kept from what they do.
//!
//! The time at which it is looked is made up, as in `sick`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Waker};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use shuntfs::{Entry, Errno, NodeId, Result, SetAttr};

use super::ruled::{DENIED, KEPT, under};
use super::sick::{Looks, TIMEOUT, watched};
use super::{Three, name};
use crate::branch::{Escape, MountIndex, Parting, Up, Why, copies_to, touches, touches_nothing, touches_on};
use crate::dir::{self, Records};
use crate::find;
use crate::guard::{Guard, NameGoes, NameMoves};
use crate::merge::watch::{set_aside, take_back};
use crate::merge::{BranchChange, BranchOptions};
use crate::op::attr;
use crate::who::Who;

const MOMENT: Duration = Duration::from_millis(100);

impl Three {
    /// Waits until something is seen under way.
    fn until_up(&self, is_it: impl Fn(&Up) -> bool) {
        let (flights, _) = self.shared.merge.as_ref().unwrap().watched().unwrap();
        let is_up = (0..2000).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            flights.look().0.iter().any(&is_it)
        });
        assert!(is_up, "{:?}", flights.look());
    }

    /// Waits until a thread waits for another one, after it was on a branch.
    fn until_waiting(&self) {
        self.until_up(|up| up.branch.is_none() && up.step >= 2);
    }

    fn are_aside(&self) -> Vec<u16> {
        (0..3).filter(|number| self.shared.branches.at(*number).health.is_aside()).collect()
    }

    fn set_aside(&self, number: u16) {
        set_aside(&self.shared, self.shared.merge.as_ref().unwrap(), number, Why::Silent);
    }

    fn take_back(&self, number: u16) {
        take_back(&self.shared, self.shared.merge.as_ref().unwrap(), number);
    }
}

/// Does something in a thread whose caller can be told EIO; what happens to it, and where the caller hears it.
fn attempt<'s, T: Send + 's>(
    scope: &'s Scope<'s, '_>,
    three: &'s Three,
    act: impl FnOnce() -> Result<T> + Send + 's,
) -> (ScopedJoinHandle<'s, Option<Errno>>, Arc<Parting>) {
    let parting = Arc::new(Parting::default());
    let theirs = Arc::clone(&parting);
    let act = move || three.shared.attempt(|| Escape::Parting(theirs), || act().map(drop)).err();
    (scope.spawn(act), parting)
}

fn is_told(parting: &Parting) -> bool {
    parting.is_gone(&Context::from_waker(Waker::noop()))
}

/// Has a thread copy a file, and have its name on two branches, until something is sent or the other end goes. It says when it has begun.
fn switch<'s>(scope: &'s Scope<'s, '_>, three: &'s Three, branch: Option<u16>) -> Sender<()> {
    let ((release, hangs), (told, tells)) = (channel(), channel());
    scope.spawn(move || {
        three.shared.under_way(|| {
            let merge = three.shared.merge.as_ref().unwrap();
            let _order = merge.order();
            let _switch = merge.switching.begin(NodeId::ROOT, c"one").unwrap();
            branch.map_or_else(touches_nothing, touches);
            told.send(()).unwrap();
            let _released = hangs.recv();
        });
    });
    tells.recv().unwrap();
    release
}

/// Whoever looked a name up waited for a file that was moved, and the branch that they had asked before was set aside for it. So did whoever looked for any
/// other name.
#[test]
fn whoever_waits_for_a_file_that_is_moved_blames_no_branch() {
    let three = Three::new(&["a/one", "b/two", "c/three"], watched);
    let mut looks = Looks::new(&three);
    std::thread::scope(|scope| {
        let release = switch(scope, &three, None);
        let (looking, parting) = attempt(scope, &three, || three.look("one"));
        three.until_waiting();
        assert!(three.look("two").is_ok() && three.unlink("three").is_ok(), "these are other names");
        looks.after(Duration::ZERO);
        looks.after(TIMEOUT * 2);
        looks.after(MOMENT);
        assert!(three.are_aside().is_empty() && !is_told(&parting));
        release.send(()).unwrap();
        assert_eq!(looking.join().unwrap(), None);
    });
}

/// Where a file is that is on two branches nobody knows, as long as one of them does not answer: it is neither replaced nor waited for.
#[test]
fn a_file_that_hangs_between_two_branches_fails_and_others_do_not() {
    let three = Three::new(&["a/one", "a/other", "b/two"], watched);
    let mut looks = Looks::new(&three);
    std::thread::scope(|scope| {
        let release = switch(scope, &three, Some(1));
        let (looking, _) = attempt(scope, &three, || three.look("one"));
        three.until_waiting();
        looks.after(Duration::ZERO);
        looks.after(TIMEOUT);
        assert_eq!(three.are_aside(), [1]);
        looks.after(MOMENT);
        assert_eq!(looking.join().unwrap(), Some(Errno::IO));
        assert_eq!(three.look("one").err(), Some(Errno::IO));
        assert_eq!(three.unlink("one"), Err(Errno::IO));
        assert_eq!(
            three.rename("other", "one", 0),
            Err(Errno::IO),
            "it would be removed when the disk answers"
        );
        three.rename("other", "another", 0).unwrap();
        drop(release);
    });
    assert_eq!(three.read("one"), "a/one");
    three.rename("another", "one", 0).unwrap();
    assert_eq!(three.read("one"), "a/other");
}

/// An operation that had waited for another one, as for a copy of a large file, was under way for long: the first branch that it came to was set aside.
#[test]
fn only_the_time_on_a_branch_counts_against_it() {
    let three = Three::new(&["a/one"], watched);
    let mut looks = Looks::new(&three);
    std::thread::scope(|scope| {
        let ((release, hangs), three) = (channel(), &three);
        scope.spawn(move || {
            three.shared.under_way(|| {
                for branch in [0, 2, 0] {
                    let _released = hangs.recv();
                    touches(branch);
                }
                let _released = hangs.recv();
            });
        });
        three.until_up(|up| up.branch.is_none());
        looks.after(Duration::ZERO);
        for branch in [0, 2, 0] {
            looks.after(TIMEOUT - MOMENT);
            release.send(()).unwrap();
            three.until_up(|up| up.branch == Some(branch));
            looks.after(MOMENT);
            assert!(three.are_aside().is_empty(), "it has just come to {branch}");
        }
        assert!(!three.shared.runs_inline(), "it is slow all the same");
        looks.after(TIMEOUT);
        assert_eq!(three.are_aside(), [0]);
        drop(release);
    });
}

/// Where rules go by names, one removal that hung kept all changes of names waiting, and their branches were set aside one after the other.
#[test]
fn a_change_of_names_that_hangs_holds_up_no_other() {
    // A name outside, so that it is seen whether the names are known.
    let links = [("a/free", "d/outside")];
    let three = under(DENIED, &["a/one", "a/free", "a/denied/", "c/two"], &links, watched);
    assert_eq!(three.cut_as(KEPT, "free"), Ok(()));
    let mut looks = Looks::new(&three);
    std::thread::scope(|scope| {
        let ((release, hangs), (told, tells), three) = (channel::<()>(), channel(), &three);
        let stuck = scope.spawn(move || {
            three.shared.under_way(|| {
                let (folder, two) = (three.shared.folder(NodeId::ROOT).unwrap(), name("two"));
                let (guard, spot) = (Guard::new(&three.shared, Who::root()), folder.spot(&two));
                let held = guard.hold(&[spot]).unwrap();
                let judged = guard.judge(NameGoes { spot, held: &held, is_folder: false }).unwrap();
                touches(2);
                told.send(()).unwrap();
                let _released = hangs.recv();
                judged.remove(&three.shared)
            })
        });
        tells.recv().unwrap();
        let (removing, parting) = attempt(scope, three, || three.unlink("one"));
        three.until_waiting();
        looks.after(Duration::ZERO);
        looks.after(TIMEOUT);
        looks.after(MOMENT);
        assert_eq!((removing.join().unwrap(), three.are_aside()), (None, vec![2]));
        assert!(!is_told(&parting) && three.on("one").is_empty());
        assert_eq!(three.cut_as(KEPT, "free"), Ok(()));
        drop(release);
        // Its branch is set aside still.
        assert!(stuck.join().unwrap().is_err());
    });
    assert_eq!(three.cut_as(KEPT, "free"), Err(Errno::ACCES), "what it found of names may be of before");
    three.take_back(2);
    three.search();
    assert_eq!(three.cut_as(KEPT, "free"), Ok(()));
}

/// A removal hung on one disk. Its caller got EIO and saved the file anew on another disk; then the first one answered, and the removal went on there.
/// A mode that was asked for first came last to the other disks.
#[test]
fn nothing_further_is_done_for_who_was_told_that_it_failed() {
    for change in ["rm", "mv", "mv into its place", "exchange", "rmdir", "chmod"] {
        let three = Three::new(&["a/f", "c/f", "a/g", "b/d/", "a/e/", "b/e/", "c/e/"], watched);
        let mode = || fs::metadata(three.at("b/e")).unwrap().permissions().mode() & 0o7777;
        let (before, folder) = (mode(), three.id("e"));
        let mut looks = Looks::new(&three);
        std::thread::scope(|scope| {
            let ((release, hangs), three) = (channel::<()>(), &three);
            let (changing, parting) = attempt(scope, three, move || {
                touches(2);
                let _released = hangs.recv();
                // It was looked what must be done, and its first part was done on that disk.
                match change {
                    "rm" => three.unlink("f"),
                    "mv" => three.rename("f", "h", 0),
                    "mv into its place" => three.rename("f", "g", 0),
                    "exchange" => three.rename("f", "g", crate::mode::RENAME_EXCHANGE),
                    "rmdir" => three.rmdir("d"),
                    _ => {
                        let set = SetAttr { mode: Some(before ^ 0o044), ..SetAttr::default() };
                        attr::setattr(&three.shared, Who::root(), folder, (None, None), set).map(drop)
                    }
                }
            });
            three.until_up(|up| up.branch == Some(2));
            looks.after(Duration::ZERO);
            looks.after(TIMEOUT);
            assert!(is_told(&parting), "{change}");
            drop(release);
            assert_eq!(changing.join().unwrap(), Some(Errno::IO), "{change}");
        });
        looks.until(2, false);
        let on = ["f", "g", "h", "d"].map(|path| three.on(path));
        assert_eq!(on, ["ac", "a", "", "b"].map(str::to_owned), "{change}");
        assert_eq!((three.read("f"), three.read("g")), ("a/f".into(), "a/g".into()), "{change}");
        assert_eq!(mode(), before, "{change}");
    }
}

/// Any user may mount a file system that never answers in a folder of theirs on a branch, and the branch was set aside for it.
#[test]
fn a_mount_below_a_branch_that_hangs_sets_nothing_aside() {
    let three = Three::new(&["a/one"], watched);
    let mut looks = Looks::new(&three);
    std::thread::scope(|scope| {
        let ((release, hangs), three) = (channel::<()>(), &three);
        let (looking, parting) = attempt(scope, three, move || {
            let order = three.shared.merge.as_ref().unwrap().order();
            touches_on(MountIndex::other(1));
            let _released = hangs.recv();
            assert!(!order.is_held());
            Ok(())
        });
        three.until_up(|up| up.is_below && up.branch == Some(0));
        looks.after(Duration::ZERO);
        looks.after(MOMENT);
        assert!(!is_told(&parting) && !three.shared.runs_inline());
        looks.after(TIMEOUT);
        looks.after(TIMEOUT);
        assert!(is_told(&parting) && three.are_aside().is_empty());
        assert!(three.shared.runs_inline(), "nobody waits behind it");
        assert_eq!((three.read("one"), three.mkdir("d").is_ok()), ("a/one".into(), true));
        drop(release);
        assert_eq!(looking.join().unwrap(), Some(Errno::IO));
    });
}

/// Whoever wrote to a file on a good disk waited forever for the disk to which it was copied.
#[test]
fn a_copy_to_a_branch_that_is_set_aside_keeps_nobody_waiting() {
    let three = Three::new(&["a/one"], watched);
    let mut looks = Looks::new(&three);
    std::thread::scope(|scope| {
        let (release, hangs) = channel::<()>();
        let (copying, parting) = attempt(scope, &three, move || {
            touches_nothing();
            copies_to(1);
            let _released = hangs.recv();
            Ok(())
        });
        three.until_up(|up| up.other == Some(1));
        looks.after(Duration::ZERO);
        looks.after(TIMEOUT * 2);
        assert!(three.are_aside().is_empty() && !is_told(&parting), "it may be a large file");
        three.set_aside(1);
        looks.after(MOMENT);
        assert!(is_told(&parting));
        assert_eq!(three.are_aside(), [1]);
        drop(release);
        assert_eq!(copying.join().unwrap(), Some(Errno::IO));
    });
}

/// Where a name was looked for before a branch came, and noted after: that branch's file was never shown.
#[test]
fn a_hint_of_before_the_branches_changed_leads_nowhere() {
    let three = Three::new(&["a/d/", "b/d/f", "d/d/f"], |_| ());
    let (shared, merge) = (&three.shared, three.shared.merge.as_ref().unwrap());
    let (folder, file) = (shared.folder(three.id("d")).unwrap(), name("f"));
    let round = merge.hint_round();
    let change = BranchChange::Prepend(vec![BranchOptions::new(three.at("d"))]);
    super::super::change(shared, merge, &change).unwrap();
    merge.note_hint(shared, folder.spot(&file), 1, round);
    assert_eq!(three.read("d/f"), "d/d/f");
    // The same of a branch that comes back.
    three.set_aside(3);
    let round = merge.hint_round();
    assert_eq!(three.read("d/f"), "b/d/f");
    three.take_back(3);
    merge.note_hint(shared, folder.spot(&file), 1, round);
    assert_eq!(three.read("d/f"), "d/d/f");
}

/// A search for names asked branches that are set aside, and never ended.
#[test]
fn a_search_leaves_out_what_is_set_aside_and_is_made_again() {
    let links = [("a/x", "a/y"), ("c/z", "c/denied/z"), ("a/free", "d/outside")];
    let three = under(DENIED, &["a/x", "a/free", "c/z", "c/denied/"], &links, watched);
    let shared = &three.shared;
    let found = |path: &str| {
        let (folder, name) = (shared.folder(NodeId::ROOT).unwrap(), name(path));
        find::find(shared, folder.spot(&name)).unwrap().identity
    };
    let (x, z) = (found("x"), found("z"));
    let known = |identity| {
        let known = shared.rules.as_ref().unwrap().names_of_inode(shared, identity, 2);
        (known.paths.len(), known.is_all)
    };
    assert_eq!((known(&x), known(&z)), ((2, true), (2, true)));
    three.set_aside(2);
    three.search();
    assert_eq!((known(&x), known(&z)), ((2, true), (0, false)));
    assert_eq!(
        three.cut_as(KEPT, "free"),
        Err(Errno::ACCES),
        "all branches are on one disk: it may be there"
    );
    three.take_back(2);
    assert_eq!((known(&x), known(&z)), ((2, true), (0, false)));
    assert_eq!(three.cut_as(KEPT, "free"), Err(Errno::ACCES));
    three.search();
    assert_eq!((known(&x), known(&z)), ((2, true), (2, true)));
    assert_eq!(three.cut_as(KEPT, "free"), Ok(()));
}

/// A branch came back between the judgement and the deed, with a copy that nobody had judged.
#[test]
fn what_was_not_judged_is_not_changed() {
    let rule = "[[rule]]\nsize = { min = '1K' }\nuid = 4002\nread_only = true\n";
    let three = under(rule, &["a/f", "c/f", "a/g"], &[], watched);
    fs::write(three.at("c/f"), vec![b'x'; 2000]).unwrap();
    let shared = &three.shared;
    let (folder, f, g) = (shared.folder(NodeId::ROOT).unwrap(), name("f"), name("g"));
    let (f, g) = (folder.spot(&f), folder.spot(&g));
    let guard = Guard::new(shared, KEPT);
    assert_eq!(three.unlink_as(KEPT, "f"), Err(Errno::ROFS));
    for change in ["rm", "mv", "mv onto it"] {
        three.set_aside(2);
        let moves = |from, to| {
            let held = guard.hold(&[from, to]).unwrap();
            let judged = guard.judge(NameMoves { from, to, held: &held, flags: 0 }).unwrap();
            three.take_back(2);
            judged.rename(shared)
        };
        let outcome = match change {
            "rm" => {
                let held = guard.hold(&[f]).unwrap();
                let judged = guard.judge(NameGoes { spot: f, held: &held, is_folder: false }).unwrap();
                three.take_back(2);
                judged.remove(shared)
            }
            "mv" => moves(f, g),
            _ => moves(g, f),
        };
        assert_eq!(outcome, Err(Errno::STALE), "{change}");
        assert_eq!((three.on("f"), three.on("g")), ("ac".into(), "a".into()), "{change}");
    }
    assert_eq!(three.unlink_as(KEPT, "f"), Err(Errno::ROFS));
}

/// Has a listing hang at its first record: it says so, and waits until the other end goes.
struct Hanging {
    begun: Sender<()>,
    hangs: Receiver<()>,
}

impl Records for Hanging {
    fn wants_entries(&self) -> bool {
        false
    }

    fn fits(&self, _: usize) -> bool {
        self.begun.send(()).unwrap();
        let _released = self.hangs.recv();
        false
    }

    fn push(&mut self, _: u64, _: u64, _: u8, _: &std::ffi::CStr) -> bool {
        false
    }

    fn push_entry(&mut self, _: &Entry, _: u64, _: &std::ffi::CStr) -> bool {
        false
    }
}

/// Whoever got EIO for a listing that hung, and went on with it, waited for the disk anyway, and the kernel let nobody make anything in the folder.
#[test]
fn whoever_goes_on_with_a_listing_that_hangs_gets_an_error() {
    let three = Three::new(&["a/one", "b/two"], watched);
    let mut looks = Looks::new(&three);
    let opened = dir::open(&three.shared, Who::root(), NodeId::ROOT).unwrap();
    std::thread::scope(|scope| {
        let ((release, hangs), (begun, begins)) = (channel::<()>(), channel());
        let (three, walk) = (&three, &opened.walk);
        let list = move |mut out: Hanging| dir::list(&three.shared, Who::root(), walk, 0, &mut out);
        let first = Hanging { begun: begun.clone(), hangs };
        let (listing, parting) = attempt(scope, three, move || list(first));
        begins.recv().unwrap();
        looks.after(Duration::ZERO);
        looks.after(TIMEOUT);
        assert!(is_told(&parting) && three.are_aside() == [0]);
        let (told, tells) = channel();
        let second = Hanging { begun, hangs: channel().1 };
        scope.spawn(move || told.send(list(second)).unwrap());
        let outcome = tells.recv_timeout(Duration::from_secs(20));
        drop(release);
        assert_eq!((outcome, listing.join().unwrap()), (Ok(Err(Errno::IO)), Some(Errno::IO)));
    });
    three.take_back(0);
    assert_eq!(three.list("", 9, false).len(), 4);
}

/// A disk that hung while it was added kept every other one from being removed.
#[test]
fn a_branch_that_is_being_opened_keeps_none_from_being_removed() {
    let three = Three::new(&["a/one", "c/three"], |_| ());
    let merge = three.shared.merge.as_ref().unwrap();
    let _opening = merge.opening.lock();
    let change = BranchChange::Remove(vec![three.at("c")]);
    assert_eq!(super::super::change(&three.shared, merge, &change).unwrap().len(), 2);
    assert_eq!(three.look("three").err(), Some(Errno::NOENT));
}

/// A new disk that hung while its folders were looked for kept everybody waiting who moves something, and every branch from being removed.
#[test]
fn a_branch_that_hangs_as_it_comes_keeps_nobody_waiting() {
    let three = Three::new(&["a/one", "c/three"], watched);
    let mut looks = Looks::new(&three);
    let merge = three.shared.merge.as_ref().unwrap();
    std::thread::scope(|scope| {
        let ((release, hangs), (told, tells)) = (channel::<()>(), channel());
        scope.spawn(move || {
            let _in_flight = merge.begin();
            let changing = merge.changing.take();
            let alone = merge.order();
            touches(1);
            told.send(()).unwrap();
            let _released = hangs.recv();
            assert!(!alone.is_held() && !changing.is_held());
        });
        tells.recv().unwrap();
        looks.after(Duration::ZERO);
        looks.after(TIMEOUT);
        assert_eq!(three.are_aside(), [1]);
        let change = BranchChange::Remove(vec![three.at("c")]);
        assert_eq!(super::super::change(&three.shared, merge, &change).unwrap().len(), 2);
        three.rename("one", "two", 0).unwrap();
        drop(release);
    });
    assert_eq!(three.on("two"), "a");
}
