//! Another program instead of this one, while the mount is in use.
//!
//! Order: the program is tried first, beside the server, which serves meanwhile: it must read the note, agree to what was agreed on, and know
//! the layout of the state. Only then is the server killed, whose requests come again as after any death, and this process becomes
//! the other program. Where no server of that one becomes ready, it becomes this one again; what happens afterwards is in `probation.rs`.
//!
//! # Safety
//! A descriptor is taken over by its number from a server, which says so and gives it up.
#![expect(
    unsafe_code,
    reason = "a server hands descriptors over by their numbers in the table that both share"
)]

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::process::Child;
use std::time::{Duration, Instant};

use shuntfs_sys::memory;
use shuntfs_sys::process::{Process, started};
use shuntfs_sys::program::{Program, pass_on};

use crate::channel::Asked;
use crate::filling;
use crate::keeper::Keeper;
use crate::passing::{PassedNote, Relay, SUITS, Text, become_other};
use crate::probation::Probation;

/// Of what a program prints that is tried, so much is told.
const SAID_MAX: usize = 1000;

/// A program that is to take the place of this one.
#[derive(Debug)]
pub(crate) struct Replacing {
    program: Program,
    asker: OwnedFd,
    /// The one that runs.
    former: Program,
    note: PassedNote,
    text: Text,
    /// `None` once it is over, and went well.
    trial: Option<Rehearsal>,
    /// Until when a server on io_uring may take to fill its slots, while it does.
    filling: Option<Instant>,
}

/// A program that tries whether it could go on.
#[derive(Debug)]
pub(crate) struct Rehearsal {
    child: Child,
    process: Option<Process>,
    said: File,
    end: Instant,
    limit: Duration,
}

impl Rehearsal {
    pub(crate) fn start(
        program: &Program,
        words: &[OsString],
        kept: Vec<RawFd>,
        limit: Duration,
    ) -> io::Result<Self> {
        let said = memory::file_in_memory(c"shuntfs-trial")?;
        let child = program.start(words, kept, &said)?;
        let process = started(child.id()).and_then(|start| Process::find(child.id(), start).ok().flatten());
        Ok(Self { child, process, said, end: Instant::now() + limit, limit })
    }

    /// How it went; `None` while it is under way.
    pub(crate) fn outcome(&mut self, now: Instant) -> Option<Result<(), String>> {
        match self.child.try_wait() {
            Ok(Some(status)) => {
                let said = self.said();
                let suits = status.success() && said == SUITS;
                let why = || {
                    format!("a trial of the program failed ({status}): {}", said.trim().replace('\n', " "))
                };
                Some(if suits { Ok(()) } else { Err(why()) })
            }
            Ok(None) if now < self.end => None,
            Ok(None) => Some(Err(format!("a trial of the program was not over after {:?}", self.limit))),
            Err(error) => Some(Err(format!("a trial of the program failed: {error}"))),
        }
    }

    /// Readable when it is over; `None` where that cannot be waited for.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.process.as_ref().map(AsFd::as_fd)
    }

    fn said(&self) -> String {
        let mut bytes = vec![0; SAID_MAX];
        let len = self.said.read_at(&mut bytes, 0).unwrap_or(0);
        bytes.truncate(len);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    pub(crate) fn patience(&self, now: Instant) -> Duration {
        // Where its end cannot be waited for, it is looked for.
        const LOOK: Duration = Duration::from_millis(20);
        let left = self.end.saturating_duration_since(now);
        if self.process.is_some() { left } else { left.min(LOOK) }
    }
}

impl Drop for Rehearsal {
    fn drop(&mut self) {
        // One that waits in the kernel is not waited for.
        let _gone = self.child.kill();
        let _gone = self.child.try_wait();
    }
}

impl Replacing {
    /// Readable when the trial is over.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.trial.as_ref()?.fd()
    }

    pub(crate) fn patience(&self, now: Instant) -> Option<Duration> {
        let filling = self.filling.map(|end| end.saturating_duration_since(now));
        self.trial.as_ref().map(|trial| trial.patience(now)).or(filling)
    }

    /// Whether the server is to end now, so that the other program goes on.
    pub(crate) fn is_due(&self) -> bool {
        self.trial.is_none() && self.filling.is_none()
    }
}

