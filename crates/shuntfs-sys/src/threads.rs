//! Threads and CPUs.

use rustix::thread::CpuSet;

use crate::Result;

/// How many CPUs the kernel may ever bring up: FUSE over io_uring has one queue for each.
#[must_use]
pub fn possible_cpus() -> u32 {
    std::fs::read_to_string("/sys/devices/system/cpu/possible")
        .ok()
        .and_then(|text| last_cpu(&text))
        .map_or_else(online_cpus, |last| last + 1)
}

/// Binds the calling thread to one CPU, counted from 0.
///
/// # Errors
/// EINVAL where the CPU is not there or not allowed to this process.
pub fn pin_to_cpu(cpu: usize) -> Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(crate::OsError::INVAL);
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set)
}

/// The calling thread's number, as `/proc/PID/task` shows it.
#[must_use]
pub fn gettid() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

fn online_cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX))
}

/// The last number of a list such as `0-3,8-11`.
fn last_cpu(list: &str) -> Option<u32> {
    list.trim().rsplit([',', '-']).next()?.parse().ok()
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn cpu_lists_are_read() {
        for (list, last) in [("0", Some(0)), ("0-1\n", Some(1)), ("0-3,8-11\n", Some(11)), ("", None)] {
            assert_eq!(last_cpu(list), last, "{list:?}");
        }
        assert!(possible_cpus() >= online_cpus());
    }
}
