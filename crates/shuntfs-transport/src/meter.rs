//! What the threads of a connection count for the watcher, and how they wake it.
//!
//! A thread only stores numbers, in a cache line of its own. The watcher (`watch.rs`) looks at them while there is work and sleeps
//! otherwise. It is woken by requests that come quickly one after the other. A lone request of a device sets a timer instead, which
//! is stopped when the request is done: only one that takes long wakes the watcher. One of a ring leaves it set where it goes off late.

use std::cell::{Cell, OnceCell};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use shuntfs_sys::event::Timer;
use shuntfs_sys::sched::{self, Class};
use shuntfs_sys::threads::{self, Cpus};

use crate::underway::Notes;

/// How often a watcher that is awake looks.
pub(crate) const LOOK: Duration = Duration::from_millis(4);
/// A reader that serves one request for so many looks is stuck.
pub(crate) const STUCK: u32 = 12;
/// So many requests within [`SOON`] wake the watcher.
const WAKE: u32 = 8;
const SOON: Duration = Duration::from_millis(16);
/// Looks for requests that take too long that are so far apart cost less than stopping the timer after each request of a ring would.
const RARE: Duration = Duration::from_millis(100);
/// A timer that is overdue.
const SOONEST: Duration = Duration::from_millis(1);

/// What one thread shows.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Gauge {
    /// 0 before it starts and after it ended. Held by whoever changes something of the thread, so that it is no other one by then.
    pub(crate) tid: Mutex<u32>,
    /// The CPU that it is kept on, and one; 0 where it may run anywhere. Changed by [`Gauges::keep_on`] alone.
    kept_on: AtomicUsize,
    /// It is to move to where its next caller runs.
    pub(crate) is_to_follow: AtomicBool,
    /// Requests served.
    pub(crate) served: AtomicU64,
    /// Changes whenever a reader goes on. Even while it waits for requests.
    pub(crate) turn: AtomicU64,
    /// How often a request was another caller's than the one before.
    pub(crate) changes: AtomicU64,
    /// The thread that the last request came from, as this process sees it; 0 where there was none.
    pub(crate) caller: AtomicU32,
    /// Whether another request was there when it last looked.
    pub(crate) has_more: AtomicBool,
    /// Others read in its place.
    pub(crate) is_away: AtomicBool,
    /// There is too little to do for so many readers.
    pub(crate) is_to_leave: AtomicBool,
}

/// What all threads of a connection share with the watcher.
#[derive(Debug)]
pub(crate) struct Gauges {
    pub(crate) all: Box<[Gauge]>,
    pub(crate) timer: Timer,
    /// Where threads may run, as the watcher saw when it woke; `None` where that is not known.
    pub(crate) home: Mutex<Option<Cpus>>,
    is_awake: AtomicBool,
    dozing: Mutex<Dozing>,
    /// How often the watcher looks for requests that take too long, while any is under way; not set where it does not.
    stall_step: OnceLock<Duration>,
    /// [`OFF`], [`SET`] or [`KEPT`]; changed with `dozing` locked.
    for_rings: AtomicU8,
    /// Whether a request was told of whose end must be told, too.
    stall_is_told: AtomicBool,
    notes: Mutex<Vec<Arc<Notes>>>,
}

/// What is known while the watcher sleeps.
#[derive(Debug)]
struct Dozing {
    requests: u32,
    since: Instant,
    timer: Armed,
    /// When the watcher is to look for requests that take too long.
    stalls_at: Option<Instant>,
    /// So many requests of rings have set the timer since then.
    arms: u32,
    arms_since: Instant,
    /// They come so quickly, or the timer goes off so seldom, that it stays until then.
    is_kept: bool,
}

/// What a ring's thread needs to know of the timer while the watcher sleeps, without a lock.
const OFF: u8 = 0;
/// It is set, and to be stopped when there is nothing to do.
const SET: u8 = 1;
/// It is set, and stays so.
const KEPT: u8 = 2;

