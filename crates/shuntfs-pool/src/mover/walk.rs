//! All files of a branch, folder by folder, without following anything: neither symlinks nor what is mounted on the branch.

use std::ffi::CString;
use std::sync::Arc;

use shuntfs::{Errno, LowerFile, Result};
use shuntfs_sys::dir::DirReader;
use shuntfs_sys::{OsError, reopen};

use crate::branch::Branch;
use crate::error::errno;
use crate::find::{self, Found};
use crate::mode;
use crate::shared::Shared;

/// How deep folders are in each other at most; what is deeper stays. Each is open while what is in it is examined.
pub(super) const DEPTH_MAX: usize = 256;

/// `DT_UNKNOWN`, `DT_DIR` and `DT_REG`.
const KINDS: [u8; 3] = [0, 4, 8];

/// A walk over a branch.
pub(super) struct Walk<'s> {
    shared: &'s Shared,
    branch: &'s Branch,
    /// The folders on the way, from the top on.
    levels: Vec<Level>,
    /// The path of the innermost one, with a slash behind each component.
    path: Vec<u8>,
}

struct Level {
    reader: DirReader,
    dir: Arc<LowerFile>,
    /// How long the path of the folder around it is.
    outer: usize,
}

/// Something that the walk has come to, and its path below the branch.
pub(super) struct Met {
    pub(super) path: Vec<u8>,
    /// What it is, a file; or why a folder cannot be read.
    pub(super) what: Result<Found>,
}

impl<'s> Walk<'s> {
    /// A walk from the top of a branch on.
    ///
    /// # Errors
    /// Those of opening it.
    pub(super) fn new(shared: &'s Shared, branch: &'s Branch) -> Result<Self> {
        let mut walk = Self { shared, branch, levels: Vec::new(), path: Vec::new() };
        walk.enter(Arc::clone(branch.root()), 0)?;
        Ok(walk)
    }

    /// Looks at the next name of the innermost folder.
    ///
    /// # Errors
    /// Those of reading the folder.
    fn step(&mut self) -> Result<Option<Met>> {
        let Some(level) = self.levels.last_mut() else { return Ok(None) };
        let Some(record) = level.reader.peek().map_err(errno)? else {
            if !level.reader.fill().map_err(errno)? {
                self.leave();
            }
            return Ok(None);
        };
        let (name, kind) = (record.name.to_owned(), record.kind);
        level.reader.advance().map_err(errno)?;
        if !KINDS.contains(&kind) || matches!(name.as_bytes(), b"." | b"..") {
            return Ok(None);
        }
        let dir = Arc::clone(&level.dir);
        let found = match find::find_below(self.shared, self.branch, &dir, &name) {
            // It went meanwhile, or is this very mount.
            Err(Errno::NOENT | Errno::STALE | Errno::LOOP) => return Ok(None),
            Err(error) => return Ok(Some(self.met(&name, Err(error)))),
            Ok(found) => found,
        };
        if !found.identity.mount.is_own() {
            return Ok(None);
        }
        if found.stat.is_file() {
            return Ok(Some(self.met(&name, Ok(found))));
        }
        if found.stat.is_dir()
            && let Err(error) = self.enter_below(&name, &found)
            && !matches!(error, Errno::NOENT | Errno::STALE)
        {
            return Ok(Some(self.met(&name, Err(error))));
        }
        Ok(None)
    }

    fn met(&self, name: &CString, what: Result<Found>) -> Met {
        Met { path: [&self.path, name.as_bytes()].concat(), what }
    }

    fn enter_below(&mut self, name: &CString, found: &Found) -> Result<()> {
        if self.levels.len() == DEPTH_MAX {
            return Err(Errno::LOOP);
        }
        let dir = Arc::new(found.open(self.shared)?);
        let outer = self.path.len();
        self.enter(dir, outer)?;
        self.path.extend_from_slice(name.as_bytes());
        self.path.push(b'/');
        Ok(())
    }

    fn enter(&mut self, dir: Arc<LowerFile>, outer: usize) -> Result<()> {
        let flags = mode::O_RDONLY | mode::O_DIRECTORY;
        let open = |flags| match reopen(&dir, flags) {
            // Only who owns it looks without a trace.
            Err(OsError::PERM) => reopen(&dir, flags & !mode::O_NOATIME),
            opened => opened,
        };
        let fd = self.shared.opening(|| open(flags | mode::O_NOATIME))?;
        self.levels.push(Level { reader: DirReader::new(fd), dir, outer });
        Ok(())
    }

    /// Leaves the innermost folder; its path.
    fn leave(&mut self) -> Vec<u8> {
        let mut path = self.path.clone();
        path.pop();
        if let Some(level) = self.levels.pop() {
            self.path.truncate(level.outer);
        }
        path
    }
}

/// Files, and folders that cannot be read. Nothing more where the branch was removed, and must be unmounted, which open folders keep from being done.
impl Iterator for Walk<'_> {
    type Item = Met;

    fn next(&mut self) -> Option<Met> {
        loop {
            if self.branch.is_let_go() {
                self.levels.clear();
            }
            self.levels.last()?;
            match self.step() {
                Ok(None) => {}
                Ok(Some(met)) => return Some(met),
                Err(error) => {
                    let path = self.leave();
                    // It was removed meanwhile.
                    if !matches!(error, Errno::NOENT | Errno::STALE) {
                        return Some(Met { path, what: Err(error) });
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::options::PoolOptions;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn walked(top: &std::path::Path) -> Vec<(String, Option<Errno>)> {
        let shared = Shared::open(&PoolOptions::new(top)).unwrap();
        let walk = Walk::new(&shared, shared.branches.at(0)).unwrap();
        let mut all: Vec<(String, Option<Errno>)> =
            walk.map(|met| (String::from_utf8(met.path).unwrap(), met.what.err())).collect();
        all.sort();
        all
    }

    #[test]
    fn all_files_are_met_and_nothing_is_followed() {
        let (top, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(elsewhere.path().join("secret"), "").unwrap();
        for folder in ["a/b/c", "a/d", "empty"] {
            fs::create_dir_all(top.path().join(folder)).unwrap();
        }
        for file in ["one", "a/two", "a/b/c/three", "a/d/four"] {
            fs::write(top.path().join(file), "").unwrap();
        }
        symlink(elsewhere.path(), top.path().join("a/link")).unwrap();
        symlink("one", top.path().join("to-one")).unwrap();
        let names: Vec<String> = walked(top.path()).into_iter().map(|(path, _)| path).collect();
        assert_eq!(names, ["a/b/c/three", "a/d/four", "a/two", "one"]);
    }

    #[test]
    fn what_is_too_deep_is_told_and_what_is_beside_it_is_met() {
        let top = tempfile::tempdir().unwrap();
        let deep = "d/".repeat(DEPTH_MAX);
        fs::create_dir_all(top.path().join(&deep)).unwrap();
        fs::write(top.path().join(&deep).join("lost"), "").unwrap();
        fs::write(top.path().join("d/beside"), "").unwrap();
        let met = walked(top.path());
        assert_eq!(met.len(), 2, "{met:?}");
        assert_eq!(met[0], ("d/beside".to_owned(), None));
        assert_eq!(met[1], (deep.trim_end_matches('/').to_owned(), Some(Errno::LOOP)));
    }
}
