//! The loop of a thread that serves queues of the kernel through one io_uring.
//!
//! Queues are set up first, with pools and zero copy where the kernel has them (`pools.rs`).
//! Each slot is registered once; from then on one submission commits an answer and fetches the next request
//! of the same queue. A READ of a lower file is linked in front of its commit: where all bytes were there,
//! the answer is on its way without another turn; where the file ended early, the link breaks and the answer
//! is committed with its true length.
//!
//! The kernel copies requests into slots only inside this thread's own calls (the ring defers task work to
//! its one submitter), which is why memory can be given back between two calls.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use shuntfs_runtime::{Queue, Slot, Token};
use shuntfs_sys::OsError;
use shuntfs_wire::{Errno, InHeader, Opcode, UringEntFlags, UringEntInOut};
use zerocopy::FromBytes;

use crate::board::{Board, KeptSeat, State};
use crate::exchange::{Done, Exchange, Outcome, is_direct};
use crate::interrupts::Interrupts;
use crate::kept::Held;
use crate::meter::Meter;
use crate::pools::{Lost, Next, Pinned, Step, ZeroCopy};
use crate::port::{Port, Way};
use crate::ring_way::{RingPlan, RingWay};
use crate::serving::{IDLE, Serving, abort_without_ring};
use crate::slot::{ENT_IN_OUT, HEADER_AREA, OP_IN, PAGE, Parts};

/// What a thread that serves a ring needs.
#[derive(Debug)]
pub(crate) struct RingSeat {
    pub(crate) queue: Queue,
    pub(crate) plan: RingPlan,
    /// What its queues are asked for first; nothing, where payloads are the entries' own.
    pub(crate) first: Option<Step>,
    pub(crate) zero_copy: Arc<ZeroCopy>,
    pub(crate) pinned: Arc<Pinned>,
    pub(crate) registry: Arc<Interrupts>,
    pub(crate) meter: Meter,
    /// Where another server can take over.
    pub(crate) kept: Option<KeptSeat>,
}

struct Loop<S, Fut> {
    serving: Serving<S, Fut>,
    board: Board,
    living: usize,
    meter: Meter,
    zero_copy: Arc<ZeroCopy>,
    pinned: Arc<Pinned>,
}

const EAGAIN: i32 = -11;
const ENOENT: i32 = -2;
/// How often a registration that comes before the kernel is done with INIT is tried again.
const REGISTER_TRIES: usize = 200;

/// Serves requests until the connection is gone. Tells `registered` once how the registration went; after a
/// failure the kernel sends all requests to the device, and the loop ends.
pub(crate) fn serve<S, Fut>(seat: RingSeat, service: S, registered: impl FnOnce(Result<(), OsError>))
where
    S: Fn(Exchange) -> Fut,
    Fut: Future<Output = Done>,
{
    let RingSeat { queue, plan, first, zero_copy, pinned, registry, meter, kept } = seat;
    if let Some(kept) = &kept {
        kept.rings.drain.wakes(queue.ready().waker(0));
    }
    let count = queue.slots_count();
    let notes = meter.notes(count);
    let serving =
        Serving::new(service, Port::new(queue, Way::Ring(Box::new(RingWay::new(&plan))), registry), notes);
    let board = Board::new(count, kept);
    let mut this = Loop { serving, board, living: count, meter, zero_copy, pinned };
    this.listen_to_bell();
    let outcome = first.map_or(Ok(()), |first| this.set_up(first)).and_then(|()| this.register());
    let failed = outcome.is_err();
    registered(outcome);
    if !failed {
        this.run();
    }
    this.serving.end();
}

