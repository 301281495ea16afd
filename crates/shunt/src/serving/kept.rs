//! A mount that survives its server: this process is its keeper, and the servers are its children.
//!
//! The keeper has one thread, and what it does once the first server runs is little: it mounts and unmounts, answers whoever started it, and
//! takes signals. Each server begins by itself what a server has besides: its control socket, its answers to scrapes, its log lines. What
//! they share is opened by the keeper, before the first of them: the log, the socket for scrapes, the folder that is shown.
//!
//! A keeper can become another build of the program ([`go_on`]): what is open stays open, and the log is opened once more.

use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::Arc;

use shuntfs::takeover::KeptMount;
use shuntfs::{SessionOptions, Transport, TransportKind};
use shuntfs_keeper::{
    Attendant, Ended, KeepError, Limits, NOTE_WORD, Passed, Relay, Seat, keep_passed, keep_with,
};
use shuntfs_pool::KeptBranches;
use shuntfs_sys::event::wait_readable;
use shuntfs_sys::process::{self, Process};
use shuntfs_sys::signal::block_signals;
use shuntfs_sys::spawn::Inherited;
use shuntfs_sys::{EventFd, OsError, Signal, SignalFd, limits, spawn};

use super::announce::Announce;
use super::rights;
use super::run::{
    Serving, Started, cannot, close, control_of, has_rung, leave_nothing, serve_scrapes, story, take_away,
    take_away_from, tell_notes, watch,
};
use crate::control;
use crate::failure::Failure;
use crate::log;
use crate::metrics::Listener;
use crate::mounts::shown;
use crate::run::with_command;
use crate::seal::KeptSeal;
use crate::settings::{Settings, TakeoverChoice};

/// What is kept: its name, how far the kernel is to read ahead, in bytes, and what another program needs to continue.
#[derive(Debug)]
pub(crate) struct KeptPlace {
    pub(crate) source: String,
    pub(crate) readahead: Option<u64>,
    /// Descriptors that another program needs, by names; they are open as long as the mount is kept.
    pub(crate) kept: Vec<(String, RawFd)>,
    /// Several branches, whose roots it needs, too.
    pub(crate) branches: Option<Arc<KeptBranches>>,
    /// A seal, which is read by others.
    pub(crate) seal: Option<Arc<KeptSeal>>,
}

/// For servers that follow each other: what `options` become. `relays` says whether writes come through them.
pub(crate) fn kept_options(
    options: SessionOptions,
    relays: bool,
    takeover: TakeoverChoice,
) -> SessionOptions {
    const PAYLOAD_MAX: usize = 256 << 10;
    if !(relays || takeover.is_on_rings()) {
        return options;
    }
    let options = SessionOptions { payload_len: options.payload_len.min(PAYLOAD_MAX), ..options };
    if takeover.is_on_rings() {
        // Never given back, and short for that reason.
        return SessionOptions { transport: Transport::Only(TransportKind::Uring), ..options };
    }
    // In memory all the time, because a write must not fail when a server is killed while the kernel copies it there.
    SessionOptions { warm_payloads: true, ..options }
}

/// How many times as long a server may take to begin that searches the source for names.
const SEARCH_PATIENCE: u32 = 6;

/// What the socket for scrapes is called.
pub(crate) const SCRAPES: &str = "scrapes";

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
    let inherited = Inherited::look();
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
    // Servers would have it, too. What is asked for by number (`/dev/fd/N`) has its duplicate by now.
    inherited.close();
    let path = shown(mount.path());
    let mut notice = Notice::new(announce, mount.connection(), place, scrapes.as_ref());
    let outcome = keep_with(mount, &limits_of(settings), &mut notice, |seat| {
        serve_one(seat, (settings, announce), scrapes.as_ref(), &start)
    });
    ended(outcome, &notice, &path, place)
}

