//! Whether the requests of a device's thread come in company, and so whether their lower reads and writes go through
//! the thread's ring.
//!
//! A request that comes alone is answered cheapest by plain calls: one that reads it, one below, one that answers. But
//! while the thread waits below, it serves nobody else. So it looks, before a plain call that may wait, whether another
//! request is there already; each look that finds nobody makes the pause until the next one longer. Where somebody is
//! there the thread changes over to its ring, which waits for requests and for completions at once, and stays there
//! until it was alone many times in a row. Where lower calls turn out to be slow it does not take the risk of waiting.
//!
//! Requests that need nothing from below gain by company, too, but only where they are many: their answers leave together.
//! A few callers that each wait for their answer are served sooner one by one.

use std::cell::Cell;
use std::time::Duration;

/// The longest pause between two looks, in requests: what a look costs is shared by so many.
const PAUSE_MAX: u32 = 63;
/// Company ends when the thread has waited so many times in a row with at most one request to do...
const ALONE_MAX: u32 = 32;
/// ...or once for so long with none.
const LONELY: Duration = Duration::from_micros(300);
/// It is no company worth a ring either when so many waits in a row came after fewer than so many requests that needed
/// nothing from below...
const FEW_MAX: u32 = 16;
const FEW: usize = 4;
/// ...and then so many finds of waiting requests mean nothing, at most: the first time few, each time twice as many.
const SHUN: u32 = 64;
const SHUN_MAX: u32 = 4096;
/// A plain call below that takes longer than this is slow...
pub(crate) const SLOW: Duration = Duration::from_millis(5);
/// ...and after two of them in a row (one may be a thread that lost its CPU) the next so many do not hold the thread.
pub(crate) const SLOW_FOR: u32 = 64;

/// What one thread knows of its requests.
#[derive(Debug, Default)]
pub(crate) struct Company {
    together: Cell<bool>,
    alone: Cell<u32>,
    /// Requests until the next look, and how many it was last time.
    until_look: Cell<u32>,
    pause: Cell<u32>,
    few: Cell<u32>,
    /// Finds of waiting requests that are to be passed over, and how many it was last time.
    shunned: Cell<u32>,
    shun: Cell<u32>,
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

    /// The same, before a call that may wait; `waits` tells whether another request is there, and is asked seldom.
    pub(crate) fn look(&self, waits: impl FnOnce() -> bool) -> bool {
        if self.together.get() {
            return true;
        }
        if let Some(left) = self.until_look.get().checked_sub(1) {
            self.until_look.set(left);
            return false;
        }
        if waits() {
            self.met();
            return true;
        }
        let pause = (self.pause.get() * 2 + 1).min(PAUSE_MAX);
        self.pause.set(pause);
        self.until_look.set(pause);
        false
    }

    /// Requests were found waiting several times in a row; `waits` as in [`Company::look`].
    pub(crate) fn found(&self, waits: impl FnOnce() -> bool) {
        match self.shunned.get().checked_sub(1) {
            Some(left) => self.shunned.set(left),
            None => drop(self.look(waits)),
        }
    }

    /// A request came while another's operation was under way.
    pub(crate) fn met(&self) {
        self.together.set(true);
        self.alone.set(0);
        self.until_look.set(0);
        self.pause.set(0);
    }

    /// The thread waited on its ring for so long; so many operations it had under way, and so many requests it had read
    /// since it waited last.
    pub(crate) fn waited(&self, operations: usize, read: usize, took: Duration) {
        if operations > 0 || read >= FEW {
            self.few.set(0);
            if read >= 2 * FEW {
                self.shun.set(0);
            }
        } else if self.few.replace(self.few.get() + 1) + 1 == FEW_MAX {
            self.few.set(0);
            self.together.set(false);
            let shun = (self.shun.get() * 2).clamp(SHUN, SHUN_MAX);
            self.shun.set(shun);
            self.shunned.set(shun);
        }
        let requests = operations.max(read);
        if requests > 1 {
            self.alone.set(0);
            return;
        }
        self.alone.set(self.alone.get() + 1);
        if self.alone.get() >= ALONE_MAX || (requests == 0 && took >= LONELY) {
            self.together.set(false);
            self.alone.set(0);
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

    /// Whether the next call below is to be expected to be slow. Each answer counts as one call.
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
    fn one_caller_alone_is_looked_after_ever_less() {
        let company = Company::default();
        let mut looks = 0;
        for _ in 0..6400 {
            let there = company.look(|| {
                looks += 1;
                false
            });
            assert!(!there);
        }
        assert!((100..=110).contains(&looks), "{looks} looks");
    }

    #[test]
    fn company_is_found_within_the_longest_pause_and_stays() {
        let company = Company::default();
        for _ in 0..1000 {
            company.look(|| false);
        }
        let found = (0..).position(|_| company.look(|| true)).expect("it looks again");
        assert!(found <= PAUSE_MAX as usize, "after {found}");
        for _ in 0..ALONE_MAX - 1 {
            company.waited(1, 0, SHORT);
        }
        company.waited(2, 0, SHORT);
        for _ in 0..ALONE_MAX - 1 {
            company.waited(1, 0, SHORT);
        }
        assert!(company.look(|| panic!("it knows")));
        company.waited(1, 0, SHORT);
        assert!(!company.is_there(), "alone for long enough");
    }

    #[test]
    fn a_long_wait_for_nothing_ends_company() {
        let company = Company::default();
        company.met();
        company.waited(1, 0, LONELY);
        assert!(company.is_there(), "it waited for an operation");
        company.waited(0, 0, SHORT);
        assert!(company.is_there());
        company.waited(0, 0, LONELY);
        assert!(!company.is_there());
    }

    #[test]
    fn small_company_that_needs_nothing_from_below_is_shunned_ever_longer() {
        let company = Company::default();
        let mut met = Vec::new();
        for find in 0..10_000 {
            company.found(|| true);
            if company.is_there() {
                met.push(find);
                for _ in 0..FEW_MAX {
                    assert!(company.is_there());
                    company.waited(0, FEW - 1, SHORT);
                }
                assert!(!company.is_there());
            }
        }
        assert!((6..=9).contains(&met.len()), "{met:?}");
        company.met();
        company.waited(0, 2 * FEW, SHORT);
        for _ in 0..FEW_MAX {
            company.waited(0, FEW, SHORT);
            company.waited(3, 1, SHORT);
        }
        assert!(company.is_there(), "these are many");
        for _ in 0..FEW_MAX {
            company.waited(0, 2, SHORT);
        }
        let found = (0..).position(|_| {
            company.found(|| true);
            company.is_there()
        });
        assert_eq!(found, Some(SHUN as usize), "large company made it forget");
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
