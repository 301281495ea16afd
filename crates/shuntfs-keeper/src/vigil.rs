//! Watching one server, from its start to its end.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use shuntfs::takeover::KeptMount;
use shuntfs_sys::child::Child;
use shuntfs_sys::event::wait_readable;
use shuntfs_sys::pulse::Pulse;

use crate::dying::{self, Cause, Dying, LOOK, Took};
use crate::limits::Limits;
use crate::silence::{self, Reason, Silence};
use crate::threads;

/// A server, and what is known of it.
#[derive(Debug)]
pub(crate) struct Vigil<'v> {
    child: &'v Child,
    limits: &'v Limits,
    /// Until when it may be not ready.
    ready_until: Option<Instant>,
    next_look: Instant,
    dying: Dying,
    /// Where it is to answer, and is ready.
    ear: Option<Ear>,
}

/// How it is known whether a server reads.
#[derive(Debug)]
struct Ear {
    pulse: Pulse,
    limit: Duration,
    silence: Silence,
    next: Instant,
}

/// What a look at a server found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Finding {
    Nothing,
    /// It was not ready in time, and was killed.
    Late,
    /// It is dying, and does not come to its end.
    Stuck(Cause),
    /// It did not read requests, and was killed.
    Silent,
    /// It does not read requests, and is not to blame.
    Waits(Reason),
}

impl<'v> Vigil<'v> {
    pub(crate) fn begin(child: &'v Child, limits: &'v Limits, now: Instant) -> Self {
        Self {
            child,
            limits,
            ready_until: Some(now + limits.ready),
            next_look: now + LOOK,
            dying: Dying::new(now),
            ear: None,
        }
    }

    /// For how long nothing may be done about it.
    pub(crate) fn patience(&self, now: Instant) -> Duration {
        let others = [self.ready_until, self.ear.as_ref().map(|ear| ear.next)];
        let next = others.into_iter().flatten().fold(self.next_look, Instant::min);
        next.saturating_duration_since(now)
    }

    /// It serves. Where it is to answer, it is to read requests from now on, which `pulse` counts.
    pub(crate) fn is_ready(&mut self, pulse: Option<Pulse>, now: Instant) {
        self.ready_until = None;
        self.ear = pulse.zip(self.limits.answers).map(|(pulse, limit)| Ear {
            pulse,
            limit,
            silence: Silence::new(limit, pulse.count()),
            next: now + Silence::every(limit),
        });
    }

    /// Whether it is known that it comes to its end.
    pub(crate) fn is_dying(&self) -> bool {
        self.dying.has_begun()
    }

    /// Looks at it, where that is due.
    pub(crate) fn look(&mut self, now: Instant, mount: &KeptMount) -> Finding {
        if now >= self.next_look {
            self.next_look = now + LOOK;
            self.dying.look(now, dying::cause(self.child.pid()));
        }
        if let Some(cause) = self.dying.is_overdue(now, self.limits.kill) {
            self.report(cause);
            return Finding::Stuck(cause);
        }
        if self.ready_until.is_some_and(|end| end <= now) {
            self.ready_until = None;
            // One that has crashed is on its way, and to kill it would cut its core dump short.
            if !self.dying.has_begun() {
                tracing::error!(pid = self.child.pid(), "the server is not ready in time, and is killed");
                self.kill(now);
                return Finding::Late;
            }
        }
        self.listen(now, mount)
    }

    /// Whether it reads requests, where that must be looked at.
    fn listen(&mut self, now: Instant, mount: &KeptMount) -> Finding {
        let Some(ear) = self.ear.as_mut().filter(|ear| now >= ear.next) else { return Finding::Nothing };
        let (pulse, limit) = (ear.pulse, ear.limit);
        ear.next = now + Silence::every(limit);
        // Without a connection nothing waits. What cannot be asked now is asked again.
        let has_unread =
            !mount.has_ended() && wait_readable(&[mount.device().as_fd()], Some(Duration::ZERO)) == Ok(true);
        if !ear.silence.look(now, has_unread, pulse.count()) || self.dying.has_begun() {
            return Finding::Nothing;
        }
        let pid = self.child.pid();
        let threads = threads::threads_of(pid);
        let reason = silence::reason(&threads, |number| silence::leads_below(pid, number));
        if reason == Reason::Itself {
            tracing::error!(pid, "the server has read no request for {limit:?}, some wait, and it is killed");
            threads::log(&threads);
            self.kill(now);
            return Finding::Silent;
        }
        if !ear.silence.is_news() {
            return Finding::Nothing;
        }
        tracing::warn!(pid, "the server has read no request for {limit:?}, some wait, but {reason}");
        threads::log(&threads);
        Finding::Waits(reason)
    }

    /// It is dead: says how long that took, where it was long.
    pub(crate) fn end(&self, now: Instant) {
        let Some(Took { at_least, at_most, cause }) = self.dying.took(now) else { return };
        let pid = self.child.pid();
        match cause {
            Cause::Dump => tracing::warn!(
                pid,
                ?at_least,
                ?at_most,
                "callers waited while the server's core dump was written: `ulimit -c` limits it"
            ),
            Cause::Killed => tracing::warn!(
                pid,
                ?at_least,
                ?at_most,
                "callers waited for the end of the server: a thread of it did not come back from the kernel"
            ),
        }
    }

    fn kill(&mut self, now: Instant) {
        // That it is gone already is as good.
        let _gone = self.child.kill();
        self.dying.killed(now);
    }

    fn report(&self, cause: Cause) {
        let (pid, limit) = (self.child.pid(), self.limits.kill);
        match cause {
            Cause::Dump => {
                tracing::warn!(pid, "the server's core dump is being written, for {limit:?} by now");
            }
            Cause::Killed => {
                tracing::error!(
                    pid,
                    "the server was killed {limit:?} ago and is stuck in the kernel: it is waited for, because what it has begun may \
                     yet be done, and no other server is started beside it"
                );
                threads::log(&threads::threads_of(pid));
            }
        }
    }
}
