//! Every argument and flag of `shunt metrics`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Arguments of `shunt metrics`.
#[derive(Debug, Args)]
pub struct MetricsArgs {
    /// The mount points [default: all mounts of shunt].
    #[arg(value_name = "MNT", value_hint = clap::ValueHint::DirPath)]
    pub mountpoints: Vec<PathBuf>,
    /// All mounts of shunt; the default without MNT.
    #[arg(long, conflicts_with = "mountpoints")]
    pub all: bool,
    /// Which text format [default: openmetrics, and prometheus with --textfile].
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub format: Option<FormatChoice>,
    /// Writes this file atomically, for the textfile collector of node_exporter, which wants a name that ends in .prom.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub textfile: Option<PathBuf>,
}

/// A text format of metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
#[non_exhaustive]
pub enum FormatChoice {
    /// OpenMetrics 1.0.
    Openmetrics,
    /// The text format 0.0.4 of Prometheus, which node_exporter and `promtool check metrics` read.
    Prometheus,
}
