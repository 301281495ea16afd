//! The moment in which a file that was copied to another branch gets its name there and loses it where it was.
//!
//! In between the name means two inodes, of which the mount shows one file. So whoever looks a name up notes before how many such moments there
//! were, and looks again where there was another one by the time that it has a node, or has found nothing. And whoever removes a file's name holds such moments
//! up: it would remove the name on one branch only. Names that are moved and made need not, because they hold the order of the merge.
//!
//! Lock order: that of the merge, then this.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// How long a move waits for removals. One that takes longer is on a disk that hangs, and further ones would wait behind the move.
const PATIENCE: Duration = Duration::from_secs(5);

/// The moments of one merge.
#[derive(Debug, Default)]
pub(crate) struct Switching {
    names: RwLock<()>,
    /// Twice the number of moments, and one more within one.
    count: AtomicU64,
}

/// Such a moment.
#[derive(Debug)]
pub(crate) struct Switch<'s> {
    switching: &'s Switching,
    _names: RwLockWriteGuard<'s, ()>,
}

impl Switching {
    /// Keeps the next moment from coming, for whoever removes a file's name.
    pub(crate) fn hold(&self) -> RwLockReadGuard<'_, ()> {
        self.names.read()
    }

    /// What [`Switching::has_passed`] is told later; waits for the end of a moment.
    pub(crate) fn now(&self) -> u64 {
        loop {
            let count = self.count.load(Ordering::SeqCst);
            if count.is_multiple_of(2) {
                return count;
            }
            drop(self.names.read());
        }
    }

    /// Whether there was a moment since then, or is one.
    pub(crate) fn has_passed(&self, then: u64) -> bool {
        self.count.load(Ordering::SeqCst) != then
    }

    /// Begins such a moment, which ends when this is dropped. `None` where a removal takes too long.
    pub(super) fn begin(&self) -> Option<Switch<'_>> {
        let names = self.names.try_write_for(PATIENCE)?;
        self.count.fetch_add(1, Ordering::SeqCst);
        Some(Switch { switching: self, _names: names })
    }
}

impl Drop for Switch<'_> {
    fn drop(&mut self) {
        self.switching.count.fetch_add(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn who_looked_before_or_within_looks_again() {
        let switching = Switching::default();
        let before = switching.now();
        assert!(!switching.has_passed(before));
        let switch = switching.begin().unwrap();
        assert!(switching.has_passed(before));
        std::thread::scope(|scope| {
            let within = scope.spawn(|| switching.now());
            drop(switch);
            let after = within.join().unwrap();
            assert!(!switching.has_passed(after) && switching.has_passed(before));
        });
    }
}
