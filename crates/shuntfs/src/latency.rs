//! How long requests take, from their arrival to their answer.
//!
//! One request of [`EVERY`] is timed: two looks at the clock cost as much as the counters of a request do together. A
//! relayed READ on a ring is not timed: its answer leaves in the kernel, with the read that it is linked to.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use shuntfs_wire::Opcode;

use crate::counters::Count;
use crate::delegation::Flow;

/// Of so many requests one is timed.
const EVERY: u64 = 8;
/// Steps of a quarter of an octave, from 1 ns to half an hour.
const STEPS: usize = 164;
/// The operations that are timed.
const TIMED: [Opcode; 3] = [Opcode::Read, Opcode::Write, Opcode::Fsync];
/// The operations by what moved their bytes; by nothing, of those that move none, or failed before. Each costs 1.3 KB of memory for each
/// queue, and 27 lines of metrics for each mount, so there are those alone that can be.
const KINDS: [Kind; 13] = [
    (Opcode::Read, None),
    (Opcode::Read, Some(Flow::ZeroCopy)),
    (Opcode::Read, Some(Flow::Splice)),
    (Opcode::Read, Some(Flow::Relay)),
    (Opcode::Read, Some(Flow::Ranges)),
    (Opcode::Read, Some(Flow::Verified)),
    (Opcode::Read, Some(Flow::Served)),
    (Opcode::Write, None),
    (Opcode::Write, Some(Flow::ZeroCopy)),
    (Opcode::Write, Some(Flow::Relay)),
    (Opcode::Write, Some(Flow::Ranges)),
    (Opcode::Write, Some(Flow::Served)),
    (Opcode::Fsync, None),
];

/// An operation, and what moved its bytes.
type Kind = (Opcode, Option<Flow>);

/// The times of one queue.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct Latencies([Times; KINDS.len()]);

/// The times of one kind of request.
#[repr(C)]
#[derive(Debug)]
struct Times {
    steps: [Count; STEPS],
    sum_ns: Count,
}

/// A request that is timed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timed {
    since: Instant,
    operation: Opcode,
    /// What moves its bytes, once that is known.
    pub(crate) flow: Option<Flow>,
}

/// How long the requests of one operation took; of the times of many, the upper end of a step of a quarter of an octave.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LatencyStatus {
    /// How many were timed.
    pub timed: u64,
    /// Half of them took no longer, in nanoseconds.
    pub median_ns: u64,
    /// 99 of 100 took no longer.
    pub p99_ns: u64,
    /// None took longer.
    pub max_ns: u64,
    /// How long all of them took together.
    #[serde(default)]
    pub sum_ns: u64,
    /// How many took how long, the shortest first; steps with nothing in them are left out.
    #[serde(default)]
    pub steps: Vec<LatencyStep>,
}

/// Requests that took about as long: no less than a quarter of an octave less.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LatencyStep {
    /// They took less than this, in nanoseconds; those of the last step, whatever is longer.
    pub below_ns: u64,
    /// How many.
    pub count: u64,
}

impl Latencies {
    /// How many counts it has.
    pub(crate) const COUNTS: usize = KINDS.len() * (STEPS + 1);

    /// What is timed, in the order of the counts.
    pub(crate) fn names() -> impl Iterator<Item = String> {
        KINDS.iter().map(|(operation, flow)| format!("{} {}", operation.name(), flow.map_or("", Flow::name)))
    }

    pub(crate) const fn new() -> Self {
        Self([const { Times { steps: [const { Count::new() }; STEPS], sum_ns: Count::new() } }; KINDS.len()])
    }

    /// Starts timing the request that is the `count`th of its kind, where it is its turn.
    pub(crate) fn start(opcode: Option<Opcode>, count: u64) -> Option<Timed> {
        // The first one is, so that there is something to see at once.
        if count % EVERY != 1 {
            return None;
        }
        let operation = opcode.filter(|opcode| TIMED.contains(opcode))?;
        Some(Timed { since: Instant::now(), operation, flow: None })
    }

    /// Notes how long it took. For the queue's own thread only.
    pub(crate) fn end(&self, timed: Timed) {
        self.0[place(timed.operation, timed.flow)].add(timed.since.elapsed(), 1);
    }

    /// What was timed, by operation, of all queues together.
    pub(crate) fn by_operation<'a>(
        queues: impl Iterator<Item = &'a Self> + Clone,
    ) -> BTreeMap<String, LatencyStatus> {
        let of = |opcode: Opcode| sum(queues.clone(), |(operation, _)| operation == opcode);
        TIMED.iter().filter_map(|opcode| Some((opcode.name().into(), of(*opcode)?))).collect()
    }

    /// The same, by what moved the bytes, too.
    pub(crate) fn by_flow<'a>(
        queues: impl Iterator<Item = &'a Self> + Clone,
    ) -> BTreeMap<String, BTreeMap<String, LatencyStatus>> {
        let mut all = BTreeMap::<String, BTreeMap<String, LatencyStatus>>::new();
        for kind @ (operation, flow) in KINDS {
            if let Some(status) = sum(queues.clone(), |other| other == kind) {
                let flow = flow.map_or("", Flow::name);
                all.entry(operation.name().into()).or_default().insert(flow.into(), status);
            }
        }
        all
    }
}

/// The place of a kind of request; what moved its bytes is left out where that cannot be.
fn place(operation: Opcode, flow: Option<Flow>) -> usize {
    let of = |flow| KINDS.iter().position(|kind| *kind == (operation, flow));
    of(flow).or_else(|| of(None)).unwrap_or_default()
}

