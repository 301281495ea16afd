//! Limits of this process, which a server inherits.

use std::fs;

use super::Finding;

/// What a server uses with default settings, and some more.
const DESCRIPTORS_ENOUGH: u64 = 65_536;

pub(super) fn findings() -> Vec<Finding> {
    vec![descriptors()]
}

fn descriptors() -> Finding {
    const WHAT: &str = "open files";
    let text = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let Some((soft, hard)) = open_files_in(&text) else { return Finding::note(WHAT, "limit unknown") };
    let found = format!("limit {soft}, which a server raises to {hard}");
    if hard >= DESCRIPTORS_ENOUGH {
        Finding::ok(WHAT, found)
    } else {
        Finding::note(WHAT, found).advice(format!(
            "a service: LimitNOFILE={DESCRIPTORS_ENOUGH}; users: 'hard nofile {DESCRIPTORS_ENOUGH}' in /etc/security/limits.conf"
        ))
    }
}

fn open_files_in(limits: &str) -> Option<(u64, u64)> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let mut words = line
        .split_ascii_whitespace()
        .map(|word| if word == "unlimited" { Ok(u64::MAX) } else { word.parse() });
    Some((words.next()?.ok()?, words.next()?.ok()?))
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn the_limit_is_read_from_proc() {
        let text = "Limit                     Soft Limit  Hard Limit  Units\n\
                    Max open files            1024        524288      files\n";
        assert_eq!(open_files_in(text), Some((1024, 524_288)));
        assert!(open_files_in(&fs::read_to_string("/proc/self/limits").expect("readable")).is_some());
        assert_eq!(open_files_in(""), None);
    }
}
