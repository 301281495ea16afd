//! Listings of folders that are on several branches.
//!
//! The branches are read one after the other. A name that an earlier branch has was listed there; so names are noted (a hash each) as
//! they are listed, and where a later branch has one with a hash that is noted, the earlier branches are asked whether they have it. So no two
//! names are taken for one, and what was listed before its branch lost it is found on the next. Beyond so many names the branches
//! are asked about each, which bounds the memory.
//!
//! A cookie is the number of records before it. Every so many of them it is marked where the branch stands, so that a listing can go back
//! to any: to the mark before it, and on from there.

use std::cell::Cell;
use std::ffi::CStr;
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hashbrown::{DefaultHashBuilder, HashTable};
use parking_lot::Mutex;
use shuntfs::{Errno, LowerFile, Result};
use shuntfs_sys::dir::{DirReader, DirRecord};
use shuntfs_sys::{Device, OsError, reopen, stat_at, stat_of};

use crate::branch::MountIndex;
use crate::dir::{Lister, Records};
use crate::error::errno;
use crate::guard::Guard;
use crate::mode;
use crate::node::{Node, Place};
use crate::shared::Shared;
use crate::who::Who;

/// How many names all listings together note at most: 72 MiB. Everybody who may list folders has a share in it.
const NOTED_MAX: usize = 4 << 20;

/// How many names are noted.
#[derive(Debug, Default)]
pub(crate) struct Room(AtomicUsize);

/// One record in so many is marked: ten million names cost 2.5 MB. A reader's buffer that ends within a reply makes the kernel go back by a
/// few records at each call, and then at most so many are read again.
const MARK_EVERY: usize = 32;

/// A listing under way.
#[derive(Debug)]
pub(crate) struct State {
    /// In the order of the branches.
    readers: Vec<Reader>,
    /// Which of them is read.
    at: usize,
    /// Hashes of names; each is its own hash.
    noted: HashTable<u64>,
    /// Whether there were more names than are noted.
    asks_always: bool,
    hashes: DefaultHashBuilder,
    /// How many records were listed.
    listed: usize,
    /// Where the reader stood behind each of these that is marked.
    marks: Vec<u64>,
    /// How many records were listed when each reader that was read began.
    starts: Vec<usize>,
    /// The error of a branch that could not be read. It is told when all others are: who compares trees must not take names for
    /// gone because a disk does not answer.
    failed: Cell<Option<Errno>>,
    /// What the noted names are counted in.
    room: Arc<Room>,
}

/// The folder on one branch.
#[derive(Debug)]
struct Reader {
    mount: MountIndex,
    descriptor: Arc<LowerFile>,
    reader: DirReader,
    device: Device,
}

/// READDIR and READDIRPLUS: records from `cookie` on, until the room or the folder ends.
pub(crate) fn list(
    shared: &Shared,
    who: Who,
    (node, places): (&Arc<Node>, &[Arc<Place>]),
    held: &Mutex<Option<State>>,
    cookie: u64,
    out: &mut impl Records,
) -> Result<()> {
    let mut held = held.lock();
    if cookie == 0 {
        // From the start on it shows what there is now.
        *held = None;
    }
    let state = match &mut *held {
        Some(state) => state,
        none => none.insert(State::open(shared, node, places)),
    };
    state.seek(cookie)?;
    let guard = Guard::new(shared, who);
    let ino = node.parts().map_or(0, |parts| shared.folder_ino(node, parts));
    let numbers = shared.merge.as_ref().and_then(|merge| merge.numbers.in_folder(shared, node));
    let mut count = 0_usize;
    while let Some(reader) = state.readers.get(state.at) {
        let step = match reader.reader.peek() {
            Ok(Some(record)) if state.is_listed(&record) => state.pass(),
            Ok(Some(record)) if !out.fits(record.name.to_bytes().len()) => return Ok(()),
            Ok(Some(record)) => {
                let lister = Lister {
                    shared,
                    dir: node,
                    mount: reader.mount,
                    descriptor: Arc::clone(&reader.descriptor),
                    device: reader.device,
                    ino,
                    guard: &guard,
                    names: guard.names_in(node.id),
                    numbers,
                };
                lister.add(&DirRecord { next: state.cookie() + 1, ..record }, out);
                count += 1;
                state.take()
            }
            Ok(None) => state.fill(),
            Err(error) => Err(error),
        };
        match step {
            // What is listed already is answered; the error comes back at the next call.
            Err(_) if count > 0 => return Ok(()),
            step => step.map_err(errno)?,
        }
    }
    state.failed.get().filter(|_| count == 0).map_or(Ok(()), Err)
}

impl State {
    fn open(shared: &Shared, node: &Arc<Node>, places: &[Arc<Place>]) -> Self {
        let (mut readers, mut failed) = (Vec::new(), None);
        let in_use = shared.branches.order();
        for place in places.iter().filter(|place| in_use.contains(&place.mount().branch)) {
            match Reader::open(shared, node, place) {
                Ok(reader) => readers.push(reader),
                Err(error) => {
                    let branch = shared.branch(place.mount()).source();
                    tracing::warn!(%error, ?branch, "a listing goes without what is there");
                    failed.get_or_insert(error);
                }
            }
        }
        Self {
            readers,
            at: 0,
            noted: HashTable::new(),
            asks_always: false,
            hashes: DefaultHashBuilder::default(),
            listed: 0,
            marks: Vec::new(),
            starts: vec![0],
            failed: Cell::new(failed),
            room: shared.merge.as_ref().map(|merge| Arc::clone(&merge.room)).unwrap_or_default(),
        }
    }

