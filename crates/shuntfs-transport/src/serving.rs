//! Requests into futures, and their outcomes: what a device's loop and a ring's loop share.
//!
//! A request has ended when its future has and nobody uses its memory any more. An author's future may leave an operation or a loan
//! behind (it was dropped half way, it was leaked, it panicked): the outcome is then held back until the last of them has ended.

use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use shuntfs_runtime::{Queue, Slot, Tasks};
use shuntfs_sys::OsError;
use shuntfs_wire::{Errno, InHeader, Opcode};

use crate::exchange::{Done, Exchange, Outcome};
use crate::load::Load;
use crate::port::Port;
use crate::slot::Parts;
use crate::underway::Notes;

/// The requests of one thread that are being served.
pub(crate) struct Serving<S, Fut> {
    service: S,
    tasks: Tasks<Fut>,
    pub(crate) port: Rc<Port>,
    served: Vec<Served>,
    /// The same, for the watcher to see.
    notes: Arc<Notes>,
    /// How many went on after the first poll.
    pending: usize,
    /// The longest stretch of a payload that was used since memory was last given back.
    touched: usize,
    /// What each slot has carried since then.
    loads: Vec<Load>,
}

#[derive(Clone, Copy)]
struct Served {
    unique: u64,
    opcode: u32,
    went_on: bool,
    /// The bytes are in pages, and leave no trace in the payload.
    in_pages: bool,
    /// The outcome, while the request's memory is still in use.
    held: Option<Outcome>,
}

/// After so long without a request, memory is given back.
pub(crate) const IDLE: Duration = Duration::from_secs(1);
/// An idle queue gives memory back when more than this of a payload was used.
const WORTH_GIVING_BACK: usize = 256 << 10;

