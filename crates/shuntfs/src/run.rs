//! Serving until a signal says otherwise.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use shuntfs_sys::signal::{Signal, SignalFd, unblock_signals};
use shuntfs_sys::{EventFd, OsError, event};

use thiserror::Error;

use crate::filesystem::Filesystem;
use crate::mount::{AbortError, MountError, UnmountError};
use crate::options::{MountOptions, SessionOptions};
use crate::session::Session;
use crate::status::Status;

/// Why a file system was not served to its end.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServeError {
    /// It could not be mounted.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// Signals could not be waited for.
    #[error("signals cannot be waited for: {0}")]
    Signals(#[from] std::io::Error),
}

/// Mounts `fs` on `path`, and serves it until it is unmounted or a signal says otherwise ([`Session::run`]); what a signal led to is
/// told on standard error. Returns what was done. To be called from the program's first thread, before it has started others: they
/// would not have the signals blocked.
///
/// # Errors
/// [`ServeError`].
pub fn serve<F: Filesystem>(
    fs: F,
    path: &Path,
    mount: &MountOptions,
    options: &SessionOptions,
) -> Result<Status, ServeError> {
    let signals = Signals::block()?;
    let session = Session::mount(Arc::new(fs), path, mount, options)?;
    session.run_and_tell(&signals, |outcome| eprintln!("{}: {outcome}", mount.source))?;
    Ok(session.status())
}

const ENDS: [Signal; 3] = [Signal::Int, Signal::Term, Signal::Hup];

/// SIGINT, SIGTERM and SIGHUP, taken off the process's default treatment. They have it again in the thread that drops this.
#[derive(Debug)]
pub struct Signals(SignalFd);

impl Signals {
    /// Blocks SIGINT, SIGTERM and SIGHUP in this thread and in those it starts from now on. To be called before
    /// [`Session::mount`].
    ///
    /// # Errors
    /// EMFILE at the descriptor limit.
    pub fn block() -> std::io::Result<Self> {
        Ok(Self(SignalFd::new(&ENDS)?))
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // One that came while the server was ending anyway must not kill the process now.
        while let Ok(Some(_)) = self.0.take() {}
        if let Err(error) = unblock_signals(&ENDS) {
            tracing::warn!(%error, "signals stay blocked");
        }
    }
}

/// What a signal led to.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SignalOutcome {
    /// The mount is gone.
    #[error("unmounted")]
    Unmounted,
    /// The mount is busy and stays.
    #[error("{0}; the same signal again detaches it")]
    Busy(UnmountError),
    /// The mount is out of the tree; open files are served on.
    #[error("detached; files that are open are served on, and the same signal again ends that by force")]
    Detached,
    /// The connection has ended by force.
    #[error("ended by force; who had files open gets errors")]
    Aborted,
    /// It could not be unmounted, for another reason than being busy.
    #[error("still mounted: {0}; the signal for the third time ends it by force")]
    Refused(UnmountError),
    /// It could not even be ended by force.
    #[error("still served: {0}")]
    Unstoppable(AbortError),
}

impl Session {
    /// Waits until the connection has ended; unmounts at the first signal, detaches the mount at a second one where it was busy, and
    /// ends the connection by force at a third ([`Session::abort`]). What a signal led to goes to `tracing`.
    ///
    /// # Errors
    /// Those of waiting for signals.
    pub fn run(&self, signals: &Signals) -> std::io::Result<()> {
        self.run_and_tell(signals, |outcome| tracing::warn!(%outcome, "a signal came"))
    }

    /// As [`Session::run`], and tells `tell` what each signal led to.
    ///
    /// # Errors
    /// Those of waiting for signals.
    pub fn run_and_tell(
        &self,
        signals: &Signals,
        tell: impl Fn(SignalOutcome) + Sync,
    ) -> std::io::Result<()> {
        let ended = EventFd::new()?;
        std::thread::scope(|scope| {
            let watcher = scope.spawn(|| self.end_at_signals(signals, &ended, &tell));
            self.wait();
            ended.signal();
            watcher.join().unwrap_or(Err(OsError::IO))
        })?;
        Ok(())
    }

    fn end_at_signals(
        &self,
        signals: &Signals,
        ended: &EventFd,
        tell: &impl Fn(SignalOutcome),
    ) -> Result<(), OsError> {
        let mut asked = 0_u32;
        loop {
            event::wait_readable(&[signals.0.as_fd(), ended.as_fd()], None)?;
            if signals.0.take()?.is_none() {
                return Ok(());
            }
            asked += 1;
            tell(self.end(asked));
        }
    }

    /// Ends at the `asked`-th signal, each time with more force.
    fn end(&self, asked: u32) -> SignalOutcome {
        match asked {
            1 => SignalOutcome::of(false, self.unmount()),
            2 => SignalOutcome::of(true, self.unmount_lazily()),
            _ => SignalOutcome::of_force(self.abort()),
        }
    }
}

impl SignalOutcome {
    /// Of a signal that led to an unmount.
    pub(crate) fn of(lazy: bool, unmounted: Result<(), UnmountError>) -> Self {
        match unmounted {
            Ok(()) if lazy => Self::Detached,
            Ok(()) => Self::Unmounted,
            Err(error @ UnmountError::Busy { .. }) => Self::Busy(error),
            Err(error) => Self::Refused(error),
        }
    }

    /// Of one that was the last resort.
    pub(crate) fn of_force(aborted: Result<(), AbortError>) -> Self {
        aborted.map_or_else(Self::Unstoppable, |()| Self::Aborted)
    }
}
