//! Which names there are, which files they lead to, and what those hold.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};

use crate::rules::{RuleSet, Taken};

/// The number of a file in the model; never used twice.
pub(crate) type FileId = usize;

/// One file of the lower folder.
#[derive(Debug)]
pub(crate) struct Known {
    /// The lower file itself, opened beside the mount.
    pub(crate) lower: File,
    /// Its names, or the last ones that it had.
    pub(crate) names: BTreeSet<String>,
    /// What nobody but an allowed writer changes.
    pub(crate) bytes: Vec<u8>,
}

/// What lies below the mount.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) folders: BTreeSet<String>,
    pub(crate) files: BTreeMap<String, FileId>,
    /// Every file that has a name or is held.
    known: BTreeMap<FileId, Known>,
    made: FileId,
}

impl Model {
    /// Notes a file that is there, in one of these folders, and had no name before.
    pub(crate) fn made(&mut self, sources: &[PathBuf], path: &str) -> Result<FileId> {
        let mut lower = sources.iter().filter_map(|source| File::open(source.join(path)).ok());
        let lower = lower.next().with_context(|| format!("{path} was made"))?;
        let bytes = content(&lower)?;
        let id = self.made;
        self.made += 1;
        self.known.insert(id, Known { lower, names: BTreeSet::new(), bytes });
        self.name(path, id);
        Ok(id)
    }

    /// What is known of a file.
    pub(crate) fn known(&self, id: FileId) -> Result<&Known> {
        self.known.get(&id).with_context(|| format!("nobody has file {id} any more"))
    }

    /// Reads again what a file holds.
    pub(crate) fn refresh(&mut self, id: FileId) -> Result<()> {
        let known = self.known.get_mut(&id).with_context(|| format!("nobody has file {id} any more"))?;
        known.bytes = content(&known.lower)?;
        Ok(())
    }

    /// Forgets the files that nobody can get at any more: they have no name, and are not among those that are held.
    pub(crate) fn forget_all_but(&mut self, held: &[FileId]) {
        let gone = |id: &FileId| !held.contains(id) && !self.is_named(*id);
        let gone: Vec<FileId> = self.known.keys().filter(|id| gone(id)).copied().collect();
        for id in gone {
            self.known.remove(&id);
        }
    }

    /// Gives a file one more name.
    pub(crate) fn name(&mut self, path: &str, id: FileId) {
        if let Some(known) = self.known.get_mut(&id) {
            if known.names.iter().all(|name| self.files.get(name) != Some(&id)) {
                known.names.clear();
            }
            known.names.insert(path.to_owned());
        }
        self.files.insert(path.to_owned(), id);
    }

    /// Takes a name away. What had no other keeps it as the last that it had.
    pub(crate) fn unname(&mut self, path: &str) -> Option<FileId> {
        let id = self.files.remove(path)?;
        let known = self.known.get_mut(&id)?;
        if known.names.len() > 1 {
            known.names.remove(path);
        }
        Some(id)
    }

    /// Moves whatever has a name, and all that is below it.
    pub(crate) fn rename(&mut self, from: &str, to: &str) {
        if let Some(id) = self.files.remove(from) {
            self.unname(to);
            if let Some(known) = self.known.get_mut(&id) {
                known.names.remove(from);
            }
            self.name(to, id);
            return;
        }
        self.folders.remove(to);
        for folder in below(self.folders.iter(), from) {
            self.folders.remove(&folder);
            self.folders.insert(moved(&folder, from, to));
        }
        for file in below(self.files.keys(), from) {
            self.rename(&file, &moved(&file, from, to));
        }
    }

    /// Exchanges two names.
    pub(crate) fn exchange(&mut self, one: &str, other: &str) {
        const ASIDE: &str = "\u{1}";
        self.rename(one, ASIDE);
        self.rename(other, one);
        self.rename(ASIDE, other);
    }

    /// What is taken from a user for the sake of all names of a file.
    pub(crate) fn taken(&self, rules: RuleSet, uid: u32, id: FileId) -> Taken {
        let names = self.known.get(&id).into_iter().flat_map(|known| &known.names);
        names.fold(Taken::default(), |all, name| all.with(rules.taken(uid, name)))
    }

    /// Whether a file has a name still.
    pub(crate) fn is_named(&self, id: FileId) -> bool {
        self.known
            .get(&id)
            .is_some_and(|known| known.names.iter().any(|name| self.files.get(name) == Some(&id)))
    }

    /// Everything that a change of this name changes: the files below it, and the folders with their paths.
    pub(crate) fn reached(&self, path: &str) -> (Vec<FileId>, Vec<String>) {
        let mut files: Vec<FileId> =
            below(self.files.keys(), path).iter().filter_map(|name| self.files.get(name).copied()).collect();
        files.sort_unstable();
        files.dedup();
        (files, below(self.folders.iter(), path))
    }

    /// Compares with the lower folders, name by name and byte by byte: nothing else has changed.
    pub(crate) fn check(&self, sources: &[PathBuf]) -> Result<()> {
        let mut numbers: BTreeMap<u64, FileId> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        let mut open: Vec<_> = sources.iter().map(|source| (source, String::new())).collect();
        while let Some((source, folder)) = open.pop() {
            for entry in fs::read_dir(source.join(&folder))? {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
                let metadata = entry.metadata()?;
                if metadata.is_dir() {
                    ensure!(
                        self.folders.contains(&path),
                        "a folder {path} is there that nobody may have made"
                    );
                    open.push((source, path.clone()));
                } else {
                    let id = self.files.get(&path).with_context(|| format!("nobody may have made {path}"))?;
                    let first = *numbers.entry(metadata.ino()).or_insert(*id);
                    ensure!(first == *id, "{path} means another file than it may");
                    ensure!(!seen.contains(&path), "{path} is there on both branches");
                }
                seen.insert(path);
            }
        }
        let gone = self.files.keys().chain(&self.folders).find(|path| !seen.contains(*path));
        ensure!(gone.is_none(), "{gone:?} is gone, and nobody may have taken it away");
        for (id, known) in &self.known {
            let now = content(&known.lower)?;
            ensure!(now == known.bytes, "file {id} ({:?}) has changed without a right to it", known.names);
        }
        Ok(())
    }
}

/// All of a lower file.
fn content(lower: &File) -> Result<Vec<u8>> {
    let mut bytes = vec![0; 8192];
    let len = lower.read_at(&mut bytes, 0)?;
    ensure!(len < bytes.len(), "a file of the test is short");
    bytes.truncate(len);
    Ok(bytes)
}

fn is_below(path: &str, top: &str) -> bool {
    path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn below<'a>(paths: impl Iterator<Item = &'a String>, top: &str) -> Vec<String> {
    paths.filter(|path| is_below(path, top)).cloned().collect()
}

/// Where a path comes to when something above it moves.
pub(crate) fn moved(path: &str, from: &str, to: &str) -> String {
    path.strip_prefix(from).map_or_else(|| path.to_owned(), |rest| format!("{to}{rest}"))
}
