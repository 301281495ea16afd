//! Serving until a signal says otherwise.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use shuntfs_sys::signal::{Signal, SignalFd};
use shuntfs_sys::{EventFd, OsError, event};

use thiserror::Error;

use crate::filesystem::Filesystem;
use crate::mount::{MountError, UnmountError};
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

/// Mounts `fs` on `path`, and serves it until it is unmounted or a signal says otherwise ([`Session::run`]). Returns what was done.
/// To be called from the program's first thread, before it has started others: they would not have the signals blocked.
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
    session.run(&signals)?;
    Ok(session.status())
}

/// SIGINT and SIGTERM, taken off the process's default treatment.
#[derive(Debug)]
pub struct Signals(SignalFd);

impl Signals {
    /// Blocks SIGINT and SIGTERM in this thread and in those it starts from now on. To be called before
    /// [`Session::mount`].
    ///
    /// # Errors
    /// EMFILE at the descriptor limit.
    pub fn block() -> std::io::Result<Self> {
        Ok(Self(SignalFd::new(&[Signal::Int, Signal::Term])?))
    }
}

impl Session {
    /// Waits until the connection has ended; unmounts at the first SIGINT or SIGTERM, and detaches the mount at a
    /// second one where it was busy.
    ///
    /// # Errors
    /// Those of waiting for signals.
    pub fn run(&self, signals: &Signals) -> std::io::Result<()> {
        let ended = EventFd::new()?;
        std::thread::scope(|scope| {
            let watcher = scope.spawn(|| self.unmount_at_signal(signals, &ended));
            self.wait();
            ended.signal();
            watcher.join().unwrap_or(Err(OsError::IO))
        })?;
        Ok(())
    }

    fn unmount_at_signal(&self, signals: &Signals, ended: &EventFd) -> Result<(), OsError> {
        let mut asked = 0;
        loop {
            event::wait_readable(&[signals.0.as_fd(), ended.as_fd()], None)?;
            let Some(signal) = signals.0.take()? else { return Ok(()) };
            asked += 1;
            let outcome = if asked == 1 { self.unmount() } else { self.unmount_lazily() };
            match outcome {
                Ok(()) | Err(UnmountError::NotOurs) => {}
                Err(error @ UnmountError::Busy { .. }) => {
                    tracing::warn!(?signal, %error, "again detaches it");
                }
                Err(error) => tracing::error!(?signal, %error, "still mounted"),
            }
        }
    }
}
