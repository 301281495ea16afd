//! The connection: requests out, answers in, and who waits for which.

use std::io::IoSlice;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use shuntfs_sys::threads::MachineCpus;
use shuntfs_sys::uring::{RingEnd, RingPeer};
use shuntfs_sys::{OsError, Peer, PeerEnd};
use shuntfs_wire::{Errno, InHeader, InitFlags, Opcode, OutHeader};
use zerocopy::{FromBytes, IntoBytes};

use crate::books::Books;
use crate::breach::Rule;
use crate::notices;
use crate::requests::{self, Answer};
use crate::rings::Side;

/// The caller whose system calls these are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caller {
    /// File system user.
    pub uid: u32,
    /// File system group.
    pub gid: u32,
    /// Thread.
    pub pid: u32,
}

/// Books, and the way to the server.
#[derive(Debug)]
pub(crate) struct Kernel {
    books: Mutex<Books>,
    answered: Condvar,
    end: OnceLock<PeerEnd>,
    /// How long an answer may take.
    limit: Duration,
    /// Whether what comes from a cache is asked for again and compared.
    pub(crate) doubts: bool,
}

impl Kernel {
    pub(crate) fn new(limit: Duration, doubts: bool, root_mode: u32) -> Self {
        Self {
            books: Mutex::new(Books::new(root_mode)),
            answered: Condvar::new(),
            end: OnceLock::new(),
            limit,
            doubts,
        }
    }

    pub(crate) fn connect(&self, end: PeerEnd) {
        assert!(self.end.set(end).is_ok(), "connected once");
    }

    pub(crate) fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock()
    }

    /// Sends a request; its number.
    pub(crate) fn send(&self, caller: Caller, (opcode, node): (u32, u64), body: &[u8]) -> Result<u64, Errno> {
        let mut books = self.books();
        if books.ended {
            return Err(Errno::NOTCONN);
        }
        let unique = books.requests.begin(opcode, body);
        if let Some(opcode) = Opcode::new(opcode) {
            *books.sent.entry(opcode).or_default() += 1;
        }
        drop(books);
        self.push(unique, caller, (opcode, node), body)?;
        Ok(unique)
    }

    /// Sends the bytes of a request whose number was given out.
    pub(crate) fn push(
        &self,
        unique: u64,
        caller: Caller,
        (opcode, nodeid): (u32, u64),
        body: &[u8],
    ) -> Result<(), Errno> {
        let len = u32::try_from(InHeader::LEN + body.len()).map_err(|_| Errno::TOOBIG)?;
        let Caller { uid, gid, pid } = caller;
        let header = InHeader { len, opcode, unique, nodeid, uid, gid, pid, ..InHeader::default() };
        self.post(unique, &[header.as_bytes(), body].concat())
    }

    /// Sends a request whole, and keeps it in case that it must be sent again.
    pub(crate) fn post(&self, unique: u64, request: &[u8]) -> Result<(), Errno> {
        let mut books = self.books();
        books.requests.posted(unique, request);
        if books.goes_by_ring(unique) {
            return Ok(());
        }
        drop(books);
        self.push_raw(request)
    }

    /// Sends bytes as they are.
    pub(crate) fn push_raw(&self, request: &[u8]) -> Result<(), Errno> {
        let end = self.end.get().ok_or(Errno::NOTCONN)?;
        end.send(request).map_err(|error| match error {
            OsError::PIPE | OsError::CONNRESET => Errno::NOTCONN,
            error => Errno::from_lower(error.raw_os_error()),
        })
    }

    /// Waits for an answer. None within the limit is a breach, and ETIMEDOUT.
    pub(crate) fn wait(&self, unique: u64) -> Answer {
        let end = Instant::now() + self.limit;
        let mut books = self.books();
        loop {
            if let Some(answer) = books.requests.take(unique) {
                return answer;
            }
            if !books.requests.awaits(unique) {
                // FORGET and its like have none.
                return Ok(Vec::new());
            }
            if books.ended {
                return Err(Errno::NOTCONN);
            }
            if self.answered.wait_until(&mut books, end).timed_out() {
                let name = books.requests.give_up(unique);
                let missing = books.rings.missing().map_or_else(String::new, |queues| format!(": {queues}"));
                let what = format!("{name} (request {unique}) has no answer after {:?}{missing}", self.limit);
                books.breach(Rule::AnsweredOnce, what);
                return Err(Errno::TIMEDOUT);
            }
        }
    }

    /// Sends a request and waits for its answer.
    pub(crate) fn ask(&self, caller: Caller, what: (Opcode, u64), parts: &[&[u8]]) -> Answer {
        let (opcode, node) = what;
        let unique = self.send(caller, (opcode.number(), node), &parts.concat())?;
        self.wait(unique)
    }

    /// Nothing is sent or waited for any more.
    pub(crate) fn end(&self) {
        let mut books = self.books();
        books.ended = true;
        books.rings.end();
        drop(books);
        self.answered.notify_all();
        if let Some(end) = self.end.get() {
            end.end();
        }
    }

    /// Answers came that somebody may wait for.
    pub(crate) fn answered(&self) {
        self.answered.notify_all();
    }

    /// Takes in what rings write to the device itself, until the end.
    pub(crate) fn listen(&self) {
        let Some(end) = self.end.get() else { return };
        let mut buffer = vec![0; 1 << 20];
        while let Ok(len @ 1..) = end.take(&mut buffer) {
            // The ring was told that its write worked; what is wrong is in the books.
            let _in_the_books = self.write(&[IoSlice::new(&buffer[..len])]);
        }
    }
}

