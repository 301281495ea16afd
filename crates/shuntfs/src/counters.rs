//! What was done, counted by queue.
//!
//! Each queue's thread alone writes its own counters, so a count is a plain load and store; whoever reads sums
//! all queues and may see one of them a little behind.
//!
//! Where a mount outlives its servers, the counters are in the memory that does, too ([`Counters::kept`]), and each server goes on counting.
//!
//! # Safety
//! [`QueueCounts`] consists of [`Count`]s, each of which is one atomic word.
#![expect(unsafe_code, reason = "the words of a dead server's counters are used as counters")]

use std::any::Any;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use shuntfs_sys::placed::{AtomicWords, Placed};

use crate::delegation::{Flow, Flows, Reason};
use crate::latency::Latencies;
use crate::takeover::KeptCounters;

/// Opcodes counted apart; what lies beyond is counted at zero, with the unknown ones.
pub(crate) const OPCODES: usize = 64;

/// The counters of one queue.
#[derive(Debug)]
pub(crate) struct QueueCounters {
    /// The queue's number.
    pub(crate) index: usize,
    counts: Place,
}

/// Where counters are.
#[derive(Debug)]
enum Place {
    Own(Box<QueueCounts>),
    /// In memory that outlives the server.
    Kept(Placed<QueueCounts>),
}

/// What is counted, on cache lines of its own.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct QueueCounts {
    /// Requests by opcode.
    pub(crate) requests: [Count; OPCODES],
    /// Answers with an error by opcode.
    pub(crate) errors: [Count; OPCODES],
    /// Opens by settled flow, of their reads.
    pub(crate) flows: [Count; Flow::ALL.len()],
    /// Opens whose writes flow otherwise than their reads, by the flow of the writes.
    pub(crate) write_flows: [Count; Flow::ALL.len()],
    /// Opens by reason; those that went as wished are at its place.
    pub(crate) reasons: [Count; Reason::ALL.len()],
    /// Requests that are done with. What is between them and those that came is at work.
    pub(crate) finished: Count,
    /// Bytes answered to READ by us, by what moved them.
    pub(crate) read_bytes: [Count; Flow::ALL.len()],
    /// READs answered through a pipe.
    pub(crate) spliced_reads: Count,
    /// Bytes taken from WRITE by us, by what moved them.
    pub(crate) written_bytes: [Count; Flow::ALL.len()],
    /// How long requests took.
    pub(crate) latencies: Latencies,
    /// Requests that did not parse.
    pub(crate) malformed: Count,
    /// Operations of the file system that panicked.
    pub(crate) panics: Count,
    /// Fills the last cache line.
    _rest: [Count; REST],
}

/// How many counts there are.
const COUNTS: usize = 2 * OPCODES + 4 * Flow::ALL.len() + Reason::ALL.len() + Latencies::COUNTS + 4;
const REST: usize = COUNTS.next_multiple_of(16) - COUNTS;

// SAFETY: it is `repr(C)`, all of its fields are made of `Count`, which is `repr(transparent)` over an atomic word, and `REST` leaves no padding.
unsafe impl AtomicWords for QueueCounts {}

const _: () = assert!(size_of::<QueueCounts>() == (COUNTS + REST) * size_of::<Count>(), "it has no padding");

