//! A keeper and its server are killed under a service manager that holds the descriptors, and another keeper goes on: no call fails. The
//! service manager is a socket of this test. Needs CAP_SYS_ADMIN and /dev/fuse; elsewhere it says so and passes.
#![expect(unsafe_code, reason = "descriptors are handed over by their numbers, which std has no way for")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use shuntfs_sys::passing::receive;
use shuntfs_sys::spawn::{Push, push};
use tempfile::TempDir;

use support::kept::{Kept, program};
use support::{can_mount, is_mounted, wait_until};

/// More are not stored here.
const STORED_MAX: usize = 64;

/// What a service manager does, as far as it matters.
struct Manager {
    socket: UnixDatagram,
    folder: TempDir,
    stored: Vec<(String, OwnedFd)>,
    said: Vec<String>,
}

impl Manager {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = UnixDatagram::bind(folder.path().join("notify")).expect("binds");
        socket.set_nonblocking(true).expect("is a socket");
        Self { socket, folder, stored: Vec::new(), said: Vec::new() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("notify")
    }

    /// Takes in what was said, by sd_notify(3).
    fn hear(&mut self) {
        let mut room = [0; 4096];
        while let Ok((len, fds)) = receive(self.socket.as_fd(), &mut room) {
            let message = String::from_utf8(room[..len].to_vec()).expect("text");
            let fields: BTreeMap<&str, &str> =
                message.lines().map(|line| line.split_once('=').expect("an assignment")).collect();
            let name = fields.get("FDNAME").copied().unwrap_or("stored");
            if fields.contains_key("FDSTORE") {
                assert_eq!(fields.get("FDPOLL"), Some(&"0"), "each request would wake it: {message}");
                assert!(!fds.is_empty(), "{message}");
                self.stored.extend(fds.into_iter().map(|fd| (name.to_owned(), fd)));
                assert!(self.stored.len() <= STORED_MAX);
            } else {
                assert!(fds.is_empty(), "{message}");
            }
            if fields.contains_key("FDSTOREREMOVE") {
                self.stored.retain(|(stored, _)| stored != name);
            }
            self.said.push(message);
        }
    }

    /// Hears until something was said.
    fn hears(&mut self, what: &str) {
        wait_until(what, || {
            self.hear();
            self.said.iter().any(|message| message.contains(what)).then_some(())
        });
    }

    /// How many descriptors are stored by a name.
    fn count(&self, name: &str) -> usize {
        self.stored.iter().filter(|(stored, _)| stored == name).count()
    }

    /// A command that has what is stored, the first last, because no order is promised.
    fn start(&self, program: &Path, arguments: &[&std::ffi::OsStr]) -> Command {
        let script = r#"LISTEN_PID=$$; export LISTEN_PID; exec "$0" "$@""#;
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).arg(program).args(arguments).env("NOTIFY_SOCKET", self.path());
        let names: Vec<&str> = self.stored.iter().rev().map(|(name, _)| name.as_str()).collect();
        command.env("LISTEN_FDS", names.len().to_string()).env("LISTEN_FDNAMES", names.join(":"));
        let mut numbers = [-1; STORED_MAX];
        for (number, (_, fd)) in numbers.iter_mut().zip(self.stored.iter().rev()) {
            *number = fd.as_raw_fd();
        }
        // SAFETY: only system calls are made, and nothing is allocated.
        unsafe { command.pre_exec(move || hand_over(numbers)) };
        command
    }
}

