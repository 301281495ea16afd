//! A request on its way to the server by a ring.

use std::sync::Arc;

use shuntfs_sys::OsError;
use shuntfs_sys::uring::Pages;
use shuntfs_wire::{
    Errno, FopenFlags, InHeader, InitFlags, InitOut, Opcode, OutHeader, ReadIn, UringEntFlags, UringEntInOut,
};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::state::{Payloads, Placed, State};
use super::terms::Lie;
use crate::books::Books;
use crate::breach::Rule;
use crate::shape::Shape;

/// `FUSE_MIN_READ_BUFFER`.
const PAYLOAD_LEAST: usize = 8192;
const PAGE: usize = 4096;
/// Where an entry's headers have the request's fixed struct, and what is said of the entry.
pub(super) const OP_IN: u64 = 128;
pub(super) const ENT_IN_OUT: u64 = 256;
/// What pages hold before a READ fills them.
const STALE: u8 = 0xe5;

/// What a request needs of the entry that it goes by.
#[derive(Clone, Copy)]
struct Needs {
    payload: bool,
    pages: bool,
}

impl Books {
    /// The answer to INIT came: whether there must be rings, and how long their payloads may be.
    pub(crate) fn rings_agreed(&mut self, answer: &[u8]) {
        let mut out = InitOut::new_zeroed();
        let len = answer.len().min(size_of::<InitOut>());
        out.as_mut_bytes()[..len].copy_from_slice(&answer[..len]);
        let flags = u64::from(out.flags) | u64::from(out.flags2) << 32;
        if InitFlags::from_bits_retain(flags).contains(InitFlags::INIT_EXT | InitFlags::OVER_IO_URING) {
            let pages = usize::from(out.max_pages) * PAGE;
            self.rings.agreed(PAYLOAD_LEAST.max(out.max_write as usize).max(pages));
        }
    }

    /// Sends a request by a ring. False for one that goes through the device.
    pub(crate) fn goes_by_ring(&mut self, unique: u64) -> bool {
        if !self.rings.is_on || self.requests.shape(unique).is_none_or(|shape| shape == Shape::None) {
            return false;
        }
        if self.rings.is_ready {
            self.ring_send(unique);
        } else {
            self.rings.held.push_back(unique);
        }
        true
    }

    /// What waited for the rings goes by them.
    pub(super) fn rings_are_ready(&mut self) {
        self.rings.is_ready = true;
        for unique in std::mem::take(&mut self.rings.held) {
            self.ring_send(unique);
        }
    }

    fn ring_send(&mut self, unique: u64) {
        let qid = self.rings.turn % self.rings.callers();
        self.rings.turn += 1;
        let needs = self.needs(qid, unique);
        let payload_max = self.rings.payload_max;
        let Some(queue) = &mut self.rings.queues[qid] else { return };
        let available = queue.entries.iter().position(|entry| entry.state == State::Available);
        match available {
            Some(entry) if !needs.payload || queue.take_buffer(entry, payload_max) => {
                self.hand_over(qid, entry, (unique, needs));
            }
            _ => {
                queue.waiting.push_back(unique);
                self.rings.totals.waited += 1;
            }
        }
    }

    /// An entry has become available: it takes the next request, which may need no buffer, or another one.
    pub(super) fn ring_next(&mut self, qid: usize, entry: usize) {
        loop {
            let next = self.rings.queues[qid].as_ref().and_then(|queue| queue.waiting.front().copied());
            let needs = next.map(|unique| (unique, self.needs(qid, unique)));
            let payload_max = self.rings.payload_max;
            let Some(queue) = &mut self.rings.queues[qid] else { return };
            let has_buffer = queue.entries[entry].buffer.is_some();
            match needs {
                Some((_, Needs { payload: true, .. })) if has_buffer => {}
                Some((_, Needs { payload: true, .. })) if queue.take_buffer(entry, payload_max) => {}
                Some((_, Needs { payload: false, .. })) => queue.give_buffer_back(entry),
                _ => return queue.give_buffer_back(entry),
            }
            let (Some(unique), Some((_, needs))) = (queue.waiting.pop_front(), needs) else { return };
            if self.hand_over(qid, entry, (unique, needs)) {
                return;
            }
        }
    }

    /// `fuse_uring_req_has_copyable_payload`.
    fn needs(&self, qid: usize, unique: u64) -> Needs {
        let message = self.requests.message(unique).unwrap_or_default();
        let Ok((header, body)) = InHeader::read_from_prefix(message) else {
            return Needs { payload: false, pages: false };
        };
        let opcode = Opcode::new(header.opcode);
        let shape = Shape::of(header.opcode, body);
        let is_write = opcode == Some(Opcode::Write);
        let has_pages = is_write || opcode == Some(Opcode::Read);
        let zero_copy = self.rings.queues[qid].as_ref().is_some_and(|queue| queue.zero_copy);
        let pages = zero_copy && has_pages && self.is_open_for_zero_copy(header.nodeid, body);
        let has_more = body.len() > opcode.map_or(0, Opcode::fixed_len);
        let payload = if pages { is_write } else { has_more || shape != Shape::Exactly(0) };
        Needs { payload, pages }
    }

