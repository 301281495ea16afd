//! Which operations are under way, and on which branch each of them is: by that a disk that hangs is seen.
//!
//! A thread notes that it begins an operation and that it has ended it, and before each lower call on which branch that is. Both are stores into
//! memory of its own, without a look at the clock. Somebody else looks now and then whether an operation is the same as before, and on the same
//! branch.
//!
//! Whoever waits for another thread ([`waits`]) is on no branch meanwhile: else the branch that it asked last would be taken for the one that
//! hangs.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Waker};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use shuntfs::{Errno, Hatch};

use super::mounts::MountIndex;

/// No branch.
const NOWHERE: u32 = u32::MAX;
/// Beside the number of a branch: it is on another mount, below that of the branch.
const BELOW: u32 = 1 << 16;

/// Numbers for flights, and for those who watch them. 0 is nobody's.
static NUMBERS: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// What this thread has under way, and by whom it is watched.
    static OWN: RefCell<Option<(u64, Arc<Flight>)>> = const { RefCell::new(None) };
}

/// What one thread shows.
#[derive(Debug)]
#[repr(align(64))]
struct Flight {
    number: u64,
    /// Odd while an operation is under way; never the same for two.
    turn: AtomicU64,
    /// Another one whenever the branch is another one.
    step: AtomicU64,
    branch: AtomicU32,
    /// A branch without which the operation comes to nothing, either.
    other: AtomicU32,
    /// Of the operation that is under way.
    escape: Mutex<Escape>,
}

/// How whoever waits for an operation goes on without it, if it hangs.
#[derive(Debug, Default)]
pub(crate) enum Escape {
    /// Not at all.
    #[default]
    None,
    /// Its request is answered from elsewhere.
    Hatch(Hatch),
    /// Its task does not wait for it any more.
    Parting(Arc<Parting>),
    /// One of these was done.
    Left,
}

impl Escape {
    /// By the hatch of a request, where there is one.
    pub(crate) fn by(hatch: Option<Hatch>) -> Self {
        hatch.map_or(Self::None, Self::Hatch)
    }
}

/// Where a task hears that it is not to wait any more.
#[derive(Debug, Default)]
pub(crate) struct Parting {
    is_gone: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Parting {
    /// Whether the task is not to wait any more. If it is, it is woken when that changes.
    pub(crate) fn is_gone(&self, task: &Context<'_>) -> bool {
        if !self.is_gone.load(Ordering::SeqCst) {
            *self.waker.lock() = Some(task.waker().clone());
        }
        self.is_gone.load(Ordering::SeqCst)
    }

    fn part(&self) {
        self.is_gone.store(true, Ordering::SeqCst);
        let waker = self.waker.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// An operation that is under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Up {
    /// The thread.
    pub(crate) flight: u64,
    /// The operation.
    pub(crate) turn: u64,
    /// How often it has come from one branch to another.
    pub(crate) step: u64,
    /// The branch of its last lower call, if there was one.
    pub(crate) branch: Option<u16>,
    /// Whether that call is on a mount below the one of the branch, of which it says nothing.
    pub(crate) is_below: bool,
    /// A branch without which it comes to nothing, either.
    pub(crate) other: Option<u16>,
}

impl Up {
    /// The branches that it needs.
    pub(crate) fn branches(&self) -> impl Iterator<Item = u16> {
        self.branch.into_iter().chain(self.other)
    }
}

/// What all threads show.
#[derive(Debug)]
pub(crate) struct Flights {
    number: u64,
    all: Mutex<Vec<Weak<Flight>>>,
    /// Whether an operation takes so long that others must not wait behind it.
    is_strained: AtomicBool,
    /// Whether somebody looks.
    is_awake: AtomicBool,
    has_ended: Mutex<bool>,
    woken: Condvar,
}

/// An operation of this thread, until this is dropped.
#[derive(Debug)]
pub(crate) struct InFlight {
    /// Whether it is no part of another one.
    is_whole: bool,
    _of_this_thread: PhantomData<*const ()>,
}

impl Flight {
    /// The branch is this one from now on; which it was.
    fn comes_to(&self, branch: u32) -> u32 {
        let before = self.branch.load(Ordering::Relaxed);
        if before != branch {
            self.step.store(self.step.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            self.branch.store(branch, Ordering::Release);
        }
        before
    }
}

impl Flights {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            all: Mutex::default(),
            is_strained: AtomicBool::new(false),
            is_awake: AtomicBool::new(false),
            has_ended: Mutex::new(false),
            woken: Condvar::new(),
        })
    }

