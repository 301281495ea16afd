//! A server whose system calls are followed, so that it can be killed at any of them.
#![expect(unsafe_code, reason = "a test follows the system calls of a server")]

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::time::{Duration, Instant};

use shuntfs_sys::spawn::{Push, push};

/// Nothing comes for so long: it waits for a request.
const QUIET: Duration = Duration::from_millis(20);
/// How long a server that was killed may take to be gone.
const PATIENCE: Duration = Duration::from_secs(20);

/// The threads of a server, each of which stops before and after its system calls.
pub(crate) struct Followed {
    server: u32,
    threads: BTreeSet<i32>,
}

impl Followed {
    pub(crate) fn begin(server: u32) -> Self {
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
    pub(crate) fn go_on(&mut self, stops: usize, mut is_over: impl FnMut() -> bool) -> usize {
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
    pub(crate) fn settle(&mut self) {
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
    pub(crate) fn kill(mut self) {
        push(self.server, Push::Die).expect("it is there");
        self.forget();
    }

    /// Whoever follows a thread is told of its end first.
    fn forget(&mut self) {
        let end = Instant::now() + PATIENCE;
        loop {
            self.threads.retain(|thread| stop_of(*thread).is_none_or(|(_, status)| libc::WIFSTOPPED(status)));
            let is_there =
                |thread: &i32| fs::metadata(format!("/proc/{}/task/{thread}", self.server)).is_ok();
            if !self.threads.iter().any(is_there) {
                return;
            }
            assert!(Instant::now() < end, "its threads do not end");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// What a thread that is followed has come to, if anything.
fn stop_of(thread: i32) -> Option<(i32, i32)> {
    let mut status = 0;
    // SAFETY: `status` is an int.
    let found = unsafe { libc::waitpid(thread, &raw mut status, libc::WNOHANG | libc::__WALL) };
    (found == thread).then_some((thread, status))
}
