//! From the state of mounts to text.

use std::collections::HashSet;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{self, Registry};

use super::metric::{Kind, Metric, Samples, Unit, Value};
use super::snapshot::Snapshot;
use super::table;

/// Samples of a metric by the mount that they are of.
type Rows = Vec<(String, Vec<String>, Value)>;

/// What must be told: each metric with its samples.
#[derive(Debug)]
struct Exposition(Vec<(&'static Metric, Rows)>);

/// The state of mounts in OpenMetrics 1.0. Of mounts with the same name the first one counts.
pub(super) fn openmetrics(mounts: &[Snapshot]) -> String {
    let all = table::all().map(|metric| (metric, rows(metric, mounts)));
    let exposition = Exposition(all.filter(|(_, rows)| !rows.is_empty()).collect());
    let mut registry = Registry::default();
    registry.register_collector(Box::new(exposition));
    let mut out = String::new();
    text::encode(&mut out, &registry).expect("a string takes everything");
    out
}

/// The same in the text format 0.0.4 of Prometheus, which calls the families of counters as their samples, and knows no units.
pub(super) fn prometheus(openmetrics: &str) -> String {
    let counters: HashSet<String> =
        table::all().filter(|metric| metric.kind == Kind::Counter).map(Metric::family).collect();
    let mut out = String::with_capacity(openmetrics.len());
    for line in openmetrics.lines() {
        let Some(comment) = line.strip_prefix("# ") else {
            out.push_str(line);
            out.push('\n');
            continue;
        };
        let mut words = comment.splitn(3, ' ');
        let (Some(what @ ("HELP" | "TYPE")), Some(name), Some(rest)) =
            (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let suffix = if counters.contains(name) { "_total" } else { "" };
        out.push_str(&format!("# {what} {name}{suffix} {rest}\n"));
    }
    out
}

/// The samples of all mounts. A sample that is there twice would make the whole text invalid for node_exporter, whoever says it twice: the
/// first one counts.
fn rows(metric: &Metric, mounts: &[Snapshot]) -> Rows {
    let (mut rows, mut seen) = (Rows::new(), HashSet::new());
    for mount in mounts {
        let mut samples = Samples::default();
        (metric.read)(mount, &mut samples);
        for (labels, value) in samples.0 {
            if seen.insert((mount.mount.as_str(), labels.clone())) {
                rows.push((mount.mount.clone(), labels, value));
            }
        }
    }
    rows
}

impl Collector for Exposition {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (metric, rows) in &self.0 {
            let unit = match metric.unit {
                Unit::None => None,
                Unit::Bytes => Some(registry::Unit::Bytes),
                Unit::Seconds => Some(registry::Unit::Seconds),
            };
            let kind = match metric.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
            };
            let stem = metric.stem();
            let mut family = encoder.encode_descriptor(&stem, metric.help, unit.as_ref(), kind)?;
            for (mount, values, value) in rows {
                let mut labels = vec![("mount", mount.as_str())];
                let own = metric.labels.iter().copied().zip(values.iter().map(String::as_str));
                // To Prometheus, no value is the same as no label.
                labels.extend(own.filter(|(_, value)| !value.is_empty()));
                encode(&mut family.encode_family(&labels)?, metric.kind, value)?;
            }
        }
        Ok(())
    }
}

fn encode(sample: &mut MetricEncoder<'_>, kind: Kind, value: &Value) -> fmt::Result {
    match (kind, value) {
        (Kind::Counter, Value::Whole(value)) => sample.encode_counter::<NoLabelSet, _, f64>(value, None),
        (Kind::Counter, Value::Real(value)) => sample.encode_counter::<NoLabelSet, _, f64>(value, None),
        (_, Value::Whole(value)) => sample.encode_gauge(value),
        (_, Value::Real(value)) => sample.encode_gauge(value),
        (_, Value::Histogram(all)) => {
            sample.encode_histogram::<NoLabelSet>(all.sum_s, all.count, &all.buckets, None)
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::metrics::snapshot::sample;

    #[test]
    fn families_are_whole_and_named_once() {
        let text = openmetrics(&[sample("/a"), sample("/b"), Snapshot::silent("/c".into())]);
        assert!(text.ends_with("# EOF\n"), "{text}");
        let types: Vec<&str> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
        assert_eq!(types.len(), table::all().count());
        for line in [
            "# TYPE shuntfs_requests counter",
            r#"shuntfs_requests_total{mount="/a",op="READ"} 70"#,
            r#"shuntfs_requests_total{mount="/b",op="READ"} 70"#,
            r#"shuntfs_up{mount="/b"} 1"#,
            r#"shuntfs_up{mount="/c"} 0"#,
            r#"shuntfs_branch_health{mount="/a",branch="/disk2",state="silent"} 1"#,
            "# UNIT shuntfs_image_size_bytes bytes",
        ] {
            assert!(text.lines().any(|other| other == line), "no {line} in\n{text}");
        }
        assert!(
            !text.contains(r#"uptime_seconds{mount="/c"}"#),
            "of a mount that does not answer nothing is known"
        );
    }

    #[test]
    fn the_other_format_calls_counters_as_their_samples() {
        let text = prometheus(&openmetrics(&[sample("/a")]));
        for line in [
            "# TYPE shuntfs_requests_total counter",
            "# TYPE shuntfs_request_duration_seconds histogram",
            "# TYPE shuntfs_process_cpu_seconds_total counter",
            r#"shuntfs_requests_total{mount="/a",op="READ"} 70"#,
        ] {
            assert!(text.lines().any(|other| other == line), "no {line} in\n{text}");
        }
        assert!(text.contains("# HELP shuntfs_requests_total Requests"), "{text}");
        assert!(!text.contains("# UNIT") && !text.contains("# EOF"), "{text}");
    }

    #[test]
    fn names_cannot_leave_their_quotes() {
        let mount = "/a\"} 1\nshuntfs_up{mount=\"/b\\";
        let text = openmetrics(&[Snapshot::silent(mount.into())]);
        let line = r#"shuntfs_up{mount="/a\"} 1\nshuntfs_up{mount=\"/b\\"} 0"#;
        assert!(text.lines().any(|other| other == line), "{text}");
        assert_eq!(text.lines().count(), 4, "{text}");
    }

    /// A server of another user could make root's whole file unreadable.
    #[test]
    fn what_a_server_says_twice_is_told_once() {
        let mut one = sample("/a");
        let pool = one.pool.as_mut().expect("has one");
        pool.branches[1].path = pool.branches[0].path.clone();
        let text = openmetrics(&[one]);
        assert_eq!(text.matches("shuntfs_branch_size_bytes{").count(), 1, "{text}");
    }

    #[test]
    fn no_sample_of_two_mounts_with_one_name_is_there_twice() {
        let text = openmetrics(&[sample("/a"), Snapshot::silent("/a".into()), sample("/a"), sample("/b")]);
        let names = text.lines().filter(|line| !line.starts_with('#'));
        let names: Vec<&str> = names.filter_map(|line| Some(line.rsplit_once(' ')?.0)).collect();
        let different: HashSet<&str> = names.iter().copied().collect();
        assert!(names.len() > 100 && names.len() == different.len(), "{text}");
        assert!(text.contains("shuntfs_up{mount=\"/a\"} 1\n"), "{text}");
    }

    #[test]
    fn buckets_rise_to_the_count() {
        let text = openmetrics(&[sample("/a")]);
        let of_read = |name: &str| {
            let lines = text.lines().filter(|line| line.starts_with(name) && line.contains("op=\"READ\""));
            lines
                .map(|line| line.rsplit(' ').next().expect("a value").parse::<f64>().expect("a number"))
                .collect::<Vec<f64>>()
        };
        let buckets = of_read("shuntfs_request_duration_seconds_bucket");
        let count = of_read("shuntfs_request_duration_seconds_count");
        assert!(buckets.len() > 20 && buckets.is_sorted(), "{buckets:?}");
        assert_eq!(buckets.last(), count.first());
        assert!(text.contains(r#"le="+Inf""#), "{text}");
    }
}
