//! The memory of a queue's requests: one region, a stretch of it for each slot, and behind them the buffers of a pool, where there is one.
//!
//! A slot that is pooled has only the head of its stretch; what comes behind the head is the buffer that it has at the time, or nothing.
//!
//! # Safety
//! A slot's memory is reached through its one [`Slot`], which whoever serves the request has, and by those whose uses its
//! [`Hold`] counts: the kernel and threads. A use that changes the memory excludes all others; each access here asks first, and
//! a use never begins beside a borrow of the [`Slot`] that it would contradict. A buffer of the pool is one slot's, from [`Slot::take_buffer`]
//! until the slot is given to the kernel. A region whose memory somebody still uses is never unmapped. What is pinned is never given back to
//! the system: other pages would come to lie there, and the kernel would go on with the old ones.
#![expect(unsafe_code, reason = "the kernel fills memory that requests are read from")]

use std::cell::Cell;
use std::future::poll_fn;
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::task::Poll;

use shuntfs_sys::Result;
use shuntfs_sys::region::Region;
use shuntfs_sys::uring::{Submission, UringCommand};

use crate::hold::{Hold, Use};
use crate::ops::Memory;
use crate::queue::{Queue, RingFile};
use crate::ready::Ready;
use crate::ring_op::RingOp;
use crate::token::Token;

mod of_queue;

/// The memory of all slots of a queue.
#[derive(Debug)]
pub struct Slots {
    region: Arc<Region>,
    len: usize,
    states: Box<[SlotState]>,
    /// The part of each slot that stays in memory.
    warm: Range<usize>,
    /// Whether memory is given back, or put into huge pages. Not where it is more than this process's.
    is_own: bool,
    /// Whether all of a slot must be in memory before a request is read into it; of how many it is.
    warms_whole: bool,
    warm_count: Cell<usize>,
    pool: Pool,
}

#[derive(Debug)]
struct SlotState {
    hold: Arc<Hold>,
    /// Whether there is a [`Slot`] of it.
    is_taken: Cell<bool>,
    /// Whether all of it is in memory, because a request was to be read into it since memory was given back.
    is_warm: Cell<bool>,
    behind: Cell<Behind>,
    /// The buffer that it had last.
    last: Cell<Option<u32>>,
}

/// What lies behind a slot's head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Behind {
    /// The rest of its stretch.
    Own,
    /// Nothing, until it takes a buffer.
    Nothing,
    /// The pool's buffer with this number.
    Buffer(u32),
}

/// Payload buffers, behind the slots' stretches.
#[derive(Debug, Default)]
struct Pool {
    /// How long the head of a pooled slot is.
    head_len: usize,
    /// By buffer, whether a slot has it.
    taken: Box<[Cell<bool>]>,
    /// How many of them, from the first on, are pinned.
    pinned: Cell<u32>,
}

/// The right to a slot's memory, and to end what it serves. There is at most one of each slot.
#[derive(Debug)]
pub struct Slot {
    queue: Queue,
    index: u32,
}

/// A part of a slot's memory that was lent to another thread, to be read.
#[derive(Debug)]
pub struct Lent {
    region: Arc<Region>,
    part: Range<usize>,
    hold: Arc<Hold>,
}

