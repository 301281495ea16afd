//! One run of sealing, in the order that keeps the old seal good until the new one is.

use std::collections::HashSet;
use std::io::Write as _;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use shuntfs_sys::{Device, OsError, stat_of};
use shuntfs_verity::sign::KeyPair;
use shuntfs_verity::{Descriptor, Digest, Params, Shape, build_at};

use super::enable::Enabled;
use super::error::SealError;
use super::hash::{Hashed, Hashing, changed};
use super::home::{Allowed, Home};
use super::issue::next_issue;
use super::known::{Belief, For, Known};
use super::scan::{Progress, Scan};
use super::stage::{Place, Stage};
use crate::walk::{State, Top};
use crate::{Counts, Issue, Seal, StoreError, TreeName, inodes, shown};

/// How a tree must be sealed.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "whoever seals decides all of it")]
pub struct SealOptions<'a> {
    /// How files, and the manifest, are hashed.
    pub params: Params,
    /// Where the store is; `None` for `.shunt` in the tree.
    pub store: Option<PathBuf>,
    /// What the tree is called; `None` for the folder's own name, and then no seal of another tree is replaced.
    pub tree: Option<TreeName>,
    /// Who signs.
    pub keys: Vec<&'a KeyPair>,
    /// Threads that hash.
    pub jobs: NonZeroUsize,
    /// Whether the kernel's own fs-verity is turned on where it can be.
    pub enable: bool,
    /// What is trusted of earlier runs.
    pub belief: Belief,
    /// What is done to a store that would be refused otherwise.
    pub allowed: Allowed,
}

impl SealOptions<'_> {
    /// Beside the tree, by nobody, with the usual parameters, by so many threads.
    #[must_use]
    pub fn new(jobs: NonZeroUsize) -> Self {
        Self {
            params: Params::default(),
            store: None,
            tree: None,
            keys: Vec::new(),
            jobs,
            enable: false,
            belief: Belief::Known,
            allowed: Allowed::default(),
        }
    }
}

/// What a run did.
#[derive(Debug)]
#[non_exhaustive]
pub struct Report {
    /// Where the store is.
    pub store: PathBuf,
    /// The manifest's digest, which stands for the tree.
    pub digest: Digest,
    /// The tree's name, and the seal's serial.
    pub issue: Issue,
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
    /// What went wrong after the tree was sealed: it is sealed anyway.
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
    // Before anything is made: not to make a store in what is no folder.
    let top = Top::open(folder).map_err(|error| SealError::read(folder.to_owned(), error))?;
    let stage = Stage::open(Home::open(&top, folder, options.store.as_deref(), options.allowed)?)?;
    let store = stage.store();
    if options.keys.is_empty() && !options.allowed.unsigned {
        check_unsigned(&stage)?;
    }
    let issue = next_issue(folder, options, &store)?;
    let params = options.params;
    let mut scan = Scan::walk(&top, stage.identity(), params, progress)?;
    let of = For { params: &params, top: top.device(), tree: folder, keys: &options.keys };
    let known = Known::load(&store, of, &scan.files.iter().map(|job| job.state).collect());
    let mut progressing = known.progress(&stage)?;
    let hashing = Hashing {
        top: &top,
        scan: &scan,
        stage: &stage,
        store: &store,
        known: &known,
        belief: options.belief,
        params,
        jobs: options.jobs,
        progress,
    };
    let hashed = hashing.run(&mut progressing)?;
    let changed_folders = scan.changed_folders(&top);
    if !changed_folders.is_empty() {
        return Err(changed(changed_folders));
    }
    let manifest = write_manifest(&mut scan, &hashed, &stage, options)?;
    progress.storing();
    // Everything that the seal names is on disk before the seal is.
    stage.sync()?;
    let seal = Seal::new(manifest, Some(issue.clone()), &options.keys);
    stage.replace(c"seal", &seal.to_bytes())?;
    stage.check_place()?;
    let mut report = Report {
        store: stage.path().to_owned(),
        digest: manifest.digest(),
        issue,
        counts: scan.draft.counts(),
        hashed: hashed.hashed,
        hashed_bytes: hashed.hashed_bytes,
        unchanged: hashed.unchanged,
        resumed: hashed.resumed,
        pruned: 0,
        enabled: None,
        notes: Vec::new(),
    };
    report.note_differing(&hashed.differs);
    let sealed = Sealed { top: &top, scan: &scan, root_hashes: &hashed.root_hashes, params: &params };
    if options.enable {
        progress.enabling();
        report.enabled = Some(sealed.enable());
    }
    let remembered =
        sealed.remember(&stage, &known, options.enable).and_then(|()| progressing.remove(&stage));
    report.note(remembered, "the next run hashes everything again");
    let noted = sealed.note_inodes(&stage, &report.digest, top.device());
    report.note(noted, "other names of sealed files are not known");
    let (pruned, failed) = super::prune::prune(&stage, &sealed.trees(manifest), &report.digest);
    report.pruned = pruned;
    report.note(failed.map_or(Ok(()), Err), "old trees are left in the store");
    report.note(stage.forget(), "the store's list of what was made is left");
    Ok(report)
}

