//! Sealed trees and their mounts, each under a time limit and gone with its test.
#![allow(dead_code, reason = "each test program uses its own part")]

pub(crate) mod liar;
pub(crate) mod made;

use std::fs::{self, OpenOptions};
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use shuntfs::{MountOptions, Session, SessionOptions, Transport, TransportKind};
use shuntfs_seal::{Progress, SealOptions, Trust, seal_tree};
use shuntfs_testkit::lower::{Lower, LowerKind};
use shuntfs_testkit::supervisor::Supervisor;
use shuntfs_testkit::{mounted, skipped};
use shuntfs_verified::{Sealed, Seals, SealsOptions, VerifiedError, VerifyFacts};
use shuntfs_verity::Params;
use shuntfs_verity::sign::KeyPair;

pub(crate) const BLOCK: usize = 4096;
const LIMIT: Duration = Duration::from_secs(90);

/// Bytes of which no two blocks are equal.
pub(crate) fn content(len: usize) -> Vec<u8> {
    (0..len).map(|index| ((index * 7 + 13) % 251 + index / BLOCK).to_le_bytes()[0]).collect()
}

/// Flips a bit.
pub(crate) fn flip(path: &Path, offset: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], offset).unwrap();
}

struct Silent;

impl Progress for Silent {
    fn found(&self, _: u64) {}
    fn to_hash(&self, _: u64, _: u64) {}
    fn hashed(&self, _: u64) {}
    fn file_done(&self) {}
}

/// Seals a folder.
pub(crate) fn seal(root: &Path, keys: &[&KeyPair]) {
    seal_with(root, keys, Params::default());
}

pub(crate) fn seal_with(root: &Path, keys: &[&KeyPair], params: Params) {
    let jobs = NonZeroUsize::new(2).unwrap();
    let options = SealOptions { params, keys: keys.to_vec(), ..SealOptions::new(jobs) };
    seal_tree(root, &options, &Silent).unwrap();
}

/// Opens the seal of a folder.
pub(crate) fn open(root: &Path, trust: Option<&[&KeyPair]>) -> Result<Arc<Seals>, VerifiedError> {
    let mut options = SealsOptions::new(root);
    if let Some(keys) = trust {
        options.trust = Trust::keys(keys.iter().map(|key| key.public()).collect());
    }
    Seals::open(&options)
}

/// Opens it, mounts it, and looks at all of it.
pub(crate) fn uses(root: &Path, key: &KeyPair) -> Result<(), String> {
    let seals = open(root, Some(&[key])).map_err(|error| error.to_string())?;
    let fixture = Fixture::of(seals, &options(TransportKind::Device));
    let read = |name: &str| fs::read(fixture.path().join(name)).map(drop).map_err(|error| error.to_string());
    let list = fs::read_dir(fixture.path()).map_err(|error| error.to_string())?;
    let seen =
        list.map(|entry| entry.map(drop).map_err(|error| error.to_string())).collect::<Result<Vec<()>, _>>();
    seen.map(drop).and_then(|()| read("file")).and_then(|()| read("other"))
}

/// The files of a folder and below.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

/// A lower file system; none where this machine lacks it, and then that was said.
pub(crate) fn lower(kind: LowerKind) -> Option<Lower> {
    if fs::metadata("/dev/fuse").is_err() {
        skipped("there is no /dev/fuse");
        return None;
    }
    Lower::make(kind).unwrap()
}

/// Runs a test on each transport, over each of these file systems.
pub(crate) fn each(kinds: &[LowerKind], test: impl Fn(TransportKind, &Lower)) {
    for kind in kinds {
        for transport in [TransportKind::Device, TransportKind::Cloned, TransportKind::Uring] {
            if transport == TransportKind::Uring && !mounted::enable_uring() {
                skipped("FUSE over io_uring cannot be turned on");
                continue;
            }
            let Some(lower) = lower(*kind) else { break };
            println!("{transport} over {kind}");
            test(transport, &lower);
        }
    }
}

pub(crate) fn options(kind: TransportKind) -> SessionOptions {
    SessionOptions {
        transport: Transport::Only(kind),
        queues: Some(2),
        depth: 4,
        ..SessionOptions::default()
    }
}

/// A mount of a sealed tree, ended from outside where the test does not end in time.
pub(crate) struct Fixture {
    session: Option<Session>,
    seals: Arc<Seals>,
    _supervisor: Supervisor,
    dir: tempfile::TempDir,
}

impl Fixture {
    pub(crate) fn new(root: &Path, options: &SessionOptions) -> Self {
        Self::of(open(root, None).unwrap(), options)
    }

    pub(crate) fn of(seals: Arc<Seals>, options: &SessionOptions) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let fs = Arc::new(Sealed::new(Arc::clone(&seals), true));
        let mount = MountOptions { allow_other: true, ..MountOptions::default() };
        let session = Session::mount(fs, dir.path(), &mount, options).unwrap();
        let supervisor = Supervisor::of(dir.path(), LIMIT).unwrap();
        Self { session: Some(session), seals, _supervisor: supervisor, dir }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn seals(&self) -> &Seals {
        &self.seals
    }

    pub(crate) fn session(&self) -> &Session {
        self.session.as_ref().unwrap()
    }

    pub(crate) fn facts(&self) -> VerifyFacts {
        self.seals.facts()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        drop(self.session.take());
    }
}
