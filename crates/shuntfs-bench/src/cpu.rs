//! The processor time of a server, as the kernel counts it.

use std::fs;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Returns the user and system time of a process and its threads, and of its children that have ended, in seconds.
pub(crate) fn process_s(id: u32) -> Option<f64> {
    let ticks = ticks(&fs::read_to_string(format!("/proc/{id}/stat")).ok()?)?;
    let a_second = u32::try_from(rustix::param::clock_ticks_per_second()).ok()?;
    Some(f64::from(u32::try_from(ticks).ok()?) / f64::from(a_second))
}

/// Returns the user and system time of the calling thread.
pub(crate) fn of_this_thread() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Returns the part of the time that the host took for others, and of the whole, in ticks of all CPUs.
pub(crate) fn stolen() -> Option<(u64, u64)> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let ticks: Vec<u64> =
        text.lines().next()?.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
    Some((*ticks.get(7)?, ticks.iter().take(8).sum()))
}

fn ticks(stat: &str) -> Option<u64> {
    // The name, in parentheses, may have spaces and parentheses itself.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ').skip(11);
    (0..4).map(|_| fields.next()?.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_look_like_fields() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194304 100 0 0 0 15 4 2 1 20 0 9 0 100 1 1";
        assert_eq!(ticks(stat), Some(22));
        assert_eq!(ticks("7 (a) S 1"), None);
    }

    #[test]
    fn this_process_has_a_time() {
        assert!(process_s(std::process::id()).is_some());
        assert_eq!(process_s(u32::MAX), None);
    }
}
