//! Removes what no seal names any more: trees of files that changed or went, manifests of earlier seals.

use std::collections::HashSet;
use std::path::Path;
use std::{fs, io};

use shuntfs_verity::Digest;

use crate::Store;

/// Removes every tree and manifest but these; returns how many.
pub(crate) fn prune(store: &Store, trees: &HashSet<Digest>, manifest: &Digest) -> io::Result<u64> {
    let kept: HashSet<_> = trees.iter().map(|digest| store.tree_path(digest)).collect();
    let mut removed = 0;
    for folder in fs::read_dir(store.path().join("trees"))? {
        removed += remove_others(&folder?.path(), |path| kept.contains(path))?;
    }
    let kept = store.manifest_path(manifest);
    removed += remove_others(&store.path().join("manifests"), |path| path == kept)?;
    Ok(removed)
}

fn remove_others(folder: &Path, is_kept: impl Fn(&Path) -> bool) -> io::Result<u64> {
    let mut removed = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        // What is no file is not ours.
        if entry.file_type()?.is_file() && !is_kept(&entry.path()) {
            fs::remove_file(entry.path())?;
            removed += 1;
        }
    }
    Ok(removed)
}