impl Slots {
    /// Memory for `count` slots of `len` bytes each, a multiple of the page size, whose wakers tell `ready`. It is used as it is
    /// written.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn reserve(count: usize, len: usize, ready: &Arc<Ready>) -> Result<Self> {
        Self::reserve_with_pool(count, len, (0, 0), ready)
    }

    /// The same with a pool of so many buffers, each as long as what is behind a head of `head_len` bytes.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn reserve_with_pool(
        count: usize,
        len: usize,
        (buffers, head_len): (usize, usize),
        ready: &Arc<Ready>,
    ) -> Result<Self> {
        let region = Region::reserve(count * len + buffers * (len - head_len))?;
        Ok(Self::build(region, (count, len), (buffers, head_len), ready))
    }

    /// Slots in memory that another process had before, or will have: it stays as it is, and is never given back.
    ///
    /// # Panics
    /// Where it is shorter.
    #[must_use]
    pub fn on(region: Region, count: usize, len: usize, ready: &Arc<Ready>) -> Self {
        assert!(region.len() >= count * len, "{count} slots of {len} bytes");
        let mut slots = Self::build(region, (count, len), (0, 0), ready);
        slots.is_own = false;
        slots
    }

    fn build(
        region: Region,
        (count, len): (usize, usize),
        (buffers, head_len): (usize, usize),
        ready: &Arc<Ready>,
    ) -> Self {
        let state = |slot| SlotState {
            hold: Arc::new(Hold::new(ready.waker(slot))),
            is_taken: Cell::new(false),
            is_warm: Cell::new(false),
            behind: Cell::new(Behind::Own),
            last: Cell::new(None),
        };
        let taken = (0..buffers).map(|_| Cell::new(false)).collect();
        let pool = Pool { head_len, taken, pinned: Cell::new(0) };
        let states = (0..count).map(state).collect();
        Self {
            region: Arc::new(region),
            len,
            states,
            warm: 0..0,
            is_own: true,
            warms_whole: false,
            warm_count: Cell::new(0),
            pool,
        }
    }

    /// Keeps a part of each slot in memory, also where the rest is given back.
    ///
    /// # Errors
    /// EINVAL before Linux 5.14, ENOMEM.
    ///
    /// # Panics
    /// Where the part is not inside.
    pub fn keep_warm(&mut self, part: Range<usize>) -> Result<()> {
        self.warm = part;
        self.populate()
    }

    /// Has all of a slot in memory before a request is read into it ([`Queue::warm`]).
    pub fn warm_whole(&mut self) {
        self.warms_whole = true;
    }

    fn populate(&self) -> Result<()> {
        if self.warm.is_empty() {
            return Ok(());
        }
        (0..self.states.len()).try_for_each(|index| {
            self.region.populate(self.place(u32::try_from(index).unwrap_or(u32::MAX), self.warm.clone()))
        })
    }

    pub(crate) fn count(&self) -> usize {
        self.states.len()
    }

    pub(crate) fn hold(&self, index: u32) -> &Arc<Hold> {
        &self.states[index as usize].hold
    }

    /// A part of a slot, counted from the region's start.
    fn place(&self, index: u32, part: Range<usize>) -> Range<usize> {
        assert!(part.start <= part.end && part.end <= self.len, "{part:?} of a slot");
        let behind = self.states[index as usize].behind.get();
        let head_len = self.pool.head_len;
        let start = match behind {
            Behind::Buffer(buffer) if part.start >= head_len && !part.is_empty() => {
                self.buffer(buffer).start - head_len
            }
            _ => {
                let is_there = behind == Behind::Own || part.end <= head_len || part.is_empty();
                assert!(is_there, "{part:?} of slot {index}, which has no such memory now");
                index as usize * self.len
            }
        };
        start + part.start..start + part.end
    }

    /// Where a buffer of the pool lies, counted from the region's start.
    fn buffer(&self, index: u32) -> Range<usize> {
        let len = self.len - self.pool.head_len;
        let start = self.states.len() * self.len + index as usize * len;
        start..start + len
    }

    /// Takes the buffer of a slot from it.
    fn free_buffer(&self, index: u32) {
        let state = &self.states[index as usize];
        if let Behind::Buffer(buffer) = state.behind.get() {
            state.behind.set(Behind::Nothing);
            self.pool.taken[buffer as usize].set(false);
        }
    }

    /// Gives all memory back that is not pinned.
    ///
    /// # Safety
    /// Nobody may be using it or rely on what it holds.
    unsafe fn give_back(&self) -> Result<()> {
        let pinned = self.buffer(0).start..self.buffer(self.pool.pinned.get()).start;
        // SAFETY: handed on to the caller by this function's contract.
        unsafe { self.region.give_back(0..pinned.start) }?;
        // SAFETY: as above.
        unsafe { self.region.give_back(pinned.end..self.region.len()) }
    }

    fn pointer(&self, place: &Range<usize>) -> *mut u8 {
        self.region.start().as_ptr().wrapping_add(place.start)
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        if !self.states.iter().all(|state| state.hold.is_free()) {
            // Somebody may still write there. Queues wait for their operations first.
            std::mem::forget(Arc::clone(&self.region));
        }
    }
}

impl Slot {
    /// Its number.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Its queue.
    #[must_use]
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// How many bytes it has.
    #[must_use]
    pub fn size(&self) -> usize {
        self.slots().len
    }