/// Makes duplicates of descriptors that begin with 3, in a process that is about to become another program.
fn hand_over(mut numbers: [RawFd; STORED_MAX]) -> io::Result<()> {
    for number in numbers.iter_mut().filter(|number| **number >= 0) {
        // Out of the way of those that must be replaced.
        // SAFETY: takes integers.
        *number = unsafe { libc::fcntl(*number, libc::F_DUPFD_CLOEXEC, 200) };
        if *number < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    for (to, number) in (3..).zip(numbers).filter(|(_, number)| *number >= 0) {
        // SAFETY: takes integers. What had the number is not used any more but by an exec that fails.
        if unsafe { libc::dup2(number, to) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// A process that calls until it is told to stop. It is one of its own: whatever a keeper is started from closes what it has open on the
/// mount when it executes the program, and each close of a file waits for a server (FLUSH).
struct Caller {
    process: libc::pid_t,
    notes: TempDir,
}

impl Caller {
    fn start(folder: &Path) -> Self {
        let notes = tempfile::tempdir().expect("a folder");
        // SAFETY: the fork of the C library leaves its allocator usable, and the child ends without returning.
        let process = unsafe { libc::fork() };
        if process == 0 {
            let outcome = catch_unwind(AssertUnwindSafe(|| call(folder, &notes.path().join("stop"))));
            let failed =
                outcome.map(|calls| fs::write(notes.path().join("calls"), calls.to_string()).is_err());
            // SAFETY: ends the child without running anything of the parent's.
            unsafe { libc::_exit(i32::from(failed.unwrap_or(true))) };
        }
        assert!(process > 0, "{}", io::Error::last_os_error());
        Self { process, notes }
    }

    /// How many calls went well; none failed.
    fn stop(self) -> u64 {
        fs::write(self.notes.path().join("stop"), "").expect("writes");
        let mut status = 0;
        wait_until("the caller's end", || {
            // SAFETY: `status` is an int, and the child is ours.
            let ended = unsafe { libc::waitpid(self.process, &raw mut status, libc::WNOHANG) };
            (ended == self.process).then_some(())
        });
        assert_eq!(status, 0, "a call failed");
        let calls = fs::read_to_string(self.notes.path().join("calls")).expect("it wrote them down");
        calls.parse().expect("a number")
    }
}

/// Calls until the file `stop` is there; how many calls went well. None may fail.
fn call(folder: &Path, stop: &Path) -> u64 {
    let mut calls = 0;
    let open = fs::File::open(folder.join("5")).expect("opens");
    let mut first = [0; 512];
    open.read_exact_at(&mut first, 0).expect("reads");
    while !stop.exists() {
        let number = calls % 16;
        let found = fs::metadata(folder.join(number.to_string()));
        found.unwrap_or_else(|error| panic!("call {calls}: {error}"));
        let mut room = [0; 512];
        open.read_exact_at(&mut room, 0).unwrap_or_else(|error| panic!("call {calls}: {error}"));
        assert_eq!(room, first);
        calls += 1;
    }
    calls
}

/// Kills them and starts another keeper, as a manager does.
fn replace(manager: &mut Manager, kept: &mut Kept, kind: &str, with_server: bool) {
    let (keeper, server) = (kept.keeper.id(), kept.next_server(None));
    push(keeper, Push::Die).expect("it is there");
    if with_server {
        push(server, Push::Die).expect("it is there");
    }
    assert!(!kept.ended().success());
    manager.hear();
    manager.said.clear();
    let program = program().expect("it was there");
    let arguments = [kept.path().as_os_str(), kind.as_ref(), "1000".as_ref()];
    let command = manager.start(&program, &arguments);
    kept.replace(command);
    manager.hears("READY=1");
    assert!(kept.next_server(None) != server);
    // It may have no parent that waits for it.
    assert!(fs::read_link(format!("/proc/{server}/exe")).is_err(), "the first server lives");
}

#[test]
fn privileged_a_mount_outlives_keeper_and_server_where_its_descriptors_are_stored() {
    if !can_mount() {
        return;
    }
    for kind in ["device", "cloned"] {
        let mut manager = Manager::new();
        let path = manager.path();
        let started = Kept::start(&[kind, "1000"], |command| {
            command.env("NOTIFY_SOCKET", path).env("WATCHDOG_USEC", "200000");
        });
        let Some(mut kept) = started else { return };
        manager.hears("READY=1");
        let (device, note) = (manager.count("shuntfs-device"), manager.count("shuntfs-note"));
        assert_eq!((device, note), (1, 1), "{:?}", manager.said);
        assert_eq!(manager.count("shuntfs-clone") > 0, kind == "cloned", "{:?}", manager.said);
        let stored = manager.stored.len();
        manager.hears("WATCHDOG=1");
        let caller = Caller::start(kept.path());
        std::thread::sleep(Duration::from_millis(200));
        for with_server in [true, false, true] {
            replace(&mut manager, &mut kept, kind, with_server);
            std::thread::sleep(Duration::from_millis(200));
        }
        let calls = caller.stop();
        assert!(calls > 100, "on {kind}: {calls} calls");
        assert_eq!(manager.stored.len(), stored, "nothing is stored twice");
        push(kept.keeper.id(), Push::End).expect("it is there");
        assert!(kept.ended().success(), "on {kind}: {}", kept.said());
        assert!(!is_mounted(kept.path()), "on {kind}");
        manager.hears("FDSTOREREMOVE=1\nFDNAME=shuntfs-note");
        assert!(manager.stored.is_empty(), "{:?}", manager.stored);
        assert!(manager.said.iter().any(|message| message == "STOPPING=1"), "{:?}", manager.said);
    }
}
