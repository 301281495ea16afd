//! The scheduler of a connection, on one page: which threads read, where they run, and in which class.
//!
//! One thread, the watcher, looks every 4 ms at what the others count (`meter.rs`) and at what the kernel says of them, and goes by these
//! rules alone. docs/scheduler.md has the figure that each of them earned.
//!
//! 1. A queue that serves two requests a millisecond or more, direct READs of a ring aside, is *light*: in the class `SCHED_IDLE`, whose
//!    CPU counts as idle, so that the kernel wakes the caller there and not on another CPU. It stays light until it has served fewer for 60 ms.
//! 2. A light queue *starves* if at two looks in a row it is ready to run and has waited for its CPU for more than half of the time, not
//!    counting what its only caller ran that takes turns with it. It is normal for 0.4 s, and each time it starves again for twice as long.
//! 3. A reader that serves one request for 48 ms is *stuck*: where nobody else reads, another one is called.
//! 4. Another reader is called where all that read were running at four looks in a row, found other requests waiting, and several callers sent
//!    them or a CPU is left for it. One that hardly ran at eight looks in a row leaves.
//! 5. A lone reader that finds no other requests waiting runs on its caller's CPU; all others run anywhere.
//!
//! After 20 ms without a light queue or a request in hand the watcher sleeps, and no reader is kept on a CPU meanwhile.
//!
//! The same thread looks for requests that take too long (`underway.rs`): while it is awake, and in its sleep for as long as any request is
//! under way.

use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use shuntfs_sys::sched::{self, Class};
use shuntfs_sys::threads::{self, CpuTimes, Cpus};

use crate::meter::{Gauge, Gauges, STUCK};
use crate::prepared::or_abort;
use crate::readers::Readers;
use crate::underway::StallWatch;

/// Requests a millisecond from which on the light class pays.
const BUSY: f64 = 2.0;
/// Looks in a row with fewer requests that end it.
const CALM: u32 = 15;
const STARVING: u32 = 2;
/// How many looks a queue that starved stays normal: at first, and at most.
const HOLD: u32 = 100;
const HOLD_MAX: u32 = 6400;
const CALL: u32 = 4;
const LEAVE: u32 = 8;
/// A caller is one of several where so many of its requests follow another caller's: one in eight.
const SEVERAL: u64 = 8;
/// Looks in a row without work that send the watcher to sleep.
const QUIET: u32 = 5;

/// What the watcher may do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct May {
    /// Change the class of threads.
    pub(crate) lighten: bool,
    /// Keep threads on a CPU.
    pub(crate) pin: bool,
}

#[derive(Debug)]
pub(crate) struct Watcher {
    gauges: Arc<Gauges>,
    readers: Arc<Readers>,
    may: May,
    queues: Box<[Watched]>,
    cpus: usize,
    /// What the process may use of them at once, as it was at the start: to ask for that takes memory.
    quota: usize,
    /// Where requests that take too long are looked for.
    stalls: Option<StallWatch>,
}

/// What the watcher knows of one thread.
#[derive(Debug, Default)]
struct Watched {
    turn: u64,
    served: u64,
    /// What was seen of its CPU, where it was light at the last look.
    share: Option<Share>,
    changes: u64,
    /// Whether it served enough at the last look.
    is_busy: bool,
    /// Looks in a row that found the same request being served.
    same: u32,
    /// Looks in a row that found it running or ready to, and that did not.
    running: u32,
    waiting: u32,
    has_several: bool,
    light: bool,
    /// Looks in a row with few requests.
    calm: u32,
    starving: u32,
    hold: u32,
    next_hold: u32,
    /// Looks since it became light.
    light_for: u32,
}

/// What the kernel says of a thread.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// It runs, or waits for a CPU.
    runs: bool,
    /// Of a light thread.
    share: Option<Share>,
}

/// How a light thread and its caller have shared their CPU, in their lives.
#[derive(Clone, Copy, Debug)]
struct Share {
    /// What the thread has run and waited for a CPU.
    of_queue: CpuTimes,
    /// Its last caller, and what that has run, on whatever CPU; `None` where that is not known.
    caller: u32,
    of_caller: Option<CpuTimes>,
}

impl Watcher {
    pub(crate) fn new(gauges: &Arc<Gauges>, readers: &Arc<Readers>, may: May) -> Self {
        let queues = gauges.all.iter().map(|_| Watched::new()).collect();
        let (gauges, readers) = (Arc::clone(gauges), Arc::clone(readers));
        let mut this = Self { gauges, readers, may, queues, cpus: 1, quota: usize::MAX, stalls: None };
        this.see_cpus();
        let usable = thread::available_parallelism().map_or(1, NonZero::get);
        if usable < this.cpus {
            (this.cpus, this.quota) = (usable, usable);
        }
        this
    }

