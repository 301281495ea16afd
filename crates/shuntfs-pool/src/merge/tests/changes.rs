//! Branches that come and go while folders and files on them are in use.

use std::sync::Arc;

use shuntfs::{Errno, OpenFlags};

use super::Three;
use crate::branch::Agreed;
use crate::error::PoolError;
use crate::merge::{BranchChange, BranchOptions};
use crate::op::open;
use crate::policy::BranchMode;
use crate::who::Who;
use crate::{PoolFile, file, mode};

/// Changes the branches; how many there are then.
fn change(three: &Three, change: &BranchChange) -> Result<usize, PoolError> {
    let merge = three.shared.merge.as_ref().unwrap();
    super::super::change(&three.shared, merge, change).map(|branches| branches.len())
}

fn branches(three: &Three, names: &[&str]) -> Vec<BranchOptions> {
    names.iter().map(|name| BranchOptions::new(three.at(name))).collect()
}

/// Opens a file for reading.
fn opened(three: &Three, path: &str) -> PoolFile {
    let flags = OpenFlags(mode::O_RDONLY);
    open::open(&three.shared, Who::root(), three.id(path), flags).unwrap().file
}

fn close(three: &Three, file: PoolFile) {
    file::release(&three.shared, Arc::new(file));
}

/// However deep they are, and without a new look at them.
#[test]
fn folders_that_are_known_follow_the_branches() {
    let three = Three::new(&["a/f/g/h/one", "b/f/", "c/other/", "d/f/g/h/two"], |_| ());
    let nodes = ["f", "f/g", "f/g/h", "other"].map(|path| three.shared.node(three.id(path)).unwrap());
    let on = || {
        nodes.each_ref().map(|node| {
            let places = node.parts().unwrap().all();
            places.iter().map(|place| place.mount().branch).collect::<Vec<_>>()
        })
    };
    let shown = || nodes.each_ref().map(|node| node.mount().branch);
    assert_eq!(on(), [vec![0, 1], vec![0], vec![0], vec![2]]);
    change(&three, &BranchChange::Append(branches(&three, &["d"]))).unwrap();
    let with_d = [vec![0, 1, 3], vec![0, 3], vec![0, 3], vec![2]];
    assert_eq!((on(), shown()), (with_d.clone(), [0, 0, 0, 2]));
    // Only modes change.
    let mut same = branches(&three, &["a", "b", "c", "d"]);
    same[1].mode = BranchMode::NoCreate;
    change(&three, &BranchChange::Set(same)).unwrap();
    assert_eq!((on(), shown()), (with_d, [0, 0, 0, 2]));
    change(&three, &BranchChange::Set(branches(&three, &["d", "c", "b", "a"]))).unwrap();
    assert_eq!((on(), shown()), ([vec![3, 1, 0], vec![3, 0], vec![3, 0], vec![2]], [3, 3, 3, 2]));
    change(&three, &BranchChange::Remove(vec![three.at("a")])).unwrap();
    assert_eq!((on(), shown()), ([vec![3, 1], vec![3], vec![3], vec![2]], [3, 3, 3, 2]));
    assert_eq!(three.read("f/g/h/two"), "d/f/g/h/two");
}

#[test]
fn a_removed_branch_goes_with_the_last_file_that_is_open_there() {
    let three = Three::new(&["a/other", "b/one", "b/two"], |_| ());
    let merge = three.shared.merge.as_ref().unwrap();
    let [other, one, two] = ["other", "one", "two"].map(|path| opened(&three, path));
    change(&three, &BranchChange::Remove(vec![three.at("b")])).unwrap();
    let branch = three.shared.branches.at(1);
    assert_eq!((branch.opens(), branch.is_let_go()), (2, false));
    close(&three, other);
    close(&three, one);
    assert_eq!((branch.opens(), branch.is_let_go()), (1, false));
    // An open that fails is undone, and nobody is told of a close. The next one sees it.
    drop(two);
    assert_eq!((branch.opens(), branch.is_let_go(), merge.has_removed()), (0, false, true));
    close(&three, opened(&three, "other"));
    assert_eq!((branch.is_let_go(), merge.has_removed()), (true, false));
}

/// The kernel may be opening it while the branch is removed.
#[test]
fn what_is_opened_on_a_branch_that_was_let_go_of_holds_nothing_there() {
    let three = Three::new(&["b/one"], |_| ());
    let node = three.shared.node(three.id("one")).unwrap();
    change(&three, &BranchChange::Remove(vec![three.at("b")])).unwrap();
    let branch = three.shared.branches.at(1);
    assert!(branch.is_let_go(), "nothing there was open");
    let flags = OpenFlags(mode::O_RDONLY);
    if let Ok(opened) = open::open(&three.shared, Who::root(), node.id, flags) {
        assert_eq!(branch.opens(), 1);
        close(&three, opened.file);
    }
    assert_eq!((branch.opens(), node.opens(), node.has_descriptor()), (0, 0, false));
}

/// The first one of two got the last number, and the second one no place.
#[test]
fn branches_that_have_no_number_left_are_refused() {
    let mut three = Three::new(&["e/"], |_| ());
    three.shared.branches.leave_numbers(1);
    let add = |names: &[&str]| change(&three, &BranchChange::Append(branches(&three, names)));
    assert_eq!(add(&["d", "e"]), Err(PoolError::NoNumber));
    assert_eq!(three.shared.branches.order()[..], [0, 1, 2]);
    assert_eq!((add(&["d"]), add(&["e"])), (Ok(4), Err(PoolError::NoNumber)));
}

/// Branches that were removed were asked for it anew, and lead nowhere.
#[test]
fn what_was_agreed_on_with_the_kernel_counts_for_branches_that_come() {
    for acls in [true, false] {
        let three = Three::new(&[], |_| ());
        three.shared.branches.agreed(|| Agreed { stacked: true, acls });
        let refused = change(&three, &BranchChange::Append(branches(&three, &["d"])));
        let below = rustix::fs::getxattr(three.at("d"), "system.posix_acl_access", &mut [0_u8; 64]);
        let has_acls = matches!(below, Ok(_) | Err(rustix::io::Errno::NODATA));
        assert_eq!(matches!(refused, Err(PoolError::OfMount { .. })), has_acls && !acls, "{refused:?}");
    }
}

/// As after `mount -o remount,rw`: nobody asked again, because everything was refused before.
#[test]
fn what_was_read_only_is_asked_again() {
    let three = Three::new(&["a/x"], |merge| merge.branches[2].mode = BranchMode::ReadOnly);
    let node = three.shared.node(three.id("x")).unwrap();
    let all = three.shared.branches.in_use();
    let seen_read_only = || all.iter().for_each(|branch| branch.seen_read_only());
    seen_read_only();
    assert_eq!((three.shared.check_branch(&node), all[1].is_read_only()), (Ok(()), true));
    seen_read_only();
    assert_eq!(three.shared.check_writable(), Ok(()));
    seen_read_only();
    drop(three.create("new").unwrap());
    assert_eq!(three.on("new"), "a");
    // What its mode says is not for its file system to change, nor what it has refused.
    assert!(all[2].is_still_read_only() && all[0].refused());
    assert_eq!(three.shared.check_branch(&node), Err(Errno::ROFS));
}
