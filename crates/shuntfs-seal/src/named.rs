//! A file that a person named, and what lies beside it: the folder is looked for once, so that a side file comes to the file
//! that was hashed, whatever the folder's owner puts in the folder's place meanwhile.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use shuntfs_sys::{OsError, open, regular};

use crate::Beside;

/// A name in a folder that is held.
#[derive(Clone, Debug)]
pub struct Named {
    folder: Arc<OwnedFd>,
    name: CString,
}

impl Named {
    /// Takes hold of the folder of a path. Whether the name is there is not asked yet.
    ///
    /// # Errors
    /// There is no such folder; EISDIR, or ENOTDIR, where the path ends in no name.
    pub fn find(path: &Path) -> io::Result<Self> {
        let bytes = path.as_os_str().as_bytes();
        let name = path.file_name().filter(|name| bytes.ends_with(name.as_bytes()));
        let Some(name) = name else {
            // What is wrong with it, opening it says best.
            regular::open(path)?;
            return Err(OsError::INVAL.into());
        };
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        Ok(Self { folder: Arc::new(open::open_folder(folder)?), name: CString::new(name.as_bytes())? })
    }

    /// The name with something behind it, in the same folder.
    #[must_use]
    pub fn with_suffix(&self, suffix: &str) -> Self {
        let bytes = self.name.as_bytes().iter().chain(suffix.as_bytes());
        let bytes = bytes.copied().filter(|byte| *byte != 0).collect::<Vec<u8>>();
        let name = CString::new(bytes).unwrap_or_default();
        Self { folder: Arc::clone(&self.folder), name }
    }

    /// Opens the file for reading. A symlink is followed: it was named.
    ///
    /// # Errors
    /// What open(2) gives; it is no regular file, and was not opened.
    pub fn open(&self) -> Result<File, regular::RegularError> {
        regular::open_held(&open::open_target_at(&*self.folder, &self.name)?)
    }

    /// Starts a file of this name, which tells of `data`. Only a regular file is replaced.
    ///
    /// # Errors
    /// There is something else, a symlink too; what making a file gives.
    pub fn start(&self, data: &File) -> io::Result<Beside> {
        Beside::start(Arc::clone(&self.folder), self.name.clone(), data)
    }
}
