//! Filling every slot, so that another server can go on.
//!
//! While this is on, the threads of rings begin no request and commit no answer: what comes stays where it is, and what was begun ends. So
//! slots fill. Where no request comes, callers of our own ask the file system for its size, from the CPU of the queue in question; the next server
//! answers them. A thread says of each of its queues how many slots are free, and how many requests are being served. Both only become
//! fewer, so that all of it holds together once it is said.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use shuntfs_sys::lookers::{Lookers, look};
use shuntfs_sys::{OsError, threads};
use thiserror::Error;

use crate::kept::KeptRings;

/// Why slots were not filled. All of them are served again.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NotFilled {
    /// Requests were begun and did not end.
    #[error("{0} requests that it has begun have not ended after {1:?}")]
    Begun(u64, Duration),
    /// No request came where one was needed.
    #[error(
        "{0} slots of io_uring could not be filled within {1:?}: a CPU may be out of reach, or the mount at another place"
    )]
    Free(u64, Duration),
    /// There could be no callers of our own.
    #[error("no callers could be made that fill its slots of io_uring ({0})")]
    Callers(#[source] OsError),
    /// A thread said nothing.
    #[error("a thread does not answer")]
    Silent,
}

/// Whether slots are being filled, and how far that is.
#[derive(Debug)]
pub(crate) struct Drain {
    is_on: AtomicBool,
    /// By which threads are woken.
    doors: Mutex<Vec<Waker>>,
    /// By queue of the kernel: free slots in the upper half, requests that are served in the lower; [`UNSAID`].
    left: Box<[AtomicU64]>,
    /// Whether the thread beside the rings may have a FORGET or an INTERRUPT in its hands.
    reads: AtomicBool,
}

const UNSAID: u64 = u64::MAX;
const LOOK: Duration = Duration::from_micros(500);
/// After so long without success more callers are made.
const AGAIN: Duration = Duration::from_millis(500);
/// How long callers of ours that were not needed are waited for.
const LATE: Duration = Duration::from_secs(2);

impl Drain {
    pub(crate) fn new(queues: usize) -> Self {
        let left = (0..queues).map(|_| AtomicU64::new(UNSAID)).collect();
        Self { is_on: AtomicBool::new(false), doors: Mutex::default(), left, reads: AtomicBool::new(false) }
    }

    /// A thread is woken by this whenever it is switched on or off.
    pub(crate) fn wakes(&self, door: Waker) {
        self.doors.lock().push(door);
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::SeqCst)
    }

    /// What is left of a queue.
    pub(crate) fn say(&self, queue: u16, free: u32, begun: u32) {
        if let Some(left) = self.left.get(usize::from(queue)) {
            left.store(u64::from(free) << 32 | u64::from(begun), Ordering::SeqCst);
        }
    }

    /// The thread beside the rings is about to read. False while another server is to go on: what is read then would be lost with this one.
    pub(crate) fn may_read(&self) -> bool {
        // First: who fills slots switches on and then looks at this.
        self.reads.store(true, Ordering::SeqCst);
        let may = !self.is_on();
        self.reads.store(may, Ordering::SeqCst);
        may
    }

    /// That thread has done what it read.
    pub(crate) fn has_read(&self) {
        self.reads.store(false, Ordering::SeqCst);
    }

    fn switch(&self, on: bool) {
        if on {
            self.left.iter().for_each(|left| left.store(UNSAID, Ordering::SeqCst));
        }
        self.is_on.store(on, Ordering::SeqCst);
        self.doors.lock().iter().for_each(Waker::wake_by_ref);
    }

    /// By queue, how many slots are free and how many requests are served; `None` where a thread has not said so yet.
    fn left(&self) -> Option<Vec<(usize, u64, u64)>> {
        let said = self.left.iter().enumerate().map(|(queue, left)| match left.load(Ordering::SeqCst) {
            UNSAID => None,
            left => Some((queue, left >> 32, left & u64::from(u32::MAX))),
        });
        said.collect()
    }
}

impl KeptRings {
    /// Has every slot hold a request or an answer, so that this server can be killed and another one can go on. Until then, and from then on, nobody is
    /// answered. `path` is where the file system is mounted.
    ///
    /// # Errors
    /// [`NotFilled`]; all go on then.
    pub fn fill(&self, path: &Path, limit: Duration) -> Result<(), NotFilled> {
        self.drain.switch(true);
        let mut callers = Vec::new();
        let filled = self.try_fill(path, limit, &mut callers);
        if filled.is_err() {
            self.empty();
            let end = Instant::now() + LATE;
            while !callers.iter().all(Lookers::are_done) && Instant::now() < end {
                std::thread::sleep(LOOK);
            }
        }
        filled
    }

