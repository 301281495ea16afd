//! A session's state at one moment, to be shown.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};
use shuntfs_sys::OsError;
use shuntfs_transport::{NoZeroCopy, NotPinned, Pinned, TransportKind, ZeroCopy};
use shuntfs_wire::Opcode;

use crate::choose::Chosen;
use crate::counters::{Count, OPCODES, QueueCounters};
use crate::delegation::{Flow, Reason};
use crate::latency::{Latencies, LatencyStatus};
use crate::negotiate::Negotiated;
use crate::server::Core;
use crate::stalls::StallStatus;

/// What a session has done so far. Counts of different queues may be a moment apart.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Status {
    /// Where it is mounted, lossily where it is not UTF-8.
    pub path: String,
    /// What is shown as its source.
    pub source: String,
    /// The connection's number.
    pub connection: Option<u32>,
    /// How requests arrive.
    pub transport: TransportStatus,
    /// What was agreed at INIT.
    pub negotiated: Negotiated,
    /// Opens by flow; of their reads, where the writes flow otherwise.
    pub flows: BTreeMap<String, u64>,
    /// Opens whose writes flow otherwise than their reads, by the flow of the writes.
    #[serde(default)]
    pub write_flows: BTreeMap<String, u64>,
    /// Opens that did not get the flow that was requested, by reason; and those that had rather another one
    /// (`read_again`, `near_full`).
    pub downgrades: BTreeMap<String, u64>,
    /// Requests by operation; those that never came are left out.
    pub ops: BTreeMap<String, OpStatus>,
    /// How long requests of an operation took, of those that were timed; one of eight is.
    #[serde(default)]
    pub latency: BTreeMap<String, LatencyStatus>,
    /// The same by what moved the bytes, too; by nothing (the empty name) where none moved.
    #[serde(default)]
    pub latency_flows: BTreeMap<String, BTreeMap<String, LatencyStatus>>,
    /// Requests by queue.
    pub queues: BTreeMap<usize, u64>,
    /// Requests that are at work, by queue: they came and are not done with.
    #[serde(default)]
    pub queues_busy: BTreeMap<usize, u64>,
    /// Bytes that READs which reached us asked for.
    pub read_bytes: u64,
    /// The same by what moved them, which is not always what the open settled on: a long READ goes through a pipe, a short
    /// one of the same file is relayed.
    #[serde(default)]
    pub read_flows: BTreeMap<String, u64>,
    /// READs whose bytes went through a pipe, not copied by us.
    #[serde(default)]
    pub spliced_reads: u64,
    /// Bytes that WRITEs which reached us carried.
    pub written_bytes: u64,
    /// The same by what moved them.
    #[serde(default)]
    pub written_flows: BTreeMap<String, u64>,
    /// Nodes that are open.
    pub nodes_open: usize,
    /// Backing ids kept that no open uses.
    pub backing_ids_kept: usize,
    /// Requests that did not parse.
    pub malformed: u64,
    /// Panics: of operations, and of what is asked for people ([`crate::Filesystem::place_of`], [`crate::TraceFilter::matches`]).
    pub panics: u64,
    /// Requests that took too long.
    #[serde(default)]
    pub stalls: StallStatus,
}

/// How requests arrive.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TransportStatus {
    /// `device`, `cloned` or `uring`.
    pub kind: String,
    /// Why this one.
    pub why: String,
    /// How many queues.
    pub queues: usize,
    /// How many requests each serves at once.
    pub depth: usize,
    /// What the payloads can come to use, in bytes.
    pub payload_max: u64,
    /// How many payloads the pool of each of the kernel's queues has; 0 where each request that is served at once has its own.
    #[serde(default)]
    pub pool_buffers: usize,
    /// Why the memory of those pools is not pinned; `None` where it is.
    #[serde(default)]
    pub pinned_off: Option<String>,
    /// Why no file's bytes are moved by zero copy; `None` where those of files may be whose bytes nobody has to see.
    #[serde(default)]
    pub zero_copy_off: Option<String>,
}

/// What became of one operation's requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OpStatus {
    /// How many came.
    pub requests: u64,
    /// How many were answered with an error. Negative lookups that were cacheable are none.
    pub errors: u64,
}

impl TransportStatus {
    pub(crate) fn of(chosen: &Chosen) -> Self {
        let prepared = &chosen.prepared;
        Self {
            kind: prepared.kind().to_string(),
            why: chosen.why.clone(),
            queues: prepared.queues(),
            depth: prepared.depth(),
            payload_max: prepared.payload_max(),
            pool_buffers: prepared.pool_buffers(),
            pinned_off: prepared.pinned().off().map(|why| why.to_string()),
            zero_copy_off: prepared.zero_copy().off().map(|why| why.to_string()),
        }
    }
}

impl TransportStatus {
    /// The kernel was asked, or refused the rings altogether.
    pub(crate) fn settled(&mut self, zero_copy: &ZeroCopy, pinned: &Pinned, no_rings: bool) {
        let not_pinned = if no_rings { Some(NotPinned::NoPool) } else { pinned.off() };
        self.pinned_off = not_pinned.map(|why| why.to_string());
        let off = if no_rings { Some(NoZeroCopy::NoRing) } else { zero_copy.off() };
        self.zero_copy_off = off.map(|why| why.to_string());
        if no_rings {
            self.pool_buffers = 0;
        }
    }

