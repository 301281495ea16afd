//! The thread that watches how the queues of a connection get on, and moves them between the scheduler's classes.
//!
//! It sleeps while little happens: a queue wakes it every 32 requests, it looks every few milliseconds, and sleeps again where that was
//! not the beginning of many. So it looks less often than requests come, however slowly they do. Because it stays in the normal class itself, a light queue that is starved is found
//! and helped within one look. The decision is in `governor.rs`.

use std::cell::Cell;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use shuntfs_sys::sched::{self, Class};
use shuntfs_sys::threads;

use crate::governor::{BUSY, Governor};
use crate::prepared::or_abort;

/// How often a watcher that is awake looks.
const LOOK: Duration = Duration::from_millis(4);
/// After so many looks that found too few requests for the light class the watcher sleeps.
const QUIET: u32 = 5;
/// After so many requests a queue looks whether the watcher is awake.
const KNOCK_EVERY: u64 = 32;
/// After so many looks without a request a queue is out of use.
const UNUSED: u32 = 60;
/// A queue that starved at so many looks in a row is helped, for so many looks. Beside somebody who computes all the time it would
/// starve again: each time it is helped for twice as long, up to the last.
const STARVING: u32 = 2;
const HOLD: u32 = 100;
const HOLD_MAX: u32 = 6400;
/// Threads that run where one caller is served and nothing else goes on: the caller, its queue, and the watcher.
const OWN: u32 = 3;

/// What the watcher and the queues of one connection share.
#[derive(Debug)]
pub(crate) struct Pace {
    gauges: Box<[Gauge]>,
    awake: AtomicBool,
    /// Queues that have not ended.
    living: AtomicUsize,
    sleep: Mutex<()>,
    knock: Condvar,
}

/// What one queue shows.
#[derive(Debug, Default)]
struct Gauge {
    /// 0 before it starts and after it ended.
    tid: AtomicU32,
    served: AtomicU64,
}

/// A queue's end, at home in its thread.
#[derive(Debug)]
pub(crate) struct Pacer {
    pace: Option<Arc<Pace>>,
    index: usize,
    served: Cell<u64>,
}

impl Pace {
    /// For so many queues; `None` where this process may not change classes.
    pub(crate) fn new(queues: usize) -> Option<Arc<Self>> {
        sched::may_change_class().then(|| {
            Arc::new(Self {
                gauges: (0..queues).map(|_| Gauge::default()).collect(),
                awake: AtomicBool::new(false),
                living: AtomicUsize::new(queues),
                sleep: Mutex::new(()),
                knock: Condvar::new(),
            })
        })
    }

    /// Starts the watcher, which ends when all queues did.
    pub(crate) fn watch(self: &Arc<Self>) -> std::io::Result<JoinHandle<()>> {
        let pace = Arc::clone(self);
        std::thread::Builder::new().name("shunt-pace".to_owned()).spawn(move || or_abort(|| pace.run()))
    }

    fn run(&self) {
        let mut watched: Vec<Watched> = self.gauges.iter().map(|_| Watched::default()).collect();
        let mut governor = Governor::new();
        // Who runs is counted on the whole machine. Where this process may use a part of it, that errs towards a crowd.
        let cpus = thread::available_parallelism().map_or(1, NonZero::get);
        let crowd = f64::from(u32::try_from(cpus / 2).unwrap_or(u32::MAX).max(OWN)) + 0.5;
        while self.sleep_until_busy() {
            let mut quiet = 0;
            let mut last = Instant::now();
            let mut running = 0.0;
            while quiet < QUIET {
                std::thread::sleep(LOOK);
                let elapsed = std::mem::replace(&mut last, Instant::now()).elapsed().as_secs_f64() * 1e3;
                let rate = self.look(&mut watched, elapsed);
                // The kernel's own threads come and go: only what stays over several looks is a crowd.
                running += (f64::from(threads::running_now().unwrap_or(0)) - running) / 4.0;
                governor.look(rate, running > crowd);
                let light = governor.class() == Class::Light;
                let mut helped = false;
                for (gauge, queue) in self.gauges.iter().zip(&mut watched) {
                    helped |= queue.settle(gauge, light);
                }
                if helped {
                    help_workers();
                }
                quiet = if rate >= BUSY || light { 0 } else { quiet + 1 };
            }
            self.awake.store(false, Ordering::Relaxed);
        }
    }

    /// Looks at every queue; requests a millisecond of all together.
    fn look(&self, watched: &mut [Watched], elapsed: f64) -> f64 {
        self.gauges.iter().zip(watched).map(|(gauge, queue)| queue.look(gauge, elapsed)).sum()
    }

