//! Watching one server, from its start to its end.

use std::time::{Duration, Instant};

use shuntfs_sys::child::Child;

use crate::dying::{self, Cause, Dying, LOOK, Took};
use crate::limits::Limits;
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
}

/// What a look at a server found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Finding {
    Nothing,
    /// It was not ready in time, and was killed.
    Late,
    /// It is dying, and does not come to its end.
    Stuck(Cause),
}

impl<'v> Vigil<'v> {
    pub(crate) fn begin(child: &'v Child, limits: &'v Limits, now: Instant) -> Self {
        Self {
            child,
            limits,
            ready_until: Some(now + limits.ready),
            next_look: now + LOOK,
            dying: Dying::new(now),
        }
    }

    /// For how long nothing is to be done about it.
    pub(crate) fn patience(&self, now: Instant) -> Duration {
        let next = self.ready_until.map_or(self.next_look, |end| end.min(self.next_look));
        next.saturating_duration_since(now)
    }

    pub(crate) fn is_ready(&mut self) {
        self.ready_until = None;
    }

    /// Looks at it, where that is due.
    pub(crate) fn look(&mut self, now: Instant) -> Finding {
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
        Finding::Nothing
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
