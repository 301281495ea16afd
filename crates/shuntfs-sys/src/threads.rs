//! Threads and the CPUs they run on.

use rustix::thread::CpuSet;

use crate::{OsError, Result};

/// Keeps the calling thread on one CPU.
///
/// # Errors
/// EINVAL where the CPU is not there, is offline, or is not among those this process may use.
pub fn pin_to_cpu(cpu: usize) -> Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(OsError::INVAL);
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set)
}

/// How many CPUs this machine can ever have, offline ones included: the kernel's `num_possible_cpus()`.
#[must_use]
pub fn possible_cpus() -> u32 {
    let listed = std::fs::read_to_string("/sys/devices/system/cpu/possible");
    listed.ok().and_then(|list| count(list.trim())).unwrap_or_else(|| {
        let online = std::thread::available_parallelism().map_or(1, usize::from);
        u32::try_from(online).unwrap_or(u32::MAX)
    })
}

/// How many CPUs a list such as `0-3,8` names.
fn count(list: &str) -> Option<u32> {
    let mut total: u32 = 0;
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        total = total.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(total)
}

/// The CPU that the calling thread runs on at the moment.
#[must_use]
pub fn current_cpu() -> usize {
    rustix::thread::sched_getcpu()
}

/// The calling thread's number.
#[must_use]
pub fn gettid() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn counts_lists_of_cpus() {
        assert_eq!(count("0"), Some(1));
        assert_eq!(count("0-3"), Some(4));
        assert_eq!(count("0-3,8-11,64"), Some(9));
        for broken in ["", "a", "3-1", "0-", "0-4294967295"] {
            assert_eq!(count(broken), None, "{broken:?}");
        }
        assert!(possible_cpus() >= 1);
    }

    #[test]
    fn a_pinned_thread_stays() {
        std::thread::spawn(|| {
            let cpu = current_cpu();
            pin_to_cpu(cpu).unwrap();
            assert_eq!(current_cpu(), cpu);
            assert_eq!(pin_to_cpu(1 << 20), Err(OsError::INVAL));
        })
        .join()
        .unwrap();
    }
}