    /// This thread begins an operation.
    pub(crate) fn begin(&self) -> InFlight {
        let is_whole = OWN.with_borrow_mut(|own| {
            if own.as_ref().is_none_or(|(of, _)| *of != self.number) {
                *own = Some((self.number, self.one_more()));
            }
            let Some((_, flight)) = own else { unreachable!("it was just made") };
            let turn = flight.turn.load(Ordering::Relaxed);
            let is_whole = turn.is_multiple_of(2);
            if is_whole {
                flight.branch.store(NOWHERE, Ordering::Relaxed);
                flight.other.store(NOWHERE, Ordering::Relaxed);
                // Before the look whether somebody is awake: whoever goes to sleep says so and looks at this then.
                flight.turn.store(turn + 1, Ordering::SeqCst);
            }
            is_whole
        });
        if is_whole && !self.is_awake.load(Ordering::SeqCst) {
            self.wake();
        }
        InFlight { is_whole, _of_this_thread: PhantomData }
    }

    fn one_more(&self) -> Arc<Flight> {
        let flight = Arc::new(Flight {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            turn: AtomicU64::new(0),
            step: AtomicU64::new(0),
            branch: AtomicU32::new(NOWHERE),
            other: AtomicU32::new(NOWHERE),
            escape: Mutex::default(),
        });
        self.all.lock().push(Arc::downgrade(&flight));
        flight
    }

    /// Has somebody look.
    #[cold]
    pub(crate) fn wake(&self) {
        // Held, so that who is about to sleep hears it.
        let _ended = self.has_ended.lock();
        self.is_awake.store(true, Ordering::SeqCst);
        self.woken.notify_all();
    }

    /// Nobody is to look any more.
    pub(crate) fn end(&self) {
        *self.has_ended.lock() = true;
        self.woken.notify_all();
    }

    /// What is under way, and the sum of all turns, which changes with each operation.
    pub(crate) fn look(&self) -> (Vec<Up>, u64) {
        let (mut up, mut sum) = (Vec::new(), 0_u64);
        self.all.lock().retain(|flight| {
            let Some(flight) = flight.upgrade() else { return false };
            // First, because the step is stored before it: no branch is seen with the step of another one before it.
            let branch = flight.branch.load(Ordering::Acquire);
            let step = flight.step.load(Ordering::Relaxed);
            let other = u16::try_from(flight.other.load(Ordering::Relaxed)).ok();
            let turn = flight.turn.load(Ordering::SeqCst);
            sum = sum.wrapping_add(turn);
            if !turn.is_multiple_of(2) {
                let is_below = branch != NOWHERE && branch & BELOW != 0;
                let branch = u16::try_from(if is_below { branch & !BELOW } else { branch }).ok();
                up.push(Up { flight: flight.number, turn, step, branch, is_below, other });
            }
            true
        });
        (up, sum)
    }

    /// Has whoever waits for an operation go on with EIO. Whether that can be had, and was not done before.
    pub(crate) fn leave(&self, up: &Up) -> bool {
        let find = |flight: &Weak<Flight>| flight.upgrade().filter(|flight| flight.number == up.flight);
        let Some(flight) = self.all.lock().iter().find_map(find) else { return false };
        let mut escape = flight.escape.lock();
        if flight.turn.load(Ordering::SeqCst) != up.turn {
            // It has ended, or is about to.
            return false;
        }
        match std::mem::replace(&mut *escape, Escape::Left) {
            Escape::Hatch(hatch) => hatch.answer(Errno::IO),
            Escape::Parting(parting) => parting.part(),
            Escape::None => {
                *escape = Escape::None;
                return false;
            }
            Escape::Left => return false,
        }
        true
    }

