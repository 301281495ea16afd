//! A sealed tree: its manifest, and its files, found below without leaving the tree.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use shuntfs::{Errno, LowerFile};
use shuntfs_seal::{Inodes, Manifest, Node, NodeIndex, Store, StoreError, Trust};
use shuntfs_sys::open::{open_beneath, open_on_mount};
use shuntfs_sys::{Device, FsMagic, OsError, filesystem_of, open_folder, stat_of};
use shuntfs_verity::Descriptor;

use crate::checked::{CheckedFile, Source};
use crate::checks::Checks;
use crate::counters::VerifyFacts;
use crate::error::{VerifiedError, errno};
use crate::files::Files;
use crate::native::{KernelVerity, Measure};
use crate::options::CheckOptions;

/// `O_RDONLY | O_NONBLOCK`: what lies instead of a file may be a pipe, which must not be waited for.
const READ: u32 = 0o4000;

/// Which tree, and whose seal. Start from [`SealsOptions::new`] and change fields.
#[derive(Clone, Debug)]
pub struct SealsOptions {
    /// The folder that is sealed.
    pub source: PathBuf,
    /// Where trees and manifest are. Default: `.shunt` in the folder.
    pub store: Option<PathBuf>,
    /// What the seal must have. Default: nothing, and then whoever can write folder and store can make another seal that fits, and
    /// what it says grants no privileges.
    pub trust: Trust,
    /// What the checks cost.
    pub checks: CheckOptions,
}

impl SealsOptions {
    /// A folder with every default.
    #[must_use]
    pub fn new(source: impl Into<PathBuf>) -> Self {
        Self { source: source.into(), store: None, trust: Trust::anybody(), checks: CheckOptions::default() }
    }
}

/// A sealed tree.
#[derive(Debug)]
pub struct Seals {
    pub(crate) manifest: Manifest,
    pub(crate) store: Arc<Store>,
    pub(crate) root: Arc<OwnedFd>,
    pub(crate) source: PathBuf,
    /// Whether the store is found by its name in the root.
    pub(crate) is_beside: bool,
    pub(crate) files_kept: usize,
    pub(crate) top_device: Device,
    pub(crate) inodes: Option<Inodes>,
    pub(crate) checks: Arc<Checks>,
    pub(crate) files: Files,
    pub(crate) measure: Arc<dyn Measure>,
    pub(crate) can_block: bool,
}

/// What is known of one sealed file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SealNote {
    /// Its digest, as `fsverity digest` prints it.
    pub digest: String,
    /// Who checks what is read of it.
    pub checked_by: CheckedBy,
    /// Whether something was found wrong with it since it was opened last.
    pub suspect: bool,
}

/// Who checks a sealed file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CheckedBy {
    /// The lower file system, with the kernel's fs-verity.
    LowerFileSystem,
    /// The server, block by block.
    Server,
    /// Nobody so far: it cannot be opened below.
    Nobody,
}

impl Seals {
    /// Opens the seal of a folder.
    ///
    /// # Errors
    /// The folder cannot be used; there is no seal, or it is not what it must be, or nobody trusted has signed it.
    pub fn open(options: &SealsOptions) -> Result<Arc<Self>, VerifiedError> {
        Self::open_with(options, Box::new(KernelVerity))
    }

    /// The same, with somebody else to say which files verify themselves.
    ///
    /// # Errors
    /// As [`Seals::open`].
    pub fn open_with(options: &SealsOptions, measure: Box<dyn Measure>) -> Result<Arc<Self>, VerifiedError> {
        let failed = |error| VerifiedError::Source { path: options.source.clone(), error };
        let root = open_folder(&options.source).map_err(failed)?;
        let place = options.store.clone().unwrap_or_else(|| Store::beside(&options.source));
        let store = Store::open(&place)?;
        let manifest = Manifest::open(&store, &options.trust)?;
        let inodes = Inodes::open(&store, &manifest.digest())?;
        let is_beside = options.store.is_none()
            && Store::open_beside(&options.source, &root).is_ok_and(|beside| beside.is_same(&store));
        Ok(Arc::new(Self {
            manifest,
            can_block: blocks(&root).map_err(failed)? || blocks(&store).map_err(failed)?,
            store: Arc::new(store),
            top_device: stat_of(&root).map_err(failed)?.dev,
            inodes,
            root: Arc::new(root),
            source: options.source.clone(),
            is_beside,
            files_kept: options.checks.files_kept,
            checks: Checks::new(&options.checks),
            files: Files::new(options.checks.files_kept),
            measure: Arc::from(measure),
        }))
    }

