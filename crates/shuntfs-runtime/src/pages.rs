//! The pages of a request that a driver has put into the ring's table of buffers, at the place that has the slot's number: bytes move between
//! them and a file, and nobody here sees them.
//!
//! # Safety
//! Such an operation names no memory of ours. The slot is in use until it has completed, so its request is not answered before, and nothing
//! touches the pages after that.
#![expect(unsafe_code, reason = "submissions are pushed")]

use std::ops::Range;
use std::sync::Arc;

use shuntfs_sys::Result;
use shuntfs_sys::uring::{Submission, UringCommand};

use crate::hold::Use;
use crate::ops::Memory;
use crate::queue::RingFile;
use crate::ring_op::RingOp;
use crate::slots::Slot;
use crate::token::Token;

impl Slot {
    /// Reads a file at `offset` into a part of the pages; fewer bytes at the file's end.
    ///
    /// # Errors
    /// Those of reading; EFAULT where the request has no such pages, EBUSY where somebody still uses the slot.
    pub async fn read_to_pages<F>(&mut self, file: &Arc<F>, part: Range<u32>, offset: u64) -> Result<usize>
    where
        F: RingFile,
    {
        let of = |token: u64, place| Submission::read_to_pages(file.as_fd(), (place, part), offset, token);
        if !self.is_free() {
            return Err(shuntfs_sys::OsError::BUSY);
        }
        self.move_pages(file, of, Use::Writes).await
    }

    /// Writes a part of the pages to a file at `offset`.
    ///
    /// # Errors
    /// Those of writing; EFAULT where the request has no such pages, EBUSY where somebody still writes to the slot.
    pub async fn write_from_pages<F>(&self, file: &Arc<F>, part: Range<u32>, offset: u64) -> Result<usize>
    where
        F: RingFile,
    {
        let of = |token: u64, place| Submission::write_from_pages(file.as_fd(), (place, part), offset, token);
        if !self.hold().is_readable() {
            return Err(shuntfs_sys::OsError::BUSY);
        }
        self.move_pages(file, of, Use::Reads).await
    }

    async fn move_pages<F>(
        &self,
        file: &Arc<F>,
        of: impl FnOnce(u64, u16) -> Submission,
        what: Use,
    ) -> Result<usize>
    where
        F: RingFile,
    {
        let place = self.place_in_table();
        // Neither touches the slot's memory, but the request must not be answered meanwhile.
        self.hold().begin(what);
        let index = self.queue().ops().borrow_mut().add(Memory::Slot(self.index(), what));
        self.push(file, of(Token::Op(index).encode(), place));
        RingOp::new(self.queue(), index).await.map(|(count, _)| count)
    }

    /// Gives the slot to the queue's device with a command, behind a read of a file into a part of the pages, as
    /// [`Slot::command_after_read`] does with memory.
    ///
    /// # Safety
    /// As of [`Slot::command`].
    pub unsafe fn command_after_pages<F>(
        self,
        file: &Arc<F>,
        (part, offset): (Range<u32>, u64),
        command: &UringCommand,
    ) where
        F: RingFile,
    {
        let token = Token::Link(self.index()).encode();
        let read = Submission::read_to_pages(file.as_fd(), (self.place_in_table(), part), offset, token);
        let read = read.by_worker(file.waits());
        let command = self.give(command);
        self.queue().keep_until_submitted(file);
        // SAFETY: the slot's memory is the kernel's until one of the two completes, and the device outlives the ring.
        self.queue().with_ring(|ring| unsafe { ring.push_linked(read, command) });
    }

    /// Where the driver puts the pages of this slot's requests.
    ///
    /// # Panics
    /// Where the slot's number is beyond 65,535, and no table has such a place.
    #[must_use]
    pub fn place_in_table(&self) -> u16 {
        u16::try_from(self.index()).expect("a table has 16,384 places at most")
    }
}
