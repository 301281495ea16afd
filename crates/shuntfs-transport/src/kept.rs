//! Rings of which another server can take over the slots.
//!
//! What the kernel was told of a slot (where its headers and its payload lie) holds for as long as the entry lives, and a commit by another
//! process copies from the same addresses there. So the slots lie in a file in memory, which each server maps at the same addresses, with as many threads,
//! queues and slots as the first one had. Beside them is a word for each slot: what is in it when its server is replaced ([`Held`]).
//!
//! A server is replaced when every slot holds a request that is not begun, or an answer that is not sent: then nothing of it is the kernel's to fill,
//! and nothing is lost with its rings. That is said in one word, which the next server takes back before it commits the first answer. Where
//! the word does not say it, the server died otherwise, and no other one goes on.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use shuntfs_sys::memory::file_in_memory;
use shuntfs_sys::region::Region;
use shuntfs_sys::shared_words::SharedWords;
use shuntfs_sys::{OsError, threads};

use crate::draining::Drain;
use crate::planning::{RING_SLOTS_MAX, kept_plan};
use crate::prepared::{PrepareError, queue_order};
use crate::settings::{Plan, Settings};
use crate::slot::slot_len;

/// Rings that one server after the other serves.
#[derive(Debug)]
pub struct KeptRings {
    words: SharedWords,
    memory: File,
    shape: Shape,
    pub(crate) drain: Drain,
}

/// What is the same for all servers.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Shape {
    threads: usize,
    /// The kernel's.
    queues: usize,
    depth: usize,
    payload_len: usize,
    /// The kernel's queues in the order in which threads take them.
    order: Vec<usize>,
}

/// What a slot holds when its server is replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Held {
    /// Nothing: its CPU is offline, so no request can come.
    Nothing,
    /// A request as it came.
    Request,
    /// An answer that must be committed.
    Answer,
    /// A request that is being served. No server is replaced then.
    Begun,
}

/// "shuntrng", of this layout.
const MAGIC: u64 = u64::from_be_bytes(*b"shuntrn\x02");
/// The word that says that every slot holds something.
const FULL: u64 = u64::from_be_bytes(*b"all-full");

const AT_MAGIC: usize = 0;
const AT_FULL: usize = 1;
const AT_SHAPE: usize = 2;
const AT_ORDER: usize = 8;
/// More is no queue of a kernel's.
const QUEUES_MAX: usize = 1 << 13;
const DEPTH_MAX: usize = 1 << 10;
/// How many INTERRUPTs are noted that found no request: those of the last moments before a server is replaced.
const INTERRUPTS: usize = 64;
const PAYLOAD_MAX: usize = 1 << 28;

/// Where the slots lie: far below what the kernel maps by itself on any 64-bit platform, and above what programs are linked to.
const ADDRESS: usize = 0x10_0000_0000;

impl KeptRings {
    /// For the first server.
    ///
    /// # Errors
    /// [`PrepareError`].
    pub fn create(settings: &Settings) -> Result<Self, PrepareError> {
        let online = threads::online_cpus();
        let slots = threads::possible_cpus() as usize * settings.depth;
        let rings = online.len().max(slots.div_ceil(RING_SLOTS_MAX));
        let settings = Settings { queues: settings.queues.or(Some(rings)), ..*settings };
        let plan = kept_plan(&settings)?;
        let shape = Shape {
            threads: plan.threads,
            queues: plan.kernel_queues,
            depth: plan.own_depth,
            payload_len: plan.settings.payload_len,
            order: queue_order(&online, plan.kernel_queues),
        };
        let lacks = |error| PrepareError::Resource { what: "payload memory", error };
        let this = || {
            let words = SharedWords::create(c"shuntfs-rings", shape.words())?;
            words.reserve(0..shape.words())?;
            let memory = file_in_memory(c"shuntfs-slots")?;
            let len = (shape.slots() * slot_len(shape.payload_len)) as u64;
            memory.set_len(len).map_err(|error| OsError::from_io_error(&error).unwrap_or(OsError::IO))?;
            Ok(Self { words, memory, drain: Drain::new(shape.queues), shape: shape.clone() })
        };
        let this = this().map_err(lacks)?;
        for (place, word) in this.shape.as_words().into_iter().enumerate() {
            this.words[AT_SHAPE + place].store(word, Ordering::Relaxed);
        }
        this.words[AT_MAGIC].store(MAGIC, Ordering::Release);
        Ok(this)
    }

