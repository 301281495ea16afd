//! Opens the manifest of a store: seal, signatures, then one block.

use std::fmt;

use shuntfs_verity::sign::PublicKey;
use shuntfs_verity::{Digest, Params, Verifier};

use super::codec::{Codec, Entries};
use super::layout::Counts;
use super::node::{Node, NodeIndex, Xattr};
use super::sealed::{SealedBlocks, TreeFile};
use crate::{ManifestError, Seal, Store, StoreError};

/// The manifest of a sealed tree. Every block of it that is read is checked.
pub struct Manifest {
    codec: Codec<SealedBlocks>,
    seal: Seal,
}

impl Manifest {
    /// Opens the manifest that a store's seal names. With `trust`, one of these keys must have signed it; without, only its
    /// parts are known to belong together, which whoever can write the store can bring about.
    ///
    /// Takes the same time whatever the manifest's length: the seal, one block of the manifest and those of its tree above
    /// it are read.
    ///
    /// # Errors
    /// There is no seal; it, a signature, the manifest or its tree are not what they must be; nobody trusted has signed.
    pub fn open(store: &Store, trust: Option<&[PublicKey]>) -> Result<Self, StoreError> {
        let seal = store.seal()?;
        if let Some(keys) = trust {
            seal.check(keys, &store.seal_path())?;
        }
        Self::open_sealed(store, seal)
    }

    /// Opens the manifest that a seal names.
    pub(crate) fn open_sealed(store: &Store, seal: Seal) -> Result<Self, StoreError> {
        let descriptor = *seal.descriptor();
        let digest = descriptor.digest();
        let (path, file) = store.open_manifest(&descriptor)?;
        let tree = store.open_tree(&descriptor)?.tree.map(|file| TreeFile { file, start: 0 });
        let verifier = Verifier::new(descriptor, &digest)
            .map_err(|error| StoreError::broken(&path, error.to_string()))?;
        let codec = Codec::new(SealedBlocks::new(file, tree, verifier))
            .map_err(|source| StoreError::Manifest { path, source })?;
        Ok(Self { codec, seal })
    }

    /// The seal that names it, with its signatures.
    #[must_use]
    pub fn seal(&self) -> &Seal {
        &self.seal
    }

    /// The manifest's own digest, which stands for the whole tree.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.seal.descriptor().digest()
    }

    /// How the files of the tree are hashed.
    #[must_use]
    pub fn params(&self) -> &Params {
        self.codec.params()
    }

    /// What it holds, by its own account.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.codec.counts()
    }

    /// How many nodes there are: their numbers are less.
    #[must_use]
    pub fn node_count(&self) -> u64 {
        self.codec.node_count()
    }

    /// How many blocks were read from disk, of the manifest and of its tree.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.codec.blocks().reads()
    }

    /// The sealed folder.
    #[must_use]
    pub fn root(&self) -> NodeIndex {
        NodeIndex::ROOT
    }

    /// What is said of a node.
    ///
    /// # Errors
    /// There is no such node, or the manifest is damaged.
    pub fn node(&self, index: NodeIndex) -> Result<Node, ManifestError> {
        self.codec.node(index)
    }

    /// What a name in a folder leads to; by binary search.
    ///
    /// # Errors
    /// [`ManifestError::NotAFolder`], or the manifest is damaged.
    pub fn lookup(&self, folder: NodeIndex, name: &[u8]) -> Result<Option<NodeIndex>, ManifestError> {
        self.codec.lookup(folder, name)
    }

    /// The names of a folder in order, without `.` and `..`, from a position on: 0, or what [`crate::Entry::next`] said.
    ///
    /// # Errors
    /// [`ManifestError::NotAFolder`], or the manifest is damaged.
    pub fn entries(&self, folder: NodeIndex, from: u64) -> Result<ManifestEntries<'_>, ManifestError> {
        self.codec.entries(folder, from).map(ManifestEntries)
    }

    /// A node's extended attributes, sorted by name.
    ///
    /// # Errors
    /// The manifest is damaged.
    pub fn xattrs(&self, index: NodeIndex) -> Result<Vec<Xattr>, ManifestError> {
        self.codec.xattrs(index)
    }

    /// Where a symlink leads.
    ///
    /// # Errors
    /// [`ManifestError::NotASymlink`], or the manifest is damaged.
    pub fn link_target(&self, index: NodeIndex) -> Result<Vec<u8>, ManifestError> {
        self.codec.link_target(index)
    }

    /// The folder that a node is in: of several hard links, that of the first. The root is in itself.
    ///
    /// # Errors
    /// The manifest is damaged.
    pub fn parent(&self, index: NodeIndex) -> Result<NodeIndex, ManifestError> {
        self.codec.parent(index)
    }

    /// The names that lead from the root to a node; none for the root.
    ///
    /// # Errors
    /// The manifest is damaged.
    pub fn path_of(&self, index: NodeIndex) -> Result<Vec<Vec<u8>>, ManifestError> {
        self.codec.path_of(index)
    }

    /// The node at a path below the root.
    ///
    /// # Errors
    /// The manifest is damaged.
    pub fn find(&self, path: &[u8]) -> Result<Option<NodeIndex>, ManifestError> {
        self.codec.find(path)
    }
}

impl fmt::Debug for Manifest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Manifest").field("digest", &self.digest()).finish_non_exhaustive()
    }
}

/// The names of a folder, in order.
#[derive(Debug)]
pub struct ManifestEntries<'a>(Entries<'a, SealedBlocks>);

impl Iterator for ManifestEntries<'_> {
    type Item = Result<super::Entry, ManifestError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }
}
