//! One request, and the right to answer it once.
//!
//! # Safety
//! An exchange owns its slot from the moment the loop makes it until it is consumed by one of the methods
//! that answer; the loop hands the slot back to the kernel only then. The borrow checker does the rest: names
//! and data borrow from `&self`, the reply area from `&mut self`.
#![expect(unsafe_code, reason = "requests lie in memory that the kernel fills")]

use std::future::Future;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::rc::Rc;

use shuntfs_runtime::{Queue, Token};
use shuntfs_sys::OsError;
use shuntfs_wire::{ByteRange, Errno, InHeader, ParseError, Request, Result, WriteOut};
use zerocopy::IntoBytes;

use crate::lend::{self, Judge};
use crate::port::Port;
use crate::slot::{PAGE, Parts, Slot};
use crate::splice::{SpliceRead, Spliced};

/// One request and the memory its answer is written into.
#[derive(Debug)]
pub struct Exchange {
    header: InHeader,
    parts: Parts,
    slot: Slot,
    index: u32,
    port: Rc<Port>,
}

/// A lower file that bytes are moved from or to.
#[derive(Clone, Copy, Debug)]
pub struct Lower<'a> {
    /// Open with the access that is needed.
    pub fd: BorrowedFd<'a>,
    /// Whether even a cached write may wait for long.
    pub can_block: bool,
}

/// Whether the caller of one request got a signal; apart from the request, so that its reply can be written meanwhile.
#[derive(Debug)]
pub struct Signal {
    port: Rc<Port>,
    index: u32,
}

impl Signal {
    /// Resolves when the caller got a signal, or the connection ended.
    pub fn arrived(&self) -> impl Future<Output = ()> + '_ {
        self.port.interrupt(self.index).wait()
    }
}

/// How a request was answered.
#[derive(Debug)]
#[must_use = "the transport sends the answer"]
pub struct Done(pub(crate) Outcome);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// With so many bytes of the payload.
    Reply(usize),
    Error(Errno),
    /// Not at all: the kernel expects no answer.
    Silent,
    /// Already, by the exchange.
    Sent,
    /// Already, through a pipe.
    Spliced,
    /// By a submission linked behind the read of so many bytes.
    Linked(u32),
}

impl Done {
    /// How many bytes of the payload the answer has; `None` where the kernel knows it alone: behind a linked read, or
    /// through a pipe.
    #[must_use]
    pub fn sent_len(&self) -> Option<usize> {
        match self.0 {
            Outcome::Reply(len) => Some(len),
            Outcome::Error(_) | Outcome::Silent => Some(0),
            Outcome::Sent | Outcome::Spliced | Outcome::Linked(_) => None,
        }
    }

    /// Whether the bytes went through a pipe, uncopied by us.
    #[must_use]
    pub fn was_spliced(&self) -> bool {
        self.0 == Outcome::Spliced
    }
}

/// Where READ and WRITE keep the open file's flags in their 40 bytes of arguments.
const FLAGS_OFFSET: usize = 32;

impl Exchange {
    pub(crate) fn new(header: InHeader, parts: Parts, slot: Slot, index: u32, port: Rc<Port>) -> Self {
        Self { header, parts, slot, index, port }
    }

    /// The header.
    #[must_use]
    pub fn header(&self) -> InHeader {
        self.header
    }

