//! What the server says to the driver: the commands on its rings, and what it does with pages.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use shuntfs_sys::OsError;
use shuntfs_sys::uring::{Moves, Pages, Queued, RingEnd, RingPeer, UringCommand};
use shuntfs_wire::uring::{CMD_ADD_BUFPOOL, CMD_ADD_QUEUE, CMD_COMMIT_AND_FETCH, CMD_REGISTER};
use shuntfs_wire::{OutHeader, UringAddBufpool, UringCmdReq, UringEntInOut, UringQueueFlags};
use zerocopy::FromBytes;

use super::delivery::ENT_IN_OUT;
use super::state::{Entry, Payloads, Pool, Queue, Ring, State};
use super::terms::RingStep;
use crate::books::Books;
use crate::breach::Rule;
use crate::kernel::Kernel;

/// `struct fuse_uring_req_header`.
const HEADERS_LEN: u64 = 288;
/// As many places has a table at most.
const TABLE_MAX: usize = 1 << 14;

/// What a command that is wrong gives.
type Refused = (OsError, Option<String>);

/// One of the server's rings, as its thread meets the kernel.
#[derive(Debug)]
pub(crate) struct Side {
    kernel: Arc<Kernel>,
    ring: usize,
}

impl Side {
    /// A ring is made: its commands are taken in a thread of their own until it is gone.
    pub(crate) fn meet(kernel: Arc<Kernel>, end: RingEnd) -> Result<Arc<dyn RingPeer>, OsError> {
        let end = Arc::new(end);
        let ring = kernel.books().rings.add_ring(Arc::clone(&end));
        let (takes, commands) = (Arc::clone(&kernel), end);
        let taker = std::thread::Builder::new().name("fake-ring".into()).spawn(move || {
            while let Some((user_data, command)) = commands.next_command() {
                if let Err(error) = takes.ring_command(ring, user_data, &command) {
                    takes.books().rings.complete(ring, user_data, -error.raw_os_error());
                }
            }
            takes.books().rings.ring_gone(ring);
        });
        taker.map_err(|_| OsError::AGAIN)?;
        Ok(Arc::new(Self { kernel, ring }))
    }
}

impl RingPeer for Side {
    fn make_table(&self, places: u16) -> Result<(), OsError> {
        let mut books = self.kernel.books();
        books.rings.refused(RingStep::Table)?;
        if usize::from(places) > TABLE_MAX || places == 0 {
            return Err(OsError::INVAL);
        }
        books.rings.rings[self.ring].table = (0..places).map(|_| None).collect();
        Ok(())
    }

    fn pin(&self, place: u16, (address, len): (u64, usize)) -> Result<(), OsError> {
        let mut books = self.kernel.books();
        books.rings.refused(RingStep::Pin)?;
        let last = address + (len as u64).saturating_sub(1);
        for byte in [address, last] {
            books.rings.memory()?.read(byte, 1)?;
        }
        let ring = &mut books.rings.rings[self.ring];
        if usize::from(place) >= ring.table.len() || len == 0 {
            return Err(OsError::INVAL);
        }
        ring.pinned.insert(place, (address, len));
        Ok(())
    }

    fn pages(&self, place: u16, moves: Moves, part: Range<u32>) -> Result<Arc<Pages>, OsError> {
        let mut books = self.kernel.books();
        let placed = books.rings.rings[self.ring].table.get_mut(usize::from(place)).and_then(Option::as_mut);
        let why = match placed {
            None => "no request has pages there".to_owned(),
            Some(placed) if placed.is_given => format!("request {} is answered", placed.unique),
            Some(placed) if placed.is_source != (moves == Moves::Out) => {
                format!("the pages of request {} are for the other way", placed.unique)
            }
            Some(placed) if part.end as usize > placed.pages.len() => {
                format!("request {} has {} bytes there", placed.unique, placed.pages.len())
            }
            Some(placed) => {
                placed.moving += 1;
                return Ok(Arc::clone(&placed.pages));
            }
        };
        let what = format!("bytes {part:?} of place {place} of a ring's table were moved {moves:?}: {why}");
        books.breach(Rule::Ring, what);
        Err(OsError::FAULT)
    }

    fn moved(&self, place: u16, pages: &Arc<Pages>) {
        let mut books = self.kernel.books();
        let placed = books.rings.rings[self.ring].table.get_mut(usize::from(place)).and_then(Option::as_mut);
        if let Some(placed) = placed.filter(|placed| Arc::ptr_eq(&placed.pages, pages)) {
            placed.moving -= 1;
        }
    }