/// Refuses to lose a signature.
fn check_unsigned(stage: &Stage) -> Result<(), SealError> {
    // One that cannot be read is no signed one.
    let Ok(seal) = stage.store().seal() else { return Ok(()) };
    if seal.signatures().is_empty() {
        return Ok(());
    }
    let signers: Vec<String> = seal.signatures().iter().map(|one| one.key.to_string()).collect();
    Err(SealError::Signed { path: stage.store().seal_path(), signers: signers.join(", ") })
}

impl Report {
    fn note(&mut self, done: Result<(), StoreError>, what: &str) {
        if let Err(error) = done {
            self.notes.push(format!("{what}: {error}"));
        }
    }

    /// Says of which files data was sealed that is not what was noted of them.
    fn note_differing(&mut self, differs: &[PathBuf]) {
        if let Some(first) = differs.iter().min() {
            self.notes.push(format!(
                "of {} ({} first) the data is not what was noted, though nothing says that it was changed; it is sealed as it is",
                if differs.len() == 1 { "1 file".to_owned() } else { format!("{} files", differs.len()) },
                shown(first)
            ));
        }
    }
}

/// Writes the manifest and its tree, and puts both into their places: nothing names them yet.
///
/// The tree is that of the bytes in memory. Were they read back, whoever can change the file meanwhile could have a manifest
/// signed that nobody made.
fn write_manifest(
    scan: &mut Scan,
    hashed: &Hashed,
    stage: &Stage,
    options: &SealOptions<'_>,
) -> Result<Descriptor, SealError> {
    for (job, root_hash) in scan.files.iter().zip(&hashed.root_hashes) {
        let set = scan.draft.set_root_hash(job.node, root_hash);
        set.map_err(|error| SealError::manifest(stage.path().to_owned(), &error))?;
    }
    let failed = |error| StoreError::io(stage.path(), error);
    let mut bytes = Vec::new();
    scan.draft.write(&mut bytes).map_err(failed)?;
    let len = bytes.len() as u64;
    let mut tree = stage.start()?;
    let built = build_at(&options.params, len, bytes.as_slice(), &mut tree, options.jobs);
    let built =
        built.map_err(|error| SealError::build(stage.path().to_owned(), stage.path().to_owned(), error))?;
    let staged = stage.start()?;
    staged.file().write_all(&bytes).map_err(failed)?;
    let digest = built.digest();
    staged.keep(Place::Manifest(&digest))?;
    if Shape::new(&options.params, len).is_ok_and(|shape| shape.levels() > 0) {
        tree.keep(Place::Tree(&digest))?;
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
            // The very file that was hashed: a link to another may be in its place by now, which could then never be
            // written again.
            let file = self.top.file(&below).and_then(|file| {
                let now = stat_of(&file)?;
                let is_same = State { ctime: job.state.ctime, ..State::of(&now) } == job.state;
                if is_same { Ok(file) } else { Err(OsError::STALE) }
            });
            enabled.file(file, self.top.name(&below), (self.params, &digest));
        }
        enabled
    }

    /// Writes down which inodes they are.
    fn note_inodes(&self, stage: &Stage, manifest: &Digest, top: Device) -> Result<(), StoreError> {
        let files = self.scan.files.iter().map(|job| (job.state.dev, job.state.ino, job.node));
        stage.replace(inodes::PLACE, &inodes::to_bytes(manifest, top, files))
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
        known.remember(stage, states.iter().zip(self.root_hashes))
    }
}
