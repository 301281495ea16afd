//! Verified tree blocks, shared by all opens of all files: what is here was hashed, and is not hashed again.
//!
//! A block that is being read is marked, so that whoever else needs it waits for that read and makes none of its own. The mark
//! goes with its [`Flight`], however that ends; who waited then looks again, and may take the next turn.
//!
//! Kept are at most so many bytes, the recently used ones (a clock). Shards are locked one at a time, a block at a time, and
//! nothing is awaited under a lock.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Poll, Waker};

use parking_lot::Mutex;
use shuntfs_verity::Digest;

/// Locks, so that queues seldom meet at one.
const SHARDS: usize = 16;
/// The least that a shard may keep: one block of any size.
const SHARD_MIN: usize = 64 << 10;

/// A block of a stored tree: the file's digest, and the block's number.
type Key = (Digest, u64);

/// The bounded cache of tree blocks.
#[derive(Debug)]
pub(crate) struct TreeCache {
    shards: Box<[Mutex<Shard>]>,
    shard_max: usize,
}

#[derive(Debug, Default)]
struct Shard {
    slots: HashMap<Key, Slot>,
    /// Whose turn it is to go; keys that are gone already are skipped.
    order: VecDeque<Key>,
    bytes: usize,
}

#[derive(Debug)]
enum Slot {
    /// Somebody reads it; these wait.
    Loading(Vec<Waker>),
    Ready {
        bytes: Arc<[u8]>,
        used: bool,
    },
}

/// How to come by some blocks.
#[derive(Debug)]
pub(crate) enum Next<'c> {
    /// They are here.
    Ready(Vec<Arc<[u8]>>),
    /// It is the caller's to read these.
    Load(Flight<'c>),
    /// Somebody reads this one.
    Wait(u64),
}

/// Blocks that the holder reads. Dropped without [`Flight::land`], others get their turn.
#[derive(Debug)]
pub(crate) struct Flight<'c> {
    cache: &'c TreeCache,
    file: Digest,
    blocks: Range<u64>,
}

impl TreeCache {
    /// A cache of at most `bytes_max` bytes, or the least that works.
    pub(crate) fn new(bytes_max: usize) -> Self {
        let shard_max = (bytes_max / SHARDS).max(SHARD_MIN);
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), shard_max }
    }

    /// Says how to come by the blocks `wanted`. Where one is missing, the caller is to read it, and with it what is missing
    /// right beside it of `about`.
    pub(crate) fn next(&self, file: Digest, wanted: Range<u64>, about: &Range<u64>) -> Next<'_> {
        let mut ready = Vec::with_capacity(usize::try_from(wanted.end - wanted.start).unwrap_or(0));
        for block in wanted {
            let mut shard = self.shard(&file, block).lock();
            match shard.slots.get_mut(&(file, block)) {
                Some(Slot::Ready { bytes, used }) => {
                    *used = true;
                    ready.push(Arc::clone(bytes));
                }
                Some(Slot::Loading(_)) => return Next::Wait(block),
                None => {
                    shard.slots.insert((file, block), Slot::Loading(Vec::new()));
                    drop(shard);
                    return Next::Load(self.widen(file, block, about));
                }
            }
        }
        Next::Ready(ready)
    }

    /// The blocks, where all of them are here.
    pub(crate) fn ready(&self, file: Digest, blocks: Range<u64>) -> Option<Vec<Arc<[u8]>>> {
        blocks
            .map(|block| match self.shard(&file, block).lock().slots.get_mut(&(file, block)) {
                Some(Slot::Ready { bytes, used }) => {
                    *used = true;
                    Some(Arc::clone(bytes))
                }
                _ => None,
            })
            .collect()
    }

    /// Waits until a block is not being read any more.
    pub(crate) async fn landed(&self, file: Digest, block: u64) {
        poll_fn(|cx| {
            let mut shard = self.shard(&file, block).lock();
            match shard.slots.get_mut(&(file, block)) {
                Some(Slot::Loading(waiting)) => {
                    if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                        waiting.push(cx.waker().clone());
                    }
                    Poll::Pending
                }
                _ => Poll::Ready(()),
            }
        })
        .await;
    }

    /// Whether every block is here or being read.
    pub(crate) fn has(&self, file: Digest, mut blocks: Range<u64>) -> bool {
        blocks.all(|block| self.shard(&file, block).lock().slots.contains_key(&(file, block)))
    }

    /// How many bytes of blocks are kept.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().bytes).sum()
    }

    /// How many bytes of blocks are kept at most.
    pub(crate) fn max(&self) -> usize {
        self.shard_max * SHARDS
    }

    /// Takes the missing neighbours of a block that is marked, too.
    fn widen(&self, file: Digest, block: u64, about: &Range<u64>) -> Flight<'_> {
        let mut blocks = block..block + 1;
        while blocks.start > about.start && self.mark(file, blocks.start - 1) {
            blocks.start -= 1;
        }
        while blocks.end < about.end && self.mark(file, blocks.end) {
            blocks.end += 1;
        }
        Flight { cache: self, file, blocks }
    }

    /// Marks a block as being read; `false` where it is, or is here.
    fn mark(&self, file: Digest, block: u64) -> bool {
        let mut shard = self.shard(&file, block).lock();
        if shard.slots.contains_key(&(file, block)) {
            return false;
        }
        shard.slots.insert((file, block), Slot::Loading(Vec::new()));
        true
    }

    fn shard(&self, file: &Digest, block: u64) -> &Mutex<Shard> {
        let start = file.as_bytes().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        // A digest's bytes are as good as random; neighbours go to different shards.
        let place = start.wrapping_add(block) % SHARDS as u64;
        &self.shards[usize::try_from(place).unwrap_or(0)]
    }
}

