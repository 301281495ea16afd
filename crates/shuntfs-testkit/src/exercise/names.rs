//! The names below a folder: they are made, moved, linked and removed at random, against a model of the tree.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::fs::{CWD, RenameFlags, XattrFlags, getxattr, listxattr, removexattr, renameat_with, setxattr};
use rustix::io::Errno;

use crate::seeded::Random;

/// Names in one folder, so that names that are taken and names that are missing are both common.
const NAMES: usize = 7;
/// Folders below the root, and in how many levels.
const FOLDERS_MAX: usize = 12;
const DEPTH_MAX: usize = 4;
const LEN_MAX: usize = 6000;
const XATTRS: [&str; 3] = ["user.one", "user.two", "user.three"];

/// Random operations on the names below a folder that nobody else changes.
#[derive(Debug)]
pub struct NameExercise {
    root: PathBuf,
    seed: u64,
    random: Random,
    steps: u64,
    failed: u64,
    /// By path below the root, which is not among them.
    entries: BTreeMap<PathBuf, Entry>,
    files: BTreeMap<u64, Object>,
    next: u64,
    is_merged: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Entry {
    Folder(Object),
    /// One of the files, which may have several names.
    File(u64),
    Symlink(PathBuf),
}

/// A file or a folder.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Object {
    mode: u32,
    xattrs: BTreeMap<&'static str, Vec<u8>>,
    /// Empty for a folder.
    bytes: Vec<u8>,
}

impl Object {
    fn new(mode: u32) -> Self {
        Self { mode, xattrs: BTreeMap::new(), bytes: Vec::new() }
    }
}

type Operation = fn(&mut NameExercise) -> Result<()>;

const OPERATIONS: [(&str, Operation); 18] = [
    ("create", NameExercise::create),
    ("create", NameExercise::create),
    ("mkdir", NameExercise::make_folder),
    ("mkdir", NameExercise::make_folder),
    ("symlink", NameExercise::symlink),
    ("link", NameExercise::link),
    ("unlink", NameExercise::unlink),
    ("rmdir", NameExercise::remove_folder),
    ("rename", NameExercise::rename),
    ("rename", NameExercise::rename),
    ("rename", NameExercise::rename),
    ("chmod", NameExercise::chmod),
    ("xattr", NameExercise::xattr),
    ("truncate", NameExercise::truncate),
    ("write", NameExercise::write),
    ("unlink of an open file", NameExercise::orphan),
    ("readdir", NameExercise::list),
    ("look", NameExercise::look),
];

impl NameExercise {
    /// Makes the folder, which must not exist.
    ///
    /// # Errors
    /// The file system's.
    pub fn new(root: &Path, seed: u64) -> Result<Self> {
        fs::create_dir(root).with_context(|| format!("seed {seed}: {} cannot be made", root.display()))?;
        Ok(Self {
            root: root.to_owned(),
            seed,
            random: Random::new(seed),
            steps: 0,
            failed: 0,
            entries: BTreeMap::new(),
            files: BTreeMap::new(),
            next: 0,
            is_merged: false,
        })
    }

    /// The same on a pool of several branches, which exchanges names on one branch alone.
    ///
    /// # Errors
    /// The file system's.
    pub fn on_branches(root: &Path, seed: u64) -> Result<Self> {
        Ok(Self { is_merged: true, ..Self::new(root, seed)? })
    }

    /// Carries out one operation. It must succeed, or fail with the error that the model predicts.
    ///
    /// # Errors
    /// The outcome is another one. The error names the seed, the step and the operation.
    pub fn step(&mut self) -> Result<()> {
        let (name, operation) = OPERATIONS[self.random.below(OPERATIONS.len())];
        self.steps += 1;
        let (seed, step) = (self.seed, self.steps);
        operation(self).with_context(|| format!("seed {seed}, step {step}, {name}"))
    }

    /// How many operations were carried out, and how many of these had to fail and did.
    #[must_use]
    pub fn steps(&self) -> (u64, u64) {
        (self.steps, self.failed)
    }

    /// The name of its folder.
    #[must_use]
    pub fn name(&self) -> &OsStr {
        self.root.file_name().unwrap_or_default()
    }

    /// Compares everything below `root`, the folder itself or what another way leads to, with the model.
    ///
    /// # Errors
    /// A call failed, or something is missing, left over or different.
    pub fn check(&self, root: &Path) -> Result<()> {
        self.check_all(root)
            .with_context(|| format!("seed {}, after {} steps, in {}", self.seed, self.steps, root.display()))
    }

