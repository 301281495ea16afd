//! One request, and the right to answer it once.
//!
//! An exchange has the slot of its request until it answers. What the kernel or a thread does with the slot's memory meanwhile is
//! counted there and outlives the future that began it: see `shuntfs_runtime::Slot`. The borrow checker does the rest: names
//! and data borrow from `&self`, the reply area from `&mut self`.

use std::future::Future;
use std::ops::Range;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;

use shuntfs_runtime::{Queue, Slot};
use shuntfs_sys::OsError;
use shuntfs_wire::{ByteRange, Errno, InHeader, Opcode, ParseError, Request, Result, WriteOut};
use zerocopy::IntoBytes;

use crate::lower::LowerFile;
use crate::port::{Port, Waiting};
use crate::slot::{PAGE, Parts, payload};
use crate::splice::{SpliceRead, Spliced};

/// One request and the memory its answer is written into.
#[derive(Debug)]
pub struct Exchange {
    pub(crate) header: InHeader,
    pub(crate) parts: Parts,
    pub(crate) slot: Slot,
    pub(crate) port: Rc<Port>,
    /// What was read last went to the request's pages, and not to its payload.
    pub(crate) has_moved: bool,
}

/// What looks at a part of the bytes, and is told which part it is.
pub type Judge<T> = Arc<dyn Fn(&[u8], Range<usize>) -> T + Send + Sync>;

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
            Outcome::Spliced | Outcome::Linked(_) => None,
        }
    }

    /// The error that it was answered with, as far as that is known here.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match self.0 {
            Outcome::Error(errno) => Some(errno),
            _ => None,
        }
    }

    /// Whether the answer leaves by itself, behind the read that it is linked to.
    #[must_use]
    pub fn is_linked(&self) -> bool {
        matches!(self.0, Outcome::Linked(_))
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
    pub(crate) fn new(header: InHeader, parts: Parts, slot: Slot, port: Rc<Port>) -> Self {
        Self { header, parts, slot, port, has_moved: false }
    }

    /// The header.
    #[must_use]
    pub fn header(&self) -> InHeader {
        self.header
    }

    /// The request, with names and data borrowed from the slot. Of a WRITE that [`Exchange::has_unseen_data`] the data means nothing.
    ///
    /// # Errors
    /// What is wrong with it; the answer is then EIO.
    pub fn request(&self) -> std::result::Result<Request<'_>, ParseError> {
        Request::parse(
            &self.header,
            self.slot.bytes(self.parts.fixed.clone()),
            self.slot.bytes(self.parts.rest.clone()),
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

    /// The request begins to wait for another one, if the queue has room for others beside all that do. What ends the waiting, an
    /// unlock, needs a slot, too: an eighth of them is kept.
    #[must_use]
    pub fn begin_to_wait(&self) -> Option<Waiting<'_>> {
        self.port.begin_to_wait(self.slot.index())
    }

    /// What tells whether the caller got a signal, for as long as the request is served.
    #[must_use]
    pub fn signal(&self) -> Signal {
        Signal { port: Rc::clone(&self.port), index: self.slot.index() }
    }

    /// The area that a reply is written into: page-aligned, at least as long as the longest READ. It shares
    /// memory with names and data of the request.
    ///
    /// # Panics
    /// Where an operation still uses it whose future was dropped or leaked: see [`Exchange::settled`]. Where there is none: the kernel has room
    /// for none of an answer without bytes, and [`Exchange::with_payload`] gives one to a READ by zero copy.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let all = PAGE..self.slot.size();
        self.slot.bytes_mut(all)
    }

    /// The same area, to be looked at.
    ///
    /// # Panics
    /// Where an operation still writes there whose future was dropped or leaked.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        self.slot.bytes(PAGE..self.slot.size())
    }

    /// How long that area is.
    #[must_use]
    pub fn payload_len(&self) -> usize {
        self.slot.size() - PAGE
    }

    /// Resolves when nobody else uses the request's memory; operations that nobody awaits any more are asked to end.
    pub async fn settled(&self) {
        self.slot.settled().await;
    }

    /// Whether nobody else uses the request's memory.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.slot.is_free()
    }

    /// Has `judge` look at parts of the payload, each `start` bytes further on than it is called: at the first one here, at
    /// the others meanwhile on the offload pool. The outcomes come in the order of the parts.
    pub async fn examine<T: Send + 'static>(
        &self,
        start: usize,
        parts: &[Range<usize>],
        judge: &Judge<T>,
    ) -> Vec<T> {
        let Some((first, others)) = parts.split_first() else { return Vec::new() };
        let mut elsewhere = Vec::with_capacity(others.len());
        for part in others {
            let lent = self.slot.lend(payload(start + part.start, part.len()));
            let (judge, part) = (Arc::clone(judge), part.clone());
            elsewhere.push(self.queue().offload(move || judge(lent.bytes(), part)));
        }
        let mut outcomes = Vec::with_capacity(parts.len());
        outcomes.push(judge(self.slot.bytes(payload(start + first.start, first.len())), first.clone()));
        for outcome in elsewhere {
            outcomes.push(outcome.await);
        }
        outcomes
    }

    /// Answers with the first `len` bytes of the payload.
    pub fn reply(self, len: usize) -> Done {
        assert!(len <= self.payload_len(), "a reply of {len} bytes");
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
    /// Those of reading; EBUSY where somebody still uses the payload.
    pub async fn read_lower(&mut self, start: usize, lower: &Arc<LowerFile>, at: ByteRange) -> Result<usize> {
        let len = at.len.min(clip(self.payload_len().saturating_sub(start)));
        let (direct, part) = (self.is_direct(), payload(start, len as usize));
        // Borrowed and not counted: a future that is leaked must not keep the port when its thread ends.
        let Self { port, slot, .. } = self;
        if port.takes_ring(lower) {
            if !direct && port.read_cached(lower, slot.bytes_mut(part.clone()), at.offset) {
                return Ok(len as usize);
            }
            return slot.read_file(lower, part, at.offset).await.map_err(from_os);
        }
        let alone = direct && port.queue().has_ring();
        port.read_plain(lower, slot.bytes_mut(part), at.offset, alone).map_err(from_os)
    }

    /// Writes a part of the data of a WRITE to a lower file, wherever it lies.
    ///
    /// # Errors
    /// Those of writing; EINVAL where the request has no such data.
    pub async fn write_lower(
        &self,
        part: Range<usize>,
        lower: &Arc<LowerFile>,
        offset: u64,
    ) -> Result<usize> {
        let Range { start, end } = self.parts.rest;
        if part.start > part.end || part.end > end - start {
            return Err(Errno::INVAL);
        }
        if self.parts.in_pages {
            // On the heap, as every other WRITE would have to have room for it.
            return Box::pin(self.write_pages(part, lower, offset)).await;
        }
        let (part, direct) = (start + part.start..start + part.end, self.is_direct());
        let outcome = if (direct || lower.can_block()) && self.port.takes_ring(lower) {
            self.slot.write_file(lower, part, offset).await
        } else {
            // Cached writes end in the page cache, and one that comes alone has nobody to keep waiting: one plain
            // call is cheaper than a turn of the ring.
            self.port.write_plain(lower, self.slot.bytes(part), offset)
        };
        outcome.map_err(from_os)
    }

    /// Answers a READ with the bytes of a lower file: on a ring in one submission, on a device by splice
    /// where that pays.
    pub async fn relay_read(mut self, lower: &Arc<LowerFile>, at: ByteRange) -> Done {
        let len = at.len.min(clip(self.payload_len()));
        if self.parts.in_pages && len > 0 {
            return self.relay_to_pages(lower, ByteRange { len, ..at });
        }
        if self.port.is_ring() && len > 0 {
            self.port.commit_after_read(self.slot, self.header.unique, lower, ByteRange { len, ..at });
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
    pub async fn relay_write(mut self, lower: &Arc<LowerFile>, offset: u64) -> Done {
        let all = 0..self.parts.rest.len();
        match self.write_lower(all, lower, offset).await.map(u32::try_from) {
            Ok(Ok(size)) => {
                lower.count_written(u64::from(size));
                let out = WriteOut { size, padding: 0 };
                let bytes = out.as_bytes();
                self.payload_mut()[..bytes.len()].copy_from_slice(bytes);
                self.reply(size_of::<WriteOut>())
            }
            Ok(Err(_)) => self.error(Errno::IO),
            Err(errno) => self.error(errno),
        }
    }

    fn splice_read(&mut self, lower: &LowerFile, offset: u64, len: u32) -> Spliced {
        if self.port.is_ring() || self.is_direct() {
            // Direct I/O goes straight to the payload; spliced, the lower file would copy it to pages first.
            return Spliced::No;
        }
        let read = SpliceRead {
            fd: lower.as_fd(),
            offset,
            len,
            unique: self.header.unique,
            can_block: lower.can_block(),
        };
        let all = PAGE..self.slot.size();
        self.port.splice_read(&read, self.slot.bytes_mut(all))
    }

    fn is_direct(&self) -> bool {
        has_direct(self.slot.bytes(self.parts.fixed.clone()))
    }
}

/// Whether a request is a READ or a WRITE of a file that is open for direct I/O.
pub(crate) fn is_direct(opcode: Option<Opcode>, args: &[u8]) -> bool {
    // A name has any bytes where these have their flags.
    matches!(opcode, Some(Opcode::Read | Opcode::Write)) && has_direct(args)
}

/// Whether the arguments of a READ or a WRITE say that the file is open for direct I/O.
fn has_direct(args: &[u8]) -> bool {
    let flags = args.get(FLAGS_OFFSET..FLAGS_OFFSET + 4).and_then(|bytes| bytes.try_into().ok());
    flags.is_some_and(|flags| u32::from_ne_bytes(flags) & shuntfs_sys::open::O_DIRECT != 0)
}

fn clip(room: usize) -> u32 {
    u32::try_from(room).unwrap_or(u32::MAX)
}

pub(crate) fn from_os(error: OsError) -> Errno {
    Errno::from_lower(error.raw_os_error())
}

#[cfg(test)]
mod test {
    use super::*;

    /// A name whose bytes have the flag's bit was taken for a direct READ.
    #[test]
    fn only_reads_and_writes_are_direct() {
        let mut args = [0; 40];
        args[FLAGS_OFFSET..FLAGS_OFFSET + 4].copy_from_slice(&shuntfs_sys::open::O_DIRECT.to_ne_bytes());
        for opcode in [Opcode::Read, Opcode::Write] {
            assert!(is_direct(Some(opcode), &args) && !is_direct(Some(opcode), &[0; 40]));
        }
        for opcode in [Some(Opcode::Lookup), Some(Opcode::Create), None] {
            assert!(!is_direct(opcode, &args));
        }
    }
}
