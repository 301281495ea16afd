//! How a server dies: at once as a rule, but a core dump takes its time, and a thread that waits in the kernel holds up its process.
//!
//! Nobody tells when a process begins to die, only when all of it is gone. So it is examined once a second.

use std::fmt;
use std::fs;
use std::time::{Duration, Instant};

/// How often it is checked whether a server is dying: one that took longer than that was seen.
pub(crate) const LOOK: Duration = Duration::from_secs(1);

/// SIGKILL in a set of signals as procfs writes it.
const KILL: u64 = 1 << 8;

/// What a dying server waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// Its core dump is being written.
    Dump,
    /// It was killed, or a thread of it ended the process, and another thread does not come back from the kernel.
    Killed,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dump => "its core dump is being written",
            Self::Killed => "a thread of it is stuck in the kernel",
        })
    }
}

/// What was seen of a server's end before it came.
#[derive(Debug)]
pub(crate) struct Dying {
    last_look: Instant,
    seen: Option<Seen>,
    is_told: bool,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    /// It was not dying yet.
    before: Instant,
    /// It was.
    at: Instant,
    cause: Cause,
}

/// How long a server took to die.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Took {
    pub(crate) at_least: Duration,
    pub(crate) at_most: Duration,
    pub(crate) cause: Cause,
}

impl Dying {
    pub(crate) fn new(now: Instant) -> Self {
        Self { last_look: now, seen: None, is_told: false }
    }

    /// It was killed from here.
    pub(crate) fn killed(&mut self, now: Instant) {
        self.seen.get_or_insert(Seen { before: now, at: now, cause: Cause::Killed });
    }

    /// Looks at it: by what [`cause`] says.
    pub(crate) fn look(&mut self, now: Instant, cause: Option<Cause>) {
        if let Some(cause) = cause {
            let before = self.last_look;
            self.seen.get_or_insert(Seen { before, at: now, cause }).cause = cause;
        }
        self.last_look = now;
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.seen.is_some()
    }

    /// Whether it has been dying for `limit`; once.
    pub(crate) fn is_overdue(&mut self, now: Instant, limit: Duration) -> Option<Cause> {
        let seen = self.seen.filter(|seen| !self.is_told && now.duration_since(seen.at) >= limit)?;
        self.is_told = true;
        Some(seen.cause)
    }

    /// How long it took, where that was longer than a second; `now` it is dead.
    pub(crate) fn took(&self, now: Instant) -> Option<Took> {
        let Seen { before, at, cause } = self.seen?;
        let took = Took { at_least: now.duration_since(at), at_most: now.duration_since(before), cause };
        (took.at_most > LOOK).then_some(took)
    }
}

/// What a process waits for, if it is dying.
pub(crate) fn cause(pid: u32) -> Option<Cause> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    match first_thread(&status) {
        Found::Cause(cause) => Some(cause),
        Found::Nothing => None,
        Found::Ended => {
            let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
            let mut texts = tasks.filter_map(|task| fs::read_to_string(task.path().join("status")).ok());
            texts.any(|status| is_killed(&status)).then_some(Cause::Killed)
        }
    }
}

/// What the first thread tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found {
    Cause(Cause),
    Nothing,
    /// It is gone, and others are not: whether they are to go, they tell themselves.
    Ended,
}

fn first_thread(status: &str) -> Found {
    if field(status, "CoreDumping:") == Some("1") {
        return Found::Cause(Cause::Dump);
    }
    if is_killed(status) {
        return Found::Cause(Cause::Killed);
    }
    if field(status, "State:").is_some_and(|state| state.starts_with(['Z', 'X'])) {
        Found::Ended
    } else {
        Found::Nothing
    }
}

/// Whether SIGKILL waits for a thread, which nothing but the kernel can hold up.
fn is_killed(status: &str) -> bool {
    let waiting = ["SigPnd:", "ShdPnd:"].into_iter().filter_map(|name| field(status, name));
    waiting.filter_map(|set| u64::from_str_radix(set, 16).ok()).any(|set| set & KILL != 0)
}

fn field<'s>(status: &'s str, name: &str) -> Option<&'s str> {
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

#[cfg(test)]
mod test {
    use super::*;

    fn status(state: &str, dumping: u8, own: &str, shared: &str) -> String {
        format!("State:\t{state}\nCoreDumping:\t{dumping}\nSigPnd:\t{own}\nShdPnd:\t{shared}\nSigBlk:\t0f\n")
    }

    #[test]
    fn a_dying_process_is_known_by_its_status() {
        let (none, kill, other) = ("0000000000000000", "0000000000000100", "0000000000004000");
        for (state, dumping, own, shared, expected) in [
            ("S (sleeping)", 0, none, none, Found::Nothing),
            ("S (sleeping)", 0, other, other, Found::Nothing),
            ("R (running)", 1, none, none, Found::Cause(Cause::Dump)),
            ("D (disk sleep)", 1, kill, kill, Found::Cause(Cause::Dump)),
            ("D (disk sleep)", 0, kill, none, Found::Cause(Cause::Killed)),
            ("D (disk sleep)", 0, none, kill, Found::Cause(Cause::Killed)),
            ("Z (zombie)", 0, none, kill, Found::Cause(Cause::Killed)),
            ("Z (zombie)", 0, none, none, Found::Ended),
        ] {
            let status = status(state, dumping, own, shared);
            assert_eq!(first_thread(&status), expected, "{status}");
        }
        assert_eq!(first_thread(""), Found::Nothing);
        assert_eq!(cause(std::process::id()), None);
    }

    #[test]
    fn what_took_longer_than_a_second_is_told() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut dying = Dying::new(start);
        dying.look(at(1000), None);
        assert!(!dying.has_begun());
        dying.look(at(2000), Some(Cause::Killed));
        dying.look(at(3000), Some(Cause::Dump));
        let took = dying.took(at(4500));
        let millis = Duration::from_millis;
        assert_eq!(took, Some(Took { at_least: millis(2500), at_most: millis(3500), cause: Cause::Dump }));
        assert_eq!(dying.is_overdue(at(6900), millis(5000)), None);
        assert_eq!(dying.is_overdue(at(7000), millis(5000)), Some(Cause::Dump));
        assert_eq!(dying.is_overdue(at(8000), millis(5000)), None, "once");
    }

    #[test]
    fn what_was_killed_here_is_known_to_the_moment() {
        let start = Instant::now();
        let mut dying = Dying::new(start);
        dying.killed(start);
        dying.killed(start + LOOK);
        assert_eq!(dying.took(start + LOOK), None);
        let took = dying.took(start + LOOK * 3);
        assert_eq!(took, Some(Took { at_least: LOOK * 3, at_most: LOOK * 3, cause: Cause::Killed }));
        assert_eq!(Dying::new(start).took(start + LOOK * 9), None, "it was never seen");
    }
}
