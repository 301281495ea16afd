//! One run of sealing, in the order that keeps the old seal good until the new one is.

use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use shuntfs_sys::{Device, open, stat_of};
use shuntfs_verity::sign::KeyPair;
use shuntfs_verity::{Descriptor, Digest, Params, Shape, build_at};

use super::enable::Enabled;
use super::error::SealError;
use super::hash::{Hashed, Hashing, changed};
use super::known::Known;
use super::scan::{Progress, Scan};
use super::stage::Stage;
use crate::walk::{State, Top};
use crate::{Counts, Seal, Store, StoreError, inodes};

/// How a tree is to be sealed.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "whoever seals decides all of it")]
pub struct SealOptions<'a> {
    /// How files, and the manifest, are hashed.
    pub params: Params,
    /// Where the store is; `None` for `.shunt` in the tree.
    pub store: Option<PathBuf>,
    /// Who signs.
    pub keys: Vec<&'a KeyPair>,
    /// Threads that hash.
    pub jobs: NonZeroUsize,
    /// Whether the kernel's own fs-verity is turned on where it can be.
    pub enable: bool,
}

/// What a run did.
#[derive(Debug)]
#[non_exhaustive]
pub struct Report {
    /// Where the store is.
    pub store: PathBuf,
    /// The manifest's digest, which stands for the tree.
    pub digest: Digest,
    /// What is sealed.
    pub counts: Counts,
    /// Files that were hashed.
    pub hashed: u64,
    /// Bytes that were hashed.
    pub hashed_bytes: u64,
    /// Files that were not, because they are as they were at the last seal.
    pub unchanged: u64,
    /// Files that were not, because an interrupted run had.
    pub resumed: u64,
    /// Trees and manifests that nothing names any more and that were removed.
    pub pruned: u64,
    /// What came of turning fs-verity on, where that was asked for.
    pub enabled: Option<Enabled>,
    /// What went wrong after the tree was sealed: it is sealed all the same.
    pub notes: Vec<String>,
}

/// Seals a folder.
///
/// # Errors
/// Something cannot be read, or changed meanwhile; the store cannot be written. What was sealed before still is, and what was
/// hashed is not hashed again.
pub fn seal_tree(
    folder: &Path,
    options: &SealOptions<'_>,
    progress: &dyn Progress,
) -> Result<Report, SealError> {
    let path = options.store.clone().unwrap_or_else(|| Store::beside(folder));
    // Not to make a store in what is no folder.
    let top_stat = open::open_folder(folder).and_then(stat_of);
    let top_stat = top_stat.map_err(|error| SealError::read(folder.to_owned(), error))?;
    let stage = Stage::open(&path)?;
    let store = stage.store()?;
    let top = Top::open(folder, Some(&path)).map_err(|error| SealError::read(folder.to_owned(), error))?;
    let params = options.params;
    let mut scan = Scan::walk(&top, params, progress)?;
    let known = Known::load(&path, &params, top_stat.dev);
    let mut progressing = known.progress(&path).map_err(|error| StoreError::io(&path, error))?;
    let hashing = Hashing {
        top: &top,
        scan: &scan,
        stage: &stage,
        store: &store,
        known: &known,
        params,
        jobs: options.jobs,
        progress,
    };
    let hashed = hashing.run(&mut progressing)?;
    let changed_folders = scan.changed_folders(&top);
    if !changed_folders.is_empty() {
        return Err(changed(changed_folders));
    }
    let manifest = write_manifest(&mut scan, &hashed, &stage, &store, options)?;
    // Everything that the seal names is on disk before the seal is.
    stage.sync()?;
    stage.replace(&store.seal_path(), &Seal::new(manifest, &options.keys).to_bytes())?;
    let mut report = Report {
        store: path,
        digest: manifest.digest(),
        counts: scan.draft.counts(),
        hashed: hashed.hashed,
        hashed_bytes: hashed.hashed_bytes,
        unchanged: hashed.unchanged,
        resumed: hashed.resumed,
        pruned: 0,
        enabled: None,
        notes: Vec::new(),
    };
    let sealed = Sealed { top: &top, scan: &scan, root_hashes: &hashed.root_hashes, params: &params };
    if options.enable {
        report.enabled = Some(sealed.enable());
    }
    let remembered = sealed
        .remember(&stage, &known, options.enable)
        .and_then(|()| progressing.remove().map_err(|error| StoreError::io(&report.store, error)));
    if let Err(error) = remembered {
        report.notes.push(format!("the next run hashes everything again: {error}"));
    }
    if let Err(error) = sealed.note_inodes(&stage, &store, &report.digest, top_stat.dev) {
        report.notes.push(format!("other names of sealed files are not known: {error}"));
    }
    match super::prune::prune(&store, &sealed.trees(manifest), &report.digest) {
        Ok(pruned) => report.pruned = pruned,
        Err(error) => report.notes.push(format!("old trees are left in the store: {error}")),
    }
    Ok(report)
}

