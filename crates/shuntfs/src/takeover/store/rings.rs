//! The descriptors of the rings' memory, where requests come by io_uring.
//!
//! They are written once, in words of the first page that layouts before had no use for: the releases that know nothing of them go on with no
//! mount on io_uring.

use std::os::fd::RawFd;

use super::layout::{AT_RINGS, Store, StoreError, check_of, once, twice};
use crate::takeover::FileIdentity;

/// Of what lies behind these descriptors.
const VERSION: u32 = 1;
const WORDS_EACH: usize = 3;

/// Two descriptors, and what they lead to.
pub(crate) type StoredRings = [(RawFd, FileIdentity); 2];

impl Store {
    /// Writes down which descriptors the rings' memory has.
    pub(crate) fn rings_are(&self, rings: &StoredRings) {
        let words = words(rings);
        for (place, word) in words.into_iter().enumerate() {
            self.put(AT_RINGS + 2 + place, word);
        }
        self.put(AT_RINGS + 1, check_of(AT_RINGS as u64, words));
        self.publish(AT_RINGS, twice(VERSION));
    }

    /// Which they are; `None` where requests do not come by io_uring.
    ///
    /// # Errors
    /// [`StoreError::Header`] where it is not what was written, [`StoreError::Layout`] where another release wrote it.
    pub(crate) fn rings(&self) -> Result<Option<StoredRings>, StoreError> {
        let wrong = StoreError::Header("the descriptors of its rings");
        let first = self.get(AT_RINGS);
        if first == 0 {
            return Ok(None);
        }
        if once(first).ok_or_else(|| wrong.clone())? != VERSION {
            return Err(StoreError::Layout);
        }
        let word = |ring: usize, place: usize| self.get(AT_RINGS + 2 + ring * WORDS_EACH + place);
        let read = |ring| {
            let number = once(word(ring, 0)).and_then(|number| RawFd::try_from(number).ok())?;
            Some((number, FileIdentity { device: word(ring, 1), inode: word(ring, 2) }))
        };
        let rings = [read(0).ok_or_else(|| wrong.clone())?, read(1).ok_or_else(|| wrong.clone())?];
        let is_same = self.get(AT_RINGS + 1) == check_of(AT_RINGS as u64, words(&rings));
        if is_same { Ok(Some(rings)) } else { Err(wrong) }
    }
}

fn words(rings: &StoredRings) -> [u64; 2 * WORDS_EACH] {
    let [(one, first), (other, second)] = rings;
    let number = |number: RawFd| twice(u32::try_from(number).unwrap_or(u32::MAX));
    [number(*one), first.device, first.inode, number(*other), second.device, second.inode]
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn what_was_written_is_found_and_what_is_damaged_is_not() {
        let store = Store::create().unwrap();
        assert_eq!(store.rings(), Ok(None));
        let identity = |inode| FileIdentity { device: 7, inode };
        let rings = [(5, identity(11)), (9, identity(12))];
        store.rings_are(&rings);
        assert_eq!(store.rings(), Ok(Some(rings)));
        for word in AT_RINGS..AT_RINGS + 2 + 2 * WORDS_EACH {
            for bit in [0, 3, 31, 32, 63] {
                let right = store.get(word);
                store.put(word, right ^ 1 << bit);
                assert!(store.rings().is_err(), "bit {bit} of word {word}");
                store.put(word, right);
            }
        }
        assert_eq!(store.rings(), Ok(Some(rings)));
    }
}
