//! On which branch a file was found by its name, for names that the kernel has forgotten.
//!
//! Where branches change through the mount alone, a name that was found on one branch is on none before it: nothing else gets the
//! name while it is there. So where a hint leads to a file, that is what is shown, and two lower calls will do; where it leads to
//! nothing, all branches are asked. The hint outlives the name, though, and what comes to it on several branches at once (moved there, or made by
//! a policy that picks all) may be on an earlier one, too: it gives the hint up. Hints are an optimisation: a table of one size, in
//! which a name takes the place of another.
//!
//! When branches change, all hints are given up: those of before have another round in their hash, also where they are noted
//! later by who had looked before.

use std::ffi::CStr;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use shuntfs::NodeId;

/// How many names there is room for: 512 KiB.
const SLOTS: usize = 1 << 16;

/// The lower bits of a slot are a branch's number and one more; the others are of the name's hash.
const BRANCH_BITS: u32 = 16;
const BRANCH: u64 = (1 << BRANCH_BITS) - 1;

/// The table, made when the first name comes.
#[derive(Debug)]
pub(crate) struct Hints {
    slots: OnceLock<Box<[AtomicU64]>>,
    /// How often all were given up.
    round: AtomicU64,
    hashes: RandomState,
}

impl Default for Hints {
    fn default() -> Self {
        Self { slots: OnceLock::new(), round: AtomicU64::new(0), hashes: RandomState::new() }
    }
}

impl Hints {
    /// What whoever looks for a name asks before they look, to note where they found it.
    pub(super) fn round(&self) -> u64 {
        self.round.load(Ordering::SeqCst)
    }

    /// The branch on which a name was found the last time.
    pub(super) fn of(&self, folder: NodeId, name: &CStr) -> Option<u16> {
        let (index, tag) = self.place(folder, name, self.round());
        let held = self.slots.get()?[index].load(Ordering::Relaxed);
        let number = (held & BRANCH).checked_sub(1).filter(|_| held & !BRANCH == tag)?;
        u16::try_from(number).ok()
    }

    /// Notes where a name was found by who looked in this round.
    pub(super) fn note(&self, folder: NodeId, name: &CStr, branch: u16, round: u64) {
        let slots = self.slots.get_or_init(|| (0..SLOTS).map(|_| AtomicU64::new(0)).collect());
        let (index, tag) = self.place(folder, name, round);
        slots[index].store(tag | (u64::from(branch) + 1), Ordering::Relaxed);
    }

    /// Gives up what was noted of a name: from now on it may be on further branches.
    pub(super) fn forget(&self, folder: NodeId, name: &CStr) {
        let (index, tag) = self.place(folder, name, self.round());
        let Some(slots) = self.slots.get() else { return };
        if slots[index].load(Ordering::Relaxed) & !BRANCH == tag {
            slots[index].store(0, Ordering::Relaxed);
        }
    }

    /// Forgets everything, and what is noted later by who looked before.
    pub(super) fn clear(&self) {
        self.round.fetch_add(1, Ordering::SeqCst);
    }

    /// The slot of a name, and what tells it from others that have the same.
    fn place(&self, folder: NodeId, name: &CStr, round: u64) -> (usize, u64) {
        let hash = self.hashes.hash_one((folder.get(), name, round));
        let index = usize::try_from(hash & BRANCH).expect("16 bits fit");
        (index, hash & !BRANCH)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_name_is_found_where_it_was_noted_and_by_no_other() {
        let (hints, folder) = (Hints::default(), NodeId::new(7).unwrap());
        assert_eq!(hints.of(folder, c"a"), None);
        hints.note(folder, c"a", 0, hints.round());
        hints.note(folder, c"b", 255, hints.round());
        assert_eq!((hints.of(folder, c"a"), hints.of(folder, c"b")), (Some(0), Some(255)));
        assert_eq!(hints.of(NodeId::ROOT, c"a"), None);
        hints.note(folder, c"a", 9, hints.round());
        assert_eq!(hints.of(folder, c"a"), Some(9));
        hints.forget(folder, c"a");
        hints.forget(folder, c"never noted");
        assert_eq!((hints.of(folder, c"a"), hints.of(folder, c"b")), (None, Some(255)));
        hints.clear();
        assert_eq!(hints.of(folder, c"b"), None);
    }

    #[test]
    fn what_was_looked_for_before_all_was_given_up_is_noted_in_vain() {
        let (hints, folder) = (Hints::default(), NodeId::ROOT);
        let before = hints.round();
        hints.clear();
        hints.note(folder, c"a", 1, before);
        assert_eq!(hints.of(folder, c"a"), None);
        hints.note(folder, c"a", 2, hints.round());
        assert_eq!(hints.of(folder, c"a"), Some(2));
    }
}
