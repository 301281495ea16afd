//! Limits of the process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More descriptors than this are not asked for, even where the machine would give them.
const DESCRIPTORS_MAX: u64 = 1 << 20;

/// Raises the limit on open descriptors as far as the process may, and gives what it then is.
#[must_use]
pub fn raise_nofile() -> u64 {
    let held = getrlimit(Resource::Nofile);
    let hard = held.maximum.unwrap_or(u64::MAX);
    let wanted = hard.max(DESCRIPTORS_MAX.min(machine_max()));
    // Beyond the hard limit needs CAP_SYS_RESOURCE; up to it needs nothing.
    let beyond = Rlimit { current: Some(wanted), maximum: held.maximum.map(|_| wanted) };
    if setrlimit(Resource::Nofile, beyond).is_err() {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(hard), maximum: held.maximum });
    }
    nofile()
}

/// Lowers the limit on open descriptors by so many, at most by a quarter, for this process alone: whoever shares its table and begins with the limit
/// as it was has room left.
pub fn spare_nofile(count: u64) {
    let held = getrlimit(Resource::Nofile);
    let Some(current) = held.current else { return };
    let rest = current - count.min(current / 4);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(rest), ..held });
}

/// The limit on open descriptors.
#[must_use]
pub fn nofile() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// How many bytes of memory this process may lock; `None` without a limit. Whoever has `CAP_IPC_LOCK` has none either.
#[must_use]
pub fn memlock() -> Option<u64> {
    getrlimit(Resource::Memlock).current
}

/// How long a core dump of this process may be, in bytes; `None` without a limit. It does not hold for one that is written to a program.
#[must_use]
pub fn core_len() -> Option<u64> {
    getrlimit(Resource::Core).current
}

/// Bytes in a page of memory.
#[must_use]
pub fn page_len() -> usize {
    rustix::param::page_size()
}

/// How many ticks `/proc/PID/stat` counts a second.
#[must_use]
pub fn clock_ticks() -> u64 {
    rustix::param::clock_ticks_per_second()
}

fn machine_max() -> u64 {
    let text = std::fs::read_to_string("/proc/sys/fs/nr_open");
    text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn the_limit_never_falls() {
        let before = nofile();
        let raised = raise_nofile();
        assert!(raised >= before);
        assert_eq!(raised, nofile());
    }
}
