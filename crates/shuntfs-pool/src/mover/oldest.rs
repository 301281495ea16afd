//! The files that go first: those that were not used for the longest.

use std::collections::BinaryHeap;

/// How many files are kept at most.
pub(super) const FILES_MAX: usize = 500_000;
/// How many bytes their paths have at most, together.
pub(super) const BYTES_MAX: usize = 64 << 20;

/// A file that is due, in the order in which they go.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Candidate {
    /// The time that its step goes by, in seconds since 1970.
    pub(super) time: i64,
    /// Its path below the branch.
    pub(super) path: Vec<u8>,
    /// What it takes, in bytes.
    pub(super) bytes: u64,
    /// How full its branch must be, if it goes to make room there.
    pub(super) fuller_than: Option<u8>,
}

/// The first files of those that were added.
#[derive(Debug)]
pub(super) struct Oldest {
    /// The newest on top.
    kept: BinaryHeap<Candidate>,
    /// Of their paths.
    bytes: usize,
    has_more: bool,
    /// Only what comes after this one is of interest.
    after: Option<Candidate>,
    files_max: usize,
    bytes_max: usize,
}

impl Oldest {
    pub(super) fn after(after: Option<Candidate>) -> Self {
        Self::bounded(after, FILES_MAX, BYTES_MAX)
    }

    fn bounded(after: Option<Candidate>, files_max: usize, bytes_max: usize) -> Self {
        Self { kept: BinaryHeap::new(), bytes: 0, has_more: false, after, files_max, bytes_max }
    }

    /// Keeps a file, and gives up the newest one where there are too many.
    pub(super) fn add(&mut self, file: Candidate) {
        let is_done =
            self.after.as_ref().is_some_and(|last| (file.time, &file.path) <= (last.time, &last.path));
        if is_done {
            return;
        }
        self.bytes += file.path.len();
        self.kept.push(file);
        // One is always kept, however long its path is, so that each search comes further.
        while self.kept.len() > 1 && (self.kept.len() > self.files_max || self.bytes > self.bytes_max) {
            let newest = self.kept.pop().expect("there is more than one");
            self.bytes -= newest.path.len();
            self.has_more = true;
        }
    }

    /// Those that were kept, the oldest first; and whether there are more behind them.
    pub(super) fn into_files(self) -> (Vec<Candidate>, bool) {
        (self.kept.into_sorted_vec(), self.has_more)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn file(time: i64, path: &str) -> Candidate {
        Candidate { time, path: path.into(), bytes: 1, fuller_than: None }
    }

    fn paths(oldest: Oldest) -> (Vec<String>, bool) {
        let (files, has_more) = oldest.into_files();
        (files.into_iter().map(|file| String::from_utf8(file.path).unwrap()).collect(), has_more)
    }

    #[test]
    fn the_oldest_go_first_and_all_get_their_turn() {
        let all: Vec<Candidate> =
            (0..100_i64).map(|number| file((number * 37) % 50, &format!("{number:02}"))).collect();
        let mut sorted = all.clone();
        sorted.sort();
        let (mut after, mut turns, mut gone) = (None, 0, Vec::new());
        loop {
            let mut oldest = Oldest::bounded(after.take(), 7, usize::MAX);
            all.iter().cloned().for_each(|file| oldest.add(file));
            let (files, has_more) = oldest.into_files();
            assert!(files.len() <= 7);
            after = files.last().cloned();
            gone.extend(files);
            turns += 1;
            if !has_more {
                break;
            }
        }
        assert_eq!((gone, turns), (sorted, 15));
    }

    #[test]
    fn long_paths_take_no_more_memory_than_is_allowed() {
        let mut oldest = Oldest::bounded(None, usize::MAX, 10);
        for (time, path) in [(3, "cccc"), (1, "aaaa"), (2, "bbbb")] {
            oldest.add(file(time, path));
        }
        assert_eq!(oldest.bytes, 8);
        assert_eq!(paths(oldest), (vec!["aaaa".to_owned(), "bbbb".to_owned()], true));
        // One that is longer by itself has its turn, too.
        let mut oldest = Oldest::bounded(None, usize::MAX, 3);
        oldest.add(file(1, "aaaa"));
        assert_eq!(paths(oldest), (vec!["aaaa".to_owned()], false));
    }
}
