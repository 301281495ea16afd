//! Rules that have files moved from one branch to another, when nobody asks for them.
//!
//! A mover asks about files that are there, at a time of its own: which rule moves them, and which of its steps. Who may use a file is another
//! question, so a rule that says nothing but `move` is asked by a mover alone, and by everybody else as if it were not there.

use std::time::Duration;

use crate::asked::Asked;
use crate::facts::{CallerFacts, FileFacts, Unknown, Use};
use crate::model::{Effects, MatchMode, Rule};
use crate::rules::{Failed, Rules};

/// One way in which a rule has files moved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MoveStep {
    /// The branches to which they go, by path or identity: the first one that has room. Never empty.
    pub to: Vec<String>,
    /// The branches from which they go; empty is all others.
    pub from: Vec<String>,
    /// Which time tells their age, and which of several goes first.
    pub by: TimeWord,
    /// The least age.
    pub after: Option<Duration>,
    /// The greatest age.
    pub within: Option<Duration>,
    /// How many percent of their branch must be in use; from 1 to 99. Then the oldest go first, and no more than it takes.
    pub fuller_than: Option<u8>,
}

/// A time of a file.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum TimeWord {
    /// When it was last used: read, as far as its file system notes that, or changed.
    #[default]
    Access,
    /// When its content was last changed.
    Modification,
    /// When it was made on its branch.
    Birth,
}

impl TimeWord {
    /// Every one that a rule may name.
    pub const ALL: [Self; 3] = [Self::Access, Self::Modification, Self::Birth];

    /// Its word in a file of rules.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Access => "atime",
            Self::Modification => "mtime",
            Self::Birth => "btime",
        }
    }
}

/// The times of a file, in seconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FileTimes {
    /// The last access that its file system has noted.
    pub access: i64,
    /// The last change of its content.
    pub modification: i64,
    /// Its birth, where its file system notes that.
    pub birth: Option<i64>,
}

impl MoveStep {
    /// The time that the step goes by; `None` where the file has none.
    #[must_use]
    pub fn time(&self, times: &FileTimes) -> Option<i64> {
        match self.by {
            TimeWord::Access => Some(times.access.max(times.modification)),
            TimeWord::Modification => Some(times.modification),
            TimeWord::Birth => times.birth,
        }
    }

    /// Whether a file is old enough, and not too old, at a time. One from the future is as new as can be; one without the time that is asked
    /// for never is.
    #[must_use]
    pub fn is_due(&self, times: &FileTimes, now: i64) -> bool {
        let Some(time) = self.time(times) else { return false };
        let age = Duration::from_secs(u64::try_from(now.saturating_sub(time)).unwrap_or(0));
        self.after.is_none_or(|after| age >= after) && self.within.is_none_or(|within| age <= within)
    }
}

/// A mover acts for nobody. That rules ask for a caller is a mistake, so this is never heard of.
struct NoCaller;

impl NoCaller {
    fn unknown<T>() -> Result<T, Unknown> {
        Err(Unknown("nobody asks when files are moved".into()))
    }
}

impl CallerFacts for NoCaller {
    fn uid(&self) -> Result<u32, Unknown> {
        Self::unknown()
    }

    fn gid(&self) -> Result<u32, Unknown> {
        Self::unknown()
    }

    fn groups(&self) -> Result<Vec<u32>, Unknown> {
        Self::unknown()
    }

    fn exe(&self) -> Result<Vec<u8>, Unknown> {
        Self::unknown()
    }
}

impl Rules {
    /// The rules that speak of moving files.
    pub fn moves(&self) -> impl Iterator<Item = (&Rule, &[MoveStep])> {
        self.moving().filter_map(|rule| Some((rule, rule.effects.moves.as_deref()?)))
    }

    /// The rule that says how a file is moved, and its steps, of which there is none if it stays; `None` where no rule speaks of it. Only rules
    /// that speak of moving are asked: the first one that matches, or with `match = "all"` the last.
    ///
    /// # Errors
    /// Where a rule cannot be evaluated: then the file is to stay.
    pub fn moves_of(&self, file: &dyn FileFacts) -> Result<Option<(&Rule, &[MoveStep])>, Failed> {
        let mut found = None;
        let matched = self.matched_moves(file.path());
        if matched.is_empty() {
            return Ok(None);
        }
        let asked = Asked::new(file, &NoCaller, Use::LOOK, self.programs());
        for index in matched {
            let (rule, condition) = self.with_condition(index);
            let Some(steps) = rule.effects.moves.as_deref() else { continue };
            let matches = asked.matches(index, &rule.matchers, condition);
            if matches.map_err(|why| Failed { rule: index, why })? {
                found = Some((rule, steps));
                if self.mode() == MatchMode::First {
                    break;
                }
            }
        }
        Ok(found)
    }
}

impl Effects {
    /// Whether it says how files are moved, and nothing else.
    pub(crate) fn moves_alone(&self) -> bool {
        self.moves.is_some() && Self { moves: None, ..self.clone() } == Self::default()
    }
}

#[cfg(test)]
mod test {
    use super::*;

    const DAY: u64 = 24 * 60 * 60;

    fn step(by: TimeWord, after: Option<u64>, within: Option<u64>) -> MoveStep {
        let days = |days: u64| Duration::from_secs(days * DAY);
        let (to, from) = (vec!["/b".to_owned()], Vec::new());
        MoveStep { to, from, by, after: after.map(days), within: within.map(days), fuller_than: None }
    }

    #[test]
    fn an_age_is_counted_from_the_time_that_is_meant() {
        let day = |days: i64| days * 24 * 60 * 60;
        // Read ten days ago, changed thirty, and made a hundred.
        let times = FileTimes { access: day(90), modification: day(70), birth: Some(day(0)) };
        let now = day(100);
        for (by, after, within, is_due) in [
            (TimeWord::Access, Some(10), None, true),
            (TimeWord::Access, Some(11), None, false),
            (TimeWord::Modification, Some(30), None, true),
            (TimeWord::Modification, Some(31), None, false),
            (TimeWord::Birth, Some(100), None, true),
            (TimeWord::Birth, Some(101), None, false),
            (TimeWord::Access, None, Some(10), true),
            (TimeWord::Access, None, Some(9), false),
            (TimeWord::Modification, Some(20), Some(40), true),
            (TimeWord::Modification, Some(20), Some(29), false),
            (TimeWord::Access, None, None, true),
        ] {
            assert_eq!(step(by, after, within).is_due(&times, now), is_due, "{by:?} {after:?} {within:?}");
        }
    }

    #[test]
    fn what_was_changed_was_used_and_what_has_no_birth_is_never_due() {
        let changed = FileTimes { access: 0, modification: 1000, birth: None };
        let by_access = step(TimeWord::Access, Some(1), None);
        assert_eq!(by_access.time(&changed), Some(1000), "file systems that note no access");
        assert!(!step(TimeWord::Birth, None, None).is_due(&changed, 1 << 40));
        // From the future, and from so long ago that the age overflows.
        let odd = |modification| FileTimes { access: modification, modification, birth: None };
        assert!(!by_access.is_due(&odd(i64::MAX), 0) && by_access.is_due(&odd(i64::MIN), i64::MAX));
        assert!(step(TimeWord::Access, None, Some(0)).is_due(&odd(i64::MAX), 0));
    }
}