    /// Opens the seal that the store has by now, to take the place of this one: where anything is asked for, it must be of the same
    /// tree and not be older. Counters and verified blocks are shared with this one.
    ///
    /// The folder, and the store in it, are found by what is held of them since [`Seals::open`]: a mount that was made over
    /// their paths meanwhile is not asked. A store that is in another place, a symlink, or mounted by itself, is the folder that it was.
    ///
    /// # Errors
    /// As [`Seals::open`].
    pub fn open_next(&self, trust: &Trust) -> Result<Arc<Self>, VerifiedError> {
        let failed = |error| VerifiedError::Source { path: self.source.clone(), error };
        let store = if self.is_beside {
            Arc::new(Store::open_beside(&self.source, &*self.root)?)
        } else {
            Arc::clone(&self.store)
        };
        let manifest = Manifest::open_next(&store, trust, self.manifest.seal())?;
        let inodes = Inodes::open(&store, &manifest.digest())?;
        self.checks.verdicts.forget_names();
        Ok(Arc::new(Self {
            manifest,
            can_block: blocks(&*self.root).map_err(failed)? || blocks(&*store).map_err(failed)?,
            store,
            top_device: self.top_device,
            inodes,
            root: Arc::clone(&self.root),
            source: self.source.clone(),
            is_beside: self.is_beside,
            files_kept: self.files_kept,
            checks: Arc::clone(&self.checks),
            files: Files::new(self.files_kept),
            measure: Arc::clone(&self.measure),
        }))
    }

