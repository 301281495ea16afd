//! How long requests take, from their arrival to their answer.
//!
//! One request of [`EVERY`] is timed: two looks at the clock cost as much as the counters of a request do together. A
//! relayed READ on a ring is not timed: its answer leaves in the kernel, with the read that it is linked to.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use shuntfs_wire::Opcode;

use crate::counters::Count;

/// Of so many requests one is timed.
const EVERY: u64 = 8;
/// Steps of a quarter of an octave, from 1 ns to half an hour.
const STEPS: usize = 164;
/// The operations that are timed.
const TIMED: [Opcode; 3] = [Opcode::Read, Opcode::Write, Opcode::Fsync];

/// The times of one queue.
#[derive(Debug)]
pub(crate) struct Latencies([Times; TIMED.len()]);

/// The times of one operation.
#[derive(Debug)]
struct Times {
    steps: [Count; STEPS],
    sum_ns: Count,
}

/// A request that is timed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timed {
    operation: usize,
    since: Instant,
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
    pub(crate) const fn new() -> Self {
        Self([const { Times { steps: [const { Count::new() }; STEPS], sum_ns: Count::new() } }; TIMED.len()])
    }

    /// Starts timing the request that is the `count`th of its kind, where it is its turn.
    pub(crate) fn start(opcode: Option<Opcode>, count: u64) -> Option<Timed> {
        // The first one is, so that there is something to see at once.
        if count % EVERY != 1 {
            return None;
        }
        let operation = TIMED.iter().position(|timed| Some(*timed) == opcode)?;
        Some(Timed { operation, since: Instant::now() })
    }

    /// Notes how long it took. For the queue's own thread only.
    pub(crate) fn end(&self, timed: Timed) {
        self.0[timed.operation].add(timed.since.elapsed(), 1);
    }

    /// What was timed, by operation, of all queues together.
    pub(crate) fn sum<'a>(
        queues: impl Iterator<Item = &'a Self> + Clone,
    ) -> impl Iterator<Item = (Opcode, LatencyStatus)> {
        TIMED.into_iter().enumerate().filter_map(move |(operation, opcode)| {
            let (mut steps, mut sum_ns) = ([0_u64; STEPS], 0_u64);
            for queue in queues.clone() {
                let times = &queue.0[operation];
                for (sum, count) in steps.iter_mut().zip(&times.steps) {
                    *sum += count.read();
                }
                sum_ns = sum_ns.wrapping_add(times.sum_ns.read());
            }
            Some((opcode, of_steps(&steps, sum_ns)?))
        })
    }
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
        let read = TIMED.iter().position(|timed| *timed == Opcode::Read).expect("is timed");
        let put = |ns, count: u64| latencies.0[read].add(Duration::from_nanos(ns), count);
        put(1000, 98);
        put(100_000, 1);
        put(10_000_000, 1);
        let all: Vec<_> = Latencies::sum([&latencies].into_iter()).collect();
        let [(Opcode::Read, status)] = all.as_slice() else { panic!("{all:?}") };
        assert_eq!(status.timed, 100);
        assert!((1000..1300).contains(&status.median_ns), "{status:?}");
        assert!((100_000..130_000).contains(&status.p99_ns), "{status:?}");
        assert!((10_000_000..13_000_000).contains(&status.max_ns), "{status:?}");
        assert_eq!(status.sum_ns, 98 * 1000 + 100_000 + 10_000_000);
        assert_eq!(status.steps.iter().map(|step| step.count).collect::<Vec<_>>(), [98, 1, 1]);
        assert!(status.steps.is_sorted_by_key(|step| step.below_ns), "{status:?}");
    }

    #[test]
    fn one_of_eight_is_timed_and_only_what_moves_bytes() {
        let timed = (0..80).filter_map(|count| Latencies::start(Some(Opcode::Write), count)).count();
        assert_eq!(timed, 10);
        assert!(Latencies::start(Some(Opcode::Getattr), 1).is_none());
    }
}
