//! Metrics of every mount: requests, bytes, opens, queues; and of its server's process.

use std::collections::BTreeMap;

use shuntfs::{LatencyStatus, StallStatus};

use super::metric::{Histogram, Metric, Samples, Unit, counter, gauge, histogram};
use super::snapshot::Snapshot;
use crate::control::Status;

/// What every mount has.
pub(super) const MOUNT: &[Metric] = &[
    gauge("up", Unit::None, &[], "Whether the server of the mount answered.", |mount, put| {
        put.truth(&[], mount.status.is_some());
    }),
    gauge(
        "mount_info",
        Unit::None,
        &["source", "transport", "protocol", "version"],
        "Source, transport, protocol and version of the mount; the value is always 1.",
        |mount, put| {
            if let Some(status) = &mount.status {
                let transport = status.session.transport.kind.as_str();
                put.whole(&[&status.folder, transport, &status.protocol, &status.version], 1_u64);
            }
        },
    ),
    gauge("uptime", Unit::Seconds, &[], "Time since the mount.", |mount, put| {
        of_status(mount, put, |status, put| put.whole(&[], status.uptime_s));
    }),
    counter("requests", Unit::None, &["op"], "Requests from the kernel, by operation.", |mount, put| {
        of_status(mount, put, |status, put| {
            for (op, counts) in &status.session.ops {
                put.whole(&[op], counts.requests);
            }
        });
    }),
    counter(
        "request_errors",
        Unit::None,
        &["op"],
        "Requests that were answered with an error, by operation; lookups of missing names count unless the kernel caches the answer.",
        |mount, put| {
            of_status(mount, put, |status, put| {
                for (op, counts) in &status.session.ops {
                    put.whole(&[op], counts.errors);
                }
            });
        },
    ),
    histogram(
        "request_duration",
        &["op", "flow"],
        "Time from the arrival of a request to its answer, for one in eight READ, WRITE and FSYNC requests, by the flow that moved the bytes: none for FSYNC and for errors; relayed READs on io_uring are not timed.",
        |mount, put| of_status(mount, put, durations),
    ),
    counter(
        "transferred",
        Unit::Bytes,
        &["direction", "flow"],
        "Bytes of READ and WRITE requests, by the flow that moved them; bytes in passthrough never reach the server and are not counted.",
        |mount, put| {
            of_status(mount, put, |status, put| {
                let session = &status.session;
                by_flow(put, "read", &session.read_flows);
                by_flow(put, "write", &session.written_flows);
            });
        },
    ),
    counter("opens", Unit::None, &["flow"], "Opens of files, by the flow of the reads.", |mount, put| {
        of_status(mount, put, |status, put| named(put, &status.session.flows))
    }),
    counter(
        "split_opens",
        Unit::None,
        &["flow"],
        "Opens of files whose writes have another flow than their reads, by the flow of the writes.",
        |mount, put| of_status(mount, put, |status, put| named(put, &status.session.write_flows)),
    ),
    counter(
        "downgrades",
        Unit::None,
        &["reason"],
        "Opens of files that did not get the flow that was asked for, by reason.",
        |mount, put| of_status(mount, put, |status, put| named(put, &status.session.downgrades)),
    ),
    counter(
        "malformed_requests",
        Unit::None,
        &[],
        "Requests that did not parse; any is a defect.",
        |mount, put| of_status(mount, put, |status, put| put.whole(&[], status.session.malformed)),
    ),
    counter("panics", Unit::None, &[], "Operations that panicked; any is a defect.", |mount, put| {
        of_status(mount, put, |status, put| put.whole(&[], status.session.panics))
    }),
    counter(
        "stalled_requests",
        Unit::None,
        &[],
        "Requests that took longer than `--stall-after`.",
        |mount, put| of_stalls(mount, put, |stalls| stalls.total),
    ),
    gauge(
        "stalled_requests_now",
        Unit::None,
        &[],
        "Requests that take longer than `--stall-after` and are still in progress.",
        |mount, put| of_stalls(mount, put, |stalls| stalls.now),
    ),
    gauge("open_nodes", Unit::None, &[], "Files and folders that are open.", |mount, put| {
        of_status(mount, put, |status, put| put.whole(&[], status.session.nodes_open));
    }),
    gauge(
        "backing_files_kept",
        Unit::None,
        &[],
        "Backing files that are registered with the kernel and not in use.",
        |mount, put| of_status(mount, put, |status, put| put.whole(&[], status.session.backing_ids_kept)),
    ),
    gauge("queue_depth", Unit::None, &[], "Requests that one queue holds at once.", |mount, put| {
        of_status(mount, put, |status, put| put.whole(&[], status.session.transport.depth))
    }),
    counter("queue_requests", Unit::None, &["queue"], "Requests by queue.", |mount, put| {
        of_status(mount, put, |status, put| by_queue(put, &status.session.queues));
    }),
    gauge(
        "queue_busy_requests",
        Unit::None,
        &["queue"],
        "Requests that a queue has received and not finished.",
        |mount, put| of_status(mount, put, |status, put| by_queue(put, &status.session.queues_busy)),
    ),
    gauge(
        "payload_limit",
        Unit::Bytes,
        &[],
        "Limit of the memory for payloads of requests.",
        |mount, put| {
            of_status(mount, put, |status, put| put.whole(&[], status.session.transport.payload_max))
        },
    ),
];

