//! Who keeps a mount busy, told from /proc alone.
//!
//! The mount itself is never touched: links in /proc are read, not followed, and an open file is known to be on
//! the mount by the mount's id in its fdinfo. A process that is stuck can make the reading of its `maps` wait,
//! so the search runs in a thread of its own and is given up in time, with what it has found.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use shuntfs_sys::mount::MountInfo;

use crate::mounts::{Mounts, shown};

/// How long the search may take.
const PATIENCE: Duration = Duration::from_secs(3);
/// How many holders are named.
const NAMED_MAX: usize = 8;

/// How a process keeps a mount busy.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Use {
    WorkingFolder,
    RootFolder,
    Program,
    OpenFile,
    MappedFile,
}

impl fmt::Display for Use {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::WorkingFolder => "works in it",
            Self::RootFolder => "has its root in it",
            Self::Program => "runs a program of it",
            Self::OpenFile => "has a file of it open",
            Self::MappedFile => "has a file of it mapped",
        })
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Holder {
    pid: u32,
    name: String,
    uses: Use,
}

/// What is looked for.
#[derive(Clone, Debug)]
struct Wanted {
    id: i32,
    device: (u32, u32),
    mount_point: PathBuf,
}

/// Says who keeps the mount busy, in a few words.
pub(crate) fn by_whom(mounts: &Mounts, mount: &MountInfo) -> String {
    holders(mounts, mount).unwrap_or_else(unseen)
}

/// The words for nobody.
pub(crate) fn unseen() -> String {
    "used by a process that cannot be seen from here".into()
}

/// The same; `None` where nobody is seen who does.
pub(crate) fn holders(mounts: &Mounts, mount: &MountInfo) -> Option<String> {
    let inside: Vec<String> = mounts.inside(mount).map(|inner| shown(&inner.mount_point)).collect();
    let wanted = Wanted { id: mount.id, device: mount.dev, mount_point: mount.mount_point.clone() };
    let (send, found) = mpsc::channel();
    let searching =
        std::thread::Builder::new().name("shunt-busy".into()).spawn(move || search(&wanted, &send));
    let mut holders = BTreeMap::new();
    if searching.is_ok() {
        let end = Instant::now() + PATIENCE;
        while let Ok(holder) = found.recv_timeout(end.saturating_duration_since(Instant::now())) {
            holders.entry(holder.pid).or_insert(holder);
        }
    }
    let mut words: Vec<String> = inside.iter().map(|path| format!("{path} is mounted inside it")).collect();
    words.extend(held_by_kernel(&mount.mount_point));
    let processes =
        holders.values().map(|holder| format!("process {} ({}) {}", holder.pid, holder.name, holder.uses));
    words.extend(processes);
    let more = words.len().saturating_sub(NAMED_MAX);
    words.truncate(NAMED_MAX);
    if more > 0 {
        words.push(format!("and {more} more"));
    }
    (!words.is_empty()).then(|| words.join("; "))
}

/// Files of the mount that the kernel itself has open, which no process shows.
fn held_by_kernel(mount_point: &Path) -> Vec<String> {
    let below = |path: &str| Path::new(path).starts_with(mount_point);
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let loops = devices.filter_map(|device| {
        let file = fs::read_to_string(device.path().join("loop/backing_file")).ok()?;
        let (device, file) = (device.file_name(), file.trim_end());
        below(file).then(|| format!("the loop device /dev/{} is on {}", shown(&device), shown(file)))
    });
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let swaps = swaps.lines().skip(1).filter_map(|line| line.split_ascii_whitespace().next());
    let swaps = swaps.filter(|file| below(file)).map(|file| format!("{} is used as swap", shown(file)));
    loops.chain(swaps).collect()
}

fn search(wanted: &Wanted, found: &mpsc::Sender<Holder>) {
    let Ok(entries) = fs::read_dir("/proc") else { return };
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Some(uses) = use_by(wanted, &entry.path()) else { continue };
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        let holder = Holder { pid, name: shown(name.trim()), uses };
        if found.send(holder).is_err() {
            return;
        }
    }
}

/// The first use that a process makes of the mount; processes that vanish or are not ours to look at make none.
fn use_by(wanted: &Wanted, process: &Path) -> Option<Use> {
    let links = [("cwd", Use::WorkingFolder), ("root", Use::RootFolder), ("exe", Use::Program)];
    for (link, uses) in links {
        if fs::read_link(process.join(link)).is_ok_and(|target| target.starts_with(&wanted.mount_point)) {
            return Some(uses);
        }
    }
    if fs::read_dir(process.join("fdinfo")).is_ok_and(|entries| {
        entries.flatten().any(|entry| {
            fs::read_to_string(entry.path()).is_ok_and(|text| mount_id_in(&text) == Some(wanted.id))
        })
    }) {
        return Some(Use::OpenFile);
    }
    let maps = fs::read(process.join("maps")).ok()?;
    let mapped = String::from_utf8_lossy(&maps).lines().any(|line| device_in(line) == Some(wanted.device));
    mapped.then_some(Use::MappedFile)
}

fn mount_id_in(fdinfo: &str) -> Option<i32> {
    fdinfo.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().parse().ok()
}

/// The device in a line of maps: `start-end perms offset major:minor inode path`.
fn device_in(line: &str) -> Option<(u32, u32)> {
    let (major, minor) = line.split_ascii_whitespace().nth(3)?.split_once(':')?;
    Some((u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?))
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn lines_of_proc_are_read() {
        assert_eq!(mount_id_in("pos:\t0\nflags:\t0100000\nmnt_id:\t37\nino:\t5\n"), Some(37));
        assert_eq!(mount_id_in("pos:\t0\n"), None);
        let line = "7f00-7f01 r--p 00000000 00:2a 12   /mnt/a file";
        assert_eq!(device_in(line), Some((0, 0x2a)));
        assert_eq!(device_in("x"), None);
    }

    #[test]
    fn an_open_file_of_this_process_is_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().canonicalize().expect("is there");
        let mounts = Mounts::read().expect("readable");
        let mut mount = mounts.covering(&path).expect("is on a mount").clone();
        let _open = fs::File::create(path.join("open")).expect("opens");
        // Only this folder is looked for by path, so that the test does not depend on other processes.
        mount.mount_point = path;
        let (send, found) = mpsc::channel();
        let wanted = Wanted { id: mount.id, device: (u32::MAX, 0), mount_point: mount.mount_point.clone() };
        search(&wanted, &send);
        drop(send);
        let own = found.iter().find(|holder| holder.pid == std::process::id()).expect("finds this process");
        assert_eq!(own.uses, Use::OpenFile);
    }
}
