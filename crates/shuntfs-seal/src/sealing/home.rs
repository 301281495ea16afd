//! The folder of a store, found or made: ours, of this tree, outside of it, and written by nobody else.

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use shuntfs_sys::trusted::{self, Untrusted};
use shuntfs_sys::{OsError, Stat, names, open, regular, spawn, stat_of};

use super::error::SealError;
use super::marker::{self, Marker};
use crate::manifest::STORE_NAME;
use crate::new_file::create_new;
use crate::store::others_who_write;
use crate::walk::{Top, list};
use crate::{Store, StoreError};

/// Every name that a store has at its top.
const OWN: [&[u8]; 11] = [
    b"store",
    b"lock",
    b"seal",
    b"manifests",
    b"trees",
    b"unchanged",
    b"inodes",
    b"progress",
    b"staging",
    b"making",
    b"making.new",
];
/// Folders above a store that are examined.
const ABOVE_MAX: usize = 4096;

/// What sealing may do to a store that it would refuse otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "whoever seals decides all of it")]
pub struct Allowed {
    /// Put a seal without a signature instead of one with some.
    pub unsigned: bool,
    /// Take over the store of another tree, whose seal goes.
    pub adopt: bool,
    /// Write into a store that others can write, too.
    pub shared: bool,
}

/// The folder of a store that is about to be written.
#[derive(Debug)]
pub(crate) struct Home {
    path: PathBuf,
    folder: Arc<OwnedFd>,
    stat: Stat,
    marker: Marker,
    /// Whether the marker on disk says something else, or is missing.
    is_marked: bool,
}

