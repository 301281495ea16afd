//! Whether a file is due, and by which step of its rule.

use shuntfs_rules::{FileTimes, MoveStep};
use shuntfs_sys::{FsStat, Stat};

/// Where a file is, and when it is asked about.
pub(super) struct Asked<'a> {
    /// The branch.
    pub(super) branch: u16,
    pub(super) times: FileTimes,
    /// In seconds since 1970.
    pub(super) now: i64,
    /// The branch that a rule names, where there is one.
    pub(super) called: &'a dyn Fn(&str) -> Option<u16>,
    /// Whether so many percent of its branch are in use.
    pub(super) is_fuller: &'a dyn Fn(u8) -> bool,
}

impl Asked<'_> {
    /// The first step that moves the file; `None` where it stays. A file that a step without `from` would move to where it is, stays there: steps
    /// behind it do not take it away again.
    pub(super) fn step<'s>(&self, steps: &'s [MoveStep]) -> Option<&'s MoveStep> {
        let is_here = |names: &[String]| names.iter().any(|name| (self.called)(name) == Some(self.branch));
        for step in steps.iter().filter(|step| step.is_due(&self.times, self.now)) {
            let stays = is_here(&step.to);
            if stays && step.from.is_empty() {
                return None;
            }
            let leaves = !stays && (step.from.is_empty() || is_here(&step.from));
            if leaves && step.fuller_than.is_none_or(|percent| (self.is_fuller)(percent)) {
                return Some(step);
            }
        }
        None
    }
}

/// The times of a file.
pub(super) fn times_of(stat: &Stat) -> FileTimes {
    FileTimes {
        access: stat.atime.secs,
        modification: stat.mtime.secs,
        birth: stat.btime.map(|birth| birth.secs),
    }
}

/// How much of a branch is in use, as df(1) counts it: what is reserved for root is neither used nor free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Usage {
    pub(super) used: u64,
    pub(super) available: u64,
}

impl Usage {
    pub(super) fn of(below: &FsStat) -> Self {
        let unit = u64::from(below.frsize);
        let used = below.blocks.saturating_sub(below.bfree);
        Self { used: used.saturating_mul(unit), available: below.bavail.saturating_mul(unit) }
    }

    /// Whether more than so many percent are in use, once so many bytes less are.
    pub(super) fn is_fuller(self, percent: u8, less: u64) -> bool {
        let all = u128::from(self.used) + u128::from(self.available);
        u128::from(self.used.saturating_sub(less)) * 100 > all * u128::from(percent)
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use shuntfs_rules::TimeWord;
    use std::time::Duration;

    const DAY: i64 = 24 * 60 * 60;

    /// A step from branches to branches, by their numbers.
    fn step(from: &[u16], to: &[u16], after_days: u64, fuller_than: Option<u8>) -> MoveStep {
        let names = |numbers: &[u16]| numbers.iter().map(u16::to_string).collect::<Vec<_>>();
        MoveStep {
            to: names(to),
            from: names(from),
            by: TimeWord::Modification,
            after: Some(Duration::from_secs(after_days * DAY.unsigned_abs())),
            within: None,
            fuller_than,
        }
    }

    /// Which of the steps moves a file of so many days from a branch that is so full.
    fn moved(steps: &[MoveStep], branch: u16, days: i64, full: u8) -> Option<usize> {
        let asked = Asked {
            branch,
            times: FileTimes { access: 0, modification: -days * DAY, birth: None },
            now: 0,
            called: &|name| name.parse().ok(),
            is_fuller: &|percent| full > percent,
        };
        let found = asked.step(steps)?;
        steps.iter().position(|step| std::ptr::eq(step, found))
    }

    #[test]
    fn files_go_down_from_tier_to_tier_by_age() {
        let steps = [step(&[], &[2], 365, None), step(&[], &[1], 30, None)];
        for (branch, days, expected) in [
            (0, 1, None),
            (0, 30, Some(1)),
            (0, 400, Some(0)),
            (1, 30, None),
            (1, 400, Some(0)),
            (2, 1, None),
            (2, 400, None),
        ] {
            assert_eq!(moved(&steps, branch, days, 0), expected, "branch {branch}, {days} days");
        }
        // What has come to the last tier is not old enough for it alone: the second step takes it.
        assert_eq!(moved(&steps, 2, 100, 0), Some(1));
    }

    #[test]
    fn a_step_takes_files_from_where_it_says() {
        let steps = [step(&[0], &[1], 0, Some(80)), step(&[1], &[2], 0, Some(90))];
        for (branch, full, expected) in
            [(0, 80, None), (0, 81, Some(0)), (1, 81, None), (1, 91, Some(1)), (2, 99, None), (7, 99, None)]
        {
            assert_eq!(moved(&steps, branch, 0, full), expected, "branch {branch}, {full} % full");
        }
        // Names that mean no branch move nothing, and one branch under two names is one.
        let odd = [step(&[0], &[0], 0, None)];
        assert_eq!(moved(&odd, 0, 9, 99), None);
        assert_eq!(moved(&[], 0, 9, 99), None);
    }

    #[test]
    fn a_step_that_does_not_hold_leaves_it_to_the_next() {
        let steps = [step(&[], &[1], 0, Some(90)), step(&[], &[2], 10, None)];
        assert_eq!(moved(&steps, 0, 10, 50), Some(1));
        assert_eq!(moved(&steps, 0, 10, 95), Some(0));
        assert_eq!(moved(&steps, 0, 9, 50), None);
    }

    #[test]
    fn what_is_reserved_for_root_is_neither_used_nor_free() {
        let usage = Usage { used: 80, available: 20 };
        assert!(usage.is_fuller(79, 0) && !usage.is_fuller(80, 0));
        assert!(usage.is_fuller(79, 0) && !usage.is_fuller(79, 1), "once one less is used");
        let reserved = FsStat { blocks: 200, bfree: 120, bavail: 20, frsize: 4096, ..NOTHING };
        assert_eq!(Usage::of(&reserved), Usage { used: 80 * 4096, available: 20 * 4096 });
        let huge = Usage { used: u64::MAX, available: u64::MAX };
        assert!(huge.is_fuller(49, 0) && !huge.is_fuller(50, 0) && !huge.is_fuller(1, u64::MAX));
        assert!(!Usage { used: 0, available: 0 }.is_fuller(1, 0));
    }

    const NOTHING: FsStat = FsStat {
        magic: shuntfs_sys::FsMagic(0),
        blocks: 0,
        bfree: 0,
        bavail: 0,
        files: 0,
        ffree: 0,
        bsize: 4096,
        namelen: 255,
        frsize: 4096,
        flags: 0,
    };
}