    fn queued(&self, user_data: u64, command: &UringCommand, is_linked: bool) -> Queued {
        if command.op == CMD_COMMIT_AND_FETCH {
            // What is linked is answered, or not, when the operation before it has ended.
            if !is_linked {
                self.kernel.books().answer_is_queued(self.ring, command_area(command).commit_id);
            }
            return Queued::Sent;
        }
        match self.kernel.ring_command(self.ring, user_data, command) {
            Ok(()) if command.op == CMD_REGISTER => Queued::Taken,
            outcome => Queued::Done(outcome),
        }
    }
}

impl Kernel {
    fn ring_command(&self, ring: usize, user_data: u64, command: &UringCommand) -> Result<(), OsError> {
        let mut books = self.books();
        let outcome = books.ring_command((ring, user_data), command);
        if let Err((error, Some(what))) = &outcome {
            books.breach(Rule::Ring, format!("{what}: {error}"));
        }
        let outcome = outcome.map_err(|(error, _)| error);
        let is_over = command.op == CMD_REGISTER && outcome.is_err_and(|error| error != OsError::AGAIN);
        let held = if is_over { books.rings.give_up() } else { Vec::new() };
        let message = |unique| books.requests.message(unique).map(<[u8]>::to_vec);
        let through_device: Vec<_> = held.into_iter().filter_map(message).collect();
        drop(books);
        self.answered();
        for request in through_device {
            // Where nobody can read any more, nobody answers, which is seen.
            let _sent = self.push_raw(&request);
        }
        outcome
    }
}

impl Books {
    fn ring_command(&mut self, from: (usize, u64), command: &UringCommand) -> Result<(), Refused> {
        if self.ended {
            return Err((OsError::NOTCONN, None));
        }
        if !self.rings.is_on {
            return Err((OsError::OPNOTSUPP, None));
        }
        match command.op {
            CMD_REGISTER => self.register(from, command),
            CMD_COMMIT_AND_FETCH => self.commit(from, command),
            CMD_ADD_QUEUE if self.rings.has_pools() => self.add_queue(command),
            CMD_ADD_BUFPOOL if self.rings.has_pools() => self.add_pool(from.0, command),
            op => Err(wrong(OsError::INVAL, format!("command {op} was never offered"))),
        }
    }

    fn add_queue(&mut self, command: &UringCommand) -> Result<(), Refused> {
        let request = command_area(command);
        let zero_copy = request.flags == UringQueueFlags::ZERO_COPY;
        let step = if zero_copy { RingStep::QueueForZeroCopy } else { RingStep::Queue };
        self.rings.refused(step).map_err(|error| (error, None))?;
        let qid = request.qid;
        if !zero_copy && !request.flags.is_empty() {
            return Err(wrong(OsError::INVAL, format!("queue {qid} was asked for with {:?}", request.flags)));
        }
        let room = self.rings.queues.get_mut(usize::from(qid));
        let room = room.ok_or_else(|| wrong(OsError::INVAL, format!("there is no queue {qid}")))?;
        if room.is_some() {
            return Err(wrong(OsError::EXIST, format!("queue {qid} was asked for, and is there")));
        }
        *room = Some(Queue::new(zero_copy));
        Ok(())
    }

    fn add_pool(&mut self, ring: usize, command: &UringCommand) -> Result<(), Refused> {
        self.rings.refused(RingStep::Pool).map_err(|error| (error, None))?;
        if command.pinned.is_some() {
            self.rings.refused(RingStep::PinnedPool).map_err(|error| (error, None))?;
        }
        let (pool, payload_max) = (UringAddBufpool::read_from_bytes(&command.bytes), self.rings.payload_max);
        let UringAddBufpool { flags, qid, address, len, reserved, .. } =
            pool.map_err(|_| (OsError::INVAL, None))?;
        let count = len as usize / payload_max;
        let what = format!("a pool of {len} bytes for queue {qid}, with payloads of {payload_max}");
        if let Some(place) = command.pinned {
            // Linux takes it, and fails each request.
            let memory = self.rings.rings[ring].pinned.get(&place);
            let is_inside = |&(start, room): &(u64, usize)| {
                start <= address && address + u64::from(len) <= start + room as u64
            };
            if !memory.is_some_and(is_inside) {
                return Err(wrong(OsError::FAULT, format!("{what}, which is not pinned in place {place}")));
            }
        }
        let Some(queue) = self.rings.queue(qid).filter(|_| flags == 0 && reserved == 0 && count > 0) else {
            return Err(wrong(OsError::INVAL, what));
        };
        if !matches!(queue.payloads, Payloads::Unset) {
            return Err(wrong(OsError::INVAL, format!("{what}, which has an entry or a pool")));
        }
        queue.payloads = Payloads::Pool(Pool { address, pinned: command.pinned, free: vec![true; count] });
        Ok(())
    }

