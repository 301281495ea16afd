//! What a metric is: its definition, and the samples that are read for it.

use super::snapshot::Snapshot;

/// What stands in front of every name.
const NAMESPACE: &str = "shuntfs";

/// How its values behave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// They only rise, until the server starts anew.
    Counter,
    /// They rise and fall.
    Gauge,
    /// Counts by duration.
    Histogram,
}

/// What its values are in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unit {
    /// Things.
    None,
    Bytes,
    Seconds,
}

/// Reads the samples of one mount.
pub(crate) type Read = fn(&Snapshot, &mut Samples);

/// One metric.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Metric {
    /// Without namespace, unit and suffix.
    pub(super) word: &'static str,
    pub(super) kind: Kind,
    pub(super) unit: Unit,
    /// Beside `mount`, which all have.
    pub(super) labels: &'static [&'static str],
    /// One sentence.
    pub(super) help: &'static str,
    pub(super) read: Read,
}

/// The value of one sample.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Value {
    Whole(u64),
    Real(f64),
    Histogram(Histogram),
}

/// Counts by duration.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Histogram {
    pub(super) sum_s: f64,
    pub(super) count: u64,
    /// The longest of each bucket in seconds, and how many are in it that are in none before.
    pub(super) buckets: Vec<(f64, u64)>,
}

/// Samples of one metric: the values of its labels, in their order, and its own.
#[derive(Clone, Default, Debug)]
pub(crate) struct Samples(pub(super) Vec<(Vec<String>, Value)>);

pub(super) const fn counter(
    word: &'static str,
    unit: Unit,
    labels: &'static [&'static str],
    help: &'static str,
    read: Read,
) -> Metric {
    Metric { word, kind: Kind::Counter, unit, labels, help, read }
}

pub(super) const fn gauge(
    word: &'static str,
    unit: Unit,
    labels: &'static [&'static str],
    help: &'static str,
    read: Read,
) -> Metric {
    Metric { word, kind: Kind::Gauge, unit, labels, help, read }
}

pub(super) const fn histogram(
    word: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
    read: Read,
) -> Metric {
    Metric { word, kind: Kind::Histogram, unit: Unit::Seconds, labels, help, read }
}

impl Metric {
    /// The name that stands before the unit.
    pub(super) fn stem(&self) -> String {
        format!("{NAMESPACE}_{}", self.word)
    }

    /// The name of the family, as OpenMetrics has it.
    pub(super) fn family(&self) -> String {
        match self.unit {
            Unit::None => self.stem(),
            Unit::Bytes => format!("{}_bytes", self.stem()),
            Unit::Seconds => format!("{}_seconds", self.stem()),
        }
    }

    /// The name that is asked for in Prometheus.
    #[cfg(test)]
    pub(crate) fn name(&self) -> String {
        match self.kind {
            Kind::Counter => format!("{}_total", self.family()),
            _ => self.family(),
        }
    }

    /// The word for its type.
    #[cfg(test)]
    pub(crate) fn kind(&self) -> &'static str {
        match self.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }

    /// Its labels beside `mount`.
    #[cfg(test)]
    pub(crate) fn labels(&self) -> &'static [&'static str] {
        self.labels
    }

    /// What it says.
    #[cfg(test)]
    pub(crate) fn help(&self) -> &'static str {
        self.help
    }
}

impl Samples {
    /// A number of things.
    pub(super) fn whole(&mut self, labels: &[&str], value: impl TryInto<u64>) {
        let value = value.try_into().unwrap_or(u64::MAX);
        self.0.push((owned(labels), Value::Whole(value)));
    }

    /// Whether something is so.
    pub(super) fn truth(&mut self, labels: &[&str], is_so: bool) {
        self.whole(labels, u64::from(is_so));
    }

    /// A quantity.
    pub(super) fn real(&mut self, labels: &[&str], value: f64) {
        self.0.push((owned(labels), Value::Real(value)));
    }

    pub(super) fn histogram(&mut self, labels: &[&str], histogram: Histogram) {
        self.0.push((owned(labels), Value::Histogram(histogram)));
    }
}

fn owned(labels: &[&str]) -> Vec<String> {
    labels.iter().map(|label| (*label).to_owned()).collect()
}
