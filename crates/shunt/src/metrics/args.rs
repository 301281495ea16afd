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
    /// The text format [default: openmetrics; with --textfile, prometheus].
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub format: Option<FormatChoice>,
    /// Writes this file atomically, for the textfile collector of node_exporter, which reads files that end in
    /// .prom.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub textfile: Option<PathBuf>,
}

/// A text format of metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
#[non_exhaustive]
pub enum FormatChoice {
    /// OpenMetrics 1.0.
    Openmetrics,
    /// The Prometheus text format 0.0.4, which node_exporter and `promtool check metrics` read.
    Prometheus,
}
