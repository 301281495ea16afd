//! Where a listing has been, by which it goes back to its cookies.
//!
//! A cookie is the number of records before it. What is removed later is still counted, so the names that are left do not tell where a
//! cookie was. The position of each of the last records is therefore kept (its branch, and the lower cookie behind it), and going back to
//! one of them is exact, whatever was removed or added since. That is needed: if a caller's buffer is smaller than a reply, as with musl, the
//! kernel goes back within the reply at each call, and `rm -r` has removed by then what it was given.
//!
//! Of all records, only one in so many is marked, which bounds the memory. Going back further than the positions that are kept leads to the mark
//! before, which is exact, and from there on by counting. That is exact if nothing was removed or added between the two; otherwise fewer names
//! than there are between two marks are left out or repeated.
//!
//! "Exact" means as exact as the lower file system's cookies: they stay good when names are removed on ext4, XFS, Btrfs, and tmpfs since
//! Linux 6.6.

use std::collections::VecDeque;

/// One record in so many is marked: ten million names cost 2.5 MB.
const MARK_EVERY: usize = 32;

/// The positions of so many last records are kept: at most 32 KiB for each open folder, as much as a batch of one branch. The kernel goes back
/// within its last reply, where a record takes at least 32 bytes. If it does so because the caller's buffer is small, that reply is one
/// page: at most 128 records, or 2048 where a page has 64 KiB. After a signal it may be larger: 32 KiB with glibc, 1024 records.
const RECENT_MAX: usize = 4096;

/// So many of them are kept for a server that comes after this one, which goes on within the last reply.
const SURVIVING_MAX: usize = 2048;

/// A mark of which only a dead server knew where it is.
const UNKNOWN: u64 = u64::MAX;

/// Where a listing has been.
#[derive(Clone, Debug)]
pub(super) struct Trail {
    /// How many records were listed.
    listed: usize,
    /// Where the reader stood behind each of these that is marked.
    marks: Vec<u64>,
    /// Where it stood behind each of the last records, whether marked or not.
    recent: VecDeque<u64>,
    /// How many records were listed when each reader that was read began; the last of them is the one that is read.
    starts: Vec<usize>,
}

/// Where a listing can go back to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stop {
    /// How many records were listed there.
    listed: usize,
    /// Which reader the last of them came from, and where that stood behind it.
    pub(super) reader: usize,
    pub(super) lower: u64,
    /// How many of the recent positions are before it.
    kept: usize,
}

impl Trail {
    pub(super) fn new() -> Self {
        Self { listed: 0, marks: Vec::new(), recent: VecDeque::new(), starts: vec![0] }
    }

    /// What another server needs to go on: the branches that are read, where each began, and where the last records were.
    pub(super) fn words(&self, branches: &[u16]) -> Vec<u64> {
        let recent = self.recent.iter().skip(self.recent.len().saturating_sub(SURVIVING_MAX)).copied();
        let counts = [self.listed, branches.len(), self.starts.len()].map(word);
        let (branches, starts) =
            (branches.iter().copied().map(u64::from), self.starts.iter().copied().map(word));
        counts.into_iter().chain(branches).chain(starts).chain(recent).collect()
    }

    /// What a dead server has left, if it read these branches.
    pub(super) fn of_words(words: &[u64], branches: &[u16]) -> Option<Self> {
        let (counts, rest) = words.split_at_checked(3)?;
        let count = |place: usize| counts.get(place).and_then(|word| usize::try_from(*word).ok());
        let (read, rest) = rest.split_at_checked(count(1)?)?;
        let (starts, recent) = rest.split_at_checked(count(2)?)?;
        let listed = count(0)?;
        let starts = starts.iter().map(|start| usize::try_from(*start).ok()).collect::<Option<Vec<_>>>()?;
        let is_whole = read.iter().copied().eq(branches.iter().copied().map(u64::from))
            && starts.first() == Some(&0)
            && starts.is_sorted()
            && starts.last().is_some_and(|start| *start <= listed)
            && starts.len() <= branches.len() + 1
            && recent.len() <= listed.min(RECENT_MAX);
        let marks = || vec![UNKNOWN; listed / MARK_EVERY];
        is_whole.then(|| Self { listed, marks: marks(), recent: recent.iter().copied().collect(), starts })
    }

    /// How many records were listed.
    pub(super) fn listed(&self) -> usize {
        self.listed
    }

    /// Which reader is read.
    pub(super) fn at(&self) -> usize {
        self.starts.len() - 1
    }

    /// A record was listed, behind which the reader stands here.
    pub(super) fn add(&mut self, position: u64) {
        self.listed += 1;
        if self.listed.is_multiple_of(MARK_EVERY) {
            self.marks.push(position);
        }
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(position);
    }

    /// The next reader is read.
    pub(super) fn next_reader(&mut self) {
        self.starts.push(self.listed);
    }

    /// Whether there is an exact way to where so many records were listed.
    pub(super) fn leads_to(&self, to: usize) -> bool {
        to <= self.listed && self.kept(to) > 0
    }

