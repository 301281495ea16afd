//! A mount that survives its server: this process is its keeper, and the servers are its children.
//!
//! The keeper has one thread, and what it does once the first server runs is little: it mounts and unmounts, answers whoever started it, and
//! takes signals. Each server begins by itself what a server has besides: its control socket, its answers to scrapes, its log lines. What
//! they share is opened by the keeper, before the first of them: the log, the socket for scrapes, the folder that is shown.

use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use shuntfs::takeover::KeptMount;
use shuntfs_keeper::{Attendant, KeepError, Limits, Seat, keep_with};
use shuntfs_sys::event::wait_readable;
use shuntfs_sys::process::{self, Process};
use shuntfs_sys::signal::block_signals;
use shuntfs_sys::spawn::Inherited;
use shuntfs_sys::{EventFd, OsError, Signal, SignalFd, limits, spawn};

use super::announce::Announce;
use super::rights;
use super::run::{
    Serving, Started, cannot, close, control_of, leave_nothing, serve_scrapes, story, take_away,
    take_away_from, tell_notes, watch,
};
use crate::control;
use crate::failure::Failure;
use crate::log;
use crate::metrics::Listener;
use crate::mounts::shown;
use crate::settings::Settings;

/// What is kept: its name, and how far the kernel is to read ahead, in bytes.
#[derive(Debug)]
pub(crate) struct KeptPlace {
    pub(crate) source: String,
    pub(crate) readahead: Option<u64>,
}

