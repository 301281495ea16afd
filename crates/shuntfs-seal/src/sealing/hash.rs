//! Hashing what is not known: small files one to a thread, large ones by all threads together.
//!
//! A file is sealed only as it was from the walk to the end of its hashing: size, times and inode number are compared before
//! and after. A change within the same tick of the clock would go unseen, so nothing is hashed before the tick of its
//! last change is over.

use std::collections::HashSet;
use std::fs::File;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use shuntfs_sys::{Time, stat_of};
use shuntfs_verity::{Descriptor, Digest, Discard, Params, Shape, build_at};

use super::error::SealError;
use super::known::{Belief, Known, Progressing, Source};
use super::repair;
use super::scan::{FileJob, Progress, Scan};
use super::stage::{Place, Stage};
use crate::spread::{Counted, spread};
use crate::walk::{State, Top};
use crate::{Store, StoreError};

/// The longest tick of a clock that files get their times from (100 Hz), twice.
const TICK: Duration = Duration::from_millis(20);
/// File systems without nanoseconds.
const COARSE_TICK: Duration = Duration::from_secs(2);
/// Changed files that are named.
const NAMED_MAX: usize = 20;

/// What hashing needs.
#[derive(Clone, Copy)]
pub(crate) struct Hashing<'a> {
    pub(crate) top: &'a Top,
    pub(crate) scan: &'a Scan,
    pub(crate) stage: &'a Stage,
    pub(crate) store: &'a Store,
    pub(crate) known: &'a Known,
    pub(crate) belief: Belief,
    pub(crate) params: Params,
    pub(crate) jobs: NonZeroUsize,
    pub(crate) progress: &'a dyn Progress,
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Hashed {
    /// The files' root hashes, in the order of [`Scan::files`].
    pub(crate) root_hashes: Vec<Digest>,
    pub(crate) hashed: u64,
    pub(crate) hashed_bytes: u64,
    pub(crate) unchanged: u64,
    pub(crate) resumed: u64,
    /// Files whose data is not what was noted of them, although nothing says that they changed.
    pub(crate) differs: Vec<PathBuf>,
}

/// What the threads bring together.
struct Gathered<'a> {
    results: Mutex<Results<'a>>,
    stopped: AtomicBool,
}

struct Results<'a> {
    root_hashes: Vec<Option<Digest>>,
    progressing: &'a mut Progressing,
    changed: Vec<PathBuf>,
    differs: Vec<PathBuf>,
    failed: Option<SealError>,
}