/// What the process of every server has.
pub(super) const PROCESS: &[Metric] = &[
    gauge("process_open_fds", Unit::None, &[], "Open file descriptors of the server.", |mount, put| {
        of_status(mount, put, |status, put| put.whole(&[], status.process.open_fds));
    }),
    gauge(
        "process_max_fds",
        Unit::None,
        &[],
        "Limit of open file descriptors of the server.",
        |mount, put| {
            of_status(mount, put, |status, put| put.whole(&[], status.process.max_fds));
        },
    ),
    gauge("process_threads", Unit::None, &[], "Threads of the server.", |mount, put| {
        of_status(mount, put, |status, put| put.whole(&[], status.process.threads));
    }),
    gauge("process_resident_memory", Unit::Bytes, &[], "Resident memory of the server.", |mount, put| {
        of_status(mount, put, |status, put| put.whole(&[], status.process.resident_bytes))
    }),
    counter("process_cpu", Unit::Seconds, &[], "CPU time of the server, user and system.", |mount, put| {
        of_status(mount, put, |status, put| put.real(&[], seconds(status.process.cpu_ms, 1e3)));
    }),
];

/// Buckets end at powers of two nanoseconds, as the steps of the server's own counts do: from 2 µs to 17 s.
const FIRST_BUCKET: u32 = 11;
const LAST_BUCKET: u32 = 34;

pub(super) fn of_status(mount: &Snapshot, put: &mut Samples, read: fn(&Status, &mut Samples)) {
    if let Some(status) = &mount.status {
        read(status, put);
    }
}

/// Nothing where nobody looks.
fn of_stalls(mount: &Snapshot, put: &mut Samples, read: fn(&StallStatus) -> u64) {
    let stalls = mount.status.as_ref().map(|status| &status.session.stalls);
    if let Some(stalls) = stalls.filter(|stalls| stalls.limit_ms.is_some()) {
        put.whole(&[], read(stalls));
    }
}

fn durations(status: &Status, put: &mut Samples) {
    let session = &status.session;
    for (op, flows) in &session.latency_flows {
        for (flow, latency) in flows {
            put.histogram(&[op, flow], of_latency(latency));
        }
    }
    // A server of an older version does not tell them apart.
    for (op, latency) in session.latency.iter().filter(|(op, _)| !session.latency_flows.contains_key(*op)) {
        put.histogram(&[op, ""], of_latency(latency));
    }
}

fn of_latency(latency: &LatencyStatus) -> Histogram {
    let mut buckets: Vec<(u64, u64)> =
        (FIRST_BUCKET..=LAST_BUCKET).map(|power| (1 << power, 0)).chain([(u64::MAX, 0)]).collect();
    let mut count = 0;
    for step in &latency.steps {
        count += step.count;
        if let Some(bucket) = buckets.iter_mut().find(|(end, _)| step.below_ns <= *end) {
            bucket.1 += step.count;
        }
    }
    let end = |ns| if ns == u64::MAX { f64::INFINITY } else { seconds(ns, 1e9) };
    let buckets = buckets.into_iter().map(|(ns, count)| (end(ns), count)).collect();
    Histogram { sum_s: seconds(latency.sum_ns, 1e9), count, buckets }
}

/// A time of whole parts in seconds. Beyond 2^53 parts it is off by a part, which nobody sees.
#[expect(clippy::cast_precision_loss, reason = "a hundred days of nanoseconds are exact")]
pub(super) fn seconds(parts: u64, per_second: f64) -> f64 {
    parts as f64 / per_second
}

fn named(put: &mut Samples, counts: &BTreeMap<String, u64>) {
    for (name, count) in counts {
        put.whole(&[name], *count);
    }
}

fn by_flow(put: &mut Samples, direction: &str, bytes: &BTreeMap<String, u64>) {
    for (flow, bytes) in bytes {
        put.whole(&[direction, flow], *bytes);
    }
}

fn by_queue(put: &mut Samples, counts: &BTreeMap<usize, u64>) {
    for (queue, count) in counts {
        put.whole(&[&queue.to_string()], *count);
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn durations_are_told_by_flow_as_far_as_the_server_tells_them_apart() {
        let mut samples = Samples::default();
        let mut status = crate::metrics::full_status();
        durations(&status, &mut samples);
        status.session.latency_flows.clear();
        durations(&status, &mut samples);
        let labels: Vec<Vec<String>> = samples.0.into_iter().map(|(labels, _)| labels).collect();
        assert_eq!(labels, [["READ", "relay"], ["READ", ""]]);
    }

    #[test]
    fn every_timed_request_is_in_one_bucket() {
        let latency: LatencyStatus = serde_json::from_str(
            r#"{"timed":111,"median_ns":2,"p99_ns":2,"max_ns":2,"sum_ns":5000000000,"steps":[
                {"below_ns":1280,"count":100},{"below_ns":2048,"count":1},{"below_ns":2560,"count":8},
                {"below_ns":1099511627776,"count":2}]}"#,
        )
        .expect("is one");
        let histogram = of_latency(&latency);
        assert_eq!(histogram.count, 111);
        assert_eq!(histogram.buckets.iter().map(|(_, count)| count).sum::<u64>(), 111);
        assert_eq!(histogram.buckets[0], (2.048e-6, 101));
        assert_eq!(histogram.buckets[1], (4.096e-6, 8));
        assert_eq!(histogram.buckets.last(), Some(&(f64::INFINITY, 2)));
        assert!((histogram.sum_s - 5.0).abs() < 1e-9);
        assert!(histogram.buckets.is_sorted_by(|one, other| one.0 < other.0));
    }
}
