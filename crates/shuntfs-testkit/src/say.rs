//! Lines that a test says past the capture of the test harness, and the lock that keeps heavy tests apart.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{FlockOperation, flock};

/// Prints a line `SKIPPED: reason` where it is seen even when the harness captures the output of passing tests.
pub fn skipped(reason: &str) {
    say(&format!("SKIPPED: {reason}"));
}

/// Prints a line where it is seen even when the harness captures the output of passing tests.
pub fn say(line: &str) {
    // The harness captures `println!`, not the stream behind it.
    let mut out = std::io::stdout().lock();
    // A closed stdout must not fail a test.
    drop(writeln!(out, "{line}"));
}

/// Keeps every other heavy test on this machine waiting.
#[derive(Debug)]
pub struct Serial {
    _other_processes: Option<File>,
    _other_threads: MutexGuard<'static, ()>,
}

/// Lets one heavy test run at a time, in this binary and beside it, until the guard is dropped.
///
/// Mounts, lock tests and counts of system calls disturb each other: a process that forks while another test holds a
/// lock keeps that lock alive for a moment.
#[must_use]
pub fn serial() -> Serial {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    Serial { _other_processes: machine_lock(), _other_threads: guard }
}

/// The lock between test binaries; without it (another user's file, say) tests only disturb each other.
fn machine_lock() -> Option<File> {
    let path =
        std::env::temp_dir().join(format!("shuntfs-tests-{}.lock", rustix::process::geteuid().as_raw()));
    let flags = i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).ok()?;
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .custom_flags(flags)
        .open(path)
        .ok()?;
    flock(&file, FlockOperation::LockExclusive).ok()?;
    Some(file)
}
