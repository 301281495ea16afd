//! The manifest of a seal that another process has taken, and that this one goes on with.
//!
//! Nothing is judged again: keys may have expired, and what is in the store may be another seal by now. The files are those that the other
//! process had open, and every block of them is checked as always.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};

use shuntfs_verity::Verifier;
use shuntfs_verity::sign::KeyId;

use super::codec::Codec;
use super::open::Manifest;
use super::sealed::{SealedBlocks, TreeFile};
use crate::{Seal, Store, StoreError};

/// What was found out when a seal was taken.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_structs, reason = "whoever goes on with it must know all of it")]
pub struct Taken {
    /// The seal.
    pub seal: Seal,
    /// The keys that were asked for and have signed it.
    pub signers: Vec<KeyId>,
    /// Whether it is known to come from who is trusted.
    pub is_authentic: bool,
}

impl Manifest {
    /// What was found out when its seal was taken.
    #[must_use]
    pub fn taken(&self) -> Taken {
        Taken {
            seal: self.seal().clone(),
            signers: self.trusted_signers().to_vec(),
            is_authentic: self.is_authentic(),
        }
    }

    /// The files that it is read from: its own and, if it is longer than one block, its tree.
    #[must_use]
    pub fn files(&self) -> (BorrowedFd<'_>, Option<BorrowedFd<'_>>) {
        let (data, tree) = self.blocks().files();
        (data.as_fd(), tree.map(AsFd::as_fd))
    }

    /// The manifest of a seal that was taken, from these files.
    ///
    /// # Errors
    /// They are not what was sealed.
    pub fn of_taken(
        taken: Taken,
        store: &Store,
        (file, tree): (File, Option<File>),
    ) -> Result<Self, StoreError> {
        let Taken { seal, signers, is_authentic } = taken;
        let digest = seal.descriptor().digest();
        let path = store.manifest_path(&digest);
        let verifier = Verifier::new(*seal.descriptor(), &digest)
            .map_err(|error| StoreError::broken(&path, error.to_string()))?;
        let tree = tree.map(|file| TreeFile { file, start: 0 });
        let codec = Codec::new(SealedBlocks::new(file, tree, verifier))
            .map_err(|source| StoreError::Manifest { path, source })?;
        Ok(Self::of_parts(codec, seal, (signers, is_authentic)))
    }
}
