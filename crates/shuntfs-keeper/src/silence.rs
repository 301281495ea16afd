//! Whether a server answers, and why not.
//!
//! Requests that wait are no sign by themselves, and neither are those that are under way: a disk may hang. The sign is that requests wait to
//! be read, which the device tells by poll(2), and that nobody reads one, which the server's reads tell by a count in shared memory
//! (`shuntfs_sys::pulse`). Both cost others nothing, and neither can make the keeper wait. A helper that calls on the mount (statfs(2)) was
//! not chosen: it is a request more, it is answered by the file system, which may have to ask a disk, and once its request was read nothing
//! but the answer ends it.
//!
//! A server whose threads wait for a disk may read nothing either, because every slot is taken or the readers themselves call below. So
//! what the threads do is examined, too: one that waits below, or that somebody has stopped, is a reason to leave the server alone. What
//! remains is a server that waits for itself (a deadlock), or computes forever.

use std::fmt;
use std::fs;
use std::time::{Duration, Instant};

use shuntfs_sys::calls::{Waits, waits};

use crate::threads::{Call, Thread};

/// Since when requests wait that nobody reads.
#[derive(Debug)]
pub(crate) struct Silence {
    limit: Duration,
    reads: u64,
    since: Option<Instant>,
    is_told: bool,
}

impl Silence {
    pub(crate) fn new(limit: Duration, reads: u64) -> Self {
        Self { limit, reads, since: None, is_told: false }
    }

    /// How often it must be looked at.
    pub(crate) fn every(limit: Duration) -> Duration {
        (limit / 4).clamp(Duration::from_millis(10), Duration::from_secs(1))
    }

    /// Whether it has lasted for as long as is allowed: `has_unread` tells that requests wait, `reads` counts those that were read.
    pub(crate) fn look(&mut self, now: Instant, has_unread: bool, reads: u64) -> bool {
        if !has_unread || reads != self.reads {
            (self.reads, self.since, self.is_told) = (reads, None, false);
            return false;
        }
        now.duration_since(*self.since.get_or_insert(now)) >= self.limit
    }

    /// Whether this is the first that is told of it.
    pub(crate) fn is_news(&mut self) -> bool {
        !std::mem::replace(&mut self.is_told, true)
    }
}

/// Why a server does not read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reason {
    /// It waits for itself, or computes forever.
    Itself,
    /// A thread waits for a file system.
    Below,
    /// Somebody has stopped it.
    Stopped,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Itself => "it waits for itself",
            Self::Below => "a thread of it waits for a file system",
            Self::Stopped => "somebody has stopped it",
        })
    }
}

/// By its threads; `leads_below` tells whether a descriptor leads to a file.
pub(crate) fn reason(threads: &[Thread], leads_below: impl Fn(u64) -> bool) -> Reason {
    let is_below = |thread: &Thread| match (thread.state, thread.call) {
        (Some('R'), _) => false,
        (Some('S'), Some(Call { number, first })) => match waits(number) {
            Waits::Beside => false,
            Waits::ToRead => leads_below(first),
            _ => true,
        },
        // It ends, or has ended.
        (Some('Z' | 'X'), _) => false,
        // Uninterruptible, or not to be looked at.
        _ => true,
    };
    if threads.iter().any(|thread| matches!(thread.state, Some('T' | 't'))) {
        Reason::Stopped
    } else if threads.is_empty() || threads.iter().any(is_below) {
        Reason::Below
    } else {
        Reason::Itself
    }
}

/// Whether a descriptor of a process is a file that lies somewhere, and not the device, a socket, a pipe or a bell.
pub(crate) fn leads_below(pid: u32, number: u64) -> bool {
    let link = fs::read_link(format!("/proc/{pid}/fd/{number}"));
    link.is_ok_and(|link| link.starts_with("/") && link.as_os_str() != "/dev/fuse")
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn nobody_is_silent_who_reads_or_has_nothing_to_read() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut silence = Silence::new(Duration::from_millis(1000), 7);
        assert!(!silence.look(at(0), true, 7), "it begins");
        assert!(!silence.look(at(900), true, 7));
        assert!(!silence.look(at(999), true, 8), "one was read");
        assert!(!silence.look(at(1500), true, 8), "it begins again");
        assert!(!silence.look(at(2400), false, 8), "nothing waits");
        assert!(!silence.look(at(3000), true, 8));
        assert!(silence.look(at(4000), true, 8));
        assert!(silence.is_news() && !silence.is_news());
        assert!(!silence.look(at(4100), true, 9));
        assert!(silence.is_news(), "another one");
    }

    #[test]
    fn only_who_waits_for_himself_is_to_blame() {
        let thread = |state, call: Option<(i64, u64)>| Thread {
            state: Some(state),
            call: call.map(|(number, first)| Call { number, first }),
            ..Thread::default()
        };
        let call = |is_wanted: fn(Waits) -> bool| {
            (0..1000).find(|number| is_wanted(waits(*number))).expect("there is one")
        };
        let beside = call(|waits| waits == Waits::Beside);
        let read = call(|waits| waits == Waits::ToRead);
        let below = call(|waits| waits == Waits::Below);
        let locked = || thread('S', Some((beside, 0)));
        let of = |other: Thread| reason(&[locked(), other], |number| number == 9);
        assert_eq!(of(locked()), Reason::Itself);
        assert_eq!(of(thread('R', None)), Reason::Itself);
        assert_eq!(of(thread('S', Some((read, 3)))), Reason::Itself, "from a device or a bell");
        assert_eq!(of(thread('S', Some((read, 9)))), Reason::Below, "from a file");
        assert_eq!(of(thread('S', Some((below, 0)))), Reason::Below);
        assert_eq!(of(thread('D', Some((beside, 0)))), Reason::Below);
        assert_eq!(of(thread('S', None)), Reason::Below, "it may not be looked at");
        assert_eq!(of(thread('T', Some((beside, 0)))), Reason::Stopped);
        assert_eq!(reason(&[], |_| false), Reason::Below, "nothing is known");
    }

    #[test]
    fn files_are_told_from_the_rest() {
        use std::os::fd::AsRawFd;
        let (own, file) = (std::process::id(), tempfile::tempfile().expect("a file"));
        let (socket, _other) = std::os::unix::net::UnixDatagram::pair().expect("a pair");
        let number = |fd: i32| u64::try_from(fd).expect("positive");
        assert!(leads_below(own, number(file.as_raw_fd())));
        assert!(!leads_below(own, number(socket.as_raw_fd())));
        assert!(!leads_below(own, 999_999));
    }
}
