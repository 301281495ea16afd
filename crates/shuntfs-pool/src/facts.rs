//! What can be told of a pool from outside, while it is mounted.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::{Serialize, Serializer};
use shuntfs::{Name, NodeId};
use shuntfs_rules::CallerFacts;

use crate::branch::{Branch, space_of};
use crate::error::PoolError;
use crate::merge::{self, BranchChange, Explanation, Merge};
use crate::mover::{self, MoverError, MoverFacts, MoverNews};
use crate::options::{Cache, FlowWish, Locks};
use crate::policy::Function;
use crate::shared::Shared;

/// An error that is so old is not told as how a branch is.
const ERROR_LASTS: Duration = Duration::from_secs(60);

/// A branch is slow where a lookup takes so long on the average.
const SLOW: Duration = Duration::from_millis(100);

/// A view of a pool.
#[derive(Clone, Debug)]
pub struct Observer {
    shared: Arc<Shared>,
}

/// What an [`Observer`] sees.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct Facts {
    /// The folder that is shown.
    #[serde(serialize_with = "as_text")]
    pub source: PathBuf,
    /// The kind of its file system, as in `statfs`.
    pub magic: u64,
    /// What the kernel may keep.
    pub cache: Cache,
    /// Who keeps locks.
    pub locks: Locks,
    /// How bytes were wished to flow.
    pub flow: FlowWish,
    /// Whether changes are refused.
    pub read_only: bool,
    /// Whether lower calls run in the queue.
    pub inline: bool,
    /// Whether nodes are reached by file handle; else each keeps a descriptor.
    pub handles: bool,
    /// Lower file systems seen, the source's own included.
    pub mounts: usize,
    /// Nodes that the kernel knows, besides the root.
    pub nodes: usize,
    /// Descriptors cached for nodes.
    pub descriptors: usize,
    /// The branches, where there may be several.
    pub branches: Vec<BranchFacts>,
    /// Files that were moved to another branch because theirs was full.
    pub files_moved: u64,
    /// Forgets that took back more lookups than there were; other than 0 is a defect.
    pub overdrawn: u64,
}

/// What an [`Observer`] sees of a branch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct BranchFacts {
    /// The folder.
    #[serde(serialize_with = "as_text")]
    pub path: PathBuf,
    /// Its bytes in hexadecimal digits, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_hex: Option<String>,
    /// What it is called wherever it is mounted, if users call it so.
    pub id: Option<String>,
    /// What may be done there: `RW`, `RO` or `NC`.
    pub mode: &'static str,
    /// Whether its file system refuses changes.
    pub mounted_read_only: bool,
    /// All of its space, in bytes; `None` where it does not tell.
    pub total: Option<u64>,
    /// What of that is available.
    pub available: Option<u64>,
    /// What something new must leave free.
    pub min_free: u64,
    /// How many seconds ago it said how much space it has.
    pub space_age_s: Option<u64>,
    /// How it is.
    pub health: Health,
    /// Why it is not well.
    pub why: Option<String>,
    /// For how many seconds that is so, where that is known.
    pub since_s: Option<u64>,
    /// How many errors of a disk it gave when names were looked up, since the mount.
    pub errors: u64,
    /// How many files and folders there the kernel knows. A folder counts on each branch that has it.
    pub nodes: usize,
    /// How many files are open there.
    pub open_files: usize,
    /// Bytes that the server read there. What the kernel reads by itself, in passthrough, is not known.
    pub read_bytes: u64,
    /// Bytes that it wrote there.
    pub written_bytes: u64,
    /// How long the lookup of a name takes there, in nanoseconds: the mean of the last ones among those that were timed. `None` where there
    /// was none.
    pub lookup_ns: Option<u64>,
}

/// How a branch is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Health {
    /// It answers.
    Ok,
    /// It answers, and takes its time.
    Slow,
    /// It gave an error of a disk not long ago.
    Error,
    /// It does not answer now.
    Silent,
    /// It is set aside until it answers.
    Aside,
}

/// The bytes of a name that is not UTF-8, in hexadecimal digits: its text may be that of another.
pub(crate) fn hex_of(name: &[u8]) -> Option<String> {
    let hex = || name.iter().map(|byte| format!("{byte:02x}")).collect();
    std::str::from_utf8(name).is_err().then(hex)
}

/// A path that is not UTF-8 is no text: without this, one such branch would take all facts with it.
fn as_text<S: Serializer>(path: &Path, out: S) -> Result<S::Ok, S::Error> {
    match path.to_str() {
        Some(text) => out.serialize_str(text),
        None => out.collect_str(&shuntfs_seal::shown(path)),
    }
}

impl BranchFacts {
    /// Waits for a moment at most, however many disks hang.
    pub(crate) fn of_all(shared: &Shared, merge: &Merge) -> Vec<Self> {
        let branches = shared.branches.in_use();
        branches.iter().for_each(|branch| branch.ask());
        let nodes = nodes_by_branch(shared);
        let facts = |branch: &Branch| {
            let nodes = nodes.get(&branch.mounts.own().index.branch).copied().unwrap_or_default();
            Self { nodes, ..Self::of(branch, merge) }
        };
        branches.into_iter().map(facts).collect()
    }

