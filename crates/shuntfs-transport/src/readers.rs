//! One hot reader, and others that are woken only under load.
//!
//! All descriptors of a connection share one queue of requests, and the kernel wakes blocked readers in turn,
//! which moves each request to another CPU. So the threads of a connection stand by, and only as many read as
//! are needed: a reader that finds requests waiting several times in a row, or that is about to block below,
//! calls another; a reader that waits long for requests, while others read too, goes back to standing by.
//!
//! A reader that does not come back to the device is no reader: it is out of slots, or what it called blocks (a handler that
//! sleeps, a lower file that hangs). The first of those that stand by watches for that while requests are served, and then goes in
//! its place. It looks every 50 ms, sees by one number of each reader whether that went on, and sleeps when none did: an idle mount
//! has no wakeups, and the first request after that costs one.
//!
//! A lone reader also follows its callers from CPU to CPU: where it sleeps on another CPU than the caller, each
//! request costs two wakeups across CPUs, which on a virtual machine are many times the cost of all the rest.
//! The kernel's scheduler leaves it where it slept last, so the reader looks now and then where its caller runs.
//!
//! A look at a thread's `/proc` entry holds that process's memory for a moment, and whoever lets go of it last unmaps it: waits
//! for its asynchronous I/O and for its dirty mapped pages to be written, which may be requests to this very reader. So a reader
//! itself looks only at a caller who asks for a name or an attribute: who waits for that answer lives and keeps its memory. Others are
//! looked at from another thread, and who may be about to end (FLUSH, RELEASE) not at all.

use std::cell::{Cell, OnceCell};
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use shuntfs_sys::threads::{self, Cpus};
use shuntfs_sys::{OsError, Result};

use crate::pace::Pacer;

/// How many requests in a row must have waited for the reader before it calls another.
const BUSY_STREAK: u32 = 8;
/// How mixed the callers are: a request of another caller than the last one's adds so much, one of the same takes one off, to
/// this much at most...
const MIX_CHANGE: u32 = 128;
const MIX_MAX: u32 = 1024;
/// ...and from here on they are several that call at once, not one after the other.
const MIXED: u32 = 512;
/// A read of the device that returns sooner than this, but for what it copied, found its request waiting.
const AT_ONCE: Duration = Duration::from_nanos(1_500);
/// A reader that waited longer than this for a request has nothing to do...
const LONG: Duration = Duration::from_micros(300);
/// ...and stands by after so many of them in a row.
const IDLE_STREAK: u32 = 4;

/// How often whoever watches looks. A reader that served the same request at two looks is stuck.
const LOOK: Duration = Duration::from_millis(50);
/// A read copies at least so many bytes of a WRITE in a nanosecond, and where memory is new to it an eighth of that.
const COPIED: u64 = 8;

/// After so many requests a lone reader looks where its caller runs.
const LOOK_EVERY: u32 = 64;
/// The first look comes sooner.
const LOOK_FIRST: u32 = 4;

/// What a request is, for its reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sort {
    /// For a name or an attribute, by a caller who waits for the answer and is not about to end.
    Names,
    /// READ or WRITE, perhaps read ahead, written behind, or of a caller who is gone.
    Data,
    /// Any other.
    Other,
}

/// Where a caller runs, to be looked for on another thread than a reader's.
#[derive(Debug)]
pub(crate) struct Look {
    caller: u32,
    /// The CPU and one; 0 while nobody has looked.
    found: Arc<AtomicUsize>,
}

impl Look {
    /// Looks.
    pub(crate) fn look(&self) {
        if let Some(cpu) = threads::last_cpu_of(self.caller) {
            self.found.store(cpu + 1, Ordering::Relaxed);
        }
    }
}

/// Another thread costs more than a look: it looks at one caller of data so seldom, counted in times that a look was due.
const LOOKS_SPARED: u32 = 64;

/// The readers of one connection.
#[derive(Debug)]
pub(crate) struct Readers {
    state: Mutex<State>,
    /// Those that stand by wait here, but for the one that watches.
    call: Condvar,
    watch: Condvar,
    /// Whoever watches is to be told of the next request.
    is_asleep: AtomicBool,
    threads: usize,
    /// How many threads can run at once.
    cpus: usize,
}

#[derive(Debug)]
struct State {
    members: Vec<Member>,
    /// Readers called that have not begun yet.
    called: usize,
    is_watched: bool,
    ended: bool,
}

/// What the others know of one reader.
#[derive(Debug)]
struct Member {
    role: Role,
    gauge: Arc<Gauge>,
    /// What the gauge showed at the last look.
    seen: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    StandsBy,
    Reads,
    /// It was to read, and cannot for now.
    Away,
}

