//! Which threads read: one hot reader, and others that stand by.
//!
//! All descriptors of a connection share one queue of requests, and the kernel wakes blocked readers in turn, which moves each
//! request to another CPU. So only as many threads read as are needed. A reader calls another one when it is about to block below or
//! has no slot left. The watcher (`watch.rs`) calls one instead of a reader that is stuck and beside readers that have too much to do,
//! and tells one to leave when they have too little.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::{Condvar, Mutex, MutexGuard};
use shuntfs_sys::threads;

use crate::meter::{Gauges, Meter};

/// The readers of one connection.
#[derive(Debug)]
pub(crate) struct Readers {
    state: Mutex<State>,
    /// Those that stand by wait here.
    call: Condvar,
    threads: usize,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    members: Vec<Member>,
    /// Readers called that have not begun yet.
    called: usize,
    ended: bool,
}

#[derive(Debug)]
struct Member {
    role: Role,
    /// The number of its gauge.
    gauge: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    StandsBy,
    Reads,
    /// It was to read, and cannot for now.
    Away,
}

/// One thread's view.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) readers: Arc<Readers>,
    pub(crate) meter: Meter,
    /// Its place among the members.
    index: usize,
}

impl Readers {
    pub(crate) fn new(threads: usize) -> Arc<Self> {
        let state = State { called: 1, ..State::default() };
        Arc::new(Self { state: Mutex::new(state), call: Condvar::new(), threads })
    }

    pub(crate) fn reader(self: &Arc<Self>, meter: Meter) -> Reader {
        let mut state = self.state.lock();
        state.members.push(Member { role: Role::StandsBy, gauge: meter.index });
        Reader { readers: Arc::clone(self), meter, index: state.members.len() - 1 }
    }

    /// The connection is gone: whoever stands by ends.
    pub(crate) fn end(&self) {
        self.state.lock().ended = true;
        self.call.notify_all();
    }

    /// What the watcher looks at and changes. It does not wait for a thread that may have lost its CPU, which nobody else helps.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, State>> {
        self.state.try_lock()
    }

    /// Calls a reader that stands by, if there is one.
    pub(crate) fn call(&self, state: &mut State) {
        if state.at_work() < self.threads {
            state.called += 1;
            self.call.notify_one();
        }
    }
}

impl State {
    /// The numbers of the gauges of those that read.
    pub(crate) fn reading(&self) -> impl Iterator<Item = usize> + '_ {
        self.members.iter().filter(|member| member.role == Role::Reads).map(|member| member.gauge)
    }

    /// Those that do not stand by, or will not for long.
    pub(crate) fn at_work(&self) -> usize {
        let beside = self.members.iter().filter(|member| member.role != Role::StandsBy);
        beside.count() + self.called
    }

    /// Whether nobody reads, nor is about to.
    pub(crate) fn is_deserted(&self) -> bool {
        self.called == 0 && self.reading().next().is_none()
    }

    /// Whether one reads, and none is about to.
    pub(crate) fn is_one(&self) -> bool {
        self.called == 0 && self.reading().count() == 1
    }

    /// Those that read and are stuck are away.
    pub(crate) fn part_with(&mut self, gauges: &Gauges, is_stuck: impl Fn(usize) -> bool) {
        for member in
            self.members.iter_mut().filter(|member| member.role == Role::Reads && is_stuck(member.gauge))
        {
            member.role = Role::Away;
            gauges.all[member.gauge].is_away.store(true, Ordering::Relaxed);
        }
    }
}

impl Reader {
    /// Waits until this thread is to read. False where the connection is gone.
    pub(crate) fn stand_by(&self) -> bool {
        self.meter.waits();
        let mut state = self.readers.state.lock();
        while state.called == 0 && !state.ended {
            self.readers.call.wait(&mut state);
        }
        if state.ended {
            return false;
        }
        state.called -= 1;
        self.begins(&mut state);
        true
    }

    fn begins(&self, state: &mut State) {
        self.meter.gauge().is_away.store(false, Ordering::Relaxed);
        self.meter.gauge().is_to_leave.store(false, Ordering::Relaxed);
        self.has_more(false);
        state.members[self.index].role = Role::Reads;
    }

    /// Waits by `wait`. Where that `reads` requests, or ends when there is one, this is no standstill.
    pub(crate) fn rests<T>(&self, reads: bool, wait: impl FnOnce() -> T) -> T {
        if !reads {
            return wait();
        }
        self.meter.waits();
        if self.meter.gauge().is_away.load(Ordering::Relaxed) {
            self.begins(&mut self.readers.state.lock());
        }
        let outcome = wait();
        self.meter.woke();
        outcome
    }

    /// This thread reads nothing until it waits for requests again: it has no slot for another one, or is about to block below.
    pub(crate) fn goes_away(&self) {
        if self.has_others() && !self.meter.gauge().is_away.swap(true, Ordering::Relaxed) {
            let mut state = self.readers.state.lock();
            state.members[self.index].role = Role::Away;
            self.readers.call(&mut state);
        }
    }

    /// Whether the watcher wants this thread to move to where its next caller runs.
    pub(crate) fn is_to_follow(&self) -> bool {
        self.meter.gauge().is_to_follow.load(Ordering::Relaxed)
    }

    /// Moves this thread to where a caller runs. To be called for one that waits for a name: a look at a thread's `/proc` entry holds
    /// that process's memory for a moment, and whoever lets go of it last unmaps it, which may wait for requests to this very reader. Who
    /// waits for a name lives and keeps its memory.
    pub(crate) fn follow(&self, caller: u32) {
        self.meter.gauge().is_to_follow.store(false, Ordering::Relaxed);
        if let Some(cpu) = threads::last_cpu_of(caller) {
            self.meter.keep_on(cpu);
        }
    }

    /// Whether this thread found another request waiting.
    pub(crate) fn has_more(&self, has_more: bool) {
        self.meter.gauge().has_more.store(has_more, Ordering::Relaxed);
    }

    /// Whether other threads could read.
    pub(crate) fn has_others(&self) -> bool {
        self.readers.threads > 1
    }

    /// Stops reading where it was told to, unless it is the last. Who leaves has nothing under way, and stands by at once.
    pub(crate) fn leaves(&self) -> bool {
        if !self.meter.gauge().is_to_leave.swap(false, Ordering::Relaxed) {
            return false;
        }
        let mut state = self.readers.state.lock();
        state.members[self.index].role = Role::StandsBy;
        let is_last = state.is_deserted();
        if is_last {
            state.members[self.index].role = Role::Reads;
        }
        !is_last
    }
}

#[cfg(test)]
mod test;
