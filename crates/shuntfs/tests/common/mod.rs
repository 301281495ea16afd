//! Mounts for the tests: each under a time limit, and gone afterwards whatever happens.

#![allow(dead_code, reason = "each test program uses its own part")]

pub(crate) mod author;
pub(crate) mod desk;
pub(crate) mod fixture;
pub(crate) mod odd;
pub(crate) mod shelf;
pub(crate) mod wishes;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use shuntfs::{Filesystem, MountOptions, Session, SessionOptions, Transport, TransportKind, UnmountError};
use shuntfs_testkit::supervisor::Supervisor;
use tempfile::TempDir;

/// How long a test may keep its mount.
const LIMIT: Duration = Duration::from_secs(60);
const ENABLE_URING: &str = "/sys/module/fuse/parameters/enable_uring";

/// A mount that ends with the test, or is ended where the test does not end in time.
pub(crate) struct Mounted {
    session: Option<Session>,
    dir: TempDir,
    /// After the session: a caller that waits for a stuck server can only be freed from outside.
    _supervisor: Supervisor,
}

impl Mounted {
    pub(crate) fn new<F: Filesystem>(fs: F, options: &SessionOptions) -> Self {
        Self::with(fs, &MountOptions::default(), options)
    }

    pub(crate) fn with<F: Filesystem>(fs: F, mount: &MountOptions, options: &SessionOptions) -> Self {
        let dir = tempfile::tempdir().expect("a folder to mount on");
        let session = Session::mount(Arc::new(fs), dir.path(), mount, options).expect("mounts");
        let supervisor = Supervisor::of(dir.path(), LIMIT).expect("a supervisor");
        Self { session: Some(session), dir, _supervisor: supervisor }
    }

    pub(crate) fn session(&self) -> &Session {
        self.session.as_ref().expect("mounted until dropped")
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Unmounts and waits for the queues to end.
    pub(crate) fn end(mut self) {
        let session = self.session.take().expect("mounted until dropped");
        // A program that another test starts has all descriptors of this process for a moment.
        let patience = Instant::now() + Duration::from_secs(10);
        let unmounted = loop {
            match session.unmount() {
                Err(UnmountError::Busy { .. }) if Instant::now() < patience => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                unmounted => break unmounted,
            }
        };
        unmounted.expect("nothing is open");
        session.wait();
        drop(session);
        assert!(!is_mounted(self.dir.path()));
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        drop(self.session.take());
        if is_mounted(self.dir.path()) {
            force_unmount(self.dir.path());
        }
    }
}

/// `umount -f` aborts the connection even where the mount stays busy.
fn force_unmount(path: &Path) {
    for how in ["-f", "-l"] {
        let _best_effort = Command::new("umount").arg(how).arg(path).status();
    }
}

pub(crate) fn is_mounted(path: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mountinfo").expect("a mount table");
    table.lines().any(|line| line.split(' ').nth(4) == path.to_str())
}

/// Whether mounts are possible here; says why not.
pub(crate) fn can_mount() -> bool {
    if std::fs::metadata("/dev/fuse").is_err() {
        println!("SKIPPED: there is no /dev/fuse");
        return false;
    }
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:\t")).expect("capabilities");
    if u64::from_str_radix(effective, 16).expect("a number") & 1 << 21 == 0 {
        println!("SKIPPED: needs CAP_SYS_ADMIN");
        return false;
    }
    true
}

/// Runs a test on each transport that this machine has. Turns io_uring on for FUSE where it is off, and says so.
pub(crate) fn on_each_transport(test: impl Fn(&SessionOptions)) {
    if !can_mount() {
        return;
    }
    for kind in [TransportKind::Device, TransportKind::Cloned, TransportKind::Uring] {
        if kind == TransportKind::Uring && !uring_is_on() {
            println!("SKIPPED on uring: FUSE over io_uring cannot be turned on");
            continue;
        }
        println!("on {kind}");
        test(&options(kind));
    }
}

pub(crate) fn options(kind: TransportKind) -> SessionOptions {
    SessionOptions {
        transport: Transport::Only(kind),
        queues: Some(2),
        depth: 4,
        ..SessionOptions::default()
    }
}

pub(crate) fn uring_is_on() -> bool {
    let is_on = || std::fs::read_to_string(ENABLE_URING).is_ok_and(|value| value.trim() == "Y");
    if !is_on() && std::fs::write(ENABLE_URING, "Y").is_ok() {
        println!("wrote Y to {ENABLE_URING}");
    }
    is_on()
}
