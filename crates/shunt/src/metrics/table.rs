//! All metrics, in the order that they are printed in.

use super::metric::Metric;
use super::{of_mount, of_pool};

/// Every table of metrics.
pub(crate) const METRICS: [&[Metric]; 5] =
    [of_mount::MOUNT, of_mount::PROCESS, of_pool::POOL, of_pool::CHECKS, of_pool::IMAGE];

/// Every metric.
pub(super) fn all() -> impl Iterator<Item = &'static Metric> {
    METRICS.iter().copied().flatten()
}

#[cfg(test)]
mod test {
    use std::collections::BTreeSet;

    use super::*;
    use crate::metrics::metric::{Kind, Samples};
    use crate::metrics::snapshot::sample;

    #[test]
    fn names_go_by_the_conventions_of_prometheus() {
        let mut names = BTreeSet::new();
        for metric in all() {
            let name = metric.name();
            assert!(names.insert(name.clone()), "{name} is there twice");
            assert!(
                name.starts_with("shuntfs_")
                    && name.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase()),
                "{name}"
            );
            assert_eq!(name.ends_with("_total"), metric.kind == Kind::Counter, "{name}");
            assert!(
                metric.help().ends_with('.') && !metric.help().contains('\n'),
                "{name}: {}",
                metric.help()
            );
            assert!(!metric.labels().contains(&"mount") && !metric.labels().contains(&"le"), "{name}");
        }
    }

    #[test]
    fn every_metric_is_read_and_has_as_many_labels_as_it_says() {
        let snapshot = sample("/mnt");
        for metric in all() {
            let mut samples = Samples::default();
            (metric.read)(&snapshot, &mut samples);
            assert!(!samples.0.is_empty(), "{} is not in the sample", metric.name());
            for (labels, _) in &samples.0 {
                assert_eq!(labels.len(), metric.labels().len(), "{}: {labels:?}", metric.name());
            }
        }
    }

    /// The page has a table of all metrics, which is this one.
    #[test]
    fn the_documentation_has_every_metric_and_no_other() {
        let text = include_str!("../../../../docs/metrics.md");
        let documented: Vec<&str> = text.lines().filter(|line| line.starts_with("| `shuntfs_")).collect();
        let rows: Vec<String> = all().map(row).collect();
        assert!(documented == rows, "docs/metrics.md should have these rows:\n{}", rows.join("\n"));
    }

    /// An alert or a graph of what does not exist is empty forever, and nobody sees why.
    #[test]
    fn alerts_and_graphs_are_of_metrics_that_there_are() {
        let names: BTreeSet<String> = all().map(Metric::name).collect();
        for (page, text) in [
            ("the dashboard", include_str!("../../../../contrib/grafana/shuntfs.json")),
            ("the alerts", include_str!("../../../../contrib/prometheus/shuntfs.rules.yml")),
            ("their tests", include_str!("../../../../contrib/prometheus/shuntfs.test.yml")),
        ] {
            let is_part = |letter: char| letter == '_' || letter.is_ascii_lowercase();
            let words =
                text.split(|letter: char| !is_part(letter)).filter(|word| word.starts_with("shuntfs_"));
            let words: BTreeSet<&str> = words.collect();
            assert!(words.len() > 10, "{page}: {words:?}");
            for word in words {
                let word = word.strip_suffix("_bucket").unwrap_or(word);
                assert!(names.contains(word), "{page}: there is no {word}");
            }
        }
    }

    fn row(metric: &Metric) -> String {
        let labels: Vec<String> = metric.labels().iter().map(|label| format!("`{label}`")).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{} ", labels.join(", ")) };
        format!("| `{}` | {} | {labels}| {} |", metric.name(), metric.kind(), metric.help())
    }
}
