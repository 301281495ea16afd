//! A program that serves instead of another one, and has not proved itself yet: the other one is held, and is gone back to if servers of this one
//! die again and again.
//!
//! It has proved itself once a server of it has served for as long as deaths count ([`Limits::within`](crate::Limits)). Until then each death begins
//! that time anew.
//!
//! To go back is to become another program once more, but with a trial first: callers wait already, and a program that could not go on would lose the
//! mount. What it is handed over is what this one would hand over to any other, because that may have changed since.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use shuntfs::takeover::Deaths;
use shuntfs_sys::program::Program;
use shuntfs_sys::spawn::{Push, push};
use shuntfs_sys::{OsError, event, trusted};

use crate::keeper::{Ended, KeepError, Keeper};
use crate::passing::{PassedNote, Text, become_other};
use crate::replacing::Rehearsal;

/// What leads back to the last program that has proved itself.
#[derive(Debug)]
pub(crate) struct Probation {
    program: Program,
    /// What this program was told.
    text: Text,
    /// Since when the server that lives has served.
    since: Option<Instant>,
}

impl Probation {
    pub(crate) fn new(program: Program, text: Text) -> Self {
        Self { program, text, since: None }
    }

    /// Whether it leads to another program than the one that runs. Where nobody can tell: it does.
    pub(crate) fn is_another_program(&self) -> bool {
        !Program::running().is_ok_and(|running| running.is_same_file(&self.program))
    }

    /// The number of what is closed with it.
    pub(crate) fn number(&self) -> RawFd {
        self.program.as_fd().as_raw_fd()
    }

    /// A server serves.
    pub(crate) fn ready(&mut self, now: Instant) {
        self.since = Some(now);
    }

    /// It dies, or has died.
    pub(crate) fn died(&mut self) {
        self.since = None;
    }

    /// How long it takes until this program has proved itself, if its server lives.
    pub(crate) fn patience(&self, now: Instant, within: Duration) -> Option<Duration> {
        self.since.map(|since| within.saturating_sub(now.saturating_duration_since(since)))
    }
}