    /// Whether two are the same seal in the same store.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.manifest.seal() == other.manifest.seal() && self.store.is_same(&other.store)
    }

    /// The manifest.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Whether a call below may hang for reasons outside of this machine. What is mounted in the tree is another question: see
    /// [`Seals::file_at_once`].
    #[must_use]
    pub fn can_block(&self) -> bool {
        self.can_block
    }

    pub(crate) fn checks(&self) -> &Checks {
        &self.checks
    }

    /// The sealed folder.
    pub(crate) fn root(&self) -> &OwnedFd {
        &self.root
    }

    /// What was checked so far.
    #[must_use]
    pub fn facts(&self) -> VerifyFacts {
        self.checks.facts()
    }

    /// How many files are kept open below.
    #[must_use]
    pub fn files_kept(&self) -> usize {
        self.files.len()
    }

    /// A sealed file, by the path that it was sealed at.
    ///
    /// # Errors
    /// There is no such file below, or no regular one, or it cannot be opened.
    pub fn file(&self, node: &Node) -> Result<Arc<CheckedFile>, VerifiedError> {
        let number = node.index.get();
        if let Some(file) = self.files.find(number) {
            return Ok(file);
        }
        let file = match self.open_file(node) {
            Err(VerifiedError::Lower { errno: Errno::MFILE | Errno::NFILE, .. }) if self.files.shed() > 0 => {
                self.open_file(node)
            }
            outcome => outcome,
        };
        let file = Arc::new(file.inspect_err(|_| self.checks.counters.refused_opens.bump())?);
        if file.lower.can_block() && !self.can_block {
            // Whoever makes room for another file closes one, and must not wait for that.
            return Ok(file);
        }
        Ok(self.files.keep(number, file))
    }

    /// The same where nobody has to be waited for but this machine's disks; `None` where [`Seals::file`] has to be asked, from
    /// a thread that may wait: something else is mounted on the way to the file, or it cannot be had.
    #[must_use]
    pub fn file_at_once(&self, node: &Node) -> Option<Arc<CheckedFile>> {
        let number = node.index.get();
        if let Some(file) = self.files.find(number) {
            return Some(file);
        }
        if self.can_block {
            return None;
        }
        let names = self.manifest.path_of(node.index).ok()?;
        let below = CString::new(names.join(&b'/')).ok()?;
        let fd = open_on_mount(&self.root, &below, READ).ok()?;
        if !stat_of(&fd).ok()?.is_file() {
            return None;
        }
        let file = self.check_file(node, Arc::new(LowerFile::new(fd))).ok()?;
        Some(self.files.keep(number, Arc::new(file)))
    }

    /// A sealed file whose lower file somebody else has found and opened for reading.
    ///
    /// # Errors
    /// What the manifest says of it makes no sense, or it is no file.
    pub fn check_file(&self, node: &Node, lower: Arc<LowerFile>) -> Result<CheckedFile, VerifiedError> {
        let path = self.shown_path(node.index)?;
        let Some(descriptor) = node.descriptor else { return Err(VerifiedError::NoFile { path }) };
        self.check(descriptor, path, lower)
    }

    pub(crate) fn check(
        &self,
        descriptor: Descriptor,
        path: String,
        lower: Arc<LowerFile>,
    ) -> Result<CheckedFile, VerifiedError> {
        let source = Source { lower, tree: self.tree_source(descriptor), path };
        CheckedFile::new(&self.checks, descriptor, source, &*self.measure)
    }

    /// What is known of a sealed file; `None` for what is no regular file of the manifest.
    #[must_use]
    pub fn note_of(&self, index: NodeIndex) -> Option<SealNote> {
        let node = self.manifest.node(index).ok()?;
        let digest = node.digest()?.to_string();
        let (checked_by, suspect) = match self.file(&node) {
            Ok(file) if file.is_native() => (CheckedBy::LowerFileSystem, file.is_suspect()),
            Ok(file) => (CheckedBy::Server, file.is_suspect()),
            Err(_) => (CheckedBy::Nobody, true),
        };
        Some(SealNote { digest, checked_by, suspect })
    }

    fn open_file(&self, node: &Node) -> Result<CheckedFile, VerifiedError> {
        let names = self.manifest.path_of(node.index)?;
        let path = String::from_utf8_lossy(&names.join(&b'/')).into_owned();
        let lower = |errno| VerifiedError::Lower { path: path.clone(), errno };
        let below = CString::new(names.join(&b'/')).map_err(|_| lower(Errno::INVAL))?;
        let fd = open_beneath(&self.root, &below, READ).map_err(|error| lower(errno(error)))?;
        if !stat_of(&fd).map_err(|error| lower(errno(error)))?.is_file() {
            return Err(VerifiedError::NoFile { path });
        }
        let magic = filesystem_of(&fd).map_err(|error| lower(errno(error)))?.magic;
        let file = LowerFile::new(fd);
        let file = if magic == FsMagic::FUSE { file.that_ignores_nowait() } else { file };
        let file = if magic.can_block() || self.can_block { file.that_can_block() } else { file };
        self.check_file(node, Arc::new(file))
    }

    pub(crate) fn shown_path(&self, index: NodeIndex) -> Result<String, VerifiedError> {
        let names = self.manifest.path_of(index)?;
        Ok(String::from_utf8_lossy(&names.join(&b'/')).into_owned())
    }

    fn tree_source(&self, descriptor: Descriptor) -> crate::tree::TreeSource {
        let (store, can_block) = (Arc::clone(&self.store), self.can_block);
        Box::new(move || {
            let opened = store.open_tree(&descriptor).inspect_err(|error| {
                tracing::error!(%error, "the hash tree of a sealed file cannot be used");
            });
            let tree = opened.map_err(|error| tree_errno(&error))?.tree.ok_or(Errno::IO)?;
            let file = LowerFile::new(tree.into());
            Ok(if can_block { file.that_can_block().that_ignores_nowait() } else { file })
        })
    }

    /// A file of the folder or the store, which waits for whom these wait for.
    pub(crate) fn blocking_like(&self, file: LowerFile) -> LowerFile {
        if self.can_block { file.that_can_block().that_ignores_nowait() } else { file }
    }
}

pub(crate) fn blocks(folder: impl AsFd) -> shuntfs_sys::Result<bool> {
    filesystem_of(folder).map(|found| found.magic.can_block())
}

/// A tree that is missing is an error of input for who reads the file.
fn tree_errno(error: &StoreError) -> Errno {
    match error {
        StoreError::Io { source, .. } => match source.raw_os_error().map(OsError::from_raw_os_error) {
            Some(error @ (OsError::MFILE | OsError::NFILE | OsError::NOMEM)) => errno(error),
            _ => Errno::IO,
        },
        _ => Errno::IO,
    }
}