/// One number that one thread raises.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Raises it by one. For the queue's own thread only.
    pub(crate) fn bump(&self) {
        self.add(1);
    }

    /// Raises it. For the queue's own thread only.
    pub(crate) fn add(&self, more: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Deref for QueueCounters {
    type Target = QueueCounts;

    fn deref(&self) -> &QueueCounts {
        match &self.counts {
            Place::Own(counts) => counts,
            Place::Kept(counts) => counts,
        }
    }
}

impl QueueCounts {
    /// What its arrays are counted by, in their order.
    pub(crate) fn names() -> impl Iterator<Item = String> {
        let flows = Flow::ALL.iter().map(|flow| flow.name().to_owned());
        flows.chain(Reason::ALL.iter().map(|reason| reason.name().to_owned())).chain(Latencies::names())
    }

    fn new() -> Self {
        Self {
            requests: [const { Count::new() }; OPCODES],
            errors: [const { Count::new() }; OPCODES],
            flows: [const { Count::new() }; Flow::ALL.len()],
            write_flows: [const { Count::new() }; Flow::ALL.len()],
            reasons: [const { Count::new() }; Reason::ALL.len()],
            finished: Count::new(),
            read_bytes: [const { Count::new() }; Flow::ALL.len()],
            spliced_reads: Count::new(),
            written_bytes: [const { Count::new() }; Flow::ALL.len()],
            latencies: Latencies::new(),
            malformed: Count::new(),
            panics: Count::new(),
            _rest: [const { Count::new() }; REST],
        }
    }

    /// A dead server's: what it had not finished comes again, and is counted as another request.
    fn goes_on(&self) {
        let came = self.requests.iter().map(Count::read).fold(0, u64::wrapping_add);
        self.finished.0.store(came, Ordering::Relaxed);
    }

    /// Counts bytes that were read.
    pub(crate) fn read(&self, flow: Flow, len: u64) {
        self.read_bytes[flow as usize].add(len);
    }

    /// Counts bytes that were written.
    pub(crate) fn written(&self, flow: Flow, len: u64) {
        self.written_bytes[flow as usize].add(len);
    }

    /// Counts one settled open: by its reads, and by its writes where they flow otherwise.
    pub(crate) fn opened(&self, flows: Flows) {
        self.flows[flows.reads.flow as usize].bump();
        self.reasons[flows.reads.reason as usize].bump();
        if flows.is_split() {
            self.write_flows[flows.writes.flow as usize].bump();
        }
        if flows.writes.reason != flows.reads.reason {
            self.reasons[flows.writes.reason as usize].bump();
        }
    }
}

/// The place of an opcode in a queue's counters.
pub(crate) fn place(opcode: u32) -> usize {
    usize::try_from(opcode).ok().filter(|place| *place < OPCODES).unwrap_or(0)
}

/// The counters of all queues.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    queues: Mutex<Vec<Arc<QueueCounters>>>,
    /// Panics of what an author tells for people, on whatever thread.
    pub(crate) panics_aside: AtomicU64,
    kept: Option<KeptCounters>,
}

impl Counters {
    /// Counters in memory that outlives the server.
    pub(crate) fn kept(kept: Option<KeptCounters>) -> Self {
        Self { kept, ..Self::default() }
    }

    /// Adds a queue, which goes on with the counts of the predecessors' queue of this number.
    pub(crate) fn add_queue(&self, index: usize) -> Arc<QueueCounters> {
        let kept = self.kept.as_ref().and_then(|kept| kept.place(index));
        let counts = match kept {
            Some(counts) => {
                counts.goes_on();
                Place::Kept(counts)
            }
            None => Place::Own(Box::new(QueueCounts::new())),
        };
        let counters = Arc::new(QueueCounters { index, counts });
        self.queues.lock().push(Arc::clone(&counters));
        counters
    }

    /// The counters of every queue so far.
    pub(crate) fn queues(&self) -> Vec<Arc<QueueCounters>> {
        self.queues.lock().clone()
    }

    /// Asks an author for what is only shown, which no request may suffer from. A panic there is counted, and logged if it is the first.
    pub(crate) fn ask_aside<T>(&self, what: &str, ask: impl FnOnce() -> T) -> Option<T> {
        let panic = match catch_unwind(AssertUnwindSafe(ask)) {
            Ok(answer) => return Some(answer),
            Err(panic) => panic,
        };
        if self.panics_aside.fetch_add(1, Ordering::Relaxed) == 0 {
            let said = said_by(panic.as_ref());
            tracing::error!(said, "{what} panicked; further panics of this kind are only counted");
        }
        None
    }
}

/// What a panic says.
pub(crate) fn said_by(panic: &(dyn Any + Send)) -> &str {
    let said = panic.downcast_ref::<&str>().copied();
    said.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("something")
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn queues_do_not_share_cache_lines() {
        assert_eq!(align_of::<QueueCounts>(), 128);
    }

    #[test]
    fn unknown_opcodes_have_a_place() {
        assert_eq!(place(1), 1);
        assert_eq!(place(53), 53);
        assert_eq!(place(4096), 0);
        assert_eq!(place(u32::MAX), 0);
    }

    #[test]
    fn what_panics_aside_is_counted_and_has_no_answer() {
        let counters = Counters::default();
        assert_eq!(counters.ask_aside("a test", || 7), Some(7));
        for _ in 0..3 {
            assert_eq!(counters.ask_aside("a test", || -> u32 { panic!("told to") }), None);
        }
        assert_eq!(counters.panics_aside.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn what_queues_count_is_summed() {
        let counters = Counters::default();
        std::thread::scope(|scope| {
            for index in 0..3 {
                let queue = counters.add_queue(index);
                scope.spawn(move || {
                    for _ in 0..1000 {
                        queue.requests[place(15)].bump();
                        queue.read(Flow::Relay, 4096);
                    }
                });
            }
        });
        let queues = counters.queues();
        assert_eq!(queues.iter().map(|queue| queue.requests[15].read()).sum::<u64>(), 3000);
        let bytes = queues.iter().map(|queue| queue.read_bytes[Flow::Relay as usize].read());
        assert_eq!(bytes.sum::<u64>(), 3000 * 4096);
    }
}
