//! Several callers make, rename, link, list and remove the same few names and folders of three disks at once. Only what the race allows fails, and in the
//! end the pool shows what the disks have, each name on one of them. Needs root and /dev/fuse.
#![expect(clippy::unwrap_used, reason = "also the helpers of tests report by panic")]

mod mounted;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use shuntfs::{MountOptions, SessionOptions, TransportKind};
use shuntfs_pool::{Cache, Pool, PoolOptions};
use shuntfs_testkit::lower::LowerKind;
use shuntfs_testkit::seeded::Random;

use mounted::{Mounted, disks, merge};

const WORKERS: u64 = 4;
const ROUNDS: usize = 1000;
const NAMES: usize = 12;
/// Folders with files, of which the first is on one disk at first, and folders that come and go.
const FOLDERS: [&str; 3] = ["one", "two", "three"];

/// ENOENT and EEXIST; of folders ENOTEMPTY, too.
const ALLOWED: [i32; 3] = [2, 17, 39];
const STALE: i32 = 116;

struct Worker<'w> {
    top: &'w Path,
    random: Random,
    /// A name that is removed between its LOOKUP and its OPEN is looked up again by the kernel, but only once.
    stale: &'w AtomicU32,
}

impl Worker<'_> {
    fn path(&mut self) -> PathBuf {
        let folder = FOLDERS[self.random.below(3)];
        self.top.join(folder).join(format!("n{}", self.random.below(NAMES)))
    }

    fn folder(&mut self) -> PathBuf {
        self.top.join(format!("d{}", self.random.below(4)))
    }

    fn may(&self, what: &str, done: io::Result<()>) {
        let Err(error) = done else { return };
        let number = error.raw_os_error().unwrap();
        if number == STALE {
            self.stale.fetch_add(1, Ordering::Relaxed);
        } else {
            assert!(ALLOWED.contains(&number), "{what}: {error}");
        }
    }

    fn create(&mut self) -> io::Result<()> {
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).open(self.path())?;
        file.write_all(b"some bytes")?;
        assert!(file.metadata()?.nlink() <= 3 * NAMES as u64);
        Ok(())
    }

    fn read_what_is_removed(&mut self) -> io::Result<()> {
        let path = self.path();
        let mut file = File::open(&path)?;
        let removed = fs::remove_file(&path);
        file.metadata()?;
        file.read_to_end(&mut Vec::new())?;
        removed
    }

    fn round(&mut self) {
        let (one, other, folder, new) = (self.path(), self.path(), self.folder(), self.folder());
        match self.random.below(10) {
            0 | 1 => {
                let created = self.create();
                self.may("create", created);
            }
            2 => self.may("rename", fs::rename(one, other)),
            3 => self.may("link", fs::hard_link(one, other)),
            4 => self.may("remove", fs::remove_file(one)),
            5 => {
                let read = self.read_what_is_removed();
                self.may("read", read);
            }
            6 => self.may("mkdir", fs::create_dir(folder)),
            7 => self.may("rename of a folder", fs::rename(folder, new)),
            8 => self.may("rmdir", fs::remove_dir(folder)),
            _ => {
                let names = fs::read_dir(one.parent().unwrap()).unwrap().map(Result::unwrap);
                assert!(names.count() <= NAMES);
            }
        }
    }
}

/// The names of a folder, with what is known of each.
fn tell(folder: &Path) -> BTreeMap<OsString, (u64, u64, bool)> {
    let Ok(entries) = fs::read_dir(folder) else { return BTreeMap::new() };
    let known = |entry: fs::DirEntry| {
        let stat = entry.metadata().unwrap();
        (entry.file_name(), (stat.nlink(), stat.size(), stat.is_dir()))
    };
    entries.map(|entry| known(entry.unwrap())).collect()
}

fn storm(mounted: &Mounted, what: &str) {
    FOLDERS.iter().for_each(|folder| fs::create_dir(mounted.at(folder)).unwrap());
    let stale = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for number in 0..WORKERS {
            let (top, stale) = (mounted.top.path(), &stale);
            scope.spawn(move || {
                let mut worker = Worker { top, random: Random::new(number + 1), stale };
                (0..ROUNDS).for_each(|_| worker.round());
            });
        }
    });
    let stale = stale.into_inner();
    assert!(stale <= 8, "{what}: {stale} calls missed their name twice");
    for folder in FOLDERS {
        let shown = tell(&mounted.at(folder));
        let mut below = BTreeMap::new();
        for disk in 0..mounted.disks.len() {
            for (name, facts) in tell(&mounted.below(disk, folder)) {
                assert!(
                    below.insert(name.clone(), facts).is_none(),
                    "{what}: {folder}/{name:?} is on two disks"
                );
            }
        }
        assert_eq!(shown, below, "{what}: {folder}");
    }
    let folders = |at: PathBuf| tell(&at).into_keys().collect::<Vec<_>>();
    let mut below: Vec<_> = (0..3).flat_map(|disk| folders(mounted.below(disk, ""))).collect();
    below.sort();
    below.dedup();
    assert_eq!(folders(mounted.at("")), below, "{what}");
}

#[test]
fn a_storm_over_three_disks_leaves_each_name_once() {
    for (transport, cache) in [
        (TransportKind::Device, Cache::Default),
        (TransportKind::Cloned, Cache::Second),
        (TransportKind::Cloned, Cache::None),
        (TransportKind::Uring, Cache::Second),
    ] {
        let what = format!("{transport} {cache:?}");
        let Some(disks) = disks(LowerKind::Tmpfs, &[64; 3]) else { return };
        let merge = Some(merge(&disks, "rand"));
        let options = PoolOptions { merge, cache, descriptors: Some(8), ..PoolOptions::new("disks") };
        let how = MountOptions { allow_other: true, ..MountOptions::default() };
        let session =
            SessionOptions { transport: shuntfs::Transport::Only(transport), ..SessionOptions::default() };
        let Some(mounted) = Mounted::with(Pool::open(&options).unwrap(), disks, &how, &session) else {
            continue;
        };
        storm(&mounted, &what);
        mounted.end();
    }
}