    /// False where the queues have ended.
    fn sleep_until_busy(&self) -> bool {
        let mut sleep = self.sleep.lock();
        loop {
            if self.living.load(Ordering::SeqCst) == 0 {
                return false;
            }
            if self.awake.load(Ordering::SeqCst) {
                return true;
            }
            self.knock.wait(&mut sleep);
        }
    }

    fn wake(&self) {
        drop(self.sleep.lock());
        self.knock.notify_one();
    }
}

/// What the watcher knows of one queue.
#[derive(Debug)]
struct Watched {
    served: u64,
    light: bool,
    /// Looks since the last one that found new requests.
    unused: u32,
    /// Looks in a row that found the queue waiting for its CPU and hardly serving.
    starving: u32,
    /// Looks until it may be light again, and for how many it is helped the next time.
    hold: u32,
    next_hold: u32,
    /// Looks in the light class since it came there.
    light_for: u32,
}

impl Default for Watched {
    fn default() -> Self {
        Self { served: 0, light: false, unused: UNUSED, starving: 0, hold: 0, next_hold: HOLD, light_for: 0 }
    }
}

impl Watched {
    /// The queue's requests a millisecond.
    fn look(&mut self, gauge: &Gauge, elapsed: f64) -> f64 {
        let served = gauge.served.load(Ordering::Relaxed);
        let new = served - std::mem::replace(&mut self.served, served);
        self.unused = if new == 0 { self.unused.saturating_add(1) } else { 0 };
        let rate = f64::from(u32::try_from(new).unwrap_or(u32::MAX)) / elapsed;
        let starves = self.light && rate < BUSY && threads::is_runnable(gauge.tid.load(Ordering::Relaxed));
        self.starving = if starves { self.starving + 1 } else { 0 };
        self.hold = self.hold.saturating_sub(1);
        self.light_for = if self.light { self.light_for.saturating_add(1) } else { 0 };
        if self.starving == STARVING {
            self.hold = self.next_hold;
            self.next_hold = (self.next_hold * 2).min(HOLD_MAX);
        } else if self.light_for == HOLD {
            self.next_hold = HOLD;
        }
        rate
    }

    /// Puts the queue into the class that it is to be in. A queue without requests stays out of the light class: its
    /// next request must not have to wait. True where it left the light class.
    fn settle(&mut self, gauge: &Gauge, light: bool) -> bool {
        let light = light && self.unused < UNUSED && self.hold == 0;
        let tid = gauge.tid.load(Ordering::Relaxed);
        if light == self.light || tid == 0 {
            return false;
        }
        self.light = light;
        let class = if light { Class::Light } else { Class::Normal };
        if let Err(error) = sched::set_class(tid, class) {
            tracing::debug!(tid, ?class, %error, "a queue keeps its class");
        }
        !light
    }
}

/// The kernel's threads for operations of a ring that would wait began in the class of their queue, and nobody else helps them: one
/// that starves may hold a lock of the lower file system.
fn help_workers() {
    for tid in threads::ring_workers().into_iter().filter(|tid| sched::is_light(*tid)) {
        if let Err(error) = sched::set_class(tid, Class::Normal) {
            tracing::debug!(tid, %error, "a ring's worker keeps its class");
        }
    }
}

impl Pacer {
    /// For the calling thread.
    pub(crate) fn new(pace: Option<Arc<Pace>>, index: usize) -> Self {
        if let Some(pace) = &pace {
            pace.gauges[index].tid.store(threads::gettid(), Ordering::Relaxed);
        }
        Self { pace, index, served: Cell::new(0) }
    }

    /// Told of each request.
    pub(crate) fn serves(&self) {
        let Some(pace) = &self.pace else { return };
        let served = self.served.get() + 1;
        self.served.set(served);
        pace.gauges[self.index].served.store(served, Ordering::Relaxed);
        if served.is_multiple_of(KNOCK_EVERY) && !pace.awake.load(Ordering::Relaxed) {
            pace.awake.store(true, Ordering::SeqCst);
            pace.wake();
        }
    }
}