/// What one reader shows.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Gauge {
    /// Changes whenever the reader goes on; even while it waits for requests.
    turn: AtomicU64,
    is_away: AtomicBool,
}

/// One thread's view.
#[derive(Debug)]
pub(crate) struct Reader {
    readers: Arc<Readers>,
    pacer: Pacer,
    /// Its place among the members.
    index: usize,
    gauge: Arc<Gauge>,
    turn: Cell<u64>,
    /// Since when it waits, where a read has found nothing and did not wait itself.
    since: Cell<Option<Instant>>,
    /// The last read found its request waiting.
    at_once: Cell<bool>,
    /// Whose request was served last.
    caller: Cell<u32>,
    /// How mixed the callers are.
    mix: Cell<u32>,
    /// Whether file data came faster than it was served, or in company, since the last look at the caller.
    loaded: Cell<bool>,
    busy: Cell<u32>,
    idle: Cell<u32>,
    /// Requests until the next look at where the caller runs.
    look: Cell<u32>,
    /// What a look from another thread found: the CPU and one.
    found: Arc<AtomicUsize>,
    /// At whom another thread looked last, and how many looks were spared since.
    spared: Cell<(u32, u32)>,
    /// The CPU this thread is bound to, to be where its caller is.
    bound: Cell<Option<usize>>,
    /// Where it may run otherwise; read by the thread itself.
    home: OnceCell<Option<Cpus>>,
}

impl Readers {
    pub(crate) fn new(threads: usize) -> Arc<Self> {
        Self::on_cpus(threads, thread::available_parallelism().map_or(1, NonZero::get))
    }

    fn on_cpus(threads: usize, cpus: usize) -> Arc<Self> {
        let state = State { members: Vec::new(), called: 1, is_watched: false, ended: false };
        Arc::new(Self {
            state: Mutex::new(state),
            call: Condvar::new(),
            watch: Condvar::new(),
            is_asleep: AtomicBool::new(false),
            threads,
            cpus,
        })
    }

    pub(crate) fn reader(self: &Arc<Self>, pacer: Pacer) -> Reader {
        let mut state = self.state.lock();
        let gauge = Arc::<Gauge>::default();
        state.members.push(Member { role: Role::StandsBy, gauge: Arc::clone(&gauge), seen: 0 });
        Reader {
            readers: Arc::clone(self),
            pacer,
            index: state.members.len() - 1,
            gauge,
            turn: Cell::new(0),
            since: Cell::new(None),
            at_once: Cell::new(false),
            caller: Cell::new(0),
            mix: Cell::new(0),
            loaded: Cell::new(false),
            busy: Cell::new(0),
            idle: Cell::new(0),
            look: Cell::new(LOOK_FIRST),
            found: Arc::default(),
            spared: Cell::new((0, 0)),
            bound: Cell::new(None),
            home: OnceCell::new(),
        }
    }

    /// The connection is gone: whoever stands by ends.
    pub(crate) fn end(&self) {
        self.state.lock().ended = true;
        self.call.notify_all();
        self.watch.notify_all();
    }

    /// Whether another reader would find a CPU that neither a reader nor the only caller has.
    fn has_room_beside_one_caller(&self) -> bool {
        let state = self.state.lock();
        state.at_work() + state.called + 1 < self.cpus
    }

    /// Calls a reader that stands by; false where there is none.
    fn call_one(&self) -> bool {
        let mut state = self.state.lock();
        if state.at_work() + state.called >= self.threads {
            return false;
        }
        state.called += 1;
        drop(state);
        if !self.call.notify_one() {
            self.watch.notify_one();
        }
        true
    }

    /// Waits until somebody is called, and calls where all who read are stuck.
    fn watch(&self, state: &mut MutexGuard<'_, State>) {
        state.is_watched = true;
        // Whether the whole time between two looks has passed: whoever watches may be woken sooner.
        let mut has_waited = false;
        while state.called == 0 && !state.ended {
            let goes_on = state.look(has_waited);
            let was_asleep = self.is_asleep.swap(!goes_on, Ordering::Relaxed);
            if state.called > 0 {
                break;
            }
            // A reader that began before it could see the flag is found by the one look that comes after it.
            if goes_on || !was_asleep || !has_waited {
                has_waited = self.watch.wait_for(state, LOOK).timed_out();
            } else {
                self.watch.wait(state);
                has_waited = false;
            }
        }
        self.is_asleep.store(false, Ordering::Relaxed);
        state.is_watched = false;
    }

    /// A request came while nobody looked.
    fn wake(&self) {
        let _sleeps = self.state.lock();
        self.is_asleep.store(false, Ordering::Relaxed);
        self.watch.notify_one();
    }
}