impl Home {
    /// Finds or makes the store of a tree: `.shunt` in it, or the folder at `store`.
    pub(super) fn open(
        top: &Top,
        tree: &Path,
        store: Option<&Path>,
        allowed: Allowed,
    ) -> Result<Self, SealError> {
        let path = store.map_or_else(|| Store::beside(tree), Path::to_owned);
        let found = match store {
            Some(store) => find(top, tree, store, Way::of(allowed))?,
            None => None,
        };
        let is_beside = found.is_none();
        let folder = match found {
            Some(folder) => folder,
            None => make(top.fd(), OsStr::from_bytes(STORE_NAME), &path)?.0,
        };
        let stat = stat_of(&folder).map_err(|error| StoreError::io(&path, error))?;
        if !allowed.shared
            && let Some(why) = others_who_write(&stat)
        {
            return Err(SealError::Shared { store: path, why });
        }
        let marker =
            Marker::of(top, tree, is_beside).map_err(|error| SealError::read(tree.to_owned(), error))?;
        let mut home = Self { path, folder: Arc::new(folder), stat, marker, is_marked: true };
        home.is_marked = home.check_marker(top, tree, allowed)?;
        Ok(home)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn folder(&self) -> Arc<OwnedFd> {
        self.folder.clone()
    }

    pub(super) fn stat(&self) -> &Stat {
        &self.stat
    }

    /// The same store, for reading.
    pub(super) fn store(&self) -> Store {
        Store::held(self.path.clone(), self.folder.clone())
    }

    /// What the marker must be, where it is not.
    pub(super) fn missing_marker(&self) -> Option<Vec<u8>> {
        (!self.is_marked).then(|| self.marker.to_bytes())
    }

    /// Takes hold of a folder of the store, which is made where it is missing.
    pub(super) fn folder_at(
        &self,
        parent: impl AsFd,
        name: &CStr,
        path: &Path,
    ) -> Result<OwnedFd, StoreError> {
        let failed = |error| StoreError::io(path, error);
        let found = match open::open_path_at(&parent, name) {
            Err(OsError::NOENT) => {
                match names::mkdir_at(&parent, name, 0o777) {
                    Err(error) if error != OsError::EXIST => return Err(failed(error)),
                    _ => {}
                }
                open::open_path_at(&parent, name)
            }
            found => found,
        };
        let found = found.map_err(failed)?;
        let stat = stat_of(&found).map_err(failed)?;
        check_folder(&stat, path)?;
        if (stat.dev, stat.mnt_id) != (self.stat.dev, self.stat.mnt_id) {
            return Err(StoreError::broken(path, "something is mounted there"));
        }
        Ok(found)
    }

    /// Whether the path still leads here.
    pub(super) fn check_place(&self) -> Result<(), StoreError> {
        let found = open::open_folder(&self.path)
            .and_then(stat_of)
            .map_err(|error| StoreError::io(&self.path, error))?;
        if (found.dev, found.ino) == (self.stat.dev, self.stat.ino) {
            Ok(())
        } else {
            Err(StoreError::broken(&self.path, "another folder was put in its place meanwhile"))
        }
    }

    /// Whether the folder is marked as the store of this tree; where nothing is in it, or an older version has made it, it
    /// is one anyway.
    fn check_marker(&self, top: &Top, tree: &Path, allowed: Allowed) -> Result<bool, SealError> {
        let failed = |error| SealError::from(StoreError::io(&self.path, error));
        let found = match regular::open_at(&*self.folder, marker::NAME) {
            Ok(file) => Marker::read(&file).map_err(|error| failed(error.errno()))?,
            Err(_) => None,
        };
        if let Some(found) = found {
            let of = found.tree(&self.folder, &self.path);
            if found == self.marker || found.is_of(&self.folder, top, &self.marker) {
                return Ok(found == self.marker);
            }
            if allowed.adopt {
                return Ok(false);
            }
            return Err(SealError::OtherTree { store: self.path.clone(), of, tree: tree.to_owned() });
        }
        let listed = open::reopen(&*self.folder, 0).and_then(|folder| list(&folder)).map_err(failed)?;
        let listed: Vec<&[u8]> = listed.iter().map(|name| name.to_bytes()).collect();
        if listed.is_empty() {
            self.mark_first().map_err(failed)?;
            return Ok(true);
        }
        let is_torn = listed == [marker::NAME.to_bytes()];
        let is_older = listed.iter().all(|name| OWN.contains(name)) && listed.contains(&b"lock".as_slice());
        if is_torn || is_older && (self.marker.is_beside() || self.store().seal().is_ok()) {
            return Ok(false);
        }
        Err(SealError::NotAStore(self.path.clone()))
    }

    /// Marks an empty folder: the first thing that is in it.
    fn mark_first(&self) -> shuntfs_sys::Result<()> {
        let mut file = match create_new(&*self.folder, marker::NAME, 0o666) {
            // Somebody else was first; the lock says who goes on.
            Err(OsError::EXIST) => return Ok(()),
            file => file?,
        };
        let written = file.write_all(&self.marker.to_bytes());
        written.map_err(|error| OsError::from_io_error(&error).unwrap_or(OsError::IO))
    }

    /// Opens the lock, which is ours alone or made anew.
    pub(super) fn lock(&self) -> Result<File, SealError> {
        const NAME: &CStr = c"lock";
        // Its owner may have a lease on it, which others wait for.
        const RDWR_NONBLOCK: u32 = 0o4002;
        let failed = |error| SealError::from(StoreError::io(self.path.join("lock"), error));
        match create_new(&*self.folder, NAME, 0o666) {
            Err(OsError::EXIST) => {}
            made => return made.map_err(failed),
        }
        let held = open::open_path_at(&*self.folder, NAME).map_err(failed)?;
        let stat = stat_of(&held).map_err(failed)?;
        let why = match regular::check(&stat) {
            Err(error) => error.to_string(),
            // Whoever holds a lock on somebody else's file may stop them.
            Ok(()) if stat.nlink > 1 => "it has other names, too".to_owned(),
            // For writing: network file systems lock no other.
            Ok(()) => {
                return match open::reopen(&held, RDWR_NONBLOCK) {
                    Err(OsError::AGAIN) => Err(SealError::Busy(self.path.clone())),
                    opened => opened.map(File::from).map_err(failed),
                };
            }
        };
        Err(StoreError::broken(self.path.join("lock"), why).into())
    }
}

fn check_folder(stat: &Stat, path: &Path) -> Result<(), StoreError> {
    match (stat.is_dir(), stat.is_symlink()) {
        (true, _) => Ok(()),
        (_, true) => Err(StoreError::broken(path, "it is a symlink, not a folder")),
        _ => Err(StoreError::broken(path, "it is not a folder")),
    }
}

/// Who may decide what the path of a store leads to. Root is told a path by which somebody else would have it write a store
/// elsewhere, or take over that of another tree.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Anybody,
    /// Only root and the user of this process.
    Ours,
}

impl Way {
    fn of(allowed: Allowed) -> Self {
        let is_asked = spawn::effective_uid() == 0 && (!allowed.shared || allowed.adopt);
        if is_asked { Self::Ours } else { Self::Anybody }
    }

    /// Takes hold of what is at a path, symlinks followed; ENOENT where nothing is. Where something must be made in it
    /// (`is_parent`), nobody else may put something instead of that.
    fn hold(self, path: &Path, is_parent: bool) -> Result<OwnedFd, Untrusted> {
        let held = match (self, is_parent) {
            (Self::Anybody, _) => return Ok(open::open_folder(path)?),
            (Self::Ours, false) => trusted::lead(path),
            (Self::Ours, true) => trusted::hold(path),
        };
        let untrusted = match held {
            Err(why) => why,
            held => return held,
        };
        // Whoever could put something there is examined when the folder is made.
        let is_missing = open::open_target(path).is_err_and(|error| error == OsError::NOENT);
        Err(if is_missing { OsError::NOENT.into() } else { untrusted })
    }

