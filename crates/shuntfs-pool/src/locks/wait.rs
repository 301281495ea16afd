//! Waiting for lower locks: one thread for all who wait, however many.
//!
//! The kernel offers no way to be told when a lock is free but to sleep in the call, which takes a thread a
//! waiter. So one thread tries for everybody in turn: at once when a lock of the mount is given back, and else
//! in steps that grow, which bounds how late a lock is seen that a process below gave back. The thread is there
//! only while somebody waits.
//!
//! There is room for so many, and nobody takes all of it: a user has at most as many waiters as there is room left
//! for others. One user alone gets half of the room, a second one half of what is left, and there is some for the next.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use shuntfs::{Errno, Result};

/// The first pause between two rounds, which doubles.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// The longest one.
const PAUSE_MAX: Duration = Duration::from_millis(32);

/// Tries for a lock without waiting; EAGAIN means "not yet".
pub(crate) type Try = Box<dyn FnMut() -> Result<()> + Send>;

/// All who wait.
#[derive(Debug)]
pub(crate) struct Waiters {
    waiters_max: usize,
    let_in: Mutex<LetIn>,
    state: Mutex<State>,
    news: Condvar,
}

/// Those who were admitted and have not gone yet.
#[derive(Debug, Default)]
struct LetIn {
    all: usize,
    /// By user; nobody has none.
    of: HashMap<u32, usize>,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Waiter>,
    /// Something may have changed since the last round.
    kicked: bool,
    has_thread: bool,
}

struct Waiter {
    attempt: Try,
    ticket: Arc<Ticket>,
}

impl std::fmt::Debug for Waiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiter").field("ticket", &self.ticket).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Ticket {
    cancelled: AtomicBool,
    outcome: Mutex<Outcome>,
}

#[derive(Debug, Default)]
struct Outcome {
    result: Option<Result<()>>,
    waker: Option<Waker>,
}

impl Waiters {
    pub(crate) fn new(waiters_max: usize) -> Self {
        Self { waiters_max, let_in: Mutex::default(), state: Mutex::default(), news: Condvar::new() }
    }

    /// Waits for a user until `attempt` gives something other than EAGAIN.
    ///
    /// # Errors
    /// ENOLCK where too many wait already, or too many of this user.
    pub(crate) fn wait(self: &Arc<Self>, uid: u32, attempt: Try) -> Result<Waiting> {
        self.let_in(uid)?;
        let ticket = Arc::new(Ticket::default());
        let mut state = self.state.lock();
        state.queue.push_back(Waiter { attempt, ticket: Arc::clone(&ticket) });
        state.kicked = true;
        let starts = !std::mem::replace(&mut state.has_thread, true);
        drop(state);
        self.news.notify_all();
        if starts {
            self.start();
        }
        Ok(Waiting { waiters: Arc::clone(self), uid, ticket })
    }

    fn let_in(&self, uid: u32) -> Result<()> {
        let mut let_in = self.let_in.lock();
        let own = let_in.of.get(&uid).copied().unwrap_or_default();
        if own >= self.waiters_max.saturating_sub(let_in.all) {
            tracing::warn!(limit = self.waiters_max, uid, own, all = let_in.all, "too many wait for locks");
            return Err(Errno::NOLCK);
        }
        let_in.all += 1;
        let_in.of.insert(uid, own + 1);
        Ok(())
    }

    fn let_go(&self, uid: u32) {
        let mut let_in = self.let_in.lock();
        let_in.all -= 1;
        if let Some(own) = let_in.of.get_mut(&uid) {
            *own -= 1;
            if *own == 0 {
                let_in.of.remove(&uid);
            }
        }
    }

    fn start(self: &Arc<Self>) {
        let all = Arc::clone(self);
        let spawned = std::thread::Builder::new().name("shunt-locks".into()).spawn(move || all.serve());
        if let Err(error) = spawned {
            tracing::warn!(%error, "no thread to wait for locks");
            let mut state = self.state.lock();
            state.has_thread = false;
            let queue = std::mem::take(&mut state.queue);
            drop(state);
            for waiter in queue {
                waiter.ticket.settle(Err(Errno::NOLCK));
            }
        }
    }

    /// Says that a lock may have become free, or a waiter impatient.
    pub(crate) fn kick(&self) {
        let mut state = self.state.lock();
        if !state.queue.is_empty() || state.has_thread {
            state.kicked = true;
            self.news.notify_all();
        }
    }

