//! Lower calls that fail on purpose: for tests, with the feature `faults`.
//!
//! A test says which ones are to fail, counted from when it says so. What its own thread calls is not counted and never fails.
//! The calls are those that reach lower files: names, attributes, data, listings, handles, locks, ioctls; and what a ring reads
//! and writes of them. Its commands, polls and answers are not among them.
//!
//! Without the feature a point is an empty function that is inlined: nothing is left of it. Cargo turns a feature on for every
//! crate that it builds in one run, so only `[dev-dependencies]` may name it, which a build of the program does not look at
//! (`cargo xtask layers` sees to that).

use crate::Result;

#[cfg(feature = "faults")]
pub use armed::{Failed, Faults};

/// A place where a lower call may be made to fail.
///
/// # Errors
/// What a test asked for.
#[cfg(not(feature = "faults"))]
#[inline]
pub(crate) fn point() -> Result<()> {
    Ok(())
}

/// A place where a lower call may be made to fail.
///
/// # Errors
/// What a test asked for.
#[cfg(feature = "faults")]
#[track_caller]
pub(crate) fn point() -> Result<()> {
    armed::point()
}

#[cfg(feature = "faults")]
mod armed {
    use std::ops::Range;
    use std::panic::Location;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Mutex, MutexGuard, PoisonError};
    use std::thread::{self, ThreadId};

    use crate::{OsError, Result};

    #[derive(Debug)]
    struct Armed {
        by: ThreadId,
        which: Range<u64>,
        error: OsError,
        seen: Failed,
        places: Vec<&'static Location<'static>>,
    }

    /// What came of it.
    #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
    #[non_exhaustive]
    pub struct Failed {
        /// How many lower calls there were.
        pub calls: u64,
        /// The first one that failed, by its place in this crate; `None` where there were too few.
        pub at: Option<&'static Location<'static>>,
    }

    /// The right to make lower calls of this process fail, which one test has at a time.
    ///
    /// A test without it, in another thread of the same process, is hit as well: those that have no part in this belong into
    /// another program.
    #[derive(Debug)]
    pub struct Faults {
        _alone: MutexGuard<'static, ()>,
    }

    static ALONE: Mutex<()> = Mutex::new(());
    /// optimisation: calls before and after the counted ones do not meet at the lock.
    static IS_ARMED: AtomicBool = AtomicBool::new(false);
    static ARMED: Mutex<Option<Armed>> = Mutex::new(None);

    impl Faults {
        /// Waits for the other tests that make calls fail.
        #[must_use]
        pub fn alone() -> Self {
            Self { _alone: ALONE.lock().unwrap_or_else(PoisonError::into_inner) }
        }

        /// Makes these lower calls from now on fail with `error`; 0 is the next one. With an empty range they are only counted.
        /// Those of this thread are its own.
        pub fn fail(&self, which: Range<u64>, error: OsError) {
            let by = thread::current().id();
            *armed() = Some(Armed { by, which, error, seen: Failed::default(), places: Vec::new() });
            IS_ARMED.store(true, Ordering::Release);
        }

        /// Which lower calls there were since it was said so, in their order, by their places in this crate.
        #[must_use]
        pub fn places(&self) -> Vec<&'static Location<'static>> {
            armed().as_ref().map_or_else(Vec::new, |armed| armed.places.clone())
        }

        /// Lets all calls work again.
        pub fn stop(&self) -> Failed {
            IS_ARMED.store(false, Ordering::Release);
            armed().take().map_or_else(Failed::default, |armed| armed.seen)
        }
    }

    impl Drop for Faults {
        fn drop(&mut self) {
            self.stop();
        }
    }

    fn armed() -> MutexGuard<'static, Option<Armed>> {
        ARMED.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[track_caller]
    pub(super) fn point() -> Result<()> {
        if !IS_ARMED.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut armed = armed();
        let Some(armed) = armed.as_mut().filter(|armed| armed.by != thread::current().id()) else {
            return Ok(());
        };
        let number = armed.seen.calls;
        armed.seen.calls += 1;
        armed.places.push(Location::caller());
        if armed.which.contains(&number) {
            armed.seen.at.get_or_insert(Location::caller());
            return Err(armed.error);
        }
        Ok(())
    }
}
