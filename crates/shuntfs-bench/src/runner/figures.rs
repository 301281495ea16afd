//! From what a workload counted to the figures of its rows.

use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::calls::Times;
use crate::case::Output;
use crate::fio::{Counted, Written};
use crate::probe::Latency;
use crate::report::Unit;

/// What a workload counted.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Measured {
    pub(super) counted: Option<Counted>,
    /// What was written to the large files, where it was.
    pub(super) written: Option<Written>,
    /// Processor time of the server while the workload ran, in seconds.
    pub(super) server_cpu_s: Option<f64>,
    pub(super) elapsed: Option<Duration>,
    pub(super) latency: Option<Latency>,
    pub(super) times: Option<Times>,
    /// How often a hash tree was read; only where there is one.
    pub(super) tree_reads: Option<u64>,
}

impl Measured {
    /// Returns the figure of an output.
    ///
    /// # Errors
    /// When the workload does not count such a thing.
    pub(super) fn figure(&self, output: &Output) -> Result<f64> {
        match output.quantile {
            Some(quantile) => Ok(self.times.context("no call was timed")?.micros(quantile)),
            None => self.figure_in(output.unit),
        }
    }

    fn figure_in(&self, unit: Unit) -> Result<f64> {
        const MIB: f64 = 1_048_576.0;
        let elapsed = self.elapsed.map(|elapsed| elapsed.as_secs_f64());
        let figure = match unit {
            Unit::OpsPerSec => {
                self.counted.map(|counted| counted.operations).or(elapsed.map(|elapsed| 1.0 / elapsed))
            }
            Unit::MibPerSec => self.counted.map(|counted| counted.bytes_per_sec / MIB),
            Unit::Seconds => elapsed,
            Unit::Micros => self.latency.map(|latency| latency.micros),
            Unit::CallerMicros => self.times.map(|times| times.cpu_micros),
            Unit::ServerMicros => self.server_micros(),
            Unit::Times => self.latency.map(|latency| latency.micros / latency.pipe_micros),
            Unit::CpuSecPerGib => self
                .counted
                .and_then(|counted| self.per_gib(counted.cpu_s + self.server_cpu_s.unwrap_or(0.0))),
            Unit::ServerSecPerGib => self.server_cpu_s.and_then(|cpu_s| self.per_gib(cpu_s)),
            Unit::TreeReads => self.tree_reads_per_strip(),
        };
        figure.with_context(|| format!("nothing was counted in {}", unit.label()))
    }

    /// Says why a column that did its work has no figure in a unit.
    pub(super) fn lacks(&self, unit: Unit) -> Option<&'static str> {
        match unit {
            Unit::TreeReads if self.tree_reads.is_none() => Some("reads no hash tree"),
            Unit::ServerMicros | Unit::ServerSecPerGib if self.server_cpu_s.is_none() => {
                Some("has no server")
            }
            _ => None,
        }
    }

    fn server_micros(&self) -> Option<f64> {
        let calls = u32::try_from(self.times?.count).ok().filter(|calls| *calls > 0)?;
        Some(self.server_cpu_s? * 1e6 / f64::from(calls))
    }

    fn tree_reads_per_strip(&self) -> Option<f64> {
        let counted = self.counted.filter(|counted| counted.len > 0)?;
        let kib = f64::from(u32::try_from(counted.len >> 10).ok()?);
        Some(f64::from(u32::try_from(self.tree_reads?).ok()?) / (kib / 4096.0))
    }

    /// What so many seconds are for each GiB that was moved.
    fn per_gib(&self, seconds: f64) -> Option<f64> {
        let counted = self.counted.filter(|counted| counted.len > 0)?;
        // In KiB, which fit a number of 32 bits up to 4 TiB, and so convert without a loss.
        let kib = f64::from(u32::try_from(counted.len >> 10).ok()?);
        Some(seconds / (kib / 1_048_576.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_that_of_both_sides() {
        let counted = Counted { len: 512 << 20, cpu_s: 0.5, ..Counted::default() };
        let measured = Measured { counted: Some(counted), server_cpu_s: Some(1.0), ..Measured::default() };
        assert!((measured.figure_in(Unit::CpuSecPerGib).unwrap() - 3.0).abs() < 1e-9);
        assert!((measured.figure_in(Unit::ServerSecPerGib).unwrap() - 2.0).abs() < 1e-9);
        let bare = Measured { server_cpu_s: None, ..measured };
        assert!((bare.figure_in(Unit::CpuSecPerGib).unwrap() - 1.0).abs() < 1e-9);
        assert_eq!(bare.lacks(Unit::ServerSecPerGib), Some("has no server"));
        assert!(measured.figure_in(Unit::Micros).is_err());
    }

    #[test]
    fn tree_reads_are_counted_for_each_four_mebibytes() {
        let counted = Some(Counted { len: 8 << 20, ..Counted::default() });
        let plain = Measured { counted, ..Measured::default() };
        assert!(plain.lacks(Unit::TreeReads).is_some() && plain.lacks(Unit::MibPerSec).is_none());
        let verified = Measured { tree_reads: Some(1), ..plain };
        assert!(verified.lacks(Unit::TreeReads).is_none());
        assert!((verified.figure_in(Unit::TreeReads).unwrap() - 0.5).abs() < 1e-9);
    }

    #[test]
    fn a_servers_time_is_that_of_one_call() {
        let times = serde_json::from_str(r#"{"count":500000,"micros":[1,2,3,4],"cpu_micros":2.5}"#).unwrap();
        let measured = Measured { times: Some(times), ..Measured::default() };
        assert!(measured.lacks(Unit::ServerMicros).is_some() && measured.lacks(Unit::CallerMicros).is_none());
        assert!((measured.figure_in(Unit::CallerMicros).unwrap() - 2.5).abs() < 1e-9);
        let served = Measured { server_cpu_s: Some(1.5), ..measured };
        assert!((served.figure_in(Unit::ServerMicros).unwrap() - 3.0).abs() < 1e-9);
    }

    #[test]
    fn a_walk_has_seconds_and_walks_a_second() {
        let measured = Measured { elapsed: Some(Duration::from_millis(250)), ..Measured::default() };
        assert!((measured.figure_in(Unit::Seconds).unwrap() - 0.25).abs() < 1e-9);
        assert!((measured.figure_in(Unit::OpsPerSec).unwrap() - 4.0).abs() < 1e-9);
    }

    #[test]
    fn a_round_trip_is_a_multiple_of_the_pipe() {
        let latency = Some(Latency { micros: 9.0, pipe_micros: 3.0 });
        let measured = Measured { latency, ..Measured::default() };
        assert!((measured.figure_in(Unit::Times).unwrap() - 3.0).abs() < 1e-9);
    }
}
