//! Names that protect files with several names, whether anybody has met them yet or not.
//!
//! A file that is reached by a name that no rule is about may have another that a rule protects. So the source is walked
//! before the rules hold, and of each file with several names those are kept that a rule could take something
//! for. From then on every change of names through the mount is followed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use shuntfs::{Errno, LowerFile, Result};
use shuntfs_rules::{Possible, Rules};
use shuntfs_sys::dir::DirReader;
use shuntfs_sys::{open_path_at, reopen};

use crate::error::errno;
use crate::find::{self, Found};
use crate::mode;
use crate::node::Identity;
use crate::shared::Shared;

/// More protecting names than these are not kept, and the rules refused: each takes its path in memory.
const NAMES_MAX: usize = 1_000_000;

/// How often a walk starts anew that a moved folder may have led astray.
const TRIES: usize = 5;

/// Protecting names, by inode number.
#[derive(Debug, Default)]
pub(crate) struct Index {
    names: Mutex<Names>,
    /// Folders that were moved.
    moves: AtomicU64,
}

type Names = HashMap<u64, Vec<(Identity, Vec<u8>)>>;

impl Index {
    /// Walks the source for these rules. The earlier names stay until the walk is done.
    ///
    /// # Errors
    /// EAGAIN where folders are moved about all the time, ENOSPC where there are too many names, and those of reading
    /// the source.
    pub(super) fn build(&self, shared: &Shared, rules: &Rules) -> Result<()> {
        if !rules.restricts_by_name() {
            self.names.lock().clear();
            return Ok(());
        }
        for _ in 0..TRIES {
            let before = self.moves.load(Ordering::SeqCst);
            let found = walk(shared, rules)?;
            let mut names = self.names.lock();
            if self.moves.load(Ordering::SeqCst) == before {
                *names = found;
                return Ok(());
            }
        }
        Err(Errno::AGAIN)
    }

    /// The protecting names of an inode.
    pub(super) fn of(&self, identity: &Identity) -> Vec<Vec<u8>> {
        let names = self.names.lock();
        let same = names.get(&identity.ino).into_iter().flatten().filter(|(other, _)| other == identity);
        same.map(|(_, path)| path.clone()).collect()
    }

    /// A file has one more name.
    pub(crate) fn add(&self, rules: &Rules, identity: &Identity, path: Vec<u8>) {
        if protects(rules.possible(&path)) {
            let mut names = self.names.lock();
            let list = names.entry(identity.ino).or_default();
            if !list.iter().any(|(other, known)| other == identity && *known == path) {
                list.push((identity.clone(), path));
            }
        }
    }

    /// A name is gone.
    pub(crate) fn remove(&self, identity: &Identity, path: &[u8]) {
        let mut names = self.names.lock();
        if let Some(list) = names.get_mut(&identity.ino) {
            list.retain(|(other, known)| other != identity || known != path);
            if list.is_empty() {
                names.remove(&identity.ino);
            }
        }
    }

    /// A folder was moved, and all that is in it; or two were exchanged.
    pub(crate) fn moved(&self, from: &[u8], to: &[u8], exchanges: bool) {
        self.moves.fetch_add(1, Ordering::SeqCst);
        for (_, path) in self.names.lock().values_mut().flatten() {
            if let Some(rest) = below(path, from) {
                *path = [to, rest].concat();
            } else if let Some(rest) = below(path, to).filter(|_| exchanges) {
                *path = [from, rest].concat();
            }
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.names.lock().values().map(Vec::len).sum()
    }
}

/// What follows the folder in a path that is inside of it.
fn below<'p>(path: &'p [u8], folder: &[u8]) -> Option<&'p [u8]> {
    path.strip_prefix(folder).filter(|rest| rest.first() == Some(&b'/'))
}

fn protects(possible: Possible) -> bool {
    let Possible { deny, hide, read_only, append_only, redact, varies: _ } = possible;
    deny || hide || read_only || append_only || redact
}

