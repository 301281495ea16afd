//! What a queue does with its slots.

use super::*;

impl Queue {
    /// The right to a slot; `None` while somebody has it, or its memory is in use.
    #[must_use]
    pub fn take_slot(&self, index: u32) -> Option<Slot> {
        let state = &self.slots().states[index as usize];
        let is_free = !state.is_taken.get() && state.hold.is_free();
        is_free.then(|| {
            state.is_taken.set(true);
            Slot { queue: self.clone(), index }
        })
    }

    /// Has all of a slot in memory, into which a request is about to be read, where that was asked for ([`Slots::warm_whole`]). How many slots are, by that.
    pub fn warm(&self, index: u32) -> usize {
        let slots = self.slots();
        let state = &slots.states[index as usize];
        if slots.warms_whole && !state.is_warm.replace(true) {
            slots.warm_count.set(slots.warm_count.get() + 1);
            if let Err(error) = slots.region.populate(slots.place(index, 0..slots.len)) {
                tracing::debug!(%error, index, "payload memory comes when it is used");
            }
        }
        slots.warm_count.get()
    }

    /// Whether nobody has a slot or uses its memory. Otherwise what its request began is asked to end, and the slot is woken when
    /// all of it has.
    #[must_use]
    pub fn is_slot_settled(&self, index: u32) -> bool {
        let state = &self.slots().states[index as usize];
        if state.hold.wait_free() {
            return !state.is_taken.get();
        }
        self.cancel_ops(Some(index));
        false
    }

    /// Whether neither the kernel nor a thread uses a slot's memory, whoever has the slot.
    #[must_use]
    pub fn is_slot_unused(&self, index: u32) -> bool {
        self.slots().states[index as usize].hold.is_free()
    }

    /// Has the system put a slot into huge pages, or the buffer that a pooled one had last, where it can.
    pub fn gather(&self, index: u32) {
        let slots = self.slots();
        if !slots.is_own {
            return;
        }
        let state = &slots.states[index as usize];
        let place = match (state.behind.get(), state.last.get()) {
            (Behind::Own, _) => slots.place(index, 0..slots.len),
            (_, Some(buffer)) if buffer >= slots.pool.pinned.get() => slots.buffer(buffer),
            _ => return,
        };
        if let Err(error) = slots.region.gather(place) {
            tracing::debug!(%error, index, "payload memory stays in small pages");
        }
    }

    /// Where some buffers of the pool lie, for a command that names them, and how long they are together.
    ///
    /// # Panics
    /// Where the pool has fewer.
    #[must_use]
    pub fn pool_place(&self, buffers: Range<u32>) -> (u64, usize) {
        let slots = self.slots();
        assert!(buffers.end as usize <= slots.pool.taken.len(), "{buffers:?} of a pool");
        let place = slots.buffer(buffers.start).start..slots.buffer(buffers.end).start;
        (slots.pointer(&place).addr() as u64, place.len())
    }

    /// Pins the first buffers of the pool, and puts them into a place of the ring's table, for commands to name.
    ///
    /// # Errors
    /// ENOMEM past the limit of locked memory, EINVAL beyond the table; then nothing is pinned.
    ///
    /// # Panics
    /// Where the pool has fewer, or some are pinned already.
    pub fn pin_pool(&self, place: u16, buffers: u32) -> Result<()> {
        let slots = self.slots();
        assert!(buffers as usize <= slots.pool.taken.len(), "{buffers} buffers of a pool");
        assert_eq!(slots.pool.pinned.get(), 0, "once");
        let memory = slots.buffer(0).start..slots.buffer(buffers).start;
        // Memory that stays is best in huge pages from the start.
        if let Err(error) = slots.region.gather(memory.clone()) {
            tracing::debug!(%error, "pinned payload memory is in small pages");
        }
        // SAFETY: `give_back` leaves pinned buffers alone from here on.
        let pinned =
            self.with_ring(|ring| unsafe { ring.pin(place, (slots.pointer(&memory), memory.len())) });
        pinned.map(|()| slots.pool.pinned.set(buffers))
    }

    /// Gives the memory of all slots back to the system, which then reads as zeroes; what is pinned stays, and where all of it is to stay, it
    /// does. Not where one is taken or in use (false). To be called only while no answer is on its way to the kernel.
    pub fn give_back(&self) -> bool {
        let slots = self.slots();
        let is_quiet =
            |state: &SlotState| !state.is_taken.get() && (state.hold.is_free() || state.hold.is_given());
        if !slots.states.iter().all(is_quiet) {
            return false;
        }
        if !slots.is_own || slots.warm == (0..slots.len) {
            return true;
        }
        slots.states.iter().for_each(|state| state.is_warm.set(false));
        slots.warm_count.set(0);
        // SAFETY: there is no `Slot`, and no part is lent, so nobody here has a reference. What is given to the kernel as a whole waits
        // for a request, which is written anew (the caller's word).
        if let Err(error) = unsafe { slots.give_back() }.and_then(|()| slots.populate()) {
            tracing::debug!(%error, "idle payload memory stays");
        }
        true
    }

    /// Reads a file at `offset` through the ring, into memory that is handed over; gives it back, and how many bytes were read. The
    /// memory's length is how many are asked for.
    ///
    /// # Errors
    /// Those of reading.
    pub async fn read_owned<F>(
        &self,
        file: &Arc<F>,
        mut into: Vec<u8>,
        offset: u64,
    ) -> Result<(Vec<u8>, usize)>
    where
        F: RingFile,
    {
        let target = (into.as_mut_ptr(), u32::try_from(into.len()).unwrap_or(u32::MAX));
        let index = self.ops().borrow_mut().add(Memory::Own(into));
        let read = Submission::read(file.as_fd(), target, offset, Token::Op(index).encode());
        let read = read.by_worker(file.waits());
        self.keep_until_submitted(file);
        // SAFETY: the bytes lie on the heap and are the operation's, which frees them only after its completion.
        self.with_ring(|ring| unsafe { ring.push(read) });
        let (count, into) = RingOp::new(self, index).await?;
        Ok((into, count))
    }
}
