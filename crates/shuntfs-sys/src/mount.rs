//! Mounting a /dev/fuse, with the new mount calls, with mount(2), or through fusermount3.

use std::ffi::{CString, OsStr};
use std::fmt::Write;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount,
};

use crate::device::FuseDevice;
use crate::proc_fd::FdName;
use crate::stat::stat_of;
use crate::{OsError, Result};

pub use crate::fusectl::{abort_connection, is_connection};
pub use crate::fusermount::{Lifeline, mount_by_fusermount, mount_for_life, unmount_by_fusermount};
pub use crate::mountinfo::{MountInfo, mounts, mounts_of};

/// What to mount where.
#[derive(Clone, Copy, Debug)]
pub struct MountRequest<'a> {
    /// What the mount table shows as the source, `fsname=` to users.
    pub source: &'a OsStr,
    /// What follows `fuse.` as the type in the mount table.
    pub subtype: Option<&'a str>,
    /// The mount point, held by any descriptor.
    pub target: BorrowedFd<'a>,
    /// The device, not mounted yet; or of a living connection, which gets one more mount.
    pub device: &'a FuseDevice,
    /// The root's `st_mode`; its type must be the mount point's.
    pub rootmode: u32,
    /// The user who may use the mount where `allow_other` is off.
    pub uid: u32,
    /// The group who may use the mount where `allow_other` is off.
    pub gid: u32,
    /// The rest, all off by default.
    pub options: MountOptions,
}

impl<'a> MountRequest<'a> {
    /// A folder of root's, with all options off.
    #[must_use]
    pub fn new(source: &'a OsStr, target: BorrowedFd<'a>, device: &'a FuseDevice) -> Self {
        let options = MountOptions::default();
        Self { source, subtype: None, target, device, rootmode: 0o040_000, uid: 0, gid: 0, options }
    }
}

/// What a mount allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MountOptions {
    /// Refuses changes.
    pub read_only: bool,
    /// Ignores suid and sgid bits on exec.
    pub nosuid: bool,
    /// Ignores device nodes.
    pub nodev: bool,
    /// Refuses to run programs.
    pub noexec: bool,
    /// Does not keep the time of last access.
    pub noatime: bool,
    /// Does not keep the time of last access of folders.
    pub nodiratime: bool,
    /// Makes every write durable at once.
    pub sync: bool,
    /// Makes every change of a folder durable at once.
    pub dirsync: bool,
    /// Lets other users in.
    pub allow_other: bool,
    /// Lets the kernel check permissions by owner, mode and ACL.
    pub default_permissions: bool,
    /// The longest READ in bytes; `None` leaves it to INIT.
    pub max_read: Option<u32>,
}

/// Which call mounts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MountCall {
    /// fsopen, fsconfig, fsmount, move_mount: tells why it fails. Linux 5.2.
    New,
    /// mount(2).
    Classic,
}

/// Why a mount or unmount failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// The kernel refused.
    #[error("{step}: {errno}{}{log}", if log.is_empty() { "" } else { ": " })]
    Refused {
        /// The call that failed.
        step: &'static str,
        /// Its error.
        errno: OsError,
        /// What the kernel wrote about it, or nothing.
        log: String,
    },
    /// There is no fusermount3 on the search path.
    #[error("fusermount3 is not installed (package fuse3)")]
    NoFusermount,
    /// fusermount3 ran and said no.
    #[error("fusermount3: {message}")]
    Fusermount {
        /// What it wrote, or its exit status.
        message: String,
    },
    /// fusermount3 did not answer in time.
    #[error("fusermount3 did not answer in time")]
    FusermountStuck,
}

impl MountError {
    /// The nearest error number.
    #[must_use]
    pub fn errno(&self) -> OsError {
        match self {
            Self::Refused { errno, .. } => *errno,
            Self::NoFusermount => OsError::NOENT,
            Self::Fusermount { .. } => OsError::PERM,
            Self::FusermountStuck => OsError::TIMEDOUT,
        }
    }

