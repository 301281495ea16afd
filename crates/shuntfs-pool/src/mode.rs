//! Numbers of `<sys/stat.h>` and `<fcntl.h>` as Linux has them on every architecture that FUSE runs on, and those of an open
//! under their C names.

use shuntfs::{FileType, OpenFlags};

/// The bits of the type.
pub(crate) const TYPE: u32 = 0o170_000;
/// A folder.
pub(crate) const DIR: u32 = FileType::Directory.mode_bits();
/// A character device.
pub(crate) const CHARACTER: u32 = FileType::CharDevice.mode_bits();
/// A symlink.
pub(crate) const LINK: u32 = FileType::Symlink.mode_bits();
/// A regular file.
pub(crate) const FILE: u32 = FileType::Regular.mode_bits();
/// Set-user-id.
pub(crate) const SUID: u32 = 0o4000;
/// Set-group-id.
pub(crate) const SGID: u32 = 0o2000;
/// Somebody may execute.
pub(crate) const EXEC: u32 = 0o111;
/// `X_OK`, of access(2).
pub(crate) const X_OK: u32 = 1;
/// The group may execute.
pub(crate) const GROUP_EXEC: u32 = 0o010;

/// The bits of the access mode.
pub(crate) const O_ACCMODE: u32 = OpenFlags::ACCESS.0;
/// Reading.
pub(crate) const O_RDONLY: u32 = OpenFlags::READ_ONLY.0;
/// Writing.
pub(crate) const O_WRONLY: u32 = OpenFlags::WRITE_ONLY.0;
/// Both.
pub(crate) const O_RDWR: u32 = OpenFlags::READ_WRITE.0;
/// Make it.
pub(crate) const O_CREAT: u32 = OpenFlags::CREATE.0;
/// It must be new.
pub(crate) const O_EXCL: u32 = OpenFlags::EXCLUSIVE.0;
/// Cut it.
pub(crate) const O_TRUNC: u32 = OpenFlags::TRUNCATE.0;
/// Each write goes to the end.
pub(crate) const O_APPEND: u32 = OpenFlags::APPEND.0;
/// Do not wait, for instance for a lease to be broken.
pub(crate) const O_NONBLOCK: u32 = OpenFlags::NON_BLOCKING.0;
/// Data is durable when a write returns.
pub(crate) const O_DSYNC: u32 = OpenFlags::DATA_SYNC.0;
/// So are attributes (includes `O_DSYNC`).
pub(crate) const O_SYNC: u32 = OpenFlags::SYNC.0;
/// No page cache.
pub(crate) const O_DIRECT: u32 = OpenFlags::DIRECT.0;
/// Only a folder.
pub(crate) const O_DIRECTORY: u32 = OpenFlags::DIRECTORY.0;
/// No symlink.
pub(crate) const O_NOFOLLOW: u32 = OpenFlags::NO_FOLLOW.0;
/// Reading leaves the time of access alone.
pub(crate) const O_NOATIME: u32 = OpenFlags::NO_ACCESS_TIME.0;
/// A hold on the file that cannot read or write.
pub(crate) const O_PATH: u32 = OpenFlags::PATH.0;

/// Flags that a lower open takes over from the caller's.
pub(crate) const KEPT_FLAGS: u32 = O_DIRECT | O_SYNC | O_DSYNC;

/// `RENAME_EXCHANGE`.
pub(crate) const RENAME_EXCHANGE: u32 = 2;
/// `RENAME_NOREPLACE`.
pub(crate) const RENAME_NOREPLACE: u32 = 1;
/// `RENAME_WHITEOUT`.
pub(crate) const RENAME_WHITEOUT: u32 = 4;