impl Keeper<'_> {
    /// A server was told that another program is to go on: `program`, as `asker` wants it, who is told how that went. Both are numbers of the
    /// common table, and this process's from now on.
    pub(crate) fn replace(&mut self, program: RawFd, asker: RawFd) {
        let [Some(program), Some(asker)] = [program, asker].map(|number| self.own_number(number)) else {
            return tracing::warn!("a server told of a program, and left no descriptor of it");
        };
        let program = Program::of(program);
        let (former, relay) = match self.begin_to_replace() {
            Ok(begin) => begin,
            Err(why) => {
                self.let_go([program.into_fd()]);
                return self.answer(asker, Err(why));
            }
        };
        self.own.add(&former.as_fd().as_raw_fd());
        match self.rehearse((&program, &former), &relay, &asker) {
            Ok((note, text, trial)) => {
                tracing::info!("another program is tried, and goes on where it can");
                let trial = Some(trial);
                self.replacing = Some(Replacing { program, asker, former, note, text, trial, filling: None });
            }
            Err(error) => {
                self.let_go([program.into_fd(), former.into_fd()]);
                self.answer(asker, Err(format!("the program cannot be started: {error}")));
            }
        }
    }

    /// The program that runs, and how another one goes on.
    fn begin_to_replace(&self) -> Result<(Program, Relay), String> {
        let why = if self.replacing.is_some() {
            Some("another program is on its way already")
        } else if self.former.is_some() {
            Some("the program has just taken the place of another one, and is not ready yet")
        } else if self.told.is_none() || !self.was_ready {
            Some("the mount is not served yet")
        } else if self.is_asked_to_end() {
            Some("the mount ends")
        } else {
            None
        };
        if let Some(why) = why {
            return Err(why.to_owned());
        }
        let relay = self.attendant.relay().ok_or("this program says nothing of how another one goes on")?;
        let former =
            Program::running().map_err(|error| format!("the running program cannot be held ({error})"))?;
        Ok((former, relay))
    }

    /// Starts the trial.
    fn rehearse(
        &mut self,
        (program, former): (&Program, &Program),
        relay: &Relay,
        asker: &OwnedFd,
    ) -> io::Result<(PassedNote, Text, Rehearsal)> {
        let told = self.told.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let stored = self.note.as_ref().map(|note| note.as_fd().as_raw_fd());
        let numbers = (asker.as_raw_fd(), former.as_fd().as_raw_fd(), stored);
        let (note, mut text) = (PassedNote::new()?, Text::new(&self.mount, told, relay, numbers));
        text.proven = self.probation.as_ref().map(Probation::number);
        note.write(&text)?;
        let number = note.as_fd().as_raw_fd();
        let trial =
            Rehearsal::start(program, &text.words(number, true), text.of_trial(number), self.limits.ready)?;
        let process = trial.process.as_ref().map(|process| process.as_fd().as_raw_fd());
        [number, trial.said.as_raw_fd()].iter().chain(&process).for_each(|number| self.own.add(number));
        Ok((note, text, trial))
    }

    /// Looks how the trial goes; whether the server is to end now.
    pub(crate) fn look_at_trial(&mut self, server: u32, now: Instant) -> bool {
        let Some(replacing) = &mut self.replacing else { return false };
        if replacing.filling.is_some_and(|end| now > end) {
            self.do_not_replace("its server did not say whether it can be replaced");
            return false;
        }
        let Some(outcome) = replacing.trial.as_mut().and_then(|trial| trial.outcome(now)) else {
            return false;
        };
        if let Some(trial) = replacing.trial.take() {
            self.own.remove(trial.said.as_raw_fd());
            trial.process.iter().for_each(|process| self.own.remove(process.as_fd().as_raw_fd()));
        }
        match outcome {
            Ok(()) if self.is_on_rings() => {
                self.ask_to_fill(server, now);
                false
            }
            Ok(()) => true,
            Err(why) => {
                self.do_not_replace(&why);
                false
            }
        }
    }

    /// Whether requests come by io_uring.
    pub(crate) fn is_on_rings(&self) -> bool {
        self.told.as_ref().is_some_and(|told| told.handover.is_on_rings())
    }

    fn ask_to_fill(&mut self, server: u32, now: Instant) {
        /// Beyond what the server takes.
        const LATE: Duration = Duration::from_secs(5);
        let asked = self.channel.ask(Asked::Fill(server));
        let Some(replacing) = &mut self.replacing else { return };
        replacing.filling = Some(now + filling::LIMIT + LATE);
        if let Err(error) = asked {
            self.do_not_replace(&format!("its server cannot be told ({error})"));
        }
    }

    /// A server has filled its slots; whether it must be killed now.
    pub(crate) fn is_filled(&mut self) -> bool {
        self.replacing.as_mut().is_some_and(|replacing| replacing.filling.take().is_some())
    }

    /// This program stays.
    pub(crate) fn do_not_replace(&mut self, why: &str) {
        let Some(Replacing { program, asker, former, note, trial, .. }) = self.replacing.take() else {
            return;
        };
        tracing::error!("no other program goes on: {why}");
        if let Some(trial) = &trial {
            self.own.remove(trial.said.as_raw_fd());
            trial.process.iter().for_each(|process| self.own.remove(process.as_fd().as_raw_fd()));
        }
        drop(trial);
        self.own.remove(note.as_fd().as_raw_fd());
        drop(note);
        self.let_go([program.into_fd(), former.into_fd()]);
        self.answer(asker, Err(why.to_owned()));
    }

    /// Becomes the other program, now that no server lives. Returns only where that fails; this program then stays.
    pub(crate) fn become_next(&mut self) {
        let left = self.stale();
        let Some(replacing) = &mut self.replacing else { return };
        replacing.text.predecessors = self.predecessors + 1;
        // Since the trial, a server may have died that had changed branches, for example, and the program before may have been let go of.
        if let Some(now) = self.attendant.relay() {
            replacing.text.kept = now.kept.into_iter().collect();
        }
        replacing.text.proven = self.probation.as_ref().map(Probation::number);
        let why = match (replacing.note.write(&replacing.text), left) {
            (Err(error), _) => format!("the program cannot be told of the mount: {error}"),
            (_, Err(error)) => format!("the table of descriptors cannot be read ({error})"),
            (Ok(()), Ok(left)) => {
                tracing::info!("another program goes on");
                self.manager.status(&format!("{}: another program goes on", self.mount.path().display()));
                self.shelter.leave();
                let Replacing { program, text, note, .. } = replacing;
                let error = become_other(program, text, note, left.numbers());
                self.shelter.enter();
                format!("the program cannot be started ({error})")
            }
        };
        self.do_not_replace(&why);
    }

    /// A server is ready: whoever asked for this program is told. The program before is held until this one has proved itself. Not on io_uring, where
    /// no server follows one that died.
    pub(crate) fn settle(&mut self, now: Instant) {
        if let Some(former) = self.former.take() {
            former.numbers().iter().for_each(|number| self.own.remove(*number));
            let (program, text) = former.settle();
            let of_former = || Probation::new(program, text);
            let held = self.probation.take().unwrap_or_else(of_former);
            self.own.remove(held.number());
            self.probation = Some(held).filter(|held| !self.is_on_rings() && held.is_another_program());
            self.probation.iter().for_each(|held| self.own.add(&held.number()));
            tracing::info!("another program has gone on with the mount");
        }
        if let Some(probation) = &mut self.probation {
            probation.ready(now);
        }
        if let Some((asker, outcome)) = self.asker.take() {
            self.answer(asker, outcome);
        }
    }

    /// Becomes the program before again, now that no server lives. Returns only where that fails.
    pub(crate) fn become_former(&mut self, why: &str) {
        let Some(former) = &self.former else { return };
        let left = self.stale().map_or_else(|_| Vec::new(), |left| left.numbers().to_vec());
        self.shelter.leave();
        let error = former.returns(why, &left);
        self.shelter.enter();
        tracing::error!(%error, "the program before cannot be gone back to");
    }

    fn answer(&mut self, asker: OwnedFd, outcome: Result<(), String>) {
        self.own.remove(asker.as_raw_fd());
        self.attendant.answer(asker, outcome);
    }

    fn let_go<const N: usize>(&mut self, all: [OwnedFd; N]) {
        all.iter().for_each(|fd| self.own.remove(fd.as_raw_fd()));
    }

    /// Takes a number over that a server had opened.
    fn own_number(&mut self, number: RawFd) -> Option<OwnedFd> {
        if self.own.contains(number) || pass_on(number, false).is_err() {
            return None;
        }
        self.own.add(&number);
        // SAFETY: it is open, no object of this process has it, and the server that opened it has given it up.
        Some(unsafe { OwnedFd::from_raw_fd(number) })
    }
}