impl<S, Fut> Loop<S, Fut>
where
    S: Fn(Exchange) -> Fut,
    Fut: Future<Output = Done>,
{
    /// Makes the kernel's queues, as able as it allows.
    fn set_up(&mut self, first: Step) -> Result<(), OsError> {
        for queue in 0..self.serving.port.ring_way().queues_count() {
            let mut step = first;
            let pins = self.serving.port.ring_way().pinned(queue).is_some();
            let (mode, is_pinned) = loop {
                let answer = self.ask(queue, step)?;
                let (next, lost) = step.after(answer, pins);
                if let Err(error) = answer {
                    tracing::debug!(queue, ?step, %error, ?lost, "the kernel refuses a queue something");
                }
                match lost {
                    Some(Lost::ZeroCopy(why)) => self.zero_copy.turn_off(why),
                    Some(Lost::Pinned(why)) => self.pinned.turn_off(why),
                    None => {}
                }
                match next {
                    Next::Ask(another) => step = another,
                    Next::Register { mode, pinned } => break (mode, pinned),
                }
            };
            self.serving.port.ring_way().set_mode(queue, mode, is_pinned);
        }
        Ok(())
    }

    /// Asks the kernel for something for one of the ring's queues.
    fn ask(&mut self, queue: u32, step: Step) -> Result<Result<(), OsError>, OsError> {
        let slot = self.serving.port.ring_way().first_slot(queue);
        for _ in 0..REGISTER_TRIES {
            self.serving.port.set_up(self.take(slot), queue, step);
            let mut answer = None;
            while answer.is_none() {
                self.queue().turn(true, None)?;
                while let Some((token, result)) = self.queue().next() {
                    match token {
                        Token::Entry(_) => answer = Some(result),
                        other => self.complete(other, result),
                    }
                }
            }
            match answer.unwrap_or(0) {
                EAGAIN => std::thread::sleep(Duration::from_millis(5)),
                error if error < 0 => return Ok(Err(OsError::from_raw_os_error(-error))),
                _ => return Ok(Ok(())),
            }
        }
        Ok(Err(OsError::AGAIN))
    }

    /// Registers all slots that are used, but those in which a predecessor left something; requests may arrive meanwhile and are kept for the
    /// loop.
    fn register(&mut self) -> Result<(), OsError> {
        for slot in 0..self.slots_count() {
            match self.board.found(slot) {
                Some(Held::Request) => self.board.states[slot as usize] = State::Stopped,
                Some(Held::Answer) => self.board.states[slot as usize] = State::Answered,
                _ if self.serving.port.ring_way().is_used(slot) => {
                    self.serving.port.register(self.take(slot));
                }
                _ => {
                    self.board.states[slot as usize] = State::Dead;
                    self.living -= 1;
                }
            }
        }
        for _ in 0..REGISTER_TRIES {
            self.queue().turn(false, None)?;
            let mut early = Vec::new();
            let mut again = false;
            while let Some((token, result)) = self.queue().next() {
                match token {
                    Token::Entry(slot) if result == EAGAIN => {
                        again = true;
                        self.serving.port.register(self.take(slot));
                    }
                    Token::Entry(_) if result < 0 => return Err(OsError::from_raw_os_error(-result)),
                    _ => early.push((token, result)),
                }
            }
            for (token, result) in early {
                self.complete(token, result);
            }
            if !again {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(OsError::AGAIN)
    }

    fn run(&mut self) {
        self.go_on();
        while self.living > 0 {
            let board = &mut self.board;
            self.serving.poll_woken(|serving, slot, outcome| finish(serving, board, slot, outcome));
            while let Some((token, result)) = self.queue().next() {
                self.complete(token, result);
            }
            self.heed();
            if self.living == 0 {
                return;
            }
            let limit = self.serving.holds_memory().then_some(IDLE);
            let wait = self.queue().ready().may_sleep();
            if wait {
                self.meter.ring_waits();
            }
            let turned = self.queue().turn(wait, limit);
            if wait {
                self.meter.ring_woke();
            }
            self.queue().ready().woke();
            match turned {
                Ok(()) => {}
                Err(OsError::TIME) => self.give_back(),
                Err(error) => abort_without_ring(error),
            }
        }
    }

    fn complete(&mut self, token: Token, result: i32) {
        match token {
            Token::Bell => {
                self.queue().ready().still_bell();
                self.listen_to_bell();
            }
            Token::Link(slot) => self.link_broke(slot, result),
            Token::Entry(slot) => match (self.board.states[slot as usize], result) {
                (State::Waiting | State::Linked, 0) => {
                    self.board.forget(slot);
                    self.deliver(slot);
                }
                (State::Waiting | State::Linked, ENOENT) if self.board.is_found(slot) => {
                    self.register_anew(slot)
                }
                (State::Waiting | State::Linked, _) => self.bury(slot, result),
                (state, _) => {
                    tracing::error!(?state, result, slot, "an entry completed that is not the kernel's")
                }
            },
            Token::Op(_) | Token::Cancel => unreachable!("the queue keeps operations to itself"),
            Token::Device | Token::End => unreachable!("only a device's thread polls it"),
        }
    }

    /// Stops with all requests and answers where they are, or goes on with them, as another thread has asked for.
    fn heed(&mut self) {
        let Some(is_on) = self.board.kept.as_ref().map(|kept| kept.rings.drain.is_on()) else { return };
        if std::mem::replace(&mut self.board.stops, is_on) && !is_on {
            self.go_on();
        }
        if is_on {
            self.take_back();
            self.board.tell(self.serving.port.ring_way());
        }
    }

    /// Takes back what waits for another request, which may be for as long as its caller likes: the next server begins it again.
    fn take_back(&mut self) {
        for slot in 0..self.slots_count() {
            let state = &mut self.board.states[slot as usize];
            if matches!(state, State::Serving) && self.serving.takes_back(slot) {
                *state = State::Stopped;
            }
        }
    }

    /// Commits answers and begins requests that were left where they are, by this server or by one before it.
    fn go_on(&mut self) {
        for slot in 0..self.slots_count() {
            match self.board.states[slot as usize] {
                State::Stopped => self.deliver(slot),
                State::Answered => {
                    self.board.states[slot as usize] = State::Waiting;
                    self.serving.port.commit_again(self.take(slot));
                }
                _ => {}
            }
        }
    }

    /// The kernel has given up what a predecessor had of an entry.
    fn register_anew(&mut self, slot: u32) {
        tracing::warn!(slot, "a request that a predecessor left is gone");
        self.board.forget(slot);
        self.board.states[slot as usize] = State::Waiting;
        self.serving.port.register(self.take(slot));
    }

    fn deliver(&mut self, slot: u32) {
        if self.board.stops {
            self.board.states[slot as usize] = State::Stopped;
            return;
        }
        self.board.states[slot as usize] = State::Serving;
        let mut memory = self.take(slot);
        let head = memory.bytes(0..HEADER_AREA);
        let header = InHeader::read_from_prefix(head).map(|(header, _)| header);
        let entry = UringEntInOut::read_from_prefix(&head[ENT_IN_OUT..]).map(|(entry, _)| entry);
        let (Ok(header), Ok(entry)) = (header, entry) else { unreachable!("288 bytes hold both") };
        if self.board.is_found(slot) {
            self.serving.port.registry.comes_again(header.unique);
        }
        let opcode = Opcode::new(header.opcode);
        // During these, threads of the lower file system have to run on this CPU: no case for the light class.
        if opcode != Some(Opcode::Read) || !is_direct(opcode, &head[OP_IN..]) {
            self.meter.serves(header.pid);
        }
        let payload_len = entry.payload_sz as usize;
        let is_arranged = self.serving.port.ring_way().arrange(&mut memory, opcode, &entry);
        if payload_len > memory.size() - PAGE || !is_arranged {
            tracing::error!(payload_len, offset = entry.offset, "a request that does not fit its payload");
            self.board.states[slot as usize] = State::Waiting;
            let _queued = self.serving.port.send(memory, header.unique, Outcome::Error(Errno::IO));
            return;
        }
        let fixed_len = opcode.map_or(0, Opcode::fixed_len);
        let in_pages = entry.flags.contains(UringEntFlags::ZERO_COPY);
        let parts = Parts::of_ring(fixed_len, payload_len, in_pages);
        if let Some(outcome) = self.serving.start(memory, header, parts) {
            finish(&self.serving, &mut self.board, slot, outcome);
        }
    }

    /// A linked read ended early or failed, which dropped the commit behind it: the answer is committed with
    /// what was read.
    fn link_broke(&mut self, slot: u32, read: i32) {
        if !matches!(self.board.states[slot as usize], State::Linked) {
            tracing::error!(read, slot, "a read completed that nothing was linked behind");
            return;
        }
        let outcome = match usize::try_from(read) {
            Ok(len) => Outcome::Reply(len),
            Err(_) => Outcome::Error(Errno::from_lower(read.saturating_neg())),
        };
        finish(&self.serving, &mut self.board, slot, outcome);
    }

    fn bury(&mut self, slot: u32, result: i32) {
        let end = [OsError::NOTCONN, OsError::CONNABORTED, OsError::NODEV, OsError::CANCELED];
        if end.contains(&OsError::from_raw_os_error(result.saturating_neg())) {
            self.end_operations();
        } else {
            tracing::error!(result, slot, "the kernel gave an entry up");
        }
        self.board.states[slot as usize] = State::Dead;
        self.living -= 1;
    }

    /// The connection is gone: what is under way below is nobody's any more, and must not keep this thread.
    fn end_operations(&self) {
        self.queue().cancel_ops(None);
        for (slot, state) in (0_u32..).zip(&self.board.states) {
            if matches!(state, State::Linked) {
                self.queue().cancel(Token::Link(slot));
            }
        }
    }

    fn give_back(&mut self) {
        let idle = self.board.states.iter().all(|state| matches!(state, State::Waiting | State::Dead));
        if idle {
            // What the kernel will deliver, it writes anew.
            self.serving.give_back();
        }
    }

    fn listen_to_bell(&self) {
        let queue = self.queue();
        queue.with_ring(|ring| ring.push_poll(queue.ready().bell(), Token::Bell.encode()));
    }

    fn queue(&self) -> &Queue {
        self.serving.queue()
    }

    /// A slot that the kernel has given back, or that it never had.
    fn take(&self, slot: u32) -> Slot {
        self.queue().take_slot(slot).expect("the kernel gave it back, and it serves nothing")
    }

    fn slots_count(&self) -> u32 {
        u32::try_from(self.board.states.len()).expect("slots are counted in u32")
    }
}

/// Sends an answer, which asks for the next request; a linked one has left.
fn finish<S, Fut>(serving: &Serving<S, Fut>, board: &mut Board, slot: u32, outcome: Outcome)
where
    S: Fn(Exchange) -> Fut,
    Fut: Future<Output = Done>,
{
    if matches!(outcome, Outcome::Linked(_)) {
        board.states[slot as usize] = State::Linked;
        return;
    }
    let memory = serving.queue().take_slot(slot).expect("its request has ended");
    if board.stops {
        serving.port.prepare(memory, serving.unique(slot), outcome);
        board.states[slot as usize] = State::Answered;
        return;
    }
    board.states[slot as usize] = State::Waiting;
    let _queued = serving.port.send(memory, serving.unique(slot), outcome);
}