    pub(crate) fn refused(step: &'static str, errno: OsError) -> Self {
        Self::Refused { step, errno, log: String::new() }
    }
}

/// Mounts, with the new calls where the kernel and the sandbox have them, else with mount(2); tells which.
///
/// # Errors
/// [`MountError::Refused`]: EPERM without CAP_SYS_ADMIN, ENOTDIR where `rootmode` is not the mount point's type,
/// EINVAL where the device is of a dead connection.
pub fn mount_fuse(request: &MountRequest<'_>) -> std::result::Result<MountCall, MountError> {
    match mount_with(MountCall::New, request) {
        // Nothing was configured yet, so the kernel or a sandbox does not know the call at all.
        Err(MountError::Refused { step: FSOPEN, errno: OsError::NOSYS | OsError::PERM, .. }) => {
            mount_with(MountCall::Classic, request).map(|()| MountCall::Classic)
        }
        other => other.map(|()| MountCall::New),
    }
}

/// Mounts with the given call.
///
/// # Errors
/// As [`mount_fuse`]; ENOSYS where the kernel does not have the call.
pub fn mount_with(call: MountCall, request: &MountRequest<'_>) -> std::result::Result<(), MountError> {
    match call {
        MountCall::New => mount_new(request),
        MountCall::Classic => mount_classic(request),
    }
}

const FSOPEN: &str = "fsopen";

fn mount_new(request: &MountRequest<'_>) -> std::result::Result<(), MountError> {
    let refused = MountError::refused;
    let context = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC).map_err(|errno| refused(FSOPEN, errno))?;
    // Only the context's own log says which option was wrong.
    let logged = |step| {
        let context = &context;
        move |errno| MountError::Refused { step, errno, log: log_of(context) }
    };
    configure(&context, request).map_err(logged("fsconfig"))?;
    fsconfig_create(&context).map_err(logged("fsconfig create"))?;
    let mounted = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes(request.options));
    let mounted = mounted.map_err(logged("fsmount"))?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(&mounted, c"", request.target, c"", flags).map_err(|errno| {
        let is_wrong_type = errno == OsError::INVAL && !fits(request);
        refused("move_mount", if is_wrong_type { OsError::NOTDIR } else { errno })
    })
}

/// Whether root and mount point are both folders, or both not. mount(2) says ENOTDIR where they differ, move_mount(2)
/// an EINVAL that may mean anything.
fn fits(request: &MountRequest<'_>) -> bool {
    let is_dir = request.rootmode & libc::S_IFMT == libc::S_IFDIR;
    stat_of(request.target).map_or(true, |target| target.is_dir() == is_dir)
}

fn configure(context: &OwnedFd, request: &MountRequest<'_>) -> Result<()> {
    let options = request.options;
    let text = |key: &str, value: String| fsconfig_set_string(context, key, value);
    fsconfig_set_string(context, "source", request.source)?;
    if let Some(subtype) = request.subtype {
        fsconfig_set_string(context, "subtype", subtype)?;
    }
    // As a string: Linux 6.18 refuses FSCONFIG_SET_FD here with EINVAL.
    text("fd", request.device.as_raw_fd().to_string())?;
    text("rootmode", format!("{:o}", request.rootmode))?;
    text("user_id", request.uid.to_string())?;
    text("group_id", request.gid.to_string())?;
    if let Some(max_read) = options.max_read {
        text("max_read", max_read.to_string())?;
    }
    let flags = [
        ("allow_other", options.allow_other),
        ("default_permissions", options.default_permissions),
        ("ro", options.read_only),
        ("sync", options.sync),
        ("dirsync", options.dirsync),
    ];
    flags.into_iter().filter(|(_, on)| *on).try_for_each(|(flag, _)| fsconfig_set_flag(context, flag))
}

