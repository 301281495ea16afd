//! Which requests are worth a record.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use shuntfs_sys::threads;
use shuntfs_wire::{InHeader, Opcode};

use super::record::TraceRecord;

/// What a record must be like; evaluated by the queue that serves the request, so that the rest costs little. Default: every request.
#[derive(Clone, Default)]
pub struct TraceFilter {
    /// These operations alone, unless there are none.
    pub operations: Vec<Opcode>,
    /// Requests of this process alone, or of this thread.
    pub process: Option<u32>,
    /// Requests that took so long at least.
    pub slower_than: Duration,
    /// Those alone that were answered with an error, among them lookups of names that do not exist.
    pub errors: bool,
    /// One request of so many alone, as if picked at random, so that the others cost next to nothing; 0 and 1 stand for all. Whoever looks may
    /// change it at any time.
    pub one_of: Arc<AtomicU32>,
    /// What else there is to ask. Called by queues, inline: must not block. A record for which it panics is missing for
    /// everybody who looks; that is counted as a panic of the file system is.
    pub matches: Option<Matches>,
}

/// Whether a record is worth it.
type Matches = Arc<dyn Fn(&TraceRecord) -> bool + Send + Sync>;

impl TraceFilter {
    /// What can be told before the request is served.
    pub(super) fn may_take(&self, header: &InHeader) -> bool {
        let is_operation = |asked: &Opcode| *asked as u32 == header.opcode;
        is_picked(header.unique, self.one_of.load(Ordering::Relaxed))
            && (self.operations.is_empty() || self.operations.iter().any(is_operation))
            && self.process.is_none_or(|process| threads::is_of_process(header.pid, process))
    }

    /// The rest, of a request that [`TraceFilter::may_take`] let pass.
    pub(super) fn takes(&self, record: &TraceRecord) -> bool {
        record.duration >= self.slower_than
            && (!self.errors || record.errno.is_some())
            && self.matches.as_ref().is_none_or(|matches| matches(record))
    }
}

/// Whether a request is one of those that stand for `one_of` each. Programs send requests in rounds, so every nth would always be of one kind:
/// the numbers are spread by the golden ratio first.
fn is_picked(unique: u64, one_of: u32) -> bool {
    one_of <= 1 || (unique.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32).is_multiple_of(one_of.into())
}

impl fmt::Debug for TraceFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceFilter")
            .field("operations", &self.operations)
            .field("process", &self.process)
            .field("slower_than", &self.slower_than)
            .field("errors", &self.errors)
            .field("one_of", &self.one_of)
            .field("matches", &self.matches.is_some())
            .finish()
    }
}

#[cfg(test)]
mod test {
    use zerocopy::FromZeros;

    use super::*;

    /// Numbers rise by two, and a program sends the same few requests again and again.
    #[test]
    fn what_is_picked_is_a_fair_part_of_every_kind_of_request() {
        for one_of in [2_u32, 4, 8, 64] {
            for round in [1_u64, 2, 4, 6, 8, 16] {
                for kind in 0..round {
                    let numbers = (0..20_000).map(|turn| 2 * (turn * round + kind));
                    let picked = numbers.filter(|unique| is_picked(*unique, one_of)).count();
                    let fair = 20_000 / usize::try_from(one_of).expect("small");
                    assert!(picked.abs_diff(fair) < fair / 4, "{kind} of {round}: {picked}, not {fair}");
                }
            }
        }
        assert!((0..100).all(|unique| is_picked(unique, 0) && is_picked(unique, 1)));
    }

    #[test]
    fn how_many_are_picked_may_change() {
        let filter = TraceFilter::default();
        let mut header = InHeader::new_zeroed();
        header.unique = 2;
        assert!(filter.may_take(&header));
        filter.one_of.store(u32::MAX, Ordering::Relaxed);
        assert!(!filter.may_take(&header));
    }
}