    /// Whether a READ or a WRITE is of an open that was answered so.
    fn is_open_for_zero_copy(&self, node: u64, body: &[u8]) -> bool {
        let fh = ReadIn::read_from_prefix(body).map(|(arg, _)| arg.fh);
        let flag = FopenFlags::IO_URING_ZERO_COPY;
        let is_it = |open: &crate::books::OpenFile| {
            open.node == node && Ok(open.fh) == fh.as_ref().copied().map_err(drop)
        };
        self.opens.values().any(|open| is_it(open) && open.answered.contains(flag))
    }

    /// Copies a request to an entry and gives the entry to the server. False where it cannot be: the request ends with EIO.
    fn hand_over(&mut self, qid: usize, entry: usize, (unique, needs): (u64, Needs)) -> bool {
        match self.copy_to(qid, entry, (unique, needs)) {
            Ok((ring, user_data)) => {
                self.rings.totals.requests += 1;
                self.rings.totals.in_pages += u64::from(needs.pages);
                self.rings.complete(ring, user_data, 0);
                true
            }
            Err(error) => {
                let what =
                    format!("request {unique} cannot be put into entry {entry} of queue {qid}: {error}");
                self.breach(Rule::Ring, what);
                let len = u32::try_from(OutHeader::LEN).unwrap_or(0);
                let header = OutHeader { len, error: -i32::from(Errno::IO.get()), unique };
                let _refused = self.requests.answer(header, &[], OutHeader::LEN);
                false
            }
        }
    }

    fn copy_to(
        &mut self,
        qid: usize,
        at: usize,
        (unique, needs): (u64, Needs),
    ) -> Result<(usize, u64), OsError> {
        let message = self.requests.message(unique).unwrap_or_default().to_vec();
        let (header, body) = InHeader::read_from_prefix(&message).map_err(|_| OsError::INVAL)?;
        let opcode = Opcode::new(header.opcode);
        let (fixed, rest) = body.split_at(opcode.map_or(0, Opcode::fixed_len).min(body.len()));
        let queue = self.rings.queues[qid].as_ref().ok_or(OsError::NOTCONN)?;
        let entry = &queue.entries[at];
        let (ring, place, headers, payload) = (entry.ring, entry.place, entry.headers, entry.payload);
        let offset = match &queue.payloads {
            Payloads::Pool(pool) => payload.map_or(0, |(address, _)| address - pool.address),
            Payloads::Unset | Payloads::Own => 0,
        };
        let is_pinned = matches!(&queue.payloads, Payloads::Pool(pool) if pool.pinned.is_some());
        let is_pooled = entry.buffer.is_some();
        let mut said = UringEntInOut {
            commit_id: unique,
            payload_sz: u32::try_from(rest.len()).map_err(|_| OsError::TOOBIG)?,
            offset: u32::try_from(offset).map_err(|_| OsError::TOOBIG)?,
            ..UringEntInOut::default()
        };
        if needs.pages {
            said.flags = UringEntFlags::ZERO_COPY;
            let pages = self.pages_of(opcode, (fixed, rest))?;
            let is_source = opcode == Some(Opcode::Write);
            let placed = Placed { pages, is_source, unique, moving: 0, is_given: false };
            let room = self.rings.rings[ring].table.get_mut(usize::from(place)).ok_or(OsError::INVAL)?;
            if room.is_some() {
                return Err(OsError::BUSY);
            }
            *room = Some(placed);
        } else if !rest.is_empty() {
            let (address, len) = payload.ok_or(OsError::FAULT)?;
            if rest.len() > len {
                return Err(OsError::TOOBIG);
            }
            self.rings.memory()?.write(address, rest)?;
        }
        match self.rings.lie.take() {
            Some(Lie::Offset(offset)) => said.offset = offset,
            Some(Lie::PayloadLen(len)) => said.payload_sz = len,
            None => {}
        }
        let memory = self.rings.memory()?;
        memory.write(headers + OP_IN, fixed)?;
        memory.write(headers + ENT_IN_OUT, said.as_bytes())?;
        memory.write(headers, header.as_bytes())?;
        self.requests.was_read(unique);
        self.rings.totals.in_pool += u64::from(is_pooled);
        self.rings.totals.in_pinned += u64::from(is_pooled && is_pinned);
        let queue = self.rings.queues[qid].as_mut().ok_or(OsError::NOTCONN)?;
        let entry = &mut queue.entries[at];
        entry.state = State::Serves(unique);
        Ok((ring, entry.user_data))
    }

    /// The pages of a READ's or a WRITE's caller.
    fn pages_of(&self, opcode: Option<Opcode>, (fixed, rest): (&[u8], &[u8])) -> Result<Arc<Pages>, OsError> {
        let memory = self.rings.memory()?;
        if opcode == Some(Opcode::Write) {
            let pages = Pages::new(rest.len())?;
            memory.write(pages.address(), rest)?;
            return Ok(Arc::new(pages));
        }
        let len = ReadIn::read_from_prefix(fixed).map_or(0, |(arg, _)| arg.size as usize);
        let pages = Pages::new(len)?;
        memory.write(pages.address(), &vec![STALE; len])?;
        Ok(Arc::new(pages))
    }
}
