//! Processes that call a mount while its servers die, and what they see.
//!
//! Each is this test program again, told by the environment to call instead of to test: whoever only calls has nothing else open.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Tells this program that it is to call, and where.
const CALLS: &str = "SHUNTFS_TEST_CALLS";

static STOP: AtomicBool = AtomicBool::new(false);

/// What callers saw.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) calls: u64,
    pub(crate) failed: u64,
    pub(crate) wrong: u64,
    pub(crate) longest: Duration,
}

impl Seen {
    /// Makes a call, which must not fail.
    pub(crate) fn call<T>(&mut self, what: &str, call: impl FnOnce() -> io::Result<T>) -> Option<T> {
        let start = Instant::now();
        let outcome = call();
        self.longest = self.longest.max(start.elapsed());
        self.calls += 1;
        outcome
            .inspect_err(|error| eprintln!("{what} failed: {error}"))
            .inspect_err(|_| self.failed += 1)
            .ok()
    }

    /// Tells whoever started this process.
    pub(crate) fn say(&self) {
        println!("CALLER {} {} {} {}", self.calls, self.failed, self.wrong, self.longest.as_millis());
        io::stdout().flush().expect("a pipe");
    }
}

/// Where this process is to call until [`is_to_stop`], if it is one that calls.
pub(crate) fn is_caller() -> Option<PathBuf> {
    let folder = std::env::var_os(CALLS)?;
    std::thread::spawn(|| {
        drop(io::stdin().read_to_end(&mut Vec::new()));
        STOP.store(true, Ordering::Relaxed);
    });
    Some(folder.into())
}

/// Whether a caller is to stop: its standard input has ended.
pub(crate) fn is_to_stop() -> bool {
    STOP.load(Ordering::Relaxed)
}

/// Processes that call, until they are to stop.
pub(crate) struct Callers(Vec<Child>);

impl Callers {
    /// Starts `count` of them in `folder`, each of which runs the one test with this in its name: some are in a module elsewhere.
    pub(crate) fn start(count: usize, test: &str, folder: &Path) -> Self {
        let start = |_| {
            Command::new(std::env::current_exe().expect("is known"))
                .args([test, "--nocapture"])
                .env(CALLS, folder)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .expect("starts")
        };
        Self((0..count).map(start).collect())
    }

    /// What all of them saw; the longest call of any.
    pub(crate) fn stop(mut self) -> Seen {
        let mut sum = Seen::default();
        for mut caller in self.0.drain(..) {
            drop(caller.stdin.take());
            let output = caller.wait_with_output().expect("ends");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            // The harness may have begun the line.
            let line = text.lines().find_map(|line| line.split_once("CALLER ").map(|(_, numbers)| numbers));
            let line = line.unwrap_or_else(|| panic!("a caller said nothing of what it saw: {text}"));
            let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().expect("a number")).collect();
            sum.calls += numbers[0];
            sum.failed += numbers[1];
            sum.wrong += numbers[2];
            sum.longest = sum.longest.max(Duration::from_millis(numbers[3]));
        }
        sum
    }
}

impl Drop for Callers {
    fn drop(&mut self) {
        for caller in &mut self.0 {
            let _best_effort = caller.kill();
            let _best_effort = caller.wait();
        }
    }
}