    fn refuse(self, stat: &Stat, store: &Path) -> Result<(), SealError> {
        match others_who_write(stat).filter(|_| self == Self::Ours) {
            Some(why) => Err(SealError::Shared { store: store.to_owned(), why }),
            None => Ok(()),
        }
    }
}

/// The folder at a path that somebody named, made where it is missing; `None` for the tree's own `.shunt`.
fn find(top: &Top, tree: &Path, store: &Path, way: Way) -> Result<Option<OwnedFd>, SealError> {
    let failed = |error| SealError::from(StoreError::io(store, error));
    let in_tree = || SealError::InTree { store: store.to_owned(), tree: tree.to_owned() };
    let (mut at, mut missing) = (store, Vec::new());
    let mut folder = loop {
        let place = if at.as_os_str().is_empty() { Path::new(".") } else { at };
        match (way.hold(place, !missing.is_empty()), at.components().next_back(), at.parent()) {
            (Err(Untrusted::Os(OsError::NOENT)), Some(Component::Normal(name)), Some(parent)) => {
                missing.push(name);
                at = parent;
            }
            (Err(Untrusted::Os(error)), ..) => return Err(failed(error)),
            (Err(why), ..) => {
                return Err(SealError::Shared { store: store.to_owned(), why: why.to_string() });
            }
            (Ok(found), ..) => break found,
        }
    };
    check_folder(&stat_of(&folder).map_err(failed)?, store)?;
    let above = above(&folder).map_err(failed)?;
    if let Some(depth) = above.iter().position(|stat| top.is(stat)) {
        let is_own = match (depth, missing.as_slice()) {
            (0, [name]) => name.as_bytes() == STORE_NAME,
            (1, []) => {
                let own = CString::new(STORE_NAME).map_err(|_| failed(OsError::INVAL))?;
                let own = open::open_path_at(top.fd(), &own).and_then(stat_of);
                own.is_ok_and(|own| {
                    above.first().is_some_and(|found| (own.dev, own.ino) == (found.dev, found.ino))
                })
            }
            _ => false,
        };
        return if is_own { Ok(None) } else { Err(in_tree()) };
    }
    for name in missing.into_iter().rev() {
        let (made, stat) = make(&folder, name, store)?;
        way.refuse(&stat, store)?;
        folder = made;
    }
    Ok(Some(folder))
}

/// A folder and those above it, up to the root.
fn above(folder: &OwnedFd) -> shuntfs_sys::Result<Vec<Stat>> {
    let mut all = vec![stat_of(folder)?];
    let mut at = open::duplicate(folder)?;
    while all.len() < ABOVE_MAX {
        // A folder above that cannot be entered is not asked for: the tree, which was opened, does not exist.
        let Ok(parent) = open::open_path_at(&at, c"..") else { break };
        let stat = stat_of(&parent)?;
        if all
            .last()
            .is_some_and(|last| (last.dev, last.ino, last.mnt_id) == (stat.dev, stat.ino, stat.mnt_id))
        {
            break;
        }
        all.push(stat);
        at = parent;
    }
    Ok(all)
}

/// Takes hold of a folder, which is made where it is missing and can then be entered by its maker alone: a store names files
/// and tells hashes of those that not everybody may read.
fn make(parent: impl AsFd, name: &OsStr, path: &Path) -> Result<(OwnedFd, Stat), StoreError> {
    let failed = |error| StoreError::io(path, error);
    let name = CString::new(name.as_bytes()).map_err(|_| failed(OsError::INVAL))?;
    match names::mkdir_at(&parent, &name, 0o700) {
        Err(error) if error != OsError::EXIST => return Err(failed(error)),
        _ => {}
    }
    let folder = open::open_path_at(&parent, &name).map_err(failed)?;
    let stat = stat_of(&folder).map_err(failed)?;
    check_folder(&stat, path)?;
    Ok((folder, stat))
}

#[cfg(test)]
mod test {
    use super::super::making;
    use super::*;

    #[test]
    fn every_name_of_the_list_is_known() {
        for name in [marker::NAME, making::NAME, making::NEW_NAME] {
            assert!(OWN.contains(&name.to_bytes()));
        }
        assert!(OWN.contains(&crate::inodes::NAME.as_bytes()));
    }
}
