//! Which other mount namespaces still show a mount that is gone from this one: a container or a service that was
//! started meanwhile has a copy of every mount of its time, and the server goes on for it.

use std::collections::HashSet;
use std::fs;

use crate::mounts::shown;

/// How many processes are named.
const NAMED_MAX: usize = 4;

/// Says which processes have the device mounted in a namespace other than ours, one of each namespace, in a few
/// words; `None` where none is seen.
pub(crate) fn by_whom(device: (u32, u32)) -> Option<String> {
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    let mut seen = HashSet::from([namespace("self")]);
    let mut words = Vec::new();
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let space = namespace(&pid.to_string());
        if space.is_none() || !seen.insert(space) {
            continue;
        }
        let mounts = shuntfs_sys::mount::mounts_of(pid).unwrap_or_default();
        if mounts.iter().any(|mount| mount.dev == device) {
            let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            words.push(format!("process {pid} ({})", shown(name.trim())));
        }
    }
    let more = words.len().saturating_sub(NAMED_MAX);
    words.truncate(NAMED_MAX);
    if more > 0 {
        words.push(format!("{more} more"));
    }
    (!words.is_empty()).then(|| words.join(", "))
}