/// Writes the manifest and its tree, and puts both into their places: nothing names them yet.
fn write_manifest(
    scan: &mut Scan,
    hashed: &Hashed,
    stage: &Stage,
    store: &Store,
    options: &SealOptions<'_>,
) -> Result<Descriptor, SealError> {
    for (job, root_hash) in scan.files.iter().zip(&hashed.root_hashes) {
        let set = scan.draft.set_root_hash(job.node, root_hash);
        set.map_err(|error| SealError::manifest(stage.path().to_owned(), &error))?;
    }
    let failed = |error| StoreError::io(stage.path(), error);
    let mut staged = stage.start()?;
    scan.draft.write(&mut staged).map_err(failed)?;
    let len = staged.file().metadata().map_err(failed)?.len();
    let mut tree = stage.start()?;
    let built = build_at(&options.params, len, staged.file(), &mut tree, options.jobs);
    let built =
        built.map_err(|error| SealError::build(stage.path().to_owned(), stage.path().to_owned(), error))?;
    let digest = built.digest();
    staged.keep(&store.manifest_path(&digest))?;
    if Shape::new(&options.params, len).is_ok_and(|shape| shape.levels() > 0) {
        tree.keep(&store.tree_path(&digest))?;
    }
    Ok(built)
}

/// A tree whose seal is in its place.
struct Sealed<'a> {
    top: &'a Top,
    scan: &'a Scan,
    root_hashes: &'a [Digest],
    params: &'a Params,
}

impl Sealed<'_> {
    fn digests(&self) -> impl Iterator<Item = (u64, Digest)> {
        self.scan.files.iter().zip(self.root_hashes).filter_map(|(job, root_hash)| {
            let descriptor = Descriptor::new(self.params, job.state.size, *root_hash).ok()?;
            Some((job.state.size, descriptor.digest()))
        })
    }

    /// The digests whose trees are needed.
    fn trees(&self, manifest: Descriptor) -> HashSet<Digest> {
        let block = u64::from(self.params.block_size().bytes());
        let trees = self.digests().filter(|(size, _)| *size > block).map(|(_, digest)| digest);
        trees.chain([manifest.digest()]).collect()
    }

    fn enable(&self) -> Enabled {
        let mut enabled = Enabled::default();
        for (job, (_, digest)) in self.scan.files.iter().zip(self.digests()) {
            let below = self.scan.path_of(job);
            enabled.file(self.top.file(&below), self.top.name(&below), (self.params, &digest));
        }
        enabled
    }

    /// Writes down which inodes they are.
    fn note_inodes(
        &self,
        stage: &Stage,
        store: &Store,
        manifest: &Digest,
        top: Device,
    ) -> Result<(), StoreError> {
        let files = self.scan.files.iter().map(|job| (job.state.dev, job.state.ino, job.node));
        stage.replace(&store.path().join(inodes::NAME), &inodes::to_bytes(manifest, top, files))
    }

    /// Writes down which files are hashed. Turning fs-verity on may have changed their `ctime`.
    fn remember(&self, stage: &Stage, known: &Known, was_enabled: bool) -> Result<(), StoreError> {
        let now = |job: &super::scan::FileJob| {
            let stat = self.top.file(&self.scan.path_of(job)).and_then(stat_of).ok()?;
            let state = State::of(&stat);
            (State { ctime: job.state.ctime, ..state } == job.state).then_some(state)
        };
        let state =
            |job: &super::scan::FileJob| if was_enabled { now(job) } else { None }.unwrap_or(job.state);
        let states: Vec<State> = self.scan.files.iter().map(state).collect();
        let path = stage.path().join("unchanged");
        stage.replace(&path, &known.unchanged(states.iter().zip(self.root_hashes)))
    }
}
