//! Threads for work that blocks. They are made as needed, up to a limit, and end when idle, so that an idle
//! mount has no wakeups.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

type Job = Box<dyn FnOnce() + Send>;

/// A pool of threads for blocking work.
pub struct OffloadPool {
    state: Mutex<State>,
    work: Condvar,
    threads_max: usize,
    at_start: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

/// How long a thread without work stays.
const LINGER: Duration = Duration::from_secs(5);

impl std::fmt::Debug for OffloadPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state.lock();
        f.debug_struct("OffloadPool")
            .field("threads", &state.threads)
            .field("jobs", &state.jobs.len())
            .finish()
    }
}

impl OffloadPool {
    /// A pool of at most `threads_max` threads, each of which runs `at_start` first.
    #[must_use]
    pub fn new(threads_max: usize, at_start: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State::default()),
            work: Condvar::new(),
            threads_max: threads_max.max(1),
            at_start: Box::new(at_start),
        })
    }

    /// Runs `work` on a thread of the pool, at once. The future has its result when that is there; a panic of the work goes on in whoever
    /// awaits it. Dropping the future does not stop the work.
    pub fn run<T, W>(self: &Arc<Self>, work: W) -> impl Future<Output = T> + use<T, W>
    where
        T: Send + 'static,
        W: FnOnce() -> T + Send + 'static,
    {
        let cell = Arc::new(Mutex::new((None, None::<Waker>)));
        let theirs = Arc::clone(&cell);
        self.push(Box::new(move || {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            let mut cell = theirs.lock();
            cell.0 = Some(outcome);
            let waker = cell.1.take();
            drop(cell);
            if let Some(waker) = waker {
                waker.wake();
            }
        }));
        std::future::poll_fn(move |cx| {
            let mut cell = cell.lock();
            let Some(outcome) = cell.0.take() else {
                cell.1 = Some(cx.waker().clone());
                return Poll::Pending;
            };
            drop(cell);
            Poll::Ready(outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })
    }

    fn push(self: &Arc<Self>, job: Job) {
        let mut state = self.state.lock();
        state.jobs.push_back(job);
        if state.idle >= state.jobs.len() || state.threads == self.threads_max {
            drop(state);
            self.work.notify_one();
            return;
        }
        state.threads += 1;
        drop(state);
        let pool = Arc::clone(self);
        let spawned = std::thread::Builder::new().name("shunt-offload".into()).spawn(move || pool.serve());
        if let Err(error) = spawned {
            tracing::warn!(%error, "no thread for blocking work");
            let mut state = self.state.lock();
            state.threads -= 1;
            // Without any thread nobody would ever run the job, so it runs here.
            let orphan = if state.threads == 0 { state.jobs.pop_back() } else { None };
            drop(state);
            if let Some(job) = orphan {
                job();
            }
        }
    }

    fn serve(&self) {
        (self.at_start)();
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = self.state.lock();
                continue;
            }
            state.idle += 1;
            let timed_out = self.work.wait_for(&mut state, LINGER).timed_out();
            state.idle -= 1;
            if timed_out && state.jobs.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake};

    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        loop {
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(value) => return value,
                Poll::Pending => std::thread::park_timeout(Duration::from_secs(5)),
            }
        }
    }

    #[test]
    fn work_never_runs_on_more_threads_than_allowed() {
        static RUNNING: AtomicUsize = AtomicUsize::new(0);
        static MOST: AtomicUsize = AtomicUsize::new(0);
        let pool = OffloadPool::new(3, || ());
        let jobs: Vec<_> = (0..24)
            .map(|n| {
                pool.run(move || {
                    MOST.fetch_max(RUNNING.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(2));
                    RUNNING.fetch_sub(1, Ordering::SeqCst);
                    n
                })
            })
            .collect();
        let sum: usize = jobs.into_iter().map(block_on).sum();
        assert_eq!(sum, 276);
        let most = MOST.load(Ordering::SeqCst);
        assert!((2..=3).contains(&most), "{most} at once");
    }

    #[test]
    fn a_panic_reaches_whoever_waits() {
        let pool = OffloadPool::new(1, || ());
        let failing = pool.run(|| panic!("asked to"));
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| block_on::<()>(failing)));
        assert!(caught.is_err());
        assert_eq!(block_on(pool.run(|| 5)), 5, "the pool goes on");
    }
}
