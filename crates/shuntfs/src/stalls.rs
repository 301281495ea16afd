//! Requests that are under way for too long, told in the log.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use shuntfs_sys::threads;
use shuntfs_transport::{Stall, StallSink};
use shuntfs_wire::{NodeId, Opcode};

use crate::trace::Observed;

/// So many are told one after the other, and then one more for each `REFILL`; the others are counted.
const BURST: u32 = 8;
const REFILL: Duration = Duration::from_secs(10);
/// So many functions of a kernel stack are told.
const STACK_MAX: usize = 6;
/// The threads that work beside queues: of the offload pool, and the kernel's for rings.
const BESIDE: [&str; 2] = ["shunt-offload", "iou-wrk-"];

/// How many requests were under way for too long.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StallStatus {
    /// From when on, in milliseconds; `None` where nobody looks.
    pub limit_ms: Option<u64>,
    /// How many there were.
    pub total: u64,
    /// How many are under way now.
    pub now: u64,
}

/// What is counted, for [`crate::Status`].
#[derive(Debug, Default)]
pub(crate) struct StallCounts {
    limit: Option<Duration>,
    began: AtomicU64,
    ended: AtomicU64,
}

impl StallCounts {
    pub(crate) fn new(limit: Option<Duration>) -> Self {
        Self { limit, ..Self::default() }
    }

    pub(crate) fn status(&self) -> StallStatus {
        let ended = self.ended.load(Ordering::Relaxed);
        let began = self.began.load(Ordering::Relaxed);
        let limit_ms = self.limit.map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
        StallStatus { limit_ms, total: began, now: began.saturating_sub(ended) }
    }
}

/// Tells the log.
pub(crate) struct StallLog {
    observed: Weak<dyn Observed>,
    counts: Arc<StallCounts>,
    told: Mutex<Told>,
}

#[derive(Debug)]
struct Told {
    /// Those whose begin was told, by number.
    requests: HashSet<u64>,
    /// How many lines may follow at once, since then.
    left: u32,
    since: Instant,
    /// How many were not told since the last line.
    silent: u64,
}

impl StallLog {
    pub(crate) fn new(observed: Weak<dyn Observed>, counts: Arc<StallCounts>) -> Self {
        let told = Told { requests: HashSet::new(), left: BURST, since: Instant::now(), silent: 0 };
        Self { observed, counts, told: Mutex::new(told) }
    }

    /// The request, for people. Names come from callers, so control characters are written out.
    fn describe(&self, stall: &Stall) -> String {
        let operation = Opcode::new(stall.opcode).map_or("an unknown operation", Opcode::name);
        let mut text = format!("{operation} (request {}) of ", stall.unique);
        let place = self.observed.upgrade().and_then(|server| server.place_of(NodeId::new(stall.node)?));
        match place {
            Some(place) => {
                let _ = write!(text, "{} (node {})", shown(&place.path), stall.node);
                if let Some(branch) = place.branch {
                    let _ = write!(text, " on {}", shown(&branch));
                }
            }
            None => {
                let _ = write!(text, "node {}", stall.node);
            }
        }
        if stall.pid == 0 {
            text.push_str(", for no process that is visible");
        } else {
            let name = threads::name_of(stall.pid).unwrap_or_default();
            let name = String::from_utf8_lossy(&name).escape_debug().to_string();
            let _ = write!(text, ", for process {} ({name}, uid {})", stall.pid, stall.uid);
        }
        text
    }
}

/// A name, in quotes.
fn shown(name: &[u8]) -> String {
    let name = if name.is_empty() { b"/" } else { name };
    format!("{:?}", Path::new(std::ffi::OsStr::from_bytes(name)))
}

/// What a request waits for, as far as that can be told.
fn waits_for(stall: &Stall) -> String {
    if let Some(thread) = stall.thread {
        let waits = match (threads::kernel_stack_of(thread), threads::waits_in(thread)) {
            (Some(stack), _) => stack.iter().take(STACK_MAX).cloned().collect::<Vec<_>>().join(" < "),
            (None, Some(function)) => function,
            (None, None) => return format!("its thread {thread} runs, or does not tell what it waits for"),
        };
        return format!("its thread {thread} waits in {waits}");
    }
    let mut functions: Vec<String> = threads::hanging_threads(&BESIDE)
        .into_iter()
        .map(|(thread, function)| format!("{thread} in {function}"))
        .collect();
    functions.truncate(STACK_MAX);
    match functions.as_slice() {
        [] => "it waits in the background, and no thread of the server hangs in the kernel".to_owned(),
        some => format!("it waits in the background; threads that hang in the kernel: {}", some.join(", ")),
    }
}

impl Told {
    /// Whether a line may be written; how many were left out before it.
    fn may_tell(&mut self, now: Instant) -> Option<u64> {
        let refilled = (now - self.since).as_nanos() / REFILL.as_nanos();
        if refilled > 0 {
            self.left = self.left.saturating_add(u32::try_from(refilled).unwrap_or(BURST)).min(BURST);
            self.since = now;
        }
        if self.left == 0 {
            self.silent += 1;
            return None;
        }
        self.left -= 1;
        Some(std::mem::take(&mut self.silent))
    }
}

impl StallSink for StallLog {
    fn began(&self, stall: &Stall) {
        self.counts.began.fetch_add(1, Ordering::Relaxed);
        let Some(silent) = self.told.lock().may_tell(Instant::now()) else { return };
        self.told.lock().requests.insert(stall.unique);
        let (what, waits) = (self.describe(stall), waits_for(stall));
        let others = match silent {
            0 => String::new(),
            count => format!("; {count} others were not told of"),
        };
        tracing::warn!("under way for {:.1} s at least: {what}; {waits}{others}", stall.age.as_secs_f64());
    }

    fn ended(&self, stall: &Stall) {
        self.counts.ended.fetch_add(1, Ordering::Relaxed);
        if self.told.lock().requests.remove(&stall.unique) {
            let operation = Opcode::new(stall.opcode).map_or("an unknown operation", Opcode::name);
            let age = stall.age.as_secs_f64();
            tracing::warn!("ended after {age:.1} s: {operation} (request {})", stall.unique);
        }
    }
}

impl std::fmt::Debug for StallLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StallLog").field("counts", &self.counts).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn many_at_once_are_counted_and_not_all_told() {
        let start = Instant::now();
        let mut told = Told { requests: HashSet::new(), left: BURST, since: start, silent: 0 };
        let lines = (0..100).filter(|_| told.may_tell(start).is_some()).count();
        assert_eq!(lines, BURST as usize);
        assert_eq!(told.may_tell(start + REFILL), Some(100 - u64::from(BURST)));
        assert_eq!(told.may_tell(start + REFILL), None);
        let later = start + REFILL * 1000;
        assert_eq!((0..100).filter(|_| told.may_tell(later).is_some()).count(), BURST as usize);
    }

    #[test]
    fn names_are_shown_and_not_obeyed() {
        assert_eq!(shown(b""), "\"/\"");
        assert_eq!(shown(b"a\x1b[2J\n\xff"), r#""a\u{1b}[2J\n\xFF""#);
    }
}