    fn check_all(&self, root: &Path) -> Result<()> {
        let mut inodes = BTreeMap::new();
        self.check_names(root, Path::new(""))?;
        for (path, entry) in &self.entries {
            self.check_entry(root, path)?;
            if let Entry::File(file) = entry {
                let inode = fs::symlink_metadata(root.join(path))?.ino();
                let same = *inodes.entry(*file).or_insert(inode);
                ensure!(same == inode, "{}: a link of inode {inode} and not {same}", path.display());
            }
            if let Entry::Folder(_) = entry {
                self.check_names(root, path)?;
            }
        }
        Ok(())
    }

    fn check_names(&self, root: &Path, folder: &Path) -> Result<()> {
        let found: Vec<OsString> = fs::read_dir(root.join(folder))
            .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.file_name())).collect())
            .with_context(|| format!("listing {}", folder.display()))?;
        let unique: BTreeSet<&OsString> = found.iter().collect();
        ensure!(unique.len() == found.len(), "{}: a name is listed twice: {found:?}", folder.display());
        let names = self.entries.keys().filter(|path| path.parent() == Some(folder));
        let expected: BTreeSet<OsString> =
            names.filter_map(|path| path.file_name()).map(OsString::from).collect();
        ensure!(unique.into_iter().eq(&expected), "{}: {found:?} and not {expected:?}", folder.display());
        Ok(())
    }

    /// Compares one entry with the model.
    fn check_entry(&self, root: &Path, path: &Path) -> Result<()> {
        let whole = root.join(path);
        let check = || -> Result<()> {
            let about = fs::symlink_metadata(&whole)?;
            let object = match self.entries.get(path).context("it is not known")? {
                Entry::Symlink(target) => {
                    let found = fs::read_link(&whole)?;
                    ensure!(found == *target, "leads to {} and not {}", found.display(), target.display());
                    return Ok(());
                }
                Entry::Folder(folder) => {
                    ensure!(about.is_dir(), "is no folder");
                    folder
                }
                Entry::File(file) => {
                    ensure!(about.is_file(), "is no file");
                    let links = self.links(*file);
                    ensure!(about.nlink() == links, "has {} names and not {links}", about.nlink());
                    let file = &self.files[file];
                    ensure!(
                        about.len() == file.bytes.len() as u64,
                        "has {} bytes and not {}",
                        about.len(),
                        file.bytes.len()
                    );
                    ensure!(fs::read(&whole)? == file.bytes, "has other bytes");
                    file
                }
            };
            let mode = about.mode() & 0o7777;
            ensure!(mode == object.mode, "has mode {mode:o} and not {:o}", object.mode);
            let xattrs = xattrs_of(&whole)?;
            let same = xattrs.iter().map(|(name, value)| (name.as_str(), value));
            ensure!(
                same.eq(object.xattrs.iter().map(|(name, value)| (*name, value))),
                "has {xattrs:?} and not {:?}",
                object.xattrs
            );
            Ok(())
        };
        check().with_context(|| path.display().to_string())
    }

    fn links(&self, file: u64) -> u64 {
        self.entries.values().filter(|entry| **entry == Entry::File(file)).count() as u64
    }

    /// A path in a folder that exists; whether it exists itself is open.
    fn path(&mut self) -> PathBuf {
        let folders = self.entries.iter().filter(|(_, entry)| matches!(entry, Entry::Folder(_)));
        let mut folders: Vec<PathBuf> = folders.map(|(path, _)| path.clone()).collect();
        folders.push(PathBuf::new());
        let folder = self.random.below(folders.len());
        folders.swap_remove(folder).join(format!("n{}", self.random.below(NAMES)))
    }

    /// A file or folder; `None` where there is none.
    fn object(&mut self, is_wanted: fn(&Entry) -> bool) -> Option<PathBuf> {
        let paths = self.entries.iter().filter(|(_, entry)| is_wanted(entry));
        let mut paths: Vec<PathBuf> = paths.map(|(path, _)| path.clone()).collect();
        let index = self.random.below(paths.len());
        (!paths.is_empty()).then(|| paths.swap_remove(index))
    }

    fn has_below(&self, folder: &Path) -> bool {
        self.entries.keys().any(|path| path.parent() == Some(folder))
    }

    /// Compares an outcome with the predicted one; `None` where the call failed as it should.
    fn expect<T>(
        &mut self,
        outcome: io::Result<T>,
        predicted: std::result::Result<(), Errno>,
    ) -> Result<Option<T>> {
        match (outcome, predicted) {
            (Ok(value), Ok(())) => Ok(Some(value)),
            (Err(error), Err(errno)) if error.raw_os_error() == Some(errno.raw_os_error()) => {
                self.failed += 1;
                Ok(None)
            }
            (Ok(_), Err(errno)) => bail!("succeeded, and should have failed with {errno:?}"),
            (Err(error), predicted) => bail!("{error}; predicted: {predicted:?}"),
        }
    }

    /// What making a name at `path` comes to.
    fn free(&self, path: &Path) -> std::result::Result<(), Errno> {
        if self.entries.contains_key(path) { Err(Errno::EXIST) } else { Ok(()) }
    }

    fn fill(&mut self, len: usize) -> Vec<u8> {
        let seed = self.random.number();
        (0..len.div_ceil(8) as u64).flat_map(|word| (seed ^ word).to_le_bytes()).take(len).collect()
    }

    fn object_mut(&mut self, path: &Path) -> Result<&mut Object> {
        match self.entries.get_mut(path) {
            Some(Entry::Folder(folder)) => Ok(folder),
            Some(Entry::File(file)) => self.files.get_mut(file).context("each file is known"),
            _ => bail!("{} is neither a file nor a folder", path.display()),
        }
    }

    fn create(&mut self) -> Result<()> {
        let path = self.path();
        let len = self.random.below(LEN_MAX);
        let bytes = self.fill(len);
        let whole = self.root.join(&path);
        let made = File::options().write(true).create_new(true).open(&whole);
        let Some(file) = self.expect(made, self.free(&path))? else { return Ok(()) };
        file.write_all_at(&bytes, 0).context("pwrite")?;
        let mode = file.metadata()?.mode() & 0o7777;
        self.files.insert(self.next, Object { bytes, ..Object::new(mode) });
        self.entries.insert(path, Entry::File(self.next));
        self.next += 1;
        Ok(())
    }

    fn make_folder(&mut self) -> Result<()> {
        let path = self.path();
        let folders = self.entries.values().filter(|entry| matches!(entry, Entry::Folder(_))).count();
        if folders >= FOLDERS_MAX || path.components().count() > DEPTH_MAX {
            return Ok(());
        }
        let whole = self.root.join(&path);
        if self.expect(fs::create_dir(&whole), self.free(&path))?.is_some() {
            let mode = fs::metadata(&whole)?.mode() & 0o7777;
            self.entries.insert(path, Entry::Folder(Object::new(mode)));
        }
        Ok(())
    }

    fn symlink(&mut self) -> Result<()> {
        let path = self.path();
        let target = PathBuf::from(format!("target{}", self.random.below(1000)));
        if self.expect(symlink(&target, self.root.join(&path)), self.free(&path))?.is_some() {
            self.entries.insert(path, Entry::Symlink(target));
        }
        Ok(())
    }

    fn link(&mut self) -> Result<()> {
        let Some(from) = self.object(|entry| matches!(entry, Entry::File(_))) else { return Ok(()) };
        let to = self.path();
        let linked = fs::hard_link(self.root.join(&from), self.root.join(&to));
        if self.expect(linked, self.free(&to))?.is_some() {
            let entry = self.entries[&from].clone();
            self.entries.insert(to, entry);
        }
        Ok(())
    }

    fn unlink(&mut self) -> Result<()> {
        let path = self.path();
        let predicted = match self.entries.get(&path) {
            None => Err(Errno::NOENT),
            Some(Entry::Folder(_)) => Err(Errno::ISDIR),
            Some(_) => Ok(()),
        };
        if self.expect(fs::remove_file(self.root.join(&path)), predicted)?.is_some() {
            self.gone(&path);
        }
        Ok(())
    }

    /// The name is gone, and the file with its last one.
    fn gone(&mut self, path: &Path) {
        if let Some(Entry::File(file)) = self.entries.remove(path)
            && self.links(file) == 0
        {
            self.files.remove(&file);
        }
    }

    fn remove_folder(&mut self) -> Result<()> {
        let path = self.path();
        let predicted = match self.entries.get(&path) {
            None => Err(Errno::NOENT),
            Some(Entry::Folder(_)) if self.has_below(&path) => Err(Errno::NOTEMPTY),
            Some(Entry::Folder(_)) => Ok(()),
            Some(_) => Err(Errno::NOTDIR),
        };
        if self.expect(fs::remove_dir(self.root.join(&path)), predicted)?.is_some() {
            self.entries.remove(&path);
        }
        Ok(())
    }

    fn rename(&mut self) -> Result<()> {
        let (from, to) = (self.path(), self.path());
        let flags = match self.random.below(4) {
            0 => RenameFlags::EXCHANGE,
            1 => RenameFlags::NOREPLACE,
            _ => RenameFlags::empty(),
        };
        // Which error comes first is not the same on each kernel.
        if from != to && (from.starts_with(&to) || to.starts_with(&from)) {
            return Ok(());
        }
        let predicted = self.predict_rename(&from, &to, flags);
        let renamed = renameat_with(CWD, self.root.join(&from), CWD, self.root.join(&to), flags);
        if self.is_merged && flags == RenameFlags::EXCHANGE && renamed == Err(Errno::XDEV) {
            return Ok(());
        }
        if self.expect(renamed.map_err(io::Error::from), predicted)?.is_none() {
            return Ok(());
        }
        if from == to || flags != RenameFlags::EXCHANGE && self.is_one_file(&from, &to) {
            return Ok(());
        }
        let (moved, other) = (self.cut(&from), self.cut(&to));
        self.paste(&to, moved);
        if flags == RenameFlags::EXCHANGE {
            self.paste(&from, other);
        } else {
            self.files.retain(|file, _| self.entries.values().any(|entry| *entry == Entry::File(*file)));
        }
        Ok(())
    }

    /// Whether both are names of one file, so that a rename does nothing.
    fn is_one_file(&self, one: &Path, other: &Path) -> bool {
        let (one, other) = (self.entries.get(one), self.entries.get(other));
        matches!(one, Some(Entry::File(_))) && one == other
    }

    fn predict_rename(&self, from: &Path, to: &Path, flags: RenameFlags) -> std::result::Result<(), Errno> {
        let is_folder = |entry: &Entry| matches!(entry, Entry::Folder(_));
        let moved = self.entries.get(from).ok_or(Errno::NOENT)?;
        let Some(other) = self.entries.get(to) else {
            return if flags == RenameFlags::EXCHANGE { Err(Errno::NOENT) } else { Ok(()) };
        };
        if flags == RenameFlags::NOREPLACE {
            return Err(Errno::EXIST);
        }
        if flags == RenameFlags::EXCHANGE || from == to {
            return Ok(());
        }
        match (is_folder(moved), is_folder(other)) {
            (true, false) => Err(Errno::NOTDIR),
            (false, true) => Err(Errno::ISDIR),
            (true, true) if self.has_below(to) => Err(Errno::NOTEMPTY),
            _ => Ok(()),
        }
    }

    /// Takes out an entry with everything below it, by the paths from there on.
    fn cut(&mut self, from: &Path) -> Vec<(PathBuf, Entry)> {
        let paths: Vec<PathBuf> =
            self.entries.keys().filter(|path| path.starts_with(from)).cloned().collect();
        let cut = |path: PathBuf| {
            let entry = self.entries.remove(&path)?;
            path.strip_prefix(from).ok().map(|rest| (rest.to_owned(), entry))
        };
        paths.into_iter().filter_map(cut).collect()
    }

    fn paste(&mut self, to: &Path, entries: Vec<(PathBuf, Entry)>) {
        for (rest, entry) in entries {
            let path = if rest.as_os_str().is_empty() { to.to_owned() } else { to.join(rest) };
            self.entries.insert(path, entry);
        }
    }

    fn chmod(&mut self) -> Result<()> {
        let Some(path) = self.object(|entry| !matches!(entry, Entry::Symlink(_))) else { return Ok(()) };
        let mode = 0o700 | u32::try_from(self.random.below(0o100)).unwrap_or(0);
        fs::set_permissions(self.root.join(&path), Permissions::from_mode(mode))?;
        self.object_mut(&path)?.mode = mode;
        Ok(())
    }

    fn xattr(&mut self) -> Result<()> {
        let Some(path) = self.object(|entry| !matches!(entry, Entry::Symlink(_))) else { return Ok(()) };
        let name = XATTRS[self.random.below(XATTRS.len())];
        let is_there = self.object_mut(&path)?.xattrs.contains_key(name);
        let whole = self.root.join(&path);
        match self.random.below(4) {
            0 => {
                let predicted = if is_there { Ok(()) } else { Err(Errno::NODATA) };
                let removed = removexattr(&whole, name).map_err(io::Error::from);
                if self.expect(removed, predicted)?.is_some() {
                    self.object_mut(&path)?.xattrs.remove(name);
                }
            }
            kind => {
                let value = self.random.bytes(60);
                let (flags, predicted) = match (kind, is_there) {
                    (1, true) => (XattrFlags::CREATE, Err(Errno::EXIST)),
                    (1, false) => (XattrFlags::CREATE, Ok(())),
                    (2, false) => (XattrFlags::REPLACE, Err(Errno::NODATA)),
                    (2, true) => (XattrFlags::REPLACE, Ok(())),
                    _ => (XattrFlags::empty(), Ok(())),
                };
                let set = setxattr(&whole, name, &value, flags).map_err(io::Error::from);
                if self.expect(set, predicted)?.is_some() {
                    self.object_mut(&path)?.xattrs.insert(name, value);
                }
            }
        }
        Ok(())
    }

    fn truncate(&mut self) -> Result<()> {
        let Some(path) = self.object(|entry| matches!(entry, Entry::File(_))) else { return Ok(()) };
        let len = self.random.below(LEN_MAX);
        let signed = i64::try_from(len).context("short")?;
        crate::raw::truncate(&self.root.join(&path), signed)?;
        self.object_mut(&path)?.bytes.resize(len, 0);
        Ok(())
    }

    fn write(&mut self) -> Result<()> {
        let Some(path) = self.object(|entry| matches!(entry, Entry::File(_))) else { return Ok(()) };
        let (at, len) = (self.random.below(LEN_MAX), self.random.below(LEN_MAX));
        let bytes = self.fill(len);
        let file = File::options().write(true).open(self.root.join(&path))?;
        file.write_all_at(&bytes, at as u64)?;
        let object = self.object_mut(&path)?;
        if len > 0 {
            object.bytes.resize(object.bytes.len().max(at + len), 0);
            object.bytes[at..at + len].copy_from_slice(&bytes);
        }
        Ok(())
    }

    /// An open file loses a name, and is written and read on.
    fn orphan(&mut self) -> Result<()> {
        let Some(path) = self.object(|entry| matches!(entry, Entry::File(_))) else { return Ok(()) };
        let whole = self.root.join(&path);
        let file = File::options().read(true).write(true).open(&whole)?;
        let mut expected = self.object_mut(&path)?.bytes.clone();
        fs::remove_file(&whole).context("unlink")?;
        let byte = self.random.byte();
        file.write_all_at(&[byte], expected.len() as u64).context("pwrite")?;
        expected.push(byte);
        self.object_mut(&path)?.bytes.push(byte);
        let mut found = vec![0; expected.len()];
        file.read_exact_at(&mut found, 0).context("pread")?;
        ensure!(found == expected, "an open file without this name has other bytes");
        self.gone(&path);
        Ok(())
    }

    fn list(&mut self) -> Result<()> {
        let folder = self.object(|entry| matches!(entry, Entry::Folder(_))).unwrap_or_default();
        self.check_names(&self.root, &folder)
    }

    fn look(&mut self) -> Result<()> {
        let path = self.path();
        if self.entries.contains_key(&path) {
            return self.check_entry(&self.root, &path);
        }
        let looked = fs::symlink_metadata(self.root.join(&path));
        self.expect(looked, Err(Errno::NOENT)).map(drop)
    }
}

