//! Files of the store that are being written: under `staging/`, until a rename puts them in their place whole.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use shuntfs_sys::data;
use shuntfs_verity::TreeSink;

use super::error::SealError;
use crate::{Store, StoreError};

/// A store that is written to, by nobody else.
#[derive(Debug)]
pub(crate) struct Stage {
    path: PathBuf,
    next: AtomicU64,
    /// Held as long as this lives.
    _lock: File,
}

/// A file that is being written, and goes where it is not kept.
#[derive(Debug)]
pub(crate) struct Staged {
    path: PathBuf,
    file: File,
    is_kept: bool,
}

impl Stage {
    /// Makes the store where it is missing, and locks it. What an interrupted run was writing goes.
    pub(crate) fn open(path: &Path) -> Result<Self, SealError> {
        let failed = |error| StoreError::io(path, error);
        // It names files and tells hashes of those that not everybody may read.
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
        let lock_path = path.join("lock");
        let lock = File::options().create(true).append(true).open(&lock_path);
        let lock = lock.map_err(|error| StoreError::io(&lock_path, error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(SealError::Busy(path.to_owned())),
            Err(fs::TryLockError::Error(error)) => return Err(StoreError::io(&lock_path, error).into()),
        }
        let staging = path.join("staging");
        match fs::remove_dir_all(&staging) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error).into()),
            _ => {}
        }
        for name in ["staging", "manifests", "trees"] {
            fs::create_dir_all(path.join(name)).map_err(failed)?;
        }
        Ok(Self { path: path.to_owned(), next: AtomicU64::new(0), _lock: lock })
    }

    /// The same store, for reading.
    pub(crate) fn store(&self) -> Result<Store, StoreError> {
        Store::open(&self.path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Starts a file.
    pub(crate) fn start(&self) -> Result<Staged, StoreError> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = self.path.join("staging").join(number.to_string());
        let file = File::options().read(true).write(true).create_new(true).open(&path);
        match file {
            Ok(file) => Ok(Staged { path, file, is_kept: false }),
            Err(error) => Err(StoreError::io(path, error)),
        }
    }

    /// Makes everything that was written so far durable.
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        let folder = File::open(&self.path).map_err(|error| StoreError::io(&self.path, error))?;
        data::sync_filesystem(&folder).map_err(|error| StoreError::io(&self.path, error))
    }

    /// Puts a small file into its place, durable before and after.
    pub(crate) fn replace(&self, place: &Path, bytes: &[u8]) -> Result<(), StoreError> {
        let failed = |error| StoreError::io(place, error);
        let staged = self.start()?;
        staged.file.write_all_at(bytes, 0).map_err(failed)?;
        staged.file.sync_all().map_err(failed)?;
        staged.keep(place)?;
        let folder = File::open(&self.path).map_err(failed)?;
        folder.sync_all().map_err(failed)
    }
}

impl Staged {
    /// Puts the file into its place, in whose folder it may be the first.
    pub(crate) fn keep(mut self, place: &Path) -> Result<(), StoreError> {
        let rename = || fs::rename(&self.path, place);
        let renamed = match (rename(), place.parent()) {
            (Err(error), Some(folder)) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(folder).and_then(|()| rename())
            }
            (renamed, _) => renamed,
        };
        renamed.map_err(|error| StoreError::io(place, error))?;
        self.is_kept = true;
        Ok(())
    }

    /// The file, to be read back.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }
}

impl TreeSink for Staged {
    fn put(&mut self, offset: u64, blocks: &[u8]) -> io::Result<()> {
        self.file.write_all_at(blocks, offset)
    }
}

impl io::Write for Staged {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if !self.is_kept {
            // Where it cannot be removed, the next run removes it.
            drop(fs::remove_file(&self.path));
        }
    }
}
