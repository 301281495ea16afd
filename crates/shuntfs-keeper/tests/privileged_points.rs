//! A server is killed at every point of an operation: before and after each of its system calls, from the moment in which it has read the request to
//! the moment in which it has answered. Whoever called gets what would have come without, and below there is what there would be. Needs CAP_SYS_ADMIN,
//! CAP_SYS_PTRACE and /dev/fuse; elsewhere it says so and passes.
#![expect(unsafe_code, reason = "a test follows the system calls of a server")]

mod support;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use shuntfs_sys::rename_at;
use shuntfs_sys::spawn::{Push, push};
use support::can_mount;
use support::kept::{Kept, with_state};
use support::wait_until;

/// The server is killed in at most so many places of one operation.
const POINTS_MAX: usize = 600;
/// Every how many places, so that it does not take too long: odd, so that it is before calls and after them. `SHUNTFS_POINTS_STRIDE=1` is all.
const STRIDE: usize = 5;
/// A mount sees many servers, and each of them is slow while it is followed.
const LIVES: Duration = Duration::from_secs(240);
/// Nothing comes for so long: it waits for a request.
const QUIET: Duration = Duration::from_millis(20);

/// The threads of a server, each of which stops before and after its system calls.
struct Followed {
    server: u32,
    threads: BTreeSet<i32>,
}

impl Followed {
    fn begin(server: u32) -> Self {
        let tasks = fs::read_dir(format!("/proc/{server}/task")).expect("it lives").flatten();
        let threads: BTreeSet<i32> =
            tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()).collect();
        for thread in &threads {
            let options = libc::PTRACE_O_TRACESYSGOOD;
            // SAFETY: the arguments are a thread's number and options, no addresses.
            let seized = unsafe { libc::ptrace(libc::PTRACE_SEIZE, *thread, 0, options) };
            assert_eq!(seized, 0, "{}", io::Error::last_os_error());
            // SAFETY: as above.
            unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, *thread, 0, 0) };
        }
        Self { server, threads }
    }

    /// Lets threads go on that have stopped, up to a number of stops at system calls; how many there were. Ends early when `is_over`.
    fn go_on(&mut self, stops: usize, mut is_over: impl FnMut() -> bool) -> usize {
        let mut seen = 0;
        while !is_over() {
            let stopped: Vec<(i32, i32)> =
                self.threads.iter().filter_map(|thread| stop_of(*thread)).collect();
            if stopped.is_empty() {
                std::thread::sleep(Duration::from_micros(50));
            }
            for (thread, status) in stopped {
                if !libc::WIFSTOPPED(status) {
                    self.threads.remove(&thread);
                    continue;
                }
                let at_call = libc::WSTOPSIG(status) == libc::SIGTRAP | 0x80;
                seen += usize::from(at_call);
                if at_call && seen >= stops {
                    return seen;
                }
                let is_signal = !at_call && status >> 16 == 0;
                let signal = if is_signal { libc::WSTOPSIG(status) } else { 0 };
                // SAFETY: as above; the thread has stopped.
                unsafe { libc::ptrace(libc::PTRACE_SYSCALL, thread, 0, signal) };
            }
        }
        seen
    }

    /// Until every thread waits for something.
    fn settle(&mut self) {
        let mut last = Instant::now();
        loop {
            let end = Instant::now() + QUIET;
            if self.go_on(usize::MAX, || Instant::now() > end) > 0 {
                last = Instant::now();
            }
            if last.elapsed() >= QUIET {
                return;
            }
        }
    }

    /// Kills the server where it is.
    fn kill(mut self) {
        push(self.server, Push::Die).expect("it is there");
        self.forget();
    }

    /// Whoever follows a thread is told of its end first.
    fn forget(&mut self) {
        wait_until("the end of its threads", || {
            self.threads.retain(|thread| stop_of(*thread).is_none_or(|(_, status)| libc::WIFSTOPPED(status)));
            self.threads
                .iter()
                .all(|thread| fs::metadata(format!("/proc/{}/task/{thread}", self.server)).is_err())
                .then_some(())
        });
    }
}

/// What a thread that is followed has come to, if anything.
fn stop_of(thread: i32) -> Option<(i32, i32)> {
    let mut status = 0;
    // SAFETY: `status` is an int.
    let found = unsafe { libc::waitpid(thread, &raw mut status, libc::WNOHANG | libc::__WALL) };
    (found == thread).then_some((thread, status))
}

/// An operation: what must be there before, what is called, and what must be there below afterwards.
struct Operation {
    name: &'static str,
    prepare: fn(&Path) -> io::Result<()>,
    call: fn(&Path) -> io::Result<()>,
    check: fn(&Path) -> bool,
}

fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

