//! Files of the store that are being written: under `staging/`, until a rename puts them in their place whole.
//!
//! Everything is reached by descriptors of the store's own folders, which are held from the start, one name at a time and
//! through no link. What exists is never written to, only replaced.

use std::ffi::{CStr, CString};
use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shuntfs_sys::{Device, OsError, data, names, open, stat_at};
use shuntfs_verity::{Digest, TreeSink};

use super::error::SealError;
use super::home::Home;
use super::making::{Made, Making, NAME as MAKING};
use super::marker;
use crate::new_file::{NewFile, random};
use crate::store::tree_parts;
use crate::walk::list;
use crate::{Store, StoreError};

/// A store that is written to, by nobody else.
#[derive(Debug)]
pub(crate) struct Stage {
    home: Home,
    staging: Arc<OwnedFd>,
    manifests: OwnedFd,
    trees: OwnedFd,
    /// What the names of its files in `staging/` start with.
    run: String,
    next: AtomicU64,
    making: Making,
    /// Held as long as this lives.
    _lock: File,
}

/// Where a file goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place<'a> {
    Tree(&'a Digest),
    Manifest(&'a Digest),
    Top(&'static CStr),
}

/// A file that is being written, and goes where it is not kept.
#[derive(Debug)]
pub(crate) struct Staged<'a> {
    stage: &'a Stage,
    file: NewFile,
}

impl Stage {
    /// Locks a store and makes what is missing of it. What killed runs were writing goes.
    pub(crate) fn open(home: Home) -> Result<Self, SealError> {
        let lock = home.lock()?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(SealError::Busy(home.path().to_owned())),
            Err(TryLockError::Error(error)) => {
                return Err(StoreError::io(home.path().join("lock"), error).into());
            }
        }
        let folder = |name: &CStr| home.folder_at(&*home.folder(), name, &below(home.path(), name));
        let (staging, manifests, trees) = (folder(c"staging")?, folder(c"manifests")?, folder(c"trees")?);
        let store = home.store();
        let (run, seal) = (random(), store.seal().ok().map(|seal| *seal.descriptor()));
        let making = Making::start(&home, &store, &run, seal.as_ref())?;
        let stage = Self {
            home,
            staging: Arc::new(staging),
            manifests,
            trees,
            run,
            next: AtomicU64::new(0),
            making,
            _lock: lock,
        };
        stage.clean().map_err(|error| StoreError::io(stage.path().join("staging"), error))?;
        if let Some(marker) = stage.home.missing_marker() {
            stage.replace(marker::NAME, &marker)?;
        }
        Ok(stage)
    }

    /// The same store, for reading.
    pub(crate) fn store(&self) -> Store {
        self.home.store()
    }

    pub(crate) fn path(&self) -> &Path {
        self.home.path()
    }

    /// Whether the path of the store still leads to it.
    pub(crate) fn check_place(&self) -> Result<(), StoreError> {
        self.home.check_place()
    }

    /// Its folder, by device and inode.
    pub(crate) fn identity(&self) -> (Device, u64) {
        (self.home.stat().dev, self.home.stat().ino)
    }

    /// Starts a file.
    pub(crate) fn start(&self) -> Result<Staged<'_>, StoreError> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{number}", self.run);
        let failed = |error| StoreError::io(self.path().join("staging").join(&name), error);
        let c_name = CString::new(name.as_str()).map_err(|_| failed(OsError::INVAL))?;
        let file = NewFile::start(self.staging.clone(), c_name, 0o666).map_err(failed)?;
        Ok(Staged { stage: self, file })
    }

    /// Makes everything that was written so far durable.
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        let synced = open::reopen(&*self.home.folder(), 0).and_then(data::sync_filesystem);
        synced.map_err(|error| StoreError::io(self.path(), error))
    }

    /// Puts a small file into its place, durable before and after.
    pub(crate) fn replace(&self, place: &'static CStr, bytes: &[u8]) -> Result<(), StoreError> {
        let failed = |error| StoreError::io(below(self.path(), place), error);
        let staged = self.start()?;
        staged.file().write_all_at(bytes, 0).map_err(failed)?;
        staged.file().sync_all().map_err(failed)?;
        staged.keep(Place::Top(place))?;
        let synced = open::reopen(&*self.home.folder(), 0).and_then(data::sync_all);
        synced.map_err(|error| StoreError::io(below(self.path(), place), error))
    }

    /// Removes a regular file of the store; whether it was there.
    pub(crate) fn remove(&self, place: Place<'_>) -> Result<bool, StoreError> {
        let failed = |error| StoreError::io(self.path_of(place), error);
        let gone_or = |error| if error == OsError::NOENT { Ok(false) } else { Err(failed(error)) };
        let remove = |folder: &OwnedFd, name: &CStr| match stat_at(folder, name) {
            Ok(stat) if stat.is_file() => names::unlink_at(folder, name).map_or_else(gone_or, |()| Ok(true)),
            // What is no file is not ours.
            Ok(_) => Ok(false),
            Err(error) => gone_or(error),
        };
        match place {
            Place::Top(name) => remove(&self.home.folder(), name),
            Place::Manifest(digest) => remove(&self.manifests, &c_text(&digest.to_hex())),
            Place::Tree(digest) => {
                let (folder, name) = tree_parts(digest);
                match open::open_path_at(&self.trees, &c_text(&folder)) {
                    Ok(folder) => match remove(&folder, &c_text(&name)) {
                        // A file, or a link, instead of the folder.
                        Err(StoreError::Io { source, .. })
                            if source.kind() == io::ErrorKind::NotADirectory =>
                        {
                            Ok(false)
                        }
                        removed => removed,
                    },
                    Err(error) => gone_or(error),
                }
            }
        }
    }

    /// Forgets what this run and those before it made: what of it is not needed is gone.
    pub(crate) fn forget(&self) -> Result<(), StoreError> {
        self.remove(Place::Top(MAKING)).map(drop)
    }

    /// Calls for everything that this run and killed ones made.
    pub(super) fn for_each_made(&self, each: impl FnMut(Made) -> io::Result<()>) -> io::Result<()> {
        super::making::for_each(&self.store(), each)
    }

    /// Removes what killed runs left in `staging/`, by their ids.
    fn clean(&self) -> shuntfs_sys::Result<()> {
        if self.making.killed.is_empty() {
            return Ok(());
        }
        for name in list(&open::reopen(&*self.staging, 0)?)? {
            let is_theirs = |run: &String| {
                name.to_bytes().strip_prefix(run.as_bytes()).is_some_and(|rest| rest.starts_with(b"-"))
            };
            if self.making.killed.iter().any(is_theirs) && stat_at(&*self.staging, &name)?.is_file() {
                names::unlink_at(&*self.staging, &name)?;
            }
        }
        Ok(())
    }

    fn path_of(&self, place: Place<'_>) -> std::path::PathBuf {
        match place {
            Place::Tree(digest) => self.store().tree_path(digest),
            Place::Manifest(digest) => self.store().manifest_path(digest),
            Place::Top(name) => below(self.path(), name),
        }
    }
}

