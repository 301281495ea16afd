//! Lower files that are registered with the kernel, by the kernel's numbers.
//!
//! The kernel does not tell which numbers there are. Those that a record names are known; one that was given out and not yet written
//! down when the server died is between the highest that was, and the next that the kernel gives.

use super::layout::{AT_BACKING, BACKINGS, BACKINGS_START, Store, StoreError, once, twice};

/// So far below the highest number one may be that was given out and not written down: more threads than that register nothing at once.
const UNWRITTEN: u32 = 256;

impl Store {
    /// The kernel has given out a number.
    pub(crate) fn backing_registered(&self, id: u32) {
        self.publish(place(id), u64::from(id));
        // One that is damaged is left for the successor to find.
        let _highest =
            self.update(AT_BACKING, |word| once(word).filter(|highest| *highest < id).map(|_| twice(id)));
    }

    /// A number is about to be given back.
    pub(crate) fn backing_goes(&self, id: u32) {
        let _gone = self.update(place(id), |word| (word == u64::from(id)).then_some(0));
    }

    /// The numbers that may be registered, below `next`, which the kernel gives now.
    ///
    /// # Errors
    /// [`StoreError::Header`].
    pub(crate) fn backings_below(&self, next: u32) -> Result<Vec<u32>, StoreError> {
        let highest = once(self.get(AT_BACKING)).ok_or(StoreError::Header("the highest backing id"))?;
        let written = (BACKINGS_START..BACKINGS_START + BACKINGS).map(|word| self.get(word));
        let mut all: Vec<u32> =
            written.filter_map(|id| u32::try_from(id).ok()).filter(|id| *id > 0).collect();
        // Beyond the highest there are as many as died with their threads.
        let from = highest.saturating_sub(UNWRITTEN).max(1);
        all.extend(from..next.min(highest.saturating_add(UNWRITTEN)));
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }
}

fn place(id: u32) -> usize {
    BACKINGS_START + id as usize % BACKINGS
}
