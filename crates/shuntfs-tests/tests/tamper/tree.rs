//! The sealed tree, and what it held when it was sealed.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use shuntfs_testkit::mounted::shunt;
use shuntfs_testkit::seeded::Random;

/// The sealed files, by their paths. The last one is a program that prints a file.
pub(crate) const FILES: [&str; 10] =
    ["empty", "small", "block", "odd", "twin", "d/inner", "d/e/deep", "holes", "large", "program"];
/// Of the files, how many are small: the first ones.
pub(crate) const SMALL: usize = 7;
/// The sealed folders.
pub(crate) const FOLDERS: [&str; 3] = ["d", "d/e", "g"];
/// The sealed symlinks, and where they lead.
pub(crate) const LINKS: [(&str, &str); 2] = [("link", "odd"), ("g/up", "../d/inner")];
/// Which of the files each symlink leads to.
pub(crate) const LED_TO: [usize; 2] = [3, 5];
/// Of the files, the one that can be run.
pub(crate) const PROGRAM: usize = FILES.len() - 1;
/// A second name of one inode, and of which file.
const TWIN: (usize, usize) = (4, 3);

/// What was sealed.
#[derive(Debug)]
pub(crate) struct Sealed {
    /// What each file held.
    pub(crate) contents: Vec<Vec<u8>>,
    /// The store.
    pub(crate) store: PathBuf,
    /// What each file of the store held, by its path in the store.
    stored: Vec<(PathBuf, Vec<u8>)>,
}

impl Sealed {
    /// Makes a tree and seals it, with a key beside it; `beside` gets the key and the store.
    pub(crate) fn make(source: &Path, beside: &Path, seed: u64) -> Result<Self> {
        let mut random = Random::new(seed);
        let mut made = |len: usize| (0..len).map(|_| random.byte()).collect::<Vec<u8>>();
        // Small, so that many steps can be taken; the large one has a tree of two levels.
        let mut holes = vec![0; 60_000];
        holes[20_000..24_000].copy_from_slice(&made(4000));
        holes[59_990..].copy_from_slice(&made(10));
        let odd = made(10_001);
        let program = fs::read("/bin/cat")?;
        let contents = vec![
            Vec::new(),
            made(100),
            made(4096),
            odd.clone(),
            odd,
            made(20_000),
            made(8192),
            holes,
            made(530_000),
            program,
        ];
        let sealed = Self { contents, store: beside.join("store"), stored: Vec::new() };
        sealed.write_tree(source)?;
        let key = beside.join("key");
        shunt(&[&"key", &"new", &key])?.ok("shunt seal key new")?;
        shunt(&[&"seal", &source, &"--store", &sealed.store, &"--key", &key])?.ok("shunt seal")?;
        let mut stored = Vec::new();
        read_all(&sealed.store, Path::new(""), &mut stored)?;
        Ok(Self { stored, ..sealed })
    }

    /// What a mount is told, to believe the key alone.
    pub(crate) fn arguments(&self, beside: &Path) -> Vec<OsString> {
        let store = self.store.clone().into_os_string();
        ["--trust".into(), beside.join("key.pub").into_os_string(), "--seal-store".into(), store].into()
    }

    /// The files of the store.
    pub(crate) fn stored(&self) -> impl ExactSizeIterator<Item = PathBuf> {
        self.stored.iter().map(|(path, _)| self.store.join(path))
    }

    /// Makes what was sealed once more, with new inodes all over.
    pub(crate) fn heal(&self, source: &Path) -> Result<()> {
        for entry in fs::read_dir(source)? {
            remove(&entry?.path())?;
        }
        self.write_tree(source)?;
        for (index, (path, bytes)) in self.stored.iter().enumerate() {
            if fs::read(self.store.join(path)).ok().as_ref() != Some(bytes) {
                self.mend_stored(index)?;
            }
        }
        Ok(())
    }

    /// Makes a file of the store what it was.
    pub(crate) fn mend_stored(&self, index: usize) -> Result<()> {
        let (path, bytes) = &self.stored[index];
        let path = self.store.join(path);
        remove(&path)?;
        Ok(fs::write(path, bytes)?)
    }

    fn write_tree(&self, source: &Path) -> Result<()> {
        for folder in FOLDERS {
            fs::create_dir(source.join(folder))?;
        }
        for index in 0..FILES.len() {
            if index == TWIN.0 {
                fs::hard_link(source.join(FILES[TWIN.1]), source.join(FILES[TWIN.0]))?;
            } else {
                self.write_file(source, index)?;
            }
        }
        for (name, target) in LINKS {
            symlink(target, source.join(name))?;
        }
        Ok(())
    }

    /// Writes what a file held to where it was.
    fn write_file(&self, source: &Path, index: usize) -> Result<()> {
        let path = source.join(FILES[index]);
        fs::write(&path, &self.contents[index])?;
        let mode = if index == PROGRAM { 0o755 } else { 0o644 };
        Ok(fs::set_permissions(&path, Permissions::from_mode(mode))?)
    }
}

/// Removes whatever is at a path, also where somebody goes on making files in it for a while.
pub(crate) fn remove(path: &Path) -> Result<()> {
    for _ in 0..100 {
        match fs::symlink_metadata(path) {
            Err(_) => return Ok(()),
            Ok(found) if found.is_dir() => match fs::remove_dir_all(path) {
                Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {}
                done => return Ok(done?),
            },
            Ok(_) => return Ok(fs::remove_file(path)?),
        }
    }
    bail!("{} is filled faster than it is emptied", path.display())
}

fn read_all(folder: &Path, below: &Path, found: &mut Vec<(PathBuf, Vec<u8>)>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = below.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            read_all(&entry.path(), &path, found)?;
        } else {
            found.push((path, fs::read(entry.path())?));
        }
    }
    found.sort();
    Ok(())
}