    /// Where to go to get to where so many records were listed, no more than now: there, or to the mark before.
    pub(super) fn stop(&self, to: usize) -> Stop {
        let kept = self.kept(to);
        let (listed, lower) = match self.recent.range(..kept).next_back() {
            Some(lower) => (to, *lower),
            None => {
                let marks = to / MARK_EVERY;
                if self.marks[..marks].last() == Some(&UNKNOWN) {
                    // Where that reader began.
                    let reader = self.starts.partition_point(|start| *start <= to).saturating_sub(1);
                    return Stop { listed: self.starts[reader], reader, lower: 0, kept };
                }
                (marks * MARK_EVERY, self.marks[..marks].last().copied().unwrap_or(0))
            }
        };
        // The reader that the last of them came from.
        let reader = self.starts.partition_point(|start| *start < listed).saturating_sub(1);
        Stop { listed, reader, lower, kept }
    }

    /// It is there.
    pub(super) fn go_back(&mut self, stop: Stop) {
        self.listed = stop.listed;
        self.starts.truncate(stop.reader + 1);
        self.marks.truncate(stop.listed / MARK_EVERY);
        self.recent.truncate(stop.kept);
    }

    /// How many of the recent positions are at most as far.
    fn kept(&self, to: usize) -> usize {
        self.recent.len().saturating_sub(self.listed - to)
    }
}

fn word(count: usize) -> u64 {
    u64::try_from(count).expect("64 bits fit")
}

#[cfg(test)]
mod test {
    use super::*;

    /// So many records of each reader; those of the first end at 1, 2 and so on, those of the second at 10 001 and so on.
    fn trail(counts: &[u64]) -> Trail {
        let mut trail = Trail::new();
        for (reader, count) in (0..).zip(counts) {
            if reader > 0 {
                trail.next_reader();
            }
            (1..=*count).for_each(|number| trail.add(reader * 10_000 + number));
        }
        trail
    }

    #[test]
    fn what_was_listed_last_is_found_exactly() {
        let mut trail = trail(&[3, 0, 5]);
        assert_eq!((trail.listed(), trail.at()), (8, 2));
        let stops =
            [8, 4, 3, 1, 0].map(|to| trail.stop(to)).map(|stop| (stop.listed, stop.reader, stop.lower));
        assert_eq!(stops, [(8, 2, 20_005), (4, 2, 20_001), (3, 0, 3), (1, 0, 1), (0, 0, 0)]);
        assert_eq!([9, 8, 1, 0].map(|to| trail.leads_to(to)), [false, true, true, false]);
        trail.go_back(trail.stop(3));
        assert_eq!((trail.listed(), trail.at(), trail.recent.len()), (3, 0, 3));
        trail.add(4);
        assert_eq!(trail.stop(4).lower, 4);
    }

    #[test]
    fn another_server_goes_on_exactly_within_the_last_records() {
        let before = trail(&[3, 0, 5000]);
        let words = before.words(&[7, 0, 4]);
        let mut after = Trail::of_words(&words, &[7, 0, 4]).expect("is whole");
        assert_eq!((after.listed(), after.at()), (5003, 2));
        for to in [5003, 5000, 5003 - 2047] {
            assert!(after.leads_to(to));
            let (one, other) = (before.stop(to), after.stop(to));
            assert_eq!(
                (one.listed, one.reader, one.lower),
                (other.listed, other.reader, other.lower),
                "{to}"
            );
        }
        // Further back it is counted from where the branch began.
        assert!(!after.leads_to(2000));
        for (to, listed, reader) in [(2000, 3, 2), (40, 3, 2), (3, 0, 0)] {
            let stop = after.stop(to);
            assert_eq!((stop.listed, stop.reader, stop.lower), (listed, reader, 0), "{to}");
        }
        after.go_back(after.stop(2000));
        after.add(20_001);
        assert_eq!((after.listed(), after.stop(4).lower), (4, 20_001));
        // Of other branches, or not whole.
        assert!(Trail::of_words(&words, &[0, 7, 4]).is_none() && Trail::of_words(&words, &[7, 0]).is_none());
        for (place, word) in [(0, 3), (1, 4), (2, 1 << 40), (6, 1), (8, 2)] {
            let mut wrong = words.clone();
            wrong[place] = word;
            assert!(Trail::of_words(&wrong, &[7, 0, 4]).is_none(), "{place}");
        }
        assert!(Trail::of_words(&words[..2], &[7, 0, 4]).is_none());
    }

    #[test]
    fn marks_lead_to_what_was_listed_long_ago() {
        let mut trail = trail(&[100, 5000]);
        assert_eq!((trail.recent.len(), trail.marks.len()), (RECENT_MAX, 159));
        assert!(!trail.leads_to(70) && trail.leads_to(1005) && !trail.leads_to(1004));
        assert_eq!(trail.stop(1005), Stop { listed: 1005, reader: 1, lower: 10_905, kept: 1 });
        assert_eq!(trail.stop(1004), Stop { listed: 992, reader: 1, lower: 10_892, kept: 0 });
        let stop = trail.stop(70);
        assert_eq!(stop, Stop { listed: 64, reader: 0, lower: 64, kept: 0 });
        trail.go_back(stop);
        assert_eq!((trail.listed(), trail.at(), trail.marks.len(), trail.recent.len()), (64, 0, 2, 0));
        assert_eq!(trail.stop(64).lower, 64);
    }
}
