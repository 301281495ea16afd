//! Numbers of `<sys/stat.h>` and `<fcntl.h>` as Linux has them on every architecture that FUSE runs on.
//!
//! `O_DIRECTORY`, `O_NOFOLLOW`, `O_DIRECT` and `O_LARGEFILE` differ between architectures; the flags of a
//! request are in the kernel's own numbers, which are those of the machine.

/// The bits of the type.
pub(crate) const TYPE: u32 = 0o170_000;
/// A folder.
pub(crate) const DIR: u32 = 0o040_000;
/// A character device.
pub(crate) const CHARACTER: u32 = 0o020_000;
/// A regular file.
pub(crate) const FILE: u32 = 0o100_000;
/// Set-user-id.
pub(crate) const SUID: u32 = 0o4000;
/// Set-group-id.
pub(crate) const SGID: u32 = 0o2000;
/// The group may execute.
pub(crate) const GROUP_EXEC: u32 = 0o010;

/// The bits of the access mode.
pub(crate) const O_ACCMODE: u32 = 0o3;
/// Reading.
pub(crate) const O_RDONLY: u32 = 0;
/// Writing.
pub(crate) const O_WRONLY: u32 = 0o1;
/// Both.
pub(crate) const O_RDWR: u32 = 0o2;
/// Make it.
pub(crate) const O_CREAT: u32 = 0o100;
/// It must be new.
pub(crate) const O_EXCL: u32 = 0o200;
/// Cut it.
pub(crate) const O_TRUNC: u32 = 0o1000;
/// Each write goes to the end.
pub(crate) const O_APPEND: u32 = 0o2000;
/// Do not wait, for instance for a lease to be broken.
pub(crate) const O_NONBLOCK: u32 = 0o4000;
/// Data is durable when a write returns.
pub(crate) const O_DSYNC: u32 = 0o10_000;
/// So are attributes (includes `O_DSYNC`).
pub(crate) const O_SYNC: u32 = 0o4_010_000;
/// No page cache.
#[cfg(any(target_arch = "x86_64", target_arch = "x86", target_arch = "riscv64", target_arch = "s390x"))]
pub(crate) const O_DIRECT: u32 = 0o40_000;
/// No page cache.
#[cfg(any(target_arch = "aarch64", target_arch = "arm"))]
pub(crate) const O_DIRECT: u32 = 0o200_000;
/// No page cache.
#[cfg(any(target_arch = "powerpc64", target_arch = "powerpc"))]
pub(crate) const O_DIRECT: u32 = 0o400_000;
/// Only a folder.
#[cfg(any(target_arch = "x86_64", target_arch = "x86", target_arch = "riscv64", target_arch = "s390x"))]
pub(crate) const O_DIRECTORY: u32 = 0o200_000;
/// Only a folder.
#[cfg(any(target_arch = "aarch64", target_arch = "arm", target_arch = "powerpc64", target_arch = "powerpc"))]
pub(crate) const O_DIRECTORY: u32 = 0o40_000;
/// No symlink.
#[cfg(any(target_arch = "x86_64", target_arch = "x86", target_arch = "riscv64", target_arch = "s390x"))]
pub(crate) const O_NOFOLLOW: u32 = 0o400_000;
/// No symlink.
#[cfg(any(target_arch = "aarch64", target_arch = "arm", target_arch = "powerpc64", target_arch = "powerpc"))]
pub(crate) const O_NOFOLLOW: u32 = 0o100_000;
/// Reading leaves the time of access alone.
pub(crate) const O_NOATIME: u32 = 0o1_000_000;
/// A hold on the file that cannot read or write.
pub(crate) const O_PATH: u32 = 0o10_000_000;

/// `RENAME_EXCHANGE`.
pub(crate) const RENAME_EXCHANGE: u32 = 2;
/// `RENAME_NOREPLACE`.
pub(crate) const RENAME_NOREPLACE: u32 = 1;
/// `RENAME_WHITEOUT`.
pub(crate) const RENAME_WHITEOUT: u32 = 4;
