//! Who looks, and what was put by for them.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, RwLock};
use shuntfs_wire::{InHeader, NodeId};
use thiserror::Error;

use super::filter::TraceFilter;
use super::record::{NodePlace, TraceRecord};

/// So many may look at once.
const TRACERS_MAX: usize = 8;
/// So many records are kept for each who looks and does not take them, 6 KiB each at most: of all queues together, and of one at least and at most.
const KEPT: usize = 4096;
const KEPT_OF_QUEUE: (usize, usize) = (16, 1024);
/// How often one that waits for records checks whether there can be any more.
const LOOK: Duration = Duration::from_millis(500);

/// What a trace asks of the server.
pub(crate) trait Observed: Send + Sync {
    /// Whether requests leave records from now on.
    fn set_traced(&self, is_traced: bool);
    /// Where a node is.
    fn place_of(&self, node: NodeId) -> Option<NodePlace>;
}

/// Why nothing can be looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum TraceError {
    /// Too many look already.
    #[error("{TRACERS_MAX} traces are running already")]
    TooMany,
    /// The connection has ended.
    #[error("the connection has ended")]
    Ended,
}

/// What comes out of a [`Trace`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Traced {
    /// A request that was answered.
    Record(Arc<TraceRecord>),
    /// So many records did not fit and are missing, among those that came last or after them.
    Dropped(u64),
}

/// All who look at one session.
#[derive(Debug, Default)]
pub(crate) struct Hub {
    tracers: RwLock<Vec<Arc<Tracer>>>,
}

#[derive(Debug)]
struct Tracer {
    filter: TraceFilter,
    /// So many records fit into each ring.
    kept: usize,
    /// One for each queue.
    rings: Box<[Mutex<VecDeque<Arc<TraceRecord>>>]>,
    dropped: AtomicU64,
    /// Whether somebody waits for records.
    is_awaited: AtomicBool,
    has_news: Mutex<bool>,
    news: Condvar,
}

impl Hub {
    /// Adds one who looks, at so many queues.
    pub(crate) fn attach(
        self: &Arc<Self>,
        queues: usize,
        filter: TraceFilter,
        observed: &Weak<dyn Observed>,
    ) -> Result<Trace, TraceError> {
        let server = observed.upgrade().ok_or(TraceError::Ended)?;
        let mut tracers = self.tracers.write();
        if tracers.len() >= TRACERS_MAX {
            return Err(TraceError::TooMany);
        }
        let queues = queues.max(1);
        let tracer = Arc::new(Tracer {
            filter,
            kept: kept_of(queues),
            rings: (0..queues).map(|_| Mutex::default()).collect(),
            dropped: AtomicU64::new(0),
            is_awaited: AtomicBool::new(false),
            has_news: Mutex::new(false),
            news: Condvar::new(),
        });
        tracers.push(Arc::clone(&tracer));
        server.set_traced(true);
        Ok(Trace { hub: Arc::clone(self), tracer, observed: Weak::clone(observed), ready: VecDeque::new() })
    }

    fn detach(&self, tracer: &Arc<Tracer>, observed: &Weak<dyn Observed>) {
        // Where this is the last reference, the server ends when it is dropped ([`Hub::end`]): after the lock.
        let server = observed.upgrade();
        let mut tracers = self.tracers.write();
        tracers.retain(|other| !Arc::ptr_eq(other, tracer));
        if tracers.is_empty()
            && let Some(server) = &server
        {
            server.set_traced(false);
        }
    }

    /// The server has gone: nobody needs to wait any longer.
    pub(crate) fn end(&self) {
        self.tracers.read().iter().for_each(|tracer| tracer.tell());
    }

    /// Whether a request may be worth a record to anybody.
    pub(super) fn may_take(&self, header: &InHeader) -> bool {
        self.tracers.read().iter().any(|tracer| tracer.filter.may_take(header))
    }

    /// Hands a record to everybody who takes it, as it is before long names are cut.
    pub(super) fn put(&self, header: &InHeader, mut record: TraceRecord) {
        let tracers = self.tracers.read();
        let takes = |tracer: &&Arc<Tracer>| tracer.filter.may_take(header) && tracer.filter.takes(&record);
        let takers: Vec<&Arc<Tracer>> = tracers.iter().filter(takes).collect();
        if takers.is_empty() {
            return;
        }
        record.cut();
        let record = Arc::new(record);
        takers.iter().for_each(|tracer| tracer.put(&record));
    }
}

/// How many records of each of so many queues are kept.
fn kept_of(queues: usize) -> usize {
    let (least, most) = KEPT_OF_QUEUE;
    (KEPT / queues).clamp(least, most)
}

impl Tracer {
    fn put(&self, record: &Arc<TraceRecord>) {
        let mut ring = self.rings[record.queue % self.rings.len()].lock();
        if ring.len() < self.kept {
            ring.push_back(Arc::clone(record));
        } else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        drop(ring);
        // Who waits says so before it looks into the rings once more, so one of us two sees the other.
        if self.is_awaited.load(Ordering::SeqCst) {
            self.tell();
        }
    }

