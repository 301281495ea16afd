//! Time limits: whoever touches a hung mount hangs with it, so nothing here is done without one.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Runs `work` on its own thread and returns what it returned, or an error when `limit` has passed.
///
/// On a time-out the thread is left behind: it is stuck in the kernel, and ends when its connection is aborted.
///
/// # Errors
/// The work did not end inside the limit, or it panicked.
pub fn run_with_timeout<T: Send + 'static>(
    limit: Duration,
    what: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let worker = thread::Builder::new().name(what.chars().take(15).collect()).spawn(move || {
        // The receiver is gone after a time-out; nobody wants the value then.
        drop(sender.send(work()));
    })?;
    match receiver.recv_timeout(limit) {
        Ok(value) => Ok(value),
        Err(mpsc::RecvTimeoutError::Timeout) => bail!("{what}: no answer after {limit:?}"),
        Err(mpsc::RecvTimeoutError::Disconnected) => match worker.join() {
            Err(panic) => bail!("{what}: panicked: {}", panic_text(panic.as_ref())),
            Ok(()) => bail!("{what}: ended without an answer"),
        },
    }
}

/// Asks `ready` again and again until it says yes or `limit` has passed; says whether it did.
pub fn wait_until(limit: Duration, mut ready: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    loop {
        if ready() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without words".to_owned())
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_value_comes_back_and_a_stuck_worker_is_an_error() {
        assert_eq!(run_with_timeout(Duration::from_secs(5), "fast", || 7).unwrap(), 7);
        let stuck =
            run_with_timeout(Duration::from_millis(20), "slow", || thread::sleep(Duration::from_secs(1)));
        assert!(stuck.unwrap_err().to_string().contains("no answer"));
        let panicked = run_with_timeout(Duration::from_secs(5), "loud", || panic!("boom {}", 1));
        assert!(panicked.unwrap_err().to_string().contains("boom 1"));
    }

    #[test]
    fn waiting_ends_with_the_condition_or_the_limit() {
        let mut asked = 0;
        assert!(wait_until(Duration::from_secs(5), || {
            asked += 1;
            asked == 3
        }));
        assert!(!wait_until(Duration::from_millis(20), || false));
    }
}
