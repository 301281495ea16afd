//! Open files and folders by the number that the kernel knows them by.
//!
//! An fh is a slot's index (low half) and its generation (high half). The generation is never zero, so no fh
//! is: zero is what the kernel sends where it never opened. Slots live in chunks that double in size, are
//! allocated once and never move, so a look-up takes no lock but its own slot's, which only a RELEASE of the
//! same fh ever contends for.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use shuntfs_wire::Fh;

/// Slots of the first chunk.
const FIRST: u32 = 64;
/// Chunks that a 32-bit index can reach.
const CHUNKS: usize = 27;

/// A table of open things. What an fh stands for is given out as an `Arc`, and taken out exactly once.
pub(crate) struct Handles<T> {
    chunks: [OnceLock<Box<[Slot<T>]>>; CHUNKS],
    free: Mutex<Free>,
}

struct Free {
    list: Vec<u32>,
    next: u32,
}

struct Slot<T>(Mutex<Held<T>>);

struct Held<T> {
    generation: u32,
    value: Option<Arc<T>>,
}

impl<T> Handles<T> {
    pub(crate) fn new() -> Self {
        let free = Free { list: Vec::new(), next: 0 };
        Self { chunks: [const { OnceLock::new() }; CHUNKS], free: Mutex::new(free) }
    }

    /// Takes `value` in and gives it a number. `None` where 2^32 - 1 are open already.
    pub(crate) fn insert(&self, value: Arc<T>) -> Option<Fh> {
        let index = self.take_index()?;
        let mut held = self.slot_at(index).0.lock();
        assert!(held.value.is_none(), "a free slot is empty");
        held.value = Some(value);
        Some(Fh(u64::from(held.generation) << 32 | u64::from(index)))
    }

    /// Has the places of a predecessor's table, all that it ever used, in order: each with the generation that it last had and what is open there
    /// yet. Numbers of that table stand for the same, and none that was closed comes back. For a table that is empty.
    pub(crate) fn restore(&self, places: impl IntoIterator<Item = (u32, Option<Arc<T>>)>) {
        let mut free = self.free.lock();
        assert!(free.next == 0, "an empty table");
        for (generation, value) in places {
            let index = free.next;
            free.next += 1;
            if value.is_none() {
                free.list.push(index);
            }
            let mut held = self.slot_at(index).0.lock();
            let next = || generation.checked_add(1).unwrap_or(1);
            held.generation = if value.is_some() { generation } else { next() };
            held.value = value;
        }
    }

    /// What `fh` stands for, while it is open.
    pub(crate) fn get(&self, fh: Fh) -> Option<Arc<T>> {
        let (slot, _, generation) = self.slot(fh)?;
        let held = slot.0.lock();
        if held.generation == generation { held.value.clone() } else { None }
    }

    /// Takes out what `fh` stands for; the number never comes to stand for anything else.
    pub(crate) fn remove(&self, fh: Fh) -> Option<Arc<T>> {
        let (slot, index, generation) = self.slot(fh)?;
        let value = {
            let mut held = slot.0.lock();
            if held.generation != generation {
                return None;
            }
            let value = held.value.take()?;
            held.generation = held.generation.checked_add(1).unwrap_or(1);
            value
        };
        self.free.lock().list.push(index);
        Some(value)
    }

    /// How many are open.
    pub(crate) fn len(&self) -> usize {
        let free = self.free.lock();
        usize::try_from(free.next).unwrap_or(usize::MAX) - free.list.len()
    }

    /// The slot of an index that was taken.
    fn slot_at(&self, index: u32) -> &Slot<T> {
        let (chunk, offset) = place(index);
        let slots = self.chunks[chunk].get_or_init(|| (0..FIRST << chunk).map(|_| Slot::new()).collect());
        &slots[offset]
    }

    fn take_index(&self) -> Option<u32> {
        let mut free = self.free.lock();
        if let Some(index) = free.list.pop() {
            return Some(index);
        }
        let index = free.next;
        free.next = index.checked_add(1)?;
        Some(index)
    }