/// What the timer is set for while the watcher sleeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Armed {
    Nothing,
    /// A reader that may be stuck.
    Stuck,
    /// Requests that may take too long.
    Stalls,
}

/// A thread's end, at home there.
#[derive(Debug)]
pub(crate) struct Meter {
    gauges: Arc<Gauges>,
    pub(crate) index: usize,
    turn: Cell<u64>,
    served: Cell<u64>,
    caller: Cell<u32>,
    changes: Cell<u64>,
    notes: OnceCell<Arc<Notes>>,
}

impl Gauges {
    /// For so many threads.
    ///
    /// # Errors
    /// Those of making a timer.
    pub(crate) fn new(threads: usize) -> shuntfs_sys::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            all: (0..threads).map(|_| Gauge::default()).collect(),
            timer: Timer::new()?,
            home: Mutex::new(None),
            is_awake: AtomicBool::new(false),
            dozing: Mutex::new(Dozing {
                requests: 0,
                since: Instant::now(),
                timer: Armed::Nothing,
                stalls_at: None,
                arms: 0,
                arms_since: Instant::now(),
                is_kept: false,
            }),
            for_rings: AtomicU8::new(OFF),
            stall_step: OnceLock::new(),
            stall_is_told: AtomicBool::new(false),
            notes: Mutex::default(),
        }))
    }

    /// The watcher is to look for requests that take too long, so far apart. Before the threads serve.
    pub(crate) fn watch_stalls(&self, step: Duration) {
        let _set_once = self.stall_step.set(step);
    }

    /// Whether a request was told of that has not ended. Said by the watcher.
    pub(crate) fn stall_is_told(&self, is_told: bool) {
        self.stall_is_told.store(is_told, Ordering::SeqCst);
    }

    /// What the threads have under way.
    pub(crate) fn notes(&self) -> MutexGuard<'_, Vec<Arc<Notes>>> {
        self.notes.lock()
    }

    /// Keeps a thread on one CPU, if it may run there, or lets it run wherever it may. Left out where another thread changes it just now: the watcher
    /// looks again.
    pub(crate) fn keep_on(&self, index: usize, cpu: Option<usize>) {
        let gauge = &self.all[index];
        let (Some(home), Some(tid)) = (self.home.try_lock(), gauge.tid.try_lock()) else { return };
        let Some(home) = &*home else { return };
        let cpu = cpu.filter(|cpu| home.has(*cpu));
        let mark = cpu.map_or(0, |cpu| cpu + 1);
        if *tid == 0 || gauge.kept_on.load(Ordering::Relaxed) == mark {
            return;
        }
        let one = cpu.and_then(Cpus::one);
        match threads::spread(*tid, one.as_ref().unwrap_or(home)) {
            Ok(()) => gauge.kept_on.store(mark, Ordering::Relaxed),
            Err(error) => tracing::debug!(%error, ?cpu, "a reader stays where it is"),
        }
    }

    /// The watcher looks again soon.
    pub(crate) fn stay_awake(&self) {
        self.wake(&mut self.dozing.lock());
    }

    fn wake(&self, dozing: &mut Dozing) {
        (dozing.requests, dozing.stalls_at) = (0, None);
        self.armed(dozing, Armed::Nothing);
        self.is_awake.store(true, Ordering::SeqCst);
        self.timer.set(Some(LOOK));
    }

    /// The watcher is about to sleep. A request whose thread saw it awake is still looked after.
    pub(crate) fn doze(&self) {
        let mut dozing = self.dozing.lock();
        self.is_awake.store(false, Ordering::SeqCst);
        if self.any_serves() {
            self.wake(&mut dozing);
        } else {
            self.arm_for_stalls(&mut dozing);
        }
    }

    /// The watcher was woken in its sleep, to look for requests that take too long and for nothing else.
    pub(crate) fn is_to_see_stalls(&self) -> bool {
        let Some(mut dozing) = self.asleep() else { return false };
        if dozing.timer != Armed::Stalls {
            return false;
        }
        dozing.stalls_at = None;
        self.armed(&mut dozing, Armed::Nothing);
        true
    }

    /// Sets the timer where something is under way. False where nothing is, or nobody asks.
    fn arm_for_stalls(&self, dozing: &mut Dozing) -> bool {
        let Some(step) = self.stall_step.get() else { return false };
        if !self.any_under_way() {
            dozing.stalls_at = None;
            return false;
        }
        // Once it is set it stays: requests that come and go meanwhile must not put it off.
        let now = Instant::now();
        let at = *dozing.stalls_at.get_or_insert(now + *step);
        if dozing.timer != Armed::Stalls {
            self.armed(dozing, Armed::Stalls);
            self.timer.set(Some(at.saturating_duration_since(now).max(SOONEST)));
        }
        true
    }

    fn armed(&self, dozing: &mut Dozing, timer: Armed) {
        dozing.timer = timer;
        dozing.is_kept &= timer != Armed::Nothing;
        let for_rings = match (timer, dozing.is_kept) {
            (Armed::Nothing, _) => OFF,
            (_, false) => SET,
            (_, true) => KEPT,
        };
        self.for_rings.store(for_rings, Ordering::SeqCst);
    }

    fn any_under_way(&self) -> bool {
        let serves = |gauge: &Gauge| !gauge.turn.load(Ordering::SeqCst).is_multiple_of(2);
        self.stall_is_told.load(Ordering::SeqCst)
            || self.all.iter().any(serves)
            || self.notes().iter().any(|notes| notes.has_any())
    }

    fn any_serves(&self) -> bool {
        self.all.iter().any(|gauge| {
            !gauge.turn.load(Ordering::SeqCst).is_multiple_of(2) && !gauge.is_away.load(Ordering::Relaxed)
        })
    }

    /// What is known while the watcher sleeps; `None` where it does not.
    fn asleep(&self) -> Option<MutexGuard<'_, Dozing>> {
        let dozing = self.dozing.lock();
        (!self.is_awake.load(Ordering::SeqCst)).then_some(dozing)
    }

    /// A request came while the watcher sleeps.
    #[cold]
    fn came(&self) {
        let Some(mut dozing) = self.asleep() else { return };
        if dozing.requests == 0 {
            dozing.since = Instant::now();
        }
        dozing.requests += 1;
        if dozing.requests == WAKE {
            dozing.requests = 0;
            if dozing.since.elapsed() < SOON {
                self.wake(&mut dozing);
            }
        }
    }

    /// A reader goes on while the watcher sleeps.
    #[cold]
    fn begins(&self) {
        if let Some(mut dozing) = self.asleep()
            && dozing.timer != Armed::Stuck
        {
            self.armed(&mut dozing, Armed::Stuck);
            self.timer.set(Some(LOOK * STUCK / 2));
        }
    }

    /// A ring's thread goes on while the watcher sleeps and no timer is set. Where such requests come quickly, or the timer goes off seldom, it is
    /// not stopped after each: it goes off once, and is set anew by the next request.
    #[cold]
    fn ring_begins(&self) {
        let Some(mut dozing) = self.asleep() else { return };
        if dozing.timer != Armed::Nothing {
            return;
        }
        if dozing.arms == 0 {
            dozing.arms_since = Instant::now();
        }
        dozing.arms += 1;
        if dozing.arms == WAKE {
            dozing.arms = 0;
            dozing.is_kept = dozing.arms_since.elapsed() < SOON;
        }
        dozing.is_kept |= self.stall_step.get().is_some_and(|step| *step >= RARE);
        self.arm_for_stalls(&mut dozing);
    }

    /// A thread waits for requests while the watcher sleeps.
    #[cold]
    fn ends(&self) {
        let Some(mut dozing) = self.asleep() else { return };
        if dozing.timer == Armed::Nothing || dozing.is_kept && dozing.timer == Armed::Stalls {
            return;
        }
        // Before the look: a ring's thread that sees the timer set until now is seen at work.
        self.for_rings.store(OFF, Ordering::SeqCst);
        if self.any_serves() || self.arm_for_stalls(&mut dozing) {
            let timer = dozing.timer;
            self.armed(&mut dozing, timer);
        } else {
            self.armed(&mut dozing, Armed::Nothing);
            self.timer.set(None);
        }
    }
}

