//! When the queues of a connection yield to their callers: the decision, without threads or time of its own.
//!
//! A thread in the light class (`SCHED_IDLE`) is a CPU that counts as idle: the kernel wakes the caller there, next to
//! the queue that answers it, and not on another CPU, which on a virtual machine costs more than all the rest of a
//! metadata request. But where anybody else computes on that CPU, a light thread hardly runs at all. So it is tried
//! and judged by what it brings: requests served a millisecond, against those before the trial. What brings nothing is
//! left at once and tried again after a pause that grows.

use shuntfs_sys::sched::Class;

/// Fewer requests a millisecond than this gain nothing worth the risk.
pub(crate) const BUSY: f64 = 2.0;
/// So many busy looks come before a trial...
const BEFORE: u32 = 2;
/// ...and so many looks does a trial take.
const TRIAL: u32 = 3;
/// After so many looks the other class is looked at again.
const TERM: u32 = 250;
/// Looks until the next trial after a failed one: the first pause, doubled each time up to the last.
const PAUSE: u32 = 12;
const PAUSE_MAX: u32 = 1250;

/// One connection's state.
#[derive(Debug)]
pub(crate) struct Governor {
    class: Class,
    /// Looks in this class.
    looks: u32,
    /// Sum of the rates of those looks that count.
    sum: f64,
    /// The rate in the normal class.
    normal_rate: f64,
    /// Looks until a trial is allowed.
    hold: u32,
    pause: u32,
}

impl Governor {
    pub(crate) fn new() -> Self {
        Self { class: Class::Normal, looks: 0, sum: 0.0, normal_rate: 0.0, hold: 0, pause: PAUSE }
    }

    pub(crate) fn class(&self) -> Class {
        self.class
    }

    /// One look: requests served a millisecond since the last one. The class to go to, where it changes.
    pub(crate) fn look(&mut self, rate: f64) -> Option<Class> {
        match self.class {
            Class::Normal => self.look_normal(rate),
            Class::Light => self.look_light(rate),
        }
    }

    fn look_normal(&mut self, rate: f64) -> Option<Class> {
        self.hold = self.hold.saturating_sub(1);
        if rate < BUSY {
            (self.looks, self.sum) = (0, 0.0);
            return None;
        }
        self.looks += 1;
        self.sum += rate;
        if self.looks < BEFORE || self.hold > 0 {
            return None;
        }
        self.normal_rate = self.sum / f64::from(self.looks);
        Some(self.change(Class::Light))
    }

    fn look_light(&mut self, rate: f64) -> Option<Class> {
        self.looks += 1;
        self.sum += rate;
        if rate < BUSY {
            if self.looks <= TRIAL {
                self.failed();
            }
            return Some(self.change(Class::Normal));
        }
        if self.looks == TRIAL {
            if self.sum / f64::from(TRIAL) < self.normal_rate {
                self.failed();
                return Some(self.change(Class::Normal));
            }
            self.pause = PAUSE;
        }
        (self.looks >= TERM).then(|| self.change(Class::Normal))
    }

    fn failed(&mut self) {
        self.hold = self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }

    fn change(&mut self, class: Class) -> Class {
        (self.class, self.looks, self.sum) = (class, 0, 0.0);
        class
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn looks(governor: &mut Governor, rates: &[f64]) -> Vec<Option<Class>> {
        rates.iter().map(|rate| governor.look(*rate)).collect()
    }

    #[test]
    fn a_trial_that_brings_more_goes_on() {
        let mut governor = Governor::new();
        assert_eq!(looks(&mut governor, &[20.0, 20.0]), [None, Some(Class::Light)]);
        assert_eq!(looks(&mut governor, &[40.0; 5]), [None; 5]);
        assert_eq!(governor.class(), Class::Light);
        assert_eq!(governor.look(0.0), Some(Class::Normal), "an idle queue is no light one");
        assert_eq!(looks(&mut governor, &[20.0, 20.0])[1], Some(Class::Light), "a new load is tried at once");
    }

    #[test]
    fn a_starving_queue_leaves_at_the_first_look_and_waits_longer_each_time() {
        let mut governor = Governor::new();
        let mut trials = Vec::new();
        for look in 0..10_000 {
            let rate = if governor.class() == Class::Light { 0.25 } else { 20.0 };
            if governor.look(rate) == Some(Class::Light) {
                trials.push(look);
            }
        }
        assert!(trials.len() <= 16, "{trials:?}");
        let pauses: Vec<_> = trials.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(pauses.windows(2).all(|pair| pair[0] <= pair[1]), "{pauses:?}");
        assert_eq!(pauses.last(), Some(&(PAUSE_MAX as i32 + 1)));
    }

    #[test]
    fn a_trial_that_brings_less_ends() {
        let mut governor = Governor::new();
        looks(&mut governor, &[20.0, 20.0]);
        assert_eq!(looks(&mut governor, &[15.0; 3]), [None, None, Some(Class::Normal)]);
        assert_eq!(looks(&mut governor, &[20.0; 8]), [None; 8], "there is a pause");
    }

    #[test]
    fn the_other_class_is_looked_at_again() {
        let mut governor = Governor::new();
        looks(&mut governor, &[20.0, 20.0]);
        let changes = looks(&mut governor, &vec![40.0; TERM as usize]);
        assert_eq!(changes.last(), Some(&Some(Class::Normal)));
        assert!(changes[..TERM as usize - 1].iter().all(Option::is_none));
    }

    #[test]
    fn a_slow_queue_is_left_alone() {
        let mut governor = Governor::new();
        assert!(looks(&mut governor, &[1.9; 100]).iter().all(Option::is_none));
    }
}
