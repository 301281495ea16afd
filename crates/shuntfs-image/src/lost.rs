//! Errors of making durable, which the kernel tells once: whoever asks again is told that all is well, though what it could not
//! write is gone. So they stay, and whoever asks later, or ends the export, is told, too.

use std::fmt;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use parking_lot::Mutex;

const EIO: i32 = 5;

/// How much is made durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Depth {
    /// What is needed to read the data again, as `fdatasync`.
    Data,
    /// Times, too, as `fsync`.
    All,
}

/// The first error of a file.
#[derive(Debug, Default)]
pub(crate) struct Lost {
    /// By its number; 0 where there was none.
    error: AtomicI32,
    asked: AtomicU64,
    covered: Mutex<Covered>,
    keeps: OnceLock<Keeps>,
}

/// Keeps the number of an error where the next server finds it.
struct Keeps(Box<dyn Fn(i32) + Send + Sync>);

impl fmt::Debug for Keeps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeps").finish_non_exhaustive()
    }
}

/// Up to which question all is durable.
#[derive(Debug, Default)]
struct Covered {
    data: u64,
    all: u64,
}

impl Lost {
    /// Makes durable by `call`, and says how it stands with all that was ever written. It blocks.
    ///
    /// One call at a time: the kernel tells one of two that call at once, and the other one must not return before that is
    /// noted. And noted here, on the thread that calls: whoever asked may be gone by then, as the caller of an fsync that the end of
    /// the export has overtaken.
    pub(crate) fn sync<E>(&self, depth: Depth, call: impl FnOnce() -> Result<(), E>) -> io::Result<()>
    where
        io::Error: From<E>,
    {
        let own = self.asked.fetch_add(1, Ordering::AcqRel) + 1;
        let mut covered = self.covered.lock();
        // optimisation: a call that began after this question was asked has answered it.
        let upto = if depth == Depth::All { covered.all } else { covered.data };
        if upto < own {
            let now = self.asked.load(Ordering::Acquire);
            self.note(call());
            covered.data = now;
            if depth == Depth::All {
                covered.all = now;
            }
        }
        self.told()
    }

    /// Begins with the error of a server that is dead, 0 where it had none. The first one here goes to `keep` before it is told to anybody.
    pub(crate) fn goes_on(&self, error: i32, keep: impl Fn(i32) + Send + Sync + 'static) {
        self.error.store(error, Ordering::Release);
        let _only_one_goes_on = self.keeps.set(Keeps(Box::new(keep)));
    }

    /// How it stands with all that was ever written.
    pub(crate) fn told(&self) -> io::Result<()> {
        match self.error.load(Ordering::Acquire) {
            0 => Ok(()),
            number => Err(io::Error::from_raw_os_error(number)),
        }
    }

    fn note<E>(&self, outcome: Result<(), E>)
    where
        io::Error: From<E>,
    {
        let Err(error) = outcome else { return };
        let error = io::Error::from(error);
        let number = error.raw_os_error().unwrap_or(EIO);
        // One call at a time, so that nobody else finds another one meanwhile.
        if self.error.load(Ordering::Acquire) == 0 {
            if let Some(keeps) = self.keeps.get() {
                (keeps.0)(number);
            }
            self.error.store(number, Ordering::Release);
            tracing::error!("what was written may be lost: {error}");
        }
    }
}

#[cfg(test)]
mod test {
    use std::sync::{Arc, mpsc};
    use std::thread;

    use super::*;
    use crate::lanes::Lanes;
    use pollster::block_on;

    fn error(number: i32) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(number))
    }

    fn number(outcome: io::Result<()>) -> Option<i32> {
        outcome.err().and_then(|error| error.raw_os_error())
    }

    #[test]
    fn the_first_error_stays() {
        let lost = Lost::default();
        lost.sync(Depth::All, || io::Result::Ok(())).expect("nothing is lost");
        assert_eq!(number(lost.sync(Depth::Data, || error(28))), Some(28));
        assert_eq!(number(lost.sync(Depth::All, || io::Result::Ok(()))), Some(28));
        assert_eq!(number(lost.sync(Depth::All, || error(5))), Some(28));
        assert_eq!(number(lost.told()), Some(28));
    }

    /// A regression: the end of an export overtook the writing of tables. The kernel told the error to the one that was given up,
    /// nobody else, and the export ended with "all that was written is on the disk".
    #[test]
    fn an_error_that_was_told_to_who_is_gone_is_told_to_the_next() {
        let (lost, lanes) = (Arc::new(Lost::default()), Lanes::default());
        let (entered, has_entered) = mpsc::channel();
        let (goes_on, may_go_on) = mpsc::channel();
        let own = Arc::clone(&lost);
        // As the kernel does: this one is told, and the next is not.
        let given_up = lanes.run(move || {
            own.sync(Depth::Data, || {
                entered.send(()).map_err(io::Error::other)?;
                may_go_on.recv().map_err(io::Error::other)?;
                error(5)
            })
        });
        has_entered.recv().expect("is under way");
        drop(given_up);
        let own = Arc::clone(&lost);
        let next = lanes.run(move || own.sync(Depth::All, || io::Result::Ok(())));
        goes_on.send(()).expect("is waited for");
        assert_eq!(number(block_on(next)), Some(5));
    }

    /// Calls are counted: those who ask while one is under way share the next.
    #[test]
    fn who_asks_while_others_wait_shares_one_call() {
        const ASKERS: u64 = 8;
        let (lost, calls) = (Lost::default(), AtomicU64::new(0));
        let (entered, has_entered) = mpsc::channel();
        let (goes_on, may_go_on) = mpsc::channel();
        let called = |depth| {
            lost.sync(depth, || {
                calls.fetch_add(1, Ordering::Relaxed);
                io::Result::Ok(())
            })
        };
        thread::scope(|scope| {
            let under_way = move || {
                entered.send(()).map_err(io::Error::other)?;
                may_go_on.recv().map_err(io::Error::other)
            };
            let shared = &lost;
            let first = scope.spawn(move || shared.sync(Depth::All, under_way));
            has_entered.recv().expect("is under way");
            let others: Vec<_> = (0..ASKERS).map(|_| scope.spawn(|| called(Depth::Data))).collect();
            while lost.asked.load(Ordering::Acquire) <= ASKERS {
                thread::yield_now();
            }
            goes_on.send(()).expect("is waited for");
            first.join().expect("ends").expect("is durable");
            others.into_iter().for_each(|other| other.join().expect("ends").expect("is durable"));
        });
        assert_eq!(calls.load(Ordering::Relaxed), 1, "one for all that asked meanwhile");
        called(Depth::Data).expect("is durable");
        called(Depth::All).expect("data alone was not enough");
        assert_eq!(calls.load(Ordering::Relaxed), 3, "and one for each that asks later");
    }

    #[test]
    fn the_next_server_begins_with_the_error_of_the_last_one() {
        let (lost, kept) = (Lost::default(), Arc::new(AtomicI32::new(0)));
        let own = Arc::clone(&kept);
        lost.goes_on(0, move |error| own.store(error, Ordering::Relaxed));
        assert_eq!(number(lost.sync(Depth::Data, || error(5))), Some(5));
        assert_eq!(kept.load(Ordering::Relaxed), 5);
        assert_eq!(number(lost.sync(Depth::Data, || error(28))), Some(5));
        assert_eq!(kept.load(Ordering::Relaxed), 5, "the first one");
        let next = Lost::default();
        next.goes_on(5, |_| panic!("it is kept already"));
        assert_eq!(number(next.sync(Depth::All, || io::Result::Ok(()))), Some(5));
    }
}
