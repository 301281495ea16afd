//! Where everything lies, and the first page.

use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use shuntfs_sys::OsError;
use shuntfs_sys::shared_words::SharedWords;
use shuntfs_wire::{Errno, Result};
use thiserror::Error;

/// The layout of the state that this release writes.
pub const STATE_VERSION: u8 = 2;
/// The layouts that it reads. The first one has no counters, and no marks of nodes. A mount keeps the layout that it began with, so that
/// its program can be gone back to.
pub const STATE_VERSIONS: [u8; 2] = [1, STATE_VERSION];

/// "shuntfs" and the layout's version.
const fn magic(version: u8) -> u64 {
    u64::from_be_bytes([b's', b'h', b'u', b'n', b't', b'f', b's', version])
}

/// Where its words are in the first page.
const AT_MAGIC: usize = 0;
const AT_SHAPE: usize = 1;
const AT_SERVER: usize = 2;
/// A number of the mount.
const AT_MOUNT: usize = 3;
/// The highest backing id so far.
pub(super) const AT_BACKING: usize = 4;
const AT_HANDOVER: usize = 8;
/// The length and the check of the handover, then its bytes.
const HANDOVER_BYTES: usize = AT_HANDOVER + 2;
const HANDOVER_LEN_MAX: usize = 4096;
/// Of the rings' memory, where requests come by io_uring.
pub(super) const AT_RINGS: usize = 960;
const _: () = assert!(HANDOVER_BYTES + HANDOVER_LEN_MAX / 8 <= AT_RINGS && AT_RINGS + 16 <= HEADER);

const HEADER: usize = 1024;
/// One word for each backing id, at the place that the id's low bits give.
pub(super) const BACKINGS: usize = 1 << 14;
pub(super) const BACKINGS_START: usize = HEADER;

/// Records of one kind.
#[derive(Debug)]
pub(super) struct Records {
    pub(super) what: &'static str,
    start: usize,
    pub(super) count: u32,
    len: usize,
    /// Where it is written how many have ever been used.
    at_top: usize,
    /// Whether all of a chunk count as used as soon as one is.
    by_chunks: bool,
}

pub(super) const REQUESTS: Records = Records {
    what: "request",
    start: BACKINGS_START + BACKINGS,
    count: 1 << 12,
    len: 32,
    at_top: 0,
    by_chunks: false,
};
pub(super) const FILES: Records = Records {
    what: "open file",
    start: REQUESTS.end(),
    count: 1 << 20,
    len: 16,
    at_top: 5,
    by_chunks: false,
};
pub(super) const FOLDERS: Records =
    Records { what: "open folder", start: FILES.end(), count: 1 << 16, len: 16, at_top: 6, by_chunks: false };
pub(super) const NODES: Records =
    Records { what: "node", start: FOLDERS.end(), count: 1 << 22, len: 16, at_top: 7, by_chunks: true };
/// What queues count.
pub(super) const COUNTERS: Range<usize> = NODES.end()..NODES.end() + (1 << 20);

/// How long the memory of a layout is.
const fn words(version: u8) -> usize {
    if version < 2 { NODES.end() } else { COUNTERS.end }
}

const WORD_LEN: usize = size_of::<u64>();

/// So many records get memory at once.
const CHUNK: u32 = 256;

impl Records {
    const fn end(&self) -> usize {
        self.start + self.count as usize * self.len
    }

    /// The first word of a record.
    pub(super) const fn at(&self, index: u32) -> usize {
        self.start + index as usize * self.len
    }
}

/// Why what a predecessor left is not used. Nothing of it is then.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// It cannot be had, or is no such memory.
    #[error("the memory of the mount's state cannot be used ({0})")]
    Memory(OsError),
    /// It is another release's, or not ours.
    #[error("the state of the mount has another layout")]
    Layout,
    /// A number of the first page is not what it can be.
    #[error("the state of the mount is damaged: {0}")]
    Header(&'static str),
    /// A record is not what was written.
    #[error("the state of the mount is damaged: {what} {index}: {why}")]
    Record {
        /// A record of what.
        what: &'static str,
        /// Which.
        index: u32,
        /// What is wrong with it.
        why: &'static str,
    },
}

/// What was agreed on with the kernel, as it was written down.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct StoredHandover(pub(crate) Vec<u8>);

/// The words of one mount.
#[derive(Debug)]
pub(crate) struct Store {
    words: SharedWords,
    version: u8,
    grows: Mutex<()>,
    /// How many stores are made yet before the server is as if it were killed.
    #[cfg(test)]
    pub(super) fuse: AtomicU64,
}

impl Store {
    /// For a mount that begins.
    ///
    /// # Errors
    /// [`StoreError::Memory`].
    pub(crate) fn create() -> std::result::Result<Self, StoreError> {
        Self::create_as(STATE_VERSION)
    }