/// The user's extended attributes.
fn xattrs_of(path: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut names = vec![0; 4096];
    let len = listxattr(path, &mut names).context("listxattr")?;
    let names = names[..len].split(|byte| *byte == 0).filter_map(|name| std::str::from_utf8(name).ok());
    let mut found = BTreeMap::new();
    for name in names.filter(|name| name.starts_with("user.")) {
        let mut value = vec![0; 4096];
        let len = getxattr(path, name, &mut value).context("getxattr")?;
        value.truncate(len);
        found.insert(name.to_owned(), value);
    }
    Ok(found)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_bare_folder_passes_and_each_change_beside_it_is_found() -> Result<()> {
        let folder = tempfile::tempdir()?;
        for seed in 1..5 {
            let root = folder.path().join(seed.to_string());
            let mut exercise = NameExercise::new(&root, seed)?;
            for _ in 0..1500 {
                exercise.step()?;
            }
            exercise.check(&root)?;
            assert!(exercise.steps().1 > 100, "{:?}", exercise.steps());
            let file = exercise.object(|entry| matches!(entry, Entry::File(_))).context("a file")?;
            let whole = root.join(&file);
            let (bytes, mode) = (fs::read(&whole)?, fs::metadata(&whole)?.permissions());
            let fails = |words: &str| {
                let error = format!("{:#}", exercise.check(&root).expect_err(words));
                assert!(error.contains(words) && error.contains(&format!("seed {seed}")), "{error}");
            };
            fs::write(root.join("left over"), [])?;
            fails("left over");
            fs::remove_file(root.join("left over"))?;
            fs::set_permissions(&whole, Permissions::from_mode(0o4700))?;
            fails("has mode 4700");
            fs::set_permissions(&whole, mode)?;
            fs::write(&whole, [&bytes[..], b"x"].concat())?;
            fails("bytes and not");
            fs::remove_file(&whole)?;
            fails(" and not ");
        }
        Ok(())
    }
}
