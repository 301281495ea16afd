//! Nodes that are asked for by number, on file systems of their own. Needs root.

use std::fs;
use std::time::Duration;

use shuntfs::{Errno, LookupCount, NodeId};
use shuntfs_testkit::lower::{Lower, LowerKind};

use super::{Batch, name};
use crate::branch::Why;
use crate::dir;
use crate::merge::{BranchOptions, MergeOptions};
use crate::op::{by_number, lookup};
use crate::options::PoolOptions;
use crate::shared::Shared;
use crate::who::Who;

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