    /// A part of its memory.
    ///
    /// # Panics
    /// Where the part is not inside, or somebody writes to it: an operation whose future was dropped or leaked.
    #[must_use]
    pub fn bytes(&self, part: Range<usize>) -> &[u8] {
        assert!(self.hold().is_readable(), "slot {} is being written", self.index);
        let place = self.slots().place(self.index, part);
        // SAFETY: initialised memory (zeroed when mapped) of this slot. Nobody writes to it, as was just asked, and nobody will while it is
        // borrowed: what begins to write needs `&mut self` or `self`.
        unsafe { std::slice::from_raw_parts(self.slots().pointer(&place), place.len()) }
    }

    /// A part of its memory, to be written.
    ///
    /// # Panics
    /// Where the part is not inside, or somebody uses it: an operation whose future was dropped or leaked.
    #[must_use]
    pub fn bytes_mut(&mut self, part: Range<usize>) -> &mut [u8] {
        assert!(self.is_free(), "slot {} is in use", self.index);
        let place = self.slots().place(self.index, part);
        // SAFETY: initialised memory (zeroed when mapped) of this slot. Nobody uses it, as was just asked, and no use begins while it is
        // borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.slots().pointer(&place), place.len()) }
    }

    /// Has the slot give up what is behind its head, for good: from now on a buffer of the pool is there, or nothing.
    ///
    /// # Panics
    /// Where somebody uses the memory.
    pub fn join_pool(&mut self) {
        assert!(self.is_free(), "slot {} is in use", self.index);
        self.slots().states[self.index as usize].behind.set(Behind::Nothing);
    }

    /// Puts a buffer of the pool behind the head of a pooled slot, until the slot is given to the kernel. False where another slot has it, or
    /// there is none with this number, or the slot is not pooled or has one already.
    ///
    /// # Safety
    /// Nothing reads or writes the buffer any more that another slot had begun when it was given to the kernel. A driver that hands a buffer
    /// out anew has seen the end of it.
    #[must_use]
    pub unsafe fn take_buffer(&mut self, buffer: u32) -> bool {
        let slots = self.slots();
        let state = &slots.states[self.index as usize];
        let is_without = state.behind.get() == Behind::Nothing;
        let place = slots.pool.taken.get(buffer as usize);
        let Some(taken) = place.filter(|taken| is_without && !taken.get()) else { return false };
        taken.set(true);
        state.behind.set(Behind::Buffer(buffer));
        state.last.set(Some(buffer));
        true
    }

    /// Whether there is memory behind the head.
    #[must_use]
    pub fn has_payload(&self) -> bool {
        self.slots().states[self.index as usize].behind.get() != Behind::Nothing
    }

