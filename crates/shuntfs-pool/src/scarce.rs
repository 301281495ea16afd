//! How many descriptors are left.
//!
//! The kernel gives the lowest number that is free, so the number of a descriptor that was just opened tells how full the table is. The last ones are
//! left for calls that close theirs again: names can be found, moved and removed whatever is open. Of these, half are left where something is held
//! because it loses its name.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use shuntfs_sys::limits;

/// So many are left at most for each use.
const SHARE_MAX: u64 = 32;
/// And this part of all.
const SHARE: u64 = 32;

/// What is done with a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Room {
    /// It is held while something without a name is in use.
    Holds = 1,
    /// It stays open for a caller.
    Stays = 2,
}

/// What is known of that.
#[derive(Debug)]
pub(crate) struct Scarce {
    /// Lower numbers need no look at the limit, which may be lowered by a quarter.
    from: u64,
    /// The last that was looked at was near the end.
    is_near: AtomicBool,
}

impl Scarce {
    pub(crate) fn new() -> Self {
        Self { from: limits::nofile() / 2, is_near: AtomicBool::new(false) }
    }

    /// Whether a descriptor that was just opened is one of the last, which are not for this.
    pub(crate) fn is_last(&self, opened: &impl AsFd, room: Room) -> bool {
        let number = u64::try_from(opened.as_fd().as_raw_fd()).unwrap_or(0);
        if number < self.from && !self.is_near() {
            return false;
        }
        let limit = limits::nofile();
        let share = (limit / SHARE).clamp(1, SHARE_MAX);
        let is_within = |shares: u64| number.saturating_add(shares * share) >= limit;
        self.is_near.store(is_within(room as u64 + 1), Ordering::Relaxed);
        is_within(room as u64)
    }

    /// Whether there may be few left.
    pub(crate) fn is_near(&self) -> bool {
        self.is_near.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn numbers_below_half_the_limit_need_no_look() {
        let scarce = Scarce { from: u64::MAX, is_near: AtomicBool::new(false) };
        let file = shuntfs_sys::open_folder(std::path::Path::new("/")).unwrap();
        assert!(!scarce.is_last(&file, Room::Stays) && !scarce.is_near());
        let scarce = Scarce::new();
        let far = std::fs::File::open("/").unwrap();
        assert!(!scarce.is_last(&far, Room::Stays) && !scarce.is_near());
    }
}
