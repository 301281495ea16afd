//! What the file system of a branch says of itself, asked for by a thread of the branch's own: whoever wants to know it waits for a moment,
//! and never for a disk that hangs.
//!
//! One question is under way at a time, and who comes meanwhile waits for its answer, for as long as it is not overdue. So a disk that hangs
//! holds one thread, and keeps each of those waiting who come within the first moment, once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use shuntfs::{Errno, Result};
use shuntfs_sys::{FsStat, OsError};

use super::flight::waits;
use crate::error::errno;

/// How old an answer may be: asking for each creation would cost more than the creation.
const AGE_MAX: Duration = Duration::from_secs(1);

/// How long a question may be under way before nobody waits for its answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long the thread stays without a question.
const LINGER: Duration = Duration::from_secs(5);

/// What a branch answers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    pub(crate) below: FsStat,
    /// Whether its path leads elsewhere by now.
    pub(crate) is_elsewhere: bool,
}

/// What is known without asking.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word {
    /// The last answer, and how old it is.
    pub(crate) told: Option<(Told, Duration)>,
    /// How long a question is under way, if longer than anybody waits.
    pub(crate) silent_for: Option<Duration>,
    /// The error that the last question ended with, and how long ago.
    pub(crate) error: Option<(OsError, Duration)>,
}

/// A question, for the thread.
type Question = Box<dyn FnOnce() -> shuntfs_sys::Result<Told> + Send>;

/// Who asks one branch.
#[derive(Debug, Default)]
pub(crate) struct Asker(Arc<Desk>);

#[derive(Debug, Default)]
struct Desk {
    state: Mutex<State>,
    /// The thread waits here for a question.
    asked: Condvar,
    /// Others wait here for the answer.
    answered: Condvar,
}

#[derive(Default)]
struct State {
    /// Since when a question is under way.
    asking: Option<Instant>,
    question: Option<Question>,
    /// How many ended.
    ended: u64,
    told: Option<(Instant, Told)>,
    error: Option<(Instant, OsError)>,
    has_thread: bool,
}

impl Asker {
    /// Has the branch be asked, unless it was a moment ago or is being asked. Nobody waits.
    pub(crate) fn ask(&self, question: impl FnOnce() -> shuntfs_sys::Result<Told> + Send + 'static) {
        let mut state = self.0.state.lock();
        if state.fresh().is_none() {
            self.0.begin(&mut state, question);
        }
    }

    /// The same, however new the last answer is.
    pub(crate) fn ask_anew(&self, question: impl FnOnce() -> shuntfs_sys::Result<Told> + Send + 'static) {
        self.0.begin(&mut self.0.state.lock(), question);
    }

    /// The answer, which is no older than a second.
    ///
    /// # Errors
    /// What the question ends with; ETIMEDOUT where it is under way for longer than anybody waits.
    pub(crate) fn answer(
        &self,
        question: impl FnOnce() -> shuntfs_sys::Result<Told> + Send + 'static,
    ) -> Result<Told> {
        let mut state = self.0.state.lock();
        if let Some(told) = state.fresh() {
            return Ok(told);
        }
        let ended = state.ended;
        let since = self.0.begin(&mut state, question);
        let is_open = |state: &mut State| state.ended == ended;
        // That is seen by itself, and says nothing of the branch that was asked something before.
        waits(|| self.0.answered.wait_while_until(&mut state, is_open, since + PATIENCE));
        if state.ended == ended {
            return Err(Errno::TIMEDOUT);
        }
        match (state.told, state.error) {
            (_, Some((_, error))) => Err(errno(error)),
            (Some((_, told)), None) => Ok(told),
            (None, None) => Err(Errno::IO),
        }
    }

    /// What is known, once no question is under way or nobody waits for it any more.
    pub(crate) fn word_in_time(&self) -> Word {
        let mut state = self.0.state.lock();
        while let Some(since) = state.asking {
            if self.0.answered.wait_until(&mut state, since + PATIENCE).timed_out() {
                break;
            }
        }
        state.word()
    }

    /// What is known now.
    pub(crate) fn word(&self) -> Word {
        self.0.state.lock().word()
    }

    /// How many questions have ended.
    pub(crate) fn ended(&self) -> u64 {
        self.0.state.lock().ended
    }
}

