//! On which branch a file was found by its name, for names that the kernel has forgotten.
//!
//! Where branches change through the mount alone, a name that was found on one branch is on none before it: nothing else gets the
//! name while it is there. So where a hint leads to a file, that is what is shown, and two lower calls will do; where it leads to
//! nothing, all branches are asked. The hint outlives the name, though, and what comes to it on several branches at once (moved there, or made by
//! a policy that picks all) may be on an earlier one, too: it gives the hint up. Hints are an optimisation: a table of one size, in
//! which a name takes the place of another.

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
    hashes: RandomState,
}

impl Default for Hints {
    fn default() -> Self {
        Self { slots: OnceLock::new(), hashes: RandomState::new() }
    }
}

impl Hints {
    /// The branch on which a name was found the last time.
    pub(super) fn of(&self, folder: NodeId, name: &CStr) -> Option<u16> {
        let (index, tag) = self.place(folder, name);
        let held = self.slots.get()?[index].load(Ordering::Relaxed);
        let number = (held & BRANCH).checked_sub(1).filter(|_| held & !BRANCH == tag)?;
        u16::try_from(number).ok()
    }

    /// Notes where a name was found.
    pub(super) fn note(&self, folder: NodeId, name: &CStr, branch: u16) {
        let slots = self.slots.get_or_init(|| (0..SLOTS).map(|_| AtomicU64::new(0)).collect());
        let (index, tag) = self.place(folder, name);
        slots[index].store(tag | (u64::from(branch) + 1), Ordering::Relaxed);
    }

    /// Gives up what was noted of a name: from now on it may be on further branches.
    pub(super) fn forget(&self, folder: NodeId, name: &CStr) {
        let (index, tag) = self.place(folder, name);
        let Some(slots) = self.slots.get() else { return };
        if slots[index].load(Ordering::Relaxed) & !BRANCH == tag {
            slots[index].store(0, Ordering::Relaxed);
        }
    }

    /// Forgets everything.
    pub(super) fn clear(&self) {
        self.slots.get().into_iter().flatten().for_each(|slot| slot.store(0, Ordering::Relaxed));
    }

    /// The slot of a name, and what tells it from others that have the same.
    fn place(&self, folder: NodeId, name: &CStr) -> (usize, u64) {
        let hash = self.hashes.hash_one((folder.get(), name));
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
        hints.note(folder, c"a", 0);
        hints.note(folder, c"b", 255);
        assert_eq!((hints.of(folder, c"a"), hints.of(folder, c"b")), (Some(0), Some(255)));
        assert_eq!(hints.of(NodeId::ROOT, c"a"), None);
        hints.note(folder, c"a", 9);
        assert_eq!(hints.of(folder, c"a"), Some(9));
        hints.forget(folder, c"a");
        hints.forget(folder, c"never noted");
        assert_eq!((hints.of(folder, c"a"), hints.of(folder, c"b")), (None, Some(255)));
        hints.clear();
        assert_eq!(hints.of(folder, c"b"), None);
    }
}
