//! Which requests are under way, and which of them for too long.
//!
//! A thread notes each request in its slot's place when it begins, and takes the note back when it ends: plain stores into a cache line
//! that nobody else writes, without a look at the clock. The watcher (`watch.rs`) reads the places, a quarter of the limit apart, for as long
//! as anything is under way, and tells of a request that it finds there again and again. So what it says of a request's age is the least
//! that it can be.
//!
//! An answer that is linked behind a read of a ring is out of our hands: if that read hangs, nobody here knows.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use shuntfs_wire::{InHeader, Opcode};

use crate::meter::Gauges;

/// So many looks at what is under way are made within the limit.
const LOOKS: u32 = 4;
/// The watcher looks no more often than this.
const STEP_MIN: Duration = Duration::from_millis(5);

/// A request that has been under way for longer than it should.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stall {
    /// The request's number.
    pub unique: u64,
    /// Its operation.
    pub opcode: u32,
    /// The node that it names.
    pub node: u64,
    /// The caller's thread, 0 where it is not visible.
    pub pid: u32,
    /// The caller's file system uid.
    pub uid: u32,
    /// The thread that serves it, if it has not let go of it since it began: what that one waits for, the request does.
    pub thread: Option<u32>,
    /// For how long at least.
    pub age: Duration,
}

/// Who is told of stalls, by a thread that serves no requests and holds no lock. A sink that blocks, as a log that is on the mount itself may, puts
/// off what that thread does for the connection, among it the call of another reader instead of a stuck one. Requests go on.
pub trait StallSink: fmt::Debug + Send + Sync {
    /// A request is under way for longer than the limit. Told once of each.
    fn began(&self, stall: &Stall);
    /// It has ended.
    fn ended(&self, stall: &Stall);
}

/// What one thread has under way.
#[derive(Debug)]
pub(crate) struct Notes {
    tid: u32,
    places: Box<[Place]>,
    /// Requests that went on after the first poll, without those that may wait forever.
    going_on: AtomicU32,
    /// Of a ring's thread: it does not wait for requests.
    is_at_work: AtomicBool,
}

/// What is under way in one slot.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Place {
    /// 0 where there is none.
    unique: AtomicU64,
    node: AtomicU64,
    opcode: AtomicU32,
    pid: AtomicU32,
    uid: AtomicU32,
    went_on: AtomicBool,
}

impl Notes {
    /// Of the thread `tid` with so many slots.
    pub(crate) fn new(tid: u32, slots: usize) -> Self {
        let places = (0..slots).map(|_| Place::default()).collect();
        Self { tid, places, going_on: AtomicU32::new(0), is_at_work: AtomicBool::new(false) }
    }

    /// A request begins. These and the others are for the thread itself.
    pub(crate) fn begins(&self, slot: usize, header: &InHeader) {
        let place = &self.places[slot];
        place.node.store(header.nodeid, Ordering::Relaxed);
        place.opcode.store(header.opcode, Ordering::Relaxed);
        place.pid.store(header.pid, Ordering::Relaxed);
        place.uid.store(header.uid, Ordering::Relaxed);
        place.went_on.store(false, Ordering::Relaxed);
        place.unique.store(header.unique, Ordering::Release);
    }

    /// It did not end at once.
    pub(crate) fn goes_on(&self, slot: usize, opcode: u32) {
        self.places[slot].went_on.store(true, Ordering::Relaxed);
        self.count(opcode, 1);
    }

    /// It has ended; whether it had gone on.
    pub(crate) fn ends(&self, slot: usize, opcode: u32, went_on: bool) {
        self.places[slot].unique.store(0, Ordering::Relaxed);
        if went_on {
            self.count(opcode, -1);
        }
    }

    fn count(&self, opcode: u32, change: i32) {
        if !may_wait(opcode) {
            let count = self.going_on.load(Ordering::Relaxed);
            self.going_on.store(count.saturating_add_signed(change), Ordering::Relaxed);
        }
    }

