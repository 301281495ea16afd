//! A server that is not yet one: told to end, it ends, whatever it waits for.
//!
//! Signals are taken by a descriptor that is read once the mount answers. Until then a start may hang: in a file system
//! that does not answer, say. Whoever is tired of it sends SIGTERM, and so does the kernel where the parent is gone.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use shuntfs_sys::event::wait_readable;
use shuntfs_sys::{EventFd, OsError, Signal, SignalFd};

use crate::failure::Failure;

/// How long a start that goes on may take to its end, so that it takes back itself what it has done.
const GRACE: Duration = Duration::from_secs(2);
/// The exit code of a server that was ended before it was one.
const ENDED: i32 = 1;

/// The watch over a start, until it is dropped.
#[derive(Debug)]
pub(super) struct Starting {
    over: Arc<EventFd>,
}

impl Starting {
    /// Begins to watch. The signals must be blocked already; one that comes stays to be taken by who serves.
    ///
    /// # Errors
    /// Where there can be no descriptor or no thread.
    pub(super) fn watch() -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::new(format!("cannot watch the start: {error}"));
        let over = Arc::new(EventFd::new().map_err(|error| failed(error.into()))?);
        let ends = SignalFd::new(&[Signal::Int, Signal::Term]).map_err(|error| failed(error.into()))?;
        let heard = Arc::clone(&over);
        let watch = move || {
            while wait_readable(&[heard.as_fd(), ends.as_fd()], None) == Err(OsError::INTR) {}
            if !rings(&heard, GRACE) {
                tracing::error!("told to end before the mount answered");
                std::process::exit(ENDED);
            }
        };
        std::thread::Builder::new().name("shunt-start".into()).spawn(watch).map_err(failed)?;
        Ok(Self { over })
    }
}

fn rings(bell: &EventFd, limit: Duration) -> bool {
    wait_readable(&[bell.as_fd()], Some(limit)) == Ok(true)
}

impl Drop for Starting {
    fn drop(&mut self) {
        self.over.signal();
    }
}