/// The times of some kinds of requests; `None` where there are none.
fn sum<'a>(
    queues: impl Iterator<Item = &'a Latencies>,
    is_meant: impl Fn(Kind) -> bool,
) -> Option<LatencyStatus> {
    let (mut steps, mut sum_ns) = ([0_u64; STEPS], 0_u64);
    for queue in queues {
        for (_, times) in KINDS.iter().zip(&queue.0).filter(|(kind, _)| is_meant(**kind)) {
            for (sum, count) in steps.iter_mut().zip(&times.steps) {
                *sum += count.read();
            }
            sum_ns = sum_ns.wrapping_add(times.sum_ns.read());
        }
    }
    of_steps(&steps, sum_ns)
}

impl Times {
    fn add(&self, time: Duration, count: u64) {
        self.steps[step(time)].add(count);
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.sum_ns.add(ns.saturating_mul(count));
    }
}

fn of_steps(steps: &[u64; STEPS], sum_ns: u64) -> Option<LatencyStatus> {
    let timed: u64 = steps.iter().sum();
    let reaches = |share: u64| {
        let mut seen = 0;
        let place = steps.iter().position(|count| {
            seen += count;
            *count > 0 && seen * 100 >= timed * share
        });
        place.map_or(0, end_of)
    };
    (timed > 0).then(|| LatencyStatus {
        timed,
        median_ns: reaches(50),
        p99_ns: reaches(99),
        max_ns: reaches(100),
        sum_ns,
        steps: filled(steps),
    })
}

fn filled(steps: &[u64; STEPS]) -> Vec<LatencyStep> {
    let all = steps.iter().enumerate().filter(|(_, count)| **count > 0);
    all.map(|(step, count)| LatencyStep { below_ns: end_of(step), count: *count }).collect()
}

/// The step that a time is in: its octave, and the quarter of that.
fn step(time: Duration) -> usize {
    let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
    let octave = ns.ilog2();
    let quarter = if octave >= 2 { ns >> (octave - 2) & 3 } else { 0 };
    let quarter = usize::try_from(quarter).unwrap_or_default();
    (octave as usize * 4 + quarter).min(STEPS - 1)
}

/// The first nanosecond beyond a step.
fn end_of(step: usize) -> u64 {
    let (octave, quarter) = (step / 4, step as u64 % 4 + 1);
    // The first two octaves are too short for quarters.
    if octave < 2 { 2 << octave } else { (1_u64 << octave) + ((quarter << octave) >> 2) }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn every_time_is_below_the_end_of_its_step_and_not_far_below() {
        for ns in (1..100_000).chain([1 << 30, (1 << 40) - 1]) {
            let end = end_of(step(Duration::from_nanos(ns)));
            assert!(ns < end.max(2) && end <= ns.max(4) * 5 / 4 + 1, "{ns}: {end}");
        }
        assert_eq!(step(Duration::MAX), STEPS - 1);
    }

    #[test]
    fn parts_of_a_hundred_are_found() {
        let latencies = Latencies::new();
        let put = |flow, ns, count: u64| {
            latencies.0[place(Opcode::Read, flow)].add(Duration::from_nanos(ns), count);
        };
        put(Some(Flow::Served), 1000, 98);
        put(Some(Flow::Relay), 100_000, 1);
        put(None, 10_000_000, 1);
        let all = Latencies::by_operation([&latencies].into_iter());
        let status = &all["READ"];
        assert_eq!(all.len(), 1);
        assert_eq!(status.timed, 100);
        assert!((1000..1300).contains(&status.median_ns), "{status:?}");
        assert!((100_000..130_000).contains(&status.p99_ns), "{status:?}");
        assert!((10_000_000..13_000_000).contains(&status.max_ns), "{status:?}");
        assert_eq!(status.sum_ns, 98 * 1000 + 100_000 + 10_000_000);
        assert_eq!(status.steps.iter().map(|step| step.count).collect::<Vec<_>>(), [98, 1, 1]);
        assert!(status.steps.is_sorted_by_key(|step| step.below_ns), "{status:?}");
    }

    #[test]
    fn times_are_kept_apart_by_what_moved_the_bytes() {
        let (one, other) = (Latencies::new(), Latencies::new());
        let end = |latencies: &Latencies, operation, flow| {
            latencies.end(Timed { since: Instant::now(), operation, flow });
        };
        end(&one, Opcode::Read, Some(Flow::Splice));
        end(&other, Opcode::Read, Some(Flow::Splice));
        end(&one, Opcode::Write, Some(Flow::Served));
        end(&one, Opcode::Write, None);
        // These cannot be, and are not lost.
        end(&one, Opcode::Write, Some(Flow::Verified));
        end(&one, Opcode::Fsync, Some(Flow::Passthrough));
        let all = Latencies::by_flow([&one, &other].into_iter());
        let timed = |op: &str| -> Vec<(&str, u64)> {
            all[op].iter().map(|(flow, status)| (flow.as_str(), status.timed)).collect()
        };
        assert_eq!(timed("READ"), [("splice", 2)]);
        assert_eq!(timed("WRITE"), [("", 2), ("served", 1)]);
        assert_eq!(timed("FSYNC"), [("", 1)]);
        assert_eq!(Latencies::by_operation([&one, &other].into_iter())["WRITE"].timed, 3);
    }

    /// Whoever keeps metrics pays for each.
    #[test]
    fn kinds_are_few_and_each_operation_has_one_without_a_flow() {
        assert!(KINDS.len() <= 13);
        for operation in TIMED {
            assert_eq!(KINDS[place(operation, None)], (operation, None));
        }
    }

    #[test]
    fn one_of_eight_is_timed_and_only_what_moves_bytes() {
        let timed = (0..80).filter_map(|count| Latencies::start(Some(Opcode::Write), count)).count();
        assert_eq!(timed, 10);
        assert!(Latencies::start(Some(Opcode::Getattr), 1).is_none());
    }
}