    /// For one that goes on, by the descriptors that its predecessor had.
    ///
    /// # Errors
    /// EINVAL where they are not what was written.
    pub fn open([words, memory]: [OwnedFd; 2]) -> Result<Self, OsError> {
        let file = File::from(words);
        let len = |file: &File| file.metadata().map_or(0, |data| data.len());
        let count = usize::try_from(len(&file) / 8).map_err(|_| OsError::INVAL)?;
        let words = SharedWords::open(file.into(), count)?;
        let shape = Shape::read(&words).ok_or(OsError::INVAL)?;
        let memory = File::from(memory);
        if len(&memory) != (shape.slots() * slot_len(shape.payload_len)) as u64 {
            return Err(OsError::INVAL);
        }
        Ok(Self { words, memory, drain: Drain::new(shape.queues), shape })
    }

    /// What another server needs: both must stay open.
    #[must_use]
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.words.as_fd(), self.memory.as_fd()]
    }

    /// Whether every slot holds something, so that another server can go on.
    #[must_use]
    pub fn are_full(&self) -> bool {
        self.words[AT_FULL].load(Ordering::Acquire) == FULL
    }

    pub(crate) fn set_full(&self, are_full: bool) {
        self.words[AT_FULL].store(if are_full { FULL } else { 0 }, Ordering::Release);
    }

    /// The settings with which the first server began.
    pub(crate) fn settings(&self, settings: &Settings) -> Settings {
        let Shape { threads, depth, payload_len, .. } = self.shape;
        Settings { queues: Some(threads), depth, payload_len, payload_cap: u64::MAX, ..*settings }
    }

    /// Whether this machine, with these settings, leads to the same threads, queues and slots.
    pub(crate) fn fits(&self, plan: &Plan) -> bool {
        let Shape { threads, queues, depth, payload_len, .. } = self.shape;
        (plan.threads, plan.kernel_queues) == (threads, queues)
            && (plan.own_depth, plan.settings.payload_len) == (depth, payload_len)
            && plan.pool.is_none()
    }

    /// The kernel's queues in the order in which threads take them.
    pub(crate) fn order(&self) -> &[usize] {
        &self.shape.order
    }

    /// The number of a thread's first slot among all.
    pub(crate) fn first_slot(&self, thread: usize) -> usize {
        let Shape { threads, queues, depth, .. } = self.shape;
        (0..thread).map(|thread| (thread..queues).step_by(threads).count() * depth).sum()
    }

    /// The memory of a thread's slots.
    pub(crate) fn region(&self, thread: usize, count: usize) -> Result<Region, OsError> {
        let len = slot_len(self.shape.payload_len);
        let offset = self.first_slot(thread) * len;
        Region::shared(&self.memory, offset as u64, (ADDRESS + offset, count * len))
    }

    /// What a slot holds; `None` where the word is none that was written.
    pub(crate) fn held(&self, slot: usize) -> Option<Held> {
        let word = self.words[self.shape.at_slots() + slot].load(Ordering::Acquire);
        let all = [Held::Nothing, Held::Request, Held::Answer, Held::Begun];
        all.into_iter().find(|held| held.word(slot) == word)
    }

    pub(crate) fn holds(&self, slot: usize, held: Held) {
        self.words[self.shape.at_slots() + slot].store(held.word(slot), Ordering::Release);
    }
}

/// The kernel tells of an INTERRUPT once.
impl KeptRings {
    /// Notes one whose request was not begun, or was taken back, for the server that begins it.
    pub(crate) fn note_interrupt(&self, unique: u64) {
        let count = self.words[self.shape.at_interrupts()].fetch_add(1, Ordering::Relaxed);
        let place = usize::try_from(count % INTERRUPTS as u64).unwrap_or(0);
        self.words[self.shape.at_interrupts() + 1 + place].store(unique, Ordering::Release);
    }

    /// Those that were noted last.
    pub(crate) fn interrupts(&self) -> impl Iterator<Item = u64> + '_ {
        let first = self.shape.at_interrupts() + 1;
        let words = (first..first + INTERRUPTS).map(|at| self.words[at].load(Ordering::Acquire));
        words.filter(|unique| *unique != 0)
    }
}

impl Held {
    fn word(self, slot: usize) -> u64 {
        let number = match self {
            Self::Nothing => 1,
            Self::Request => 2,
            Self::Answer => 3,
            Self::Begun => 4,
        };
        (slot as u64) << 8 | number
    }
}

impl Shape {
    fn slots(&self) -> usize {
        self.queues * self.depth
    }

    fn at_slots(&self) -> usize {
        AT_ORDER + self.queues
    }

    fn at_interrupts(&self) -> usize {
        self.at_slots() + self.slots()
    }

    fn words(&self) -> usize {
        self.at_interrupts() + 1 + INTERRUPTS
    }