    fn of(branch: &Branch, merge: &Merge) -> Self {
        let word = branch.word_in_time();
        let space = word.told.map(|(told, _)| space_of(&told.below));
        let (errors, error) = branch.health.errors();
        let error = error.filter(|(age, _)| *age < ERROR_LASTS);
        let mean = branch.pulse.mean();
        let (health, why, since) = if let Some((since, why)) = branch.health.aside() {
            (Health::Aside, Some(why.to_string()), Some(since))
        } else if let Some(silent) = word.silent_for {
            (Health::Silent, Some("it does not answer".to_owned()), Some(silent))
        } else if let Some((error, age)) = word.error {
            (Health::Error, Some(format!("it says of its space: {error}")), Some(age))
        } else if let Some((age, error)) = error {
            (Health::Error, Some(format!("the last lookup that failed: {error}")), Some(age))
        } else if let Some(mean) = mean.filter(|mean| *mean >= SLOW) {
            (Health::Slow, Some(format!("a lookup takes {} ms", mean.as_millis())), None)
        } else {
            (Health::Ok, None, None)
        };
        Self {
            path: branch.source().to_owned(),
            path_hex: hex_of(branch.source().as_os_str().as_bytes()),
            id: branch.id().map(str::to_owned),
            mode: branch.terms().mode.word(),
            mounted_read_only: branch.is_mounted_read_only(),
            total: space.map(|space| space.total),
            available: space.map(|space| space.available),
            min_free: merge.min_free(branch),
            space_age_s: word.told.map(|(_, age)| age.as_secs()),
            health,
            why,
            since_s: since.map(|since| since.as_secs()),
            errors,
            nodes: 0,
            open_files: branch.opens(),
            read_bytes: branch.traffic().read_bytes(),
            written_bytes: branch.traffic().written_bytes(),
            lookup_ns: mean.and_then(|mean| u64::try_from(mean.as_nanos()).ok()),
        }
    }
}

/// How many nodes each branch has.
fn nodes_by_branch(shared: &Shared) -> HashMap<u16, usize> {
    let mut counts: HashMap<u16, usize> = HashMap::new();
    let mut count = |branch: u16| *counts.entry(branch).or_default() += 1;
    for node in shared.table.all() {
        match node.parts() {
            Some(parts) => parts.all().iter().for_each(|place| count(place.mount().branch)),
            None => count(node.place().mount().branch),
        }
    }
    counts
}

impl Observer {
    pub(crate) fn of(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Has branches come, go or change; which there are then.
    ///
    /// # Errors
    /// What [`PoolError`] says of a branch; then nothing has changed. [`PoolError::NotOfOneFolder`] where there is one folder.
    pub fn change_branches(&self, change: &BranchChange) -> Result<Vec<BranchFacts>, PoolError> {
        match &self.shared.merge {
            Some(merge) => merge::change(&self.shared, merge, change),
            None => Err(PoolError::NotOfOneFolder),
        }
    }

    /// Moves the files that rules want elsewhere, or, if `is_dry`, only looks which. `tell` hears of each file that is due, and several times a second
    /// how far it is, and says whether to go on: if not, the run ends after the file that it is at. May take as long as all disks together.
    ///
    /// # Errors
    /// [`MoverError`], and then nothing was looked at.
    pub fn run_mover(
        &self,
        is_dry: bool,
        tell: &mut (dyn FnMut(MoverNews) -> bool + Send),
    ) -> Result<MoverFacts, MoverError> {
        mover::run(&self.shared, is_dry, tell)
    }

    /// How far the mover is, or how its last run ended; `None` before the first since the mount.
    #[must_use]
    pub fn mover(&self) -> Option<MoverFacts> {
        self.shared.merge.as_ref()?.mover.facts()
    }

    /// Whether several branches are shown as one, or may be.
    #[must_use]
    pub fn has_branches(&self) -> bool {
        self.shared.merge.is_some()
    }

    /// Which branches a function would go to with a name now, if somebody called it, and why not to the others; `None` of one folder.
    ///
    /// # Errors
    /// ESTALE and ENOTDIR for what is no folder that the kernel knows.
    pub fn explain(
        &self,
        folder: NodeId,
        name: Name<'_>,
        function: Function,
        caller: &dyn CallerFacts,
    ) -> shuntfs::Result<Option<Explanation>> {
        let Some(merge) = &self.shared.merge else { return Ok(None) };
        merge::explain(&self.shared, merge, (folder, name), (function, caller)).map(Some)
    }

    /// The seal of a node, where it has one that is checked.
    #[must_use]
    pub fn seal_of(&self, node: NodeId) -> Option<shuntfs_verified::SealNote> {
        self.shared.sealed.as_ref()?.note_of(node)
    }

    /// Whether of a partial view whose hidden ranges are given the rest is moved, as where there is zero copy, and not served.
    #[must_use]
    pub fn moves_by_range(&self) -> bool {
        self.shared.kernel.zero_copy.load(Ordering::Relaxed)
    }

    /// The state of the moment. Walks the caches; not for a busy loop.
    #[must_use]
    pub fn facts(&self) -> Facts {
        let shared = &self.shared;
        let own = shared.first_branch().mounts.own();
        Facts {
            source: match shared.merge {
                // It may have been opened by a descriptor, which is not what it is called.
                None => shared.first_branch().source().to_owned(),
                Some(_) => shared.options.source.clone(),
            },
            magic: own.magic.0,
            cache: shared.options.cache,
            locks: shared.options.locks,
            flow: shared.options.flow,
            read_only: shared.is_seen_read_only(),
            inline: shared.runs_inline(),
            handles: own.has_handles(),
            mounts: shared.branches.known().map(|branch| branch.mounts.len()).sum(),
            nodes: shared.table.len(),
            descriptors: shared.descriptors.len(),
            branches: shared.merge.as_ref().map_or_else(Vec::new, |merge| BranchFacts::of_all(shared, merge)),
            files_moved: shared.merge.as_ref().map_or(0, Merge::files_moved),
            overdrawn: shared.table.overdrawn(),
        }
    }
}
