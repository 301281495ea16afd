//! Who holds the device and rings, by looking at every process: the keeper and its server hold the device, and nobody has a ring. A ring
//! that outlived its server would leave callers that nothing can kill, so that this is examined and not tried. Needs CAP_SYS_ADMIN and
//! /dev/fuse; elsewhere it says so and passes.

mod support;

use std::collections::BTreeSet;
use std::fs;

use shuntfs_sys::spawn::{Push, push};
use shuntfs_testkit::fusectl::Connection;

use support::kept::{Kept, children, processes};
use support::{can_mount, wait_until};

/// What the descriptors of a process lead to, with what the kernel says of each. None where it is gone.
fn descriptors(pid: u32) -> Vec<(String, String)> {
    let table = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let look = |entry: fs::DirEntry| {
        let link = fs::read_link(entry.path()).ok()?.to_string_lossy().into_owned();
        let info = format!("/proc/{pid}/fdinfo/{}", entry.file_name().to_str()?);
        Some((link, fs::read_to_string(info).unwrap_or_default()))
    };
    table.filter_map(look).collect()
}

/// The connection that a descriptor is of; `None` where the kernel does not tell.
fn connection_of(info: &str) -> Option<u32> {
    info.lines().find_map(|line| line.strip_prefix("fuse_connection:"))?.trim().parse().ok()
}

/// A process and all that it started.
fn family(pid: u32) -> BTreeSet<u32> {
    let mut found = BTreeSet::from([pid]);
    let mut next = vec![pid];
    while let Some(parent) = next.pop() {
        next.extend(children(parent).into_iter().filter(|child| found.insert(*child)));
    }
    found
}

/// Looks at every process of the machine.
fn look(kept: &Kept, connection: u32) {
    let own = std::process::id();
    let keeper = kept.keeper.id();
    let server = kept.server().expect("it serves");
    let related = family(own);
    let mut holders = BTreeSet::new();
    for pid in processes() {
        for (link, info) in descriptors(pid) {
            let is_ours = connection_of(&info).map_or(related.contains(&pid), |number| number == connection);
            if link == "/dev/fuse" && is_ours {
                holders.insert(pid);
            }
            let is_ring = link.contains("io_uring");
            assert!(!(is_ring && related.contains(&pid)), "process {pid} has a ring");
        }
    }
    assert_eq!(holders, BTreeSet::from([keeper, server]), "the device is held by others, too");
}

#[test]
fn privileged_nobody_but_keeper_and_server_holds_the_device_and_nobody_a_ring() {
    if !can_mount() {
        return;
    }
    for kind in ["device", "cloned"] {
        let Some(mut kept) = Kept::start(&[kind, "1000"], |_| {}) else { return };
        let connection = Connection::of(kept.path()).expect("a mount table").expect("a mount").number();
        let mut server = kept.next_server(None);
        for _ in 0..3 {
            // An answer, so that there is nothing that the server has yet to open.
            assert_eq!(fs::read(kept.file(1)).expect("reads").len(), 1 << 20);
            look(&kept, connection);
            push(server, Push::Die).expect("it is there");
            server = kept.next_server(Some(server));
        }
        assert!(fs::metadata(kept.file(2)).is_ok());
        look(&kept, connection);
        push(kept.keeper.id(), Push::End).expect("it is there");
        assert!(kept.ended().success(), "on {kind}: {}", kept.said());
        wait_until("the end of the connection", || {
            let mut all = processes().into_iter().flat_map(descriptors);
            all.all(|(_, info)| connection_of(&info) != Some(connection)).then_some(())
        });
    }
}
