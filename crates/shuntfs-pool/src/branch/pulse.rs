//! How long lower calls take on a branch, by samples.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// One call in so many is timed: two looks at the clock cost as much as a lookup in a cache.
const EVERY: u32 = 16;

/// A new sample changes the mean by one part in so many.
const WEIGHT: u64 = 8;

/// The mean of the last calls. Whoever is overtaken by another thread loses a sample, which changes nothing.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    calls: AtomicU32,
    /// In nanoseconds; 0 before the first sample.
    mean_ns: AtomicU64,
}

impl Pulse {
    /// Makes a call, and sometimes looks how long it takes.
    pub(crate) fn time<T>(&self, call: impl FnOnce() -> T) -> T {
        if !self.calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(EVERY) {
            return call();
        }
        let since = Instant::now();
        let outcome = call();
        self.took(since.elapsed());
        outcome
    }

    fn took(&self, took: Duration) {
        let sample = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).max(1);
        let mean = self.mean_ns.load(Ordering::Relaxed);
        let next = if mean == 0 { sample } else { mean - mean / WEIGHT + sample / WEIGHT };
        self.mean_ns.store(next.max(1), Ordering::Relaxed);
    }

    /// The mean; `None` before the first sample.
    pub(crate) fn mean(&self) -> Option<Duration> {
        let mean = self.mean_ns.load(Ordering::Relaxed);
        (mean > 0).then(|| Duration::from_nanos(mean))
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn the_mean_follows_the_samples() {
        let pulse = Pulse::default();
        assert_eq!(pulse.mean(), None);
        pulse.took(Duration::from_micros(8));
        assert_eq!(pulse.mean(), Some(Duration::from_micros(8)));
        pulse.took(Duration::from_micros(16));
        assert_eq!(pulse.mean(), Some(Duration::from_micros(9)));
        (0..200).for_each(|_| pulse.took(Duration::from_millis(1)));
        let mean = pulse.mean().unwrap();
        assert!((Duration::from_micros(990)..=Duration::from_millis(1)).contains(&mean), "{mean:?}");
    }

    #[test]
    fn one_call_in_sixteen_is_timed() {
        let pulse = Pulse::default();
        assert_eq!(pulse.time(|| 5), 5);
        let first = pulse.mean();
        assert!(first.is_some());
        (0..15).for_each(|_| pulse.time(|| std::thread::sleep(Duration::from_millis(1))));
        assert_eq!(pulse.mean(), first);
        pulse.time(|| std::thread::sleep(Duration::from_millis(1)));
        assert_ne!(pulse.mean(), first);
    }
}
