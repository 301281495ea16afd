//! Requests that are under way, and what came of them, so that one that comes again is answered as if no server had died.
//!
//! A slot is written before its request is served, again when there is a result, and is another request's when the answer has been sent: by
//! then the kernel has it, and does not send the request again. So of a request that comes again it is known that it was never begun (no
//! slot), that it was begun and nobody knows how far it came, or what must be answered.
//!
//! Slots of a predecessor of which nobody asks stay as they are: their requests were answered, or their callers are dead, and which of the
//! two cannot be told. They are few, as many as requests were under way at a death.
//!
//! What was begun may have a note of the file system's, made before the change that it is about. It has a place that no answer takes.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use shuntfs_wire::abi::UNIQUE_RESEND;
use shuntfs_wire::{Errno, InHeader, Opcode};

use super::layout::{REQUESTS, Store, StoreError, check_of, word_of};
use crate::takeover::surviving::Deaths;

const UNIQUE: usize = 1;
const HOW: usize = 2;
const REPLY: usize = 3;
/// The longest reply that is kept, in bytes.
const REPLY_MAX: usize = 27 * 8;
/// The last two words of a slot.
const NOTE: usize = REPLY + REPLY_MAX / 8;

const BEGUN: u8 = 1;
const DONE: u8 = 2;
const NOTED: u8 = 3;

/// What a file system notes of a request.
pub(crate) type Note = [u64; 2];

/// A queue takes so many slots at once.
const BATCH: usize = 16;

/// Of the requests of one mount.
#[derive(Debug)]
pub(crate) struct Requests {
    store: Arc<Store>,
    server: u32,
    /// How many servers a request may kill.
    deaths: Deaths,
    free: Mutex<Vec<u32>>,
    /// Slots of predecessors, by the numbers of their requests.
    left: Mutex<HashMap<u64, u32>>,
    /// Requests that are served here and that a predecessor had begun, with what was noted.
    again: Mutex<HashMap<u64, Option<Note>>>,
}

/// What is known of a request when it is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Begun {
    /// It must be served, and noted in this slot.
    Serve(u32),
    /// It was done, and the answer is in this slot.
    Answer(u32),
    /// So many servers died of it that no other one is to try.
    Refuse(u32),
    /// There is no slot left: it is served, and nobody could know it again.
    Unnoted,
}

/// A slot as it is written down.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Found {
    pub(super) index: u32,
    pub(super) unique: u64,
    pub(super) opcode: u16,
    pub(super) deaths: u8,
    pub(super) server: u32,
    /// The error number and the length of the answer; `None` where it is not known how far the request came.
    pub(super) result: Option<(u16, u16)>,
    pub(super) note: Option<Note>,
}