    fn serve(&self) {
        shuntfs::leave_queue();
        let mut pause = PAUSE_MIN;
        let mut state = self.state.lock();
        loop {
            if state.queue.is_empty() {
                state.has_thread = false;
                return;
            }
            state.kicked = false;
            let round = std::mem::take(&mut state.queue);
            drop(state);
            let before = round.len();
            let mut left: VecDeque<_> = round.into_iter().filter_map(Waiter::step).collect();
            pause = if left.len() < before { PAUSE_MIN } else { (pause * 2).min(PAUSE_MAX) };
            state = self.state.lock();
            // Those who came meanwhile stand behind those who wait longer.
            left.append(&mut state.queue);
            state.queue = left;
            if state.kicked {
                pause = PAUSE_MIN;
            } else if !state.queue.is_empty() {
                self.news.wait_for(&mut state, pause);
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn has_thread(&self) -> bool {
        self.state.lock().has_thread
    }
}

impl Waiter {
    /// Tries once; the waiter again where it must go on waiting.
    fn step(mut self) -> Option<Self> {
        if self.ticket.cancelled.load(Ordering::Acquire) {
            self.ticket.settle(Err(Errno::INTR));
            return None;
        }
        match (self.attempt)() {
            Err(Errno::AGAIN) => Some(self),
            outcome => {
                self.ticket.settle(outcome);
                None
            }
        }
    }
}

impl Ticket {
    fn settle(&self, result: Result<()>) {
        let waker = {
            let mut outcome = self.outcome.lock();
            outcome.result = Some(result);
            outcome.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The outcome of waiting. Dropped, it stops trying.
#[derive(Debug)]
pub(crate) struct Waiting {
    waiters: Arc<Waiters>,
    uid: u32,
    ticket: Arc<Ticket>,
}

impl Waiting {
    /// Asks for an end: the outcome comes soon, EINTR or, where it was quicker, the lock.
    pub(crate) fn cancel(&self) {
        self.ticket.cancelled.store(true, Ordering::Release);
        self.waiters.kick();
    }

    /// Waits, but no longer than `interrupted` does.
    pub(crate) async fn unless(mut self, interrupted: impl Future<Output = ()>) -> Result<()> {
        let mut interrupted = std::pin::pin!(interrupted);
        let mut is_over = false;
        std::future::poll_fn(move |cx| {
            if !is_over && interrupted.as_mut().poll(cx).is_ready() {
                is_over = true;
                self.cancel();
            }
            Pin::new(&mut self).poll(cx)
        })
        .await
    }
}

impl Future for Waiting {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let mut outcome = self.ticket.outcome.lock();
        match outcome.result {
            Some(result) => Poll::Ready(result),
            None => {
                outcome.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.ticket.outcome.lock().result.is_none() {
            self.cancel();
        }
        self.waiters.let_go(self.uid);
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use std::task::Wake;
    use std::time::Instant;

    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    fn block_on<F: Future>(future: F) -> F::Output {
        let mut future = std::pin::pin!(future);
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let limit = Instant::now() + Duration::from_secs(10);
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return output;
            }
            assert!(Instant::now() < limit, "nothing came");
            std::thread::park_timeout(Duration::from_millis(100));
        }
    }

    const ONE: u32 = 4001;

    fn flag(free: &Arc<AtomicBool>) -> Try {
        let free = Arc::clone(free);
        Box::new(move || if free.swap(false, Ordering::SeqCst) { Ok(()) } else { Err(Errno::AGAIN) })
    }

    #[test]
    fn a_lock_that_becomes_free_goes_to_one_who_waits() {
        let (waiters, free) = (Arc::new(Waiters::new(60)), Arc::new(AtomicBool::new(false)));
        let mut waiting: Vec<_> = (0..30).map(|_| waiters.wait(ONE, flag(&free)).unwrap()).collect();
        for left in (0..30).rev() {
            free.store(true, Ordering::SeqCst);
            waiters.kick();
            // Whose turn it is depends on where the round was when the lock became free.
            block_on(std::future::poll_fn(|cx| {
                waiting.retain_mut(|waiting| Pin::new(waiting).poll(cx).is_pending());
                if waiting.len() == left { Poll::Ready(()) } else { Poll::Pending }
            }));
        }
    }

    /// An attack: somebody waits for as many locks as they can have, so that nobody else gets any that is held.
    #[test]
    fn nobody_takes_all_of_the_room() {
        const ROOM: usize = 64;
        let (waiters, free) = (Arc::new(Waiters::new(ROOM)), Arc::new(AtomicBool::new(false)));
        let take_all = |uid| {
            let mut taken = Vec::new();
            while let Ok(waiting) = waiters.wait(uid, flag(&free)) {
                taken.push(waiting);
                assert!(taken.len() <= ROOM, "the bound holds");
            }
            taken
        };
        let first = take_all(ONE);
        let second = take_all(ONE + 1);
        assert_eq!((first.len(), second.len()), (ROOM / 2, ROOM / 4));
        assert_eq!(waiters.wait(ONE, flag(&free)).err(), Some(Errno::NOLCK));
        drop(waiters.wait(ONE + 2, flag(&free)).unwrap());
        drop(first);
        assert_eq!(take_all(ONE).len(), (ROOM - ROOM / 4) / 2, "what was given back is to be had");
        drop(second);
        assert!(waiters.let_in.lock().of.is_empty());
    }

    #[test]
    fn whoever_is_interrupted_goes_and_the_thread_with_the_last() {
        let (waiters, free) = (Arc::new(Waiters::new(2)), Arc::new(AtomicBool::new(false)));
        let waiting = waiters.wait(ONE, flag(&free)).unwrap();
        assert_eq!(block_on(waiting.unless(std::future::ready(()))), Err(Errno::INTR));
        drop(waiters.wait(ONE, flag(&free)).unwrap());
        let limit = Instant::now() + Duration::from_secs(5);
        while waiters.has_thread() {
            assert!(Instant::now() < limit, "nobody waits, but the thread stays");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn other_errors_end_the_wait() {
        let waiters = Arc::new(Waiters::new(2));
        let waiting = waiters.wait(ONE, Box::new(|| Err(Errno::IO))).unwrap();
        assert_eq!(block_on(waiting.unless(std::future::pending())), Err(Errno::IO));
    }
}