impl Keeper<'_> {
    /// Lets the program before go, once this one has proved itself. A server that writes its core dump does not serve.
    pub(crate) fn look_at_probation(&mut self, now: Instant, is_dying: bool) {
        self.probation.iter_mut().filter(|_| is_dying).for_each(Probation::died);
        let within = self.limits.within;
        let Some(probation) = self.probation.take_if(|it| it.patience(now, within) == Some(Duration::ZERO))
        else {
            return;
        };
        self.own.remove(probation.number());
        tracing::info!("the program has served for {within:?}, and the one before is let go of");
    }

    /// Which deaths are held against a request: none of servers of another program. While there is one to go back to, a request of which servers of this one
    /// die leads there, and does not fail.
    pub(crate) fn deaths(&self) -> Deaths {
        let is_passed = self.former.is_some() || self.taken_back.is_some();
        let usual = Deaths { anew: is_passed && !self.is_announced, ..Deaths::default() };
        if self.probation.is_none() {
            return usual;
        }
        // The last one has no successor.
        let all = u8::try_from(self.limits.crashes).unwrap_or(u8::MAX);
        Deaths { max: usual.max.max(all), ..usual }
    }

    /// Goes back to the program before, where there is one and `error` may be the fault of this one. No server lives. Returns only where that is not so,
    /// or fails.
    ///
    /// # Errors
    /// What this keeper ends with.
    pub(crate) fn go_back(&mut self, error: KeepError) -> Result<Ended, KeepError> {
        self.become_former(&error.to_string());
        let KeepError::GaveUp(given_up) = &error else { return Err(error) };
        let Some(probation) = self.probation.take() else { return Err(error) };
        self.do_not_replace("servers of this program died too often, and it goes back to the one before");
        let failed = match std::fs::read_link("/proc/self/exe") {
            Ok(program) => format!("{}: {given_up}", program.display()),
            Err(_unknown) => given_up.to_string(),
        };
        tracing::error!("goes back to the program before: {failed}");
        self.tell("servers of the program died too often, and the program before goes on");
        let why = self.become_proven(&probation, &failed);
        if self.is_over() {
            return Ok(Ended::Connection);
        }
        tracing::error!("the program before cannot be gone back to: {why}");
        Err(error)
    }

    /// Returns why that cannot be.
    fn become_proven(&mut self, probation: &Probation, failed: &str) -> String {
        // As long as no process runs it, it can be written to.
        if let Err(why) = trusted::check(&probation.program) {
            return why.to_string();
        }
        let left = match self.stale() {
            Ok(left) => left,
            Err(error) => return format!("the table of descriptors cannot be read ({error})"),
        };
        // Whoever had asked for this program has an answer, and there is nobody to tell any more.
        let (nobody, _other_end) = match UnixStream::pair() {
            Ok(pair) => pair,
            Err(error) => return format!("there is no pair of sockets ({error})"),
        };
        let asker = self.asker.as_ref().map_or(nobody.as_raw_fd(), |(asker, _)| asker.as_raw_fd());
        let (text, note) = match self.text_of_return(probation, asker) {
            Ok(both) => both,
            Err(why) => return why,
        };
        if let Err(why) = self.rehearse_return(probation, &text, &note) {
            return why;
        }
        if self.is_over() {
            return "the mount has ended".to_owned();
        }
        if let Err(error) = note.fails(failed) {
            tracing::warn!(%error, "the program before is not told why");
        }
        // It stays pending, and comes to the other program.
        if std::mem::take(&mut self.has_hangup)
            && let Err(error) = push(std::process::id(), Push::HangUp)
        {
            tracing::warn!(%error, "SIGHUP is not passed on to the program before");
        }
        self.shelter.leave();
        let error = become_other(&probation.program, &text, &note, left.numbers());
        self.shelter.enter();
        error.to_string()
    }

    /// Whether the mount has ended meanwhile.
    fn is_over(&self) -> bool {
        self.mount.has_ended() || self.attendant.lets_go()
    }

    /// What the program before is told.
    fn text_of_return(&self, probation: &Probation, asker: RawFd) -> Result<(Text, PassedNote), String> {
        let told = self.told.as_ref().ok_or("nothing is known of the connection")?;
        // What was handed over to a program that could not hand anything over is open yet.
        let mut relay = probation.text.relay();
        if let Some(now) = self.attendant.relay() {
            relay.kept = now.kept;
        }
        let stored = self.note.as_ref().map(|note| note.as_fd().as_raw_fd());
        let numbers = (asker, probation.number(), stored);
        let mut text = Text::new(&self.mount, told, &relay, numbers);
        text.predecessors = self.predecessors + 1;
        let note = PassedNote::new().map_err(|error| format!("there is no memory for a note ({error})"))?;
        note.write(&text).map_err(|error| format!("the program cannot be told of the mount: {error}"))?;
        Ok((text, note))
    }

    /// Has the program before try whether it could go on with what this one has left. The manager and signals are heeded meanwhile.
    fn rehearse_return(
        &mut self,
        probation: &Probation,
        text: &Text,
        note: &PassedNote,
    ) -> Result<(), String> {
        let number = note.as_fd().as_raw_fd();
        let (words, kept) = (text.words(number, true), text.of_trial(number));
        let trial = Rehearsal::start(&probation.program, &words, kept, self.limits.ready);
        let mut trial = trial.map_err(|error| format!("the program cannot be started: {error}"))?;
        loop {
            let now = Instant::now();
            if let Some(outcome) = trial.outcome(now) {
                return outcome;
            }
            self.manager.beat(now);
            self.heed_signals();
            let patience = self.manager.patience(now).into_iter().fold(trial.patience(now), Duration::min);
            let all: Vec<_> = [self.signals.as_fd()].into_iter().chain(trial.fd()).collect();
            match event::wait_readable(&all, Some(patience)) {
                Ok(_) | Err(OsError::INTR) => {}
                Err(error) => return Err(format!("a trial of the program cannot be waited for ({error})")),
            }
        }
    }
}

#[cfg(test)]
mod test {
    use std::fs::File;

    use super::*;
    use crate::passing::test::note_of_an_earlier_release;

    #[test]
    fn a_program_proves_itself_by_a_server_that_lives() {
        let program = Program::of(File::open("/proc/self/exe").expect("is there").into());
        let mut probation = Probation::new(program, note_of_an_earlier_release());
        let (start, within) = (Instant::now(), Duration::from_secs(60));
        let at = |secs| start + Duration::from_secs(secs);
        let left = |probation: &Probation, secs| probation.patience(at(secs), within);
        assert_eq!(left(&probation, 100), None, "nobody serves");
        probation.ready(at(100));
        assert_eq!(left(&probation, 100), Some(within));
        assert_eq!(left(&probation, 159), Some(Duration::from_secs(1)));
        probation.died();
        assert_eq!(left(&probation, 161), None, "it begins anew");
        probation.ready(at(170));
        assert_eq!(left(&probation, 229), Some(Duration::from_secs(1)));
        assert_eq!(left(&probation, 230), Some(Duration::ZERO));
        assert_eq!(left(&probation, 1000), Some(Duration::ZERO));
    }

    #[test]
    fn the_file_of_this_program_is_no_other_program() {
        let probation = |path| {
            let program = Program::of(File::open(path).expect("is there").into());
            Probation::new(program, note_of_an_earlier_release())
        };
        assert!(!probation("/proc/self/exe").is_another_program());
        assert!(probation("/bin/sh").is_another_program());
    }
}