    /// The request, with names and data borrowed from the slot.
    ///
    /// # Errors
    /// What is wrong with it; the answer is then EIO.
    pub fn request(&self) -> std::result::Result<Request<'_>, ParseError> {
        Request::parse(
            &self.header,
            self.bytes(self.parts.fixed.clone()),
            self.bytes(self.parts.rest.clone()),
        )
    }

    /// The queue that serves it.
    #[must_use]
    pub fn queue(&self) -> &Queue {
        self.port.queue()
    }

    /// Whether it came through io_uring.
    #[must_use]
    pub fn is_ring(&self) -> bool {
        self.port.is_ring()
    }

    /// What tells whether the caller got a signal, for as long as the request is served.
    #[must_use]
    pub fn signal(&self) -> Signal {
        Signal { port: Rc::clone(&self.port), index: self.index }
    }

    /// The area that a reply is written into: page-aligned, at least as long as the longest READ. It shares
    /// memory with names and data of the request.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        // SAFETY: the slot is this exchange's, and `&mut self` ends every borrow of it.
        unsafe { self.slot.bytes_mut(PAGE..PAGE + self.slot.payload_len()) }
    }

    /// The same area, to be looked at.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        self.bytes(PAGE..PAGE + self.slot.payload_len())
    }

    /// Has `judge` look at parts of the payload, each `start` bytes further on than it is called: at the first one here, at
    /// the others meanwhile on the offload pool. The outcomes come in the order of the parts.
    pub async fn examine<T: Send + 'static>(
        &self,
        start: usize,
        parts: &[Range<usize>],
        judge: &Judge<T>,
    ) -> Vec<T> {
        lend::examine(self.queue(), &self.payload()[start..], parts, judge).await
    }

    /// Answers with the first `len` bytes of the payload.
    pub fn reply(self, len: usize) -> Done {
        assert!(len <= self.slot.payload_len(), "a reply of {len} bytes");
        Done(Outcome::Reply(len))
    }

    /// Answers with an error.
    pub fn error(self, errno: Errno) -> Done {
        Done(Outcome::Error(errno))
    }

    /// Does not answer, as FORGET wants it.
    pub fn silent(self) -> Done {
        Done(Outcome::Silent)
    }

    /// Reads a lower file into the payload from `start` on; at most as much as fits there, fewer at the file's end.
    ///
    /// # Errors
    /// Those of reading.
    pub async fn read_lower(&mut self, start: usize, lower: Lower<'_>, at: ByteRange) -> Result<usize> {
        let len = at.len.min(clip(self.slot.payload_len().saturating_sub(start)));
        let (port, direct) = (Rc::clone(&self.port), self.is_direct());
        if port.takes_ring(lower, direct) {
            if !direct && port.read_cached(lower.fd, self.room(start, len), at.offset) {
                return Ok(len as usize);
            }
            let into = self.room(start, len).as_mut_ptr();
            // SAFETY: the payload is this exchange's while `&mut self` is borrowed by this future.
            return unsafe { port.queue().read(lower.fd, (into, len), at.offset) }.await.map_err(from_os);
        }
        let alone = direct && port.queue().has_ring();
        port.read_plain(lower.fd, self.room(start, len), at.offset, alone).map_err(from_os)
    }

    /// Writes a part of the data of a WRITE to a lower file.
    ///
    /// # Errors
    /// Those of writing; EINVAL where the request has no such data.
    pub async fn write_lower(&self, part: Range<usize>, lower: Lower<'_>, offset: u64) -> Result<usize> {
        let data = self.bytes(self.parts.rest.clone()).get(part).ok_or(Errno::INVAL)?;
        let direct = self.is_direct();
        let outcome = if (direct || lower.can_block) && self.port.takes_ring(lower, direct) {
            let len = u32::try_from(data.len()).map_err(|_| Errno::INVAL)?;
            // SAFETY: the data is this exchange's and borrowed by this future.
            unsafe { self.port.queue().write(lower.fd, (data.as_ptr(), len), offset) }.await
        } else {
            // Cached writes end in the page cache, and one that comes alone has nobody to keep waiting: one plain
            // call is cheaper than a turn of the ring.
            self.port.write_plain(lower, data, offset)
        };
        outcome.map_err(from_os)
    }

    /// Answers a READ with the bytes of a lower file: on a ring in one submission, on a device by splice
    /// where that pays.
    pub async fn relay_read(mut self, lower: Lower<'_>, at: ByteRange) -> Done {
        let fd = lower.fd;
        let len = at.len.min(clip(self.slot.payload_len()));
        if self.port.is_ring() && len > 0 {
            self.port.prepare_answer(self.slot, self.header.unique, Ok(len as usize));
            let token = Token::Link(self.index).encode();
            let into = (self.slot.payload().as_ptr(), len);
            // SAFETY: the slot stays out of the kernel's and everybody's hands until the next request or the broken link shows:
            // `Outcome::Linked` tells the loop so.
            self.port.queue().with_ring(|ring| unsafe { ring.push_read(fd, into, at.offset, token, true) });
            self.port.push_commit(self.slot, self.index);
            return Done(Outcome::Linked(len));
        }
        match self.splice_read(lower, at.offset, len) {
            Spliced::Sent => return Done(Outcome::Spliced),
            Spliced::Copied(len) => return self.reply(len),
            Spliced::No => {}
        }
        match self.read_lower(0, lower, at).await {
            Ok(len) => self.reply(len),
            Err(errno) => self.error(errno),
        }
    }

    /// Answers a WRITE by writing its data to a lower file.
    pub async fn relay_write(mut self, lower: Lower<'_>, offset: u64) -> Done {
        let all = 0..self.parts.rest.len();
        match self.write_lower(all, lower, offset).await.map(u32::try_from) {
            Ok(Ok(size)) => {
                let out = WriteOut { size, padding: 0 };
                let bytes = out.as_bytes();
                self.payload_mut()[..bytes.len()].copy_from_slice(bytes);
                self.reply(size_of::<WriteOut>())
            }
            Ok(Err(_)) => self.error(Errno::IO),
            Err(errno) => self.error(errno),
        }
    }

    fn splice_read(&mut self, lower: Lower<'_>, offset: u64, len: u32) -> Spliced {
        if self.port.is_ring() || self.is_direct() {
            // Direct I/O goes straight to the payload; spliced, the lower file would copy it to pages first.
            return Spliced::No;
        }
        let Lower { fd, can_block } = lower;
        let read = SpliceRead { fd, offset, len, unique: self.header.unique, can_block };
        let port = Rc::clone(&self.port);
        port.splice_read(&read, self.payload_mut())
    }

    /// A part of the payload.
    fn room(&mut self, start: usize, len: u32) -> &mut [u8] {
        &mut self.payload_mut()[start..][..len as usize]
    }

    fn is_direct(&self) -> bool {
        has_direct(self.bytes(self.parts.fixed.clone()))
    }

    fn bytes(&self, range: std::ops::Range<usize>) -> &[u8] {
        // SAFETY: the slot is this exchange's; a mutable borrow would need `&mut self`.
        unsafe { self.slot.bytes(range) }
    }
}

/// Whether the arguments of a READ or a WRITE say that the file is open for direct I/O.
pub(crate) fn has_direct(args: &[u8]) -> bool {
    let flags = args.get(FLAGS_OFFSET..FLAGS_OFFSET + 4).and_then(|bytes| bytes.try_into().ok());
    flags.is_some_and(|flags| u32::from_ne_bytes(flags) & shuntfs_sys::open::O_DIRECT != 0)
}

fn clip(room: usize) -> u32 {
    u32::try_from(room).unwrap_or(u32::MAX)
}

fn from_os(error: OsError) -> Errno {
    Errno::from_lower(error.raw_os_error())
}