fn walk(shared: &Shared, rules: &Rules) -> Result<Names> {
    let (mut names, mut count) = (Names::new(), 0_usize);
    let mut folders = vec![Vec::new()];
    while let Some(folder) = folders.pop() {
        let entries = match list(shared, &folder) {
            Ok(entries) => entries,
            // It went away, or is the mount itself, which is not shown inside itself.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::STALE | Errno::LOOP) => continue,
            Err(error) => return Err(error),
        };
        for (name, found) in entries {
            let mut path = folder.clone();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&name);
            if found.stat.is_dir() {
                folders.push(path);
            } else if protects(rules.possible(&path)) {
                count += 1;
                if count > NAMES_MAX {
                    tracing::error!(limit = NAMES_MAX, "too many hard links are protected by rules");
                    return Err(Errno::NOSPC);
                }
                let identity = found.identity();
                names.entry(identity.ino).or_default().push((identity, path));
            }
        }
    }
    Ok(names)
}

/// The folders in a folder, and its files with several names.
fn list(shared: &Shared, path: &[u8]) -> Result<Vec<(Vec<u8>, Found)>> {
    let mut folder = shared.descriptor(&shared.root)?;
    for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        let name = std::ffi::CString::new(name).map_err(|_| Errno::INVAL)?;
        let fd = shared.opening(|| open_path_at(&folder, &name))?;
        folder = std::sync::Arc::new(LowerFile::new(fd));
    }
    let fd = shared.opening(|| reopen(&folder, mode::O_RDONLY | mode::O_DIRECTORY))?;
    let (mut reader, mut entries) = (DirReader::new(fd), Vec::new());
    loop {
        let Some(record) = reader.peek().map_err(errno)? else {
            if reader.fill().map_err(errno)? {
                continue;
            }
            return Ok(entries);
        };
        let name = record.name.to_owned();
        reader.advance().map_err(errno)?;
        if name.as_bytes() == b"." || name.as_bytes() == b".." {
            continue;
        }
        // Opened first, because asking about a name would ask whatever is mounted there, and that may be ourselves.
        let Ok(fd) = shared.opening(|| open_path_at(&folder, &name)) else { continue };
        let Ok(found) = find::by_descriptor(shared, fd) else { continue };
        if found.stat.is_dir() || found.stat.nlink > 1 {
            entries.push((name.into_bytes(), found.without_descriptor()));
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::options::PoolOptions;
    use shuntfs_rules::Known;

    struct Nobody;

    impl Known for Nobody {
        fn user(&self, _: &str) -> Option<u32> {
            None
        }
        fn group(&self, _: &str) -> Option<u32> {
            None
        }
        fn policies(&self) -> &[&str] {
            &[]
        }
    }

    #[test]
    fn protecting_names_are_found_and_followed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("a/b")).unwrap();
        for (name, other) in [("a/b/one", "two"), ("three", "four")] {
            std::fs::write(at(name), "x").unwrap();
            std::fs::hard_link(at(name), at(other)).unwrap();
        }
        std::fs::write(at("a/alone"), "x").unwrap();
        let shared = Shared::open(&PoolOptions::new(folder.path())).unwrap();
        let rules = |text: &str| Rules::parse(text, "r", None, &Nobody).unwrap();
        let index = Index::default();
        let protecting = rules("[[rule]]\npath = ['a/**', 'x/**']\ndeny = 'EPERM'\n");
        index.build(&shared, &protecting).unwrap();
        assert_eq!(index.len(), 1);
        let dir = shared.descriptor(&shared.root).unwrap();
        let identity = find::find(&shared, &shared.root, &dir, c"two").unwrap().identity();
        let paths = || index.of(&identity).into_iter().map(|path| String::from_utf8(path).unwrap());
        assert_eq!(paths().collect::<Vec<_>>(), ["a/b/one"]);

        index.moved(b"a", b"z", false);
        index.moved(b"a", b"y", false);
        assert_eq!(paths().collect::<Vec<_>>(), ["z/b/one"]);
        index.moved(b"q", b"z", true);
        assert_eq!(paths().collect::<Vec<_>>(), ["q/b/one"]);
        index.add(&protecting, &identity, b"x/new".to_vec());
        index.add(&protecting, &identity, b"free".to_vec());
        assert_eq!(paths().collect::<Vec<_>>(), ["q/b/one", "x/new"]);
        index.remove(&identity, b"q/b/one");
        index.remove(&identity, b"x/new");
        assert_eq!(index.len(), 0);

        index.build(&shared, &rules("[[rule]]\nuid = 5\ndeny = 'EPERM'\n")).unwrap();
        assert_eq!(index.len(), 0, "rules that name no place need no names");
    }
}