fn attributes(options: MountOptions) -> MountAttrFlags {
    let flags = [
        (MountAttrFlags::MOUNT_ATTR_RDONLY, options.read_only),
        (MountAttrFlags::MOUNT_ATTR_NOSUID, options.nosuid),
        (MountAttrFlags::MOUNT_ATTR_NODEV, options.nodev),
        (MountAttrFlags::MOUNT_ATTR_NOEXEC, options.noexec),
        (MountAttrFlags::MOUNT_ATTR_NOATIME, options.noatime),
        (MountAttrFlags::MOUNT_ATTR_NODIRATIME, options.nodiratime),
    ];
    flags.into_iter().filter(|(_, on)| *on).map(|(flag, _)| flag).collect()
}

/// The messages that wait in a mount context, without their level, on one line.
fn log_of(context: &OwnedFd) -> String {
    let mut log = String::new();
    let mut message = [0; 512];
    // Each read gives one message; the end is ENODATA.
    while let Ok(len) = rustix::io::read(context, &mut message) {
        let text = String::from_utf8_lossy(message.get(..len).unwrap_or_default());
        let text = text.trim_end();
        let text = text.split_once(' ').map_or(text, |(_level, text)| text);
        let separator = if log.is_empty() { "" } else { "; " };
        let _ = write!(log, "{separator}{text}");
        if len == 0 {
            break;
        }
    }
    log
}

fn mount_classic(request: &MountRequest<'_>) -> std::result::Result<(), MountError> {
    let refused = |errno| MountError::refused("mount", errno);
    let options = request.options;
    let mut data = format!(
        "fd={},rootmode={:o},user_id={},group_id={}",
        request.device.as_raw_fd(),
        request.rootmode,
        request.uid,
        request.gid
    );
    for (name, on) in
        [("allow_other", options.allow_other), ("default_permissions", options.default_permissions)]
    {
        if on {
            let _ = write!(data, ",{name}");
        }
    }
    if let Some(max_read) = options.max_read {
        let _ = write!(data, ",max_read={max_read}");
    }
    let kind = request.subtype.map_or_else(|| "fuse".to_owned(), |subtype| format!("fuse.{subtype}"));
    let data = CString::new(data).map_err(|_| refused(OsError::INVAL))?;
    let target = FdName::new(request.target);
    rustix::mount::mount(request.source, target.absolute(), kind, classic_flags(options), data.as_c_str())
        .map_err(refused)
}

fn classic_flags(options: MountOptions) -> MountFlags {
    let flags = [
        (MountFlags::RDONLY, options.read_only),
        (MountFlags::NOSUID, options.nosuid),
        (MountFlags::NODEV, options.nodev),
        (MountFlags::NOEXEC, options.noexec),
        (MountFlags::NOATIME, options.noatime),
        (MountFlags::NODIRATIME, options.nodiratime),
        (MountFlags::SYNCHRONOUS, options.sync),
        (MountFlags::DIRSYNC, options.dirsync),
    ];
    flags.into_iter().filter(|(_, on)| *on).map(|(flag, _)| flag).collect()
}

/// Unmounts what is mounted at `target`; `lazy` takes it out of sight at once and lets open files live on.
///
/// # Errors
/// EBUSY where files are open, EINVAL where nothing is mounted, EPERM without CAP_SYS_ADMIN, ENOENT.
pub fn unmount(target: &Path, lazy: bool) -> Result<()> {
    let lazily = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    rustix::mount::unmount(target, UnmountFlags::NOFOLLOW | lazily)
}

/// Aborts the connection of the FUSE mount at `target`, which needs no fusectl: every waiting caller gets an error, and
/// the server's device too. The mount itself goes as well, unless it is in use.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN, EINVAL where nothing is mounted.
pub fn abort_by_umount(target: &Path) -> Result<()> {
    match rustix::mount::unmount(target, UnmountFlags::NOFOLLOW | UnmountFlags::FORCE) {
        Err(OsError::BUSY) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn errors_say_what_the_kernel_said() {
        let plain = MountError::refused("mount", OsError::PERM);
        assert!(!plain.to_string().ends_with(": "), "{plain}");
        let log = "fuse: Unknown parameter 'foo'".to_owned();
        let logged = MountError::Refused { step: "fsconfig", errno: OsError::INVAL, log };
        assert!(logged.to_string().ends_with(": fuse: Unknown parameter 'foo'"), "{logged}");
    }
}