    fn slot(&self, fh: Fh) -> Option<(&Slot<T>, u32, u32)> {
        let index = u32::try_from(fh.0 & u64::from(u32::MAX)).ok()?;
        let generation = u32::try_from(fh.0 >> 32).ok()?;
        let (chunk, offset) = place(index);
        Some((self.chunks[chunk].get()?.get(offset)?, index, generation))
    }
}

impl<T> Slot<T> {
    fn new() -> Self {
        Self(Mutex::new(Held { generation: 1, value: None }))
    }
}

/// The chunk of an index and the place in it.
fn place(index: u32) -> (usize, usize) {
    let index = u64::from(index);
    let first = u64::from(FIRST);
    let chunk = (index / first + 1).ilog2();
    let offset = index - first * ((1 << chunk) - 1);
    (chunk as usize, usize::try_from(offset).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod test {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn indexes_fill_chunks_without_gaps() {
        let mut expected = (0, 0);
        for index in 0..FIRST * 40 {
            assert_eq!(place(index), expected, "index {index}");
            expected.1 += 1;
            if expected.1 == (FIRST as usize) << expected.0 {
                expected = (expected.0 + 1, 0);
            }
        }
        assert!(place(u32::MAX).0 < CHUNKS);
    }

    #[test]
    fn a_number_is_good_once() {
        let table = Handles::new();
        let first = table.insert(Arc::new("a")).unwrap();
        assert_ne!(first, Fh(0));
        assert_eq!(table.get(first).as_deref(), Some(&"a"));
        assert_eq!(table.remove(first).as_deref(), Some(&"a"));
        assert_eq!(table.remove(first), None);
        assert_eq!(table.get(first), None);
        let second = table.insert(Arc::new("b")).unwrap();
        assert_ne!(first, second, "the slot is reused, the number is not");
        assert_eq!(second.0 & 0xffff_ffff, first.0 & 0xffff_ffff);
        assert_eq!(table.get(first), None);
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn a_restored_table_knows_its_numbers() {
        let table = Handles::new();
        table.restore([(3, Some(Arc::new("a"))), (7, None), (u32::MAX, None)]);
        let fh = |generation: u64, index: u64| Fh(generation << 32 | index);
        assert_eq!((table.get(fh(3, 0)).as_deref(), table.get(fh(7, 1)), table.len()), (Some(&"a"), None, 1));
        let mut new: Vec<u64> = (0..3).map(|_| table.insert(Arc::new("b")).unwrap().0).collect();
        new.sort_unstable();
        assert_eq!(new, [fh(1, 2).0, fh(1, 3).0, fh(8, 1).0]);
        assert_eq!(table.remove(fh(3, 0)).as_deref(), Some(&"a"));
    }

    #[test]
    fn nonsense_is_nothing() {
        let table = Handles::<u8>::new();
        for fh in [0, 1, u64::MAX, 1 << 32, 7 << 32 | 9] {
            assert_eq!(table.get(Fh(fh)), None);
            assert_eq!(table.remove(Fh(fh)), None);
        }
    }

    #[test]
    fn threads_release_each_number_exactly_once() {
        let table = Handles::<u64>::new();
        let released = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for seed in 0..4_u64 {
                let (table, released) = (&table, &released);
                scope.spawn(move || {
                    let mut mine = Vec::new();
                    for round in 0..5000 {
                        mine.push(table.insert(Arc::new(seed << 32 | round)).unwrap());
                        if round % 3 != 0 {
                            let fh = mine.swap_remove(usize::try_from(round).unwrap() % mine.len());
                            assert_eq!(*table.get(fh).unwrap() >> 32, seed);
                            assert!(table.remove(fh).is_some());
                            assert!(table.remove(fh).is_none());
                            released.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    for fh in mine {
                        assert!(table.remove(fh).is_some());
                        released.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(released.load(Ordering::Relaxed), 20_000);
        assert_eq!(table.len(), 0);
    }
}
