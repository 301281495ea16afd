//! Why a tree is not sealed.

use std::io;
use std::path::PathBuf;

use shuntfs_verity::{BuildError, TreeError};
use thiserror::Error;

use crate::{ManifestError, StoreError};

/// Why a tree is not sealed. The seal that was there before still is.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SealError {
    /// Something of the tree cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// What.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Something changed while it was sealed.
    #[error("{count} of the tree changed while it was sealed, {} first", .paths.first().map(|path| path.display().to_string()).unwrap_or_default())]
    Changed {
        /// Those that are named: the first few.
        paths: Vec<PathBuf>,
        /// How many there were.
        count: usize,
    },
    /// A file that no tree can be over.
    #[error("{path}: {why}")]
    Impossible {
        /// The file.
        path: PathBuf,
        /// What stands in the way.
        why: String,
    },
    /// Somebody else is sealing into the same store.
    #[error("{0}: another shunt is sealing into this store")]
    Busy(PathBuf),
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
