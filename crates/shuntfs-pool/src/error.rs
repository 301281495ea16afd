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
    /// There is no branch.
    #[error("a merge needs a branch")]
    NoBranch,
    /// There are more branches than can be.
    #[error("{count} branches are too many: {max} can be")]
    TooManyBranches {
        /// How many there are.
        count: usize,
        /// How many there can be.
        max: usize,
    },
    /// Two branches are one folder.
    #[error("{path:?} and {other:?} are the same folder, and a branch can be named once only")]
    SameBranch {
        /// One of them.
        path: PathBuf,
        /// The other.
        other: PathBuf,
    },
    /// A branch is inside another one.
    #[error("the branch {path:?} is inside the branch {other:?}, and its files would be shown twice")]
    BranchInside {
        /// The one inside.
        path: PathBuf,
        /// The one around it.
        other: PathBuf,
    },
    /// Two branches have one identity.
    #[error("the branches {path:?} and {other:?} are both called {id:?}")]
    SameIdentity {
        /// One of them.
        path: PathBuf,
        /// The other.
        other: PathBuf,
        /// The identity.
        id: String,
    },
    /// A branch was to be called otherwise while it is in use.
    #[error("{path:?} keeps what it is called until it is removed: inode numbers go by that")]
    KeepsIdentity {
        /// The branch.
        path: PathBuf,
    },
    /// Branches were to be changed where there is one folder.
    #[error("one folder is shown, and a mount of several is made as such: shunt mount /a:/b MNT")]
    NotOfOneFolder,
    /// There is no such branch.
    #[error("{path:?} is no branch")]
    NoSuchBranch {
        /// What was named.
        path: PathBuf,
    },
    /// Branches came and went so often that there is no number for another one.
    #[error("too many branches were added since it was mounted: mount it anew")]
    NoNumber,
    /// The kernel keeps names, and cannot be told that they changed.
    #[error("with --cache default, branches change from Linux 6.16 on; mount it with --cache none")]
    CannotTell,
    /// What a new branch needs was to be agreed on with the kernel when the pool was mounted.
    #[error("{path:?} {what}, which no branch did when it was mounted: mount it anew")]
    OfMount {
        /// The branch.
        path: PathBuf,
        /// What it does.
        what: &'static str,
    },
    /// A rule does more than to place what is new, on a merge that was mounted under rules that only did so.
    #[error(
        "the rule `{rule}` says `{key}`, and the pool was mounted with rules that only place what is new: what other rules need is \
         settled at the mount, so mount it again with these"
    )]
    RuleOfMerges {
        /// The rule's name.
        rule: String,
        /// What it says.
        key: &'static str,
    },
    /// A rule has something made on a branch that there is not, or has files moved from or to it.
    #[error("the rule `{rule}` names {place:?}, which is no branch")]
    NoSuchPlace {
        /// The rule's name.
        rule: String,
        /// What it names.
        place: String,
    },
    /// Something was asked for that merges do not have.
    #[error("{what} cannot be had with several branches: {why}")]
    NotOfMerges {
        /// What was asked for.
        what: &'static str,
        /// Why not.
        why: &'static str,
    },
    /// What is to outlive a server cannot be noted, or is not what was noted.
    #[error("the branches in force cannot be kept: {why}")]
    Kept {
        /// What is wrong.
        why: String,
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
            Self::FoldsNames { .. }
            | Self::Handles { .. }
            | Self::NotOfMerges { .. }
            | Self::RuleOfMerges { .. }
            | Self::CannotTell
            | Self::NotOfOneFolder
            | Self::OfMount { .. } => Errno::OPNOTSUPP,
            Self::NoBranch
            | Self::TooManyBranches { .. }
            | Self::SameBranch { .. }
            | Self::BranchInside { .. }
            | Self::SameIdentity { .. }
            | Self::KeepsIdentity { .. }
            | Self::NoSuchPlace { .. }
            | Self::NoSuchBranch { .. } => Errno::INVAL,
            Self::NoNumber => Errno::NOSPC,
            Self::Kept { .. } => Errno::IO,
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
