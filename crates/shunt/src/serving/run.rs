//! The server: mounts, answers until the mount is gone, and leaves nothing behind.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use shuntfs::Session;
use shuntfs_sys::event::wait_readable;
use shuntfs_sys::spawn::Inherited;
use shuntfs_sys::stat::filesystem_of;
use shuntfs_sys::{EventFd, OsError, Signal, SignalFd, limits, open_target, spawn};

use super::announce::Announce;
use super::rights::{self, Task};
use super::starting::Starting;
use crate::control::{Answers, Farewell, Server};
use crate::failure::Failure;
use crate::metrics::{self, Listener, Snapshot};
use crate::mounts::{self, Mounts, shown};
use crate::patience::within;
use crate::settings::Settings;
use crate::umount::{DetachError, detach};
use crate::{busy, log, notify};

/// How long a mount of our number may take to say whether it is alive.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// Something that is mounted and served.
pub(crate) trait Serving: Send + Sync + 'static {
    /// Its session.
    fn session(&self) -> &Session;

    /// What it shows, which decides what the server gives up.
    fn task(settings: &Settings) -> Task;

    /// SIGHUP asks to read again what can change.
    fn read_again(&self) {
        tracing::info!("SIGHUP: there is nothing to read again");
    }

    /// The last act, when nobody can use it any more: makes durable what is kept in memory. `None` where nothing is.
    fn close(&self) -> Option<io::Result<()>> {
        None
    }

    /// The number of its connection.
    fn connection(&self) -> Option<u64> {
        self.session().connection().map(u64::from)
    }
}

/// A mount that answers, and what goes with it.
pub(crate) struct Started<S> {
    /// What is served.
    pub(crate) served: Arc<S>,
    /// What answers for it at the control socket.
    pub(crate) answers: Arc<dyn Answers>,
    /// What the user should know.
    pub(crate) notes: Vec<String>,
    /// What is shown, by its name.
    pub(crate) source: String,
    /// Where.
    pub(crate) place: String,
    /// Whom its last act is told to.
    pub(crate) farewell: Arc<Farewell>,
}

/// Starts a mount, and returns when it is gone.
///
/// # Errors
/// Where the mount cannot be, where the connection ended by an error, and where its last act failed.
pub(crate) fn serve<S: Serving>(
    settings: &Settings,
    announce: Announce,
    start: impl FnOnce() -> Result<Started<S>, Failure>,
) -> Result<(), Failure> {
    let inherited = Inherited::look();
    // Before any thread is started, so that every thread leaves signals to this one.
    let signals = SignalFd::new(&[Signal::Hup, Signal::Int, Signal::Term])
        .map_err(|error| cannot("take signals", error))?;
    // Before what is not needed is given up, which is the right to low ports, and before there is anything to take back.
    let scrapes = settings.metrics.map(Listener::bind).transpose()?;
    rights::give_up(S::task(settings))?;
    let starting = Starting::watch()?;
    log::start(settings, !announce.has_parent())?;
    if announce.has_parent()
        && let Err(error) = spawn::detach_session()
    {
        tracing::warn!("still in the caller's session: {}", io::Error::from(error));
    }
    tracing::debug!("at most {} open files", limits::raise_nofile());

    let started = start()?;
    drop(starting);
    // What is asked for by number (`/dev/fd/N`) has its duplicate by now.
    inherited.close();
    let mounted = &started.served;
    tell_notes(&started, settings, announce);
    let control = control_of(&started, announce);
    if let Some(scrapes) = scrapes {
        serve_scrapes(scrapes, &started, announce)?;
    }
    let story = story(&started);
    tracing::info!("mounted {story}");
    notify::ready(&story);
    let ended = watch(mounted)?;
    if announce.has_parent() {
        let _stays_asked_to_end = spawn::end_with_parent(false);
    }
    if announce.ready().is_err() {
        // Whoever asked was ended meanwhile, and will not know that there is something to remove.
        tracing::warn!("nobody waits for the mount any more");
        take_away(mounted.connection());
    }
    let told = attend(&**mounted, &signals, &ended)?;
    let dead = leave_nothing(mounted.connection());
    let closed = close(&started);
    if let Some(control) = control.filter(|_| has_rung(&ended)) {
        control.part();
    }
    closed?;
    tracing::info!("ended");
    if dead && !told {
        return Err(Failure::new(format!(
            "the connection of the mount of {} was aborted",
            shown(&started.source)
        )));
    }
    Ok(())
}