impl Hashing<'_> {
    /// Hashes every file whose hash is not known.
    pub(crate) fn run(&self, progressing: &mut Progressing) -> Result<Hashed, SealError> {
        let mut done = Hashed::default();
        let mut root_hashes = vec![None; self.scan.files.len()];
        let mut pending = Vec::new();
        let damaged = if self.belief == Belief::Checked { self.damaged() } else { HashSet::new() };
        for (index, (job, place)) in self.scan.files.iter().zip(&mut root_hashes).enumerate() {
            match self.find(job).filter(|_| !damaged.contains(&index)) {
                Some((hash, source)) => {
                    *place = Some(hash);
                    match source {
                        Source::Unchanged => done.unchanged += 1,
                        Source::Resumed => done.resumed += 1,
                    }
                }
                None => pending.push((index, job.state.size)),
            }
        }
        done.hashed = pending.len() as u64;
        done.hashed_bytes = pending.iter().map(|(_, size)| *size).sum();
        self.progress.to_hash(done.hashed, done.hashed_bytes);
        let results =
            Results { root_hashes, progressing, changed: Vec::new(), differs: Vec::new(), failed: None };
        let gathered = Gathered { results: Mutex::new(results), stopped: AtomicBool::new(false) };
        spread(&pending, self.jobs, |index, threads| self.hash_into(index, threads, &gathered));
        let results = gathered.results.into_inner();
        results.progressing.flush().map_err(|error| StoreError::io(self.stage.path(), error))?;
        if let Some(error) = results.failed {
            return Err(error);
        }
        if !results.changed.is_empty() {
            return Err(changed(results.changed));
        }
        if self.belief == Belief::Checked && !results.differs.is_empty() {
            let (paths, count) = named(results.differs);
            return Err(SealError::Damaged { paths, count });
        }
        done.differs = results.differs;
        done.root_hashes = results.root_hashes.into_iter().flatten().collect();
        assert_eq!(done.root_hashes.len(), self.scan.files.len(), "every file is hashed or named");
        Ok(done)
    }

    /// What is known of a file and has its tree in the store, where it needs one.
    fn find(&self, job: &FileJob) -> Option<(Digest, Source)> {
        if self.belief == Belief::Nothing {
            return None;
        }
        let (root_hash, source) = self.known.find(&job.state)?;
        let descriptor = Descriptor::new(&self.params, job.state.size, root_hash).ok()?;
        self.store.open_tree(&descriptor).ok()?;
        Some((root_hash, source))
    }

    /// Known files whose stored tree is not what it must be.
    fn damaged(&self) -> HashSet<usize> {
        let descriptor = |job: &FileJob| {
            let (root_hash, _) = self.known.find(&job.state)?;
            Descriptor::new(&self.params, job.state.size, root_hash).ok()
        };
        let known: Vec<(usize, u64)> = self.scan.files.iter().map(|job| job.state.size).enumerate().collect();
        let found = Mutex::new(HashSet::new());
        spread(&known, self.jobs, |index, _| {
            let descriptor = self.scan.files.get(index).and_then(descriptor);
            if descriptor.is_some_and(|descriptor| !repair::is_whole(self.store, &descriptor)) {
                found.lock().insert(index);
            }
        });
        found.into_inner()
    }

    fn hash_into(&self, index: usize, threads: NonZeroUsize, gathered: &Gathered<'_>) {
        let Some(job) = self.scan.files.get(index) else { return };
        if gathered.stopped.load(Ordering::Relaxed) {
            return;
        }
        let hashed = self.hash(job, threads);
        let mut results = gathered.results.lock();
        let hashed = hashed.and_then(|hash| {
            let added = results.progressing.add(self.known, &job.state, &hash);
            added.map(|()| hash).map_err(|error| StoreError::io(self.stage.path(), error).into())
        });
        match hashed {
            Ok(hash) => {
                if let Some(place) = results.root_hashes.get_mut(index) {
                    *place = Some(hash);
                }
                if self.known.find(&job.state).is_some_and(|(noted, _)| noted != hash) {
                    results.differs.push(self.top.name(&self.scan.path_of(job)));
                }
                drop(results);
                self.progress.file_done();
            }
            // The others are examined, too, so that one run names all that change.
            Err(SealError::Changed { paths, .. }) => results.changed.extend(paths),
            Err(error) => {
                results.failed.get_or_insert(error);
                gathered.stopped.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Hashes one file, and puts its tree into the store.
    fn hash(&self, job: &FileJob, threads: NonZeroUsize) -> Result<Digest, SealError> {
        let below = self.scan.path_of(job);
        let name = || self.top.name(&below);
        let gone = |error| SealError::gone_or(name(), error);
        settle(job.state.ctime);
        let file = File::from(self.top.file(&below).map_err(gone)?);
        let is_same = || stat_of(&file).map(|now| State::of(&now) == job.state).map_err(gone);
        if !is_same()? {
            return Err(SealError::changed(name()));
        }
        let source = Counted { file: &file, progress: self.progress };
        let size = job.state.size;
        let shape = Shape::new(&self.params, size);
        let shape = shape.map_err(|error| SealError::Impossible { path: name(), why: error.to_string() })?;
        let failed = |error| SealError::build(name(), self.stage.path().to_owned(), error);
        if shape.levels() == 0 {
            let built = build_at(&self.params, size, &source, Discard, threads).map_err(failed)?;
            return if is_same()? { Ok(*built.root_hash()) } else { Err(SealError::changed(name())) };
        }
        let mut tree = self.stage.start()?;
        let descriptor = build_at(&self.params, size, &source, &mut tree, threads).map_err(failed)?;
        if !is_same()? {
            return Err(SealError::changed(name()));
        }
        tree.keep(Place::Tree(&descriptor.digest()))?;
        Ok(*descriptor.root_hash())
    }
}

/// Names what changed, not more than a person reads.
pub(crate) fn changed(paths: Vec<PathBuf>) -> SealError {
    let (paths, count) = named(paths);
    SealError::Changed { paths, count }
}

/// The first of some paths, and how many there are.
fn named(mut paths: Vec<PathBuf>) -> (Vec<PathBuf>, usize) {
    let count = paths.len();
    paths.sort();
    paths.truncate(NAMED_MAX);
    (paths, count)
}

/// Waits until the tick of the clock in which a file changed last is over.
pub(crate) fn settle(ctime: Time) {
    let Ok(secs) = u64::try_from(ctime.secs) else { return };
    let changed = SystemTime::UNIX_EPOCH + Duration::new(secs, ctime.nanos);
    let tick = if ctime.nanos == 0 { COARSE_TICK } else { TICK };
    // A time to come is another machine's, and tells nothing of ticks.
    if let Ok(age) = changed.elapsed()
        && let Some(rest) = tick.checked_sub(age)
    {
        thread::sleep(rest);
    }
}