impl Requests {
    /// Those of a store. Also the numbers of requests that opened something and had no result yet.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(crate) fn take(
        store: &Arc<Store>,
        server: u32,
        deaths: Deaths,
    ) -> Result<(Self, HashSet<u64>), StoreError> {
        let mut found = store.found_requests()?;
        found.sort_by_key(|slot| slot.server);
        // The oldest are those that were answered long ago.
        let over = found.len().saturating_sub(REQUESTS.count as usize / 2);
        found.drain(..over);
        let unfinished = found.iter().filter(|slot| slot.result.is_none()).map(|slot| slot.unique).collect();
        let left: HashMap<u64, u32> = found.iter().map(|slot| (slot.unique, slot.index)).collect();
        let used: HashSet<u32> = found.iter().map(|slot| slot.index).collect();
        let free = (0..REQUESTS.count).rev().filter(|index| !used.contains(index)).collect();
        let requests = Self {
            store: Arc::clone(store),
            server,
            deaths,
            free: Mutex::new(free),
            left: Mutex::new(left),
            again: Mutex::default(),
        };
        Ok((requests, unfinished))
    }

    /// A request was read. `own` are free slots of the queue's.
    pub(crate) fn begin(&self, header: &InHeader, own: &RefCell<Vec<u32>>) -> Begun {
        let opcode = u16::try_from(header.opcode).unwrap_or(u16::MAX);
        let unique = header.unique & !UNIQUE_RESEND;
        if header.is_resent()
            && let Some(begun) = self.begin_again(unique, opcode)
        {
            return begun;
        }
        let Some(index) = self.slot(&mut own.borrow_mut()) else { return Begun::Unnoted };
        self.store.request_begins(index, unique, (opcode, 0), (self.server, None));
        Begun::Serve(index)
    }

    /// A request that a predecessor had read, if it had come so far as to note it.
    fn begin_again(&self, unique: u64, opcode: u16) -> Option<Begun> {
        let index = self.left.lock().remove(&unique)?;
        let found = self.store.found_request(index).ok().flatten();
        let found = found.filter(|found| found.unique == unique && found.opcode == opcode)?;
        if found.result.is_some() {
            return Some(Begun::Answer(index));
        }
        // One that waits for a lock is there whenever a server dies, of whatever that was.
        let waits = u32::from(opcode) == Opcode::Setlkw as u32;
        let deaths = match self.deaths.anew {
            true => 0,
            false if waits => found.deaths,
            false => found.deaths.saturating_add(1),
        };
        self.store.request_begins(index, unique, (opcode, deaths), (self.server, found.note));
        if deaths >= self.deaths.max {
            let name = Opcode::new(opcode.into()).map_or("an unknown operation", Opcode::name);
            tracing::error!(name, unique, deaths, "a request that servers die of is answered EIO");
            return Some(Begun::Refuse(index));
        }
        self.again.lock().insert(unique, found.note);
        Some(Begun::Serve(index))
    }

    fn slot(&self, own: &mut Vec<u32>) -> Option<u32> {
        if own.is_empty() {
            let mut free = self.free.lock();
            let from = free.len().saturating_sub(BATCH);
            own.extend(free.drain(from..));
        }
        own.pop()
    }

    /// Whether a predecessor had begun to serve a request, and nobody knows how far it came.
    pub(crate) fn is_begun_again(&self, header: &InHeader) -> bool {
        header.is_resent() && self.again.lock().contains_key(&(header.unique & !UNIQUE_RESEND))
    }

    /// What a predecessor had noted of a request that it had begun.
    pub(crate) fn note_of(&self, header: &InHeader) -> Option<Note> {
        let unique = header.is_resent().then_some(header.unique & !UNIQUE_RESEND)?;
        self.again.lock().get(&unique).copied().flatten()
    }

    /// Notes something of a request that is being served, once. Looks through all slots: for what is rare.
    pub(crate) fn note(&self, header: &InHeader, note: Note) {
        self.store.request_is_noted(header.unique & !UNIQUE_RESEND, note);
    }

    /// There is a result, and it is about to be answered. One that is longer than what is kept is found out again.
    pub(crate) fn done(&self, index: u32, errno: Option<Errno>, reply: &[u8]) {
        if reply.len() <= REPLY_MAX {
            self.store.request_is_done(index, errno.map_or(0, Errno::get), reply, self.server);
        }
    }

    /// What was answered, or must be: it is put into `room`.
    pub(crate) fn answer(&self, index: u32, room: &mut [u8]) -> Result<usize, Errno> {
        let found = self.store.found_request(index).ok().flatten();
        let (error, len) = found.and_then(|found| found.result).ok_or(Errno::IO)?;
        if error != 0 {
            return Err(Errno::new(error).unwrap_or(Errno::IO));
        }
        let room = room.get_mut(..usize::from(len)).ok_or(Errno::IO)?;
        for (place, bytes) in room.chunks_mut(8).enumerate() {
            let word = self.store.get(REQUESTS.at(index) + REPLY + place).to_le_bytes();
            bytes.copy_from_slice(&word[..bytes.len()]);
        }
        Ok(room.len())
    }

    /// A request was not begun after all.
    pub(crate) fn forget(&self, index: u32) {
        self.store.publish(REQUESTS.at(index), 0);
    }

    /// The slot is free as soon as what is about to be sent has been: before the queue begins another request.
    pub(crate) fn end(&self, index: u32, header: &InHeader, own: &RefCell<Vec<u32>>) {
        if header.is_resent() {
            self.again.lock().remove(&(header.unique & !UNIQUE_RESEND));
        }
        own.borrow_mut().push(index);
    }
}

/// Whether the result of an operation is kept. What only reads is done again.
pub(crate) fn keeps_result(opcode: Option<Opcode>) -> bool {
    use Opcode as O;
    let reads = [O::Read, O::Write, O::Getattr, O::Statx, O::Readlink, O::Readdir, O::Readdirplus, O::Statfs];
    let reads_too = [O::Getxattr, O::Listxattr, O::Access, O::Lseek, O::Getlk, O::Poll, O::Bmap];
    opcode.is_some_and(|opcode| !reads.contains(&opcode) && !reads_too.contains(&opcode))
}