impl State {
    fn count(&self, role: Role) -> usize {
        self.members.iter().filter(|member| member.role == role).count()
    }

    /// Readers that do not stand by.
    fn at_work(&self) -> usize {
        self.members.len() - self.count(Role::StandsBy)
    }

    /// Calls a reader where all are stuck, which none is before it `has_waited`; whether any has gone on since the last look.
    fn look(&mut self, has_waited: bool) -> bool {
        let mut goes_on = false;
        for member in &mut self.members {
            let turn = member.gauge.turn.load(Ordering::Relaxed);
            let changed = std::mem::replace(&mut member.seen, turn) != turn;
            goes_on |= changed;
            if has_waited && !changed && !turn.is_multiple_of(2) && member.role == Role::Reads {
                member.go_away();
            }
        }
        if self.called == 0 && self.count(Role::Reads) == 0 {
            self.called = 1;
        }
        goes_on
    }
}

impl Member {
    fn go_away(&mut self) {
        self.role = Role::Away;
        self.gauge.is_away.store(true, Ordering::Relaxed);
    }
}

impl Reader {
    /// Waits until this thread is to read. False where the connection is gone.
    pub(crate) fn stand_by(&self) -> bool {
        let mut state = self.readers.state.lock();
        while state.called == 0 && !state.ended {
            if state.is_watched {
                self.readers.call.wait(&mut state);
            } else {
                self.readers.watch(&mut state);
            }
        }
        if state.ended {
            return false;
        }
        state.called -= 1;
        self.begins(&mut state);
        if !state.is_watched {
            // It is another's turn to watch.
            self.readers.call.notify_one();
        }
        self.busy.set(0);
        self.idle.set(0);
        true
    }

    /// This thread is about to wait for requests.
    pub(crate) fn waits(&self) {
        self.go_on((self.turn.get() | 1) + 1);
        if self.gauge.is_away.load(Ordering::Relaxed) {
            self.begins(&mut self.readers.state.lock());
        }
    }

    /// This thread reads: nothing that it did before holds it up.
    fn begins(&self, state: &mut State) {
        self.go_on((self.turn.get() | 1) + 1);
        self.gauge.is_away.store(false, Ordering::Relaxed);
        state.members[self.index].role = Role::Reads;
    }

    /// It has something to do.
    fn woke(&self) {
        self.go_on((self.turn.get() + 1) | 1);
        if self.readers.is_asleep.load(Ordering::Relaxed) {
            self.readers.wake();
        }
    }

    /// Waits by `wait`. Where that `reads` requests, or ends when there is one, this is no standstill.
    pub(crate) fn rests(&self, reads: bool, wait: impl FnOnce()) {
        if reads {
            self.waits();
        }
        wait();
        if reads {
            self.woke();
        }
    }

    fn go_on(&self, turn: u64) {
        self.turn.set(turn);
        self.gauge.turn.store(turn, Ordering::Relaxed);
    }

    /// This thread has no slot for another request: it reads none until it waits for requests again.
    pub(crate) fn is_full(&self) {
        if self.has_others() && !self.gauge.is_away.load(Ordering::Relaxed) {
            self.readers.state.lock().members[self.index].go_away();
            self.call_another();
        }
    }

    /// The connection is gone: all readers end.
    pub(crate) fn end_all(&self) {
        self.readers.end();
    }

    /// Told of each request with its caller's thread, 0 where there is none, and its sort: calls another reader under load.
    /// True where file data was found waiting so often in a row that there may be more.
    pub(crate) fn serves(&self, caller: u32, sort: Sort) -> bool {
        self.pacer.serves();
        caller != 0 && self.judge_load(caller, sort == Sort::Data) && sort == Sort::Data
    }

    /// Now and then moves this thread to the caller's CPU. What it gives is to be looked for on another thread.
    pub(crate) fn follows(&self, caller: u32, sort: Sort) -> Option<Look> {
        if caller == 0 {
            return None;
        }
        let found = self.found.load(Ordering::Relaxed);
        if found > 0 {
            self.found.store(0, Ordering::Relaxed);
            self.follow(found - 1);
        }
        let left = self.look.get() - 1;
        self.look.set(if left == 0 { LOOK_EVERY } else { left });
        if left > 0 {
            return None;
        }
        if self.loaded.take() || self.readers.state.lock().at_work() > 1 {
            self.spread();
            return None;
        }
        match sort {
            Sort::Names => threads::last_cpu_of(caller).map(|cpu| self.follow(cpu))?,
            Sort::Data => return self.look_elsewhere(caller),
            Sort::Other => {}
        }
        None
    }