    /// How many records were listed.
    fn cookie(&self) -> u64 {
        u64::try_from(self.listed).expect("64 bits fit")
    }

    /// Goes to a cookie that this listing gave; to a later one by reading on.
    fn seek(&mut self, cookie: u64) -> Result<()> {
        let back = usize::try_from(cookie).map_err(|_| Errno::INVAL)?;
        if back < self.listed {
            self.marks.truncate(back / MARK_EVERY);
            self.listed = self.marks.len() * MARK_EVERY;
            // The reader that the last of them came from.
            self.at = self.starts.partition_point(|start| *start < self.listed).saturating_sub(1);
            self.starts.truncate(self.at + 1);
            let lower = self.marks.last().copied().unwrap_or(0);
            for reader in &mut self.readers[self.at + 1..] {
                reader.reader.seek(0).map_err(errno)?;
            }
            self.readers[self.at].reader.seek(lower).map_err(errno)?;
        }
        while self.cookie() < cookie
            && let Some(reader) = self.readers.get(self.at)
        {
            let step = match reader.reader.peek() {
                Ok(Some(record)) if self.is_listed(&record) => self.pass(),
                Ok(Some(_)) => self.take(),
                Ok(None) => self.fill(),
                Err(error) => Err(error),
            };
            step.map_err(errno)?;
        }
        Ok(())
    }

    /// Whether an earlier branch lists a name.
    fn is_listed(&self, record: &DirRecord<'_>) -> bool {
        if self.at == 0 {
            return false;
        }
        // Each branch has these.
        if record.name == c"." || record.name == c".." {
            return true;
        }
        let may_be = self.asks_always || self.has_noted(self.hash(record.name));
        let has = |reader: &Reader| match stat_at(&*reader.descriptor, record.name) {
            Ok(_) => true,
            Err(OsError::NOENT) => false,
            Err(error) => {
                self.failed.set(Some(errno(error)));
                true
            }
        };
        may_be && self.readers[..self.at].iter().any(has)
    }

    fn has_noted(&self, hash: u64) -> bool {
        self.noted.find(hash, |noted| *noted == hash).is_some()
    }

    fn hash(&self, name: &CStr) -> u64 {
        self.hashes.hash_one(name.to_bytes())
    }

    /// Steps over a record that is not listed.
    fn pass(&mut self) -> shuntfs_sys::Result<()> {
        self.readers[self.at].reader.advance()
    }

    /// Steps over a record that is.
    fn take(&mut self) -> shuntfs_sys::Result<()> {
        let is_last = self.at + 1 == self.readers.len();
        let mut is_full = false;
        let reader = &mut self.readers[self.at].reader;
        if let Some(record) = reader.peek()?.filter(|_| !is_last && !self.asks_always) {
            let hash = self.hashes.hash_one(record.name.to_bytes());
            // What is listed again, after a step back, is.
            let is_noted = self.noted.find(hash, |noted| *noted == hash).is_some();
            if !is_noted {
                self.noted.insert_unique(hash, hash, |noted| *noted);
                is_full = !self.room.take();
            }
        }
        reader.advance()?;
        self.listed += 1;
        if self.listed.is_multiple_of(MARK_EVERY) {
            self.marks.push(reader.position());
        }
        if is_full {
            self.forget_noted();
        }
        Ok(())
    }

    /// Has the branches be asked about each name from now on.
    fn forget_noted(&mut self) {
        self.asks_always = true;
        self.room.give_back(self.noted.len());
        self.noted = HashTable::new();
    }

    /// Reads on, on the next branch where this one has no more.
    fn fill(&mut self) -> shuntfs_sys::Result<()> {
        match self.readers[self.at].reader.fill() {
            Ok(true) => {}
            // On this branch the folder was removed, and others have it.
            Ok(false) | Err(OsError::NOENT) => {
                self.at += 1;
                self.starts.push(self.listed);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

impl Drop for State {
    fn drop(&mut self) {
        self.room.give_back(self.noted.len());
    }
}

impl Room {
    /// Takes room for one name; whether there was any. It counts as taken in any case.
    fn take(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) < NOTED_MAX
    }

    #[cfg(test)]
    pub(super) fn taken(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn give_back(&self, count: usize) {
        self.0.fetch_sub(count, Ordering::Relaxed);
    }
}

impl Reader {
    fn open(shared: &Shared, node: &Arc<Node>, place: &Place) -> Result<Self> {
        let descriptor = shared.descriptor_at(node, place)?;
        let stat = stat_of(&descriptor).map_err(errno)?;
        let to_read = shared.to_access_at(node, place)?;
        let fd = shared.opening(|| reopen(&to_read, mode::O_RDONLY | mode::O_DIRECTORY))?;
        Ok(Self { mount: place.mount(), descriptor, reader: DirReader::new(fd), device: stat.dev })
    }
}