/// Keeps a mount: `mount` makes it, and `start` starts each of its servers. Returns when the mount is gone.
///
/// # Errors
/// Where the mount cannot be, and where there is no server any more that could go on.
pub(crate) fn keep<S: Serving>(
    settings: &Settings,
    announce: Announce,
    place: &KeptPlace,
    mount: impl FnOnce() -> Result<KeptMount, Failure>,
    start: impl Fn(&Seat<'_>) -> Result<Started<S>, Failure>,
) -> Result<(), Failure> {
    // Servers would have it, too, and nothing of it is asked for by number.
    Inherited::look().close();
    let scrapes = settings.metrics.map(Listener::bind).transpose()?;
    rights::give_up(S::task(settings))?;
    log::start(settings, !announce.has_parent())?;
    if announce.has_parent()
        && let Err(error) = spawn::detach_session()
    {
        tracing::warn!("still in the caller's session: {}", std::io::Error::from(error));
    }
    tracing::debug!("at most {} open files", limits::raise_nofile());
    // From here on a signal waits for the keeper, which takes the mount away.
    block_signals(&SIGNALS).map_err(|error| cannot("take signals", error))?;
    let mount = mount()?;
    let (connection, path) = (mount.connection().map(u64::from), shown(mount.path()));
    let mut notice = Notice {
        announce,
        connection,
        readahead: place.readahead,
        is_ready: false,
        is_told: false,
        is_aborted: false,
    };
    let outcome = keep_with(mount, &Limits::default(), &mut notice, |seat| {
        serve_one(seat, (settings, announce), scrapes.as_ref(), &start)
    });
    leave_nothing(connection);
    connection.into_iter().for_each(control::remove_left);
    let source = shown(&place.source);
    match outcome {
        Ok(_) if notice.is_aborted && !notice.is_told => {
            Err(Failure::new(format!("the connection of the mount of {source} was aborted")))
        }
        Ok(_) if notice.is_ready => {
            tracing::info!("ended");
            Ok(())
        }
        Ok(_) => Err(Failure::new(format!("the mount at {path} ended before it answered"))),
        // In its own words.
        Err(KeepError::Failed(why)) => Err(Failure::new(why)),
        Err(error) => {
            tracing::error!("{path}: {error}");
            Err(Failure::new(format!("the mount of {source} at {path} is gone: {error}")))
        }
    }
}

const SIGNALS: [Signal; 3] = [Signal::Hup, Signal::Int, Signal::Term];

/// One server, from its begin to the end of the connection.
fn serve_one<S: Serving>(
    seat: &Seat<'_>,
    (settings, announce): (&Settings, Announce),
    scrapes: Option<&Listener>,
    start: &impl Fn(&Seat<'_>) -> Result<Started<S>, Failure>,
) -> Result<(), Failure> {
    // Blocked they are already: these are the ones that come to this process.
    let signals = SignalFd::new(&SIGNALS).map_err(|error| cannot("take signals", error))?;
    let started = start(seat)?;
    let replaced = seat.predecessors();
    if replaced == 0 {
        tell_notes(&started, settings, announce);
    }
    let _control = control_of(&started, announce);
    if let Some(scrapes) = scrapes {
        // The keeper's stays open for the next server.
        let own = scrapes.try_clone().map_err(|error| cannot("listen for scrapes", error))?;
        serve_scrapes(own, &started, announce)?;
    }
    let story = story(&started);
    match replaced {
        0 => tracing::info!("mounted {story}; process {} keeps it", seat.keeper()),
        _ => tracing::warn!("goes on after {replaced} servers that died: {story}"),
    }
    let ended = watch(&started.served)?;
    seat.ready().map_err(|error| cannot("tell the keeper", error))?;
    attend(seat, &*started.served, &signals, &ended)?;
    // Whoever has something to close tells the keeper by a way of its own.
    let _logged = close(&started);
    Ok(())
}

/// Waits for the end of the connection. Signals that ask for it are the keeper's to heed, as long as there is one.
fn attend(
    seat: &Seat<'_>,
    mounted: &impl Serving,
    signals: &SignalFd,
    ended: &EventFd,
) -> Result<(), Failure> {
    let found = process::started(seat.keeper()).map(|start| Process::find(seat.keeper(), start));
    let mut keeper = found.and_then(Result::ok).flatten();
    let (mut alone, mut told) = (false, false);
    loop {
        if !seat.has_keeper() && !std::mem::replace(&mut alone, true) {
            keeper = None;
            tracing::error!(
                "the keeper, process {}, died: no other server follows this one, which goes on",
                seat.keeper()
            );
        }
        let mut all = vec![signals.as_fd(), ended.as_fd()];
        all.extend(keeper.as_ref().map(Process::as_fd));
        match wait_readable(&all, None) {
            Ok(_) | Err(OsError::INTR) => {}
            Err(error) => return Err(cannot("wait for signals", error)),
        }
        while let Ok(Some(signal)) = signals.take() {
            if signal == Signal::Hup {
                mounted.read_again();
            } else if seat.has_keeper() {
                seat.ask_to_end().map_err(|error| cannot("tell the keeper", error))?;
            } else if std::mem::replace(&mut told, true) || !take_away(mounted.connection()) {
                // Closing the device at the end of the process aborts the connection.
                return Ok(());
            }
        }
        if wait_readable(&[ended.as_fd()], Some(Duration::ZERO)).unwrap_or(false) {
            if !seat.has_keeper() {
                leave_nothing(mounted.connection());
            }
            return Ok(());
        }
    }
}

/// What the keeper does besides.
struct Notice {
    announce: Announce,
    connection: Option<u64>,
    readahead: Option<u64>,
    is_ready: bool,
    /// Whether somebody asked for the end.
    is_told: bool,
    /// Whether a dead mount was there when the connection was gone.
    is_aborted: bool,
}

impl Attendant for Notice {
    fn ready(&mut self, mount: &KeptMount) {
        self.is_ready = true;
        if let Some(bytes) = self.readahead {
            mount.set_readahead(bytes);
        }
        if self.announce.has_parent() {
            let _stays_asked_to_end = spawn::end_with_parent(false);
        }
        if self.announce.ready().is_err() {
            tracing::warn!("nobody waits for the mount any more");
            self.end(mount, 1);
        }
    }

    fn hangup_ends(&mut self) -> bool {
        tracing::info!("SIGHUP: there is nothing to read again");
        false
    }

    fn end(&mut self, mount: &KeptMount, asked: u32) {
        self.is_told = true;
        if mount.has_ended() {
            // Its number may be another mount's by now.
            return;
        }
        if asked > 1 {
            tracing::warn!("told to end once more: callers get errors from now on");
        } else if take_away_from(self.connection, users) {
            return;
        }
        if let Err(error) = mount.abort() {
            tracing::error!("the connection is not aborted: {error}");
        }
    }

    fn ends(&mut self, mount: &KeptMount) {
        // Where nobody serves and the connection is there yet, to look would wait.
        self.is_aborted = mount.has_ended() && leave_nothing(self.connection);
    }
}

/// To look for them takes threads, which a keeper has not.
fn users(_mount_point: &Path) -> String {
    "files are open on it, or a process works in it".into()
}