    pub(super) fn create_as(version: u8) -> std::result::Result<Self, StoreError> {
        let words = SharedWords::create(c"shuntfs-state", words(version)).map_err(StoreError::Memory)?;
        let this = Self::on(words, version);
        this.words.reserve(0..REQUESTS.end()).map_err(StoreError::Memory)?;
        for records in [&FILES, &FOLDERS, &NODES] {
            this.put(records.at_top, twice(0));
        }
        this.put(AT_SERVER, twice(0));
        let random = RandomState::new().build_hasher().finish();
        this.put(AT_MOUNT, twice(u32::try_from(random >> 32).unwrap_or(1)));
        this.put(AT_BACKING, twice(0));
        this.put(AT_SHAPE, shape());
        this.publish(AT_MAGIC, magic(version));
        Ok(this)
    }

    /// That of a predecessor.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(crate) fn open(file: OwnedFd) -> std::result::Result<Self, StoreError> {
        let file = File::from(file);
        let len = file.metadata().map_err(|_| StoreError::Layout)?.len();
        let version = STATE_VERSIONS.into_iter().find(|version| (words(*version) * WORD_LEN) as u64 == len);
        let version = version.ok_or(StoreError::Layout)?;
        let memory = SharedWords::open(file.into(), words(version)).map_err(StoreError::Memory)?;
        let this = Self::on(memory, version);
        this.check()?;
        Ok(this)
    }

    fn on(words: SharedWords, version: u8) -> Self {
        Self {
            words,
            version,
            grows: Mutex::new(()),
            #[cfg(test)]
            fuse: AtomicU64::new(u64::MAX),
        }
    }

    fn check(&self) -> std::result::Result<(), StoreError> {
        if self.get(AT_MAGIC) != magic(self.version) || self.get(AT_SHAPE) != shape() {
            return Err(StoreError::Layout);
        }
        for records in [&FILES, &FOLDERS, &NODES] {
            self.top(records)?;
        }
        Ok(())
    }

    /// Notes that a server begins; which one it is, from 1 on.
    ///
    /// # Errors
    /// [`StoreError::Header`].
    pub(crate) fn server_begins(&self) -> std::result::Result<u32, StoreError> {
        let server = once(self.get(AT_SERVER)).and_then(|last| last.checked_add(1));
        let server = server.ok_or(StoreError::Header("the number of servers"))?;
        self.publish(AT_SERVER, twice(server));
        Ok(server)
    }

    /// A number of the mount, which others do not have.
    ///
    /// # Errors
    /// [`StoreError::Header`].
    pub(super) fn mount_number(&self) -> std::result::Result<u32, StoreError> {
        once(self.get(AT_MOUNT)).ok_or(StoreError::Header("the number of the mount"))
    }

    /// How many servers have begun.
    pub(super) fn servers(&self) -> u32 {
        once(self.get(AT_SERVER)).unwrap_or(0)
    }

    /// Writes down what was agreed on, once.
    ///
    /// # Errors
    /// [`StoreError::Header`] where it is too long.
    pub(crate) fn seal(&self, handover: &StoredHandover) -> std::result::Result<(), StoreError> {
        let bytes = &handover.0;
        if bytes.len() > HANDOVER_LEN_MAX {
            return Err(StoreError::Header("what was agreed on is too long"));
        }
        for (place, word) in bytes.chunks(8).enumerate() {
            self.put(HANDOVER_BYTES + place, word_of(word));
        }
        self.put(AT_HANDOVER + 1, check_of(0, bytes.chunks(8).map(word_of)));
        self.publish(AT_HANDOVER, twice(u32::try_from(bytes.len()).unwrap_or(u32::MAX)));
        Ok(())
    }

    /// What was agreed on.
    ///
    /// # Errors
    /// [`StoreError::Header`] where it is not what was written.
    pub(crate) fn sealed(&self) -> std::result::Result<StoredHandover, StoreError> {
        let wrong = StoreError::Header("what was agreed on");
        let len = once(self.get(AT_HANDOVER)).and_then(|len| usize::try_from(len).ok());
        let len = len.filter(|len| *len <= HANDOVER_LEN_MAX).ok_or_else(|| wrong.clone())?;
        let words: Vec<u64> = (0..len.div_ceil(8)).map(|place| self.get(HANDOVER_BYTES + place)).collect();
        if self.get(AT_HANDOVER + 1) != check_of(0, words.iter().copied()) {
            return Err(wrong);
        }
        let mut bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        bytes.truncate(len);
        Ok(StoredHandover(bytes))
    }

    /// How many records have ever been used, or a few more.
    ///
    /// # Errors
    /// [`StoreError::Header`].
    pub(super) fn top(&self, records: &Records) -> std::result::Result<u32, StoreError> {
        let top = once(self.get(records.at_top)).filter(|top| *top <= records.count);
        top.ok_or(StoreError::Header("how many records there are"))
    }

    /// Sees to it that a record may be written.
    ///
    /// # Errors
    /// ENFILE where there is no such record, ENOMEM.
    pub(super) fn grow_to(&self, records: &Records, index: u32) -> Result<()> {
        if index < once(self.get(records.at_top)).unwrap_or(records.count) {
            return Ok(());
        }
        self.grow(records, index)
    }

    #[cold]
    fn grow(&self, records: &Records, index: u32) -> Result<()> {
        if index >= records.count {
            return Err(Errno::NFILE);
        }
        let _alone = self.grows.lock();
        let (old, new) = (once(self.get(records.at_top)).unwrap_or(records.count), index + 1);
        if new <= old {
            return Ok(());
        }
        let end = new.next_multiple_of(CHUNK).min(records.count);
        if old == 0 || (new - 1) / CHUNK != (old - 1) / CHUNK {
            let words = records.at(old / CHUNK * CHUNK)..records.at(end);
            self.words.reserve(words.clone()).map_err(|_| Errno::NOMEM)?;
            self.words.touch(words);
        }
        // Records that were never written are those of nobody.
        self.publish(records.at_top, twice(if records.by_chunks { end } else { new }));
        Ok(())
    }

    pub(super) fn version(&self) -> u8 {
        self.version
    }

    pub(super) fn has_counters(&self) -> bool {
        self.version >= 2
    }

    /// Whether servers mark nodes: in the first layout the word for that tells nothing.
    pub(super) fn has_marks(&self) -> bool {
        self.version >= 2
    }

    /// Words that are no records, to be used as they are.
    pub(super) fn words(&self, range: Range<usize>) -> &[AtomicU64] {
        &self.words[range]
    }

    /// Sees to it that words may be written.
    pub(super) fn reserve(&self, range: Range<usize>) -> std::result::Result<(), OsError> {
        self.words.reserve(range)
    }

    /// Makes whole pages of words zero.
    pub(super) fn clear(&self, range: Range<usize>) -> std::result::Result<(), OsError> {
        self.words.clear(range)
    }

    pub(super) fn get(&self, word: usize) -> u64 {
        self.words[word].load(Ordering::Acquire)
    }

    /// A store that another one is to make valid.
    pub(super) fn put(&self, word: usize, value: u64) {
        if self.lives() {
            self.words[word].store(value, Ordering::Relaxed);
        }
    }

    /// A store that makes the ones before it valid, or what comes after it possible.
    pub(super) fn publish(&self, word: usize, value: u64) {
        if self.lives() {
            self.words[word].store(value, Ordering::Release);
        }
    }

    /// Changes a word by what `change` says of it, until that says nothing; what it was.
    pub(super) fn update(
        &self,
        word: usize,
        change: impl Fn(u64) -> Option<u64>,
    ) -> std::result::Result<u64, u64> {
        if !self.lives() {
            return Ok(self.get(word));
        }
        self.words[word].fetch_update(Ordering::AcqRel, Ordering::Acquire, change)
    }

    /// The words of the first page, and of the first records of each kind.
    #[cfg(test)]
    pub(super) fn first_words() -> impl Iterator<Item = usize> {
        let tables = [&REQUESTS, &FILES, &FOLDERS, &NODES];
        (0..HEADER + 8).chain(tables.into_iter().flat_map(|records| records.at(0)..records.at(8)))
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "tests have servers killed here")]
    fn lives(&self) -> bool {
        true
    }

    #[cfg(test)]
    fn lives(&self) -> bool {
        let one_less = |left: u64| Some(left.saturating_sub(1));
        self.fuse.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less).is_ok_and(|left| left > 0)
    }
}