/// What the user should know of it.
pub(super) fn tell_notes<S: Serving>(started: &Started<S>, settings: &Settings, announce: Announce) {
    started.notes.iter().for_each(|note| announce.note(note));
    if announce.has_parent() && settings.log_file.is_none() && !log::has_system_log() {
        announce
            .note("there is no system log at /dev/log, so nothing of this mount is logged; see --log-file");
    }
}

/// The last act, and telling it to whoever waits for it.
pub(super) fn close<S: Serving>(started: &Started<S>) -> Result<(), Failure> {
    let Some(outcome) = started.served.close() else { return Ok(()) };
    let source = shown(&started.source);
    started.farewell.say(outcome.as_ref().copied().map_err(ToString::to_string));
    match outcome {
        Ok(()) => {
            tracing::info!("all that was written to {source} is on its disk");
            Ok(())
        }
        Err(error) => {
            tracing::error!("what was written last to {source} is lost: {error}");
            Err(Failure::new(format!("what was written last to {source} is lost: {error}")))
        }
    }
}

/// The mount in one line.
pub(super) fn story<S: Serving>(started: &Started<S>) -> String {
    let transport = started.served.session().status().transport;
    let (kind, queues, why) = (transport.kind, transport.queues, transport.why);
    let (source, place) = (shown(&started.source), &started.place);
    format!("{source} at {place}: transport {kind} with {queues} queues, because {why}")
}

pub(super) fn cannot(what: &str, error: impl Into<io::Error>) -> Failure {
    Failure::new(format!("cannot {what}: {}", error.into()))
}

pub(super) fn control_of<S: Serving>(started: &Started<S>, announce: Announce) -> Option<Server> {
    let connection = started.served.connection()?;
    match Server::start(connection, Arc::clone(&started.answers)) {
        Ok(server) => Some(server),
        Err(error) => {
            announce.note(&format!("`shunt status` and `shunt why` will not work for this mount: {error}"));
            None
        }
    }
}

/// Answers scrapes with the state of the mount.
pub(super) fn serve_scrapes<S: Serving>(
    scrapes: Listener,
    started: &Started<S>,
    announce: Announce,
) -> Result<(), Failure> {
    let address = scrapes.address();
    tracing::info!("metrics are at http://{address}/metrics");
    if !address.ip().is_loopback() {
        announce.note(&format!("whoever reaches {address} can read the metrics of this mount, and with them the paths of its folders"));
    }
    let (served, answers) = (Arc::clone(&started.served), Arc::clone(&started.answers));
    let look = move || {
        let name = mount_point_of(&*served).map(shown);
        let name = name.unwrap_or_else(|| metrics::detached(served.connection().unwrap_or_default()));
        match metrics::cleaned_status(&answers.status()) {
            Ok(status) => Snapshot::of(name, status),
            Err(_) => Snapshot::silent(name),
        }
    };
    scrapes.serve(look).map_err(|error| cannot("answer scrapes", error))
}

/// Rings when the connection has ended.
pub(super) fn watch<S: Serving>(mounted: &Arc<S>) -> Result<Arc<EventFd>, Failure> {
    let ended = Arc::new(EventFd::new().map_err(|error| cannot("watch the mount", error))?);
    let (mounted, bell) = (Arc::clone(mounted), Arc::clone(&ended));
    let wait = move || {
        mounted.session().wait();
        bell.signal();
    };
    std::thread::Builder::new()
        .name("shunt-wait".into())
        .spawn(wait)
        .map_err(|error| cannot("watch the mount", error))?;
    Ok(ended)
}