    /// Says whether others must not wait behind what is under way.
    pub(crate) fn strain(&self, is_strained: bool) {
        self.is_strained.store(is_strained, Ordering::Relaxed);
    }

    /// Whether it was said so.
    pub(crate) fn is_strained(&self) -> bool {
        self.is_strained.load(Ordering::Relaxed)
    }

    /// Waits until it is time to look again: for so long, or until an operation begins. False where nobody is to look any more.
    pub(crate) fn rest(&self, pause: Option<Duration>) -> bool {
        let mut has_ended = self.has_ended.lock();
        if let Some(pause) = pause {
            if !*has_ended {
                self.woken.wait_for(&mut has_ended, pause);
            }
            return !*has_ended;
        }
        self.is_awake.store(false, Ordering::SeqCst);
        if !self.look().0.is_empty() {
            self.is_awake.store(true, Ordering::SeqCst);
        }
        while !*has_ended && !self.is_awake.load(Ordering::SeqCst) {
            self.woken.wait(&mut has_ended);
        }
        !*has_ended
    }
}

impl InFlight {
    /// The same, which can be left behind.
    pub(crate) fn with(self, escape: Escape) -> Self {
        if self.is_whole {
            with_own(|flight| *flight.escape.lock() = escape);
        }
        self
    }

    /// The operation has ended. Whether it was left behind.
    pub(crate) fn end(self) -> bool {
        let mut was_left = false;
        if self.is_whole {
            with_own(|flight| {
                was_left = matches!(std::mem::take(&mut *flight.escape.lock()), Escape::Left);
            });
        }
        was_left
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if self.is_whole {
            with_own(|flight| {
                *flight.escape.lock() = Escape::None;
                flight.turn.store(flight.turn.load(Ordering::Relaxed) + 1, Ordering::SeqCst);
            });
        }
    }
}

/// The next lower call of this thread is on this branch.
pub(crate) fn touches(branch: u16) {
    comes_to(u32::from(branch));
}

/// The next lower call of this thread is on this mount.
pub(crate) fn touches_on(mount: MountIndex) {
    if mount.is_own() { touches(mount.branch) } else { touches_below(mount.branch) }
}

/// The next lower call of this thread is on another mount, below that of this branch. The branch is not to blame for it.
pub(crate) fn touches_below(branch: u16) {
    comes_to(u32::from(branch) | BELOW);
}

/// What this thread does next may take long wherever it is.
pub(crate) fn touches_nothing() {
    comes_to(NOWHERE);
}

/// Waits for another thread, on no branch; then it is on the one on which it was before.
pub(crate) fn waits<T>(wait: impl FnOnce() -> T) -> T {
    let before = comes_to(NOWHERE);
    let outcome = wait();
    comes_to(before);
    outcome
}

/// What this thread does, to its end, comes to nothing without this branch, wherever its lower calls are: nobody is to wait for it when that is set
/// aside. It says nothing of the branch.
pub(crate) fn copies_to(branch: u16) {
    with_own(|flight| flight.other.store(u32::from(branch), Ordering::Relaxed));
}

/// Whether nobody waits any more for what this thread does. Its caller got EIO and may have done something else since, so no
/// further change must be made for it.
pub(crate) fn was_left() -> bool {
    let mut was_left = false;
    with_own(|flight| was_left = matches!(*flight.escape.lock(), Escape::Left));
    was_left
}

/// The number of what this thread has under way; 0 where nobody watches it.
pub(crate) fn own_number() -> u64 {
    let mut number = 0;
    with_own(|flight| number = flight.number);
    number
}

/// This thread is on this branch from now on; on which it was.
fn comes_to(branch: u32) -> u32 {
    let mut before = NOWHERE;
    with_own(|flight| before = flight.comes_to(branch));
    before
}

