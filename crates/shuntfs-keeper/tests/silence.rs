//! Servers that do not read requests: who waits for himself is replaced, and who waits for a file system is not. A socket stands in
//! for the device.

mod support;

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use shuntfs_keeper::{Ended, KeepError, Limits, Seat};

use support::{LIMIT, Scene, Stage, alone, log_to};

const SILENCE: Duration = Duration::from_millis(400);

/// Whether the kernel tells in which calls threads are; says that it does not.
fn can_look() -> bool {
    let found = fs::read_to_string("/proc/self/syscall").is_ok();
    if !found {
        println!("SKIPPED: the kernel has no /proc/PID/syscall");
    }
    found
}

/// Keeps a mount with a request that waits, until a server ends well. What came of it, what servers wrote down, and the log.
fn keep(
    folder: &Path,
    serve: impl Fn(&Seat<'_>, &Stage<'_>) -> Result<(), String>,
) -> (Result<Ended, KeepError>, String, String) {
    let log = folder.join("log");
    log_to(&log);
    let limits = Limits { answers: Some(SILENCE), ..Limits::default() };
    let (outcome, notes) = Scene::new().keep(&limits, |seat, stage| {
        stage.note(&seat.predecessors().to_string());
        if seat.predecessors() == 0 {
            stage.end.send(b"a request").map_err(|error| error.to_string())?;
        }
        seat.ready().map_err(|error| error.to_string())?;
        serve(seat, stage)
    });
    (outcome, notes, fs::read_to_string(&log).expect("a log"))
}

#[test]
fn a_server_that_waits_for_itself_is_replaced() {
    if !can_look() {
        return;
    }
    alone(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let (outcome, notes, log) = keep(folder.path(), |seat, _| {
            if seat.predecessors() == 0 {
                let (never, waits) = mpsc::channel::<()>();
                let _nobody_says_so = waits.recv();
                drop(never);
            }
            Ok(())
        });
        assert_eq!((outcome.expect("the second one ended well"), notes.as_str()), (Ended::Served, "01"));
        assert!(log.contains("has read no request") && log.contains("is killed"), "{log}");
        assert!(log.contains(": S in") || log.contains(": S, call"), "its threads are described: {log}");
    });
}

#[test]
fn a_server_that_computes_without_end_is_replaced() {
    if !can_look() {
        return;
    }
    alone(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let (outcome, notes, log) = keep(folder.path(), |seat, _| {
            let end = Instant::now() + LIMIT;
            while seat.predecessors() == 0 && Instant::now() < end {
                std::hint::spin_loop();
            }
            Ok(())
        });
        assert_eq!((outcome.expect("the second one ended well"), notes.as_str()), (Ended::Served, "01"));
        assert!(log.contains("is killed"), "{log}");
    });
}

/// A FIFO stands instead of a disk that hangs: its open waits for somebody at the other end.
#[test]
fn a_server_that_waits_for_a_file_system_is_left_alone() {
    if !can_look() {
        return;
    }
    alone(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let fifo = folder.path().join("fifo");
        assert!(Command::new("mkfifo").arg(&fifo).status().expect("starts").success());
        let (outcome, notes, log) = keep(folder.path(), |_, _| {
            let path = fifo.clone();
            let below = std::thread::spawn(move || File::open(path).map(drop));
            std::thread::sleep(SILENCE * 5);
            // The disk comes back.
            drop(File::options().write(true).open(&fifo).map_err(|error| error.to_string())?);
            below.join().expect("no panic").map_err(|error| error.to_string())
        });
        assert_eq!((outcome.expect("it was left alone"), notes.as_str()), (Ended::Served, "0"));
        assert!(log.contains("waits for a file system") && !log.contains("is killed"), "{log}");
    });
}

/// There is always a request that waits, and one is read from time to time.
#[test]
fn a_server_that_has_much_to_do_is_left_alone() {
    alone(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let (outcome, notes, log) = keep(folder.path(), |_, stage| {
            let device = stage.device();
            for _ in 0..40 {
                stage.end.send(b"a request").map_err(|error| error.to_string())?;
                std::thread::sleep(SILENCE / 8);
                device.read(&mut [0; 64]).map_err(|error| error.to_string())?;
            }
            Ok(())
        });
        assert_eq!((outcome.expect("it was left alone"), notes.as_str()), (Ended::Served, "0"));
        assert!(!log.contains("has read no request"), "{log}");
    });
}

/// A server that has nothing to do reads nothing.
#[test]
fn a_server_without_requests_is_left_alone() {
    alone(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let (outcome, notes, log) = keep(folder.path(), |_, stage| {
            stage.device().read(&mut [0; 64]).map_err(|error| error.to_string())?;
            std::thread::sleep(SILENCE * 4);
            Ok(())
        });
        assert_eq!((outcome.expect("it was left alone"), notes.as_str()), (Ended::Served, "0"));
        assert!(!log.contains("has read no request"), "{log}");
    });
}
