//! What a run may not leave behind: mounts, loop devices, servers.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The mounts, loop devices and servers of this moment.
#[derive(Debug, Default)]
pub(crate) struct Leftovers(BTreeSet<String>);

impl Leftovers {
    /// Looks around; `shunt` is the program whose processes count.
    pub(crate) fn look(shunt: &Path) -> Self {
        let mut found = mounts(&fs::read_to_string("/proc/self/mounts").unwrap_or_default());
        found.extend(loop_devices());
        found.extend(servers(shunt));
        Self(found)
    }

    /// What a mount is called here.
    pub(crate) fn mount_on(folder: &str) -> String {
        format!("mount on {folder}")
    }

    /// Returns what exists now and was not before.
    pub(crate) fn since(&self, before: &Self) -> Vec<String> {
        self.0.difference(&before.0).cloned().collect()
    }
}

fn mounts(table: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in table.lines() {
        let mut words = line.split(' ');
        let (source, folder, kind) = (words.next(), words.next(), words.next());
        if kind.is_some_and(|kind| kind.starts_with("fuse.shunt"))
            || source.is_some_and(|it| it.starts_with("/dev/loop"))
        {
            found.insert(Leftovers::mount_on(folder.unwrap_or_default()));
        }
    }
    found
}

fn loop_devices() -> Vec<String> {
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let used = devices.filter_map(|device| {
        let file = fs::read_to_string(device.path().join("loop/backing_file")).ok()?;
        Some(format!("loop device {} on {}", device.file_name().display(), file.trim()))
    });
    used.collect()
}

fn servers(shunt: &Path) -> Vec<String> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ours = processes.filter_map(|process| {
        let id: u32 = process.file_name().to_str()?.parse().ok()?;
        (fs::read_link(process.path().join("exe")).ok()? == shunt)
            .then(|| format!("process {id} of {}", shunt.display()))
    });
    ours.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_mounts_are_found_and_others_are_not() {
        let table = "proc /proc proc rw 0 0\n/a /mnt/x fuse.shunt rw 0 0\n/dev/loop0 /mnt/y ext4 rw 0 0\n\
                     b /mnt/z fuse.sshfs rw 0 0\n";
        let found: Vec<_> = mounts(table).into_iter().collect();
        assert_eq!(found, ["mount on /mnt/x", "mount on /mnt/y"]);
    }

    #[test]
    fn what_was_there_before_is_not_held_against_the_run() {
        let before = Leftovers(BTreeSet::from(["a".to_owned()]));
        let after = Leftovers(BTreeSet::from(["a".to_owned(), "b".to_owned()]));
        assert_eq!(after.since(&before), ["b"]);
    }
}
