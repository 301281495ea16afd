//! Waits for what may never come.

use std::sync::mpsc;
use std::time::Duration;

/// Does some work in a thread of its own, and gives its outcome if it comes in time. Work that is stuck in the
/// kernel is left behind; it ends with this process.
pub(crate) fn within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (send, outcome) = mpsc::channel();
    let working = std::thread::Builder::new().name("shunt-work".into()).spawn(move || {
        let _given_up = send.send(work());
    });
    working.ok()?;
    outcome.recv_timeout(limit).ok()
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn what_comes_in_time_is_had_and_the_rest_is_left() {
        assert_eq!(within(Duration::from_secs(10), || 7), Some(7));
        let (hold, held) = mpsc::channel::<()>();
        assert_eq!(within(Duration::from_millis(20), move || held.recv().is_ok()), None);
        drop(hold);
    }
}
