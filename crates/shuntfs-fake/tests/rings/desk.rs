//! A file behind each kind of transport, and what it must show.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use shuntfs::{CacheHint, Delegation, Flow, LowerFile, Transport, TransportKind};
use shuntfs_fake::{Fake, File, O_RDWR, Rings, Settings};
use shuntfs_sys::uring::Ring;
use shuntfs_testkit::seeded::Random;
use tempfile::TempDir;

use crate::wishes::{Plan, Wishes};

/// Two of the longest requests and a part of one.
pub(crate) const LEN: usize = (2 << 20) + 777;

/// Whether the machine can carry rings; says so where it cannot.
pub(crate) fn has_rings() -> bool {
    let ring = Ring::new(4);
    if ring.is_err() {
        println!("SKIPPED: io_uring is not to be had here");
    }
    ring.is_ok()
}

pub(crate) fn on_rings(rings: Rings) -> Settings {
    let mut settings = Settings { rings: Some(rings), limit: Duration::from_secs(20), ..Settings::default() };
    settings.session.transport = Transport::Only(TransportKind::Uring);
    settings.session.queues = None;
    settings
}

/// Every kind of transport, and whether it moves pages.
pub(crate) fn transports() -> Vec<(&'static str, Settings, bool)> {
    let mut cloned = Settings::default();
    cloned.session.transport = Transport::Only(TransportKind::Cloned);
    cloned.session.queues = Some(3);
    let mut copying = on_rings(Rings::with_pools());
    copying.session.zero_copy = false;
    let mut one_thread = on_rings(Rings::with_pools());
    one_thread.session.queues = Some(1);
    // One buffer in the pool of each queue, and one beside it.
    let mut tight = on_rings(Rings::with_pools());
    tight.session.payload_len = 65_536;
    tight.session.payload_cap = (2 * shuntfs_sys::threads::online_cpus().len() as u64 + 2) * 65_536;
    vec![
        ("a device", Settings::default(), false),
        ("cloned devices", cloned, false),
        ("rings of Linux 6.14", on_rings(Rings::plain()), false),
        ("rings with pools", copying, false),
        ("rings with zero copy", on_rings(Rings::with_pools()), true),
        ("zero copy in one thread", one_thread, true),
        ("zero copy with one buffer", tight, true),
    ]
}

pub(crate) fn random_bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..len.div_ceil(8)).flat_map(|_| random.number().to_le_bytes()).take(len).collect()
}

/// [`Wishes`] on the fake kernel, over a lower file with some bytes.
pub(crate) struct Desk {
    pub(crate) fake: Fake,
    pub(crate) plan: Arc<Plan>,
    pub(crate) lower: TempDir,
}

impl Desk {
    pub(crate) fn new(bytes: &[u8], settings: &Settings) -> Self {
        let lower = tempfile::tempdir().expect("a folder");
        fs::write(lower.path().join("lower"), bytes).expect("a lower file");
        let plan = Arc::new(Plan::default());
        let wishes = Wishes { lower: lower.path().join("lower"), plan: Arc::clone(&plan) };
        let fake = Fake::mount_with(Arc::new(wishes), settings).expect("mounts");
        Self { fake, plan, lower }
    }

    pub(crate) fn lower_path(&self) -> PathBuf {
        self.lower.path().join("lower")
    }

    pub(crate) fn lower_bytes(&self) -> Vec<u8> {
        fs::read(self.lower_path()).expect("reads")
    }

    pub(crate) fn open(&self, wish: Delegation, cache: CacheHint) -> File {
        self.plan.wishes.lock().expect("whole").clear();
        self.plan.push(wish, cache);
        self.fake.open("/file", O_RDWR).expect("opens")
    }

    /// How its last open is read.
    pub(crate) fn flow(&self) -> Flow {
        self.plan.settled.lock().expect("whole").last().expect("an open").reads.flow
    }
}

pub(crate) fn lower_file(path: &Path) -> Arc<LowerFile> {
    let file = fs::File::options().read(true).write(true).open(path).expect("opens");
    Arc::new(LowerFile::new(file.into()))
}

#[track_caller]
pub(crate) fn compare(file: &File, bytes: &[u8], offset: usize, len: usize) {
    let seen = file.read_at(offset as u64, len).expect("reads");
    let wanted = &bytes[offset.min(bytes.len())..(offset + len).min(bytes.len())];
    assert!(seen == wanted, "{len} bytes at {offset}: {} came, {} are there", seen.len(), wanted.len());
}
