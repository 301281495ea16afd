//! Who checks whether disks answer, where a time for them is set: sets branches aside that do not, and takes them back.
//!
//! A thread looks every [`LOOK`] while operations are under way, and sleeps when there are none: an idle mount is not woken. An operation that is
//! under way for [`SUSPECT`] is a sign that a disk is slow: then nobody waits behind it in a queue, because all operations leave their queues, until it
//! has ended. One that takes as long as was set on one branch is a sign that its disk hangs: its branch is set aside. Whoever waits for what hangs there
//! gets EIO, because the kernel holds locks of folders for them, and whoever has an order that others wait for and hangs there loses it.
//!
//! Of a mount below a branch, which may be any user's, nothing is said of the disk: whoever waits for it gets EIO, and that is all.
//!
//! A branch is also set aside if it does not answer in that time what its space is, if it answers that and other calls with an error of a disk,
//! and if its path leads elsewhere. It is asked again and again, and taken back when it answers and nothing hangs on it any more.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::change::{check_kernel, tell_kernel};
use super::state::Merge;
use crate::branch::{Branch, Flights, Up, Why, is_failure};
use crate::error::errno;
use crate::node::Parts;
use crate::shared::Shared;

/// How often it is looked while operations are under way.
const LOOK: Duration = Duration::from_millis(20);

/// An operation that takes so long is one that others must not wait behind.
const SUSPECT: Duration = Duration::from_millis(40);

/// Looks in a row without an operation that send the thread to sleep.
const QUIET: u32 = 10;

/// How often a branch that is set aside is asked whether it answers.
const PROBE: Duration = Duration::from_secs(1);

/// An error that is so old says nothing of what the branch would answer now.
const STALE: Duration = Duration::from_secs(5);

/// What is known from the looks before.
pub(super) struct Watch {
    timeout: Duration,
    /// By thread, what it had under way.
    seen: HashMap<u64, Seen>,
    /// By branch that is set aside, how often it had answered, and when it is asked next.
    aside: HashMap<u16, (u64, Instant)>,
    sum: u64,
    quiet: u32,
}

/// An operation that was seen before.
#[derive(Clone, Copy, Debug)]
struct Seen {
    turn: u64,
    since: Instant,
    step: u64,
    /// Since when it is where it is.
    there_since: Instant,
}

/// An operation, and how long it is under way.
#[derive(Clone, Copy, Debug)]
struct Aged {
    up: Up,
    age: Duration,
    /// How long it is on its branch.
    there: Duration,
}

/// Starts the thread that watches, where a time is set. It ends with the pool.
pub(crate) fn watch(shared: &Arc<Shared>) {
    let Some((flights, timeout)) = shared.merge.as_ref().and_then(Merge::watched) else { return };
    let weak = Arc::downgrade(shared);
    let serve = move || {
        shuntfs::leave_queue();
        serve(&weak, &flights, timeout);
    };
    if let Err(error) = std::thread::Builder::new().name("shunt-branches".into()).spawn(serve) {
        tracing::error!(%error, "no thread to watch the branches: none of them is set aside");
    }
}

fn serve(shared: &Weak<Shared>, flights: &Flights, timeout: Duration) {
    let mut watch = Watch::new(timeout);
    while let Some(shared) = shared.upgrade() {
        let Some(merge) = &shared.merge else { return };
        let pause = watch.look(&shared, merge, flights, Instant::now());
        drop(shared);
        if !flights.rest(pause) {
            return;
        }
    }
}

impl Watch {
    pub(super) fn new(timeout: Duration) -> Self {
        Self { timeout, seen: HashMap::new(), aside: HashMap::new(), sum: 0, quiet: 0 }
    }

    /// One look. When the next is due; `None` where there is nothing to look after.
    pub(super) fn look(
        &mut self,
        shared: &Shared,
        merge: &Merge,
        flights: &Flights,
        now: Instant,
    ) -> Option<Duration> {
        let (up, sum) = flights.look();
        let aged = self.age(&up, now);
        let in_use = shared.branches.order();
        let counts = |branch: &u16| in_use.contains(branch) && !shared.branches.at(*branch).health.is_aside();
        for Aged { up, there, .. } in &aged {
            if *there >= self.timeout
                && let Some(number) = up.branch.filter(|number| !up.is_below && counts(number))
            {
                set_aside(shared, merge, number, Why::Silent);
            }
        }
        for number in in_use.iter() {
            let branch = shared.branches.at(*number);
            if branch.health.is_aside() {
                self.probe(shared, merge, (*number, branch), &aged, now);
            } else if let Some(why) = self.doubt(branch) {
                set_aside(shared, merge, *number, why);
            }
        }
        self.aside.retain(|number, _| in_use.contains(number));
        if self.aside.is_empty() && merge.has_aside() {
            // The last one was removed.
            merge.note_aside(false, false);
            merge.end_aside();
        }
        let hangs_below = |one: &Aged| one.up.is_below && one.there >= self.timeout;
        let is_lost = |one: &Aged| one.up.branches().any(|branch| !counts(&branch)) || hangs_below(one);
        flights.strain(aged.iter().any(|one| one.age >= SUSPECT && !is_lost(one)));
        let stuck: Vec<Up> =
            aged.iter().filter(|one| one.there >= SUSPECT && is_lost(one)).map(|one| one.up).collect();
        let is_stuck = |flight: u64| stuck.iter().any(|up| up.flight == flight);
        // Whoever waits for it, and whoever waits for a lock that the kernel holds for them, goes on.
        let left = stuck.iter().filter(|up| flights.leave(up)).count();
        if left > 0 {
            tracing::warn!(left, "callers got EIO that waited for a disk that does not answer");
        }
        if leave_behind(shared, merge, is_stuck) {
            tracing::warn!("a change of names hangs on a disk that does not answer: others go on without it");
        }
        let is_quiet = up.is_empty() && std::mem::replace(&mut self.sum, sum) == sum;
        self.quiet = if is_quiet { self.quiet + 1 } else { 0 };
        match (self.quiet < QUIET, self.aside.is_empty()) {
            (true, _) => Some(LOOK),
            (false, false) => Some(PROBE / 4),
            (false, true) => {
                self.quiet = 0;
                None
            }
        }
    }

