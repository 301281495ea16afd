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
    /// The threads that it has now.
    #[allow(dead_code, reason = "some test programs do without")]
    pub(crate) fn begin(server: u32) -> Self {
        Self::begin_with(server, libc::PTRACE_O_TRACESYSGOOD)
    }

    /// And those that it starts from now on.
    #[allow(dead_code, reason = "some test programs do without")]
    pub(crate) fn begin_with_later_threads(server: u32) -> Self {
        Self::begin_with(server, libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACECLONE)
    }

    fn begin_with(server: u32, options: i32) -> Self {
        let tasks = fs::read_dir(format!("/proc/{server}/task")).expect("it lives").flatten();
        let mut threads: BTreeSet<i32> =
            tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()).collect();
        // It looks at the others every few milliseconds: the slower they are followed, the more of the stops would be its own.
        let is_watcher = |thread: &i32| {
            fs::read_to_string(format!("/proc/{server}/task/{thread}/comm"))
                .is_ok_and(|name| name.trim() == "shunt-watch")
        };
        threads.retain(|thread| {
            if is_watcher(thread) {
                return false;
            }
            // SAFETY: the arguments are a thread's number and options, no addresses.
            let seized = unsafe { libc::ptrace(libc::PTRACE_SEIZE, *thread, 0, options) };
            let error = io::Error::last_os_error();
            // An idle thread of the offload pool may have ended meanwhile.
            let has_ended = error.raw_os_error() == Some(libc::ESRCH) && *thread != pid_of(server);
            assert!(seized == 0 || has_ended, "{error}");
            // SAFETY: as above.
            unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, *thread, 0, 0) };
            seized == 0
        });
        Self { server, threads }
    }

    /// Lets threads go on that have stopped, up to a number of stops at system calls; how many there were. Ends early when `is_over`.
    pub(crate) fn go_on(&mut self, stops: usize, mut is_over: impl FnMut() -> bool) -> usize {
        let mut seen = 0;
        while !is_over() {
            for (thread, status) in self.stopped() {
                let at_call = is_at_call(status);
                seen += usize::from(at_call);
                if at_call && seen >= stops {
                    return seen;
                }
                let_go_on(thread, status);
            }
        }
        seen
    }

    /// The threads that have stopped since, if any; those that have ended are no longer followed, and those that were started are.
    fn stopped(&mut self) -> Vec<(i32, i32)> {
        let mut stopped: Vec<(i32, i32)> =
            self.threads.iter().filter_map(|thread| stop_of(*thread)).collect();
        if stopped.is_empty() {
            std::thread::sleep(Duration::from_micros(50));
        }
        stopped.retain(|&(thread, status)| {
            if !libc::WIFSTOPPED(status) {
                self.threads.remove(&thread);
                return false;
            }
            if status >> 16 == libc::PTRACE_EVENT_CLONE {
                self.threads.insert(started_by(thread));
            }
            true
        });
        stopped
    }

    /// Lets threads go on until one is about to make a system call: that one does not, from then on. Whether it came to that before `is_over`.
    #[allow(dead_code, reason = "some test programs do without")]
    pub(crate) fn stop_before(&mut self, call: i64, mut is_over: impl FnMut() -> bool) -> bool {
        while !is_over() {
            let mut has_stopped = false;
            for (thread, status) in self.stopped() {
                if is_at_call(status) && next_call_of(thread) == Some(call) {
                    has_stopped = true;
                } else {
                    let_go_on(thread, status);
                }
            }
            if has_stopped {
                return true;
            }
        }
        false
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

/// The number of a process's first thread.
fn pid_of(process: u32) -> i32 {
    i32::try_from(process).expect("a process")
}

/// Whether a thread has stopped before or after a system call.
fn is_at_call(status: i32) -> bool {
    libc::WSTOPSIG(status) == libc::SIGTRAP | 0x80
}

/// Lets a thread go on that has stopped, up to its next stop.
fn let_go_on(thread: i32, status: i32) {
    let is_signal = !is_at_call(status) && status >> 16 == 0;
    let signal = if is_signal { libc::WSTOPSIG(status) } else { 0 };
    // SAFETY: the arguments are a thread's number and a signal's, no addresses; the thread has stopped.
    unsafe { libc::ptrace(libc::PTRACE_SYSCALL, thread, 0, signal) };
}

/// The number of the system call that a thread has stopped before.
fn next_call_of(thread: i32) -> Option<i64> {
    // What happens is its first byte; of an entry, the number of the call is the fourth word.
    let mut info = [0_u64; 16];
    let len = size_of_val(&info);
    // SAFETY: `info` has room for `len` bytes; the thread has stopped.
    unsafe { libc::ptrace(libc::PTRACE_GET_SYSCALL_INFO, thread, len, info.as_mut_ptr()) };
    let is_entry = info[0] & 0xff == u64::from(libc::PTRACE_SYSCALL_INFO_ENTRY);
    if is_entry { i64::try_from(info[3]).ok() } else { None }
}

/// The thread that one has just started.
fn started_by(thread: i32) -> i32 {
    let mut started: libc::c_ulong = 0;
    // SAFETY: `started` is an unsigned long; the thread has stopped.
    let told = unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, thread, 0, &raw mut started) };
    assert_eq!(told, 0, "{}", io::Error::last_os_error());
    i32::try_from(started).expect("a thread")
}

/// What a thread that is followed has come to, if anything.
fn stop_of(thread: i32) -> Option<(i32, i32)> {
    let mut status = 0;
    // SAFETY: `status` is an int.
    let found = unsafe { libc::waitpid(thread, &raw mut status, libc::WNOHANG | libc::__WALL) };
    (found == thread).then_some((thread, status))
}
