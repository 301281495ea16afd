//! The moment in which a file that was copied to another branch gets its name there and loses it where it was.
//!
//! In between the name means two inodes, of which the mount shows one file. So whoever looks that name up waits for the end of the moment, notes before
//! how many there were, and looks again where there was another one by the time that it has a node, or has found nothing. And whoever removes a
//! file's name keeps such a moment from coming to it: it would remove the name on one branch only. Names that are moved and made need not, because they
//! hold the order of the merge.
//!
//! Other names are not touched by it: a disk that is slow keeps only those waiting who ask for the file that goes there. Where the disk of a
//! moment is set aside, nobody waits for that file either: nobody knows then where it will be, so its name gives EIO until the disk has answered.
//!
//! Lock order: that of the merge, then a name of these.

use std::ffi::CStr;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use shuntfs::{Errno, NodeId, Result};

use crate::branch::{own_number, waits};

/// How long a move waits for the removal of its file's name. One that takes longer is on a disk that hangs, and others wait behind the move.
const PATIENCE: Duration = Duration::from_secs(1);

/// The moments of one merge.
#[derive(Debug, Default)]
pub(crate) struct Switching {
    names: Mutex<Names>,
    /// A moment has ended, or a removal.
    ended: Condvar,
    /// How many moments are under way.
    under_way: AtomicU32,
    /// How often one has begun or ended.
    count: AtomicU64,
    hashes: RandomState,
}

/// Names by their hashes. Two that have the same one are taken for one.
#[derive(Debug, Default)]
struct Names {
    switching: Vec<Moment>,
    removed: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Moment {
    name: u64,
    /// What its thread has under way.
    flight: u64,
    /// Nobody waits for it any more.
    is_left: bool,
}

/// Such a moment.
#[derive(Debug)]
pub(crate) struct Switch<'s> {
    switching: &'s Switching,
    name: u64,
}

/// A removal of a name.
#[derive(Debug)]
pub(crate) struct Removing<'s> {
    switching: &'s Switching,
    name: u64,
}

impl Switching {
    /// Keeps the next moment from coming to a name, for whoever removes it.
    ///
    /// # Errors
    /// EIO where one does not end.
    pub(crate) fn hold(&self, folder: NodeId, name: &CStr) -> Result<Removing<'_>> {
        let name = self.hashes.hash_one((folder.get(), name));
        let mut names = self.names.lock();
        self.settled(&mut names, name)?;
        names.removed.push(name);
        Ok(Removing { switching: self, name })
    }

    /// What [`Switching::has_passed`] is told later; waits for the end of a moment of this name.
    ///
    /// # Errors
    /// EIO where one does not end.
    pub(crate) fn now(&self, folder: NodeId, name: &CStr) -> Result<u64> {
        // In this order: one that begins in between changes the number.
        let count = self.count.load(Ordering::SeqCst);
        if self.under_way.load(Ordering::SeqCst) == 0 {
            return Ok(count);
        }
        let name = self.hashes.hash_one((folder.get(), name));
        let mut names = self.names.lock();
        self.settled(&mut names, name)?;
        Ok(self.count.load(Ordering::SeqCst))
    }

    /// Whether there may have been a moment since then, or is one.
    pub(crate) fn has_passed(&self, then: u64) -> bool {
        self.count.load(Ordering::SeqCst) != then
    }

    /// Begins such a moment, which ends when this is dropped. `None` where a removal of the name takes too long, or a moment of it does not end.
    pub(super) fn begin(&self, folder: NodeId, name: &CStr) -> Option<Switch<'_>> {
        let name = self.hashes.hash_one((folder.get(), name));
        let mut names = self.names.lock();
        let is_removed = |names: &mut Names| names.removed.contains(&name);
        if is_removed(&mut names) {
            let until = Instant::now() + PATIENCE;
            waits(|| self.ended.wait_while_until(&mut names, is_removed, until));
        }
        if is_removed(&mut names) || names.moment(name).is_some() {
            return None;
        }
        names.switching.push(Moment { name, flight: own_number(), is_left: false });
        self.under_way.fetch_add(1, Ordering::SeqCst);
        self.count.fetch_add(1, Ordering::SeqCst);
        Some(Switch { switching: self, name })
    }

    /// Has nobody wait for moments that are stuck. Whether there was one.
    pub(super) fn leave_behind(&self, is_stuck: impl Fn(u64) -> bool) -> bool {
        if self.under_way.load(Ordering::SeqCst) == 0 {
            return false;
        }
        let mut names = self.names.lock();
        let mut is_left = false;
        for moment in names.switching.iter_mut().filter(|moment| !moment.is_left) {
            moment.is_left = moment.flight != 0 && is_stuck(moment.flight);
            is_left |= moment.is_left;
        }
        self.ended.notify_all();
        is_left
    }

    /// Waits for the end of a moment of this name.
    fn settled(&self, names: &mut MutexGuard<'_, Names>, name: u64) -> Result<()> {
        let must_wait = |names: &mut Names| names.moment(name).is_some_and(|moment| !moment.is_left);
        if must_wait(names) {
            // For another one's disk.
            waits(|| self.ended.wait_while(names, must_wait));
        }
        if names.moment(name).is_some() { Err(Errno::IO) } else { Ok(()) }
    }
}

