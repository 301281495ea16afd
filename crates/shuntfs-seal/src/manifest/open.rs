//! Opens the manifest of a store: seal, signatures, then one block.

use std::fmt;

use shuntfs_verity::sign::KeyId;
use shuntfs_verity::{Digest, Params, Verifier};

use super::codec::{Codec, Entries};
use super::layout::Counts;
use super::node::{Node, NodeIndex, Xattr};
use super::sealed::{SealedBlocks, TreeFile};
use crate::{Accepted, ManifestError, Seal, Store, StoreError, Trust};

/// The manifest of a sealed tree. Every block of it that is read is checked.
pub struct Manifest {
    codec: Codec<SealedBlocks>,
    seal: Seal,
    is_authentic: bool,
    signers: Vec<KeyId>,
    note: Option<String>,
}

impl Manifest {
    /// Opens the manifest that a store's seal names, if the seal is one that `trust` takes. Where that asks for nothing, only the
    /// parts are known to belong together, which whoever can write the store can bring about.
    ///
    /// Takes the same time whatever the manifest's length: the seal, one block of the manifest and those of its tree above
    /// it are read. Where there is a trust store, it is told when all of that was found good.
    ///
    /// # Errors
    /// There is no seal; it, a signature, the manifest or its tree are not what they must be; it has not what is asked for.
    pub fn open(store: &Store, trust: &Trust) -> Result<Self, StoreError> {
        let seal = store.seal()?;
        let accepted = trust.check(&seal, &store.seal_path())?;
        Self::open_accepted(store, seal, trust, &accepted)
    }

    /// The same for a seal that is to take the place of one that was taken: it must be of the same tree and not be older.
    ///
    /// # Errors
    /// As [`Manifest::open`].
    pub fn open_next(store: &Store, trust: &Trust, current: &Seal) -> Result<Self, StoreError> {
        let seal = store.seal()?;
        let accepted = trust.check_next(&seal, current, &store.seal_path())?;
        Self::open_accepted(store, seal, trust, &accepted)
    }

    fn open_accepted(
        store: &Store,
        seal: Seal,
        trust: &Trust,
        accepted: &Accepted,
    ) -> Result<Self, StoreError> {
        let mut manifest = Self::open_sealed(store, seal)?;
        manifest.note = trust.record(&manifest.seal, accepted, &store.seal_path())?;
        manifest.signers = accepted.signers().to_vec();
        manifest.is_authentic = trust.is_authentic();
        Ok(manifest)
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
        Ok(Self::of_parts(codec, seal, (Vec::new(), false)))
    }

    pub(super) fn of_parts(
        codec: Codec<SealedBlocks>,
        seal: Seal,
        (signers, is_authentic): (Vec<KeyId>, bool),
    ) -> Self {
        Self { codec, seal, is_authentic, signers, note: None }
    }

    pub(super) fn blocks(&self) -> &SealedBlocks {
        self.codec.blocks()
    }

    /// Whether it is known to come from who is trusted: by signatures, or by its digest. Else whoever can write the store can have
    /// made it, and nothing in it may give anybody a right.
    #[must_use]
    pub fn is_authentic(&self) -> bool {
        self.is_authentic
    }

    /// The keys that were asked for and have signed it.
    #[must_use]
    pub fn trusted_signers(&self) -> &[KeyId] {
        &self.signers
    }

    /// What the user should know of how it was opened: that the trust store could not be told.
    #[must_use]
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
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
        self.blocks().reads()
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
