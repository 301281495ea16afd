//! What the kernel knows of a connection's rings.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use shuntfs_sys::OsError;
use shuntfs_sys::threads::MachineCpus;
use shuntfs_sys::uring::{Pages, RingEnd, UringCommand};

use super::memory::Memory;
use super::terms::{Lie, RingStep, RingTotals, Rings};
use crate::books::Books;

/// All of it; nothing where the connection has no rings.
#[derive(Debug, Default)]
pub(crate) struct RingBooks {
    terms: Rings,
    memory: Option<Memory>,
    /// The longest payload that was agreed to at INIT.
    pub(super) payload_max: usize,
    /// Whether requests are to come by rings: from INIT until an entry is refused.
    pub(super) is_on: bool,
    /// Whether each queue has had an entry.
    pub(super) is_ready: bool,
    pub(super) queues: Vec<Option<Queue>>,
    pub(super) rings: Vec<Ring>,
    /// Requests that wait until rings are ready or refused.
    pub(super) held: VecDeque<u64>,
    /// Which queue gets the next request.
    pub(super) turn: usize,
    pub(super) lie: Option<Lie>,
    pub(super) totals: RingTotals,
    asked: HashMap<RingStep, usize>,
}

/// A ring of the server.
#[derive(Debug)]
pub(super) struct Ring {
    /// `None` when it is gone.
    pub(super) end: Option<Arc<RingEnd>>,
    pub(super) table: Vec<Option<Placed>>,
    /// Memory of the server that is pinned, by its place in the table: where it lies, and how long it is.
    pub(super) pinned: HashMap<u16, (u64, usize)>,
}

/// Pages in a place of a ring's table.
#[derive(Debug)]
pub(super) struct Placed {
    pub(super) pages: Arc<Pages>,
    pub(super) is_source: bool,
    pub(super) unique: u64,
    /// How many operations use them.
    pub(super) moving: usize,
    /// Whether the request's answer is on its way.
    pub(super) is_given: bool,
}

/// A queue of the kernel.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) zero_copy: bool,
    pub(super) payloads: Payloads,
    pub(super) entries: Vec<Entry>,
    pub(super) waiting: VecDeque<u64>,
}

/// Where the payloads of a queue lie.
#[derive(Debug)]
pub(super) enum Payloads {
    /// Not said yet.
    Unset,
    /// Each entry has its own.
    Own,
    Pool(Pool),
}

#[derive(Debug)]
pub(super) struct Pool {
    pub(super) address: u64,
    /// In which place of the table its memory is pinned, which each command has to name.
    pub(super) pinned: Option<u16>,
    /// By buffer, whether nobody has it.
    pub(super) free: Vec<bool>,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) ring: usize,
    pub(super) user_data: u64,
    pub(super) headers: u64,
    /// Its own payload, where it has one, or the buffer that it has.
    pub(super) payload: Option<(u64, usize)>,
    pub(super) buffer: Option<usize>,
    pub(super) place: u16,
    pub(super) state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// It waits for a request.
    Available,
    /// The server has it, with this request.
    Serves(u64),
    /// Its ring is gone, or the connection is.
    Dead,
}

impl RingBooks {
    pub(crate) fn new(terms: Rings) -> Result<Self, OsError> {
        let possible = terms.cpus.map_or_else(|| MachineCpus::now().possible, |(possible, _)| possible);
        let queues = (0..possible).map(|_| None).collect();
        Ok(Self { terms, memory: Some(Memory::new()?), queues, ..Self::default() })
    }

    /// The CPUs of the machine: the first of those that it may have are online.
    pub(crate) fn cpus(&self) -> MachineCpus {
        let of_terms = |(possible, online)| MachineCpus { possible, online: (0..online).collect() };
        self.terms.cpus.map_or_else(MachineCpus::now, of_terms)
    }

    /// How many queues get requests: those of CPUs that are online.
    pub(super) fn callers(&self) -> usize {
        self.terms.cpus.map_or(self.queues.len(), |(_, online)| online)
    }

    /// INIT was answered: payloads have so many bytes at most.
    pub(crate) fn agreed(&mut self, payload_max: usize) {
        self.payload_max = payload_max;
        self.is_on = self.memory.is_some();
    }

    pub(crate) fn totals(&self) -> RingTotals {
        self.totals
    }

    /// Tells one lie about the next request.
    pub(crate) fn lie(&mut self, lie: Lie) {
        self.lie = Some(lie);
    }