    /// Tells of requests that take too long, too.
    pub(crate) fn watch_stalls(&mut self, stalls: StallWatch) {
        self.gauges.watch_stalls(stalls.step);
        self.stalls = Some(stalls);
    }

    /// Starts the thread, which ends when all others did.
    pub(crate) fn start(self) -> std::io::Result<JoinHandle<()>> {
        thread::Builder::new().name("shunt-watch".to_owned()).spawn(move || or_abort(|| self.run()))
    }

    pub(crate) fn run(mut self) {
        let (mut quiet, mut last, mut slept) = (0, Instant::now(), true);
        while self.gauges.all.iter().any(|gauge| gauge.tid.try_lock().is_none_or(|tid| *tid != 0)) {
            self.gauges.timer.wait();
            if self.gauges.is_to_see_stalls() {
                if let Some(stalls) = &mut self.stalls {
                    stalls.look(&self.gauges);
                }
                self.gauges.doze();
                continue;
            }
            if std::mem::take(&mut slept) {
                self.see_cpus();
            }
            let elapsed = std::mem::replace(&mut last, Instant::now()).elapsed().as_secs_f64() * 1e3;
            quiet = if self.look(elapsed) { 0 } else { quiet + 1 };
            if let Some(stalls) = &mut self.stalls {
                stalls.look_in_time(&self.gauges);
            }
            if quiet < QUIET {
                self.gauges.stay_awake();
            } else {
                (quiet, slept) = (0, true);
                self.let_go(|_| true);
                self.gauges.doze();
            }
        }
    }

    /// Which CPUs there are may have changed while the watcher slept, with its own affinity: `taskset -a` and a cpuset change that of all threads.
    fn see_cpus(&mut self) {
        let home = threads::allowed_cpus().ok();
        self.cpus = home.as_ref().map_or(1, Cpus::count).min(self.quota);
        // Who holds it may have lost its CPU, and the watcher waits for nobody.
        if let Some(mut known) = self.gauges.home.try_lock() {
            *known = home;
        }
    }

    /// One look, so many milliseconds after the last one. Whether there is something to look after.
    fn look(&mut self, elapsed: f64) -> bool {
        let (mut busy, mut helped) = (false, false);
        for (gauge, queue) in self.gauges.all.iter().zip(&mut self.queues) {
            busy |= queue.look(gauge, elapsed, Seen::of);
            helped |= self.may.lighten && queue.settle(gauge);
            busy |= queue.light;
        }
        if helped {
            help_workers();
        }
        let Some(lone) = self.choose_readers() else { return busy };
        self.let_go(|index| Some(index) != lone);
        if let Some(index) = lone.filter(|index| self.may.pin && self.queues[*index].is_busy) {
            self.gauges.all[index].is_to_follow.store(true, Ordering::Relaxed);
        }
        busy
    }

    /// Rules 3 and 4. The number of a lone reader that finds no other requests waiting, where there is one; `None` where this look is left out.
    fn choose_readers(&mut self) -> Option<Option<usize>> {
        let (gauges, queues) = (&self.gauges.all, &mut self.queues);
        let mut state = self.readers.try_lock()?;
        state.part_with(&self.gauges, |index| queues[index].same >= STUCK);
        let all_run = state.reading().all(|index| queues[index].running >= CALL);
        let has_more = state.reading().any(|index| gauges[index].has_more.load(Ordering::Relaxed));
        let has_several = state.reading().any(|index| queues[index].has_several);
        // Beside its readers the machine has to have room for the caller.
        let has_room = state.at_work() + 1 < self.cpus;
        if state.is_deserted() || (all_run && has_more && (has_several || has_room)) {
            self.readers.call(&mut state);
            state.reading().for_each(|index| queues[index].running = 0);
        }
        for (index, queue) in queues.iter_mut().enumerate() {
            if state.reading().all(|reading| reading != index) {
                // It has not begun to wait for requests.
                queue.waiting = 0;
            }
        }
        let is_alone = state.is_one();
        for index in state.reading() {
            let is_to_leave = !is_alone && queues[index].waiting >= LEAVE;
            gauges[index].is_to_leave.store(is_to_leave, Ordering::Relaxed);
        }
        Some(state.reading().next().filter(|_| is_alone && !has_more))
    }

    /// Lets those threads run anywhere.
    fn let_go(&self, which: impl Fn(usize) -> bool) {
        for (index, gauge) in self.gauges.all.iter().enumerate().filter(|(index, _)| which(*index)) {
            gauge.is_to_follow.store(false, Ordering::Relaxed);
            self.gauges.keep_on(index, None);
        }
    }
}

impl Watched {
    /// Of a queue that does nothing yet.
    fn new() -> Self {
        Self { calm: CALM, next_hold: HOLD, ..Self::default() }
    }