impl Names {
    fn moment(&self, name: u64) -> Option<&Moment> {
        self.switching.iter().find(|moment| moment.name == name)
    }
}

impl Drop for Switch<'_> {
    fn drop(&mut self) {
        let mut names = self.switching.names.lock();
        names.switching.retain(|moment| moment.name != self.name);
        self.switching.count.fetch_add(1, Ordering::SeqCst);
        self.switching.under_way.fetch_sub(1, Ordering::SeqCst);
        self.switching.ended.notify_all();
    }
}

impl Drop for Removing<'_> {
    fn drop(&mut self) {
        let mut names = self.switching.names.lock();
        if let Some(at) = names.removed.iter().position(|name| *name == self.name) {
            names.removed.swap_remove(at);
        }
        self.switching.ended.notify_all();
    }
}

#[cfg(test)]
mod test {
    use std::sync::mpsc;

    use super::*;
    use crate::branch::Flights;

    const TOP: NodeId = NodeId::ROOT;

    #[test]
    fn who_looked_before_or_within_looks_again() {
        let switching = Switching::default();
        let before = switching.now(TOP, c"a").unwrap();
        assert!(!switching.has_passed(before));
        let switch = switching.begin(TOP, c"a").unwrap();
        assert!(switching.has_passed(before));
        std::thread::scope(|scope| {
            let within = scope.spawn(|| switching.now(TOP, c"a").unwrap());
            drop(switch);
            let after = within.join().unwrap();
            assert!(!switching.has_passed(after) && switching.has_passed(before));
        });
    }

    /// A disk that took its time over one file kept every lookup of the pool waiting.
    #[test]
    fn other_names_wait_for_nobody() {
        let switching = Switching::default();
        let switch = switching.begin(TOP, c"a").unwrap();
        let other = switching.now(TOP, c"b").unwrap();
        assert!(!switching.has_passed(other));
        drop(switching.hold(TOP, c"b").unwrap());
        let inside = NodeId::new(7).unwrap();
        let second = switching.begin(inside, c"a").unwrap();
        assert!(switching.has_passed(other), "it may be of any name");
        drop((switch, second));
        assert!(switching.under_way.load(Ordering::SeqCst) == 0 && switching.names.lock().removed.is_empty());
    }

    #[test]
    fn a_name_that_is_being_removed_is_not_moved() {
        let switching = Switching::default();
        let (first, second) = (switching.hold(TOP, c"a").unwrap(), switching.hold(TOP, c"a").unwrap());
        drop(first);
        assert!(switching.begin(TOP, c"a").is_none(), "there is another one");
        drop(second);
        let switch = switching.begin(TOP, c"a").unwrap();
        let (told, tells) = mpsc::channel();
        std::thread::scope(|scope| {
            let switching = &switching;
            scope.spawn(move || told.send(switching.hold(TOP, c"a").map(drop)).unwrap());
            assert!(tells.recv_timeout(Duration::from_millis(20)).is_err());
            drop(switch);
            assert_eq!(tells.recv_timeout(Duration::from_secs(20)), Ok(Ok(())));
        });
    }

    #[test]
    fn a_name_whose_moment_does_not_end_fails_until_it_has() {
        let (switching, flights) = (Switching::default(), Flights::new());
        let _stuck = flights.begin();
        let own = own_number();
        let switch = switching.begin(TOP, c"a").unwrap();
        assert!(!switching.leave_behind(|flight| flight != own));
        let (told, tells) = mpsc::channel();
        std::thread::scope(|scope| {
            let switching = &switching;
            scope.spawn(move || told.send(switching.now(TOP, c"a")).unwrap());
            assert!(tells.recv_timeout(Duration::from_millis(20)).is_err());
            assert!(switching.leave_behind(|flight| flight == own));
            assert_eq!(tells.recv_timeout(Duration::from_secs(20)), Ok(Err(Errno::IO)));
        });
        assert_eq!(switching.hold(TOP, c"a").err(), Some(Errno::IO));
        assert!(switching.begin(TOP, c"a").is_none() && switching.now(TOP, c"b").is_ok());
        assert!(!switching.leave_behind(|_| true), "it was left already");
        drop(switch);
        assert!(switching.now(TOP, c"a").is_ok() && switching.begin(TOP, c"a").is_some());
    }
}