    /// Goes on with what [`KeptRings::fill`] had stopped.
    pub fn empty(&self) {
        self.set_full(false);
        self.drain.switch(false);
    }

    fn try_fill(&self, path: &Path, limit: Duration, callers: &mut Vec<Lookers>) -> Result<(), NotFilled> {
        let end = Instant::now() + limit;
        let mut next = Instant::now();
        loop {
            let now = Instant::now();
            let Some(left) = self.drain.left() else {
                if now > end {
                    return Err(NotFilled::Silent);
                }
                std::thread::sleep(LOOK);
                continue;
            };
            // Nobody can call from a CPU that is offline.
            let online = threads::online_cpus();
            let free = || left.iter().filter(|(queue, free, _)| *free > 0 && online.contains(queue));
            let reads = u64::from(self.drain.reads.load(Ordering::SeqCst));
            let begun: u64 = reads + left.iter().map(|(.., begun)| begun).sum::<u64>();
            let missing: u64 = free().map(|(_, free, _)| free).sum();
            if begun + missing == 0 {
                self.set_full(true);
                return Ok(());
            }
            if now > end {
                return Err(if begun > 0 {
                    NotFilled::Begun(begun, limit)
                } else {
                    NotFilled::Free(missing, limit)
                });
            }
            if missing > 0 && now >= next {
                next = now + AGAIN;
                let wanted: Vec<_> =
                    free().map(|(queue, free, _)| (*queue, usize::try_from(*free).unwrap_or(0))).collect();
                callers.push(look(path, &wanted).map_err(NotFilled::Callers)?);
            }
            std::thread::sleep(LOOK);
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::settings::Settings;

    const LIMIT: Duration = Duration::from_millis(50);

    fn rings() -> KeptRings {
        let settings = Settings { depth: 2, payload_len: 8192, ..Settings::default() };
        KeptRings::create(&settings).expect("memory")
    }

    /// Says the same of each queue as soon as it is asked.
    fn fill(rings: &KeptRings, free: u32, begun: u32) -> Result<(), NotFilled> {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !rings.drain.is_on() {
                    std::thread::yield_now();
                }
                for queue in 0..u16::try_from(threads::possible_cpus()).expect("few") {
                    rings.drain.say(queue, free, begun);
                }
            });
            rings.fill(Path::new("/proc"), LIMIT)
        })
    }

    #[test]
    fn they_are_full_when_all_threads_say_so_and_not_before() {
        let rings = rings();
        fill(&rings, 0, 0).expect("all are full");
        assert!(rings.are_full() && rings.drain.is_on());
        rings.empty();
        assert!(!rings.are_full() && !rings.drain.is_on());
        let is_over = || !rings.are_full() && !rings.drain.is_on();
        assert!(matches!(rings.fill(Path::new("/proc"), LIMIT), Err(NotFilled::Silent)) && is_over());
        assert!(matches!(fill(&rings, 0, 3), Err(NotFilled::Begun(3.., _))) && is_over());
        // Nobody who looks at this file system comes to the queues.
        assert!(matches!(fill(&rings, 2, 0), Err(NotFilled::Free(2.., _))) && is_over());
    }

    #[test]
    fn nothing_is_read_beside_rings_that_are_full() {
        let rings = rings();
        assert!(rings.drain.may_read());
        assert!(matches!(fill(&rings, 0, 0), Err(NotFilled::Begun(1, _))), "it may have read something");
        rings.drain.has_read();
        fill(&rings, 0, 0).expect("all are full");
        assert!(!rings.drain.may_read());
        rings.empty();
        fill(&rings, 0, 0).expect("who may not read has nothing");
        rings.empty();
        assert!(rings.drain.may_read());
    }

    #[test]
    fn threads_are_woken_for_each_change() {
        struct Count(AtomicU64);
        impl std::task::Wake for Count {
            fn wake(self: std::sync::Arc<Self>) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let (rings, count) = (rings(), std::sync::Arc::new(Count(AtomicU64::new(0))));
        rings.drain.wakes(Waker::from(std::sync::Arc::clone(&count)));
        assert!(rings.fill(Path::new("/proc"), LIMIT).is_err());
        assert_eq!(count.0.load(Ordering::SeqCst), 2, "on and off");
    }
}