    /// Whether nobody else uses its memory.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.hold().is_free()
    }

    /// Resolves when nobody else uses its memory; what was begun is asked to end. Wakes the slot's own future, whatever it is polled by.
    pub async fn settled(&self) {
        if !self.is_free() {
            self.queue.cancel_ops(Some(self.index));
            poll_fn(|_| if self.hold().wait_free() { Poll::Ready(()) } else { Poll::Pending }).await;
        }
    }

    /// Reads a file at `offset` into a part of the memory, through the ring; fewer bytes at the file's end.
    ///
    /// # Errors
    /// Those of reading; EBUSY where somebody still uses the memory.
    pub async fn read_file<F>(&mut self, file: &Arc<F>, part: Range<usize>, offset: u64) -> Result<usize>
    where
        F: RingFile,
    {
        if !self.is_free() {
            return Err(shuntfs_sys::OsError::BUSY);
        }
        let (into, index) = self.begin(Use::Writes, part);
        let read = Submission::read(file.as_fd(), into, offset, Token::Op(index).encode());
        self.push(file, read);
        RingOp::new(&self.queue, index).await.map(|(count, _)| count)
    }

    /// Writes a part of the memory to a file at `offset`, through the ring.
    ///
    /// # Errors
    /// Those of writing; EBUSY where somebody still writes to the memory.
    pub async fn write_file<F>(&self, file: &Arc<F>, part: Range<usize>, offset: u64) -> Result<usize>
    where
        F: RingFile,
    {
        if !self.hold().is_readable() {
            return Err(shuntfs_sys::OsError::BUSY);
        }
        let ((from, len), index) = self.begin(Use::Reads, part);
        let write = Submission::write(file.as_fd(), (from, len), offset, Token::Op(index).encode());
        self.push(file, write);
        RingOp::new(&self.queue, index).await.map(|(count, _)| count)
    }

    /// Lends a part of the memory to another thread.
    #[must_use]
    pub fn lend(&self, part: Range<usize>) -> Lent {
        self.hold().begin(Use::Reads);
        let part = self.slots().place(self.index, part);
        Lent { region: Arc::clone(&self.slots().region), part, hold: Arc::clone(self.hold()) }
    }

    /// Writes a part of the memory to the queue's device, through the ring. [`Token::Entry`] tells of the end; until then the slot is
    /// the kernel's.
    pub fn send(self, part: Range<usize>) {
        let place = self.slots().place(self.index, part);
        let from = (self.slots().pointer(&place).cast_const(), len_of(&place));
        let token = Token::Entry(self.index).encode();
        let answer = Submission::answer(self.queue.device().as_fd(), from, token);
        self.hold().begin(Use::Has);
        // SAFETY: the memory is the kernel's until the completion, and the device outlives the ring.
        self.queue.with_ring(|ring| unsafe { ring.push(answer) });
    }

    /// Gives the slot to the queue's device with a command. [`Token::Entry`] tells that it came back.
    ///
    /// # Safety
    /// The command names no memory but this slot's, or what is behind the head of slots that wait for the kernel.
    pub unsafe fn command(self, command: &UringCommand) {
        let command = self.give(command);
        // SAFETY: the memory is the kernel's until the completion, and the device outlives the ring.
        self.queue.with_ring(|ring| unsafe { ring.push(command) });
    }

    /// The same behind a read of a file into a part of the memory: the command starts when all of the part was read. Otherwise it is
    /// dropped, and [`Token::Link`] tells how many bytes were read.
    ///
    /// # Safety
    /// As of [`Slot::command`].
    pub unsafe fn command_after_read<F>(
        self,
        file: &Arc<F>,
        (part, offset): (Range<usize>, u64),
        command: &UringCommand,
    ) where
        F: RingFile,
    {
        let place = self.slots().place(self.index, part);
        let into = (self.slots().pointer(&place), len_of(&place));
        let read = Submission::read(file.as_fd(), into, offset, Token::Link(self.index).encode());
        let read = read.by_worker(file.waits());
        let command = self.give(command);
        self.queue.keep_until_submitted(file);
        // SAFETY: the memory is the kernel's until one of the two completes, and the device outlives the ring.
        self.queue.with_ring(|ring| unsafe { ring.push_linked(read, command) });
    }

    /// Where a part lies, for a command that names it.
    #[must_use]
    pub fn address(&self, part: Range<usize>) -> u64 {
        self.slots().pointer(&self.slots().place(self.index, part)).addr() as u64
    }

    fn begin(&self, what: Use, part: Range<usize>) -> ((*mut u8, u32), u32) {
        let place = self.slots().place(self.index, part);
        self.hold().begin(what);
        let index = self.queue.ops().borrow_mut().add(Memory::Slot(self.index, what));
        ((self.slots().pointer(&place), len_of(&place)), index)
    }

    pub(crate) fn push<F: RingFile>(&self, file: &Arc<F>, operation: Submission) {
        let operation = operation.by_worker(file.waits());
        self.queue.keep_until_submitted(file);
        // SAFETY: the slot's memory is in use, and so left alone, until the completion.
        self.queue.with_ring(|ring| unsafe { ring.push(operation) });
    }

    /// The submission of a command; the slot, with the buffer that it has, is the kernel's.
    pub(crate) fn give(&self, command: &UringCommand) -> Submission {
        self.hold().begin(Use::Has);
        self.slots().free_buffer(self.index);
        Submission::command(self.queue.device().as_fd(), command, Token::Entry(self.index).encode())
    }

    pub(crate) fn hold(&self) -> &Arc<Hold> {
        self.slots().hold(self.index)
    }

    fn slots(&self) -> &Slots {
        self.queue.slots()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots().states[self.index as usize].is_taken.set(false);
    }
}

impl Lent {
    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        let start = self.region.start().as_ptr().wrapping_add(self.part.start);
        // SAFETY: initialised memory of the region, which this loan keeps. It is counted, so nobody writes to it.
        unsafe { std::slice::from_raw_parts(start, self.part.len()) }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.hold.end(Use::Reads);
    }
}

fn len_of(place: &Range<usize>) -> u32 {
    u32::try_from(place.len()).expect("slots are below 4 GiB")
}

#[cfg(test)]
mod test;