    fn look_elsewhere(&self, caller: u32) -> Option<Look> {
        let (last, spared) = self.spared.get();
        if last == caller && spared < LOOKS_SPARED {
            self.spared.set((last, spared + 1));
            return None;
        }
        self.spared.set((caller, 0));
        Some(Look { caller, found: Arc::clone(&self.found) })
    }

    /// Calls another reader where requests wait again and again.
    ///
    /// One caller waits for its answer before it asks again, so that its requests are no load however soon they come:
    /// a second reader would only take every other one of them to another CPU. File data is read ahead and written
    /// behind, many requests at once, and each takes long. But where one caller sends all of them and there is a CPU for
    /// it and one for us, a second reader would take that of the caller. (Where there are many callers, a second reader
    /// gives us a fairer share of the CPUs.)
    fn judge_load(&self, caller: u32, moves_data: bool) -> bool {
        let another = self.caller.replace(caller) != caller;
        let mix = self.mix.get();
        self.mix.set(if another { (mix + MIX_CHANGE).min(MIX_MAX) } else { mix.saturating_sub(1) });
        if !self.at_once.get() {
            self.busy.set(0);
        } else if another || moves_data {
            self.busy.set(self.busy.get() + 1);
            if self.busy.get() >= BUSY_STREAK {
                self.busy.set(0);
                if self.mix.get() >= MIXED || self.readers.has_room_beside_one_caller() {
                    self.call_another();
                }
                if moves_data {
                    self.is_loaded();
                }
                return true;
            }
        }
        false
    }

    /// File data comes while other file data is served, so its callers do not wait for each answer: this thread serves
    /// beside them, not on the CPU of one of them.
    fn is_loaded(&self) {
        if !self.loaded.replace(true) {
            self.spread();
        }
    }

    /// Goes to the caller's CPU.
    fn follow(&self, cpu: usize) {
        if self.bound.get() == Some(cpu) {
            return;
        }
        self.home.get_or_init(|| threads::allowed_cpus().ok());
        if threads::pin_to_cpu(cpu).is_ok() {
            self.bound.set(Some(cpu));
        }
    }

    /// Lets this thread run wherever it may, for there is work for several.
    fn spread(&self) {
        if self.bound.take().is_some()
            && let Some(Some(home)) = self.home.get()
            && let Err(error) = threads::spread_over(home)
        {
            tracing::debug!(%error, "a reader stays on its CPU");
        }
    }

    /// Whether other threads could read.
    pub(crate) fn has_others(&self) -> bool {
        self.readers.threads > 1
    }

    /// This thread is about to block on something else than the device.
    pub(crate) fn about_to_block(&self) {
        if self.has_others() {
            self.call_another();
        }
    }

    /// Reads by `read` and judges by the time it took. True where this thread is to [`Reader::leave`] once it has served what it
    /// has. A read that gives EAGAIN, because another thread made the descriptor nonblocking, begins a wait that the next one ends.
    pub(crate) fn timed(&self, read: impl FnOnce() -> Result<usize>) -> (Result<usize>, bool) {
        self.waits();
        let start = self.since.take().unwrap_or_else(Instant::now);
        let outcome = read();
        let took = start.elapsed();
        self.woke();
        if outcome == Err(OsError::AGAIN) {
            self.since.set(Some(start));
            return (outcome, false);
        }
        (outcome, self.judge_wait(took, outcome.unwrap_or(0)))
    }

    /// A read took so long and gave so many bytes, which were copied in that time.
    fn judge_wait(&self, took: Duration, len: usize) -> bool {
        let copied = Duration::from_nanos(len as u64 / COPIED);
        self.at_once.set(took < AT_ONCE + copied);
        if took < LONG + copied * 8 || !self.has_others() {
            self.idle.set(0);
            return false;
        }
        self.idle.set(self.idle.get() + 1);
        self.idle.get() >= IDLE_STREAK
    }

    /// A read that does not wait found a request; `at_once` where this thread had not waited for it either.
    pub(crate) fn found(&self, at_once: bool, in_company: bool) {
        self.woke();
        if in_company {
            self.is_loaded();
        }
        self.at_once.set(at_once);
        self.idle.set(0);
    }

    fn call_another(&self) {
        if self.readers.call_one() {
            self.spread();
            self.look.set(LOOK_EVERY);
        }
    }

    /// Stops reading, unless it is the last. Who leaves has nothing under way, and stands by at once.
    pub(crate) fn leave(&self) -> bool {
        self.idle.set(0);
        let mut state = self.readers.state.lock();
        let before = std::mem::replace(&mut state.members[self.index].role, Role::StandsBy);
        let is_last = state.count(Role::Reads) + state.called == 0;
        if is_last {
            state.members[self.index].role = before;
        }
        !is_last
    }
}

#[cfg(test)]
mod test;