impl Flight<'_> {
    /// Which blocks.
    pub(crate) fn blocks(&self) -> Range<u64> {
        self.blocks.clone()
    }

    /// Gives up those from `end` on.
    pub(crate) fn cut(&mut self, end: u64) {
        let end = end.clamp(self.blocks.start, self.blocks.end);
        let rest = Flight { cache: self.cache, file: self.file, blocks: end..self.blocks.end };
        self.blocks.end = end;
        drop(rest);
    }

    /// Hands in the blocks, which must have been checked.
    pub(crate) fn land(mut self, checked: impl Iterator<Item = Arc<[u8]>>) {
        for bytes in checked {
            if self.blocks.is_empty() {
                return;
            }
            let block = self.blocks.start;
            self.blocks.start += 1;
            let waiting = {
                let mut shard = self.cache.shard(&self.file, block).lock();
                shard.insert((self.file, block), bytes, self.cache.shard_max)
            };
            waiting.into_iter().for_each(Waker::wake);
        }
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        for block in self.blocks.clone() {
            let gone = self.cache.shard(&self.file, block).lock().slots.remove(&(self.file, block));
            if let Some(Slot::Loading(waiting)) = gone {
                waiting.into_iter().for_each(Waker::wake);
            }
        }
    }
}

impl Shard {
    fn insert(&mut self, key: Key, bytes: Arc<[u8]>, bytes_max: usize) -> Vec<Waker> {
        self.bytes += bytes.len();
        let before = self.slots.insert(key, Slot::Ready { bytes, used: false });
        self.order.push_back(key);
        // After one round every mark is gone, so this ends.
        while self.bytes > bytes_max && self.order.len() > 1 {
            self.turn();
        }
        match before {
            Some(Slot::Loading(waiting)) => waiting,
            _ => Vec::new(),
        }
    }