/// Obeys signals until the connection ends; `true` where one told the server to end.
fn attend(mounted: &impl Serving, signals: &SignalFd, ended: &EventFd) -> Result<bool, Failure> {
    let mut told = false;
    loop {
        match wait_readable(&[signals.as_fd(), ended.as_fd()], None) {
            Ok(_) | Err(OsError::INTR) => {}
            Err(error) => return Err(cannot("wait for signals", error)),
        }
        while let Ok(Some(signal)) = signals.take() {
            match signal {
                Signal::Hup => mounted.read_again(),
                _ if told => {
                    tracing::warn!("told to end once more: callers get errors from now on");
                    // Closing the device at the end of the process aborts the connection.
                    return Ok(true);
                }
                _ => {
                    told = true;
                    if !take_away(mounted.connection()) {
                        return Ok(true);
                    }
                }
            }
        }
        if has_rung(ended) {
            return Ok(told);
        }
    }
}

/// Whether the connection has ended.
pub(super) fn has_rung(ended: &EventFd) -> bool {
    wait_readable(&[ended.as_fd()], Some(Duration::ZERO)).unwrap_or(false)
}

/// Unmounts because a signal asks for it. A busy mount is detached, and served until its last user is gone.
/// `false` where the mount cannot be removed.
pub(super) fn take_away(connection: Option<u64>) -> bool {
    take_away_from(connection, |mount_point| {
        let by = Mounts::read().ok().and_then(|list| Some(busy::by_whom(&list, list.at(mount_point)?)));
        by.unwrap_or_default()
    })
}

/// The same, with the words for who uses it.
pub(super) fn take_away_from(connection: Option<u64>, users: impl Fn(&Path) -> String) -> bool {
    notify::stopping("unmounting");
    let Some(mount_point) = place_of(connection) else { return true };
    let outcome = match detach(&mount_point, false) {
        Err(DetachError::Busy) => {
            let text = format!("busy: {}; detached, and served until they are done", users(&mount_point));
            tracing::warn!("{} is {text}", shown(&mount_point));
            notify::status(&text);
            detach(&mount_point, true)
        }
        other => other,
    };
    if let Err(error) = &outcome {
        tracing::error!("cannot unmount {}: {error}; callers get errors from now on", shown(&mount_point));
    }
    outcome.is_ok()
}

/// Takes a dead mount away, and says whether there was one: after an abort, the kernel leaves it in the tree.
/// Its number may belong to a new mount by now, even at the same place; that one is alive.
pub(super) fn leave_nothing(connection: Option<u64>) -> bool {
    let mut dead = false;
    while let Some(mount_point) = place_of(connection) {
        let asked = mount_point.clone();
        let answer = within(ANSWER_LIMIT, move || filesystem_of(open_target(&asked)?).map(drop));
        if answer != Some(Err(OsError::NOTCONN)) {
            break;
        }
        dead = true;
        if let Err(error) = detach(&mount_point, true) {
            tracing::warn!("cannot unmount {}: {error}", shown(&mount_point));
            break;
        }
    }
    dead
}

/// Where the connection is mounted, as far as this process sees; a place that was mounted over is none.
pub(crate) fn mount_point_of(mounted: &impl Serving) -> Option<PathBuf> {
    place_of(mounted.connection())
}

fn place_of(connection: Option<u64>) -> Option<PathBuf> {
    let connection = connection?;
    let list = Mounts::read().ok()?;
    let own = list.iter().find(|mount| mounts::connection(mount) == Some(connection))?;
    let top = list.at(&own.mount_point).is_some_and(|mount| mount.id == own.id);
    top.then(|| own.mount_point.clone())
}
