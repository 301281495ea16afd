//! The rules of the moment, and what happened to them.

use std::ffi::CString;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::{Mutex, RwLock};
use shuntfs::{Errno, Name, Notifier, NotifyError, Result};
use shuntfs_rules::{Failed, Rules};

use super::index::Index;
use super::paths::{Link, Paths};
use crate::node::{Identity, Node};
use crate::shared::Shared;

/// The kernel is to forget names.
const NAMES: u8 = 1;
/// The source is to be searched again.
const SEARCH: u8 = 1 << 1;
/// A thread is at it.
const BUSY: u8 = 1 << 2;

/// Rules, and the names that they are about.
#[derive(Debug)]
pub(crate) struct Engine {
    rules: RwLock<Arc<Rules>>,
    pub(crate) paths: Arc<Paths>,
    pub(crate) index: Index,
    /// How often the rules were read again with success.
    pub(super) reloads: AtomicU64,
    /// Evaluations that failed, and were refused.
    pub(super) failures: AtomicU64,
    /// What was wrong when they were last read again in vain.
    pub(super) error: Mutex<Option<String>>,
    /// What a move left to do: [`NAMES`], [`SEARCH`], and whether a thread is at it.
    chores: AtomicU8,
    /// The pool, for that thread.
    home: OnceLock<Weak<Shared>>,
    /// The way to tell the kernel, once there is a mount.
    pub(super) notifier: OnceLock<Notifier>,
}

impl Engine {
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            rules: RwLock::new(Arc::new(rules)),
            paths: Arc::new(Paths::new()),
            index: Index::default(),
            reloads: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            error: Mutex::new(None),
            chores: AtomicU8::new(0),
            home: OnceLock::new(),
            notifier: OnceLock::new(),
        }
    }

    /// Has the kernel look up every name again before it believes it, and list every folder again. The listings take
    /// locks in the kernel that callers of requests may hold, so not inside of a request.
    pub(super) fn forget_names(&self) {
        if let Some(notifier) = self.notifier.get() {
            forget_names(notifier, &self.paths);
        }
    }

    /// The same from inside of a request: names at once, where the kernel has epochs, and the rest as soon as a thread
    /// comes to it. Where a folder came under rules of a place, names in it may protect from now on.
    pub(crate) fn expire_names(&self, moved_folder: bool) {
        if let Some(notifier) = self.notifier.get() {
            heed(notifier.new_epoch());
        }
        let Some(home) = self.home.get().cloned() else { return };
        if moved_folder {
            self.chores.fetch_or(SEARCH, Ordering::SeqCst);
        }
        if self.chores.fetch_or(NAMES | BUSY, Ordering::SeqCst) & BUSY != 0 {
            // Whoever is at it sees that there is more to do.
            return;
        }
        let work = move || {
            if let Some(shared) = home.upgrade()
                && let Some(engine) = &shared.rules
            {
                engine.do_chores(&shared);
            }
        };
        if let Err(error) = std::thread::Builder::new().name("shunt-names".into()).spawn(work) {
            self.chores.fetch_and(!BUSY, Ordering::SeqCst);
            tracing::warn!(%error, "the kernel may list names for a while that were moved under other rules");
        }
    }

    /// What is left to do after moves, until nothing is; one thread at a time.
    fn do_chores(&self, shared: &Shared) {
        loop {
            let chores = self.chores.swap(BUSY, Ordering::SeqCst);
            if chores & NAMES != 0 {
                self.forget_names();
            }
            if chores & SEARCH != 0
                && let Err(error) = self.search(shared)
            {
                tracing::error!(%error, "hard links in a folder that was moved may not be protected by rules");
            }
            if self.chores.compare_exchange(BUSY, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                return;
            }
        }
    }

    /// Searches the source for the names that the rules of the moment protect.
    pub(crate) fn search(&self, shared: &Shared) -> Result<()> {
        self.index.build(shared, &self.rules())
    }

    /// The rules of the moment.
    pub(crate) fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.rules.read())
    }

    /// Takes other rules from now on.
    ///
    /// # Errors
    /// Where the source cannot be searched for the names that they protect; the earlier rules then hold.
    pub(super) fn replace(&self, shared: &Shared, rules: Rules) -> Result<()> {
        // Where this fails, what was found before is for the earlier rules, and right for them.
        self.index.build(shared, &rules)?;
        *self.rules.write() = Arc::new(rules);
        *self.error.lock() = None;
        self.reloads.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// A rule could not be evaluated: whoever asked gets EACCES.
    pub(super) fn refuse(&self, rules: &Rules, path: &[u8], failed: &Failed) -> Errno {
        self.failures.fetch_add(1, Ordering::Relaxed);
        let rule = rules.rules().get(failed.rule).map(|rule| rule.name.as_str()).unwrap_or_default();
        let path = String::from_utf8_lossy(path);
        tracing::warn!(rule, %path, why = %failed.why, "a rule cannot be evaluated, so what was asked is refused");
        Errno::ACCES
    }

    /// The paths of a node: those by which anybody reached its inode, in whatever view.
    pub(super) fn paths_of(&self, shared: &Shared, node: &Arc<Node>) -> Vec<Vec<u8>> {
        let mut paths = self.paths.of(node.id);
        if !node.is_dir() {
            paths.extend(self.paths_of_inode(shared, &node.identity));
            paths.sort_unstable();
            paths.dedup();
        }
        paths
    }

    /// The paths of an inode that is no folder: those by which anybody reached it, and those that protect it.
    pub(crate) fn paths_of_inode(&self, shared: &Shared, identity: &Identity) -> Vec<Vec<u8>> {
        let nodes = shared.table.peek(identity);
        let mut paths: Vec<Vec<u8>> = nodes.iter().flat_map(|node| self.paths.of(node.id)).collect();
        paths.extend(self.index.of(identity));
        paths
    }
}

/// Tells the rules whose they are.
pub(crate) fn settle_in(shared: &Arc<Shared>) {
    if let Some(engine) = &shared.rules {
        let _once = engine.home.set(Arc::downgrade(shared));
    }
}

fn forget_names(notifier: &Notifier, paths: &Paths) {
    let (folders, links) = paths.all();
    if notifier.new_epoch() == Err(NotifyError::Unsupported) {
        // Before Linux 6.16 there are no epochs.
        for Link { parent, name } in links {
            let name = CString::new(name).unwrap_or_default();
            if let Some(name) = Name::new(&name) {
                heed(notifier.entry(parent, name));
            }
        }
    }
    folders.into_iter().for_each(|folder| heed(notifier.data(folder, 0, 0)));
}

fn heed(outcome: std::result::Result<(), NotifyError>) {
    match outcome {
        Ok(()) | Err(NotifyError::Ended | NotifyError::Unknown | NotifyError::Unsupported) => {}
        Err(error) => {
            tracing::warn!(%error, "the kernel may believe names that it was told before the change")
        }
    }
}
