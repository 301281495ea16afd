//! A round trip's time, which fio cannot take: a request that is answered beside a byte that goes to a thread and back.
//!
//! It runs in a child of ours (`--probe`), because a call into a mount that does not answer cannot be left.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use rustix::fd::OwnedFd;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::case::Amount;
use crate::process;
use crate::stop::Stop;

/// The file whose attributes are asked for, below the folder that the target shows.
pub(crate) const FILE: &str = "probe";

/// The requests are made in this many batches, of which the middle one counts, by turns with as many of the pipe.
const BATCHES: u32 = 10;

/// What a child measures: so many round trips, of a file's attributes or of a pipe alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    count: u32,
    file: Option<PathBuf>,
}

/// Microseconds of one round trip.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Latency {
    pub(crate) micros: f64,
    /// Those of the pipe at the same time.
    pub(crate) pipe_micros: f64,
}

impl FromStr for Probe {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (count, file) = text.split_once(':').unwrap_or((text, ""));
        let count = count.parse().map_err(|_| "not a number of round trips".to_owned())?;
        Ok(Self { count, file: (!file.is_empty()).then(|| PathBuf::from(file)) })
    }
}

/// Takes the time of a round trip to a file, or to the pipe itself, in a child.
///
/// # Errors
/// When it fails, hangs, or is answered faster than two threads can be switched: then no request was made.
pub(crate) fn measure(file: Option<&Path>, amount: &Amount, stop: &Stop) -> Result<Latency> {
    let count = amount.round_trips;
    let probe = file.map_or_else(|| count.to_string(), |file| format!("{count}:{}", file.display()));
    let mut command = Command::new("/proc/self/exe");
    command.args(["--probe", &probe]);
    let ended = process::run_ok(&mut command, amount.limit, stop)?;
    let latency =
        parse(&ended.stdout).with_context(|| format!("the probe said `{}`", ended.stdout.trim()))?;
    if latency.micros < latency.pipe_micros / 4.0 {
        bail!("answered within {:.2} us, without a round trip: something remembers", latency.micros);
    }
    Ok(latency)
}

/// Runs the probe in this process and prints what it took.
///
/// # Errors
/// When a call fails.
pub(crate) fn run(probe: &Probe) -> Result<()> {
    pin()?;
    let mut pipe = PingPong::start()?;
    let file = probe.file.as_ref().map(File::open).transpose().context("cannot open the file")?;
    let count = (probe.count / BATCHES).max(1);
    let (mut requests, mut pipes) = (Vec::new(), Vec::new());
    for _ in 0..BATCHES {
        pipes.push(micros(count, || pipe.round_trip())?);
        requests.push(match &file {
            Some(file) => micros(count, || Ok(rustix::fs::fstat(file).map(drop)?))?,
            None => micros(count, || pipe.round_trip())?,
        });
    }
    println!("{} {}", middle(requests), middle(pipes));
    Ok(())
}

fn parse(text: &str) -> Option<Latency> {
    let (micros, pipe_micros) = text.trim().split_once(' ')?;
    Some(Latency { micros: micros.parse().ok()?, pipe_micros: pipe_micros.parse().ok()? })
}

/// Stays on the last CPU that we may run on: the first has most of a machine's interrupts. Threads inherit it.
pub(crate) fn pin() -> Result<()> {
    let allowed = sched_getaffinity(None).context("sched_getaffinity")?;
    let last = (0..CpuSet::MAX_CPU).rev().find(|&cpu| allowed.is_set(cpu)).context("no CPU")?;
    let mut one = CpuSet::new();
    one.set(last);
    sched_setaffinity(None, &one).context("sched_setaffinity")
}

fn micros(count: u32, mut once: impl FnMut() -> Result<()>) -> Result<f64> {
    let started = Instant::now();
    for _ in 0..count {
        once()?;
    }
    Ok(started.elapsed().as_secs_f64() * 1e6 / f64::from(count))
}

fn middle(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// A thread that sends back each byte it gets; it ends with the pipe.
struct PingPong {
    to: OwnedFd,
    from: OwnedFd,
}

impl PingPong {
    fn start() -> Result<Self> {
        let (there_end, to) = rustix::pipe::pipe().context("pipe")?;
        let (from, back) = rustix::pipe::pipe().context("pipe")?;
        std::thread::spawn(move || {
            let mut byte = [0];
            while rustix::io::read(&there_end, &mut byte).is_ok_and(|len| len == 1) {
                if rustix::io::write(&back, &byte).is_err() {
                    break;
                }
            }
        });
        Ok(Self { to, from })
    }

    fn round_trip(&mut self) -> Result<()> {
        let mut byte = [1];
        rustix::io::write(&self.to, &byte)?;
        if rustix::io::read(&self.from, &mut byte)? != 1 {
            bail!("the other thread ended");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_has_a_count_and_maybe_a_file() {
        assert_eq!("5".parse(), Ok(Probe { count: 5, file: None }));
        assert_eq!("5:/a:b".parse(), Ok(Probe { count: 5, file: Some("/a:b".into()) }));
        assert!("x:/a".parse::<Probe>().is_err());
    }

    #[test]
    fn what_the_probe_prints_is_read_back() {
        assert_eq!(parse("1.5 3\n"), Some(Latency { micros: 1.5, pipe_micros: 3.0 }));
        assert_eq!(parse("1.5"), None);
    }

    #[test]
    fn bytes_come_back() {
        let mut pipe = PingPong::start().unwrap();
        assert!(micros(100, || pipe.round_trip()).unwrap() > 0.0);
    }
}