    fn as_words(&self) -> Vec<u64> {
        let numbers = [self.threads, self.queues, self.depth, self.payload_len].map(|number| number as u64);
        let order = self.order.iter().map(|queue| *queue as u64);
        let check = numbers
            .into_iter()
            .chain(order.clone())
            .fold(MAGIC, |check, word| (check ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(29));
        numbers.into_iter().chain([check, 0]).chain(order).collect()
    }

    fn read(words: &SharedWords) -> Option<Self> {
        let get = |at: usize| words.get(at).map(|word| word.load(Ordering::Acquire));
        let number = |at, max| {
            let number = usize::try_from(get(at)?).ok()?;
            (1..=max).contains(&number).then_some(number)
        };
        if get(AT_MAGIC)? != MAGIC {
            return None;
        }
        let (threads, queues) = (number(AT_SHAPE, QUEUES_MAX)?, number(AT_SHAPE + 1, QUEUES_MAX)?);
        let (depth, payload_len) = (number(AT_SHAPE + 2, DEPTH_MAX)?, number(AT_SHAPE + 3, PAYLOAD_MAX)?);
        let order = (0..queues).map(|place| usize::try_from(get(AT_ORDER + place)?).ok());
        let shape = Self { threads, queues, depth, payload_len, order: order.collect::<Option<_>>()? };
        let mut each = shape.order.clone();
        each.sort_unstable();
        let is_whole = words.len() == shape.words() && each.into_iter().eq(0..queues);
        let is_same = || (AT_SHAPE..).zip(shape.as_words()).all(|(at, word)| get(at) == Some(word));
        (is_whole && is_same()).then_some(shape)
    }
}

const _: () = assert!(AT_SHAPE + 6 == AT_ORDER);

#[cfg(test)]
mod test {
    use super::*;

    fn copies(rings: &KeptRings) -> [OwnedFd; 2] {
        rings.descriptors().map(|fd| fd.try_clone_to_owned().expect("a duplicate"))
    }

    #[test]
    fn another_one_finds_what_was_written() {
        let settings = Settings { depth: 3, payload_len: 8192, ..Settings::default() };
        let first = KeptRings::create(&settings).expect("memory");
        first.holds(2, Held::Answer);
        first.set_full(true);
        let second = KeptRings::open(copies(&first)).expect("it is whole");
        assert_eq!(second.shape, first.shape);
        assert!(second.are_full());
        assert_eq!([0, 2].map(|slot| second.held(slot)), [None, Some(Held::Answer)]);
        second.set_full(false);
        assert!(!first.are_full());
        let again = second.settings(&Settings { depth: 7, ..Settings::default() });
        assert!(second.fits(&kept_plan(&again).expect("fits")));
        let other = Settings { depth: 2, ..again };
        assert!(!second.fits(&kept_plan(&other).expect("fits")));
    }

    #[test]
    fn interrupts_are_noted_for_another_one_and_the_oldest_are_forgotten() {
        let settings = Settings { depth: 3, payload_len: 8192, ..Settings::default() };
        let first = KeptRings::create(&settings).expect("memory");
        let second = KeptRings::open(copies(&first)).expect("it is whole");
        assert_eq!(second.interrupts().count(), 0);
        first.holds(first.shape.slots() - 1, Held::Answer);
        (1..=70).for_each(|unique| first.note_interrupt(2 * unique));
        let mut noted: Vec<u64> = second.interrupts().collect();
        noted.sort_unstable();
        assert_eq!(noted, (7..=70).map(|unique| 2 * unique).collect::<Vec<_>>());
        assert_eq!(second.held(first.shape.slots() - 1), Some(Held::Answer));
        assert!(KeptRings::open(copies(&first)).is_ok());
    }

    #[test]
    fn no_damaged_shape_is_used() {
        let settings = Settings { depth: 3, payload_len: 8192, ..Settings::default() };
        let rings = KeptRings::create(&settings).expect("memory");
        for word in (0..AT_ORDER + rings.shape.queues).filter(|word| ![AT_FULL, AT_ORDER - 1].contains(word))
        {
            for bit in [0, 1, 5, 31, 63] {
                rings.words[word].fetch_xor(1 << bit, Ordering::Relaxed);
                assert!(KeptRings::open(copies(&rings)).is_err(), "bit {bit} of word {word}");
                rings.words[word].fetch_xor(1 << bit, Ordering::Relaxed);
            }
        }
        let [words, _] = copies(&rings);
        let short = file_in_memory(c"test").expect("memory");
        assert!(KeptRings::open([words, short.into()]).is_err());
        assert!(KeptRings::open(copies(&rings)).is_ok());
    }

    #[test]
    fn slots_of_threads_follow_each_other() {
        let settings = Settings { depth: 3, payload_len: 8192, ..Settings::default() };
        let mut rings = KeptRings::create(&settings).expect("memory");
        (rings.shape.threads, rings.shape.queues) = (2, 5);
        assert_eq!([0, 1, 2].map(|thread| rings.first_slot(thread)), [0, 9, 15]);
    }
}
