//! Counts by file or by process, of which the busiest are kept.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::Hash;

use super::document::LoadCounts;

/// So many entries a table has at most, and so many by each measure are kept when it is full: what came once does not keep out what comes
/// again and again.
const ENTRIES_MAX: usize = 1024;
const ENTRIES_KEPT: usize = ENTRIES_MAX / 4;

/// What was asked, by who or what it was.
#[derive(Debug)]
pub(super) struct Table<K, W>(HashMap<K, (W, LoadCounts)>);

impl<K: Hash + Eq, W> Table<K, W> {
    /// Adds to an entry, which is new where it does not exist.
    pub(super) fn add(&mut self, key: K, who: impl FnOnce() -> W, counts: &LoadCounts) {
        if let Some((_, sum)) = self.0.get_mut(&key) {
            return sum.add(counts);
        }
        if self.0.len() >= ENTRIES_MAX {
            self.keep(ENTRIES_KEPT);
        }
        self.0.insert(key, (who(), *counts));
    }

    /// Keeps so many with the most requests, and so many with the most bytes.
    pub(super) fn keep(&mut self, most: usize) {
        let counts = || self.0.values().map(|(_, counts)| counts);
        let mut by_requests = Bar::of(counts().map(|counts| counts.requests).collect(), most);
        let mut by_bytes = Bar::of(counts().map(LoadCounts::bytes).collect(), most);
        self.0.retain(|_, (_, counts)| {
            // Both are asked, as both count whom they let pass.
            let (busy, large) = (by_requests.passes(counts.requests), by_bytes.passes(counts.bytes()));
            busy || large
        });
    }

    /// All entries.
    pub(super) fn into_entries(self) -> impl Iterator<Item = (K, W, LoadCounts)> {
        self.0.into_iter().map(|(key, (who, counts))| (key, who, counts))
    }
}

impl<K, W> Default for Table<K, W> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

/// What a value must reach to be among the highest.
#[derive(Debug)]
struct Bar {
    least: u64,
    /// So many may be equal to it.
    equal: usize,
}

impl Bar {
    fn of(mut values: Vec<u64>, most: usize) -> Self {
        if values.len() <= most {
            return Self { least: 0, equal: usize::MAX };
        }
        let (_, least, _) = values.select_nth_unstable_by_key(most, |value| Reverse(*value));
        let least = *least;
        let above = values.iter().filter(|value| **value > least).count();
        Self { least, equal: most.saturating_sub(above) }
    }

    fn passes(&mut self, value: u64) -> bool {
        let is_equal = value == self.least && self.equal > 0;
        if is_equal {
            self.equal -= 1;
        }
        value > 0 && (is_equal || value > self.least)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn counts(requests: u64, read_bytes: u64) -> LoadCounts {
        LoadCounts { requests, read_bytes, ..LoadCounts::default() }
    }

    fn left(table: Table<u32, ()>) -> Vec<(u32, u64)> {
        let mut left: Vec<_> = table.into_entries().map(|(key, (), counts)| (key, counts.requests)).collect();
        left.sort_unstable();
        left
    }

    #[test]
    fn the_busiest_by_either_measure_are_kept() {
        let mut table = Table::default();
        for (key, requests, bytes) in [(1, 5, 0), (2, 9, 0), (3, 1, 900), (4, 5, 10), (5, 1, 0), (6, 7, 5)] {
            table.add(key, || (), &counts(requests, bytes));
        }
        table.add(1, || unreachable!("it is there"), &counts(1, 0));
        table.keep(2);
        assert_eq!(left(table), [(2, 9), (3, 1), (4, 5), (6, 7)]);
    }

    #[test]
    fn of_equals_as_many_are_kept_as_there_is_room_for() {
        let mut table = Table::default();
        for key in 0..10 {
            table.add(key, || (), &counts(1, 0));
        }
        table.keep(20);
        assert_eq!(table.0.len(), 10);
        table.keep(3);
        assert_eq!(table.0.len(), 3);
        table.keep(0);
        assert!(table.0.is_empty());
    }

    /// As when somebody looks for a file among a million: each is seen once, and one is read all the time.
    #[test]
    fn what_comes_again_and_again_is_found_among_many_that_come_once() {
        let mut table = Table::default();
        for key in 1..100_000 {
            table.add(key, || (), &counts(1, 0));
            if key % 10 == 0 {
                table.add(0, || (), &counts(1, 0));
            }
        }
        assert!(table.0.len() <= ENTRIES_MAX);
        table.keep(1);
        assert_eq!(left(table), [(0, 9_999)]);
    }
}
