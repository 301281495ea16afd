//! When a server is given up.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use thiserror::Error;

/// How much a keeper stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// How many servers may die within [`Limits::within`]; the last of them has no successor. Default: 5.
    pub crashes: usize,
    /// Default: a minute.
    pub within: Duration,
    /// How long a server may take until it is ready. One that takes longer is killed. A server that takes state over has a second more for
    /// each 4 MiB of it, 32,768 nodes: twenty to fifty times what these take on an idle machine. The first one has six times as long: only
    /// whoever mounts waits for it, and a machine that boots is busy. Default: 10 seconds.
    pub ready: Duration,
    /// How many servers in a row may be killed for that; the last of them has no successor. Default: 2.
    pub late: usize,
    /// How long a server that was killed may take to be gone before it is reported, with what its threads wait for in the kernel. It is
    /// waited for in any case: no server is started beside one that may yet finish what it has begun. Default: 5 seconds.
    pub kill: Duration,
    /// How long requests may wait that a server does not read. One that lets them wait longer, because it waits for itself or computes
    /// forever, is killed, and has a successor. One of which a thread waits for a file system is left alone: a disk that hangs is no
    /// fault of the server's, and no successor could help. A handler that computes for longer than this on every queue is killed with its
    /// server. Default: `None`, nobody is killed.
    pub answers: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            crashes: 5,
            within: Duration::from_secs(60),
            ready: Duration::from_secs(10),
            late: 2,
            kill: Duration::from_secs(5),
            answers: None,
        }
    }
}

impl Limits {
    /// These, for servers before which there was none.
    pub(crate) fn of_first(&self) -> Self {
        Self { ready: self.ready.saturating_mul(FIRST), ..*self }
    }

    /// These, for a server that takes over so much of state, in bytes.
    pub(crate) fn with_state(&self, len: u64) -> Self {
        Self { ready: self.ready.saturating_add(Duration::from_secs(len / STATE_PER_SECOND)), ..*self }
    }
}

/// How many times as long a first server may take.
const FIRST: u32 = 6;

/// So much state gives a server a second more.
const STATE_PER_SECOND: u64 = 4 << 20;

/// How much memory the state of a mount takes, in bytes. Where that cannot be known: none.
pub(crate) fn len_of_state(state: &OwnedFd) -> u64 {
    // By its number, without a duplicate: the server's process shares the table of descriptors.
    let path = format!("/proc/self/fd/{}", state.as_raw_fd());
    std::fs::metadata(path).map_or(0, |state| state.blocks() * 512)
}

/// Why there is no successor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum GiveUp {
    /// Too many servers died.
    #[error("{crashes} servers died within {within:?}")]
    Crashes {
        /// How many.
        crashes: usize,
        /// Within which time.
        within: Duration,
    },
    /// Servers did not become ready.
    #[error("{late} servers in a row were not ready after {ready:?}")]
    NeverReady {
        /// How many.
        late: usize,
        /// How long each had.
        ready: Duration,
    },
}

/// What is known of the servers so far.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// When they died, the last of them last; as many as count.
    died: VecDeque<Instant>,
    late: usize,
}

impl Record {
    /// A server is ready.
    pub(crate) fn ready(&mut self) {
        self.late = 0;
    }

    /// A server was not ready in time.
    pub(crate) fn late(&mut self) {
        self.late += 1;
    }

    /// A server has died.
    ///
    /// # Errors
    /// There must be no other one.
    pub(crate) fn died(&mut self, now: Instant, limits: &Limits) -> Result<(), GiveUp> {
        if self.late >= limits.late.max(1) {
            return Err(GiveUp::NeverReady { late: self.late, ready: limits.ready });
        }
        self.died.push_back(now);
        while self.died.front().is_some_and(|first| now.duration_since(*first) > limits.within) {
            self.died.pop_front();
        }
        let crashes = self.died.len();
        if crashes >= limits.crashes.max(1) {
            return Err(GiveUp::Crashes { crashes, within: limits.within });
        }
        Ok(())
    }
}

#[cfg(test)]
mod test {
    use std::os::fd::AsFd;

    use shuntfs_sys::shared_words::SharedWords;

    use super::*;

    const LIMITS: Limits = Limits {
        crashes: 3,
        within: Duration::from_secs(10),
        ready: Duration::from_secs(1),
        late: 2,
        kill: Duration::from_secs(1),
        answers: None,
    };

    #[test]
    fn crashes_count_while_they_are_recent() {
        let start = Instant::now();
        let at = |secs| start + Duration::from_secs(secs);
        let mut record = Record::default();
        for secs in [0, 6, 12, 18, 24, 100] {
            assert_eq!(record.died(at(secs), &LIMITS), Ok(()), "{secs}");
        }
        assert_eq!(record.died(at(101), &LIMITS), Ok(()));
        let given_up = GiveUp::Crashes { crashes: 3, within: LIMITS.within };
        assert_eq!(record.died(at(110), &LIMITS), Err(given_up));
        assert_eq!(given_up.to_string(), "3 servers died within 10s");
    }

    /// A regression: with a million nodes, two servers in a row on a busy machine were not ready after ten seconds, and the mount was lost.
    #[test]
    fn more_state_gives_more_time() {
        let words = SharedWords::create(c"test", 4 << 20).expect("memory");
        let state = words.as_fd().try_clone_to_owned().expect("a duplicate");
        let ready = || LIMITS.with_state(len_of_state(&state)).ready;
        assert_eq!(ready(), LIMITS.ready, "what is not used takes no time");
        words.reserve(0..2 << 20).expect("memory");
        assert_eq!(ready(), LIMITS.ready + Duration::from_secs(4));
    }

    #[test]
    fn one_that_is_ready_in_between_makes_up_for_a_late_one() {
        let now = Instant::now();
        let limits = Limits { crashes: 100, ..LIMITS };
        let mut record = Record::default();
        for _ in 0..5 {
            record.late();
            assert_eq!(record.died(now, &limits), Ok(()));
            record.ready();
            assert_eq!(record.died(now, &limits), Ok(()));
        }
        record.late();
        assert_eq!(record.died(now, &limits), Ok(()));
        record.late();
        assert!(matches!(record.died(now, &limits), Err(GiveUp::NeverReady { late: 2, .. })));
    }

    #[test]
    fn no_limit_is_below_one() {
        let none = Limits { crashes: 0, ..LIMITS };
        assert!(Record::default().died(Instant::now(), &none).is_err());
    }
}