impl AsFd for Store {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.words.as_fd()
    }
}

/// A number of which a damaged word is no value: with a check in the upper half.
pub(super) const fn twice(number: u32) -> u64 {
    let check = number.wrapping_mul(0x9e37_79b1) ^ 0x5bd1_e995;
    (number as u64) | ((check as u64) << 32)
}

/// The number of such a word.
pub(super) fn once(word: u64) -> Option<u32> {
    let number = u32::try_from(word & u64::from(u32::MAX)).ok()?;
    (twice(number) == word).then_some(number)
}

/// A check over words and their place. It is not for adversaries: who can write here is the server itself.
pub(super) fn check_of(place: u64, words: impl IntoIterator<Item = u64>) -> u64 {
    let start = place.wrapping_add(0x9e37_79b9_7f4a_7c15);
    words
        .into_iter()
        .fold(start, |check, word| (check ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(29))
}

/// Up to eight bytes as a word.
pub(super) fn word_of(bytes: &[u8]) -> u64 {
    // All but the last word of an answer are whole, and this is done for each answer.
    let byte_by_byte = || bytes.iter().rev().fold(0, |word, byte| (word << 8) | u64::from(*byte));
    <[u8; 8]>::try_from(bytes).map_or_else(|_| byte_by_byte(), u64::from_le_bytes)
}

/// The tables' lengths: a release that changes them has another layout.
fn shape() -> u64 {
    let all = [&REQUESTS, &FILES, &FOLDERS, &NODES];
    check_of(
        0,
        all.into_iter()
            .flat_map(|records| [records.start as u64, u64::from(records.count), records.len as u64]),
    )
}