impl Meter {
    /// For the calling thread.
    pub(crate) fn new(gauges: &Arc<Gauges>, index: usize) -> Self {
        *gauges.all[index].tid.lock() = threads::gettid();
        let zero = || Cell::new(0);
        Self {
            gauges: Arc::clone(gauges),
            index,
            turn: zero(),
            served: zero(),
            caller: Cell::new(0),
            changes: zero(),
            notes: OnceCell::new(),
        }
    }

    /// Where this thread, which has so many slots, notes what it has under way.
    pub(crate) fn notes(&self, slots: usize) -> Arc<Notes> {
        let notes = self.notes.get_or_init(|| {
            let notes = Arc::new(Notes::new(threads::gettid(), slots));
            self.gauges.notes().push(Arc::clone(&notes));
            notes
        });
        Arc::clone(notes)
    }

    pub(crate) fn gauge(&self) -> &Gauge {
        &self.gauges.all[self.index]
    }

    /// Keeps this thread on a CPU.
    pub(crate) fn keep_on(&self, cpu: usize) {
        self.gauges.keep_on(self.index, Some(cpu));
    }

    /// Told of each request that counts, with its caller's thread, 0 where there is none.
    pub(crate) fn serves(&self, caller: u32) {
        let gauge = self.gauge();
        self.served.set(self.served.get() + 1);
        gauge.served.store(self.served.get(), Ordering::Relaxed);
        if caller != 0 && self.caller.replace(caller) != caller {
            self.changes.set(self.changes.get() + 1);
            gauge.changes.store(self.changes.get(), Ordering::Relaxed);
            gauge.caller.store(caller, Ordering::Relaxed);
        }
        if !self.gauges.is_awake.load(Ordering::Relaxed) {
            self.gauges.came();
        }
    }

