//! Programs, and random work that is compared with a model, on a pool whose servers are killed at random moments under them, or replaced by another
//! program (`shunt upgrade`): no call fails, no byte and no name is wrong, on the mount and below, and neither nodes nor descriptors gather. Needs CAP_SYS_ADMIN, /dev/fuse and the programs;
//! elsewhere it says so and passes.
//!
//! `SHUNTFS_TEST_KILLS=100` kills that many servers in each storm, `SHUNTFS_TEST_UPGRADES=20` replaces that many, `SHUNTFS_TEST_SEED` chooses where the random work begins.

#[path = "../../../shuntfs-keeper/tests/support/mod.rs"]
mod support;

mod exercises;
mod scripts;
mod stage;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use shuntfs_testkit::program::{find, have};
use shuntfs_testkit::tools::fsx;

use crate::scripts::{FSX, GIT, POSTGRESQL, SQLITE, Storm, TAR};
use crate::stage::{Over, Stage};

/// How long a program that is told to end may take.
const END: Duration = Duration::from_secs(120);

fn start(storm: &Storm, script: &str, words: [&Path; 3]) -> Child {
    // Debian keeps the programs of PostgreSQL in a folder of their own.
    let found =
        storm.needs.iter().filter_map(|name| find(name)).filter_map(|path| path.parent().map(Into::into));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders =
        std::env::join_paths(std::env::split_paths(&path).chain(found)).expect("they were joined before");
    let mut command = Command::new("sh");
    command
        .args(["-euc", script, "sh"])
        .args(words)
        .stdin(Stdio::null())
        .current_dir("/")
        .env("PATH", folders);
    command.spawn().expect("starts")
}

/// Ends well, in time.
fn ends_well(child: &mut Child, what: &str) {
    let end = Instant::now() + END;
    loop {
        match child.try_wait().expect("is a child") {
            Some(status) => return assert!(status.success(), "{what}: {status}"),
            None if Instant::now() > end => {
                let _gone = child.kill();
                panic!("{what} does not end");
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn rages(storm: &Storm, over: Over) {
    if !have(storm.needs) {
        return;
    }
    for &kind in over.kinds() {
        for flow in storm.flows {
            rages_on(storm, over, kind, flow);
        }
    }
}

fn rages_on(storm: &Storm, over: Over, kind: &'static str, flow: &str) {
    let Some(mut stage) = Stage::new(over, kind, flow) else { return };
    let name = format!("{} on {kind}, {flow}", storm.name);
    let (work, out) = (stage.work(), tempfile::tempdir().expect("a folder"));
    stage::open_to_all(out.path());
    let stop = out.path().join("stop");
    let mut child = start(storm, storm.work, [&work, &stop, out.path()]);
    if storm.begins {
        let end = Instant::now() + END;
        while !out.path().join("begun").exists() && child.try_wait().expect("is a child").is_none() {
            assert!(Instant::now() < end, "{name} does not begin");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let times = over.count().div_ceil(storm.flows.len() as u64);
    stage.rages(&name, times, || child.try_wait().expect("is a child").map(|ended| ended.to_string()));
    fs::write(&stop, b"stop").expect("writes");
    ends_well(&mut child, &name);
    let count = fs::read_to_string(out.path().join("count")).expect("it has told");
    assert!(count.trim() != "0", "{name} has done nothing");
    let checked = format!("the check of {name}");
    ends_well(&mut start(storm, storm.check, [&work, &stop, out.path()]), &checked);
    let said = format!("{name}: {times} {}, {} rounds", over.name(), count.trim());
    let below = stage.ends(&said, |_| ());
    // And below, once nobody serves.
    ends_well(&mut start(storm, storm.check, [&below.path().join("work"), &stop, out.path()]), &checked);
}

#[test]
fn privileged_git_is_whole_over_kills() {
    rages(&GIT, Over::Kills);
}

#[test]
fn privileged_git_is_whole_over_upgrades() {
    rages(&GIT, Over::Upgrades);
}

#[test]
fn privileged_tar_is_whole_over_kills() {
    rages(&TAR, Over::Kills);
}

#[test]
fn privileged_tar_is_whole_over_upgrades() {
    rages(&TAR, Over::Upgrades);
}

#[test]
fn privileged_sqlite_is_whole_over_kills() {
    rages(&SQLITE, Over::Kills);
}

#[test]
fn privileged_sqlite_is_whole_over_upgrades() {
    rages(&SQLITE, Over::Upgrades);
}

#[test]
fn privileged_postgresql_is_whole_over_kills() {
    rages(&POSTGRESQL, Over::Kills);
}

#[test]
fn privileged_postgresql_is_whole_over_upgrades() {
    rages(&POSTGRESQL, Over::Upgrades);
}

#[test]
fn privileged_fsx_finds_no_wrong_byte_over_kills() {
    fsx_rages(Over::Kills);
}

#[test]
fn privileged_fsx_finds_no_wrong_byte_over_upgrades() {
    fsx_rages(Over::Upgrades);
}

fn fsx_rages(over: Over) {
    if fsx().expect("a target folder").is_some() {
        rages(&FSX, over);
    }
}
