//! Name, serial and time of the seal that must be made.

use std::path::Path;
use std::time::SystemTime;

use shuntfs_verity::sign::PublicKey;

use super::error::SealError;
use super::run::SealOptions;
use crate::{Issue, Seal, Store, TreeName};

/// Which of the tree's seals the new one is.
///
/// What lies in the store says nothing of the name: a seal of another tree, signed as this one would be, may have been put there, and
/// by its name what is here would be taken for that tree. Its serial only raises ours, and if it is not signed by who signs now, only
/// where it is not far in the future: a made-up one could be the last that there is.
pub(super) fn next_issue(
    folder: &Path,
    options: &SealOptions<'_>,
    store: &Store,
) -> Result<Issue, SealError> {
    let before = store.seal().ok();
    let before = before.as_ref().and_then(|seal| Some((seal, seal.issue()?)));
    let tree = match (&options.tree, before) {
        (Some(tree), _) => tree.clone(),
        (None, before) => {
            let tree = TreeName::of_folder(folder);
            // Where nobody signs, and nobody has, a name is nobody's word.
            let is_signed = |seal: &Seal| !(options.keys.is_empty() && seal.signatures().is_empty());
            let other = before.filter(|(seal, issue)| issue.tree != tree && is_signed(seal));
            // Whoever takes a store over has said that it is another tree's.
            let other = other.filter(|_| !options.allowed.adopt);
            if let Some((_, issue)) = other {
                return Err(SealError::OtherName { here: issue.tree.clone(), folder: tree });
            }
            tree
        }
    };
    let keys: Vec<PublicKey> = options.keys.iter().map(|key| key.public()).collect();
    let now = SystemTime::now();
    let counts =
        |seal: &Seal, issue: &Issue| !issue.is_far_ahead_of(now) || !seal.signers(&keys).good.is_empty();
    let before = before.filter(|(seal, issue)| issue.tree == tree && counts(seal, issue));
    Ok(Issue::next(tree, before.map(|(_, issue)| issue.serial), now))
}
