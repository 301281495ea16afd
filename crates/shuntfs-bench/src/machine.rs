//! What the figures were taken on.

use std::fs;
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::process;
use crate::stop::Stop;

/// The machine of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The kernel's release.
    pub kernel: String,
    /// The processor's name.
    pub processor: String,
    /// CPUs that we may run on.
    pub cpus: usize,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// The one-minute load average before the run.
    pub load_before: f64,
    /// The frequency governor, where there is one.
    pub governor: Option<String>,
    /// What fio calls itself.
    pub fio: String,
}

impl Machine {
    /// Looks at this machine.
    #[must_use]
    pub fn look() -> Self {
        Self {
            kernel: release(),
            processor: field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".to_owned()),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mib: field("/proc/meminfo", "MemTotal")
                .and_then(|text| text.trim_end_matches(" kB").parse::<u64>().ok())
                .map_or(0, |kib| kib / 1024),
            load_before: read("/proc/loadavg")
                .and_then(|text| text.split(' ').next()?.parse().ok())
                .unwrap_or_default(),
            governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            fio: version("fio"),
        }
    }

    /// Returns what makes this machine's figures doubtful, one sentence each.
    #[must_use]
    pub fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        if self.load_before > 0.5 {
            doubts
                .push(format!("Something else ran before the start (load average {:.1}).", self.load_before));
        }
        if let Some(governor) = &self.governor
            && governor != "performance"
        {
            doubts.push(format!("The frequency governor is `{governor}`, not `performance`."));
        }
        doubts
    }
}

/// Returns the first line of what a program says its version is.
pub(crate) fn version(program: &str) -> String {
    let ended =
        process::run(Command::new(program).arg("--version"), Duration::from_secs(10), &Stop::default());
    let Ok(ended) = ended else { return "none".to_owned() };
    if !ended.status.success() {
        // A program that knows no `--version` says so, which is no version.
        return format!("{program}, version unknown");
    }
    let text = if ended.stdout.trim().is_empty() { ended.stderr } else { ended.stdout };
    text.lines().next().unwrap_or_default().trim().to_owned()
}

/// Reads the first two numbers of a version.
pub(crate) fn two_numbers(text: &str) -> Option<(u32, u32)> {
    let digits = text.find(|letter: char| letter.is_ascii_digit())?;
    let mut parts = text[digits..].split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Returns the kernel's release; empty where it is not told.
pub(crate) fn release() -> String {
    read("/proc/sys/kernel/osrelease").unwrap_or_default()
}

fn read(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_as_numbers() {
        assert_eq!(two_numbers("mergerfs version: 2.33.5"), Some((2, 33)));
        assert!(two_numbers("mergerfs v2.41.0") > Some((2, 5)));
        assert_eq!(two_numbers("none"), None);
    }
}
