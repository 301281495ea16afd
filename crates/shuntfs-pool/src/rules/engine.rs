//! The rules of the moment, and what happened to them.

use std::ffi::CString;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use shuntfs::{Errno, Name, Notifier, NotifyError, Result};
use shuntfs_rules::{Failed, Rules};
use shuntfs_sys::stat_of;

use super::index::{Index, Known};
use super::paths::{Link, Paths};
use super::search::{leads_to, search};
use crate::error::errno;
use crate::folding;
use crate::merge::Growing;
use crate::node::{Identity, Marks, Node};
use crate::shared::Shared;

/// The kernel is to forget names.
const NAMES: u8 = 1;
/// The source must be searched again.
const SEARCH: u8 = 1 << 1;
/// A thread is at it.
const BUSY: u8 = 1 << 2;

/// After a search the next one waits for so many times as long, and for this long at least.
const SEARCH_SHARE: u32 = 10;
const SEARCH_PAUSE_MIN: Duration = Duration::from_millis(100);

/// When a search ended, and how long none begins.
#[derive(Clone, Copy, Debug)]
struct Pause {
    since: Instant,
    long: Duration,
}

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
    /// One change of names after the other, from its judgement until it is noted: what was judged must still be so when it
    /// is done.
    pub(crate) order: Growing,
    /// One search after the other.
    searching: Mutex<()>,
    /// When the last one ended, and when the next may begin.
    pause: Mutex<Option<Pause>>,
    /// What a move left to do: [`NAMES`], [`SEARCH`], and whether a thread is at it.
    chores: AtomicU8,
    /// The pool, for that thread.
    home: OnceLock<Weak<Shared>>,
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
            order: Growing::default(),
            searching: Mutex::new(()),
            pause: Mutex::new(None),
            chores: AtomicU8::new(0),
            home: OnceLock::new(),
        }
    }

    /// Has the kernel look up every name again before it believes it, and list every folder again. The listings take
    /// locks in the kernel that callers of requests may hold, so not inside of a request.
    pub(super) fn forget_names(&self, shared: &Shared) {
        if let Some(notifier) = shared.notifier.get() {
            forget_names(notifier, &self.paths);
        }
    }

    /// The same from inside of a request: names at once, where the kernel has epochs, and the rest as soon as a thread
    /// comes to it.
    pub(crate) fn expire_names(&self, shared: &Shared) {
        if let Some(notifier) = shared.notifier.get() {
            heed(notifier.new_epoch());
        }
        self.leave(NAMES);
    }

    /// The same of names that a dead server has given to the kernel, if it had any: what it was about to take back is not known.
    pub(crate) fn doubt_names(&self, shared: &Shared) {
        if !self.paths.is_empty() {
            self.expire_names(shared);
        }
    }

    /// The pool whose rules these are.
    pub(crate) fn home(&self) -> Option<&Weak<Shared>> {
        self.home.get()
    }

    /// Has the source searched again, because some name of a file is not known; not more often than it takes a tenth of
    /// the time.
    pub(super) fn want_search(&self) {
        let pause = *self.pause.lock();
        if pause.is_none_or(|Pause { since, long }| since.elapsed() >= long) {
            self.leave(SEARCH);
        }
    }

    /// Has the source searched again as soon as a thread comes to it: there are other branches than before.
    pub(crate) fn search_soon(&self) {
        if self.index.is_kept() {
            self.leave(SEARCH);
        }
    }

    /// A branch that was set aside is taken back. Where a search left one out, the names that it has are searched for.
    pub(crate) fn comes_back(&self) {
        if self.index.misses() {
            self.search_soon();
        }
    }

    /// Leaves something to a thread that does it outside of requests.
    fn leave(&self, chore: u8) {
        let Some(home) = self.home.get().cloned() else { return };
        if self.chores.fetch_or(chore | BUSY, Ordering::SeqCst) & BUSY != 0 {
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
                self.forget_names(shared);
            }
            if chores & SEARCH != 0
                && let Err(error) = self.search(shared)
            {
                tracing::error!(%error, "the source cannot be searched for names; files with names that are not known stay refused");
            }
            if self.chores.compare_exchange(BUSY, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                return;
            }
        }
    }

    /// Searches the source for all names of files with several, where rules go by names.
    pub(crate) fn search(&self, shared: &Shared) -> Result<()> {
        let _one = self.searching.lock();
        if !self.rules().restricts_by_name() {
            return Ok(());
        }
        let begun = Instant::now();
        let outcome = search(shared, &self.index);
        let long = (begun.elapsed() * SEARCH_SHARE).max(SEARCH_PAUSE_MIN);
        *self.pause.lock() = Some(Pause { since: Instant::now(), long });
        outcome
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
        let _one = self.searching.lock();
        let by_name = rules.restricts_by_name();
        // What was found for the earlier rules is right for these, too: all names are kept.
        if by_name && !self.index.is_kept() {
            search(shared, &self.index)?;
            if let Some((path, why)) = folding::of_source(shared)? {
                tracing::error!(?path, %why, "the rules are not taken");
                self.index.clear();
                return Err(Errno::OPNOTSUPP);
            }
        }
        *self.rules.write() = Arc::new(rules);
        if !by_name {
            self.index.clear();
        }
        *self.error.lock() = None;
        self.reloads.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// A rule could not be evaluated: whoever asked gets EACCES.
    pub(crate) fn refuse(&self, rules: &Rules, path: &[u8], failed: &Failed) -> Errno {
        self.failures.fetch_add(1, Ordering::Relaxed);
        let rule = rules.rules().get(failed.rule).map(|rule| rule.name.as_str()).unwrap_or_default();
        let path = String::from_utf8_lossy(path);
        tracing::warn!(rule, %path, why = %failed.why, "a rule cannot be evaluated, so what was asked is refused");
        Errno::ACCES
    }

    /// Whether a node is read without a check of its seal, whoever reads it.
    pub(crate) fn is_unchecked(&self, shared: &Shared, node: &Arc<Node>) -> bool {
        let (rules, known) = (self.rules(), self.names_of(shared, node));
        known.is_ok_and(|known| {
            known.is_all && !known.paths.is_empty() && known.paths.iter().all(|path| rules.unchecked(path))
        })
    }

    /// The names of a node: those by which anybody reached its inode, in whatever view and through whatever mount, and those
    /// that the source was found to have; and whether these are all.
    ///
    /// # Errors
    /// Those of asking the lower file system how many there are.
    pub(super) fn names_of(&self, shared: &Shared, node: &Arc<Node>) -> Result<Known> {
        if node.is_dir() {
            let mut paths = self.paths.of(node.id);
            shared.add_aliases(&mut paths);
            return Ok(Known { paths, is_all: true });
        }
        let may_have_others = self.index.is_kept() && (node.has(Marks::LINKED) || !shared.is_ours_alone());
        let links = if may_have_others { stat_of(shared.descriptor(node)?).map_err(errno)?.nlink } else { 1 };
        let mut nodes = nodes_of(shared, node.key());
        // A node that the kernel has forgotten is open still, perhaps.
        if !nodes.iter().any(|known| known.id == node.id) {
            nodes.push(Arc::clone(node));
        }
        let mut known = self.names_of_nodes(shared, node.key(), links, &nodes);
        shared.add_aliases(&mut known.paths);
        known.paths.sort_unstable();
        known.paths.dedup();
        Ok(known)
    }

    /// The same of an inode that is no folder and has so many links.
    pub(crate) fn names_of_inode(&self, shared: &Shared, identity: &Identity, links: u32) -> Known {
        self.names_of_nodes(shared, identity, links, &nodes_of(shared, identity))
    }

    /// The same where its nodes are known.
    fn names_of_nodes(&self, shared: &Shared, identity: &Identity, links: u32, nodes: &[Arc<Node>]) -> Known {
        let home = shared.home(identity);
        let mut known = if links <= 1 || shared.is_ours_alone() {
            self.index.of(&home, links)
        } else {
            // What cannot be told of a name is not counted, so that it cannot hide another.
            let holds = |branch: u16, path: &[u8]| leads_to(shared, branch, path, &home).unwrap_or(false);
            self.index.keep(&home, links, holds)
        };
        known.paths.extend(nodes.iter().flat_map(|node| self.paths.of(node.id)));
        known.paths.sort_unstable();
        known.paths.dedup();
        known.is_all |= !self.index.is_kept();
        known
    }

    /// Says that a file was refused because of names that are not known.
    pub(super) fn refuse_unknown(&self, path: &[u8]) -> Errno {
        self.failures.fetch_add(1, Ordering::Relaxed);
        let path = String::from_utf8_lossy(path);
        tracing::warn!(
            %path,
            "the file has names that are not known, and a rule could protect it by one of them, so what was asked is refused"
        );
        Errno::ACCES
    }
}

/// The nodes of an inode, in whatever view and through whatever mount; names on a branch that was removed are none of the pool's.
fn nodes_of(shared: &Shared, identity: &Identity) -> Vec<Arc<Node>> {
    let in_use = shared.branches.order();
    let everywhere = shared.everywhere(identity).filter(|identity| in_use.contains(&identity.mount.branch));
    everywhere.flat_map(|identity| shared.table.peek(&identity)).collect()
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
