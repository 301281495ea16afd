//! A pool that the test's own process serves, and the disks below it.
#![allow(dead_code, reason = "each test program uses some of it")]

pub(crate) mod bound;
pub(crate) mod handles;
pub(crate) mod hanging;
pub(crate) mod users;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use shuntfs::{MountOptions, Session, SessionOptions};
use shuntfs_pool::policy::Policy;
use shuntfs_pool::{BranchOptions, MergeOptions, Observer, Pool, RuleControl};
use shuntfs_testkit::lower::{Lower, LowerKind, LowerSpec};
use shuntfs_testkit::skipped;
use shuntfs_testkit::supervisor::Supervisor;

const LIMIT: Duration = Duration::from_secs(120);
const MIB: u64 = 1 << 20;

/// A mount, which ends with this.
pub(crate) struct Mounted {
    pub(crate) session: Session,
    pub(crate) observer: Observer,
    control: Option<RuleControl>,
    pub(crate) top: tempfile::TempDir,
    pub(crate) disks: Vec<Lower>,
    _supervisor: Supervisor,
}

impl Mounted {
    /// Every user may get in. `None` where nothing can be mounted, and then the reason was said.
    pub(crate) fn new(pool: Pool, disks: Vec<Lower>) -> Option<Self> {
        let how = MountOptions { allow_other: true, ..MountOptions::default() };
        Self::with(pool, disks, &how, &SessionOptions::default())
    }

    pub(crate) fn with(
        pool: Pool,
        disks: Vec<Lower>,
        how: &MountOptions,
        options: &SessionOptions,
    ) -> Option<Self> {
        let top = tempfile::tempdir().unwrap();
        let (observer, control) = (pool.observer(), pool.rule_control());
        let session = match Session::mount(Arc::new(pool), top.path(), how, options) {
            Ok(session) => session,
            Err(error) => {
                skipped(&format!("cannot mount here: {error}"));
                return None;
            }
        };
        let supervisor = Supervisor::of(top.path(), LIMIT).unwrap();
        Some(Self { session, observer, control, top, disks, _supervisor: supervisor })
    }

    /// Unmounts what nobody uses any more, and fails where something went wrong that no caller was told.
    pub(crate) fn end(self) {
        self.session.unmount().unwrap();
        self.session.wait();
        assert_eq!(self.session.status().panics, 0);
        assert_eq!(self.observer.facts().overdrawn, 0);
    }

    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.top.path().join(path)
    }

    pub(crate) fn below(&self, disk: usize, path: &str) -> PathBuf {
        self.disks[disk].path().join(path)
    }

    /// Of the rules that it was mounted under.
    pub(crate) fn control(&self) -> &RuleControl {
        self.control.as_ref().unwrap()
    }

    /// What a script says that a user runs in the mount, with its errors.
    pub(crate) fn says(&self, uid: u32, script: &str) -> String {
        users::says(self.top.path(), uid, script)
    }

    /// Fails unless the script says `expected`, or ends with it.
    pub(crate) fn expect(&self, uid: u32, script: &str, expected: &str) {
        users::expect(self.top.path(), uid, script, expected);
    }

    /// On which disks a path is.
    pub(crate) fn on(&self, path: &str) -> Vec<usize> {
        (0..self.disks.len()).filter(|disk| self.below(*disk, path).symlink_metadata().is_ok()).collect()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = self.session.unmount() {
            eprintln!("the mount is left to its supervisor: {error}");
        }
    }
}

/// Disks over memory of so many MiB; `None` where they cannot be had, and then the reason was said.
pub(crate) fn disks(kind: LowerKind, sizes: &[u64]) -> Option<Vec<Lower>> {
    sizes.iter().map(|size| LowerSpec::new(kind).size(size * MIB).make().unwrap()).collect()
}

/// Disks as branches that may be filled, under a policy for new things.
pub(crate) fn merge(disks: &[Lower], create: &str) -> MergeOptions {
    let branches = disks.iter().map(|disk| BranchOptions::new(disk.path())).collect();
    MergeOptions { create: Policy::of(create).unwrap(), min_free: 0, ..MergeOptions::new(branches) }
}
