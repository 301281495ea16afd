//! What goes wrong with manifests, stores and seals.

use std::io;
use std::path::PathBuf;

use shuntfs_sys::OsError;
use shuntfs_verity::{Digest, Mismatch};
use thiserror::Error;

use crate::shown;

/// Why a manifest does not tell.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// It cannot be read.
    #[error("the manifest cannot be read: {0}")]
    Io(OsError),
    /// A block of it, or of its tree, is not what was sealed.
    #[error("a block of the manifest is not what was sealed: {0}")]
    Damaged(Box<Mismatch>),
    /// It is whole and makes no sense.
    #[error("the manifest does not hold together: {0}")]
    Malformed(&'static str),
    /// It was made by another version of the format.
    #[error("the manifest has version {0} of the format, and only version 1 is known")]
    Version(u32),
    /// Names were asked for of what is no folder.
    #[error("not a folder")]
    NotAFolder,
    /// A target was asked for of what is no symlink.
    #[error("not a symlink")]
    NotASymlink,
}

impl ManifestError {
    /// What a caller of a mount is told.
    #[must_use]
    pub fn errno(&self) -> OsError {
        match self {
            Self::NotAFolder => OsError::NOTDIR,
            Self::NotASymlink => OsError::INVAL,
            Self::Io(error) => *error,
            Self::Damaged(_) | Self::Malformed(_) | Self::Version(_) => OsError::IO,
        }
    }
}

/// Why a store, or a seal in it, is not taken.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no seal here.
    #[error("{} is not sealed", shown(.0))]
    NotSealed(PathBuf),
    /// A file of the store cannot be read or written.
    #[error("{}: {source}", shown(.path))]
    Io {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A file of the store is not what it must be.
    #[error("{}: {why}", shown(.path))]
    Broken {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Keys were asked for and there is no signature.
    #[error("{} is not signed", shown(.0))]
    Unsigned(PathBuf),
    /// None of the keys asked for has signed.
    #[error("{} is signed by {signers}, but not by a trusted key", shown(.path))]
    Untrusted {
        /// The seal.
        path: PathBuf,
        /// The ids of the keys that signed.
        signers: String,
    },
    /// A trusted key's signature is not over this.
    #[error("{}: the signature of key {key} is not over this manifest", shown(.path))]
    WrongSignature {
        /// The seal.
        path: PathBuf,
        /// The key's id.
        key: String,
    },
    /// Fewer keys have signed than are asked for.
    #[error("{} is signed by {have} of {need} required trusted keys", shown(.path))]
    TooFew {
        /// The seal.
        path: PathBuf,
        /// Trusted keys that have signed.
        have: usize,
        /// How many are asked for.
        need: usize,
    },
    /// One digest was asked for, and the seal is of another manifest.
    #[error("{} is of {found}, and {wanted} is asked for", shown(.path))]
    Pinned {
        /// The seal.
        path: PathBuf,
        /// The digest that was asked for.
        wanted: Box<Digest>,
        /// The manifest's.
        found: Box<Digest>,
    },
    /// One tree was asked for, and the seal is of another one.
    #[error("{} is of {found}, and tree `{wanted}` is asked for", shown(.path))]
    OtherTree {
        /// The seal.
        path: PathBuf,
        /// The name that was asked for.
        wanted: String,
        /// What the seal says.
        found: String,
    },
    /// The seal is older than one that was seen.
    #[error("rollback: {} has serial {serial} of tree `{tree}`, and serial {seen} was seen", shown(.path))]
    Rollback {
        /// The seal.
        path: PathBuf,
        /// The tree.
        tree: String,
        /// The seal's serial.
        serial: u64,
        /// The highest that was seen.
        seen: u64,
    },
    /// The seal has the serial of another one that was seen.
    #[error("{} has serial {serial} of tree `{tree}`, which was seen with {digest}", shown(.path))]
    SameSerial {
        /// The seal.
        path: PathBuf,
        /// The tree.
        tree: String,
        /// The serial of both.
        serial: u64,
        /// The digest of the one that was seen.
        digest: Box<Digest>,
    },
    /// Serials are asked for, and the seal has none.
    #[error("{} has no serial, and so cannot be told from an older one", shown(.0))]
    NoSerial(PathBuf),
    /// There is no trust store.
    #[error("{}: there is no such trust store", shown(.0))]
    NoTrustStore(PathBuf),
    /// The trust store, or a file of it, is not what it must be.
    #[error("{}: {why}", shown(.path))]
    TrustStore {
        /// The folder or file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The manifest does not hold together.
    #[error("{}: {source}", shown(.path))]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// Why not.
        source: ManifestError,
    },
}

impl StoreError {
    pub(crate) fn io(path: impl Into<PathBuf>, source: impl Into<io::Error>) -> Self {
        Self::Io { path: path.into(), source: source.into() }
    }

    pub(crate) fn broken(path: impl Into<PathBuf>, why: impl Into<String>) -> Self {
        Self::Broken { path: path.into(), why: why.into() }
    }
}