fn with_own(act: impl FnOnce(&Flight)) {
    OWN.with_borrow(|own| {
        if let Some((_, flight)) = own {
            act(flight);
        }
    });
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn what_is_under_way_is_seen_with_its_branch() {
        let flights = Flights::new();
        assert_eq!(flights.look(), (Vec::new(), 0));
        let outer = flights.begin();
        touches(3);
        let (up, _) = flights.look();
        assert_eq!(up.iter().map(|up| up.branch).collect::<Vec<_>>(), [Some(3)]);
        drop(flights.begin());
        assert_eq!(flights.look().0, up, "a part of it is no other one");
        touches_nothing();
        assert_eq!(flights.look().0[0].branch, None);
        assert_eq!(flights.look().0[0].flight, own_number());
        drop(outer);
        let (none, sum) = flights.look();
        assert!(none.is_empty() && sum == 2, "{none:?} {sum}");
        let again = flights.begin();
        assert_ne!(flights.look().0[0].turn, up[0].turn);
        drop(again);
    }

    /// Whoever had waited for another thread, and asked a branch then, was taken for one that the branch had kept waiting all the time.
    #[test]
    fn who_comes_to_another_branch_is_seen_there_anew() {
        let flights = Flights::new();
        let _begun = flights.begin();
        let seen = || flights.look().0[0];
        touches(3);
        let first = seen();
        touches(3);
        assert_eq!(seen(), first, "it is where it was");
        let waiting = waits(seen);
        assert_eq!((waiting.branch, waiting.turn), (None, first.turn));
        let again = seen();
        assert_eq!(again.branch, Some(3));
        assert!(first.step != waiting.step && first.step != again.step && waiting.step != again.step);
        touches(4);
        assert!(seen().branch == Some(4) && seen().step != again.step);
    }

    #[test]
    fn other_mounts_and_other_branches_are_told() {
        let flights = Flights::new();
        let begun = flights.begin();
        let seen = || flights.look().0[0];
        touches_on(MountIndex::own(0));
        assert_eq!((seen().branch, seen().is_below), (Some(0), false));
        touches_on(MountIndex::other(2));
        assert_eq!((seen().branch, seen().is_below), (Some(0), true));
        touches_nothing();
        copies_to(7);
        assert_eq!((seen().branch, seen().is_below, seen().other), (None, false, Some(7)));
        assert_eq!(seen().branches().collect::<Vec<_>>(), [7]);
        drop(begun);
        let _next = flights.begin();
        assert_eq!(seen().other, None, "that was another operation");
    }

    #[test]
    fn what_hangs_is_left_behind_once() {
        let flights = Flights::new();
        let parting = Arc::new(Parting::default());
        let up = |flights: &Flights| flights.look().0[0];
        let begun = flights.begin();
        assert!(!flights.leave(&up(&flights)), "it was not said how");
        assert!(!begun.end());
        let begun = flights.begin().with(Escape::Parting(Arc::clone(&parting)));
        let seen = up(&flights);
        drop(flights.begin().with(Escape::None));
        assert!(!flights.leave(&Up { turn: seen.turn - 2, ..seen }), "that one has ended");
        let task = Context::from_waker(Waker::noop());
        assert!(!parting.is_gone(&task));
        assert!(!was_left());
        assert!(flights.leave(&seen) && !flights.leave(&seen));
        assert!(parting.is_gone(&task) && was_left());
        assert!(begun.end() && !was_left());
        let begun = flights.begin();
        assert!(!begun.end(), "the next one was not");
    }

    #[test]
    fn threads_that_ended_are_forgotten() {
        let flights = Flights::new();
        std::thread::scope(|scope| {
            scope.spawn(|| drop(flights.begin())).join().unwrap();
        });
        flights.look();
        assert_eq!(flights.all.lock().len(), 0);
    }

    #[test]
    fn whoever_begins_wakes_who_sleeps_and_the_end_ends_it() {
        let flights = Flights::new();
        let theirs = Arc::clone(&flights);
        let (told, tells) = std::sync::mpsc::channel();
        let sleeper = std::thread::spawn(move || {
            while theirs.rest(None) {
                told.send(()).unwrap();
            }
        });
        for _ in 0..3 {
            let up = flights.begin();
            tells.recv_timeout(Duration::from_secs(20)).unwrap();
            drop(up);
            while tells.try_recv().is_ok() {}
        }
        flights.end();
        while tells.recv_timeout(Duration::from_secs(20)).is_ok() {}
        sleeper.join().unwrap();
        assert!(!flights.rest(Some(Duration::ZERO)));
    }
}
