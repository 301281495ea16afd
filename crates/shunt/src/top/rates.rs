//! What happened between two looks at a mount.

use std::collections::BTreeMap;

use serde::Serialize;
use shuntfs::LatencyStep;

use super::load::Load;
use crate::control::{AskError, Status};
use crate::metrics::{BranchFacts, PoolFacts};
use crate::mounts::shown;
use crate::survey::Asked;

/// One mount in one interval. Rates are by the second.
#[derive(Clone, Default, PartialEq, Debug, Serialize)]
pub(super) struct Rates {
    pub(super) mount: String,
    pub(super) source: String,
    /// `mounted`, or why nothing is known of it.
    pub(super) state: String,
    pub(super) transport: String,
    pub(super) uptime_s: u64,
    /// How long the interval was; 0 where nothing is known of its begin.
    pub(super) interval_s: f64,
    pub(super) ops_per_s: f64,
    pub(super) errors_per_s: f64,
    pub(super) read_bytes_per_s: f64,
    pub(super) written_bytes_per_s: f64,
    /// Requests that are at work.
    pub(super) busy: u64,
    /// Of all that were timed.
    pub(super) latency: Option<Latency>,
    pub(super) ops: Vec<Op>,
    pub(super) flows: Vec<Flow>,
    pub(super) queues: Vec<Queue>,
    pub(super) branches: Vec<Branch>,
    pub(super) process: Process,
    /// What files and processes asked; `None` where that is not known, or not yet.
    pub(super) load: Option<Load>,
    /// Why it is not known.
    pub(super) load_error: Option<String>,
    /// Whether files were ever opened in passthrough, so that bytes may flow that nobody sees.
    #[serde(skip)]
    pub(super) has_passthrough: bool,
    /// The number of its connection.
    #[serde(skip)]
    pub(super) connection: u64,
}

/// How long requests took. Of the times of many, the upper end of a step of a quarter of an octave.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Latency {
    /// How many were timed.
    pub(super) timed: u64,
    pub(super) p50_ns: u64,
    pub(super) p99_ns: u64,
    pub(super) max_ns: u64,
}

/// One operation.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Op {
    pub(super) op: String,
    pub(super) per_s: f64,
    pub(super) errors_per_s: f64,
    pub(super) latency: Option<Latency>,
}

/// One flow.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Flow {
    pub(super) flow: String,
    pub(super) opens_per_s: f64,
    pub(super) read_bytes_per_s: f64,
    pub(super) written_bytes_per_s: f64,
}

/// One queue.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Queue {
    pub(super) queue: usize,
    pub(super) per_s: f64,
    pub(super) busy: u64,
    pub(super) depth: usize,
}

/// One branch.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Branch {
    pub(super) branch: String,
    pub(super) health: String,
    pub(super) why: Option<String>,
    pub(super) available: Option<u64>,
    pub(super) total: Option<u64>,
    pub(super) read_bytes_per_s: f64,
    pub(super) written_bytes_per_s: f64,
    pub(super) errors_per_s: f64,
    pub(super) lookup_ns: Option<u64>,
}

/// The server's process.
#[derive(Clone, Default, PartialEq, Debug, Serialize)]
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) cpu_percent: f64,
    pub(super) resident_bytes: u64,
    pub(super) open_fds: u64,
    pub(super) max_fds: u64,
}

/// Two states of a server, and how far they are apart.
struct Between<'a> {
    before: Option<&'a Status>,
    now: &'a Status,
    seconds: f64,
}

/// What happened to each mount. One that is new, or whose server is, has no rates yet.
pub(super) fn all(before: &[Asked], now: &[Asked]) -> Vec<Rates> {
    let earlier: BTreeMap<u64, &Asked> = before.iter().map(|asked| (asked.connection, asked)).collect();
    now.iter().map(|asked| of(earlier.get(&asked.connection).copied(), asked)).collect()
}

fn of(before: Option<&Asked>, asked: &Asked) -> Rates {
    let now = match &asked.answer {
        Ok(now) => now,
        Err(error) => {
            let (mount, state) = (asked.mount.clone(), state_of(error).into());
            return Rates { mount, state, connection: asked.connection, ..Rates::default() };
        }
    };
    let same = before.and_then(|before| Some((before.answer.as_ref().ok()?, before.at)));
    let same = same.filter(|(before, _)| before.pid == now.pid);
    let seconds = same.map_or(0.0, |(_, at)| asked.at.saturating_duration_since(at).as_secs_f64());
    let between = Between { before: same.map(|(before, _)| before), now, seconds };
    let (ops, flows) = (between.ops(), between.flows());
    let (load, load_error) = match &asked.load {
        None => (None, None),
        Some(Ok(told)) => (Load::of(told), None),
        Some(Err(why)) => (None, Some(shown(why))),
    };
    Rates {
        mount: asked.mount.clone(),
        source: now.folder.clone(),
        state: "mounted".into(),
        transport: now.session.transport.kind.clone(),
        uptime_s: now.uptime_s,
        interval_s: seconds,
        ops_per_s: total(ops.iter().map(|op| op.per_s)),
        errors_per_s: total(ops.iter().map(|op| op.errors_per_s)),
        read_bytes_per_s: total(flows.iter().map(|flow| flow.read_bytes_per_s)),
        written_bytes_per_s: total(flows.iter().map(|flow| flow.written_bytes_per_s)),
        busy: now.session.queues_busy.values().sum(),
        latency: between.latency_of_all(),
        ops,
        flows,
        queues: between.queues(),
        branches: between.branches(),
        process: between.process(),
        has_passthrough: now
            .session
            .flows
            .get(shuntfs::Flow::Passthrough.name())
            .is_some_and(|opens| *opens > 0),
        connection: asked.connection,
        load,
        load_error,
    }
}

