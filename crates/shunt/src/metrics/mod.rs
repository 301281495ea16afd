//! `shunt metrics`, and what a server tells Prometheus.
//!
//! One table ([`table::METRICS`]) says of each metric its name, type, labels and help, and how to read it from the state of a mount
//! (the same that `shunt status --json` prints). Whoever asks does the work: a server gives its state, and
//! the text is made by the command, or by the thread of a server that listens with `--metrics-listen`.
//! `docs/metrics.md` has the table, and a test compares them.

mod address;
mod args;
mod command;
mod expose;
mod http;
mod listen;
mod metric;
mod of_mount;
mod of_pool;
mod snapshot;
mod table;

pub(crate) use address::listen_address;
pub use args::{FormatChoice as MetricsFormat, MetricsArgs};
pub(crate) use command::run;
pub(crate) use listen::Listener;
#[cfg(test)]
pub(crate) use snapshot::full_status;
pub(crate) use snapshot::{BranchFacts, PoolFacts, Snapshot, cleaned_status, detached};
