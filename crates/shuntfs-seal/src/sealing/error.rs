//! Why a tree is not sealed.

use std::io;
use std::path::PathBuf;

use shuntfs_verity::{BuildError, TreeError};
use thiserror::Error;

use crate::{ManifestError, StoreError, TreeName, shown};

/// Why a tree is not sealed. The seal that was there before still is.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SealError {
    /// Something of the tree cannot be read.
    #[error("{}: {source}", shown(.path))]
    Read {
        /// What.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Something changed while it was sealed.
    #[error("{count} of the tree changed while it was sealed, {} first", .paths.first().map(|path| shown(path).to_string()).unwrap_or_default())]
    Changed {
        /// Those that are named: the first few.
        paths: Vec<PathBuf>,
        /// How many there were.
        count: usize,
    },
    /// A file that no tree can be over.
    #[error("{}: {why}", shown(.path))]
    Impossible {
        /// The file.
        path: PathBuf,
        /// What stands in the way.
        why: String,
    },
    /// The store has a seal of a tree of another name.
    #[error(
        "the seal that is there is of tree `{here}`, and the folder's name would make this tree `{folder}`"
    )]
    OtherName {
        /// The name in the seal.
        here: TreeName,
        /// The name that the folder gives.
        folder: TreeName,
    },
    /// Somebody else is sealing into the same store.
    #[error("{}: another shunt is sealing into this store", shown(.0))]
    Busy(PathBuf),
    /// A folder with something else in it than a store.
    #[error("{} is not empty, and is not the store of a sealed folder: nothing is written there", shown(.0))]
    NotAStore(PathBuf),
    /// The store of another tree.
    #[error("{} is the store of {}, not of {}", shown(.store), shown(.of), shown(.tree))]
    OtherTree {
        /// The store.
        store: PathBuf,
        /// Its tree.
        of: PathBuf,
        /// What was to be sealed.
        tree: PathBuf,
    },
    /// A store that would be part of what it seals.
    #[error("the store {} is inside the tree to seal", shown(.store))]
    InTree {
        /// The store.
        store: PathBuf,
        /// The tree.
        tree: PathBuf,
    },
    /// A store that others can write.
    #[error("the store {}: {why}", shown(.store))]
    Shared {
        /// The store.
        store: PathBuf,
        /// Who, in words.
        why: String,
    },
    /// A signature would be lost.
    #[error("{} is signed by {signers}, and would not be any more", shown(.path))]
    Signed {
        /// The seal, or the side file.
        path: PathBuf,
        /// The ids of the keys.
        signers: String,
    },
    /// Data that is not what it was when it was sealed, although nothing says that it was changed.
    #[error("{count} of the tree {}: the data is not what was sealed, and nothing says that it was changed", .paths.first().map(|path| format!("({} first)", shown(path))).unwrap_or_default())]
    Damaged {
        /// Those that are named: the first few.
        paths: Vec<PathBuf>,
        /// How many there were.
        count: usize,
    },
    /// The store cannot be written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl SealError {
    pub(crate) fn read(path: PathBuf, source: impl Into<io::Error>) -> Self {
        Self::Read { path, source: source.into() }
    }

    pub(crate) fn changed(path: PathBuf) -> Self {
        Self::Changed { paths: vec![path], count: 1 }
    }

    /// What a file that was there a moment ago says: to be gone is a change.
    pub(crate) fn gone_or(path: PathBuf, source: shuntfs_sys::OsError) -> Self {
        use shuntfs_sys::OsError as E;
        match source {
            E::NOENT | E::NOTDIR | E::LOOP | E::STALE | E::NXIO => Self::changed(path),
            source => Self::read(path, source),
        }
    }

    pub(crate) fn manifest(path: PathBuf, error: &ManifestError) -> Self {
        Self::Impossible { path, why: error.to_string() }
    }

    /// What building a tree says: `path` is the file's, `store` that of the tree.
    pub(crate) fn build(path: PathBuf, store: PathBuf, error: BuildError) -> Self {
        match error {
            BuildError::Read { error, .. } => Self::read(path, error),
            BuildError::Shorter { .. } | BuildError::Longer { .. } => Self::changed(path),
            BuildError::Tree(TreeError::Sink(source)) => StoreError::io(store, source).into(),
            error => Self::Impossible { path, why: error.to_string() },
        }
    }
}