impl Staged<'_> {
    /// Puts the file into its place, in whose folder it may be the first, and goes on with it there.
    pub(crate) fn keep(self, place: Place<'_>) -> Result<File, StoreError> {
        let Self { stage, file } = self;
        let failed = |error: io::Error| StoreError::io(stage.path_of(place), error);
        let kept = match place {
            Place::Top(name) => file.keep(&*stage.home.folder(), name),
            Place::Manifest(digest) => {
                stage.making.add(&Made::Manifest(*digest)).map_err(failed)?;
                file.keep(&stage.manifests, &c_text(&digest.to_hex()))
            }
            Place::Tree(digest) => {
                let (folder, name) = tree_parts(digest);
                stage.making.add(&Made::Tree(*digest)).map_err(failed)?;
                let path = stage.path().join("trees").join(&folder);
                let folder = stage.home.folder_at(&stage.trees, &c_text(&folder), &path)?;
                file.keep(&folder, &c_text(&name))
            }
        };
        kept.map_err(|error| failed(error.into()))
    }

    /// The file, to be written and read back.
    pub(crate) fn file(&self) -> &File {
        self.file.file()
    }
}

impl TreeSink for Staged<'_> {
    fn put(&mut self, offset: u64, blocks: &[u8]) -> io::Result<()> {
        self.file().write_all_at(blocks, offset)
    }
}

fn below(path: &Path, name: &CStr) -> std::path::PathBuf {
    path.join(name.to_string_lossy().as_ref())
}

fn c_text(text: &str) -> CString {
    CString::new(text).expect("digits have no NUL")
}
