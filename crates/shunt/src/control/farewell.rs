//! The last words of a server: how its last act went, told to whoever takes its mount away.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a server that has said its last words stays for those who asked to hear them.
const STAY: Duration = Duration::from_secs(2);

/// What is said once, and heard by those who asked before or come in time.
#[derive(Debug, Default)]
pub struct Farewell {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    said: Option<Result<(), String>>,
    listeners: usize,
}

/// Somebody who asked; the server stays for a moment until this is dropped.
#[derive(Debug)]
pub struct Listener<'a>(&'a Farewell);

impl Farewell {
    /// Says it, and waits a little until it was heard.
    pub fn say(&self, outcome: Result<(), String>) {
        let end = Instant::now() + STAY;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.said = Some(outcome);
        self.changed.notify_all();
        while state.listeners > 0 {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            (state, _) = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Asks to hear it.
    pub fn listen(&self) -> Listener<'_> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).listeners += 1;
        Listener(self)
    }
}

impl Listener<'_> {
    /// What was said; `None` where nothing was within that time.
    #[must_use]
    pub fn hear(&self, limit: Duration) -> Option<Result<(), String>> {
        let end = Instant::now() + limit;
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.said.is_none() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            (state, _) = self.0.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        }
        state.said.clone()
    }
}

impl Drop for Listener<'_> {
    fn drop(&mut self) {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner).listeners -= 1;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn last_words_are_heard_by_who_asked_before() {
        let farewell = Farewell::default();
        let listener = farewell.listen();
        assert_eq!(listener.hear(Duration::from_millis(1)), None);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let heard = listener.hear(Duration::from_secs(20));
                assert_eq!(heard, Some(Err("no space".to_owned())));
            });
            farewell.say(Err("no space".to_owned()));
        });
        let start = Instant::now();
        farewell.say(Ok(()));
        assert!(start.elapsed() < STAY, "nobody listens any more");
    }
}