    fn register(&mut self, (ring, user_data): (usize, u64), command: &UringCommand) -> Result<(), Refused> {
        self.rings.refused(RingStep::Entry).map_err(|error| (error, None))?;
        let UringCmdReq { qid, zero_copy_index: place, .. } = command_area(command);
        let what = format!("an entry of queue {qid}");
        if usize::from(qid) >= self.rings.queues.len() {
            return Err(wrong(OsError::INVAL, format!("{what}, which does not exist")));
        }
        if command.iovecs_count != 2 {
            return Err(wrong(OsError::INVAL, format!("{what} with {} iovecs", command.iovecs_count)));
        }
        let iovecs = self.rings.memory().and_then(|memory| memory.read(command.iovecs, 32));
        let iovecs = iovecs.map_err(|error| wrong(error, format!("{what} whose iovecs are nowhere")))?;
        let [headers, headers_len, payload, payload_len] =
            <[u64; 4]>::read_from_bytes(&iovecs).map_err(|_| (OsError::INVAL, None))?;
        let (payload_max, table) = (self.rings.payload_max as u64, self.rings.rings[ring].table.len());
        let is_pinned = self.rings.rings[ring].pinned.contains_key(&place);
        let queue = self.rings.queues[usize::from(qid)].get_or_insert_with(|| Queue::new(false));
        let is_pooled = matches!(queue.payloads, Payloads::Pool(_));
        if queue.zero_copy && !is_pooled {
            // A queue that got no pool: the one way to have the kernel go on without rings.
            return Err((OsError::INVAL, None));
        }
        let is_taken = |entry: &Entry| queue.zero_copy && entry.ring == ring && entry.place == place;
        let why = match () {
            () if headers_len < HEADERS_LEN => "whose headers are too short",
            () if place != 0 && !queue.zero_copy => "which has no zero copy, with a place in the table",
            () if queue.zero_copy && usize::from(place) >= table => "with a place beyond the table",
            () if queue.entries.iter().any(is_taken) => "with the place of another one",
            () if queue.zero_copy && is_pinned => "with the place of pinned memory",
            () if !queue.is_named_by(command) => "which does not name the pinned memory of its pool",
            () if is_pooled && (payload != 0 || payload_len != 0) => "which has a pool, with a payload",
            () if !is_pooled && payload_len < payload_max => "with too short a payload",
            () => "",
        };
        if !why.is_empty() {
            return Err(wrong(OsError::INVAL, format!("{what}, {why}")));
        }
        if !is_pooled {
            queue.payloads = Payloads::Own;
        }
        let own = usize::try_from(payload_len).map(|len| (payload, len)).ok().filter(|_| !is_pooled);
        let state = State::Available;
        queue.entries.push(Entry { ring, user_data, headers, payload: own, buffer: None, place, state });
        let has_entry = |queue: &Option<Queue>| queue.as_ref().is_some_and(|queue| !queue.entries.is_empty());
        if self.rings.is_ready {
            let last = self.rings.queue(qid).map_or(0, |queue| queue.entries.len() - 1);
            self.ring_next(usize::from(qid), last);
        } else if self.rings.queues.iter().all(has_entry) {
            self.rings_are_ready();
        }
        Ok(())
    }