    /// A ring's thread has something to do, or waits for that.
    pub(crate) fn is_at_work(&self, is_at_work: bool) {
        self.is_at_work.store(is_at_work, Ordering::SeqCst);
    }

    /// Whether the watcher has something to come back for.
    pub(crate) fn has_any(&self) -> bool {
        self.is_at_work.load(Ordering::SeqCst) || self.going_on.load(Ordering::SeqCst) > 0
    }
}

impl Place {
    fn read(&self) -> Option<(u64, Stall)> {
        let unique = self.unique.load(Ordering::Acquire);
        let stall = Stall {
            unique,
            opcode: self.opcode.load(Ordering::Relaxed),
            node: self.node.load(Ordering::Relaxed),
            pid: self.pid.load(Ordering::Relaxed),
            uid: self.uid.load(Ordering::Relaxed),
            thread: None,
            age: Duration::ZERO,
        };
        // Numbers come once, so what is still the same request was so meanwhile. One that a newer one overwrites just now is none that stalls.
        let is_same = unique != 0 && self.unique.load(Ordering::Acquire) == unique;
        (is_same && !may_wait(stall.opcode)).then_some((unique, stall))
    }
}

/// Whether an operation may take as long as its caller likes: it waits for what others do.
fn may_wait(opcode: u32) -> bool {
    matches!(Opcode::new(opcode), Some(Opcode::Setlkw | Opcode::Poll))
}

/// What the watcher knows of requests that it has found.
#[derive(Debug)]
pub(crate) struct StallWatch {
    limit: Duration,
    pub(crate) step: Duration,
    sink: Arc<dyn StallSink>,
    seen: HashMap<u64, Seen>,
    last: Instant,
    round: u64,
}

#[derive(Debug)]
struct Seen {
    since: Instant,
    round: u64,
    is_told: bool,
    stall: Stall,
}

impl StallWatch {
    pub(crate) fn new(limit: Duration, sink: Arc<dyn StallSink>) -> Self {
        let step = (limit / LOOKS).max(STEP_MIN);
        Self { limit, step, sink, seen: HashMap::new(), last: Instant::now(), round: 0 }
    }

    /// The same as [`StallWatch::look`], where it is time.
    pub(crate) fn look_in_time(&mut self, gauges: &Gauges) {
        if self.last.elapsed() >= self.step {
            self.look(gauges);
        }
    }

    /// Looks at everything that is under way.
    pub(crate) fn look(&mut self, gauges: &Gauges) {
        let now = Instant::now();
        self.last = now;
        self.round += 1;
        // Queues wait for that lock, and others for queues.
        let all = gauges.notes().clone();
        let (mut began, mut ended) = (Vec::new(), Vec::new());
        for notes in all {
            for place in &notes.places {
                let Some((unique, mut stall)) = place.read() else { continue };
                let round = self.round;
                let seen = self.seen.entry(unique).or_insert_with(|| Seen {
                    since: now,
                    round,
                    is_told: false,
                    stall: stall.clone(),
                });
                seen.round = round;
                if !seen.is_told && now - seen.since >= self.limit {
                    stall.age = now - seen.since;
                    stall.thread = (!place.went_on.load(Ordering::Relaxed)).then_some(notes.tid);
                    seen.is_told = true;
                    seen.stall = stall.clone();
                    began.push(stall);
                }
            }
        }
        let round = self.round;
        self.seen.retain(|_, seen| {
            if seen.round != round && seen.is_told {
                seen.stall.age = now - seen.since;
                ended.push(seen.stall.clone());
            }
            seen.round == round
        });
        // Before it is told: a request that ends meanwhile leaves the timer set.
        gauges.stall_is_told(self.seen.values().any(|seen| seen.is_told));
        began.iter().for_each(|stall| self.sink.began(stall));
        ended.iter().for_each(|stall| self.sink.ended(stall));
    }
}

#[cfg(test)]
mod test;