    fn tell(&self) {
        *self.has_news.lock() = true;
        self.news.notify_one();
    }

    fn take(&self, into: &mut VecDeque<Traced>) {
        let mut taken = Vec::new();
        for ring in &self.rings {
            taken.extend(ring.lock().drain(..));
        }
        taken.sort_by_key(|record| record.began + record.duration);
        into.extend(taken.into_iter().map(Traced::Record));
        match self.dropped.swap(0, Ordering::Relaxed) {
            0 => {}
            count => into.push_back(Traced::Dropped(count)),
        }
    }
}

/// A look at the requests of a session, as they are answered ([`crate::Session::trace`]). Requests that had begun before it are not in it.
///
/// As an iterator it waits for the next record, until the connection has ended. Records of each queue come in their order; those of different
/// queues may come a moment late. Dropping it ends the look, and the cost of it.
pub struct Trace {
    hub: Arc<Hub>,
    tracer: Arc<Tracer>,
    observed: Weak<dyn Observed>,
    ready: VecDeque<Traced>,
}

impl Trace {
    /// What comes next, if it comes within `limit`.
    pub fn next_within(&mut self, limit: Duration) -> Option<Traced> {
        let end = Instant::now().checked_add(limit);
        loop {
            if let Some(next) = self.ready.pop_front() {
                return Some(next);
            }
            self.tracer.is_awaited.store(true, Ordering::SeqCst);
            self.tracer.take(&mut self.ready);
            if self.ready.is_empty() {
                let left = end.map_or(LOOK, |end| end.saturating_duration_since(Instant::now()));
                if !left.is_zero() {
                    self.wait(left.min(LOOK));
                }
                if left.is_zero() || self.has_ended() {
                    self.tracer.is_awaited.store(false, Ordering::SeqCst);
                    self.tracer.take(&mut self.ready);
                    return self.ready.pop_front();
                }
            }
            self.tracer.is_awaited.store(false, Ordering::SeqCst);
        }
    }

    /// Whether the connection has ended, so that nothing more can come than what exists.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.observed.strong_count() == 0
    }

    fn wait(&self, limit: Duration) {
        let mut has_news = self.tracer.has_news.lock();
        if !*has_news {
            self.tracer.news.wait_for(&mut has_news, limit);
        }
        *has_news = false;
    }
}

impl Iterator for Trace {
    type Item = Traced;

