//! What a keeper is like as a process, and how it sees a server die, with a socket instead of the device.

mod support;

use std::fs;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use shuntfs_keeper::{Ended, Limits};
use shuntfs_sys::caps::{Cap, has_effective};
use shuntfs_sys::limits::memlock;
use shuntfs_sys::region::Region;

use support::{Scene, alone, die};

/// A line of a process's status, its blanks as one each.
fn status(process: &str, name: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("procfs");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn parent() -> String {
    status("self", "PPid:")
}

#[test]
fn the_keepers_memory_is_locked_and_its_servers_is_not() {
    alone(|| {
        let is_free = memlock().is_none() || has_effective(Cap::IpcLock);
        // A keeper that holds much that was never used does not get it all at once.
        let reserved = Region::reserve(1 << 34).expect("addresses");
        let before = status("self", "VmLck:");
        let (outcome, notes) = Scene::new().keep(&Limits::default(), |seat, stage| {
            stage.note(&format!("{}|{}", status(&parent(), "VmLck:"), status("self", "VmLck:")));
            // What it uses from now on is not locked either.
            let _used = vec![1_u8; 1 << 20];
            assert_eq!(status("self", "VmLck:"), "0 kB");
            seat.ready().map_err(|error| error.to_string())
        });
        assert_eq!(outcome.expect("no fault"), Ended::Served);
        let (keepers, servers) = notes.split_once('|').expect("both");
        assert_eq!(servers, "0 kB");
        if is_free {
            assert_ne!(keepers, "0 kB");
        } else {
            println!("SKIPPED: RLIMIT_MEMLOCK is {:?}", memlock());
        }
        assert_eq!(status("self", "VmLck:"), before, "it is as it was");
        let resident = status("self", "VmRSS:");
        let kib: u64 = resident.trim_end_matches(" kB").parse().expect("a number");
        assert!(kib < 1 << 20, "{resident}: what was reserved was brought in");
        drop(reserved);
    });
}

#[test]
fn requests_come_again_before_there_is_a_successor() {
    alone(|| {
        let (outcome, notes) = Scene::new().keep(&Limits::default(), |seat, stage| {
            stage.note(&format!("{} ", stage.resent()));
            seat.ready().map_err(|error| error.to_string())?;
            if seat.predecessors() < 3 { die() } else { Ok(()) }
        });
        assert_eq!((outcome.expect("the last one ended well"), notes.as_str()), (Ended::Served, "0 1 2 3 "));
    });
}

/// How many descriptors a program has that this process starts.
fn inherited_by_program() -> usize {
    let mut program = Command::new("cat");
    program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut program = program.spawn().expect("starts");
    // It is the program, and not this process before exec, when it has read something.
    let mut stdin = program.stdin.take().expect("piped");
    stdin.write_all(b"x").expect("it reads");
    program.stdout.as_mut().expect("piped").read_exact(&mut [0]).expect("it writes");
    let open = fs::read_dir(format!("/proc/{}/fd", program.id())).expect("procfs").count();
    drop(stdin);
    program.wait().expect("it ends");
    open
}

/// A program that a server starts has nothing of the mount: it would keep a dead one alive, and its callers waiting.
#[test]
fn a_program_that_a_server_starts_inherits_nothing() {
    alone(|| {
        let before = inherited_by_program();
        let (outcome, notes) = Scene::new().keep(&Limits::default(), |seat, stage| {
            stage.note(&inherited_by_program().to_string());
            seat.ready().map_err(|error| error.to_string())
        });
        assert_eq!((outcome.expect("no fault"), notes), (Ended::Served, before.to_string()));
    });
}

/// Nothing is made of a server that dies as servers do.
#[test]
fn a_quick_death_is_no_long_one() {
    alone(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("log");
        support::log_to(&log);
        let limits = Limits { kill: Duration::from_millis(200), ..Limits::default() };
        let (outcome, _) = Scene::new().keep(&limits, |seat, _| {
            seat.ready().map_err(|error| error.to_string())?;
            if seat.predecessors() == 0 {
                std::thread::sleep(Duration::from_millis(2500));
                die()
            }
            Ok(())
        });
        assert_eq!(outcome.expect("no fault"), Ended::Served);
        let log = fs::read_to_string(&log).expect("a log");
        assert!(log.contains("the server died") && !log.contains("callers waited"), "{log}");
    });
}

/// Callers wait until the dump is written, and then go on.
#[test]
fn a_core_dump_is_waited_for() {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if pattern.trim() != "core" {
        println!("SKIPPED: core dumps go elsewhere: {}", pattern.trim());
        return;
    }
    alone(|| {
        let folder = tempfile::tempdir().expect("a folder");
        std::env::set_current_dir(&folder).expect("is a folder");
        let mut raise = Command::new("prlimit");
        raise.args(["--core=unlimited", "--pid", &std::process::id().to_string()]).stderr(Stdio::null());
        if !raise.status().is_ok_and(|status| status.success()) {
            return println!("SKIPPED: RLIMIT_CORE cannot be raised");
        }
        let log = folder.path().join("log");
        support::log_to(&log);
        let (outcome, notes) = Scene::new().keep(&Limits::default(), |seat, stage| {
            seat.ready().map_err(|error| error.to_string())?;
            if seat.predecessors() == 0 {
                let memory = vec![7_u8; 128 << 20];
                stage.note(&memory[1 << 20].to_string());
                std::process::abort();
            }
            Ok(())
        });
        assert_eq!((outcome.expect("the second one ended well"), notes.as_str()), (Ended::Served, "7"));
        let dumps = fs::read_dir(folder.path()).expect("is a folder").flatten();
        let longest = dumps.filter_map(|entry| entry.metadata().ok()).map(|it| it.len()).max();
        assert!(longest > Some(128 << 20), "there is no dump: {longest:?}");
        let log = fs::read_to_string(&log).expect("a log");
        assert!(log.contains("writes a core dump of any length"), "{log}");
    });
}