    fn commit(&mut self, from: (usize, u64), command: &UringCommand) -> Result<(), Refused> {
        let UringCmdReq { commit_id: unique, qid, .. } = command_area(command);
        if usize::from(qid) >= self.rings.queues.len() {
            return Err(wrong(
                OsError::INVAL,
                format!("a commit of request {unique} on queue {qid}, which does not exist"),
            ));
        }
        if let Some(queue) = self.rings.queue(qid)
            && !queue.is_named_by(command)
        {
            let what =
                format!("a commit of request {unique} on queue {qid}, which does not name the pinned memory");
            return Err(wrong(OsError::INVAL, what));
        }
        let queue = self.rings.queue(qid);
        let holds = |entry: &Entry| entry.state == State::Serves(unique);
        let at = queue.and_then(|queue| queue.entries.iter().position(holds));
        let Some(at) = at else {
            let what = format!("a commit of request {unique} on queue {qid}, which has no such request");
            return Err(wrong(OsError::NOENT, what));
        };
        let qid = usize::from(qid);
        let Some(queue) = &mut self.rings.queues[qid] else { return Ok(()) };
        let entry = &mut queue.entries[at];
        if (entry.ring, entry.user_data) != from {
            let what = format!("request {unique} was committed by another entry than its own");
            (entry.ring, entry.user_data) = from;
            self.breach(Rule::Ring, what);
        }
        if let Err((error, what)) = self.take_answer(qid, at, unique) {
            let what = what.unwrap_or_else(|| format!("the answer to request {unique} cannot be read"));
            self.breach(Rule::Ring, format!("{what}: its caller gets {error}"));
            let len = u32::try_from(OutHeader::LEN).unwrap_or(0);
            let header = OutHeader { len, error: -error.raw_os_error(), unique };
            let (_, breach) = self.requests.answer(header, &[], OutHeader::LEN);
            self.breaches.extend(breach);
        }
        let Some(queue) = &mut self.rings.queues[qid] else { return Ok(()) };
        let entry = &mut queue.entries[at];
        entry.state = State::Available;
        let (ring, place) = (entry.ring, usize::from(entry.place));
        if let Some(room) = self.rings.rings[ring].table.get_mut(place)
            && room.as_ref().is_some_and(|placed| placed.unique == unique)
        {
            *room = None;
        }
        self.ring_next(qid, at);
        Ok(())
    }

    /// An answer is on its way: nothing is to use the request's pages any more.
    fn answer_is_queued(&mut self, ring: usize, unique: u64) {
        let mut placed = self.rings.rings[ring].table.iter_mut().flatten();
        let Some(placed) = placed.find(|placed| placed.unique == unique) else { return };
        placed.is_given = true;
        let moving = placed.moving;
        if moving > 0 {
            self.breach(
                Rule::Ring,
                format!("request {unique} was answered with {moving} operations on its pages"),
            );
        }
    }

    /// Reads an answer: what the server wrote to the entry, or has moved to the pages.
    fn take_answer(&mut self, qid: usize, at: usize, unique: u64) -> Result<(), Refused> {
        let Some(queue) = &self.rings.queues[qid] else { return Ok(()) };
        let (headers, payload, ring, place) = {
            let entry = &queue.entries[at];
            (entry.headers, entry.payload, entry.ring, usize::from(entry.place))
        };
        let plain = |error| (error, None);
        let memory = self.rings.memory().map_err(plain)?;
        let header = memory.read(headers, OutHeader::LEN).map_err(plain)?;
        let header = OutHeader::read_from_bytes(&header).map_err(|_| plain(OsError::INVAL))?;
        let said = memory.read(headers + ENT_IN_OUT, size_of::<UringEntInOut>()).map_err(plain)?;
        let said = UringEntInOut::read_from_bytes(&said).map_err(|_| plain(OsError::INVAL))?;
        if header.unique != unique {
            let what = format!("a commit of request {unique} has the answer to request {}", header.unique);
            return Err(wrong(OsError::NOENT, what));
        }
        let len = if header.error == 0 { said.payload_sz as usize } else { 0 };
        let placed = self.rings.rings[ring].table.get(place).and_then(Option::as_ref);
        let placed = placed.filter(|placed| placed.unique == unique && !placed.is_source);
        let (address, room) =
            placed.map_or(payload.unwrap_or((0, 0)), |placed| (placed.pages.address(), placed.pages.len()));
        if len > room {
            let what = format!("an answer of {len} bytes to request {unique}, which has room for {room}");
            return Err(wrong(OsError::INVAL, what));
        }
        let body = if len > 0 { memory.read(address, len).map_err(plain)? } else { Vec::new() };
        let header = OutHeader { len: u32::try_from(OutHeader::LEN + len).unwrap_or(0), ..header };
        let (_, breach) = self.requests.answer(header, &body, OutHeader::LEN + len);
        self.breaches.extend(breach);
        Ok(())
    }
}

impl super::RingBooks {
    fn add_ring(&mut self, end: Arc<RingEnd>) -> usize {
        self.rings.push(Ring { end: Some(end), table: Vec::new(), pinned: HashMap::new() });
        self.rings.len() - 1
    }

    /// An entry was refused: requests go through the device from now on, those that wait first.
    fn give_up(&mut self) -> Vec<u64> {
        self.is_on = false;
        std::mem::take(&mut self.held).into()
    }
}

fn command_area(command: &UringCommand) -> UringCmdReq {
    UringCmdReq::read_from_prefix(&command.bytes).map(|(request, _)| request).unwrap_or_default()
}

fn wrong(error: OsError, what: String) -> Refused {
    (error, Some(what))
}
