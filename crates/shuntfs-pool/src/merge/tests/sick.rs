//! Disks that do not answer: calls on them hang, or fail, or they are gone.
//!
//! The time at which it is looked is made up, so nothing waits for it.

use std::fs;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::task::{Context, Waker};
use std::thread::Scope;
use std::time::{Duration, Instant};

use shuntfs::{Errno, NodeId, OpenFlags};

use super::{Batch, Three};
use crate::branch::{Escape, Parting, Why, touches};
use crate::dir;
use crate::facts::{BranchFacts, Health};
use crate::merge::MergeOptions;
use crate::merge::watch::Watch;
use crate::op::{attr, open};
use crate::who::Who;
use crate::{file, mode};

pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

pub(super) fn watched(merge: &mut MergeOptions) {
    merge.timeout = Some(TIMEOUT);
}

/// Looks at the branches of a merge at made-up times.
pub(super) struct Looks<'t> {
    three: &'t Three,
    watch: Watch,
    now: Instant,
}

impl<'t> Looks<'t> {
    pub(super) fn new(three: &'t Three) -> Self {
        Self { three, watch: Watch::new(TIMEOUT), now: Instant::now() }
    }

    /// Looks again, so much later; whether there is anything to look after.
    pub(super) fn after(&mut self, pause: Duration) -> bool {
        self.now += pause;
        let shared = &self.three.shared;
        let merge = shared.merge.as_ref().unwrap();
        let (flights, _) = merge.watched().unwrap();
        self.watch.look(shared, merge, &flights, self.now).is_some()
    }

    /// Looks until the branch is as expected, because it is asked by a thread of its own.
    pub(super) fn until(&mut self, number: u16, is_aside: bool) {
        let health = &self.three.shared.branches.at(number).health;
        let is_so = (0..2000).any(|_| {
            self.after(Duration::from_secs(1));
            std::thread::sleep(Duration::from_millis(5));
            health.is_aside() == is_aside
        });
        assert!(is_so, "{:?}", health.aside());
    }
}

/// Has an operation hang on a branch, until something is sent or the other end goes.
pub(super) fn hang<'s>(scope: &'s Scope<'s, '_>, three: &'s Three, branch: u16) -> Sender<()> {
    let (release, hangs) = channel();
    scope.spawn(move || {
        three.shared.under_way(|| {
            touches(branch);
            let _released = hangs.recv();
        });
    });
    let (flights, _) = three.shared.merge.as_ref().unwrap().watched().unwrap();
    let is_up = (0..2000).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        flights.look().0.iter().any(|up| up.branch == Some(branch))
    });
    assert!(is_up);
    release
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.retain(|name| !name.starts_with('.'));
    names.sort();
    names
}