const OPERATIONS: [Operation; 9] = [
    Operation {
        name: "mkdir",
        prepare: |_| Ok(()),
        call: |folder| fs::create_dir(folder.join("new")),
        check: |folder| folder.join("new").is_dir(),
    },
    Operation {
        name: "rmdir",
        prepare: |folder| fs::create_dir(folder.join("old")),
        call: |folder| fs::remove_dir(folder.join("old")),
        check: |folder| !is_there(&folder.join("old")),
    },
    Operation {
        name: "open(O_CREAT | O_EXCL) and close",
        prepare: |_| Ok(()),
        call: |folder| File::options().write(true).create_new(true).open(folder.join("new")).map(drop),
        check: |folder| {
            fs::metadata(folder.join("new")).is_ok_and(|found| found.is_file() && found.len() == 0)
        },
    },
    Operation {
        name: "open(O_TRUNC), write, close",
        prepare: |folder| fs::write(folder.join("old"), b"something longer"),
        call: |folder| fs::write(folder.join("old"), b"short"),
        check: |folder| fs::read(folder.join("old")).is_ok_and(|bytes| bytes == b"short"),
    },
    Operation {
        name: "unlink",
        prepare: |folder| fs::write(folder.join("old"), b"old"),
        call: |folder| fs::remove_file(folder.join("old")),
        check: |folder| !is_there(&folder.join("old")),
    },
    Operation {
        name: "rename over another file",
        prepare: |folder| {
            fs::write(folder.join("old"), b"old").and_then(|()| fs::write(folder.join("new"), b"new"))
        },
        call: |folder| fs::rename(folder.join("old"), folder.join("new")),
        check: |folder| {
            !is_there(&folder.join("old")) && fs::read(folder.join("new")).is_ok_and(|bytes| bytes == b"old")
        },
    },
    Operation {
        name: "an exchange of two names",
        prepare: |folder| {
            fs::write(folder.join("one"), b"one").and_then(|()| fs::write(folder.join("two"), b"two"))
        },
        call: |folder| {
            let folder = File::open(folder)?;
            Ok(rename_at(&folder, c"one", &folder, c"two", libc::RENAME_EXCHANGE)?)
        },
        check: |folder| {
            let is = |name: &str, bytes: &[u8]| fs::read(folder.join(name)).is_ok_and(|found| found == bytes);
            is("one", b"two") && is("two", b"one")
        },
    },
    Operation {
        name: "symlink and readlink",
        prepare: |_| Ok(()),
        call: |folder| {
            symlink("target", folder.join("new"))?;
            let target = fs::read_link(folder.join("new"))?;
            if target == Path::new("target") { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
        },
        check: |folder| fs::read_link(folder.join("new")).is_ok_and(|target| target == Path::new("target")),
    },
    Operation {
        name: "a listing",
        prepare: |folder| (0..5).try_for_each(|number| fs::write(folder.join(number.to_string()), [])),
        call: |folder| {
            let found = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?.len();
            if found == 5 { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
        },
        check: |_| true,
    },
];

/// Whether it got so far that the server was killed.
fn at_point(kept: &Kept, source: &Path, operation: &Operation, point: usize) -> bool {
    let name = format!("{point}");
    let (below, above) = (source.join(&name), kept.path().join(&name));
    fs::create_dir(&below).expect("makes a folder");
    (operation.prepare)(&below).expect("is prepared");
    // Known to the kernel, so that the operation alone is counted.
    fs::metadata(&above).expect("is served");
    let server = kept.next_server(None);
    let mut followed = Followed::begin(server);
    followed.settle();
    let call = operation.call;
    let calls = std::thread::spawn(move || call(&above));
    let seen = followed.go_on(point, || calls.is_finished());
    let is_killed = seen >= point && !calls.is_finished();
    // Where it is done, too, because nobody follows the next one.
    followed.kill();
    let outcome = calls.join().expect("no panic");
    assert!(outcome.is_ok(), "{}, killed at stop {point}: {outcome:?}\n{}", operation.name, kept.said());
    kept.next_server(Some(server));
    assert!((operation.check)(&below), "{}, killed at stop {point}: {:?}", operation.name, list(&below));
    is_killed
}

fn list(folder: &Path) -> Vec<std::ffi::OsString> {
    fs::read_dir(folder).expect("lists").flatten().map(|entry| entry.file_name()).collect()
}

#[test]
fn privileged_a_server_may_be_killed_at_every_system_call() {
    if !can_mount() {
        return;
    }
    let stride = std::env::var("SHUNTFS_POINTS_STRIDE").ok().and_then(|stride| stride.parse().ok());
    let (mut kills, stride) = (0, stride.unwrap_or(STRIDE));
    for operation in &OPERATIONS {
        let source = tempfile::tempdir().expect("a folder");
        let path = source.path().to_str().expect("plain").to_owned();
        let Some(kept) = Kept::start_of(with_state(), &[&path, "device", "1000"], LIVES, |_| ()) else {
            return;
        };
        wait_until("a mount that is served", || fs::metadata(kept.path()).ok());
        let all = (1..POINTS_MAX).step_by(stride);
        let points = all.take_while(|point| at_point(&kept, source.path(), operation, *point)).count();
        println!("{}: killed at {points} points", operation.name);
        assert!(points > 2 && points < POINTS_MAX / stride, "{}: {points} points", operation.name);
        kills += points;
    }
    println!("{kills} kills");
}
