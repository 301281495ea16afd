//! What a keeper tells its service manager: the datagrams of sd_notify(3), and the descriptors that are to outlive the keeper.
//!
//! The manager is told that stored descriptors are not to be polled (`FDPOLL=0`): each request would wake it, because the device wakes
//! whoever waits for it in any way. It then does not notice that a mount is gone, so what is stored is removed when it is.

use std::env;
use std::ffi::OsStr;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use shuntfs_sys::passing::{Datagrams, PASSED_MAX};

/// How long a datagram waits for room: the manager may be slow, and must not hold up a mount.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is stored, by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// The device.
    Device,
    /// Clones of it, any number.
    Clone,
    /// What must be known of them.
    Note,
}

impl Part {
    pub(crate) const ALL: [Self; 3] = [Self::Device, Self::Clone, Self::Note];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Device => "shuntfs-device",
            Self::Clone => "shuntfs-clone",
            Self::Note => "shuntfs-note",
        }
    }
}

/// The service manager, where there is one.
#[derive(Debug)]
pub(crate) struct Manager {
    socket: Option<Datagrams>,
    watchdog: Option<Watchdog>,
}

/// The manager wants to hear from the keeper again and again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Watchdog {
    every: Duration,
    next: Instant,
}

impl Manager {
    /// As the environment says: `NOTIFY_SOCKET`, `WATCHDOG_USEC`, `WATCHDOG_PID`.
    pub(crate) fn find() -> Self {
        let name = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty());
        let socket = name.and_then(|name| match Datagrams::to(&name, PATIENCE) {
            Ok(socket) => Some(socket),
            Err(error) => {
                tracing::warn!(%error, "the service manager at {} cannot be told anything", name.display());
                None
            }
        });
        let own = std::process::id();
        let [interval, pid] = ["WATCHDOG_USEC", "WATCHDOG_PID"].map(env::var_os);
        let every = interval_of(interval.as_deref(), pid.as_deref(), own).filter(|_| socket.is_some());
        Self { socket, watchdog: every.map(|every| Watchdog { every, next: Instant::now() }) }
    }

    pub(crate) fn is_there(&self) -> bool {
        self.socket.is_some()
    }

    /// Callers are served, for the first time.
    pub(crate) fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nMAINPID={}\nSTATUS={}", std::process::id(), one_line(status)), &[]);
    }

    /// How things are.
    pub(crate) fn status(&self, status: &str) {
        self.send(&format!("STATUS={}", one_line(status)), &[]);
    }

    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1", &[]);
    }

    /// Has descriptors stored, for whoever comes after this process.
    pub(crate) fn store(&self, part: Part, fds: &[BorrowedFd<'_>]) {
        for fds in fds.chunks(PASSED_MAX) {
            self.send(&format!("FDSTORE=1\nFDPOLL=0\nFDNAME={}", part.name()), fds);
        }
    }

    /// Has nothing stored any more.
    pub(crate) fn remove(&self) {
        for part in Part::ALL {
            self.send(&format!("FDSTOREREMOVE=1\nFDNAME={}", part.name()), &[]);
        }
    }

    /// Says that the keeper is well, where that is due.
    pub(crate) fn beat(&mut self, now: Instant) {
        if let Some(watchdog) = &mut self.watchdog
            && now >= watchdog.next
        {
            watchdog.next = now + watchdog.every;
            self.send("WATCHDOG=1", &[]);
        }
    }

    /// For how long nothing may be said.
    pub(crate) fn patience(&self, now: Instant) -> Option<Duration> {
        self.watchdog.map(|watchdog| watchdog.next.saturating_duration_since(now))
    }

    fn send(&self, message: &str, fds: &[BorrowedFd<'_>]) {
        if let Some(socket) = &self.socket
            && let Err(error) = socket.send(message.as_bytes(), fds)
        {
            let what = message.lines().next().unwrap_or_default();
            tracing::warn!(%error, what, "the service manager was not told");
        }
    }
}

/// How often the manager is to hear: twice as often as it asks for. `None` where it does not ask this process.
fn interval_of(interval: Option<&OsStr>, pid: Option<&OsStr>, own: u32) -> Option<Duration> {
    let number = |value: &OsStr| value.to_str()?.parse::<u64>().ok();
    let is_asked = pid.is_none_or(|pid| number(pid) == Some(own.into()));
    let interval = interval.and_then(number).filter(|micros| is_asked && *micros > 0)?;
    Some((Duration::from_micros(interval) / 2).max(Duration::from_millis(1)))
}

fn one_line(status: &str) -> String {
    status.replace('\n', " ")
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn the_watchdog_is_this_processs_or_nobodys() {
        let of = |interval: &str, pid: Option<&str>| {
            interval_of(Some(OsStr::new(interval)), pid.map(OsStr::new), 7)
        };
        assert_eq!(of("30000000", None), Some(Duration::from_secs(15)));
        assert_eq!(of("30000000", Some("7")), Some(Duration::from_secs(15)));
        assert_eq!(of("30000000", Some("8")), None);
        assert_eq!((of("0", None), of("soon", None), of("-5", None)), (None, None, None));
        assert_eq!(interval_of(None, None, 7), None);
    }

    #[test]
    fn names_are_what_a_descriptor_store_takes() {
        for part in Part::ALL {
            let is_plain = |letter: char| letter.is_ascii_lowercase() || letter == '-';
            assert!(part.name().chars().all(is_plain), "{part:?}");
        }
        assert_eq!(one_line("a\nREADY=1"), "a READY=1");
    }
}