/// Goes on with a mount that another build of this program kept until now, in this process: as [`keep`], from where that one was.
///
/// # Errors
/// As [`keep`]. Where this one cannot begin, the one before goes on, and this does not return.
pub(crate) fn go_on<S: Serving>(
    settings: &Settings,
    is_foreground: bool,
    place: &KeptPlace,
    mut passed: Passed,
    start: impl Fn(&Seat<'_>) -> Result<Started<S>, Failure>,
) -> Result<(), Failure> {
    let ready = rights::give_up(S::task(settings)).and_then(|()| {
        log_on(settings, is_foreground)?;
        tracing::debug!("at most {} open files", limits::raise_nofile());
        block_signals(&SIGNALS).map_err(|error| cannot("take signals", error))
    });
    if let Err(failure) = ready {
        let _there_is_no_way_back = passed.returns(&failure.to_string());
        return Err(failure);
    }
    let scrapes = settings.metrics.and_then(|_| passed.take_kept(SCRAPES)).and_then(Listener::of);
    let path = shown(passed.path());
    let mut notice = Notice::new(Announce::Log, passed.connection(), place, scrapes.as_ref());
    notice.is_ready = true;
    let outcome = keep_passed(passed, &limits_of(settings), &mut notice, |seat| {
        serve_one(seat, (settings, Announce::Log), scrapes.as_ref(), &start)
    });
    ended(outcome, &notice, &path, place)
}

fn limits_of(settings: &Settings) -> Limits {
    let limits = Limits { answers: settings.replace_hung, ..Limits::default() };
    // Each server first searches the source for hard links.
    let patience = if settings.rules.is_some() { SEARCH_PATIENCE } else { 1 };
    Limits { ready: limits.ready * patience, ..limits }
}

/// Logs where the program before did; where that cannot be any more, the mount is worth more than its log.
fn log_on(settings: &Settings, is_foreground: bool) -> Result<(), Failure> {
    log::start(settings, is_foreground).or_else(|failure| {
        log::start(&Settings { log_file: None, ..settings.clone() }, is_foreground)?;
        tracing::warn!("{failure}");
        Ok(())
    })
}

/// How it ended.
fn ended(
    outcome: Result<Ended, KeepError>,
    notice: &Notice,
    path: &str,
    place: &KeptPlace,
) -> Result<(), Failure> {
    leave_nothing(notice.connection);
    notice.connection.into_iter().for_each(control::remove_left);
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
    let control = control_of(&started, announce);
    if let Some(scrapes) = scrapes {
        // The keeper's stays open for the next server.
        let own = scrapes.try_clone().map_err(|error| cannot("listen for scrapes", error))?;
        serve_scrapes(own, &started, announce)?;
    }
    let story = story(&started);
    match replaced {
        0 => tracing::info!("mounted {story}; process {} keeps it", seat.keeper()),
        _ => tracing::warn!("follows {}: {story}", counted(replaced)),
    }
    let ended = watch(&started.served)?;
    seat.ready().map_err(|error| cannot("tell the keeper", error))?;
    attend(seat, &*started.served, &signals, &ended)?;
    // Whoever has something to close tells the keeper by a way of its own.
    let _logged = close(&started);
    if let Some(control) = control.filter(|_| has_rung(&ended)) {
        control.part();
    }
    Ok(())
}

fn counted(servers: u64) -> String {
    if servers == 1 { "one server".into() } else { format!("{servers} servers") }
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
        if has_rung(ended) {
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
    /// Whether there is no way to end the connection but to close the device.
    lets_go: bool,
    /// How another program goes on.
    relay: Relay,
    branches: Option<Arc<KeptBranches>>,
    seal: Option<Arc<KeptSeal>>,
}

impl Notice {
    fn new(
        announce: Announce,
        connection: Option<u32>,
        place: &KeptPlace,
        scrapes: Option<&Listener>,
    ) -> Self {
        let is_ours = |word: &OsString| {
            let word = word.to_string_lossy();
            word.split('=').next() == Some(NOTE_WORD)
        };
        let words = std::env::args_os().filter(|word| !is_ours(word)).collect();
        // Behind the command.
        let mut relay = Relay::new(with_command(words), 2);
        relay.kept.extend(place.kept.iter().cloned());
        relay.kept.extend(scrapes.map(|scrapes| (SCRAPES.to_owned(), scrapes.as_raw_fd())));
        Self {
            announce,
            connection: connection.map(u64::from),
            readahead: place.readahead,
            is_ready: false,
            is_told: false,
            is_aborted: false,
            lets_go: false,
            relay,
            branches: place.branches.clone(),
            seal: place.seal.clone(),
        }
    }
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
        // What there is to read again, the server knows.
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
            tracing::warn!("the connection is not aborted ({error}), and ends when the device is closed");
            self.lets_go = true;
        }
    }

    fn lets_go(&self) -> bool {
        self.lets_go
    }

    fn relay(&self) -> Option<Relay> {
        let mut relay = self.relay.clone();
        let roots = self.branches.iter().flat_map(|branches| branches.roots());
        relay.kept.extend(roots.map(|root| (format!("root-{root}"), root)));
        let of_seal = self.seal.iter().flat_map(|seal| seal.descriptors());
        relay.kept.extend(of_seal.map(|number| (format!("seal-{number}"), number)));
        Some(relay)
    }

    fn answer(&mut self, asker: OwnedFd, outcome: Result<(), String>) {
        if let Err(error) = control::answer_upgrade(asker, outcome) {
            tracing::debug!("nobody waits for the upgrade any more: {error}");
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