#[test]
fn a_branch_on_which_a_call_hangs_is_set_aside_until_it_comes_back() {
    let three = Three::new(&["a/f/one", "b/f/two", "b/only/x", "c/f/three"], watched);
    let (shared, mut looks) = (&three.shared, Looks::new(&three));
    let before = three.id("f/two");
    let opened = open::open(shared, Who::root(), before, OpenFlags(mode::O_RDONLY)).unwrap().file;
    std::thread::scope(|scope| {
        let release = hang(scope, &three, 1);
        assert!(looks.after(Duration::ZERO) && shared.runs_inline());
        looks.after(Duration::from_millis(50));
        assert!(!shared.runs_inline(), "others do not wait behind it");
        looks.after(TIMEOUT - Duration::from_secs(1));
        assert!(three.look("f/two").is_ok(), "it has a second left");
        looks.after(Duration::from_secs(1));
        assert!(shared.runs_inline(), "who goes elsewhere meets it no more");

        assert_eq!(three.look("f/two").err(), Some(Errno::NOENT));
        assert_eq!(three.look("only").err(), Some(Errno::NOENT));
        assert_eq!((three.read("f/one"), three.read("f/three")), ("a/f/one".into(), "c/f/three".into()));
        for plus in [false, true] {
            assert_eq!(sorted(three.list("f", 1, plus)), ["one", "three"]);
            assert_eq!(sorted(three.list("", 9, plus)), ["f"]);
        }
        assert!(attr::statfs(shared, NodeId::ROOT).is_ok());
        assert_eq!(attr::getattr(shared, before).err(), Some(Errno::IO), "it is there and nowhere else");
        assert_eq!(open::open(shared, Who::root(), before, OpenFlags(mode::O_RDONLY)).err(), Some(Errno::IO));
        // A folder that it has is not moved or removed behind its back; other things are.
        assert_eq!((three.rename("f", "g", 0), three.rmdir("f")), (Err(Errno::IO), Err(Errno::IO)));
        three.rename("f/one", "f/first", 0).unwrap();
        three.unlink("f/three").unwrap();
        drop(three.create("f/new").unwrap());
        three.mkdir("g").unwrap();
        assert_eq!((three.on("f/new"), three.on("g")), ("a".into(), "a".into()));

        let facts = BranchFacts::of_all(shared, shared.merge.as_ref().unwrap());
        assert_eq!(
            facts.iter().map(|branch| branch.health).collect::<Vec<_>>(),
            [Health::Ok, Health::Aside, Health::Ok]
        );
        assert!(facts[1].why.as_ref().unwrap().contains("does not answer"));
        for _ in 0..20 {
            looks.after(Duration::from_secs(1));
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(shared.branches.at(1).health.is_aside(), "it says its space, and the call hangs still");
        release.send(()).unwrap();
    });
    looks.until(1, false);
    assert_eq!((three.read("f/two"), three.read("only/x")), ("b/f/two".into(), "b/only/x".into()));
    assert_eq!(three.id("f/two"), before);
    assert_eq!(sorted(three.list("f", 3, true)), ["first", "new", "two"]);
    file::release(shared, Arc::new(opened));
    assert!((0..20).any(|_| !looks.after(Duration::from_secs(1))), "there is nothing to look after");
}

/// The last records of a listing were of names that are not shown. Its answer was empty, which is the end, and the error of a branch that is left out was never
/// told: `rsync --delete` takes what is missing for removed.
#[test]
fn the_error_of_a_branch_comes_also_where_only_hidden_names_follow() {
    let three = Three::new(&["b/two"], watched);
    // In whatever order they are listed, some follow the two that are shown.
    for number in 0..64 {
        fs::write(three.at(&format!("a/.shunt-moving-{number:016x}")), "").unwrap();
    }
    let opened = dir::open(&three.shared, Who::root(), NodeId::ROOT).unwrap();
    let read = |cookie, room| {
        let mut some = Batch { plus: false, room, names: Vec::new() };
        dir::list(&three.shared, Who::root(), &opened.walk, cookie, &mut some).map(|()| some.names)
    };
    let first = read(0, 2).unwrap();
    let names: Vec<_> = first.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, [".", ".."]);
    three.shared.branches.at(1).health.set_aside(Why::Silent);
    for _ in 0..2 {
        assert_eq!(read(first[1].1, 9), Err(Errno::IO));
    }
}

/// Any user can go to a cookie that is far behind in a large folder of theirs. The whole way was taken for one call on the branch, which was set aside.
#[test]
fn each_batch_of_a_listing_is_a_call_of_its_own() {
    let tree: Vec<String> = (0..5000).map(|number| format!("a/x/a name of some length {number}")).collect();
    let three = Three::new(&tree.iter().map(String::as_str).collect::<Vec<_>>(), watched);
    let opened = dir::open(&three.shared, Who::root(), three.id("x")).unwrap();
    let (flights, _) = three.shared.merge.as_ref().unwrap().watched().unwrap();
    let steps = three.shared.under_way(|| {
        let before = flights.look().0[0].step;
        let mut none = Batch { plus: false, room: 9, names: Vec::new() };
        dir::list(&three.shared, Who::root(), &opened.walk, 1 << 40, &mut none).unwrap();
        assert!(none.names.is_empty(), "behind the last one");
        flights.look().0[0].step - before
    });
    assert!(steps > 10, "{steps}");
}

/// The kernel holds a lock of the folder for whoever looks a name up: others waited with them.
#[test]
fn whoever_waits_for_a_branch_that_is_set_aside_goes_on() {
    let three = Three::new(&["a/one", "b/two"], watched);
    let mut looks = Looks::new(&three);
    std::thread::scope(|scope| {
        let (release, hangs) = channel::<()>();
        let parting = Arc::new(Parting::default());
        let (three, theirs) = (&three, Arc::clone(&parting));
        let waiting = scope.spawn(move || {
            three.shared.attempt(
                || Escape::Parting(theirs),
                || {
                    let entry = three.look("two");
                    let _released = hangs.recv();
                    entry
                },
            )
        });
        let (flights, _) = three.shared.merge.as_ref().unwrap().watched().unwrap();
        let is_up = (0..2000).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            three.shared.table.len() == 1 && flights.look().0.iter().any(|up| up.branch == Some(1))
        });
        assert!(is_up);
        let task = Context::from_waker(Waker::noop());
        looks.after(Duration::ZERO);
        looks.after(TIMEOUT / 2);
        assert!(!parting.is_gone(&task));
        looks.after(TIMEOUT);
        assert!(parting.is_gone(&task));
        release.send(()).unwrap();
        assert_eq!(waiting.join().unwrap().err(), Some(Errno::IO));
    });
    assert_eq!(three.shared.table.len(), 0, "the kernel never heard of it");
}