impl Store {
    fn request_begins(
        &self,
        index: u32,
        unique: u64,
        (opcode, deaths): (u16, u8),
        (server, note): (u32, Option<Note>),
    ) {
        let at = REQUESTS.at(index);
        let is_same = self.get(at + UNIQUE) == unique && self.get(at) != 0;
        if !is_same {
            self.publish(at, 0);
            self.publish(at + UNIQUE, unique);
        }
        self.put(at + HOW, server.into());
        // Its note, if any, is where it was.
        let phase = if note.is_some() { NOTED } else { BEGUN };
        let words = [unique].into_iter().chain(note.into_iter().flatten());
        self.publish(at, state(at, (phase, deaths, opcode), words));
    }

    fn request_is_noted(&self, unique: u64, note: Note) {
        let is_it = |at: &usize| self.get(at + UNIQUE) == unique && self.get(*at).to_le_bytes()[0] == BEGUN;
        let Some(at) = (0..REQUESTS.count).map(|index| REQUESTS.at(index)).find(is_it) else { return };
        for (place, word) in note.into_iter().enumerate() {
            self.put(at + NOTE + place, word);
        }
        let [_, deaths, low, high, ..] = self.get(at).to_le_bytes();
        let parts = (NOTED, deaths, u16::from_le_bytes([low, high]));
        self.publish(at, state(at, parts, [unique].into_iter().chain(note)));
    }

    fn request_is_done(&self, index: u32, error: u16, reply: &[u8], server: u32) {
        let at = REQUESTS.at(index);
        let how = u64::from(server) | (reply.len() as u64) << 32 | u64::from(error) << 48;
        let [_, deaths, low, high, ..] = self.get(at).to_le_bytes();
        let unique = self.get(at + UNIQUE);
        let (whole, rest) = reply.as_chunks::<8>();
        let words = whole.iter().map(|word| u64::from_le_bytes(*word));
        let words = words.chain((!rest.is_empty()).then(|| word_of(rest)));
        // They are written where they are counted into the check.
        let written = words.enumerate().map(|(place, word)| {
            self.put(at + REPLY + place, word);
            word
        });
        self.put(at + HOW, how);
        let parts = (DONE, deaths, u16::from_le_bytes([low, high]));
        self.publish(at, state(at, parts, [unique, how].into_iter().chain(written)));
    }

    pub(super) fn found_requests(&self) -> Result<Vec<Found>, StoreError> {
        (0..REQUESTS.count).filter_map(|index| self.found_request(index).transpose()).collect()
    }

    pub(super) fn found_request(&self, index: u32) -> Result<Option<Found>, StoreError> {
        let at = REQUESTS.at(index);
        let is = self.get(at);
        if is == 0 {
            return Ok(None);
        }
        let wrong = || StoreError::Record { what: REQUESTS.what, index, why: "it is not what was written" };
        let [phase, deaths, low, high, ..] = is.to_le_bytes();
        let opcode = u16::from_le_bytes([low, high]);
        let (unique, how) = (self.get(at + UNIQUE), self.get(at + HOW));
        let [.., len_low, len_high, error_low, error_high] = how.to_le_bytes();
        let (len, error) =
            (u16::from_le_bytes([len_low, len_high]), u16::from_le_bytes([error_low, error_high]));
        let server = u32::try_from(how & u64::from(u32::MAX)).unwrap_or(0);
        let parts = (phase, deaths, opcode);
        let note = [0, 1].map(|place| self.get(at + NOTE + place));
        let note = (phase == NOTED).then_some(note);
        let (expected, result) = match phase {
            BEGUN | NOTED => (state(at, parts, [unique].into_iter().chain(note.into_iter().flatten())), None),
            DONE if usize::from(len) <= REPLY_MAX => {
                let words = (0..usize::from(len).div_ceil(8)).map(|place| self.get(at + REPLY + place));
                (state(at, parts, [unique, how].into_iter().chain(words)), Some((error, len)))
            }
            _ => return Err(wrong()),
        };
        if is != expected {
            return Err(wrong());
        }
        Ok(Some(Found { index, unique, opcode, deaths, server, result, note }))
    }
}

/// The word that makes a slot valid: its phase, how many servers died of it, the operation, and a check of the rest.
fn state(at: usize, (phase, deaths, opcode): (u8, u8, u16), words: impl IntoIterator<Item = u64>) -> u64 {
    let [low, high] = opcode.to_le_bytes();
    let parts = u64::from(u32::from_le_bytes([phase, deaths, low, high]));
    let check = check_of(at as u64, std::iter::once(parts).chain(words));
    // One that happens to be zero is no other than that of 1: a slot is never taken for a free one, because the phase is not zero.
    check << 32 | parts
}
