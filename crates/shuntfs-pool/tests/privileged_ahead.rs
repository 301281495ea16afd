//! Disks of a pool that have to be waited for. Needs root and /dev/fuse.
//!
//! The disks are mounts of `shunt` whose servers can be stopped. Nothing here touches the mounts but by programs that are given a limit.
#![expect(clippy::unwrap_used, reason = "also the helpers of tests report by panic")]

mod mounted;

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use shuntfs_pool::policy::Policy;
use shuntfs_pool::{BranchOptions, Cache, MergeOptions, Pool, PoolOptions};
use shuntfs_testkit::limit::wait_until;
use shuntfs_testkit::mounted::{Flow, MountSpec, Mounted as Disk, Transport};
use shuntfs_testkit::program::wait_for;

use mounted::Mounted;

const STEP: Duration = Duration::from_secs(20);

/// Whoever is stopped goes on.
struct GoOn<'d>(&'d [Disk]);

impl Drop for GoOn<'_> {
    fn drop(&mut self) {
        for disk in self.0 {
            drop(disk.signal(Signal::CONT));
        }
    }
}

fn listings(disk: &Disk) -> u64 {
    let status = disk.status().unwrap();
    status.requests("readdir") + status.requests("readdirplus")
}

/// Disks that stand still need ten seconds each before they can be read.
#[test]
fn while_one_disk_is_waited_for_the_others_are_read() {
    let folders = [0; 3].map(|_| tempfile::tempdir().unwrap());
    let mut disks = Vec::new();
    for (number, folder) in folders.iter().enumerate() {
        fs::create_dir(folder.path().join("d")).unwrap();
        fs::write(folder.path().join(format!("d/{number}")), "").unwrap();
        let spec = MountSpec::new(folder.path(), Transport::Device, Flow::Served);
        let Some(disk) = Disk::start(&spec).unwrap() else { return };
        disks.push(disk);
    }
    let branches = disks.iter().map(|disk| BranchOptions::new(disk.path())).collect();
    let create = Policy::of("ff").unwrap();
    let merge = Some(MergeOptions { create, min_free: 0, ..MergeOptions::new(branches) });
    let options = PoolOptions { merge, cache: Cache::Second, ..PoolOptions::new("disks") };
    let Some(pool) = Mounted::new(Pool::open(&options).unwrap(), Vec::new()) else { return };
    let _go_on = GoOn(&disks);
    let mut looks = Command::new("stat").arg(pool.at("d")).stdout(Stdio::null()).spawn().unwrap();
    assert!(wait_for(&mut looks, STEP).unwrap().unwrap().success());
    let before = listings(&disks[2]);
    disks[0].signal(Signal::STOP).unwrap();
    disks[1].signal(Signal::STOP).unwrap();
    let mut lists = Command::new("ls").arg(pool.at("d")).stdout(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(listings(&disks[2]), before, "the first disk has not answered");
    disks[0].signal(Signal::CONT).unwrap();
    assert!(wait_until(STEP, || listings(&disks[2]) > before), "the last one waits for the second");
    assert!(lists.try_wait().unwrap().is_none(), "the second is stopped");
    disks[1].signal(Signal::CONT).unwrap();
    assert!(wait_for(&mut lists, STEP).unwrap().unwrap().success());
    let mut said = String::new();
    std::io::Read::read_to_string(&mut lists.stdout.take().unwrap(), &mut said).unwrap();
    assert_eq!(said, "0\n1\n2\n");
}
