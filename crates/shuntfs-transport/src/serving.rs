//! Requests into futures, and their outcomes: what a device's loop and a ring's loop share.

use std::future::Future;
use std::rc::Rc;
use std::task::Poll;

use shuntfs_runtime::Tasks;
use shuntfs_wire::{Errno, InHeader, Opcode};

use crate::exchange::{Done, Exchange, Outcome};
use crate::load::Load;
use crate::port::Port;
use crate::slot::{Parts, Slots};

/// The requests of one thread that are being served.
pub(crate) struct Serving<S, Fut> {
    service: S,
    tasks: Tasks<Fut>,
    pub(crate) port: Rc<Port>,
    pub(crate) slots: Slots,
    served: Vec<Served>,
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
}

/// An idle queue gives memory back when more than this of a payload was used.
const WORTH_GIVING_BACK: usize = 256 << 10;

impl<S, Fut> Serving<S, Fut>
where
    S: Fn(Exchange) -> Fut,
    Fut: Future<Output = Done>,
{
    pub(crate) fn new(service: S, port: Port, slots: Slots) -> Self {
        let count = slots.count();
        let tasks = Tasks::new(count, port.queue().ready());
        let nothing = Served { unique: 0, opcode: 0, went_on: false };
        Self {
            service,
            tasks,
            port: Rc::new(port),
            slots,
            served: vec![nothing; count],
            pending: 0,
            touched: 0,
            loads: vec![Load::default(); count],
        }
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
    pub(crate) fn start(&mut self, slot: u32, header: InHeader, parts: Parts) -> Option<Outcome> {
        let at = slot as usize;
        self.carried(at, parts.rest.len());
        self.served[at] = Served { unique: header.unique, opcode: header.opcode, went_on: false };
        let exchange = Exchange::new(header, parts, self.slots.slot(at), slot, Rc::clone(&self.port));
        let polled = self.tasks.start(at, (self.service)(exchange));
        if polled.is_pending() {
            self.served[at].went_on = true;
            self.pending += 1;
            self.port.goes_on(slot, header.unique);
        }
        self.judge(slot, polled)
    }

    /// Polls a slot that was woken; its outcome where it ended.
    pub(crate) fn poll(&mut self, slot: usize) -> Option<Outcome> {
        let polled = self.tasks.poll(slot);
        let slot = u32::try_from(slot).expect("slots are counted in u32");
        self.judge(slot, polled)
    }

    fn judge(&mut self, slot: u32, polled: Poll<std::thread::Result<Done>>) -> Option<Outcome> {
        let Poll::Ready(ended) = polled else { return None };
        let served = &mut self.served[slot as usize];
        if std::mem::take(&mut served.went_on) {
            self.pending -= 1;
            self.port.ended(slot, served.unique);
        }
        let outcome = ended.map_or_else(
            |panic| {
                let said = panic.downcast_ref::<&str>().copied();
                let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
                tracing::error!(opcode = served.opcode, panic = said.unwrap_or("?"), "an operation panicked");
                if wants_answer(served.opcode) { Outcome::Error(Errno::IO) } else { Outcome::Silent }
            },
            |done| done.0,
        );
        match outcome {
            Outcome::Reply(len) => self.carried(slot as usize, len),
            Outcome::Linked(len) => self.carried(slot as usize, len as usize),
            _ => {}
        }
        Some(outcome)
    }

    /// A slot carried so many bytes of payload, or is about to.
    fn carried(&mut self, slot: usize, len: usize) {
        self.touched = self.touched.max(len);
        if self.loads[slot].add(len) {
            self.slots.gather(slot);
        }
    }

    /// Whether so much memory was used that an idle queue should give it back.
    pub(crate) fn holds_memory(&self) -> bool {
        self.touched >= WORTH_GIVING_BACK
    }

    /// Memory was given back.
    pub(crate) fn gave_back(&mut self) {
        self.touched = 0;
        self.loads.fill(Load::default());
    }
}

fn wants_answer(opcode: u32) -> bool {
    let silent = [Opcode::Forget, Opcode::BatchForget, Opcode::Interrupt, Opcode::NotifyReply];
    !Opcode::new(opcode).is_some_and(|opcode| silent.contains(&opcode))
}
