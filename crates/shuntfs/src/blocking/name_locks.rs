//! Names that stay where they are while a call works with a path they are on.
//!
//! A call gets all that it needs at once, or waits, so none waits with a lock in hand. It waits for earlier calls that wait themselves,
//! too: a rename gets its turn in a busy folder. The earliest of those that wait waits for running calls alone, so there is always one that
//! goes on.

use parking_lot::{Condvar, Mutex};
use shuntfs_wire::Result;

/// The calls that use names, in the order in which they came.
#[derive(Debug)]
pub(super) struct NameLocks<K> {
    calls: Mutex<Calls<K>>,
    ended: Condvar,
}

/// What a call needs.
#[derive(Debug)]
pub(super) struct Names<K> {
    /// What is on its paths, to stay there.
    pub(super) keeps: Vec<K>,
    /// What it moves, removes or replaces.
    pub(super) changes: Vec<K>,
}

/// A call that may use its names, until this is dropped.
#[derive(Debug)]
pub(super) struct NameLock<'l, K: PartialEq> {
    locks: &'l NameLocks<K>,
    number: u64,
}

#[derive(Debug)]
struct Calls<K> {
    last: u64,
    all: Vec<Call<K>>,
}

#[derive(Debug)]
struct Call<K> {
    number: u64,
    runs: bool,
    names: Names<K>,
}

impl<K> Default for NameLocks<K> {
    fn default() -> Self {
        Self { calls: Mutex::new(Calls { last: 0, all: Vec::new() }), ended: Condvar::new() }
    }
}

impl<K: PartialEq> NameLocks<K> {
    /// Waits until the names that `find` finds are available. They may be other names after each wait.
    ///
    /// # Errors
    /// Those of `find`.
    pub(super) fn lock<T>(
        &self,
        mut find: impl FnMut() -> Result<(T, Names<K>)>,
    ) -> Result<(T, NameLock<'_, K>)> {
        let lock = NameLock { locks: self, number: self.calls.lock().begin() };
        let mut calls = self.calls.lock();
        loop {
            let (found, names) = find()?;
            if calls.may_run(lock.number, names) {
                return Ok((found, lock));
            }
            self.ended.wait(&mut calls);
        }
    }

    /// Whether no call uses a name.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        self.calls.lock().all.is_empty()
    }
}

impl<K: PartialEq> Drop for NameLock<'_, K> {
    fn drop(&mut self) {
        let mut calls = self.locks.calls.lock();
        calls.all.retain(|call| call.number != self.number);
        if calls.all.iter().any(|call| !call.runs) {
            self.locks.ended.notify_all();
        }
    }
}

impl<K: PartialEq> Calls<K> {
    fn begin(&mut self) -> u64 {
        self.last += 1;
        let names = Names { keeps: Vec::new(), changes: Vec::new() };
        self.all.push(Call { number: self.last, runs: false, names });
        self.last
    }

    /// Whether a call with these names may run; if not, later calls wait for it.
    fn may_run(&mut self, number: u64, names: Names<K>) -> bool {
        let is_before = |other: &Call<K>| other.number != number && (other.runs || other.number < number);
        let runs = !self.all.iter().any(|other| is_before(other) && other.names.contradict(&names));
        if let Some(call) = self.all.iter_mut().find(|call| call.number == number) {
            (call.runs, call.names) = (runs, names);
        }
        runs
    }
}

impl<K: PartialEq> Names<K> {
    fn contradict(&self, other: &Self) -> bool {
        let uses = |names: &Self, key| names.keeps.contains(key) || names.changes.contains(key);
        self.changes.iter().any(|key| uses(other, key)) || other.changes.iter().any(|key| uses(self, key))
    }
}

#[cfg(test)]
mod test {
    use std::thread;
    use std::time::Duration;

    use shuntfs_wire::Errno;

    use super::*;

    fn names(keeps: &str, changes: &str) -> Names<char> {
        Names { keeps: keeps.chars().collect(), changes: changes.chars().collect() }
    }

    fn take<'l>(locks: &'l NameLocks<char>, keeps: &str, changes: &str) -> NameLock<'l, char> {
        locks.lock(|| Ok(((), names(keeps, changes)))).expect("finds").1
    }

    fn until_they_wait(locks: &NameLocks<char>, count: usize) {
        while locks.calls.lock().all.iter().filter(|call| !call.runs).count() < count {
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn names_are_used_by_many_or_changed_by_one() {
        let table = [
            (("ab", ""), ("ab", ""), false),
            (("ab", ""), ("a", "b"), true),
            (("a", "b"), ("ab", ""), true),
            (("a", "b"), ("a", "b"), true),
            (("a", "b"), ("a", "c"), false),
            (("", ""), ("", "abc"), false),
        ];
        for ((keeps, changes), other, expected) in table {
            let contradict = names(keeps, changes).contradict(&names(other.0, other.1));
            assert_eq!(contradict, expected, "{keeps} {changes}, {other:?}");
        }
    }

    /// Otherwise a rename would wait for as long as others look at what it renames.
    #[test]
    fn who_comes_later_waits_for_who_waits() {
        let locks = NameLocks::default();
        let (order, first) = (Mutex::new(Vec::new()), take(&locks, "a", ""));
        thread::scope(|scope| {
            scope.spawn(|| {
                let _lock = take(&locks, "", "a");
                order.lock().push("changes");
            });
            until_they_wait(&locks, 1);
            scope.spawn(|| {
                let _lock = take(&locks, "a", "");
                order.lock().push("keeps");
            });
            until_they_wait(&locks, 2);
            drop(take(&locks, "b", "c"));
            drop(first);
        });
        assert_eq!(*order.lock(), ["changes", "keeps"]);
        assert!(locks.calls.lock().all.is_empty());
    }

    #[test]
    fn names_are_found_anew_after_a_wait() {
        let locks = NameLocks::default();
        let (place, first) = (Mutex::new("a"), take(&locks, "", "a"));
        thread::scope(|scope| {
            let found = scope.spawn(|| {
                let find = || {
                    let place: &'static str = *place.lock();
                    Ok((place, names(place, "")))
                };
                locks.lock(find).map(|(found, _)| found)
            });
            until_they_wait(&locks, 1);
            *place.lock() = "b";
            drop(first);
            assert_eq!(found.join().expect("ends"), Ok("b"));
        });
        assert_eq!(locks.lock(|| Err::<((), _), _>(Errno::STALE)).err(), Some(Errno::STALE));
        assert!(locks.calls.lock().all.is_empty());
    }
}
