//! No mount of a run lives forever: whatever a test does or fails to do, its connection is aborted at the limit.
//!
//! Tests have limits of their own, far below. This one is for the test that hangs anyway: a program that waits for
//! its own mount cannot be killed, and a run would wait for it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::fuse;

/// How long a mount may live; the slowest tests need half of it.
const LIMIT: Duration = Duration::from_mins(12);
/// How often to look.
const PAUSE: Duration = Duration::from_secs(5);

/// A FUSE mount.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mount {
    /// The mount's number, which is not used again soon.
    id: String,
    connection: String,
    pub(crate) place: String,
}

/// Watches over the mounts of this run until the program ends.
pub(crate) fn start() {
    let before: BTreeSet<Mount> = now().into_iter().collect();
    std::thread::spawn(move || {
        let mut seen = BTreeMap::<Mount, Instant>::new();
        loop {
            let mounts = now();
            seen.retain(|mount, _| mounts.contains(mount));
            for mount in mounts.into_iter().filter(|mount| !before.contains(mount)) {
                let since = *seen.entry(mount.clone()).or_insert_with(Instant::now);
                if since.elapsed() > LIMIT {
                    println!("{}: mounted for {} minutes: aborted", mount.place, LIMIT.as_secs() / 60);
                    mount.end();
                }
            }
            std::thread::sleep(PAUSE);
        }
    });
}

/// The FUSE mounts of this moment that may be this run's.
pub(crate) fn now() -> Vec<Mount> {
    // In a namespace of its own everything that comes is; beside others, only what bears our name.
    let prefix = if fuse::is_apart() { "fuse" } else { "fuse.shunt" };
    mounts(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default(), prefix)
}

impl Mount {
    /// Aborts the connection, so that whoever waits for it gets an error, and takes the mount away.
    pub(crate) fn end(&self) {
        let _not_mounted = fs::write(format!("{}/{}/abort", fuse::CONTROL, self.connection), "1");
        for how in ["-f", "-l"] {
            let mut command = Command::new("timeout");
            command.args(["10", "umount", how, &self.place]).stdin(Stdio::null()).stderr(Stdio::null());
            let _gone = command.status();
        }
    }
}

fn mounts(table: &str, prefix: &str) -> Vec<Mount> {
    table.lines().filter_map(|line| parse(line, prefix)).collect()
}

fn parse(line: &str, prefix: &str) -> Option<Mount> {
    let (words, kind) = line.split_once(" - ")?;
    let kind = kind.split(' ').next()?;
    let mut words = words.split(' ');
    let (id, _parent, device, _root, place) =
        (words.next()?, words.next()?, words.next()?, words.next()?, words.next()?);
    let connection = device.strip_prefix("0:")?;
    let is_one = kind.starts_with(prefix) && kind != "fusectl";
    is_one.then(|| Mount { id: id.to_owned(), connection: connection.to_owned(), place: place.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
        30 25 0:28 / /sys/fs/fuse/connections rw - fusectl fusectl rw\n\
        41 28 0:37 / /tmp/a rw,relatime shared:1 - fuse.shunt /src rw,user_id=0\n\
        42 28 0:38 / /tmp/b rw,relatime - fuse.other /src rw\n\
        43 28 8:1 / /tmp/c rw,relatime - ext4 /dev/sda1 rw\n";

    #[test]
    fn mounts_of_fuse_are_found_with_their_connection() {
        let found = |prefix: &str| -> Vec<(String, String)> {
            mounts(TABLE, prefix).into_iter().map(|mount| (mount.connection, mount.place)).collect()
        };
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(found("fuse"), [pair("37", "/tmp/a"), pair("38", "/tmp/b")]);
        assert_eq!(found("fuse.shunt"), [pair("37", "/tmp/a")]);
    }
}
