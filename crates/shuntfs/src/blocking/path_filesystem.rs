//! The trait of a file system that thinks in paths.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use shuntfs_wire::{ByteRange, Errno, LockOwner, Result};

use super::filesystem::{Caller, DirEntry, New};
use crate::args::{CopyFileRange, Fallocate, Ioctl, LockRange, LockRequest, OpSet, SetAttr, Whence};
use crate::attr::{Attr, Birth, Statfs};
use crate::delegation::Opened;
use crate::file_type::FileType;
use crate::init::{InitError, Offered, Wanted};
use crate::open_flags::OpenFlags;
use crate::poll::{Poll, PollEvents};

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
/// While a method runs that was given a path, no other moves, removes or replaces what is on that path: `rename`, `unlink` and `rmdir` wait for
/// it, and it for them. So a method must not wait for what another request of the mount brings, or a rename that waits may keep that
/// request from coming. Methods of open files have no path and are not waited for.
///
/// Each name is a node of its own: hard links of one file are seen as files of the same bytes, each with pages in the kernel's
/// cache of its own. Who moves names or changes files other than by the mount is seen after [`PathFilesystem::ttl`].
///
/// Only [`PathFilesystem::getattr`] has no default. Of what a [`crate::BlockingFilesystem`] can do, three things need nodes and are missing:
/// lasting handles of files, files that are made without a name, and delegation to a lower file of a node.
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

    /// What the root is. Default: a folder.
    fn root_type(&self) -> FileType {
        FileType::Directory
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

    /// Reads the attributes and the time of birth; the inode number is not looked at.
    fn statx(&self, caller: &Caller, place: Place<'_, Self::File>) -> Result<(Attr, Birth)> {
        let _ = (caller, place);
        Err(Errno::NOSYS)
    }

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

    /// A descriptor of the file was closed.
    fn flush(&self, caller: &Caller, file: &Self::File, owner: LockOwner) -> Result<()> {
        let _ = (caller, file, owner);
        Ok(())
    }

    /// The last descriptor is gone. The file itself is dropped after this. `flock_owner` holds a `flock` that goes with it.
    fn release(&self, caller: &Caller, file: &Self::File, flock_owner: Option<LockOwner>) {
        let _ = (caller, file, flock_owner);
    }

    /// Makes a file's data durable, and its attributes unless `data_only`.
    fn fsync(&self, caller: &Caller, file: &Self::File, data_only: bool) -> Result<()> {
        let _ = (caller, file, data_only);
        Err(Errno::OPNOTSUPP)
    }

    /// Allocates or frees space.
    fn fallocate(&self, caller: &Caller, file: &Self::File, op: Fallocate) -> Result<()> {
        let _ = (caller, file, op);
        Err(Errno::OPNOTSUPP)
    }

    /// Finds the next data or hole at or after `offset`.
    fn lseek(&self, caller: &Caller, file: &Self::File, offset: u64, whence: Whence) -> Result<u64> {
        let _ = (caller, file, offset, whence);
        Err(Errno::OPNOTSUPP)
    }

    /// Copies between two files; returns how many bytes.
    fn copy_file_range(&self, caller: &Caller, op: CopyFileRange<'_, Self::File>) -> Result<u64> {
        let _ = (caller, op);
        Err(Errno::OPNOTSUPP)
    }

    /// Answers an ioctl on an open file, or on a folder by its path: as [`crate::BlockingFilesystem::ioctl`].
    fn ioctl(&self, caller: &Caller, place: Place<'_, Self::File>, op: Ioctl<'_>) -> Result<(i32, Vec<u8>)> {
        let _ = (caller, place, op);
        Err(Errno::NOTTY)
    }

    /// Finds a lock that stands in the way.
    fn getlk(&self, caller: &Caller, file: &Self::File, lock: LockRequest) -> Result<LockRange> {
        let _ = (caller, file, lock);
        Err(Errno::OPNOTSUPP)
    }

    /// Takes or gives back a lock, without waiting: as [`crate::BlockingFilesystem::setlk`].
    fn setlk(&self, caller: &Caller, file: &Self::File, lock: LockRequest) -> Result<()> {
        let _ = (caller, file, lock);
        Err(Errno::OPNOTSUPP)
    }

    /// Tells what a file is ready for now, without waiting.
    fn poll(&self, caller: &Caller, file: &Self::File, op: Poll) -> Result<PollEvents> {
        let _ = (caller, file, op);
        Ok(PollEvents::IN | PollEvents::OUT | PollEvents::READ_NORMAL | PollEvents::WRITE_NORMAL)
    }

    /// Makes a folder's entries durable.
    fn fsyncdir(&self, caller: &Caller, path: &Path, data_only: bool) -> Result<()> {
        let _ = (caller, path, data_only);
        Err(Errno::OPNOTSUPP)
    }

    /// Checks access, where the kernel does not.
    fn access(&self, caller: &Caller, path: &Path, mask: u32) -> Result<()> {
        let _ = (caller, path, mask);
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
