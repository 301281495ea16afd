//! A few threads for what blocks below: cold metadata, and making data durable.
//!
//! The library has such a pool for operations ([`shuntfs::Cx::offload`]); this one is for the storage below imago, which
//! knows of no operation. Threads start when there is work that nobody takes, and end when they have been idle.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

const THREADS_MAX: usize = 16;
const IDLE: Duration = Duration::from_secs(5);

type Job = Box<dyn FnOnce() + Send>;

/// The threads. Those that work when this is dropped finish what they have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lanes(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Lanes {
    /// Runs blocking work; here and now where no thread can be had. Dropping the future does not end the work.
    pub(crate) fn run<T, W>(&self, work: W) -> impl Future<Output = io::Result<T>> + use<T, W>
    where
        T: Send + 'static,
        W: FnOnce() -> io::Result<T> + Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        self.push(Box::new(move || {
            // Nobody waits for what was given up.
            drop(sender.send(work()));
        }));
        async move { receiver.await.unwrap_or_else(|_| Err(io::Error::other("the work panicked"))) }
    }

    fn push(&self, job: Job) {
        let mut state = self.0.state.lock();
        state.jobs.push_back(job);
        if state.jobs.len() <= state.idle {
            self.0.work.notify_one();
            return;
        }
        if state.threads >= THREADS_MAX {
            return;
        }
        state.threads += 1;
        let none_else = state.threads == 1;
        drop(state);
        let shared = Arc::clone(&self.0);
        let started = thread::Builder::new().name("shunt-lane".into()).spawn(move || shared.serve());
        if started.is_err() {
            let mut state = self.0.state.lock();
            state.threads -= 1;
            let job = if none_else { state.jobs.pop_front() } else { None };
            drop(state);
            if let Some(job) = job {
                job();
            }
        }
    }
}

impl Shared {
    fn serve(&self) {
        shuntfs::leave_queue();
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                // A panic is told by the missing answer.
                let _told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
                state = self.state.lock();
                continue;
            }
            state.idle += 1;
            let timed_out = self.work.wait_for(&mut state, IDLE).timed_out();
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
    use std::sync::mpsc;

    use super::*;
    use pollster::block_on;

    #[test]
    fn work_is_done_beside_the_caller_and_as_much_at_once_as_there_are_lanes() {
        let lanes = Lanes::default();
        let (sender, receiver) = mpsc::channel::<()>();
        let receiver = Arc::new(Mutex::new(receiver));
        let blocked = {
            let receiver = Arc::clone(&receiver);
            lanes.run(move || receiver.lock().recv().map_err(io::Error::other))
        };
        let here = thread::current().id();
        let there = block_on(lanes.run(|| Ok(thread::current().id()))).expect("runs");
        assert_ne!(here, there, "beside the caller, and not behind the one that blocks");
        sender.send(()).expect("is waited for");
        block_on(blocked).expect("went on");
    }

    #[test]
    fn a_panic_is_an_error() {
        let lanes = Lanes::default();
        let outcome = block_on(lanes.run(|| -> io::Result<()> { panic!("on purpose") }));
        assert!(outcome.expect_err("panicked").to_string().contains("panicked"));
        block_on(lanes.run(|| Ok(()))).expect("goes on");
    }
}
