//! Removes what no seal names any more: what earlier seals named ([`Made::Seal`]), and what runs put into its place that
//! did not end. Whatever else is in the store is not ours.

use std::collections::HashSet;
use std::io;

use shuntfs_verity::{Descriptor, Digest};

use super::making::Made;
use super::stage::{Place, Stage};
use crate::{Manifest, Seal, StoreError};

/// Removes every tree and manifest that was made and is none of these; returns how many, and what went wrong first.
pub(super) fn prune(stage: &Stage, trees: &HashSet<Digest>, manifest: &Digest) -> (u64, Option<StoreError>) {
    let pruning = Pruning { stage, trees, manifest };
    let (mut removed, mut failed) = (0, None);
    let all = stage.for_each_made(|made| {
        let done = match made {
            Made::Run(_) => Ok(0),
            Made::Tree(digest) => pruning.tree(&digest),
            Made::Manifest(digest) => pruning.manifest(&digest),
            Made::Seal(descriptor) => pruning.seal(*descriptor),
        };
        match done {
            Ok(count) => removed += count,
            Err(error) => drop(failed.get_or_insert(error)),
        }
        Ok(())
    });
    (removed, failed.or_else(|| all.err().map(|error| StoreError::io(stage.path(), error))))
}

struct Pruning<'a> {
    stage: &'a Stage,
    trees: &'a HashSet<Digest>,
    manifest: &'a Digest,
}

impl Pruning<'_> {
    fn tree(&self, digest: &Digest) -> Result<u64, StoreError> {
        if self.trees.contains(digest) {
            Ok(0)
        } else {
            self.stage.remove(Place::Tree(digest)).map(u64::from)
        }
    }

    fn manifest(&self, digest: &Digest) -> Result<u64, StoreError> {
        if digest == self.manifest {
            Ok(0)
        } else {
            self.stage.remove(Place::Manifest(digest)).map(u64::from)
        }
    }

    /// Removes what an earlier seal named: its manifest last, which says what else there is.
    fn seal(&self, descriptor: Descriptor) -> Result<u64, StoreError> {
        let digest = descriptor.digest();
        if digest == *self.manifest {
            return Ok(0);
        }
        let manifest = match Manifest::open_sealed(&self.stage.store(), Seal::new(descriptor, None, &[])) {
            // A killed run has removed some of it, its tree first.
            Err(StoreError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(self.tree(&digest)? + self.manifest(&digest)?);
            }
            manifest => manifest?,
        };
        let mut removed = 0;
        for index in 0..manifest.node_count() {
            let node = manifest.node(crate::NodeIndex(index));
            let node = node.map_err(|source| StoreError::Manifest {
                path: self.stage.store().manifest_path(&digest),
                source,
            })?;
            let block_len = u64::from(manifest.params().block_size().bytes());
            if let Some(file) = node.digest().filter(|_| node.size > block_len) {
                removed += self.tree(&file)?;
            }
        }
        Ok(removed + self.tree(&digest)? + self.manifest(&digest)?)
    }
}