impl Peer for Kernel {
    fn write(&self, message: &[IoSlice<'_>]) -> Result<usize, OsError> {
        let bytes = message.iter().map(|piece| &**piece).collect::<Vec<&[u8]>>().concat();
        let mut books = self.books();
        let Ok((header, body)) = OutHeader::read_from_prefix(&bytes) else {
            books.breach(
                Rule::Shape,
                format!("an answer of {} bytes, which is less than its header", bytes.len()),
            );
            return Err(OsError::INVAL);
        };
        let (outcome, breach) = if header.unique == 0 {
            notices::take(&mut books, header, body, bytes.len())
        } else {
            books.requests.answer(header, body, bytes.len())
        };
        if header.unique == FIRST && outcome.is_ok() && header.error == 0 {
            books.rings_agreed(body);
        }
        books.breaches.extend(breach);
        let again = books.requests.take_again();
        drop(books);
        self.answered.notify_all();
        for request in again {
            // Where nobody can read any more, nobody answers, which is seen.
            let _sent = self.push_raw(&request);
        }
        outcome.map(|()| bytes.len())
    }

    fn was_read(&self, request: &[u8]) {
        if let Ok((header, _)) = InHeader::read_from_prefix(request) {
            self.books().requests.was_read(header.unique);
        }
    }

    fn cpus(&self) -> MachineCpus {
        self.books().rings.cpus()
    }

    fn backing_open(&self, lower: BorrowedFd<'_>) -> Result<u32, OsError> {
        let mut books = self.books();
        let agreed = books.has_agreed(InitFlags::PASSTHROUGH);
        books.backings.open(lower, agreed)
    }

    fn backing_close(&self, id: u32) -> Result<(), OsError> {
        let mut books = self.books();
        let (outcome, breach) = books.backings.close(id);
        // What the end of the connection took along may be closed after it.
        if !books.ended {
            books.breaches.extend(breach);
        }
        outcome
    }

    fn ring(self: Arc<Self>, end: RingEnd) -> Result<Arc<dyn RingPeer>, OsError> {
        Side::meet(self, end)
    }
}

/// The number of the first request, which is INIT.
pub(crate) const FIRST: u64 = 2;

/// The name of an operation, for messages.
pub(crate) fn told(opcode: Opcode, node: u64) -> String {
    format!("{} of node {node}", requests::name(opcode.number()))
}