    /// A reader is about to wait for requests.
    pub(crate) fn waits(&self) {
        self.turn((self.turn.get() | 1) + 1);
        if !self.gauges.is_awake.load(Ordering::Relaxed) {
            self.gauges.ends();
        }
    }

    /// A reader has something to do.
    pub(crate) fn woke(&self) {
        self.turn((self.turn.get() + 1) | 1);
        if !self.gauges.is_awake.load(Ordering::SeqCst) {
            self.gauges.begins();
        }
    }

    /// A ring's thread is about to wait for requests.
    pub(crate) fn ring_waits(&self) {
        let Some(notes) = self.watched() else { return };
        notes.is_at_work(false);
        if self.gauges.for_rings.load(Ordering::Relaxed) == SET {
            self.gauges.ends();
        }
    }

    /// A ring's thread has something to do.
    pub(crate) fn ring_woke(&self) {
        let Some(notes) = self.watched() else { return };
        notes.is_at_work(true);
        if !self.gauges.is_awake.load(Ordering::SeqCst) && self.gauges.for_rings.load(Ordering::SeqCst) == OFF
        {
            self.gauges.ring_begins();
        }
    }

    /// The notes of this thread, where somebody asks for requests that take too long.
    fn watched(&self) -> Option<&Notes> {
        self.gauges.stall_step.get()?;
        self.notes.get().map(|notes| &**notes)
    }

    fn turn(&self, turn: u64) {
        self.turn.set(turn);
        self.gauge().turn.store(turn, Ordering::SeqCst);
    }

    /// This thread serves no more. Said by it, for an author may leak what has its meter.
    pub(crate) fn end(&self) {
        let me = std::mem::take(&mut *self.gauge().tid.lock());
        if me != 0 && sched::is_light(me) {
            // What is left to do goes at the normal pace, and nobody else will see to that.
            let _ended_anyway = sched::set_class(me, Class::Normal);
        }
        // The watcher ends when all threads have.
        self.gauges.timer.set(Some(Duration::from_nanos(1)));
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if *self.gauge().tid.lock() == threads::gettid() {
            self.end();
        }
    }
}
