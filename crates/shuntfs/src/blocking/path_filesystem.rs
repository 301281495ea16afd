//! The trait of a file system that thinks in paths.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use shuntfs_wire::{ByteRange, Errno, Result};

use super::filesystem::{Caller, DirEntry, New};
use crate::args::{OpSet, SetAttr};
use crate::attr::{Attr, Statfs};
use crate::delegation::Opened;
use crate::init::{InitError, Offered, Wanted};
use crate::open_flags::OpenFlags;

/// What is asked about: by its path, or by an open file of it where its name is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place<'a, F> {
    /// The path, from the root of the mount on; the root is the empty path.
    Path(&'a Path),
    /// An open file. Its name was removed.
    Open(&'a F),
}

impl<'a, F> Place<'a, F> {
    /// The path.
    ///
    /// # Errors
    /// ESTALE for a file without one.
    pub fn path(&self) -> Result<&'a Path> {
        match self {
            Self::Path(path) => Ok(path),
            Self::Open(_) => Err(Errno::STALE),
        }
    }
}

/// A file system whose methods take paths and may block; [`crate::Paths`] makes a [`crate::BlockingFilesystem`] of it. Paths go from
/// the root of the mount on and start with no slash, so that `folder.join(path)` is what lies below. Nodes, lookup counts and
/// inode numbers are not its own: a file has the number of its node, as long as the kernel knows it.
///
/// Each name is a node of its own: hard links of one file are seen as files of the same bytes, each with pages in the kernel's
/// cache of its own. Who moves names or changes files other than by the mount is seen after [`PathFilesystem::ttl`].
///
/// Only [`PathFilesystem::getattr`] has no default.
pub trait PathFilesystem: Sized + Send + Sync + 'static {
    /// State of one open file.
    type File: Send + Sync + 'static;

    /// The optional operations that this type implements; as for [`crate::BlockingFilesystem`]. Default: none.
    const OPS: OpSet = OpSet::empty();

    /// Says what it wants of what the kernel offers.
    ///
    /// # Errors
    /// What makes the mount impossible.
    fn init(&self, offered: &Offered) -> std::result::Result<Wanted, InitError> {
        let _ = offered;
        Ok(Wanted::default())
    }

    /// How long the kernel may believe names and attributes. Default: one second.
    fn ttl(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// Reads the attributes; the inode number is not looked at.
    ///
    /// # Errors
    /// ENOENT where there is nothing: this is how names are found.
    fn getattr(&self, caller: &Caller, place: Place<'_, Self::File>) -> Result<Attr>;

    /// Changes attributes.
    fn setattr(&self, caller: &Caller, place: Place<'_, Self::File>, set: SetAttr) -> Result<()> {
        let _ = (caller, place, set);
        Err(Errno::OPNOTSUPP)
    }

    /// Reads the target of a symlink.
    fn readlink(&self, caller: &Caller, path: &Path) -> Result<PathBuf> {
        let _ = (caller, path);
        Err(Errno::INVAL)
    }

    /// Makes a file, a FIFO, a socket or a device.
    fn mknod(&self, caller: &Caller, new: &New<PathBuf>, rdev: u32) -> Result<()> {
        let _ = (caller, new, rdev);
        Err(Errno::OPNOTSUPP)
    }

    /// Makes a folder.
    fn mkdir(&self, caller: &Caller, new: &New<PathBuf>) -> Result<()> {
        let _ = (caller, new);
        Err(Errno::OPNOTSUPP)
    }

    /// Makes a symlink.
    fn symlink(&self, caller: &Caller, path: &Path, target: &Path) -> Result<()> {
        let _ = (caller, path, target);
        Err(Errno::OPNOTSUPP)
    }

    /// Gives a file another name.
    fn link(&self, caller: &Caller, existing: &Path, path: &Path) -> Result<()> {
        let _ = (caller, existing, path);
        Err(Errno::OPNOTSUPP)
    }

    /// Removes a name of what is not a folder. Files may still be open.
    fn unlink(&self, caller: &Caller, path: &Path) -> Result<()> {
        let _ = (caller, path);
        Err(Errno::OPNOTSUPP)
    }

    /// Removes an empty folder.
    fn rmdir(&self, caller: &Caller, path: &Path) -> Result<()> {
        let _ = (caller, path);
        Err(Errno::OPNOTSUPP)
    }

    /// Moves a name; `flags` are `RENAME_*`.
    fn rename(&self, caller: &Caller, from: &Path, to: &Path, flags: u32) -> Result<()> {
        let _ = (caller, from, to, flags);
        Err(Errno::OPNOTSUPP)
    }

    /// Opens a file.
    fn open(&self, caller: &Caller, path: &Path, flags: OpenFlags) -> Result<Opened<Self::File>> {
        let _ = (caller, path, flags);
        Err(Errno::OPNOTSUPP)
    }

    /// Makes a file and opens it.
    fn create(&self, caller: &Caller, new: &New<PathBuf>, flags: OpenFlags) -> Result<Opened<Self::File>> {
        let _ = (caller, new, flags);
        Err(Errno::NOSYS)
    }

    /// Reads, no more than `at.len` bytes; fewer mean the end.
    fn read(&self, caller: &Caller, file: &Self::File, at: ByteRange) -> Result<Vec<u8>> {
        let _ = (caller, file, at);
        Err(Errno::OPNOTSUPP)
    }

    /// Writes; returns how many bytes.
    fn write(&self, caller: &Caller, file: &Self::File, at: u64, data: &[u8]) -> Result<usize> {
        let _ = (caller, file, at, data);
        Err(Errno::OPNOTSUPP)
    }

    /// The last descriptor is gone. The file itself is dropped after this.
    fn release(&self, caller: &Caller, file: &Self::File) {
        let _ = (caller, file);
    }

    /// Makes a file's data durable, and its attributes unless `data_only`.
    fn fsync(&self, caller: &Caller, file: &Self::File, data_only: bool) -> Result<()> {
        let _ = (caller, file, data_only);
        Err(Errno::OPNOTSUPP)
    }

    /// Lists a folder.
    fn list(&self, caller: &Caller, path: &Path) -> Result<Vec<DirEntry>> {
        let _ = (caller, path);
        Err(Errno::NOTDIR)
    }

    /// Reads the state of the file system as a whole.
    fn statfs(&self, caller: &Caller) -> Result<Statfs> {
        let _ = caller;
        Ok(Statfs::default())
    }

    /// Reads an extended attribute.
    fn getxattr(&self, caller: &Caller, path: &Path, name: &OsStr) -> Result<Vec<u8>> {
        let _ = (caller, path, name);
        Err(Errno::OPNOTSUPP)
    }

    /// Lists extended attributes.
    fn listxattr(&self, caller: &Caller, path: &Path) -> Result<Vec<OsString>> {
        let _ = (caller, path);
        Err(Errno::OPNOTSUPP)
    }

    /// Sets an extended attribute; `flags` are `XATTR_*`.
    fn setxattr(&self, caller: &Caller, path: &Path, name: &OsStr, value: &[u8], flags: u32) -> Result<()> {
        let _ = (caller, path, name, value, flags);
        Err(Errno::OPNOTSUPP)
    }

    /// Removes an extended attribute.
    fn removexattr(&self, caller: &Caller, path: &Path, name: &OsStr) -> Result<()> {
        let _ = (caller, path, name);
        Err(Errno::OPNOTSUPP)
    }
}
