//! A pool on the fake kernel, and the folder below it.
#![allow(dead_code, reason = "each test program uses some of it")]

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shuntfs::{Errno, Transport, TransportKind};
use shuntfs_fake::{Fake, O_RDONLY, Settings, Totals};
use shuntfs_pool::{Observer, Pool};
use shuntfs_rules::{Nobody, Rules};

/// A pool, and what it shows.
pub(crate) struct Fixture {
    pub(crate) fake: Fake,
    pub(crate) observer: Observer,
    pub(crate) lower: PathBuf,
}

impl Fixture {
    pub(crate) fn new(pool: Pool, lower: &Path, settings: &Settings) -> Self {
        let observer = pool.observer();
        let fake = Fake::mount_with(Arc::new(pool), settings).unwrap();
        Self { fake, observer, lower: lower.to_owned() }
    }

    /// Ends the mount. Panics where a book does not balance: the kernel's, or the pool's.
    pub(crate) fn end(self, what: &str) {
        let Totals { backing_ids, .. } =
            self.fake.finish().unwrap_or_else(|broken| panic!("{what}: {broken}"));
        let facts = self.observer.facts();
        assert_eq!((facts.nodes, facts.overdrawn), (0, 0), "{what}: lookups of the pool's nodes");
        assert_eq!(backing_ids, 0, "{what}: backing ids that nobody closed");
    }

    /// Panics where the mount shows anything else than the folder has. Nothing is forgotten before: what the kernel keeps
    /// must be right, too. `names` are asked for in every folder, whether they are there or not.
    pub(crate) fn assert_same(&self, names: &[&str], what: &str) {
        let mut folders = vec![String::new()];
        while let Some(folder) = folders.pop() {
            let below = self.lower.join(folder.trim_start_matches('/'));
            let mut there: Vec<_> = fs::read_dir(&below)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            there.sort();
            for name in names.iter().filter(|name| !there.iter().any(|there| there == *name)) {
                let path = format!("{folder}/{name}");
                assert_eq!(self.fake.lstat(&path).err(), Some(Errno::NOENT), "{what}: {path}");
            }
            for name in &there {
                let path = format!("{folder}/{name}");
                self.assert_same_file(&path, what);
                if below.join(name).symlink_metadata().unwrap().is_dir() {
                    folders.push(path);
                }
            }
            let folder = if folder.is_empty() { "/" } else { &folder };
            assert_eq!(self.fake.names(folder), Ok(there), "{what}: the listing of {folder}");
        }
    }

    fn assert_same_file(&self, path: &str, what: &str) {
        let lower = self.lower.join(path.trim_start_matches('/'));
        let below = lower.symlink_metadata().unwrap();
        let attr = self.fake.lstat(path).unwrap_or_else(|errno| panic!("{what}: {path}: {errno}"));
        let seen = (attr.ino, attr.mode, u64::from(attr.nlink), attr.size, attr.uid, attr.gid);
        let mtime = (attr.mtime, i64::from(attr.mtimensec));
        let there = (below.ino(), below.mode(), below.nlink(), below.size(), below.uid(), below.gid());
        assert_eq!(seen, there, "{what}: attributes of {path}");
        assert_eq!(mtime, (below.mtime().cast_unsigned(), below.mtime_nsec()), "{what}: mtime of {path}");
        let kind = below.file_type();
        if kind.is_symlink() {
            let target = fs::read_link(&lower).unwrap().into_os_string().into_encoded_bytes();
            assert_eq!(self.fake.readlink(path), Ok(target), "{what}: {path}");
        } else if kind.is_file() {
            let bytes = self.fake.open(path, O_RDONLY).and_then(|file| file.read_to_end());
            assert!(bytes == Ok(fs::read(&lower).unwrap()), "{what}: bytes of {path}");
        } else {
            assert!(kind.is_dir() || kind.is_fifo(), "{what}: {path}");
        }
    }
}

/// A folder in memory, where there is such a file system: durability is nothing that these tests look at.
pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// With one queue, or with several on descriptors of their own.
pub(crate) fn settings(kind: TransportKind) -> Settings {
    let mut settings = Settings::default();
    settings.session.transport = Transport::Only(kind);
    settings.session.depth = 2;
    settings.session.payload_len = 128 << 10;
    settings.session.queues = Some(if kind == TransportKind::Cloned { 2 } else { 1 });
    settings
}

pub(crate) fn rules(text: &str) -> Rules {
    Rules::parse(text, "rules", None, &Nobody).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}