/// The sum of rates. That of none is zero: `sum` makes -0 of it, which would be shown.
pub(super) fn total(rates: impl Iterator<Item = f64>) -> f64 {
    rates.fold(0.0, |all, rate| all + rate)
}

fn state_of(error: &AskError) -> &'static str {
    match error {
        AskError::NoServer => "no server",
        AskError::NotAllowed => "not yours",
        AskError::Silent { .. } | AskError::NotInTime => "silent",
        _ => "no answer",
    }
}

impl Between<'_> {
    /// The rate of what only rises; 0 where nothing is known of before.
    #[expect(clippy::cast_precision_loss, reason = "what happens in an interval is far below 2^53")]
    fn rate(&self, count: impl Fn(&Status) -> u64) -> f64 {
        match self.before {
            Some(before) if self.seconds > 0.0 => {
                count(self.now).saturating_sub(count(before)) as f64 / self.seconds
            }
            _ => 0.0,
        }
    }

    /// What happened often first.
    fn ops(&self) -> Vec<Op> {
        let op = |name: &String| Op {
            op: name.clone(),
            per_s: self.rate(|status| status.session.ops.get(name).map_or(0, |op| op.requests)),
            errors_per_s: self.rate(|status| status.session.ops.get(name).map_or(0, |op| op.errors)),
            latency: self.latency(|op| op == name),
        };
        let mut ops: Vec<Op> = self.now.session.ops.keys().map(op).filter(|op| op.per_s > 0.0).collect();
        ops.sort_by(|one, other| other.per_s.total_cmp(&one.per_s).then_with(|| one.op.cmp(&other.op)));
        ops
    }

    fn flows(&self) -> Vec<Flow> {
        let session = &self.now.session;
        let names = session.flows.keys().chain(session.read_flows.keys()).chain(session.written_flows.keys());
        let names: std::collections::BTreeSet<&String> = names.collect();
        let flow = |name: &String| {
            let of = |counts: &BTreeMap<String, u64>| counts.get(name).copied().unwrap_or_default();
            Flow {
                flow: name.clone(),
                opens_per_s: self.rate(|status| of(&status.session.flows)),
                read_bytes_per_s: self.rate(|status| of(&status.session.read_flows)),
                written_bytes_per_s: self.rate(|status| of(&status.session.written_flows)),
            }
        };
        let moves = |flow: &Flow| flow.opens_per_s + flow.read_bytes_per_s + flow.written_bytes_per_s > 0.0;
        names.into_iter().map(flow).filter(moves).collect()
    }

    fn queues(&self) -> Vec<Queue> {
        let queue = |number: &usize| Queue {
            queue: *number,
            per_s: self.rate(|status| status.session.queues.get(number).copied().unwrap_or_default()),
            busy: self.now.session.queues_busy.get(number).copied().unwrap_or_default(),
            depth: self.now.session.transport.depth,
        };
        self.now.session.queues.keys().map(queue).collect()
    }

    fn branches(&self) -> Vec<Branch> {
        let of = |status: &Status| -> Vec<BranchFacts> {
            serde_json::from_value::<PoolFacts>(status.pool.clone()).unwrap_or_default().branches
        };
        let before = self.before.map(of).unwrap_or_default();
        let branch = |now: BranchFacts| {
            let earlier = before.iter().find(|branch| branch.path == now.path);
            let rate = |count: fn(&BranchFacts) -> u64| {
                self.rate(|status| {
                    if std::ptr::eq(status, self.now) {
                        count(&now)
                    } else {
                        earlier.map_or(count(&now), count)
                    }
                })
            };
            Branch {
                read_bytes_per_s: rate(|branch| branch.read_bytes),
                written_bytes_per_s: rate(|branch| branch.written_bytes),
                errors_per_s: rate(|branch| branch.errors),
                branch: now.path,
                health: now.health,
                why: now.why,
                available: now.available,
                total: now.total,
                lookup_ns: now.lookup_ns,
            }
        };
        of(self.now).into_iter().map(branch).collect()
    }

    fn process(&self) -> Process {
        let now = &self.now.process;
        Process {
            pid: self.now.pid,
            cpu_percent: self.rate(|status| status.process.cpu_ms) / 10.0,
            resident_bytes: now.resident_bytes,
            open_fds: now.open_fds,
            max_fds: now.max_fds,
        }
    }

    fn latency_of_all(&self) -> Option<Latency> {
        self.latency(|_| true)
    }

    /// How long the requests of the interval took, of these operations together.
    fn latency(&self, is_meant: impl Fn(&str) -> bool) -> Option<Latency> {
        let before = self.before?;
        let mut steps: BTreeMap<u64, u64> = BTreeMap::new();
        for (op, latency) in self.now.session.latency.iter().filter(|(op, _)| is_meant(op)) {
            let earlier = before.session.latency.get(op).map_or(&[][..], |latency| &latency.steps);
            for step in &latency.steps {
                let same = |other: &&LatencyStep| other.below_ns == step.below_ns;
                let past = earlier.iter().find(same).map_or(0, |step| step.count);
                *steps.entry(step.below_ns).or_default() += step.count.saturating_sub(past);
            }
        }
        of_steps(&steps)
    }
}

