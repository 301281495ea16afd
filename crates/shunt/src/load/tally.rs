//! The server's count, while somebody looks.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use shuntfs::{Flow, Opcode, TraceFilter, TraceRecord};
use shuntfs_sys::threads;

use super::document::{FileLoad, Load, LoadCounts, ProcessLoad};
use super::table::Table;

/// Queues share so many parts of the count.
const PARTS: usize = 8;
/// So many files and processes are told of by each measure.
const TOLD: usize = 20;
/// So many bytes of a path are told. Of one that is longer, its end is, which says more than its begin.
const PATH_MAX: usize = 1024;
/// So many threads are remembered with their process.
const THREADS_MAX: usize = 1024;
/// A part looks at no more than so many requests in so long; then only half as many of all are examined, and at the least one of so many.
const LOOKS: u32 = 256;
const LOOKS_TAKE: Duration = Duration::from_millis(50);
const ONE_OF_MAX: u32 = 64;

/// Counts by file and by process.
pub(crate) struct Tally {
    /// One request of so many is examined.
    one_of: Arc<AtomicU32>,
    parts: [Mutex<Part>; PARTS],
    /// When the last answer was given; none before the first.
    told: Mutex<Option<Instant>>,
}

/// What some of the queues counted.
#[derive(Debug)]
struct Part {
    files: Table<(Option<Vec<u8>>, u64), ()>,
    processes: Table<u32, (Vec<u8>, u32)>,
    /// The processes of threads.
    threads: HashMap<u32, u32>,
    /// How many requests it has looked at, in all and in this pace.
    looked: u32,
    pace: u32,
    since: Instant,
}

impl Tally {
    /// A new one, and the filter that counts for it, and keeps no record.
    pub(crate) fn begin() -> (Arc<Self>, TraceFilter) {
        let one_of = Arc::new(AtomicU32::new(1));
        let tally = Arc::new(Self {
            one_of: Arc::clone(&one_of),
            parts: std::array::from_fn(|_| Mutex::new(Part::new())),
            told: Mutex::new(None),
        });
        let counts = Arc::clone(&tally);
        let count = move |record: &TraceRecord| {
            counts.count(record);
            false
        };
        (tally, TraceFilter { one_of, matches: Some(Arc::new(count)), ..TraceFilter::default() })
    }

    fn count(&self, record: &TraceRecord) {
        let one_of = self.one_of.load(Ordering::Relaxed);
        let mut part = locked(&self.parts[record.queue % PARTS]);
        part.count(record, one_of.into());
        if part.is_too_fast() {
            self.look_less(one_of);
        }
    }

    /// Looks at half as many requests as one of so many. Where another part was faster, once is enough.
    fn look_less(&self, one_of: u32) {
        let half = (one_of * 2).min(ONE_OF_MAX);
        let _other_part = self.one_of.compare_exchange(one_of, half, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// What was counted since the last time; nothing, the first time.
    pub(crate) fn take(&self) -> Load {
        let now = Instant::now();
        let before = locked(&self.told).replace(now);
        let one_of = self.one_of.load(Ordering::Relaxed);
        let (mut files, mut processes, mut looked) = (Table::default(), Table::default(), 0_u32);
        for part in &self.parts {
            let part = std::mem::replace(&mut *locked(part), Part::new());
            looked = looked.saturating_add(part.looked);
            part.files.into_entries().for_each(|(key, (), counts)| files.add(key, || (), &counts));
            part.processes.into_entries().for_each(|(pid, who, counts)| processes.add(pid, || who, &counts));
        }
        let Some(before) = before else { return Load { one_of, ..Load::default() } };
        let lasted = now.saturating_duration_since(before);
        // Where twice as many would still be few, twice as many are examined from now on.
        if one_of > 1 && lasted > LOOKS_TAKE * (looked / LOOKS + 1) * 4 {
            self.one_of.store(one_of / 2, Ordering::Relaxed);
        }
        files.keep(TOLD);
        processes.keep(TOLD);
        let file = |((path, node), (), counts): ((Option<Vec<u8>>, u64), (), LoadCounts)| {
            FileLoad::new(path.as_deref(), node, counts)
        };
        let process =
            |(pid, (comm, uid), counts): (u32, (Vec<u8>, u32), _)| ProcessLoad::new(pid, &comm, uid, counts);
        Load {
            lasted_ns: u64::try_from(lasted.as_nanos()).unwrap_or(u64::MAX),
            one_of,
            files: files.into_entries().map(file).collect(),
            processes: processes.into_entries().map(process).collect(),
        }
    }
}

impl Part {
    fn new() -> Self {
        let (files, processes) = (Table::default(), Table::default());
        Self { files, processes, threads: HashMap::new(), looked: 0, pace: 0, since: Instant::now() }
    }

    /// Counts a request that stands for so many.
    fn count(&mut self, record: &TraceRecord, weight: u64) {
        let counts = counts_of(record, weight);
        if let Some(key) = file_of(record) {
            self.files.add(key, || (), &counts);
        }
        let pid = self.process_of(record.pid);
        let who = || (name_of(pid, record), record.uid);
        self.processes.add(pid, who, &counts);
    }

    /// Whether too many requests are examined. Called after each.
    fn is_too_fast(&mut self) -> bool {
        self.looked = self.looked.saturating_add(1);
        self.pace += 1;
        if self.pace < LOOKS {
            return false;
        }
        let took = std::mem::replace(&mut self.since, Instant::now()).elapsed();
        self.pace = 0;
        took < LOOKS_TAKE
    }

    /// The process of a caller's thread. A thread that is gone stands for itself.
    fn process_of(&mut self, tid: u32) -> u32 {
        if tid == 0 {
            return 0;
        }
        if self.threads.len() >= THREADS_MAX && !self.threads.contains_key(&tid) {
            self.threads.clear();
        }
        *self.threads.entry(tid).or_insert_with(|| threads::process_of(tid).unwrap_or(tid))
    }
}

impl fmt::Debug for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tally").field("one_of", &self.one_of).finish_non_exhaustive()
    }
}

