//! What a server uses of the machine.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use shuntfs_sys::limits;

/// What a server's process uses, as /proc has it; zeroes where that cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[non_exhaustive]
#[serde(default)]
pub struct ProcessStatus {
    /// Descriptors that are open.
    pub open_fds: u64,
    /// How many may be.
    pub max_fds: u64,
    /// Threads.
    pub threads: u64,
    /// Resident memory in bytes.
    pub resident_bytes: u64,
    /// Time on a CPU, in milliseconds.
    pub cpu_ms: u64,
}

impl ProcessStatus {
    /// That of this process.
    #[must_use]
    pub fn of_this_process() -> Self {
        let (cpu_ms, threads) = times_and_threads().unwrap_or_default();
        let (open_fds, resident_bytes) = (open_fds(), resident_bytes().unwrap_or_default());
        Self { open_fds, max_fds: limits::nofile(), threads, resident_bytes, cpu_ms }
    }
}

/// The folder's size is their number since Linux 6.2, which counts a million of them at no cost.
fn open_fds() -> u64 {
    let folder = Path::new("/proc/self/fd");
    let told = fs::metadata(folder).map_or(0, |folder| folder.len());
    if told > 0 {
        return told;
    }
    // One of them is that of the listing itself.
    fs::read_dir(folder).map_or(0, |list| (list.count() as u64).saturating_sub(1))
}

fn resident_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    pages.checked_mul(limits::page_len() as u64)
}

fn times_and_threads() -> Option<(u64, u64)> {
    let text = fs::read_to_string("/proc/self/stat").ok()?;
    // The name comes second, in brackets, and may hold spaces and brackets itself.
    let fields: Vec<&str> = text.rsplit_once(") ")?.1.split_whitespace().collect();
    let number = |place: usize| fields.get(place)?.parse::<u64>().ok();
    let ticks = number(11)? + number(12)?;
    Some((ticks.saturating_mul(1000) / limits::clock_ticks().max(1), number(17)?))
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_process_knows_what_it_uses() {
        let before = ProcessStatus::of_this_process();
        assert!(before.open_fds >= 3 && before.open_fds <= before.max_fds, "{before:?}");
        assert!(before.resident_bytes > 100_000 && before.threads >= 1, "{before:?}");
        let held: Vec<_> = (0..50).map(|_| fs::File::open("/proc/self/stat").expect("opens")).collect();
        let after = ProcessStatus::of_this_process();
        // Tests beside this one open and close files, too.
        assert!(after.open_fds + 20 > before.open_fds + held.len() as u64, "{before:?} {after:?}");
    }
}
