//! Which way requests come, and how many calls run at once.

use std::env;
use std::io;
use std::str::FromStr;

use parking_lot::{Condvar, Mutex};
use shuntfs_sys::uring::Ring;
use shuntfs_transport::TransportKind;
use shuntfs_wire::InitFlags;

use crate::config::{Config, MountOption};

/// What says which transport, before the mount option does.
const TRANSPORT_VARIABLE: &str = "SHUNTFS_FUSER_TRANSPORT";
/// What says how many threads take requests.
const QUEUES_VARIABLE: &str = "SHUNTFS_FUSER_QUEUES";
/// The mount option that says which transport; it does not reach the kernel.
const TRANSPORT_OPTION: &str = "shuntfs_transport=";

/// Which transport is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wish {
    /// This one, or no session.
    Only(TransportKind),
    /// io_uring where it is available, else cloned devices.
    Auto,
}

/// What was settled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) wish: Wish,
    /// How many calls run at once.
    pub(crate) calls: usize,
    /// How many threads take requests; `None` where nobody said.
    pub(crate) queues: Option<usize>,
}

impl Plan {
    /// What configuration and environment say.
    pub(crate) fn new(config: &Config) -> io::Result<Self> {
        let option = config.mount_options.iter().find_map(transport_option).map(str::to_owned);
        let wish = match variable(TRANSPORT_VARIABLE)?.or(option) {
            Some(text) => text.parse()?,
            None => Wish::Only(TransportKind::Cloned),
        };
        let queues = variable(QUEUES_VARIABLE)?.map(|text| count(&text)).transpose()?;
        let calls = config.n_threads.unwrap_or(1);
        if calls == 0 {
            return Err(invalid("n_threads is 0: nobody would serve".into()));
        }
        Ok(Self { wish, calls, queues })
    }

    /// Decides before INIT is answered. What is found here is only what no thread is needed for: a session may be
    /// moved to another process before it runs.
    pub(crate) fn decide(&self, offered: InitFlags) -> io::Result<TransportKind> {
        match self.wish {
            Wish::Only(TransportKind::Uring) => match ring_is_to_be_had(offered) {
                Ok(()) => Ok(TransportKind::Uring),
                Err(why) => Err(io::Error::new(io::ErrorKind::Unsupported, why)),
            },
            Wish::Only(kind) => Ok(kind),
            Wish::Auto => match ring_is_to_be_had(offered) {
                Ok(()) => Ok(TransportKind::Uring),
                Err(why) => {
                    tracing::debug!(why, "no io_uring");
                    Ok(TransportKind::Cloned)
                }
            },
        }
    }
}

/// The transport that a mount option names.
pub(crate) fn transport_option(option: &MountOption) -> Option<&str> {
    match option {
        MountOption::CUSTOM(text) => text.strip_prefix(TRANSPORT_OPTION),
        _ => None,
    }
}

fn ring_is_to_be_had(offered: InitFlags) -> Result<(), String> {
    if !offered.contains(InitFlags::OVER_IO_URING | InitFlags::INIT_EXT) {
        return Err(
            "the kernel offers no io_uring for FUSE: it needs Linux 6.14 and fuse.enable_uring=Y".into()
        );
    }
    Ring::new(2).map(drop).map_err(|error| format!("io_uring is unavailable ({error})"))
}

impl FromStr for Wish {
    type Err = io::Error;

    fn from_str(text: &str) -> io::Result<Self> {
        Ok(match text {
            "device" => Self::Only(TransportKind::Device),
            "cloned" => Self::Only(TransportKind::Cloned),
            "uring" => Self::Only(TransportKind::Uring),
            "auto" => Self::Auto,
            other => {
                return Err(invalid(format!("{other} is no transport: device, cloned, uring or auto")));
            }
        })
    }
}

fn count(text: &str) -> io::Result<usize> {
    let count = text.parse().ok().filter(|count| (1..=1024).contains(count));
    count.ok_or_else(|| invalid(format!("{QUEUES_VARIABLE} is {text}, and is to be from 1 to 1024")))
}

/// A variable of the environment; an empty one is as good as none.
fn variable(name: &str) -> io::Result<Option<String>> {
    match env::var(name) {
        Ok(text) if text.is_empty() => Ok(None),
        Ok(text) => Ok(Some(text)),
        Err(env::VarError::NotPresent) => Ok(None),
        Err(error) => Err(invalid(format!("{name}: {error}"))),
    }
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

/// Lets so many calls in at once.
#[derive(Debug)]
pub(crate) struct Gate {
    free: Mutex<usize>,
    left: Condvar,
}

/// A call that was admitted, until it is dropped.
#[derive(Debug)]
pub(crate) struct Inside<'g>(&'g Gate);

impl Gate {
    pub(crate) fn new(calls: usize) -> Self {
        Self { free: Mutex::new(calls), left: Condvar::new() }
    }

    /// Waits for its turn.
    pub(crate) fn enter(&self) -> Inside<'_> {
        let mut free = self.free.lock();
        while *free == 0 {
            self.left.wait(&mut free);
        }
        *free -= 1;
        Inside(self)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        *self.0.free.lock() += 1;
        self.0.left.notify_one();
    }
}

#[cfg(test)]
mod test {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn names_of_transports_are_read() {
        let wish = |text: &str| text.parse::<Wish>().ok();
        assert_eq!(wish("device"), Some(Wish::Only(TransportKind::Device)));
        assert_eq!(wish("uring"), Some(Wish::Only(TransportKind::Uring)));
        assert_eq!((wish("auto"), wish("URING"), wish("")), (Some(Wish::Auto), None, None));
        assert!(count("0").is_err() && count("x").is_err() && count("1025").is_err());
        assert_eq!(count("8").unwrap(), 8);
    }

    #[test]
    fn the_option_is_ours_alone() {
        let custom = |text: &str| MountOption::CUSTOM(text.into());
        assert_eq!(transport_option(&custom("shuntfs_transport=uring")), Some("uring"));
        assert_eq!(transport_option(&custom("max_read=4096")), None);
        let config = Config { n_threads: Some(0), ..Config::default() };
        assert!(Plan::new(&config).is_err());
    }

    #[test]
    fn a_kernel_without_rings_is_no_reason_to_fail_where_they_were_not_asked_for() {
        let plan = |wish| Plan { wish, calls: 1, queues: None };
        let none = InitFlags::empty();
        assert!(plan(Wish::Only(TransportKind::Uring)).decide(none).is_err());
        assert_eq!(plan(Wish::Auto).decide(none).unwrap(), TransportKind::Cloned);
    }

    #[test]
    fn no_more_are_inside_than_are_let_in() {
        let (gate, inside, most) = (Gate::new(2), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let _call = gate.enter();
                        most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert!(most.load(Ordering::SeqCst) <= 2);
        assert_eq!(*gate.free.lock(), 2);
    }
}