    /// How long each operation is under way.
    fn age(&mut self, up: &[Up], now: Instant) -> Vec<Aged> {
        let before = std::mem::take(&mut self.seen);
        let seen = |up: &Up| {
            let known = before.get(&up.flight).filter(|seen| seen.turn == up.turn);
            let since = known.map_or(now, |seen| seen.since);
            let there_since = known.filter(|seen| seen.step == up.step).map_or(now, |seen| seen.there_since);
            Seen { turn: up.turn, since, step: up.step, there_since }
        };
        self.seen = up.iter().map(|up| (up.flight, seen(up))).collect();
        let aged = |up: &Up| {
            let seen = self.seen[&up.flight];
            let long = |since: Instant| now.saturating_duration_since(since);
            Aged { up: *up, age: long(seen.since), there: long(seen.there_since) }
        };
        up.iter().map(aged).collect()
    }

    /// Whether a branch in use must be set aside by what it says of itself.
    fn doubt(&self, branch: &Branch) -> Option<Why> {
        if branch.health.take_doubt() {
            branch.ask_anew();
        }
        let word = branch.word();
        let failed = word.error.filter(|(error, _)| is_failure(*error));
        if failed.is_some_and(|(_, age)| age >= STALE) {
            // It may answer by now.
            branch.ask();
            return None;
        }
        if word.silent_for.is_some_and(|silent| silent >= self.timeout) {
            Some(Why::Silent)
        } else if let Some((error, _)) = failed {
            Some(Why::Failed(errno(error)))
        } else {
            word.told.is_some_and(|(told, _)| told.is_elsewhere).then_some(Why::Elsewhere)
        }
    }

    /// Asks a branch that is set aside, and takes it back if it answers and nothing hangs on it.
    fn probe(
        &mut self,
        shared: &Shared,
        merge: &Merge,
        (number, branch): (u16, &Branch),
        aged: &[Aged],
        now: Instant,
    ) {
        let (answers, due) = self.aside.entry(number).or_insert((branch.answers(), now));
        if now >= *due {
            *due = now + PROBE;
            branch.ask_anew();
        }
        if branch.answers() == *answers {
            return;
        }
        *answers = branch.answers();
        let word = branch.word();
        let is_there = word.told.is_some_and(|(told, _)| !told.is_elsewhere);
        let is_on_it = |up: &Up| up.branch == Some(number) && !up.is_below;
        let hangs = aged.iter().any(|one| is_on_it(&one.up) && one.there >= SUSPECT);
        if word.error.is_none() && is_there && !hangs {
            self.aside.remove(&number);
            take_back(shared, merge, number);
        }
    }
}

/// Takes what others wait for from who is stuck. Whether anybody was.
fn leave_behind(shared: &Shared, merge: &Merge, is_stuck: impl Fn(u64) -> bool) -> bool {
    let of_names = shared.rules.as_ref().is_some_and(|engine| engine.order.leave_behind(&is_stuck));
    merge.leave_behind(&is_stuck) || of_names
}

/// Leaves a branch out of everything.
pub(super) fn set_aside(shared: &Shared, merge: &Merge, number: u16, why: Why) {
    let branch = shared.branches.at(number);
    merge.begin_aside(shared);
    if !branch.health.set_aside(why) {
        return;
    }
    tracing::warn!(
        branch = ?branch.source(),
        "it is set aside, because {why}: what is on it is not there until it answers again"
    );
    // Where the kernel keeps names until it is told otherwise, and cannot be told, it is to keep none of those that are found meanwhile.
    merge.note_aside(true, shared.is_ours_alone() && check_kernel(shared).is_err());
    each_folder(shared, |parts| parts.set_aside(number));
    merge.forget_hints();
    tell_kernel(shared);
}

/// Has a branch be as it was.
pub(super) fn take_back(shared: &Shared, merge: &Merge, number: u16) {
    let branch = shared.branches.at(number);
    let Some(lasted) = branch.health.take_back() else { return };
    tracing::warn!(branch = ?branch.source(), seconds = lasted.as_secs(), "it answers again and is taken back");
    let order = shared.branches.order();
    let others: Vec<u16> =
        order.iter().copied().filter(|other| shared.branches.at(*other).health.is_aside()).collect();
    each_folder(shared, |parts| {
        parts.take_back(number, &order, merge.shows_first());
        // One of these may have been the only place left.
        others.iter().for_each(|other| parts.set_aside(*other));
    });
    merge.note_aside(!others.is_empty(), merge.doubts_names());
    merge.forget_hints();
    shared.rules.iter().for_each(|engine| engine.comes_back());
    tell_kernel(shared);
    if others.is_empty() {
        merge.end_aside();
    }
}

fn each_folder(shared: &Shared, act: impl Fn(&Parts)) {
    let all = shared.table.all();
    all.iter().chain(std::iter::once(&shared.root)).filter_map(|node| node.parts()).for_each(act);
}
