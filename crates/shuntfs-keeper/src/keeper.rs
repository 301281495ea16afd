//! The keeper: one thread that waits for its child, and knows what to do when that dies.
//!
//! Order at a death: unanswered requests are sent again at once, because whoever waits for one of them can be killed from then on. Then it is
//! judged whether there must be another server, and that one is started. What the dead server had open, and is nobody's now, is
//! closed by its successor and not here: to close a file may wait for a disk, and the keeper waits for nothing but its child.
//!
//! A server is dead when waitid(2) says so, which it does when the last of its threads has ended: none can carry out, read or answer a request
//! any more. To send requests again before that would give them to two servers.
//!
//! # Safety
//! Descriptors are closed by number. Those that were open before the first server was started are the keeper's or its caller's, and so are
//! the duplicates of clones; all others were opened by servers, and are closed only when none lives that knows them.
#![expect(unsafe_code, reason = "a child is started that shares the table of descriptors")]

use std::cell::RefCell;
use std::fmt;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use shuntfs::NotifyError;
use shuntfs::takeover::{Handover, KeptMount, LeftDescriptors, resend};
use shuntfs_sys::child::{Child, Exit, fork_sharing_descriptors};
use shuntfs_sys::descriptors::OpenNumbers;
use shuntfs_sys::pulse::Pulse;
use shuntfs_sys::signal::{Signal, SignalFd, unblock_signals};
use shuntfs_sys::uring::forbid_rings;
use shuntfs_sys::{OsError, event, spawn};
use thiserror::Error;

use crate::attendant::{Attendant, Plain};
use crate::channel::{Channel, Said};
use crate::ending::Asked;
use crate::limits::{GiveUp, Limits, Record, len_of_state};
use crate::machine;
use crate::manager::Manager;
use crate::passing::{Former, Passed};
use crate::probation::Probation;
use crate::replacing::Replacing;
use crate::seat::{Seat, Told};
use crate::shelter::Shelter;
use crate::stored::{Note, Stored, store, unstored};
use crate::vigil::{Finding, Vigil};

/// How a kept mount came to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Ended {
    /// A server ended by itself, as it does after an unmount.
    Served,
    /// The connection was gone when a server died.
    Connection,
}

