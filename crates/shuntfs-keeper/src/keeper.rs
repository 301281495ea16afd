//! The keeper: one thread that waits for its child, and knows what to do when that dies.
//!
//! Order at a death: unanswered requests are sent again at once, because whoever waits for one of them can be killed from then on. Then it is
//! judged whether there is to be another server, and that one is started. What the dead server had open, and is nobody's now, is
//! closed by its successor and not here: to close a file may wait for a disk, and the keeper waits for nothing but its child.
//!
//! A server is dead when waitid(2) says so, which it does when the last of its threads has ended: none can carry out, read or answer a request
//! any more. To send requests again before that would give them to two servers.
//!
//! # Safety
//! Descriptors are closed by number. Those that were open before the first server was started are the keeper's or its caller's, and so are
//! the duplicates of clones; all others were opened by servers, and are closed only when none lives that knows them.
#![expect(unsafe_code, reason = "a child is started that shares the table of descriptors")]

use std::fmt;
use std::os::fd::{AsFd, RawFd};
use std::time::Instant;

use shuntfs::NotifyError;
use shuntfs::takeover::{Handover, KeptMount, resend};
use shuntfs_sys::child::{Child, Exit, fork_sharing_descriptors};
use shuntfs_sys::descriptors::OpenNumbers;
use shuntfs_sys::signal::{Signal, SignalFd, unblock_signals};
use shuntfs_sys::uring::forbid_rings;
use shuntfs_sys::{OsError, event, spawn};
use thiserror::Error;

use crate::channel::{Channel, Said};
use crate::limits::{GiveUp, Limits, Record};
use crate::machine;
use crate::seat::{Seat, Told};
use crate::shelter::Shelter;
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
    /// Something that a keeper needs was not to be had.
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
    /// There have been too many servers.
    #[error("given up, and the connection was ended: {0}")]
    GaveUp(#[from] GiveUp),
}

/// Keeps a mount: calls `serve` in a child for each server, until one of them ends well, the connection is gone, or the limits are reached.
/// Then it unmounts. A server that fails before any was ready ends it, too, with its error.
///
/// To be called from a process with one thread, at the start of a program. `serve` begins in a process of its own with one thread, in which
/// rings are forbidden ([`forbid_rings`]) and SIGINT, SIGTERM and SIGHUP are blocked: they are the keeper's. It must close no descriptor that
/// was open before, because it would be closed here, too. What it prints and does not flush is lost.
///
/// # Errors
/// [`KeepError`].
pub fn keep<E: fmt::Display>(
    mount: KeptMount,
    limits: &Limits,
    serve: impl Fn(&Seat<'_>) -> Result<(), E>,
) -> Result<Ended, KeepError> {
    let mut keeper = Keeper::new(mount, limits)?;
    let outcome = keeper.run(&serve);
    keeper.finish(outcome.is_err());
    outcome
}

const ENDS: [Signal; 3] = [Signal::Int, Signal::Term, Signal::Hup];

struct Keeper<'l> {
    mount: KeptMount,
    limits: &'l Limits,
    record: Record,
    told: Option<Told>,
    channel: Channel,
    signals: SignalFd,
    shelter: Shelter,
    /// What is open and no server's.
    own: OpenNumbers,
    predecessors: u64,
    /// Whether a server was ready.
    was_ready: bool,
    /// Why a server could not begin, as it said.
    failed: Option<String>,
    /// How many signals came.
    asked: u32,
}

impl<'l> Keeper<'l> {
    fn new(mount: KeptMount, limits: &'l Limits) -> Result<Self, KeepError> {
        let signals = SignalFd::new(&ENDS).map_err(lacks("a descriptor for signals"))?;
        machine::tell();
        let channel = Channel::new().map_err(|error| lacks("a pair of sockets")(from_io(&error)))?;
        let shelter = Shelter::take();
        let own = OpenNumbers::look().map_err(lacks("the table of descriptors"))?;
        Ok(Self {
            mount,
            limits,
            record: Record::default(),
            told: None,
            channel,
            signals,
            shelter,
            own,
            predecessors: 0,
            was_ready: false,
            failed: None,
            asked: 0,
        })
    }

