//! Whether the requests of a device's thread come in company, and so whether their lower reads and writes go through
//! the thread's ring.
//!
//! A request that comes alone is answered cheapest by plain calls: one that reads it, one below, one that answers. But while the thread
//! waits below, it serves nobody else. So it looks now and then whether another request is there already. Where one is, direct lower
//! calls go through the ring, which waits for requests and for completions at once, until requests came alone many times in a row. Where
//! lower calls turn out to be slow, the next ones go through the ring, too.

use std::cell::Cell;
use std::time::Duration;

/// A thread looks once in so many requests whether another one is there.
const LOOK_EVERY: u32 = 64;
/// Company ends when the thread has waited so many times in a row with at most one request to do.
const ALONE_MAX: u32 = 32;
/// A plain call below that takes longer than this is slow...
pub(crate) const SLOW: Duration = Duration::from_millis(5);
/// ...and after two of them in a row (one may be a thread that lost its CPU) the next so many do not hold the thread.
pub(crate) const SLOW_FOR: u32 = 64;

/// What one thread knows of its requests.
#[derive(Debug, Default)]
pub(crate) struct Company {
    together: Cell<bool>,
    alone: Cell<u32>,
    /// Requests until the next look.
    until_look: Cell<u32>,
    slow: Cell<u32>,
    was_slow: Cell<bool>,
    /// Plain calls since one was slow.
    since_slow: Cell<u32>,
}

impl Company {
    /// Whether requests come together.
    pub(crate) fn is_there(&self) -> bool {
        self.together.get()
    }

    /// Told of each request that was waited for. What `waits` says of another request, which is asked seldom.
    pub(crate) fn look(&self, waits: impl FnOnce() -> bool) -> Option<bool> {
        let left = self.until_look.get().checked_sub(1);
        self.until_look.set(left.unwrap_or(LOOK_EVERY - 1));
        left.is_none().then(waits)
    }

    /// A request came while another's operation was under way, or may be.
    pub(crate) fn met(&self) {
        self.together.set(true);
        self.alone.set(0);
    }

    /// The thread waited on its ring; so many operations it had under way, and so many requests it had read since it waited last.
    pub(crate) fn waited(&self, operations: usize, read: usize) {
        let alone = if operations.max(read) > 1 { 0 } else { self.alone.get().saturating_add(1) };
        self.alone.set(alone);
        if alone >= ALONE_MAX {
            self.together.set(false);
        }
    }

    /// A plain call below took so long.
    pub(crate) fn took(&self, took: Duration) {
        let slow = took >= SLOW;
        self.since_slow.set(if slow { 0 } else { self.since_slow.get().saturating_add(1) });
        if self.was_slow.replace(slow) && slow {
            self.slow.set(SLOW_FOR);
        }
    }

    /// Whether one of the last plain calls was slow, so that nothing should be held back during the next.
    pub(crate) fn was_slow(&self) -> bool {
        self.since_slow.get() < SLOW_FOR
    }

    /// Whether the next call below must be expected to be slow. Each answer counts as one call.
    pub(crate) fn is_slow(&self) -> bool {
        let left = self.slow.get();
        self.slow.set(left.saturating_sub(1));
        left > 0
    }
}

#[cfg(test)]
mod test {
    use super::*;

    const SHORT: Duration = Duration::from_micros(20);

    #[test]
    fn one_caller_alone_is_looked_after_seldom() {
        let company = Company::default();
        let looks = (0..6400).filter_map(|_| company.look(|| false)).count();
        assert_eq!(looks, 100);
    }

    #[test]
    fn company_ends_when_requests_come_alone_for_long() {
        let company = Company::default();
        company.met();
        for _ in 0..ALONE_MAX - 1 {
            company.waited(1, 0);
        }
        company.waited(2, 0);
        for _ in 0..ALONE_MAX - 1 {
            company.waited(0, 1);
        }
        assert!(company.is_there());
        company.waited(1, 1);
        assert!(!company.is_there(), "alone for long enough");
    }

    #[test]
    fn slow_calls_make_the_next_ones_expected_to_be() {
        let company = Company::default();
        for took in [SHORT, SLOW, SHORT, SLOW] {
            company.took(took);
            assert!(!company.is_slow());
        }
        company.took(SLOW);
        assert_eq!((0..100).filter(|_| company.is_slow()).count(), SLOW_FOR as usize);
    }
}