#[test]
fn whoever_changes_folders_and_hangs_holds_up_nobody_for_ever() {
    let three = Three::new(&["a/f/", "b/f/", "a/h/"], watched);
    let mut looks = Looks::new(&three);
    std::thread::scope(|scope| {
        let (release, hangs) = channel::<()>();
        let (told, tells) = channel();
        let three = &three;
        scope.spawn(move || {
            three.shared.under_way(|| {
                let order = three.shared.merge.as_ref().unwrap().order();
                touches(1);
                told.send(()).unwrap();
                let _released = hangs.recv();
                drop(order);
            });
        });
        tells.recv().unwrap();
        let (told, tells) = channel();
        scope.spawn(move || told.send(three.shared.under_way(|| three.rename("h", "i", 0))).unwrap());
        looks.after(Duration::ZERO);
        looks.after(TIMEOUT / 2);
        assert!(tells.recv_timeout(Duration::from_millis(50)).is_err(), "it waits for the other one");
        looks.after(TIMEOUT);
        looks.after(Duration::ZERO);
        assert_eq!(tells.recv_timeout(Duration::from_secs(20)), Ok(Ok(())));
        assert_eq!(three.on("i"), "a");
        drop(release);
    });
}

#[test]
fn a_branch_whose_disk_is_another_one_is_set_aside_until_it_is_there_again() {
    let three = Three::new(&["a/one", "b/two"], watched);
    let mut looks = Looks::new(&three);
    fs::rename(three.at("b"), three.at("elsewhere")).unwrap();
    // Somebody asks how much space there is.
    three.shared.branches.at(1).ask_anew();
    looks.until(1, true);
    assert_eq!((three.look("two").err(), three.read("one")), (Some(Errno::NOENT), "a/one".into()));
    fs::rename(three.at("elsewhere"), three.at("b")).unwrap();
    looks.until(1, false);
    assert_eq!(three.read("two"), "b/two");
}

/// What is asked of the last branch that is left gets errors, and no answer that there is nothing.
#[test]
fn where_all_are_set_aside_everything_fails() {
    let three = Three::new(&["a/f/one", "b/f/two", "c/f/three"], watched);
    let mut looks = Looks::new(&three);
    let folder = three.id("f");
    for name in ["a", "b", "c"] {
        fs::rename(three.at(name), three.at(&format!("{name}{name}"))).unwrap();
    }
    for number in 0..3 {
        three.shared.branches.at(number).ask_anew();
        looks.until(number, true);
    }
    assert_eq!(three.look("f").err(), Some(Errno::IO));
    assert_eq!(attr::getattr(&three.shared, folder).err(), Some(Errno::IO));
    assert_eq!(three.create("new").err(), Some(Errno::IO));
    assert_eq!(attr::statfs(&three.shared, NodeId::ROOT).err(), Some(Errno::IO));
    for name in ["c", "a", "b"] {
        fs::rename(three.at(&format!("{name}{name}")), three.at(name)).unwrap();
    }
    for number in [2, 0, 1] {
        looks.until(number, false);
    }
    assert_eq!(sorted(three.list("f", 9, true)), ["one", "three", "two"]);
}

/// A single file that cannot be read is no reason to leave out a disk.
#[test]
fn an_error_of_one_file_sets_nothing_aside() {
    let three = Three::new(&["a/one", "b/two"], watched);
    let mut looks = Looks::new(&three);
    let branch = three.shared.branches.at(1);
    branch.health.failed(Errno::IO);
    let before = branch.answers();
    looks.after(Duration::from_secs(1));
    assert!((0..2000).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        branch.answers() > before
    }));
    looks.after(Duration::from_secs(1));
    assert!(!branch.health.is_aside());
    let facts = BranchFacts::of_all(&three.shared, three.shared.merge.as_ref().unwrap());
    assert_eq!((facts[1].health, facts[1].errors, facts[0].health), (Health::Error, 1, Health::Ok));
    assert_eq!(facts.iter().map(|branch| branch.nodes).collect::<Vec<_>>(), [0, 0, 0]);
    three.id("two");
    let facts = BranchFacts::of_all(&three.shared, three.shared.merge.as_ref().unwrap());
    assert_eq!(facts.iter().map(|branch| branch.nodes).collect::<Vec<_>>(), [0, 1, 0]);
    assert!(facts[0].lookup_ns.is_some());
}

#[test]
fn without_a_time_nobody_watches() {
    let three = Three::new(&["a/one"], |_| ());
    let merge = three.shared.merge.as_ref().unwrap();
    assert!(merge.watched().is_none() && !merge.is_strained());
    three.shared.under_way(|| assert_eq!(three.read("one"), "a/one"));
}