    /// Takes note of what a queue did. Whether that is worth another look.
    fn look(&mut self, gauge: &Gauge, elapsed: f64, ask: impl FnOnce(u32, Option<u32>) -> Seen) -> bool {
        let since = |now: u64, last: &mut u64| now - std::mem::replace(last, now);
        let turn = gauge.turn.load(Ordering::SeqCst);
        let went_on = since(turn, &mut self.turn) > 0;
        let served = since(gauge.served.load(Ordering::Relaxed), &mut self.served);
        let changed = since(gauge.changes.load(Ordering::Relaxed), &mut self.changes);
        let serves = !turn.is_multiple_of(2);
        self.same = if serves && !went_on { self.same.saturating_add(1) } else { 0 };
        self.has_several = changed * SEVERAL > served;
        let tid = gauge.tid.try_lock().map_or(0, |tid| *tid);
        let caller = gauge.caller.load(Ordering::Relaxed);
        let seen = (served > 0 || serves || self.light).then(|| ask(tid, self.light.then_some(caller)));
        let runs = seen.is_some_and(|seen| seen.runs);
        let now = seen.and_then(|seen| seen.share);
        let before = std::mem::replace(&mut self.share, now);
        let waited = now.zip(before).map(|(now, before)| {
            // The kernel counts a wait when it ends: who did not run between two looks has waited all the time.
            if now.of_queue == before.of_queue {
                return elapsed;
            }
            let of_caller = if self.has_several { Duration::ZERO } else { now.ran_in_turns(&before, served) };
            let waited = now.of_queue.waited.saturating_sub(before.of_queue.waited);
            waited.saturating_sub(of_caller).as_secs_f64() * 1e3
        });
        (self.running, self.waiting) =
            if runs { (self.running.saturating_add(1), 0) } else { (0, self.waiting.saturating_add(1)) };
        self.is_busy = f64::from(u32::try_from(served).unwrap_or(u32::MAX)) / elapsed >= BUSY;
        self.calm = if self.is_busy { 0 } else { self.calm.saturating_add(1) };
        // Who waits for nothing and serves little has slow callers, or much to do for each. Without figures from the kernel that cannot be told.
        let waits = waited.map_or(now.is_none() && !self.is_busy, |waited| waited > elapsed / 2.0);
        let starves = self.light && runs && waits;
        self.starving = if starves { self.starving + 1 } else { 0 };
        self.hold = self.hold.saturating_sub(1);
        self.light_for = if self.light { self.light_for.saturating_add(1) } else { 0 };
        if self.starving == STARVING {
            self.hold = self.next_hold;
            self.next_hold = (self.next_hold * 2).min(HOLD_MAX);
        } else if self.light_for == HOLD {
            self.next_hold = HOLD;
        }
        self.is_busy || (serves && self.same < STUCK)
    }

    /// Puts the queue into the class that it must be in. True where it left the light class.
    fn settle(&mut self, gauge: &Gauge) -> bool {
        let light = self.hold == 0 && self.calm < if self.light { CALM } else { 1 };
        let Some(tid) = gauge.tid.try_lock() else { return false };
        if *tid == 0 {
            // It has ended.
            self.light = false;
        }
        if light == self.light || *tid == 0 {
            return false;
        }
        let class = if light { Class::Light } else { Class::Normal };
        if let Err(error) = sched::set_class(*tid, class) {
            tracing::debug!(%error, ?class, "a queue keeps its class");
            return false;
        }
        self.light = light;
        !light
    }
}

impl Seen {
    /// Of a thread; with its last caller where it is light.
    fn of(tid: u32, caller: Option<u32>) -> Self {
        // Where the kernel does not tell, it is taken to run.
        let runs = threads::is_runnable(tid).unwrap_or(true);
        let share = caller.and_then(|caller| {
            let of_queue = threads::cpu_times(tid)?;
            Some(Share { of_queue, caller, of_caller: threads::cpu_times(caller) })
        });
        Self { runs, share }
    }
}

impl Share {
    /// How long the caller ran since then, if it took turns with the thread: it slept until most of its requests were answered. The thread
    /// waits for what its caller does between two requests, and would also wait for it in the normal class. A caller that does not sleep is
    /// like any other program.
    fn ran_in_turns(&self, before: &Self, served: u64) -> Duration {
        let (Some(now), Some(then)) = (self.of_caller, before.of_caller) else { return Duration::ZERO };
        let turns = now.turns.saturating_sub(then.turns);
        let is_same = self.caller == before.caller;
        if is_same && turns > 0 && turns * 2 >= served {
            now.ran.saturating_sub(then.ran)
        } else {
            Duration::ZERO
        }
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

#[cfg(test)]
mod test;