    fn run<E: fmt::Display>(
        &mut self,
        serve: &impl Fn(&Seat<'_>) -> Result<(), E>,
    ) -> Result<Ended, KeepError> {
        loop {
            let child = self.start(serve)?;
            let (pid, exit) = (child.pid(), self.watch(&child)?);
            // Its descriptor is not to be taken for one that a server left.
            drop(child);
            if exit == Exit::Code(0) {
                return Ok(Ended::Served);
            }
            if self.mount.has_ended() {
                return Ok(Ended::Connection);
            }
            match resend(self.mount.device()) {
                Ok(()) => {}
                Err(NotifyError::Ended) => return Ok(Ended::Connection),
                Err(error) => return Err(KeepError::Resend(error)),
            }
            tracing::error!(pid, ?exit, "the server died");
            if let Some(why) = self.failed.take()
                && !self.was_ready
            {
                return Err(KeepError::Failed(why));
            }
            self.record.died(Instant::now(), self.limits)?;
            self.predecessors += 1;
        }
    }

    /// Starts a server.
    fn start<E: fmt::Display>(
        &self,
        serve: &impl Fn(&Seat<'_>) -> Result<(), E>,
    ) -> Result<Child, KeepError> {
        let stale = self.stale().map_err(lacks("the table of descriptors"))?;
        let seat = Seat {
            mount: &self.mount,
            told: self.told.as_ref(),
            channel: &self.channel,
            predecessors: self.predecessors,
        };
        let mut run = || {
            forbid_rings();
            self.shelter.leave();
            // SAFETY: servers opened them that are dead.
            unsafe { stale.close() };
            match serve(&seat) {
                Ok(()) => 0,
                Err(error) => {
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

    /// Waits for a server's end.
    fn watch(&mut self, child: &Child) -> Result<Exit, KeepError> {
        let limits = self.limits;
        let mut vigil = Vigil::begin(child, limits, Instant::now());
        loop {
            let all = [child.as_fd(), self.channel.as_fd(), self.signals.as_fd()];
            match event::wait_readable(&all, Some(vigil.patience(Instant::now()))) {
                Ok(_) | Err(OsError::INTR) => {}
                Err(error) => {
                    let _gone = child.kill();
                    return Err(lacks("a way to wait for the server")(error));
                }
            }
            if self.listen() {
                vigil.is_ready();
            }
            self.heed_signals();
            if let Some(exit) = child.exit().map_err(lacks("the server's end"))? {
                // Its last words.
                self.listen();
                vigil.end(Instant::now());
                return Ok(exit);
            }
            if vigil.look(Instant::now()) == Finding::Late {
                self.record.late();
            }
        }
    }

    /// Hears what was said; whether the server is ready.
    fn listen(&mut self) -> bool {
        let mut is_ready = false;
        while let Some(said) = self.channel.next() {
            match said {
                Said::Handover(handover, numbers) => self.take_in(handover, &numbers),
                Said::Ready => {
                    self.record.ready();
                    (is_ready, self.was_ready) = (true, true);
                }
                Said::Failed(why) => {
                    tracing::error!(why, "the server cannot begin");
                    self.failed = Some(why);
                }
            }
        }
        is_ready
    }

    fn take_in(&mut self, handover: Handover, numbers: &[RawFd]) {
        if self.told.is_some() {
            return tracing::warn!("a server tells again what was agreed on; the first word holds");
        }
        let clones = numbers.iter().map(|number| spawn::inherited_fd(*number)).collect::<Result<Vec<_>, _>>();
        match clones {
            Ok(clones) => {
                clones.iter().for_each(|clone| self.own.add(clone));
                self.told = Some(Told { handover, clones });
            }
            Err(error) => {
                tracing::error!(%error, "clones of the device that a server told of cannot be kept")
            }
        }
    }

    fn heed_signals(&mut self) {
        while let Ok(Some(_)) = self.signals.take() {
            self.asked = self.asked.saturating_add(1);
            let outcome = self.mount.end(self.asked);
            tracing::warn!(%outcome, "a signal came");
        }
    }

    /// What dead servers left open.
    fn stale(&self) -> Result<OpenNumbers, OsError> {
        OpenNumbers::look().map(|now| now.beside(&self.own))
    }

    /// Lets go of the mount, when no server lives.
    fn finish(self, by_force: bool) {
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

fn from_io(error: &std::io::Error) -> OsError {
    OsError::from_io_error(error).unwrap_or(OsError::IO)
}