/// A thread of the process may have another name.
fn name_of(pid: u32, record: &TraceRecord) -> Vec<u8> {
    let own = if pid == record.pid { None } else { threads::name_of(pid) };
    own.unwrap_or_else(|| record.comm.clone())
}

/// The file of a request: its path, or else its node. Some requests are of no file.
fn file_of(record: &TraceRecord) -> Option<(Option<Vec<u8>>, u64)> {
    match record.path() {
        Some(path) => Some((Some(ended(path)), 0)),
        None => Some((None, record.node)).filter(|(_, node)| *node != 0),
    }
}

fn ended(path: Vec<u8>) -> Vec<u8> {
    if path.len() <= PATH_MAX {
        return path;
    }
    // Between characters, if it is UTF-8.
    let is_start = |at: &usize| path[*at] & 0b1100_0000 != 0b1000_0000;
    let from = path.len() - PATH_MAX;
    let from = (from..from + 4).find(is_start).unwrap_or(from);
    ["…".as_bytes(), &path[from..]].concat()
}

fn counts_of(record: &TraceRecord, weight: u64) -> LoadCounts {
    let operation = record.operation();
    let has_failed = record.errno.is_some();
    // Behind a linked read, and through a pipe, it is not known how many came of those that were asked for.
    let moved = record.moved.or(record.len).filter(|_| !has_failed).unwrap_or_default();
    let of = |is_it: bool, count: u64| if is_it { count.saturating_mul(weight) } else { 0 };
    LoadCounts {
        requests: weight,
        errors: of(has_failed, 1),
        opens: of(matches!(operation, Some(Opcode::Open | Opcode::Create)) && !has_failed, 1),
        read_bytes: of(operation == Some(Opcode::Read), moved),
        written_bytes: of(operation == Some(Opcode::Write), moved),
        passthrough: record.flow == Some(Flow::Passthrough),
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn of_a_long_path_the_end_is_told() {
        assert_eq!(ended(vec![b'a'; PATH_MAX]), vec![b'a'; PATH_MAX]);
        for before in 0..4 {
            let path = format!("{}{}/end", "a".repeat(before), "\u{1f4f7}".repeat(400));
            let told = String::from_utf8(ended(path.into_bytes())).expect("whole characters");
            assert!(told.starts_with("…\u{1f4f7}") && told.ends_with("/end"), "{told}");
            assert!(told.len() > PATH_MAX - 4 && told.len() <= PATH_MAX + "…".len(), "{}", told.len());
        }
        assert_eq!(ended(vec![0x80; 4000]).len(), PATH_MAX + "…".len());
    }

    #[test]
    fn where_requests_are_many_fewer_are_looked_at_and_then_more_again() {
        let (tally, filter) = Tally::begin();
        let one_of = || filter.one_of.load(Ordering::Relaxed);
        assert_eq!((one_of(), tally.take().lasted_ns), (1, 0));
        for part in &tally.parts {
            let mut part = locked(part);
            let fast = (0..LOOKS * 2).filter(|_| part.is_too_fast()).count();
            assert!(fast > 0, "so many at once");
            part.since = Instant::now() - LOOKS_TAKE;
            assert!((1..LOOKS).all(|_| !part.is_too_fast()) && !part.is_too_fast(), "so many in so long");
        }
        for (before, after) in [(1, 2), (1, 2), (2, 4), (4, 8), (8, 16), (16, 32), (32, 64), (64, 64)] {
            tally.look_less(before);
            assert_eq!(one_of(), after);
        }
        tally.take();
        std::thread::sleep(LOOKS_TAKE * 5);
        assert_eq!((tally.take().one_of, one_of()), (64, 32));
    }

    #[test]
    fn threads_are_told_by_their_process() {
        let mut part = Part::new();
        let own = std::thread::spawn(threads::gettid).join().expect("no panic");
        // That one is gone.
        assert_eq!((part.process_of(0), part.process_of(own)), (0, own));
        let (send, wait) = std::sync::mpsc::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            tell.send(threads::gettid()).expect("somebody hears");
            let _over = wait.recv();
        });
        let tid = told.recv().expect("is told");
        assert_ne!(tid, std::process::id());
        assert_eq!(part.process_of(tid), std::process::id());
        drop(send);
        thread.join().expect("no panic");
        for tid in 1..5000 {
            part.process_of(u32::MAX - tid);
        }
        assert!(part.threads.len() <= THREADS_MAX);
    }
}
