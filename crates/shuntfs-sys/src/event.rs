//! Waking and waiting: an event descriptor, a timer, and waiting until one of several is readable.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::{OsError, Result};

/// A bell that any thread may ring: an eventfd, nonblocking and close-on-exec.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// Makes a bell that does not ring.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM.
    pub fn new() -> Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Rings: the descriptor is readable until [`EventFd::drain`].
    pub fn signal(&self) {
        // It can only fail where it rings already, 2^64 - 2 times.
        let _rings = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Stills the bell, where it rings.
    pub fn drain(&self) {
        let _was_silent = rustix::io::read(&self.0, &mut [0_u8; 8]);
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A timer that any thread may set and one waits for: a timerfd, close-on-exec. Setting it wakes nobody before it expires.
#[derive(Debug)]
pub struct Timer(OwnedFd);

impl Timer {
    /// Makes a timer that is not set.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM.
    pub fn new() -> Result<Self> {
        Ok(Self(timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?))
    }

    /// Lets it expire once, so long from now; `None` stops it. What was set before no longer counts.
    pub fn set(&self, after: Option<Duration>) {
        let it_value = timespec(after.unwrap_or_default());
        let spec = Itimerspec { it_interval: timespec(Duration::ZERO), it_value };
        // The descriptor is a timer's and the time is valid: nothing else can fail.
        let _set = timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &spec);
    }

    /// Waits until it has expired. It may return sooner, where a signal comes.
    pub fn wait(&self) {
        let _interrupted = rustix::io::read(&self.0, &mut [0_u8; 8]);
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}

/// How many descriptors [`wait_readable`] takes at most.
pub const WAIT_MAX: usize = 4;

/// Waits until one of `fds` is readable or has failed; `false` where `limit` ran out first.
///
/// # Errors
/// EINTR where a signal came; EINVAL for more than [`WAIT_MAX`] descriptors.
pub fn wait_readable(fds: &[BorrowedFd<'_>], limit: Option<Duration>) -> Result<bool> {
    if fds.is_empty() || fds.len() > WAIT_MAX {
        return Err(OsError::INVAL);
    }
    let mut polled = [const { None }; WAIT_MAX];
    for (place, fd) in polled.iter_mut().zip(fds) {
        *place = Some(PollFd::from_borrowed_fd(*fd, PollFlags::IN));
    }
    let limit = limit.map(timespec);
    let [first, second, third, fourth] = polled;
    let ready = match (first, second, third, fourth) {
        (Some(a), None, None, None) => poll(&mut [a], limit.as_ref()),
        (Some(a), Some(b), None, None) => poll(&mut [a, b], limit.as_ref()),
        (Some(a), Some(b), Some(c), None) => poll(&mut [a, b, c], limit.as_ref()),
        (Some(a), Some(b), Some(c), Some(d)) => poll(&mut [a, b, c, d], limit.as_ref()),
        _ => Err(OsError::INVAL),
    }?;
    Ok(ready > 0)
}

/// Waits until `fd` is readable or `other` has failed; whether the latter is so.
///
/// # Errors
/// EINTR where a signal came.
pub fn wait_readable_or_end(fd: BorrowedFd<'_>, other: BorrowedFd<'_>) -> Result<bool> {
    let mut polled =
        [PollFd::from_borrowed_fd(fd, PollFlags::IN), PollFd::from_borrowed_fd(other, PollFlags::empty())];
    poll(&mut polled, None)?;
    Ok(!polled[1].revents().is_empty())
}

/// Whether a descriptor has failed for good: a device whose connection is gone.
///
/// # Errors
/// EINTR where a signal came.
pub fn has_ended(fd: BorrowedFd<'_>) -> Result<bool> {
    let mut polled = [PollFd::from_borrowed_fd(fd, PollFlags::empty())];
    poll(&mut polled, Some(&timespec(Duration::ZERO)))?;
    Ok(!polled[0].revents().is_empty())
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_timer_that_was_stopped_does_not_expire() {
        let timer = Timer::new().expect("timerfd");
        timer.set(Some(Duration::from_millis(1)));
        timer.wait();
        timer.set(Some(Duration::from_millis(10)));
        timer.set(None);
        assert_eq!(wait_readable(&[timer.0.as_fd()], Some(Duration::from_millis(50))), Ok(false));
    }

    #[test]
    fn an_end_is_told_from_what_is_to_be_read() {
        let (here, there) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let ended = || has_ended(here.as_fd());
        assert_eq!(ended(), Ok(false));
        std::io::Write::write_all(&mut &there, b"x").expect("there is room");
        assert_eq!(ended(), Ok(false), "there is something to read");
        drop(there);
        assert_eq!(ended(), Ok(true));
    }

    #[test]
    fn a_bell_rings_until_it_is_stilled() {
        let (silent, rings) = (EventFd::new().expect("eventfd"), EventFd::new().expect("eventfd"));
        let both = || wait_readable(&[silent.as_fd(), rings.as_fd()], Some(Duration::ZERO));
        assert_eq!(both(), Ok(false));
        rings.signal();
        rings.signal();
        assert_eq!(both(), Ok(true));
        rings.drain();
        assert_eq!(both(), Ok(false));
        assert_eq!(wait_readable(&[], None), Err(OsError::INVAL));
    }
}