impl Drop for Pacer {
    fn drop(&mut self) {
        if let Some(pace) = &self.pace {
            // What is left to do goes at the normal pace, and nobody else will see to that.
            pace.gauges[self.index].tid.store(0, Ordering::Relaxed);
            let _ended_anyway = sched::set_class(threads::gettid(), Class::Normal);
            pace.living.fetch_sub(1, Ordering::SeqCst);
            pace.wake();
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_queue_that_waits_for_its_cpu_and_does_not_serve_leaves_the_light_class() {
        if !sched::may_change_class() {
            eprintln!("SKIPPED: CAP_SYS_NICE is not to be had");
            return;
        }
        let (told, tells) = std::sync::mpsc::channel();
        let over = Arc::new(AtomicBool::new(false));
        let busy = std::thread::spawn({
            let over = Arc::clone(&over);
            move || {
                told.send(threads::gettid()).unwrap();
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            }
        });
        let gauge = Gauge { tid: tells.recv().unwrap().into(), served: 1.into() };
        let mut queue = Watched::default();
        queue.look(&gauge, 4.0);
        queue.settle(&gauge, true);
        assert!(queue.light);
        for _ in 0..STARVING {
            assert!(queue.light);
            queue.look(&gauge, 4.0);
            queue.settle(&gauge, true);
        }
        assert!(!queue.light, "it is helped");
        gauge.served.store(10_000, Ordering::Relaxed);
        queue.look(&gauge, 4.0);
        queue.settle(&gauge, true);
        assert!(!queue.light, "and for a while");
        over.store(true, Ordering::Relaxed);
        busy.join().unwrap();
    }

    #[test]
    fn the_watcher_ends_with_the_queues() {
        let Some(pace) = Pace::new(2) else {
            eprintln!("SKIPPED: CAP_SYS_NICE is not to be had");
            return;
        };
        let watcher = pace.watch().unwrap();
        let queues: Vec<_> = (0..2)
            .map(|index| {
                let pace = Arc::clone(&pace);
                std::thread::spawn(move || {
                    let pacer = Pacer::new(Some(pace), index);
                    for _ in 0..10_000 {
                        pacer.serves();
                    }
                    assert!(pacer.pace.as_ref().unwrap().awake.load(Ordering::Relaxed));
                })
            })
            .collect();
        for queue in queues {
            queue.join().unwrap();
        }
        let patience = Instant::now() + Duration::from_secs(10);
        while !watcher.is_finished() {
            assert!(Instant::now() < patience, "the watcher goes on");
            std::thread::sleep(LOOK);
        }
        watcher.join().unwrap();
    }

    /// A queue beside somebody who never sleeps starves whenever it is light: a regression, for it was made light again every 400 ms.
    #[test]
    fn a_queue_that_starves_again_and_again_is_left_alone_ever_longer() {
        if !sched::may_change_class() {
            eprintln!("SKIPPED: CAP_SYS_NICE is not to be had");
            return;
        }
        // A thread that is always to be run, and hardly served.
        let gauge = Gauge { tid: threads::gettid().into(), served: 1.into() };
        std::thread::scope(|scope| {
            // In a thread of its own, whose class may change.
            scope.spawn(|| {
                gauge.tid.store(threads::gettid(), Ordering::Relaxed);
                let mut queue = Watched::default();
                let mut helped = 0;
                for look in 0..10_000 {
                    gauge.served.fetch_add(u64::from(look % 50 == 0), Ordering::Relaxed);
                    queue.look(&gauge, 4.0);
                    helped += u32::from(queue.settle(&gauge, true));
                }
                assert!((5..=8).contains(&helped), "helped {helped} times");
                let next = queue.next_hold;
                queue.settle(&gauge, false);
                assert_eq!(next, HOLD_MAX);
            });
        });
    }

    /// How often a thread of this process has gone to sleep.
    fn sleeps_of(name: &str) -> u64 {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let of = |path: std::path::PathBuf| {
            let is_it = std::fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim() == name);
            let status = std::fs::read_to_string(path.join("status")).unwrap_or_default();
            let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            count.filter(|_| is_it).and_then(|count| count.trim().parse::<u64>().ok()).unwrap_or(0)
        };
        tasks.map(|task| of(task.path())).sum()
    }

    /// A regression: one request in 100 ms kept the watcher at 250 looks a second.
    #[test]
    fn a_trickle_of_requests_leaves_the_watcher_asleep() {
        let Some(pace) = Pace::new(1) else {
            eprintln!("SKIPPED: CAP_SYS_NICE is not to be had");
            return;
        };
        std::thread::spawn(move || {
            let watcher = thread::Builder::new().name("trickle".to_owned());
            let watcher = watcher.spawn({
                let pace = Arc::clone(&pace);
                move || pace.run()
            });
            let pacer = Pacer::new(Some(pace), 0);
            for _ in 0..96 {
                pacer.serves();
                std::thread::sleep(Duration::from_millis(10));
            }
            let sleeps = sleeps_of("trickle");
            drop(pacer);
            watcher.unwrap().join().unwrap();
            assert!((3..=3 * (QUIET + 3)).contains(&u32::try_from(sleeps).unwrap()), "{sleeps} sleeps");
        })
        .join()
        .unwrap();
    }
}