impl State {
    /// The last answer, where it is new enough.
    fn fresh(&self) -> Option<Told> {
        let (then, told) = self.told.filter(|_| self.error.is_none())?;
        (then.elapsed() < AGE_MAX).then_some(told)
    }

    fn word(&self) -> Word {
        Word {
            told: self.told.map(|(then, told)| (told, then.elapsed())),
            silent_for: self.asking.map(|since| since.elapsed()).filter(|elapsed| *elapsed >= PATIENCE),
            error: self.error.map(|(then, error)| (error, then.elapsed())),
        }
    }

    fn end(&mut self, outcome: shuntfs_sys::Result<Told>) {
        let now = Instant::now();
        match outcome {
            Ok(told) => (self.told, self.error) = (Some((now, told)), None),
            Err(error) => self.error = Some((now, error)),
        }
        self.asking = None;
        self.ended += 1;
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("asking", &self.asking)
            .field("told", &self.told)
            .finish_non_exhaustive()
    }
}

impl Desk {
    /// Has the thread ask, unless it does; since when it does.
    fn begin(
        self: &Arc<Self>,
        state: &mut State,
        question: impl FnOnce() -> shuntfs_sys::Result<Told> + Send + 'static,
    ) -> Instant {
        if let Some(since) = state.asking {
            return since;
        }
        let since = Instant::now();
        state.asking = Some(since);
        state.question = Some(Box::new(question));
        if state.has_thread {
            self.asked.notify_one();
            return since;
        }
        let desk = Arc::clone(self);
        match std::thread::Builder::new().name("shunt-disk".into()).spawn(move || desk.serve()) {
            Ok(_) => state.has_thread = true,
            Err(error) => {
                tracing::warn!(%error, "no thread to ask a branch");
                state.question = None;
                state.end(Err(OsError::AGAIN));
            }
        }
        since
    }

    fn serve(&self) {
        shuntfs::leave_queue();
        let mut state = self.state.lock();
        loop {
            if let Some(question) = state.question.take() {
                let outcome = MutexGuard::unlocked(&mut state, question);
                state.end(outcome);
                self.answered.notify_all();
            } else if self.asked.wait_for(&mut state, LINGER).timed_out() && state.question.is_none() {
                state.has_thread = false;
                return;
            }
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use std::sync::mpsc;

    fn told(blocks: u64) -> Told {
        Told { below: FsStat { blocks, ..FsStat::default() }, is_elsewhere: false }
    }

    #[test]
    fn an_answer_holds_for_a_moment_and_an_error_does_not() {
        let asker = Asker::default();
        assert_eq!(asker.answer(|| Err(OsError::IO)).err(), Some(Errno::IO));
        assert_eq!(asker.word().error.map(|(error, _)| error), Some(OsError::IO));
        assert_eq!(asker.answer(|| Ok(told(1))).map(|told| told.below.blocks), Ok(1));
        assert_eq!(asker.answer(|| Ok(told(2))).map(|told| told.below.blocks), Ok(1), "it is new enough");
        assert_eq!(asker.ended(), 2);
        asker.ask_anew(|| Ok(told(3)));
        let word = asker.word_in_time();
        assert_eq!(word.told.map(|(told, _)| told.below.blocks), Some(3));
        assert!(word.error.is_none() && word.silent_for.is_none());
    }

    /// Everybody who asked waited forever.
    #[test]
    fn nobody_waits_for_a_disk_that_hangs() {
        let asker = Asker::default();
        assert!(asker.answer(|| Ok(told(7))).is_ok());
        let (resume, hangs) = mpsc::channel::<()>();
        asker.ask_anew(move || {
            let _resumed = hangs.recv();
            Ok(told(8))
        });
        let word = asker.word_in_time();
        assert!(word.silent_for.is_some(), "{word:?}");
        assert_eq!(word.told.map(|(told, _)| told.below.blocks), Some(7), "what was known stays");
        // The old answer does not do any more, and the question is not asked twice.
        assert_eq!(asker.answer(|| Ok(told(9))).err(), Some(Errno::TIMEDOUT));
        assert_eq!(asker.ended(), 1);
        resume.send(()).unwrap();
        let answered = (0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(5));
            asker.ended() == 2
        });
        assert!(answered);
        assert_eq!(asker.answer(|| Ok(told(9))).map(|told| told.below.blocks), Ok(8));
    }
}
