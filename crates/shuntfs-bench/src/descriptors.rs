//! The limit on open descriptors, the same for every column: some programs hold one for each file that the kernel knows, and
//! raise theirs, and others do not.

use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More than this are not asked for.
const MAX: u64 = 1 << 20;

/// Raises the limit as far as this process may, which hands it on to whatever it starts; returns what it then is.
pub(crate) fn raise() -> u64 {
    let held = getrlimit(Resource::Nofile);
    let hard = held.maximum.unwrap_or(u64::MAX);
    let wanted = hard.max(MAX.min(machine_max()));
    let beyond = Rlimit { current: Some(wanted), maximum: held.maximum.map(|_| wanted) };
    // Beyond the hard limit is for root alone; up to it is for everybody.
    if setrlimit(Resource::Nofile, beyond).is_err() {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(hard), maximum: held.maximum });
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

fn machine_max() -> u64 {
    let text = fs::read_to_string("/proc/sys/fs/nr_open").unwrap_or_default();
    text.trim().parse().unwrap_or(MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_started_has_the_raised_limit() {
        let limit = raise();
        let said = std::process::Command::new("sh").args(["-c", "ulimit -n"]).output().unwrap();
        assert_eq!(String::from_utf8(said.stdout).unwrap().trim(), limit.to_string());
        assert_eq!(raise(), limit);
    }
}
