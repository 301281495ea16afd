//! Nodes that are asked for by number, on file systems of their own. Needs root.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use shuntfs::{Errno, LookupCount, NodeId, OpenFlags};
use shuntfs_testkit::lower::{Lower, LowerKind};

use super::{Batch, name};
use crate::branch::Why;
use crate::dir;
use crate::merge::{BranchChange, BranchOptions, MergeOptions};
use crate::op::{attr, by_number, lookup, open};
use crate::options::PoolOptions;
use crate::shared::Shared;
use crate::who::Who;
use crate::{file, mode};

fn with_handles(disks: [&Lower; 2]) -> Shared {
    let branches = disks.map(|disk| BranchOptions::new(disk.path())).into();
    let merge = Some(MergeOptions::new(branches));
    Shared::open(&PoolOptions { merge, handles: true, ..PoolOptions::new("disks") }).unwrap()
}

/// An NFS server has its clients ask again at ETIMEDOUT (`nfsd_set_fh_dentry`, Linux 6.18); ESTALE they take for an end.
#[test]
fn what_is_on_a_branch_that_is_set_aside_is_not_stale() {
    let disk = || Lower::make(LowerKind::Tmpfs).unwrap();
    let (Some(one), Some(two)) = (disk(), disk()) else { return };
    // The folder goes by the branch that is set aside.
    fs::create_dir(two.path().join("folder")).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    fs::create_dir(one.path().join("folder")).unwrap();
    for (disk, name) in [(&one, "one"), (&two, "two")] {
        fs::write(disk.path().join(name), name).unwrap();
    }
    let shared = with_handles([&one, &two]);
    let look =
        |path: &str| lookup::lookup(&shared, Who::root(), NodeId::ROOT, &name(path)).unwrap().node.unwrap();
    let [first, second, folder] = ["one", "two", "folder"].map(look);
    let health = &shared.branches.at(1).health;
    for is_known in [true, false] {
        health.set_aside(Why::Silent);
        let found = [first, second, folder].map(|id| by_number::node(&shared, id).err());
        assert_eq!(found, [None, Some(Errno::TIMEDOUT), Some(Errno::TIMEDOUT)], "known: {is_known}");
        health.take_back();
        for id in [first, second, folder] {
            assert_eq!(by_number::node(&shared, id).unwrap().node, Some(id), "known: {is_known}");
            shared.forget(id, LookupCount(1));
        }
        // That of the array above.
        shared.forget(first, LookupCount(1));
        if is_known {
            // Those of the names.
            [first, second, folder].iter().for_each(|id| shared.forget(*id, LookupCount(1)));
            assert_eq!(shared.table.len(), 0);
        }
    }
    assert_eq!((shared.table.len(), shared.table.overdrawn()), (0, 0));
}

/// What the kernel remembered of the branch had its numbers: handles led nowhere, and names to nodes whose handles did not last.
#[test]
fn the_files_of_a_branch_that_is_back_are_those_of_before() {
    let disk = || Lower::make(LowerKind::Tmpfs).unwrap();
    let (Some(one), Some(two)) = (disk(), disk()) else { return };
    fs::create_dir(two.path().join("folder")).unwrap();
    for file in ["folder/kept", "removed", "open"] {
        fs::write(two.path().join(file), file).unwrap();
    }
    let shared = with_handles([&one, &two]);
    let merge = shared.merge.as_ref().unwrap();
    let look = |folder: NodeId, path: &str| {
        lookup::lookup(&shared, Who::root(), folder, &name(path)).map(|entry| entry.node.unwrap())
    };
    let folder = look(NodeId::ROOT, "folder").unwrap();
    let [kept, removed, open] = [(folder, "kept"), (NodeId::ROOT, "removed"), (NodeId::ROOT, "open")]
        .map(|(folder, name)| look(folder, name).unwrap());
    let file = open::open(&shared, Who::root(), open, OpenFlags(mode::O_RDONLY)).unwrap().file;
    let by_number = |id: NodeId| by_number::node(&shared, id).map(|entry| entry.node.unwrap());
    for turn in 0..2 {
        super::super::change(&shared, merge, &BranchChange::Remove(vec![two.path().to_owned()])).unwrap();
        assert_eq!([kept, removed, open].map(by_number), [Err(Errno::STALE); 3], "{turn}");
        drop(fs::remove_file(two.path().join("removed")));
        let back = vec![BranchOptions::new(two.path())];
        super::super::change(&shared, merge, &BranchChange::Append(back)).unwrap();
        assert_eq!((by_number(kept), look(folder, "kept")), (Ok(kept), Ok(kept)), "{turn}");
        assert_eq!(by_number(removed), Err(Errno::STALE), "{turn}");
        assert_eq!(attr::getattr(&shared, removed).err(), Some(Errno::STALE), "{turn}");
        assert_eq!(look(NodeId::ROOT, "folder"), Ok(folder), "{turn}");
    }
    assert_eq!(attr::getattr(&shared, kept).unwrap().attr.size, 11);
    // It was open all the time.
    assert_eq!(by_number(open), Err(Errno::STALE));
    file::release(&shared, Arc::new(file));
    assert!(shared.branches.at(1).is_let_go());
    assert_eq!(shared.table.overdrawn(), 0);
}

/// An NFS server opens a folder for each request. As many names as a client had removed before it were left out, and `rm -r` ended with ENOTEMPTY.
#[test]
fn a_listing_goes_on_in_a_folder_that_is_opened_anew() {
    for is_closed_late in [false, true] {
        let disk = || Lower::make(LowerKind::Tmpfs).unwrap();
        let (Some(one), Some(two)) = (disk(), disk()) else { return };
        for (disk, numbers) in [(&one, 0..200), (&two, 150..400)] {
            fs::create_dir(disk.path().join("x")).unwrap();
            for number in numbers {
                fs::write(disk.path().join(format!("x/{number}")), "").unwrap();
            }
        }
        let shared = with_handles([&one, &two]);
        let entry = lookup::lookup(&shared, Who::root(), NodeId::ROOT, &name("x")).unwrap();
        let (id, mut cookie, mut all, mut last) = (entry.node.unwrap(), 0, 0, None);
        loop {
            let opened = dir::open(&shared, Who::root(), id).unwrap();
            let mut some = Batch { plus: true, room: 60, names: Vec::new() };
            dir::list(&shared, Who::root(), &opened.walk, cookie, &mut some).unwrap();
            // The client takes some of what the kernel has asked for.
            some.names.truncate(40);
            for (name, next) in &some.names {
                cookie = *next;
                all += 1;
                for disk in [&one, &two] {
                    drop(fs::remove_file(disk.path().join("x").join(name)));
                }
            }
            let close = |opened: dir::PoolDir| dir::close(&shared, &opened);
            if is_closed_late {
                last.replace(opened).into_iter().for_each(close);
            } else {
                close(opened);
            }
            if some.names.is_empty() {
                break;
            }
        }
        let left = [&one, &two].map(|disk| fs::read_dir(disk.path().join("x")).unwrap().count());
        assert_eq!((left, all), ([0, 0], 402), "closed late: {is_closed_late}");
    }
}
