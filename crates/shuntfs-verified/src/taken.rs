//! A seal that was taken, for the next server: it goes on with it, whatever is in the store and in the files of keys by then.
//!
//! What is written down is the seal, by whose word it was taken, and the numbers of the descriptors that it is read through, in a table that the
//! servers share. Every block is checked against the seal, so a descriptor that leads elsewhere can make reads fail, and no more.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use shuntfs_seal::{Inodes, Manifest, Seal, Store, StoreError, Taken};
use shuntfs_sys::spawn::inherited_fd;
use shuntfs_sys::stat_of;
use shuntfs_verity::sign::KeyId;

use crate::checks::Checks;
use crate::error::VerifiedError;
use crate::files::Files;
use crate::native::KernelVerity;
use crate::options::CheckOptions;
use crate::seals::{Seals, blocks};

/// A seal that was taken, as it is written down.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TakenSeal {
    seal: Vec<u8>,
    signers: Vec<[u8; 16]>,
    is_authentic: bool,
    root: RawFd,
    store: RawFd,
    is_beside: bool,
    manifest: RawFd,
    tree: Option<RawFd>,
    inodes: Option<RawFd>,
}

impl TakenSeal {
    /// The numbers of the descriptors that must stay open.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let Self { root, store, manifest, tree, inodes, .. } = *self;
        [Some(root), Some(store), Some(manifest), tree, inodes].into_iter().flatten()
    }

    /// Whether it is this seal.
    #[must_use]
    pub fn is_of(&self, seals: &Seals) -> bool {
        self.seal == seals.manifest().seal().to_bytes()
    }
}

impl Seals {
    /// As it is written down for another process, while this one lives.
    #[must_use]
    pub fn taken(&self) -> TakenSeal {
        let Taken { seal, signers, is_authentic } = self.manifest().taken();
        let (manifest, tree) = self.manifest().files();
        TakenSeal {
            seal: seal.to_bytes(),
            signers: signers.into_iter().map(|signer| signer.0).collect(),
            is_authentic,
            root: self.root().as_raw_fd(),
            store: self.store.as_fd().as_raw_fd(),
            is_beside: self.is_beside,
            manifest: manifest.as_raw_fd(),
            tree: tree.map(|tree| tree.as_raw_fd()),
            inodes: self.inodes.as_ref().map(|inodes| inodes.file().as_raw_fd()),
        }
    }

    /// The seal that was written down, of a folder and a store at these paths. Counters and verified blocks are shared with `like`, if there is
    /// one.
    ///
    /// # Errors
    /// A descriptor is not open any more, or what it leads to is not what was sealed.
    pub fn of_taken(
        taken: &TakenSeal,
        (source, store): (PathBuf, Option<PathBuf>),
        checks: Result<&Arc<Self>, &CheckOptions>,
    ) -> Result<Arc<Self>, VerifiedError> {
        let failed = |error| VerifiedError::Source { path: source.clone(), error };
        let held = |number| inherited_fd(number).map_err(failed);
        let file = |number| held(number).map(File::from);
        let path = store.unwrap_or_else(|| Store::beside(&source));
        let seal =
            Seal::parse(&taken.seal).map_err(|why| StoreError::Broken { path: path.join("seal"), why })?;
        let root: OwnedFd = held(taken.root)?;
        let store = Store::held(path, Arc::new(held(taken.store)?));
        let tree = taken.tree.map(file).transpose()?;
        let signers = taken.signers.iter().map(|signer| KeyId(*signer)).collect();
        let found = Taken { seal, signers, is_authentic: taken.is_authentic };
        let manifest = Manifest::of_taken(found, &store, (file(taken.manifest)?, tree))?;
        let inodes = taken.inodes.map(file).transpose()?;
        let inodes = inodes.map(|file| Inodes::of(file, &store, &manifest.digest())).transpose()?;
        let files_kept = checks.map_or_else(|options| options.files_kept, |like| like.files_kept);
        Ok(Arc::new(Self {
            manifest,
            can_block: blocks(&root).map_err(failed)? || blocks(&store).map_err(failed)?,
            store: Arc::new(store),
            top_device: stat_of(&root).map_err(failed)?.dev,
            inodes: inodes.flatten(),
            root: Arc::new(root),
            is_beside: taken.is_beside,
            files_kept,
            checks: checks.map_or_else(Checks::new, |like| Arc::clone(&like.checks)),
            files: Files::new(files_kept),
            measure: checks.map_or_else(|_| Arc::new(KernelVerity) as _, |like| Arc::clone(&like.measure)),
            source,
        }))
    }
}
