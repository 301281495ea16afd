//! Which requests are worth a record.

use std::fmt;
use std::sync::Arc;
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
    /// Those alone that were answered with an error, among them lookups of names that are not there.
    pub errors: bool,
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
        (self.operations.is_empty() || self.operations.iter().any(is_operation))
            && self.process.is_none_or(|process| threads::is_of_process(header.pid, process))
    }

    /// The rest, of a request that [`TraceFilter::may_take`] let pass.
    pub(super) fn takes(&self, record: &TraceRecord) -> bool {
        record.duration >= self.slower_than
            && (!self.errors || record.errno.is_some())
            && self.matches.as_ref().is_none_or(|matches| matches(record))
    }
}

impl fmt::Debug for TraceFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceFilter")
            .field("operations", &self.operations)
            .field("process", &self.process)
            .field("slower_than", &self.slower_than)
            .field("errors", &self.errors)
            .field("matches", &self.matches.is_some())
            .finish()
    }
}
