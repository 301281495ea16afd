//! Whether a branch is in use, or set aside because its disk does not answer; and which errors it gave.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use shuntfs::Errno;

/// Why a branch is set aside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Why {
    /// A call did not come back in time.
    Silent,
    /// It answers with this error.
    Failed(Errno),
    /// Another folder is at its path, or none: its disk was unmounted, or is another one.
    Elsewhere,
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Silent => f.write_str("it does not answer"),
            Self::Failed(errno) => write!(f, "it answers with {errno}"),
            Self::Elsewhere => f.write_str("its disk is not mounted at its path any more"),
        }
    }
}

/// How a branch is.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// Looked at by every operation, and by listings under way.
    is_aside: Arc<AtomicBool>,
    noted: Mutex<Noted>,
    errors: AtomicU64,
    /// Whether there was an error that nobody has looked into.
    is_in_doubt: AtomicBool,
}

#[derive(Debug, Default)]
struct Noted {
    aside: Option<(Instant, Why)>,
    error: Option<(Instant, Errno)>,
}

impl Health {
    /// Whether it is set aside: nothing is asked of it.
    pub(crate) fn is_aside(&self) -> bool {
        self.is_aside.load(Ordering::Relaxed)
    }

    /// What says so, for whoever goes on with a listing.
    pub(crate) fn sign(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_aside)
    }

    /// Since when it is set aside, and why.
    pub(crate) fn aside(&self) -> Option<(Duration, Why)> {
        self.noted.lock().aside.map(|(since, why)| (since.elapsed(), why))
    }

    /// Sets it aside. Whether it was not before.
    pub(crate) fn set_aside(&self, why: Why) -> bool {
        let mut noted = self.noted.lock();
        let is_new = noted.aside.is_none();
        noted.aside.get_or_insert((Instant::now(), why));
        self.is_aside.store(true, Ordering::SeqCst);
        is_new
    }

    /// Takes it back. How long it was set aside, if it was.
    pub(crate) fn take_back(&self) -> Option<Duration> {
        let mut noted = self.noted.lock();
        self.is_aside.store(false, Ordering::SeqCst);
        self.is_in_doubt.store(false, Ordering::SeqCst);
        noted.aside.take().map(|(since, _)| since.elapsed())
    }

    /// Notes an error of a lower call, where it is one of a disk.
    pub(crate) fn failed(&self, error: Errno) {
        const OF_DISKS: [Errno; 5] = [Errno::IO, Errno::NODEV, Errno::NXIO, Errno::NOTCONN, Errno::TIMEDOUT];
        if self.is_aside() || !OF_DISKS.contains(&error) {
            return;
        }
        self.errors.fetch_add(1, Ordering::Relaxed);
        self.noted.lock().error = Some((Instant::now(), error));
        self.is_in_doubt.store(true, Ordering::SeqCst);
    }

    /// Whether there was such an error since this was last asked.
    pub(crate) fn take_doubt(&self) -> bool {
        self.is_in_doubt.load(Ordering::Relaxed) && self.is_in_doubt.swap(false, Ordering::SeqCst)
    }

    /// How many errors there were, and which was the last, how long ago.
    pub(crate) fn errors(&self) -> (u64, Option<(Duration, Errno)>) {
        let last = self.noted.lock().error;
        (self.errors.load(Ordering::Relaxed), last.map(|(then, error)| (then.elapsed(), error)))
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn what_is_set_aside_stays_so_for_the_first_reason() {
        let health = Health::default();
        let sign = health.sign();
        assert!(health.aside().is_none() && !health.is_aside());
        assert!(health.set_aside(Why::Silent) && !health.set_aside(Why::Elsewhere));
        assert_eq!(health.aside().map(|(_, why)| why), Some(Why::Silent));
        assert!(sign.load(Ordering::SeqCst));
        assert!(health.take_back().is_some() && health.take_back().is_none());
        assert!(!sign.load(Ordering::SeqCst));
    }

    #[test]
    fn errors_of_disks_cast_doubt_and_others_do_not() {
        let health = Health::default();
        for error in [Errno::NOENT, Errno::STALE, Errno::ACCES] {
            health.failed(error);
        }
        assert_eq!((health.errors().0, health.take_doubt()), (0, false));
        health.failed(Errno::IO);
        assert_eq!((health.errors().0, health.take_doubt(), health.take_doubt()), (1, true, false));
        health.set_aside(Why::Failed(Errno::IO));
        health.failed(Errno::IO);
        assert_eq!((health.errors().0, health.take_doubt()), (1, false), "nothing is asked of it");
    }

    #[test]
    fn the_reasons_are_said_in_words() {
        let all = [Why::Silent, Why::Failed(Errno::IO), Why::Elsewhere].map(|why| why.to_string());
        assert!(all[0].contains("does not answer") && all[1].contains("answers with"), "{all:?}");
        assert!(all[2].contains("not mounted"), "{all:?}");
    }
}