fn of_steps(steps: &BTreeMap<u64, u64>) -> Option<Latency> {
    let timed: u64 = steps.values().sum();
    let reaches = |share: u64| {
        let mut seen = 0_u64;
        let step = steps.iter().find(|(_, count)| {
            seen += **count;
            **count > 0 && seen.saturating_mul(100) >= timed.saturating_mul(share)
        });
        step.map_or(0, |(below_ns, _)| *below_ns)
    };
    (timed > 0).then(|| Latency { timed, p50_ns: reaches(50), p99_ns: reaches(99), max_ns: reaches(100) })
}

#[cfg(test)]
pub(super) mod test {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::metrics::full_status;

    pub(in crate::top) fn asked(mount: &str, status: Status, at: Instant) -> Asked {
        let load = Some(Ok(crate::top::load::test::told()));
        Asked { mount: mount.into(), connection: 42, answer: Ok(status), at, load }
    }

    /// Two seconds in which something happened.
    pub(in crate::top) fn busy_mount() -> Rates {
        let start = Instant::now();
        let before = asked("/mnt", full_status(), start);
        let after = asked("/mnt", later(), start + Duration::from_secs(2));
        all(&[before], &[after]).remove(0)
    }

    fn later() -> Status {
        let text = serde_json::to_string(&full_status()).expect("is plain data");
        let mut status: serde_json::Value = serde_json::from_str(&text).expect("is JSON");
        status["session"]["ops"]["READ"] = serde_json::json!({"requests": 2070, "errors": 4});
        status["session"]["read_flows"]["relay"] = (4096 + 2048 * 1024).into();
        status["session"]["queues"]["0"] = 1070.into();
        status["session"]["latency"]["READ"]["steps"] = serde_json::json!([
            {"below_ns": 2048, "count": 8}, {"below_ns": 10240, "count": 99}, {"below_ns": 40960, "count": 2}]);
        status["pool"]["branches"][0]["read_bytes"] = (4096 + 2048 * 1024).into();
        status["process"]["cpu_ms"] = 2234.into();
        serde_json::from_value(status).expect("is one")
    }

    #[test]
    #[expect(clippy::float_cmp, reason = "halves are exact")]
    fn rates_are_what_happened_by_the_second() {
        let rates = busy_mount();
        assert_eq!((rates.ops_per_s, rates.errors_per_s), (1000.0, 2.0));
        assert_eq!((rates.read_bytes_per_s, rates.written_bytes_per_s), (1_048_576.0, 0.0));
        assert_eq!(rates.ops.len(), 1, "{:?}", rates.ops);
        assert_eq!(rates.queues[0].per_s, 500.0);
        assert_eq!(rates.branches[0].read_bytes_per_s, 1_048_576.0);
        assert_eq!(rates.process.cpu_percent, 50.0);
        // Not the eight that took 2 µs before.
        let latency = Latency { timed: 100, p50_ns: 10240, p99_ns: 40960, max_ns: 40960 };
        assert_eq!(rates.latency, Some(latency));
        assert_eq!(rates.ops[0].latency, Some(latency));
    }

    #[test]
    fn a_new_server_has_no_rates_yet() {
        let start = Instant::now();
        let before = asked("/mnt", later(), start);
        let other = Status { pid: 6, ..full_status() };
        let after = asked("/mnt", other, start + Duration::from_secs(1));
        for earlier in [&[before][..], &[]] {
            let rates = all(earlier, std::slice::from_ref(&after)).remove(0);
            assert_eq!((rates.interval_s, rates.ops_per_s, rates.latency), (0.0, 0.0, None));
            assert_eq!(rates.branches.len(), 2);
        }
    }

    #[test]
    fn a_server_that_does_not_answer_has_a_state() {
        let silent = Asked {
            mount: "/mnt".into(),
            connection: 1,
            answer: Err(AskError::Silent { pid: 1 }),
            at: Instant::now(),
            load: None,
        };
        assert_eq!(all(&[], &[silent])[0].state, "silent");
    }
}
