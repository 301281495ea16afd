//! Why something sealed cannot be shown.

use std::path::PathBuf;

use shuntfs::Errno;
use shuntfs_seal::{ManifestError, StoreError, shown};
use shuntfs_sys::OsError;
use shuntfs_verity::Untrusted;
use thiserror::Error;

/// Why something sealed cannot be shown.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum VerifiedError {
    /// The folder cannot be used.
    #[error("cannot use {path:?}: {error}")]
    Source {
        /// The folder.
        path: PathBuf,
        /// What the kernel said.
        error: OsError,
    },
    /// The store, or the seal in it, is not taken.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The manifest does not tell.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// What the manifest says of a file makes no sense.
    #[error("{}: {why}", shown(.path))]
    Descriptor {
        /// The file, below the root.
        path: String,
        /// What is wrong.
        why: Untrusted,
    },
    /// The lower file cannot be had.
    #[error("{}: {errno}", shown(.path))]
    Lower {
        /// The file, below the root.
        path: String,
        /// What the kernel said.
        errno: Errno,
    },
    /// What is sealed as a regular file is none below.
    #[error("{} is no regular file", shown(.path))]
    NoFile {
        /// The file, below the root.
        path: String,
    },
}

impl VerifiedError {
    /// What a caller of the mount is told: a file that is sealed and cannot be had is an error of input, whatever the
    /// reason, but for limits that pass.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            Self::Lower {
                errno: errno @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::INTR), ..
            } => *errno,
            Self::Manifest(error) => errno(error.errno()),
            _ => Errno::IO,
        }
    }
}

/// A lower error as the kernel may hear it.
pub(crate) fn errno(error: OsError) -> Errno {
    Errno::from_lower(error.raw_os_error())
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn names_stay_on_one_line() {
        let path = || "a\nb\x1b[2J\u{202e}".to_owned();
        let shown = r"a\nb\x1b[2J\u{202e}";
        let said = VerifiedError::Lower { path: path(), errno: Errno::IO }.to_string();
        assert!(said.starts_with(&format!("{shown}: ")), "{said}");
        let said = VerifiedError::NoFile { path: path() }.to_string();
        assert_eq!(said, format!("{shown} is no regular file"));
    }
}
