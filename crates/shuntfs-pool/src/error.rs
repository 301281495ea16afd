//! What can go wrong: a pool that cannot be opened, and lower errors on their way to the kernel.

use std::path::PathBuf;

use shuntfs::Errno;
use shuntfs_sys::OsError;
use thiserror::Error;

use crate::folding::Folds;
use crate::lasting::Fleeting;

/// Why a pool cannot be opened.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum PoolError {
    /// The source does not exist.
    #[error("{path:?} does not exist")]
    Missing {
        /// The source.
        path: PathBuf,
    },
    /// The source is no folder.
    #[error("{path:?} is not a folder")]
    NotAFolder {
        /// The source.
        path: PathBuf,
    },
    /// The source cannot be searched for the names that rules protect.
    #[error("the source cannot be searched for hard links that rules protect: {error}")]
    Names {
        /// Why.
        error: Errno,
    },
    /// The source takes different names for the same, and names were to decide.
    #[error("{path:?}: {why}")]
    FoldsNames {
        /// The source.
        path: PathBuf,
        /// What does.
        why: Folds,
    },
    /// Handles of files were to last, and would not.
    #[error("no lasting file handles of {path:?}: {why}")]
    Handles {
        /// The source.
        path: PathBuf,
        /// Why.
        why: Fleeting,
    },
    /// The source cannot be opened or asked about.
    #[error("cannot use {path:?}: {error}")]
    Source {
        /// The source.
        path: PathBuf,
        /// What the kernel said.
        error: OsError,
    },
}

impl PoolError {
    pub(crate) fn of_source(path: &std::path::Path, error: OsError) -> Self {
        let path = path.to_owned();
        match error {
            OsError::NOENT => Self::Missing { path },
            OsError::NOTDIR => Self::NotAFolder { path },
            error => Self::Source { path, error },
        }
    }

    /// The error number that fits best.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            Self::Missing { .. } => Errno::NOENT,
            Self::NotAFolder { .. } => Errno::NOTDIR,
            Self::Names { error } => *error,
            Self::FoldsNames { .. } | Self::Handles { .. } => Errno::OPNOTSUPP,
            Self::Source { error, .. } => errno(*error),
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
    use std::path::Path;

    #[test]
    fn each_cause_has_its_words_and_number() {
        let path = Path::new("/x");
        let cases = [
            (OsError::NOENT, Errno::NOENT, "\"/x\" does not exist"),
            (OsError::NOTDIR, Errno::NOTDIR, "\"/x\" is not a folder"),
            (OsError::MFILE, Errno::MFILE, "cannot use \"/x\""),
        ];
        for (os, number, words) in cases {
            let error = PoolError::of_source(path, os);
            assert_eq!(error.errno(), number);
            assert!(error.to_string().starts_with(words), "{error}");
        }
    }

    #[test]
    fn a_lower_enosys_never_passes() {
        assert_eq!(errno(OsError::NOSYS), Errno::OPNOTSUPP);
    }
}