/// Why a mount is kept no longer, or not at all. The connection was ended by force, and whoever waited has an error.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KeepError {
    /// The process has other threads.
    #[error(
        "this process has other threads, and a keeper must have one: keep the mount before anything starts them"
    )]
    Threads,
    /// Something that a keeper needs was not available.
    #[error("{what} could not be had ({error})")]
    Resource {
        /// Which.
        what: &'static str,
        /// Why.
        #[source]
        error: OsError,
    },
    /// The first server could not begin, as it says.
    #[error("{0}")]
    Failed(String),
    /// Requests that a dead server had read cannot be had again.
    #[error("unanswered requests were not sent again: {0}")]
    Resend(#[source] NotifyError),
    /// A server on io_uring died otherwise than as it was planned.
    #[error("the server died ({0:?}), and on io_uring only one that is replaced as planned has a successor")]
    Ring(Exit),
    /// There have been too many servers.
    #[error("given up, and the connection was ended: {0}")]
    GaveUp(#[from] GiveUp),
}

/// Keeps a mount: calls `serve` in a child for each server, until one of them ends well, the connection is gone, or the limits are reached.
/// Then it unmounts. A server that fails before any has served ends it, too, with its error.
///
/// To be called from a process with one thread, at the start of a program. `serve` begins in a process of its own with one thread, in which
/// rings with descriptors are forbidden ([`forbid_rings`]) and SIGINT, SIGTERM and SIGHUP are blocked: they are the keeper's. It must close no descriptor that
/// was open before, because it would be closed here, too. What it prints and does not flush is lost.
///
/// # Errors
/// [`KeepError`].
pub fn keep<E: fmt::Display>(
    mount: KeptMount,
    limits: &Limits,
    serve: impl Fn(&Seat<'_>) -> Result<(), E>,
) -> Result<Ended, KeepError> {
    keep_with(mount, limits, &mut Plain::default(), serve)
}

/// As [`keep`], for a program that has something to do in its keeper.
///
/// # Errors
/// [`KeepError`].
pub fn keep_with<'k, E: fmt::Display>(
    mount: KeptMount,
    limits: &'k Limits,
    attendant: &'k mut dyn Attendant,
    serve: impl Fn(&Seat<'_>) -> Result<(), E>,
) -> Result<Ended, KeepError> {
    let manager = Manager::find();
    let note = if manager.is_there() { Note::new().map_err(unstored).ok() } else { None };
    let tools = Tools::new(limits)?;
    keep_all(Keeper::new(mount, (limits, attendant), (manager, note), tools), &serve)
}

/// Goes on with a mount that another program kept until now, in this process ([`Passed`]). Where no server of this one becomes ready, it becomes that
/// program again. Where servers of this one die too often afterwards, it becomes the last program again of which a server has served for
/// [`Limits::within`]: as long as none of this one has.
///
/// # Errors
/// [`KeepError`].
pub fn keep_passed<'k, E: fmt::Display>(
    passed: Passed,
    limits: &'k Limits,
    attendant: &'k mut dyn Attendant,
    serve: impl Fn(&Seat<'_>) -> Result<(), E>,
) -> Result<Ended, KeepError> {
    let manager = Manager::find();
    let mut tools = match Tools::new(limits) {
        Ok(tools) => tools,
        Err(error) => {
            let _there_is_no_way_back = passed.returns(&error.to_string());
            return Err(error);
        }
    };
    let Passed { mount, told, stored, predecessors, left, asker, former, proven, failed, .. } = passed;
    if let Some(why) = &failed {
        tracing::warn!("goes on again, because another program did not: {why}");
    }
    left.iter().for_each(|number| tools.own.remove(*number));
    let mut keeper = Keeper::new(mount, (limits, attendant), (manager, stored.map(Note::of)), tools);
    keeper.told = Some(told);
    keeper.predecessors = predecessors;
    keeper.was_ready = true;
    keeper.former = former;
    keeper.probation = proven;
    keeper.taken_back.clone_from(&failed);
    keeper.asker = Some((asker, failed.map_or(Ok(()), Err)));
    keep_all(keeper, &serve)
}

/// Keeps a mount whose keeper died, as [`keep`] does one whose servers die: requests that were not answered are sent again, and the next
/// server goes on.
///
/// # Errors
/// [`KeepError`].
pub fn keep_stored<E: fmt::Display>(
    stored: Stored,
    limits: &Limits,
    serve: impl Fn(&Seat<'_>) -> Result<(), E>,
) -> Result<Ended, KeepError> {
    let Stored { mount, told, note } = stored;
    let (mut plain, manager) = (Plain::default(), Manager::find());
    let tools = Tools::new(limits)?;
    let mut keeper = Keeper::new(mount, (limits, &mut plain), (manager, Some(note)), tools);
    keeper.told = Some(told);
    keeper.predecessors = 1;
    // One was: the first server here has nothing to begin.
    keeper.was_ready = true;
    keep_all(keeper, &serve)
}

fn keep_all<E: fmt::Display>(
    mut keeper: Keeper<'_>,
    serve: &impl Fn(&Seat<'_>) -> Result<(), E>,
) -> Result<Ended, KeepError> {
    let outcome = keeper.run(serve).or_else(|error| keeper.go_back(error));
    keeper.finish(outcome.is_err());
    outcome
}

const ENDS: [Signal; 3] = [Signal::Int, Signal::Term, Signal::Hup];

pub(crate) struct Keeper<'l> {
    pub(crate) mount: KeptMount,
    pub(crate) limits: &'l Limits,
    pub(crate) attendant: &'l mut dyn Attendant,
    record: Record,
    pub(crate) told: Option<Told>,
    pub(crate) channel: Channel,
    pub(crate) signals: SignalFd,
    pub(crate) shelter: Shelter,
    pub(crate) manager: Manager,
    /// Where the connection is to outlive this process.
    pub(crate) note: Option<Note>,
    /// Where servers are to answer.
    pulse: Option<Pulse>,
    /// What is open and no server's.
    pub(crate) own: OpenNumbers,
    pub(crate) predecessors: u64,
    /// Whether a server was ready.
    pub(crate) was_ready: bool,
    /// Whether the manager was told so.
    pub(crate) is_announced: bool,
    /// Why a server could not begin, as it said.
    failed: Option<String>,
    /// How long the server had that was not ready in time.
    late: Option<Duration>,
    /// How often it was asked to end.
    pub(crate) asked: Asked,
    /// Whether SIGHUP must be passed on to a server.
    pub(crate) has_hangup: bool,
    /// A program that is to go on instead of this one.
    pub(crate) replacing: Option<Replacing>,
    /// The program in whose place this one goes on, as long as no server is ready.
    pub(crate) former: Option<Former>,
    /// The program that this one goes back to if its servers die too often, until it has proved itself.
    pub(crate) probation: Option<Probation>,
    /// Why another program that was to go on did not, where this is the one before.
    pub(crate) taken_back: Option<String>,
    /// Whether the server has made ready to be killed.
    must_die: bool,
    /// Who had asked for that, and what must be said once a server is ready.
    pub(crate) asker: Option<(OwnedFd, Result<(), String>)>,
}

/// What a keeper needs of the system.
struct Tools {
    channel: Channel,
    signals: SignalFd,
    pulse: Option<Pulse>,
    shelter: Shelter,
    own: OpenNumbers,
}

impl Tools {
    /// To be made last: what is open then is the keeper's, and what is opened later its servers'.
    fn new(limits: &Limits) -> Result<Self, KeepError> {
        let signals = SignalFd::new(&ENDS).map_err(lacks("a descriptor for signals"))?;
        machine::tell();
        let channel = Channel::new().map_err(|error| {
            lacks("a pair of sockets")(OsError::from_io_error(&error).unwrap_or(OsError::IO))
        })?;
        let pulse = limits.answers.map(|_| Pulse::new()).transpose().map_err(lacks("memory"))?;
        let shelter = Shelter::take();
        let own = OpenNumbers::look().map_err(lacks("the table of descriptors"))?;
        Ok(Self { channel, signals, pulse, shelter, own })
    }
}

impl<'l> Keeper<'l> {
    fn new(
        mount: KeptMount,
        (limits, attendant): (&'l Limits, &'l mut dyn Attendant),
        (manager, note): (Manager, Option<Note>),
        Tools { channel, signals, pulse, shelter, own }: Tools,
    ) -> Self {
        Self {
            mount,
            limits,
            attendant,
            record: Record::default(),
            told: None,
            channel,
            signals,
            shelter,
            manager,
            note,
            pulse,
            own,
            predecessors: 0,
            was_ready: false,
            is_announced: false,
            failed: None,
            late: None,
            asked: Asked::default(),
            has_hangup: false,
            replacing: None,
            former: None,
            probation: None,
            taken_back: None,
            must_die: false,
            asker: None,
        }
    }

    fn run<E: fmt::Display>(
        &mut self,
        serve: &impl Fn(&Seat<'_>) -> Result<(), E>,
    ) -> Result<Ended, KeepError> {
        // A mount whose keeper died: its server is dead, and has left requests.
        if self.predecessors > 0
            && let Some(ended) = self.send_again()?
        {
            return Ok(ended);
        }
        // Whether a server that is dead may have answered callers: it says that it serves only after it does.
        let mut may_have_served = false;
        loop {
            let child = self.start(serve)?;
            let (pid, exit) = (child.pid(), self.watch(&child)?);
            self.probation.iter_mut().for_each(Probation::died);
            // Its descriptor is not to be taken for one that a server left.
            drop(child);
            if exit == Exit::Code(0) {
                return Ok(Ended::Served);
            }
            if self.attendant.lets_go() {
                return Ok(Ended::Connection);
            }
            let sent = self.send_again();
            if let Ok(Some(ended)) = sent {
                return Ok(ended);
            }
            if self.replacing.as_ref().is_some_and(Replacing::is_due) {
                sent?;
                // Where this returns, this program stays, and its next server follows.
                self.become_next();
                self.predecessors += 1;
                continue;
            }
            tracing::error!(pid, ?exit, "the server died");
            let said = self.failed.take();
            let was_served = self.was_ready || may_have_served;
            let is_last = self.former.is_some() || !was_served && (said.is_some() || sent.is_err());
            let late = self.late.take();
            if is_last {
                // That a kernel sends nothing again is one of the reasons why a first server fails, and the server names it. Linux 7.3 sends
                // nothing again before INIT is answered, so where the server said nothing, its end is the reason.
                return Err(KeepError::Failed(said.unwrap_or_else(|| match late {
                    Some(limit) => format!("its server was not ready after {limit:?}"),
                    None => format!("its server ended before it was ready ({exit:?})"),
                })));
            }
            sent?;
            if self.is_on_rings() {
                return Err(KeepError::Ring(exit));
            }
            self.record.died(Instant::now(), &self.limits_of_server())?;
            self.predecessors += 1;
            may_have_served = self.told.is_some();
            self.tell("a server died, and the next one begins");
        }
    }

    /// Has the requests sent again that a dead server left, if the connection is there yet.
    fn send_again(&self) -> Result<Option<Ended>, KeepError> {
        if self.mount.has_ended() {
            return Ok(Some(Ended::Connection));
        }
        match resend(self.mount.device()) {
            Ok(()) => Ok(None),
            Err(NotifyError::Ended) => Ok(Some(Ended::Connection)),
            Err(error) => Err(KeepError::Resend(error)),
        }
    }

    /// Starts a server.
    fn start<E: fmt::Display>(
        &self,
        serve: &impl Fn(&Seat<'_>) -> Result<(), E>,
    ) -> Result<Child, KeepError> {
        let mut stale = Some(self.stale().map_err(lacks("the table of descriptors"))?);
        let keeper = std::process::id();
        let mut run = || {
            forbid_rings();
            self.shelter.leave();
            if let Some(pulse) = self.pulse {
                pulse.counts_this_process();
            }
            if let Some(note) = &self.note
                && let Err(error) = note.names_this_process()
            {
                // Served it must not be, because nobody could know by whom.
                let _heard = self.channel.say(&Said::Failed(format!("the server cannot be noted: {error}")));
                return 1;
            }
            // SAFETY: servers opened them that are dead, and the keeper uses none of them while this one lives.
            let left = stale.take().map(|stale| unsafe { LeftDescriptors::new(stale) });
            // Where there is state, some are needed, and it is known which when that has been read.
            let has_state = self.told.as_ref().is_some_and(|told| told.state.is_some());
            let left = left.filter(|_| has_state).unwrap_or_else(LeftDescriptors::none);
            let seat = Seat {
                mount: &self.mount,
                told: self.told.as_ref(),
                channel: &self.channel,
                keeper,
                predecessors: self.predecessors,
                taken_back: self.taken_back.as_deref(),
                deaths: self.deaths(),
                left: RefCell::new(left),
            };
            match serve(&seat) {
                Ok(()) => 0,
                Err(error) => {
                    // The next one may need what this one has not taken.
                    std::mem::forget(seat.left.take());
                    // Where the keeper does not hear it, it sees the code.
                    let _heard = self.channel.say(&Said::Failed(error.to_string()));
                    1
                }
            }
        };
        // SAFETY: a seat hands out duplicates alone, and what `serve` brought along it is told not to close.
        let child = unsafe { fork_sharing_descriptors(&mut run) };
        child.map_err(|error| match error {
            OsError::BUSY => KeepError::Threads,
            error => lacks("a child")(error),
        })
    }

    /// What a server of this mount may take, by how much it takes over.
    fn limits_of_server(&self) -> Limits {
        if !self.was_ready {
            return self.limits.of_first();
        }
        let state = self.told.as_ref().and_then(|told| told.state.as_ref());
        self.limits.with_state(state.map_or(0, len_of_state))
    }

    /// Waits for a server's end.
    fn watch(&mut self, child: &Child) -> Result<Exit, KeepError> {
        let limits = self.limits_of_server();
        let mut vigil = Vigil::begin(child, &limits, Instant::now());
        loop {
            let now = Instant::now();
            self.manager.beat(now);
            let trial = self.replacing.as_ref();
            let mut all = vec![child.as_fd(), self.channel.as_fd(), self.signals.as_fd()];
            all.extend(trial.and_then(Replacing::fd));
            let proves = self.probation.as_ref().and_then(|it| it.patience(now, self.limits.within));
            let others = [self.manager.patience(now), trial.and_then(|trial| trial.patience(now)), proves];
            let patience = others.into_iter().flatten().fold(vigil.patience(now), Duration::min);
            match event::wait_readable(&all, Some(patience)) {
                Ok(_) | Err(OsError::INTR) => {}
                Err(error) => {
                    let _gone = child.kill();
                    return Err(lacks("a way to wait for the server")(error));
                }
            }
            if self.listen() {
                vigil.is_ready(self.pulse, Instant::now());
            }
            self.look_at_probation(Instant::now(), vigil.is_dying());
            self.heed_signals();
            if std::mem::take(&mut self.has_hangup) {
                let _gone = child.hang_up();
            }
            let must_die = std::mem::take(&mut self.must_die);
            if must_die || self.attendant.lets_go() || self.look_at_trial(child.pid(), Instant::now()) {
                // Its requests come again, as after any death.
                let _gone = child.kill();
            }
            if let Some(exit) = child.exit().map_err(lacks("the server's end"))? {
                // Its last words.
                self.listen();
                vigil.end(Instant::now());
                return Ok(exit);
            }
            match vigil.look(Instant::now(), &self.mount) {
                Finding::Nothing => {}
                Finding::Late => {
                    self.record.late();
                    self.late = Some(limits.ready);
                }
                Finding::Stuck(cause) => {
                    self.tell(&format!("a server is dying and not yet dead ({cause}), and callers wait"));
                }
                Finding::Silent => self.tell("a server did not answer, and was killed"),
                Finding::Waits(reason) => self.tell(&format!("the server does not answer: {reason}")),
            }
        }
    }

    /// Hears what was said; whether the server is ready.
    fn listen(&mut self) -> bool {
        let mut is_ready = false;
        while let Some(said) = self.channel.next() {
            match said {
                Said::Handover(handover, numbers, state) => self.take_in(handover, &numbers, state),
                Said::Ready => {
                    self.record.ready();
                    (is_ready, self.was_ready) = (true, true);
                    self.announce();
                    self.settle(Instant::now());
                }
                Said::Replace(program, asker) => self.replace(program, asker),
                Said::Filled => self.must_die = self.is_filled(),
                Said::NotFilled(why) => self.do_not_replace(&why),
                Said::AskedToEnd => self.asked_by_server(),
                Said::Failed(why) => {
                    tracing::error!(why, "the server cannot begin");
                    self.failed = Some(why);
                }
            }
        }
        is_ready
    }

    fn take_in(&mut self, handover: Handover, numbers: &[RawFd], state: Option<RawFd>) {
        if self.told.is_some() {
            return tracing::warn!("a server tells again what was agreed on; the first word holds");
        }
        let copy = |number: &RawFd| spawn::inherited_fd(*number);
        let copies = || -> Result<_, OsError> {
            let clones = numbers.iter().map(copy).collect::<Result<Vec<_>, _>>()?;
            Ok((clones, state.as_ref().map(copy).transpose()?))
        };
        match copies() {
            Ok((clones, state)) => {
                clones.iter().chain(&state).for_each(|copy| self.own.add(copy));
                let told = self.told.insert(Told { handover, clones, state });
                if let Some(note) = &self.note {
                    store(&self.manager, note, &self.mount, told);
                }
            }
            Err(error) => {
                tracing::error!(%error, "clones of the device that a server told of cannot be kept")
            }
        }
    }

    /// Tells the manager how things are.
    pub(crate) fn tell(&self, what: &str) {
        self.manager.status(&format!("{}: {what}", self.mount.path().display()));
    }

    /// Tells the manager that callers are served.
    fn announce(&mut self) {
        let path = self.mount.path().display();
        let mut status = format!("{path}: served; {} servers have died", self.predecessors);
        if let Some(why) = &self.taken_back {
            status += &format!("; another program did not go on: {why}");
        }
        if self.is_announced {
            return self.manager.status(&status);
        }
        self.is_announced = true;
        self.manager.ready(&status);
        self.attendant.ready(&self.mount);
    }

    /// What dead servers left open.
    pub(crate) fn stale(&self) -> Result<OpenNumbers, OsError> {
        OpenNumbers::look().map(|now| now.beside(&self.own))
    }

    /// Lets go of the mount, when no server lives.
    fn finish(mut self, by_force: bool) {
        self.do_not_replace("the mount has ended");
        if let Some((asker, _)) = self.asker.take() {
            self.attendant.answer(asker, Err("the mount has ended".to_owned()));
        }
        self.manager.stopping();
        self.attendant.ends(&self.mount);
        if by_force && let Err(error) = self.mount.abort() {
            // It ends when the last descriptor is closed, below.
            tracing::debug!(%error, "the connection is not aborted");
        }
        match self.stale() {
            // SAFETY: servers opened them, and none lives.
            Ok(stale) => unsafe { stale.close() },
            Err(error) => tracing::warn!(%error, "what servers had open stays open"),
        }
        drop((self.told, self.mount));
        if self.note.is_some() {
            self.manager.remove();
        }
        // One that came meanwhile must not kill the process now.
        while let Ok(Some(_)) = self.signals.take() {}
        if let Err(error) = unblock_signals(&ENDS) {
            tracing::warn!(%error, "signals stay blocked");
        }
    }
}

fn lacks(what: &'static str) -> impl Fn(OsError) -> KeepError {
    move |error| KeepError::Resource { what, error }
}