    /// Takes the next one's mark, or its place.
    fn turn(&mut self) {
        let Some(key) = self.order.pop_front() else { return };
        match self.slots.get_mut(&key) {
            Some(Slot::Ready { used, .. }) if *used => {
                *used = false;
                self.order.push_back(key);
            }
            Some(Slot::Ready { bytes, .. }) => {
                self.bytes -= bytes.len();
                self.slots.remove(&key);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use pollster::block_on;
    use shuntfs_verity::Algorithm;

    fn file(byte: u8) -> Digest {
        Digest::new(Algorithm::Sha256, &[byte; 32]).unwrap()
    }

    fn block(byte: u8) -> Arc<[u8]> {
        vec![byte; 4096].into()
    }

    fn load(cache: &TreeCache, wanted: Range<u64>, about: Range<u64>) -> Range<u64> {
        let Next::Load(flight) = cache.next(file(1), wanted.clone(), &about) else {
            panic!("{wanted:?} was here")
        };
        let blocks = flight.blocks();
        flight.land(blocks.clone().map(|number| block(number.to_le_bytes()[0])));
        blocks
    }

    #[test]
    fn what_is_missing_is_read_once_with_its_missing_neighbours() {
        let cache = TreeCache::new(1 << 20);
        assert_eq!(load(&cache, 5..6, 4..8), 4..8);
        assert_eq!(load(&cache, 9..10, 0..16), 8..16, "4 to 7 are here");
        assert_eq!(load(&cache, 2..10, 0..16), 0..4);
        let Next::Ready(ready) = cache.next(file(1), 3..6, &(0..16)) else { panic!("all here") };
        assert_eq!(ready.iter().map(|bytes| bytes[0]).collect::<Vec<_>>(), [3, 4, 5]);
        assert_eq!(cache.len(), 16 * 4096);
        assert!(cache.has(file(1), 0..16) && !cache.has(file(1), 15..17) && !cache.has(file(2), 0..1));
    }

    #[test]
    fn one_reads_and_the_others_wait() {
        let cache = TreeCache::new(1 << 20);
        let Next::Load(flight) = cache.next(file(1), 0..1, &(0..2)) else { panic!("missing") };
        assert!(matches!(cache.next(file(1), 1..2, &(0..2)), Next::Wait(1)));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                block_on(cache.landed(file(1), 1));
                matches!(cache.next(file(1), 0..2, &(0..2)), Next::Ready(_))
            });
            std::thread::sleep(std::time::Duration::from_millis(10));
            flight.land([block(0), block(1)].into_iter());
            assert!(waiter.join().unwrap());
        });
    }

    #[test]
    fn a_flight_that_fails_gives_the_turn_to_who_waits() {
        let cache = TreeCache::new(1 << 20);
        let Next::Load(flight) = cache.next(file(1), 0..1, &(0..2)) else { panic!("missing") };
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                block_on(cache.landed(file(1), 0));
                matches!(cache.next(file(1), 0..1, &(0..1)), Next::Load(_))
            });
            std::thread::sleep(std::time::Duration::from_millis(10));
            drop(flight);
            assert!(waiter.join().unwrap());
        });
        assert_eq!(cache.len(), 0);
    }

    #[test]
    fn what_is_cut_off_a_flight_is_missing_again() {
        let cache = TreeCache::new(1 << 20);
        let Next::Load(mut flight) = cache.next(file(1), 4..5, &(0..8)) else { panic!("missing") };
        flight.cut(6);
        assert_eq!(flight.blocks(), 0..6);
        assert_eq!(load(&cache, 7..8, 0..8), 6..8);
        drop(flight);
        assert_eq!(load(&cache, 0..1, 0..8), 0..6);
    }

    #[test]
    fn memory_is_bounded_and_what_is_used_stays() {
        let cache = TreeCache::new(1 << 20);
        assert_eq!(cache.max(), 1 << 20);
        load(&cache, 7..8, 7..8);
        for number in 1000..3000 {
            assert!(matches!(cache.next(file(1), 7..8, &(7..8)), Next::Ready(_)), "at {number}");
            load(&cache, number..number + 1, number..number + 1);
        }
        assert!(cache.len() <= 1 << 20, "{}", cache.len());
        assert!(cache.len() > (1 << 20) - SHARDS * 4096);
        let entries: usize = cache.shards.iter().map(|shard| shard.lock().order.len()).sum();
        assert_eq!(entries, cache.len() / 4096, "nothing grows beside it");
    }
}