    /// The kernel refused the rings after INIT: the one reader beside them serves all requests.
    pub(crate) fn fell_back(&mut self, error: OsError) {
        self.kind = TransportKind::Device.to_string();
        self.why = format!("the kernel refused the rings ({error}), so requests come through the device");
        self.queues = 1;
    }
}

impl Status {
    pub(crate) fn of(
        core: &Core,
        transport: &TransportStatus,
        (path, source): (&Path, &str),
        connection: Option<u32>,
    ) -> Self {
        let queues = core.counters.queues();
        let sum = |count: &dyn Fn(&QueueCounters) -> &Count| {
            queues.iter().map(|queue| count(queue).read()).sum::<u64>()
        };
        let flows = Flow::ALL.map(|flow| (flow.name().into(), sum(&|queue| &queue.flows[flow as usize])));
        let write_flows = Flow::ALL
            .into_iter()
            .map(|flow| (flow.name().into(), sum(&|queue| &queue.write_flows[flow as usize])));
        let downgrades = Reason::ALL.into_iter().filter(|reason| *reason != Reason::Wished);
        let downgrades =
            downgrades.map(|reason| (reason.name().into(), sum(&|queue| &queue.reasons[reason as usize])));
        let bytes = |count: &dyn Fn(&QueueCounters, usize) -> u64| -> BTreeMap<String, u64> {
            let of_flow = |flow: Flow| queues.iter().map(|queue| count(queue, flow as usize)).sum::<u64>();
            let all = Flow::ALL.map(|flow| (flow.name().to_owned(), of_flow(flow)));
            all.into_iter().filter(|(_, bytes)| *bytes > 0).collect()
        };
        let read_flows = bytes(&|queue, flow| queue.read_bytes[flow].read());
        let written_flows = bytes(&|queue, flow| queue.written_bytes[flow].read());
        Self {
            path: path.to_string_lossy().into_owned(),
            source: source.into(),
            connection,
            transport: transport.clone(),
            negotiated: core.negotiated,
            flows: flows.into(),
            write_flows: write_flows.filter(|(_, count)| *count > 0).collect(),
            downgrades: downgrades.filter(|(_, count)| *count > 0).collect(),
            ops: ops(&queues),
            latency: Latencies::by_operation(queues.iter().map(|queue| &queue.latencies)),
            latency_flows: Latencies::by_flow(queues.iter().map(|queue| &queue.latencies)),
            queues_busy: queues.iter().map(|queue| (queue.index, busy(queue))).collect(),
            queues: queues.iter().map(|queue| (queue.index, total(queue))).collect(),
            read_bytes: read_flows.values().sum(),
            read_flows,
            spliced_reads: sum(&|queue| &queue.spliced_reads),
            written_bytes: written_flows.values().sum(),
            written_flows,
            nodes_open: core.nodes.open_count(),
            backing_ids_kept: core.nodes.kept_count(),
            malformed: sum(&|queue| &queue.malformed),
            panics: sum(&|queue| &queue.panics) + core.counters.panics_aside.load(Ordering::Relaxed),
            stalls: core.stalls.status(),
        }
    }

    /// How many requests of an operation came.
    #[must_use]
    pub fn requests(&self, opcode: Opcode) -> u64 {
        self.ops.get(opcode.name()).map_or(0, |op| op.requests)
    }
}

fn total(queue: &QueueCounters) -> u64 {
    queue.requests.iter().map(Count::read).sum()
}

/// Those that are done with are read first, so that one that comes meanwhile is not taken for one that is done.
fn busy(queue: &QueueCounters) -> u64 {
    let finished = queue.finished.read();
    total(queue).saturating_sub(finished)
}

fn ops(queues: &[Arc<QueueCounters>]) -> BTreeMap<String, OpStatus> {
    let count = |place: usize| OpStatus {
        requests: queues.iter().map(|queue| queue.requests[place].read()).sum(),
        errors: queues.iter().map(|queue| queue.errors[place].read()).sum(),
    };
    let all = (0..OPCODES).map(|place| {
        let opcode = u32::try_from(place).ok().and_then(Opcode::new);
        (opcode.map_or_else(|| format!("UNKNOWN_{place}"), |opcode| opcode.name().into()), count(place))
    });
    all.filter(|(_, op)| op.requests > 0).collect()
}

#[cfg(test)]
mod test {
    use super::*;

    /// A regression: it still named the rings, and how many of them there were.
    #[test]
    fn a_session_whose_rings_were_refused_says_so() {
        let mut status = TransportStatus {
            kind: "uring".into(),
            why: "the kernel offers io_uring".into(),
            queues: 9,
            depth: 8,
            payload_max: 1 << 20,
            pool_buffers: 3,
            pinned_off: None,
            zero_copy_off: None,
        };
        status.fell_back(OsError::INVAL);
        assert_eq!((status.kind.as_str(), status.queues), ("device", 1));
        assert!(status.why.contains("refused the rings"), "{}", status.why);
    }
}