    fn next(&mut self) -> Option<Traced> {
        loop {
            let next = self.next_within(LOOK);
            if next.is_some() || self.has_ended() {
                return next;
            }
        }
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        self.hub.detach(&self.tracer, &self.observed);
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").field("filter", &self.tracer.filter).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod test {
    use shuntfs_wire::Opcode;
    use zerocopy::FromZeros;

    use super::*;
    use crate::trace::record::nothing;

    /// A server that knows whether it is examined.
    #[derive(Debug, Default)]
    struct Server(AtomicBool);

    impl Observed for Server {
        fn set_traced(&self, is_traced: bool) {
            self.0.store(is_traced, Ordering::SeqCst);
        }

        fn place_of(&self, _: NodeId) -> Option<NodePlace> {
            None
        }
    }

    fn stage() -> (Arc<Hub>, Arc<Server>, Weak<dyn Observed>) {
        let server = Arc::new(Server::default());
        let weak: Weak<Server> = Arc::downgrade(&server);
        (Arc::default(), server, weak)
    }

    fn header(opcode: Opcode) -> InHeader {
        let mut header = InHeader::new_zeroed();
        header.opcode = opcode as u32;
        header
    }

    fn put(hub: &Hub, opcode: Opcode, queue: usize, unique: u64) {
        hub.put(&header(opcode), TraceRecord { queue, unique, opcode: opcode as u32, ..nothing() });
    }

    fn all(trace: &mut Trace) -> (Vec<u64>, u64) {
        let (mut numbers, mut dropped) = (Vec::new(), 0);
        while let Some(next) = trace.next_within(Duration::ZERO) {
            match next {
                Traced::Record(record) => numbers.push(record.unique),
                Traced::Dropped(count) => dropped += count,
            }
        }
        (numbers, dropped)
    }

    #[test]
    fn the_flag_is_up_as_long_as_anybody_looks() {
        let (hub, server, observed) = stage();
        let is_up = || server.0.load(Ordering::SeqCst);
        assert!(!is_up());
        let one = hub.attach(1, TraceFilter::default(), &observed).expect("there is room");
        let other = hub.attach(1, TraceFilter::default(), &observed).expect("there is room");
        drop(one);
        assert!(is_up());
        drop(other);
        assert!(!is_up());
    }

    #[test]
    fn so_many_may_look_and_no_more() {
        let (hub, server, observed) = stage();
        let attach = || hub.attach(1, TraceFilter::default(), &observed);
        let mut traces: Vec<Trace> = (0..TRACERS_MAX).map(|_| attach().expect("there is room")).collect();
        assert_eq!(attach().err(), Some(TraceError::TooMany));
        traces.pop();
        assert!(attach().is_ok());
        drop(server);
        assert_eq!(attach().err(), Some(TraceError::Ended));
        assert!(traces[0].has_ended() && traces[0].next().is_none());
    }

    #[test]
    fn who_does_not_read_is_told_what_is_missing() {
        let (hub, _server, observed) = stage();
        let mut trace = hub.attach(2, TraceFilter::default(), &observed).expect("there is room");
        let mut other = hub.attach(2, TraceFilter::default(), &observed).expect("there is room");
        let kept = u64::try_from(kept_of(2)).expect("small");
        for unique in 1..=kept + 5 {
            put(&hub, Opcode::Read, 0, unique);
            if unique <= kept {
                assert_eq!(all(&mut other), (vec![unique], 0));
            }
        }
        put(&hub, Opcode::Read, 1, 0);
        let (numbers, dropped) = all(&mut trace);
        assert_eq!((numbers.len(), dropped), (kept_of(2) + 1, 5));
        assert!(numbers.contains(&0), "the other queue has a ring of its own");
        assert_eq!(all(&mut other).0.len(), 6);
        put(&hub, Opcode::Read, 0, 7);
        assert_eq!(all(&mut trace), (vec![7], 0));
    }

    #[test]
    fn many_queues_share_what_is_kept() {
        let kept = [1, 4, 8, 64, 256, 1024].map(kept_of);
        assert_eq!(kept, [1024, 1024, 512, 64, 16, 16]);
        let (hub, _server, observed) = stage();
        let mut trace = hub.attach(64, TraceFilter::default(), &observed).expect("there is room");
        for unique in 0..10_000 {
            put(&hub, Opcode::Read, usize::try_from(unique % 64).expect("small"), unique);
        }
        let (numbers, dropped) = all(&mut trace);
        assert_eq!((numbers.len(), dropped), (KEPT, 10_000 - 4096));
    }

    /// A filter looks for the whole path, and what is kept for long is cut.
    #[test]
    fn long_names_are_found_and_then_cut() {
        let (hub, _server, observed) = stage();
        let matches = |record: &TraceRecord| record.path().is_some_and(|path| path.ends_with(b"/end"));
        let filter = TraceFilter { matches: Some(Arc::new(matches)), ..TraceFilter::default() };
        let mut trace = hub.attach(1, filter, &observed).expect("there is room");
        let place = Some(NodePlace::new([&[b'a'; 4000][..], b"/end"].concat()));
        hub.put(&header(Opcode::Getattr), TraceRecord { place, ..nothing() });
        let Some(Traced::Record(record)) = trace.next_within(Duration::ZERO) else { panic!("it is taken") };
        assert!(record.is_cut && record.path().is_some_and(|path| path.len() == 1024 + "…".len()));
    }

    #[test]
    fn each_gets_what_it_asked_for() {
        let (hub, _server, observed) = stage();
        let reads = TraceFilter { operations: vec![Opcode::Read], ..TraceFilter::default() };
        let errors = TraceFilter { errors: true, ..TraceFilter::default() };
        let slow = TraceFilter { slower_than: Duration::from_secs(1), ..TraceFilter::default() };
        let odd = TraceFilter {
            matches: Some(Arc::new(|record| record.unique % 2 == 1)),
            ..TraceFilter::default()
        };
        let of_nobody = TraceFilter { process: Some(u32::MAX), ..TraceFilter::default() };
        let mut traces = [reads, errors, slow, odd, of_nobody]
            .map(|filter| hub.attach(1, filter, &observed).expect("there is room"));
        put(&hub, Opcode::Read, 0, 1);
        put(&hub, Opcode::Write, 0, 2);
        let failed = TraceRecord { unique: 4, errno: Some(shuntfs_wire::Errno::IO), ..nothing() };
        hub.put(&header(Opcode::Write), failed);
        hub.put(
            &header(Opcode::Write),
            TraceRecord { unique: 6, duration: Duration::from_secs(2), ..nothing() },
        );
        let seen: Vec<Vec<u64>> = traces.iter_mut().map(|trace| all(trace).0).collect();
        assert_eq!(seen, [vec![1], vec![4], vec![6], vec![1], vec![]]);
    }

    #[test]
    fn who_waits_is_woken_by_a_record() {
        let (hub, _server, observed) = stage();
        let mut trace = hub.attach(1, TraceFilter::default(), &observed).expect("there is room");
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| (0..200).filter(|_| trace.next_within(LOOK * 20).is_some()).count());
            for unique in 0..200 {
                put(&hub, Opcode::Read, 0, unique);
                std::thread::yield_now();
            }
            let since = Instant::now();
            assert_eq!(reader.join().expect("no panic"), 200);
            assert!(since.elapsed() < LOOK * 10);
        });
    }
}