impl<S, Fut> Serving<S, Fut>
where
    S: Fn(Exchange) -> Fut,
    Fut: Future<Output = Done>,
{
    pub(crate) fn new(service: S, port: Port, notes: Arc<Notes>) -> Self {
        let count = port.queue().slots_count();
        let tasks = Tasks::new(count, port.queue().ready());
        let nothing = Served { unique: 0, opcode: 0, went_on: false, in_pages: false, held: None };
        Self {
            service,
            tasks,
            port: Rc::new(port),
            served: vec![nothing; count],
            notes,
            pending: 0,
            touched: 0,
            loads: vec![Load::default(); count],
        }
    }

    pub(crate) fn queue(&self) -> &Queue {
        self.port.queue()
    }

    pub(crate) fn pending(&self) -> usize {
        self.pending
    }

    pub(crate) fn unique(&self, slot: u32) -> u64 {
        self.served[slot as usize].unique
    }

    /// Whether the request in `slot` is a READ or a WRITE.
    pub(crate) fn moves_data(&self, slot: u32) -> bool {
        let opcode = Opcode::new(self.served[slot as usize].opcode);
        matches!(opcode, Some(Opcode::Read | Opcode::Write))
    }

    /// Serves a request; its outcome where it ended at once.
    pub(crate) fn start(&mut self, slot: Slot, header: InHeader, parts: Parts) -> Option<Outcome> {
        let index = slot.index();
        let at = index as usize;
        let in_pages = parts.in_pages;
        let (unique, opcode) = (header.unique, header.opcode);
        self.served[at] = Served { unique, opcode, went_on: false, in_pages, held: None };
        self.carried(index, parts.rest.len());
        self.notes.begins(at, &header);
        let exchange = Exchange::new(header, parts, slot, Rc::clone(&self.port));
        let polled = self.tasks.start(at, (self.service)(exchange));
        if polled.is_pending() {
            self.goes_on(at);
            self.port.goes_on(index, header.unique);
        }
        self.judge(index, polled)
    }

    /// Polls each slot that was woken, once, and hands out the outcomes of those that ended. One that wakes itself again and again
    /// has its next turn after whatever else there is to do.
    pub(crate) fn poll_woken(&mut self, mut ended: impl FnMut(&mut Self, u32, Outcome)) {
        let mut from = 0;
        while let Some(slot) = self.queue().ready().take_from(from) {
            from = slot + 1;
            let polled = self.tasks.poll(slot);
            let slot = u32::try_from(slot).expect("slots are counted in u32");
            if let Some(outcome) = self.judge(slot, polled) {
                ended(self, slot, outcome);
            }
        }
    }

    /// Takes a request back that waits for another one, as if it had not begun: it is in its slot as it came. False where it does not wait, or is about to
    /// end, because its caller got a signal or somebody still uses its memory.
    pub(crate) fn takes_back(&mut self, slot: u32) -> bool {
        let (at, queue) = (slot as usize, self.queue());
        if !self.port.waits(slot) || !queue.is_slot_unused(slot) {
            return false;
        }
        if !self.port.registry.takes_back(self.port.interrupt(slot)) {
            return false;
        }
        self.tasks.drop_future(at);
        if std::mem::take(&mut self.served[at].went_on) {
            self.pending -= 1;
            self.notes.ends(at, self.served[at].opcode, true);
        }
        true
    }

    fn judge(&mut self, slot: u32, polled: Poll<std::thread::Result<Done>>) -> Option<Outcome> {
        let at = slot as usize;
        let outcome = match polled {
            Poll::Ready(Ok(done)) => done.0,
            Poll::Ready(Err(panic)) => panicked(self.served[at].opcode, panic.as_ref()),
            // The future goes on, or it has ended and the outcome was held; or there is none, and the wake came late.
            Poll::Pending => self.served[at].held.take()?,
        };
        // What is linked has the slot on its way to the kernel.
        if !matches!(outcome, Outcome::Linked(_)) && !self.queue().is_slot_settled(slot) {
            self.served[at].held = Some(outcome);
            self.goes_on(at);
            return None;
        }
        let went_on = std::mem::take(&mut self.served[at].went_on);
        if went_on {
            self.pending -= 1;
        }
        self.notes.ends(at, self.served[at].opcode, went_on);
        self.port.interrupt(slot).clear();
        match outcome {
            Outcome::Reply(len) => self.carried(slot, len),
            Outcome::Linked(len) => self.carried(slot, len as usize),
            _ => {}
        }
        Some(outcome)
    }

    fn goes_on(&mut self, at: usize) {
        if !std::mem::replace(&mut self.served[at].went_on, true) {
            self.pending += 1;
            self.notes.goes_on(at, self.served[at].opcode);
        }
    }

    /// A slot carried so many bytes of payload, or is about to.
    fn carried(&mut self, slot: u32, len: usize) {
        if self.served[slot as usize].in_pages {
            return;
        }
        self.touched = self.touched.max(len);
        if self.loads[slot as usize].add(len) {
            self.queue().gather(slot);
        }
    }

    /// Has all of a slot in memory, into which a request is about to be read, where that was asked for. The one that was used last is the next, so one is
    /// enough for a queue that is idle.
    pub(crate) fn warm(&mut self, slot: u32) {
        if self.queue().warm(slot) > 1 {
            self.touched = usize::MAX;
        }
    }

    /// Whether so much memory was used that an idle queue should give it back.
    pub(crate) fn holds_memory(&self) -> bool {
        self.touched >= WORTH_GIVING_BACK
    }

    /// Gives the memory of an idle queue back to the system. No answer may be on its way.
    pub(crate) fn give_back(&mut self) {
        if self.queue().give_back() {
            self.touched = 0;
            self.loads.fill(Load::default());
        }
    }

    /// The connection is gone: drops what is still served, and waits for what that had begun below.
    pub(crate) fn end(self) {
        drop(self.tasks);
        if let Err(error) = self.port.queue().end_ops() {
            tracing::error!(%error, "the ring broke with operations under way");
        }
    }
}

/// Ends the process where a ring gives an error that it should not. The kernel may still fill memory, and requests would wait forever:
/// callers are better served by the end of the connection, which the end of the process brings.
pub(crate) fn abort_without_ring(error: OsError) -> ! {
    tracing::error!(%error, "the ring broke");
    std::process::abort();
}

fn panicked(opcode: u32, panic: &(dyn std::any::Any + Send)) -> Outcome {
    let said = panic.downcast_ref::<&str>().copied();
    let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    tracing::error!(opcode, panic = said.unwrap_or("?"), "an operation panicked");
    let wants_reply = Opcode::new(opcode).is_none_or(Opcode::wants_reply);
    if wants_reply { Outcome::Error(Errno::IO) } else { Outcome::Silent }
}