    pub(super) fn has_pools(&self) -> bool {
        self.terms.pools
    }

    pub(super) fn memory(&self) -> Result<&Memory, OsError> {
        self.memory.as_ref().ok_or(OsError::NOTCONN)
    }

    /// What a test said of the next attempt at a step.
    pub(super) fn refused(&mut self, step: RingStep) -> Result<(), OsError> {
        let asked = self.asked.entry(step).or_default();
        let number = *asked;
        *asked += 1;
        let mut refusals = self.terms.refusals.iter();
        let refusal = refusals.find(|refusal| refusal.step == step && refusal.which.contains(&number));
        refusal.map_or(Ok(()), |refusal| Err(refusal.error))
    }

    /// Which queues have no entry, where requests wait for that.
    pub(crate) fn missing(&self) -> Option<String> {
        if !self.is_on || self.is_ready {
            return None;
        }
        let lacks = |queue: &Option<Queue>| queue.as_ref().is_none_or(|queue| queue.entries.is_empty());
        let missing: Vec<_> = (0..).zip(&self.queues).filter(|(_, queue)| lacks(queue)).collect();
        Some(format!(
            "queues {:?} have no entry",
            missing.iter().map(|(at, _): &(u32, _)| at).collect::<Vec<_>>()
        ))
    }

    pub(super) fn queue(&mut self, qid: u16) -> Option<&mut Queue> {
        self.queues.get_mut(usize::from(qid))?.as_mut()
    }

    pub(super) fn complete(&self, ring: usize, user_data: u64, result: i32) {
        if let Some(end) = self.rings.get(ring).and_then(|ring| ring.end.as_ref()) {
            // Where the ring is gone, nobody waits.
            let _told = end.complete(user_data, result);
        }
    }

    /// A ring is gone, with its entries.
    pub(super) fn ring_gone(&mut self, ring: usize) {
        self.rings[ring].end = None;
        for entry in self.queues.iter_mut().flatten().flat_map(|queue| &mut queue.entries) {
            if entry.ring == ring {
                entry.state = State::Dead;
            }
        }
    }

    /// The connection is gone: entries that wait come back.
    pub(crate) fn end(&mut self) {
        self.is_on = false;
        let mut waiting = Vec::new();
        for entry in self.queues.iter_mut().flatten().flat_map(|queue| &mut queue.entries) {
            if entry.state == State::Available {
                waiting.push((entry.ring, entry.user_data));
            }
            entry.state = State::Dead;
        }
        for (ring, user_data) in waiting {
            self.complete(ring, user_data, -OsError::NOTCONN.raw_os_error());
        }
    }
}

impl Queue {
    pub(super) fn new(zero_copy: bool) -> Self {
        Self { zero_copy, payloads: Payloads::Unset, entries: Vec::new(), waiting: VecDeque::new() }
    }

    /// Whether a command names the memory of the pool, where that is pinned (`fuse_uring_cmd_index_ok`).
    pub(super) fn is_named_by(&self, command: &UringCommand) -> bool {
        match &self.payloads {
            Payloads::Pool(Pool { pinned: Some(place), .. }) => command.pinned == Some(*place),
            _ => true,
        }
    }

    /// Gives an entry a buffer of the pool; false where none is free.
    pub(super) fn take_buffer(&mut self, entry: usize, payload_max: usize) -> bool {
        let Payloads::Pool(pool) = &mut self.payloads else { return true };
        let Some(buffer) = pool.free.iter().position(|free| *free) else { return false };
        pool.free[buffer] = false;
        let entry = &mut self.entries[entry];
        entry.buffer = Some(buffer);
        entry.payload = Some((pool.address + (buffer * payload_max) as u64, payload_max));
        true
    }

    pub(super) fn give_buffer_back(&mut self, entry: usize) {
        let Payloads::Pool(pool) = &mut self.payloads else { return };
        let entry = &mut self.entries[entry];
        if let Some(buffer) = entry.buffer.take() {
            pool.free[buffer] = true;
            entry.payload = None;
        }
    }
}

impl Books {
    /// Whether the kernel has every buffer of every pool.
    pub(crate) fn buffers_are_back(&self) -> bool {
        let pools = self.rings.queues.iter().flatten().map(|queue| &queue.payloads);
        let mut free = pools.flat_map(|payloads| match payloads {
            Payloads::Pool(pool) => &pool.free[..],
            Payloads::Unset | Payloads::Own => &[],
        });
        free.all(|free| *free)
    }
}
