//! The names that a listing has listed, by which later branches' are not listed again.

use std::ffi::CStr;
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hashbrown::{DefaultHashBuilder, HashTable};

/// How many names all listings together note at most: 72 MiB. Everybody who may list folders has a share in it.
const NOTED_MAX: usize = 4 << 20;

/// How many names are noted.
#[derive(Debug, Default)]
pub(crate) struct Room(AtomicUsize);

/// The names of one listing.
#[derive(Debug)]
pub(super) struct Noted {
    /// Hashes of names; each is its own hash.
    names: HashTable<u64>,
    /// Whether there were more than there was room for.
    is_over: bool,
    hashes: DefaultHashBuilder,
    /// What they are counted in.
    room: Arc<Room>,
}

impl Noted {
    pub(super) fn new(room: Arc<Room>) -> Self {
        Self { names: HashTable::new(), is_over: false, hashes: DefaultHashBuilder::default(), room }
    }

    /// Of a listing whose names a dead server knew.
    pub(super) fn unknown(room: Arc<Room>) -> Self {
        let mut unknown = Self::new(room);
        unknown.give_up();
        unknown
    }

    /// What its names are counted in.
    pub(super) fn room(&self) -> Arc<Room> {
        Arc::clone(&self.room)
    }

    /// Whether no more is known, and branches must be asked about each name.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether a name, or one with the same hash, is noted.
    pub(super) fn has(&self, name: &CStr) -> bool {
        let hash = self.hashes.hash_one(name.to_bytes());
        self.names.find(hash, |noted| *noted == hash).is_some()
    }

    /// Notes a name. What is listed again, after a step back, is noted already.
    pub(super) fn add(&mut self, name: &CStr) {
        let hash = self.hashes.hash_one(name.to_bytes());
        if self.is_over || self.names.find(hash, |noted| *noted == hash).is_some() {
            return;
        }
        self.names.insert_unique(hash, hash, |noted| *noted);
        if !self.room.take(1) {
            self.give_up();
        }
    }

    /// The same names, for another listing.
    pub(super) fn copy(&self) -> Self {
        let (names, hashes, room) = (self.names.clone(), self.hashes.clone(), Arc::clone(&self.room));
        let mut copy = Self { names, is_over: self.is_over, hashes, room };
        if !copy.room.take(copy.names.len()) {
            copy.give_up();
        }
        copy
    }

    fn give_up(&mut self) {
        self.is_over = true;
        self.room.give_back(self.names.len());
        self.names = HashTable::new();
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        self.room.give_back(self.names.len());
    }
}

impl Room {
    /// Takes room for so many names; whether there was so much. It counts as taken in any case.
    fn take(&self, count: usize) -> bool {
        self.0.fetch_add(count, Ordering::Relaxed) + count <= NOTED_MAX
    }

    fn give_back(&self, count: usize) {
        self.0.fetch_sub(count, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(super) fn taken(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn names_are_noted_as_long_as_there_is_room() {
        let room = Arc::<Room>::default();
        let mut first = Noted::new(Arc::clone(&room));
        [c"a", c"b", c"a"].iter().for_each(|name| first.add(name));
        assert!(first.has(c"a") && first.has(c"b") && !first.has(c"c"));
        let copy = first.copy();
        assert!(copy.has(c"b") && room.taken() == 4);
        room.0.fetch_add(NOTED_MAX - 4, Ordering::Relaxed);
        first.add(c"c");
        assert!(first.is_over() && !first.has(c"a") && !copy.is_over());
        first.add(c"d");
        let late = copy.copy();
        assert!(!late.is_over(), "there is room again");
        room.0.fetch_add(1, Ordering::Relaxed);
        assert!(late.copy().is_over());
        room.0.fetch_sub(NOTED_MAX - 3, Ordering::Relaxed);
        drop((first, copy, late));
        assert_eq!(room.taken(), 0);
    }
}
