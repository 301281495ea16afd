//! From a path to a mounted /dev/fuse, and back.

use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

use shuntfs_sys::device::FuseDevice;
use shuntfs_sys::mount::{
    Lifeline, MountRequest, abort_by_umount, abort_connection, is_connection, mount_by_fusermount,
    mount_for_life, mount_fuse, mounts, unmount, unmount_by_fusermount,
};
use shuntfs_sys::{Cap, OsError, caps, open, spawn, stat};
use thiserror::Error;

use crate::file_type::FileType;
use crate::init::InitError;
use crate::options::MountOptions;

const S_IFMT: u32 = 0o170_000;

/// Why a mount cannot be.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MountError {
    /// There is no /dev/fuse.
    #[error("/dev/fuse is missing: load the fuse module (modprobe fuse), or give it to the container")]
    NoDevice,
    /// /dev/fuse may not be opened.
    #[error("/dev/fuse cannot be opened ({0}): its mode or a container's policy forbids it")]
    DeviceDenied(OsError),
    /// The mount point is not available.
    #[error("the mount point {} cannot be used: {error}", path.display())]
    MountPoint {
        /// As it was given.
        path: PathBuf,
        /// Why.
        #[source]
        error: std::io::Error,
    },
    /// The mount point is of another type than the root.
    #[error("{} is {point}, and the root of the file system is {root}", path.display())]
    OtherType {
        /// The mount point.
        path: PathBuf,
        /// What it is.
        point: FileType,
        /// What the root is.
        root: FileType,
    },
    /// The mount itself was refused.
    #[error("mounting on {} failed: {error}", path.display())]
    Refused {
        /// The mount point.
        path: PathBuf,
        /// Why.
        #[source]
        error: shuntfs_sys::MountError,
    },
    /// `/dev/fd/N` is no descriptor of ours.
    #[error("/dev/fd/{number} is not an open descriptor ({error})")]
    NoSuchDescriptor {
        /// N.
        number: i32,
        /// Why.
        #[source]
        error: OsError,
    },
    /// The kernel's INIT did not come, or was not one.
    #[error("the kernel did not open the conversation: {0}")]
    NoInit(&'static str),
    /// INIT could not be read or answered.
    #[error("the conversation with the kernel could not be opened ({0})")]
    Init(#[source] OsError),
    /// The file system, or this library, will not have this kernel.
    #[error(transparent)]
    Disagreed(#[from] InitError),
    /// A thread cannot be kept from acting with more rights than its callers have.
    #[error(
        "the server cannot act as its callers ({0}): a sandbox forbids that its threads have a file mode mask of their own \
         (unshare(2) with CLONE_FS) or give up CAP_FSETID and CAP_SYS_RESOURCE (capset(2))"
    )]
    Identity(#[source] OsError),
    /// The transport that was asked for is not available.
    #[error("the transport {kind} is unavailable: {why}")]
    Transport {
        /// Which.
        kind: shuntfs_transport::TransportKind,
        /// Why.
        why: String,
    },
    /// The queues did not start.
    #[error(transparent)]
    Start(#[from] shuntfs_transport::StartError),
}

/// Why an unmount did not happen.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum UnmountError {
    /// Files are open on it, or a process works in it.
    #[error("{} is busy: files are open on it, or a process works in it", path.display())]
    Busy {
        /// The mount point.
        path: PathBuf,
    },
    /// It was mounted by somebody else, who is to unmount it.
    #[error("the device was handed over mounted; whoever mounted it is to unmount it")]
    NotOurs,
    /// The kernel or fusermount3 refused.
    #[error("unmounting {} failed: {error}", path.display())]
    Refused {
        /// The mount point.
        path: PathBuf,
        /// Why.
        #[source]
        error: shuntfs_sys::MountError,
    },
}

/// Why a connection was not aborted.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AbortError {
    /// The kernel does not tell which connection it is.
    #[error("the connection's number is not known")]
    Unnumbered,
    /// There is no way to the connection from here.
    #[error(
        "/sys/fs/fuse/connections has no entry {0}, and only root can do without: mount -t fusectl none /sys/fs/fuse/connections"
    )]
    NoControl(u32),
    /// The kernel refused.
    #[error("the connection could not be aborted ({0})")]
    Refused(#[source] OsError),
}

/// Where and how a session was mounted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct MountPoint {
    pub(crate) path: PathBuf,
    pub(crate) by: MountedBy,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MountedBy {
    /// By system calls of ours.
    Calls,
    /// By fusermount3.
    Fusermount,
    /// By whoever started us, who handed the device over.
    Other,
}

/// Tries on a thread of its own what every queue's thread needs, because without it nobody must be served, and before
/// there is a mount that somebody could meet.
pub(crate) fn check_identity() -> Result<(), MountError> {
    let tried = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("shunt-identity".into());
        let thread = thread.spawn_scoped(scope, shuntfs_sys::prepare_thread).ok()?;
        thread.join().ok()
    });
    match tried {
        Some(outcome) => outcome.map(drop).map_err(MountError::Identity),
        None => Err(MountError::Identity(OsError::AGAIN)),
    }
}

/// Mounts on `path`; `/dev/fd/N` stands for a device that is mounted already, as mount.fuse3 hands one over.
pub(crate) fn mount(
    path: &Path,
    options: &MountOptions,
    root: FileType,
) -> Result<(FuseDevice, MountPoint, Option<Lifeline>), MountError> {
    if let Some(number) = handed_over(path) {
        let device = spawn::inherited_fd(number).and_then(FuseDevice::from_fd);
        let device = device.map_err(|error| MountError::NoSuchDescriptor { number, error })?;
        return Ok((device, MountPoint { path: path.to_owned(), by: MountedBy::Other }, None));
    }
    // Resolved once, so that an unmount means the same place whatever becomes of links on the way.
    let unusable = |error| MountError::MountPoint { path: path.to_owned(), error };
    let path = std::fs::canonicalize(path).map_err(unusable)?;
    // What cannot be looked at (a mount whose server has died) can be mounted over anyway.
    let point = std::fs::symlink_metadata(&path).map(|found| FileType::from(found.file_type()));
    if let Ok(point) = point
        && point != root
    {
        return Err(MountError::OtherType { path, point, root });
    }
    if caps::has_effective(Cap::SysAdmin) && !options.auto_unmount {
        by_calls(path, options).map(|(device, point)| (device, point, None))
    } else {
        by_fusermount(path, options)
    }
}

/// The number in `/dev/fd/N`.
fn handed_over(path: &Path) -> Option<i32> {
    path.to_str()?.strip_prefix("/dev/fd/")?.parse().ok().filter(|number| *number >= 0)
}

fn by_calls(path: PathBuf, options: &MountOptions) -> Result<(FuseDevice, MountPoint), MountError> {
    let device = FuseDevice::open().map_err(|error| match error {
        OsError::NOENT | OsError::NODEV | OsError::NXIO => MountError::NoDevice,
        error => MountError::DeviceDenied(error),
    })?;
    let at = |error: OsError| MountError::MountPoint { path: path.clone(), error: error.into() };
    let target = open::open_target(&path).map_err(at)?;
    let rootmode = stat::stat_of(&target).map_err(at)?.mode & S_IFMT;
    let request = MountRequest {
        source: options.source.as_ref(),
        subtype: Some(options.subtype.as_str()).filter(|subtype| !subtype.is_empty()),
        target: target.as_fd(),
        device: &device,
        rootmode,
        uid: spawn::effective_uid(),
        gid: spawn::effective_gid(),
        options: shuntfs_sys::MountOptions {
            read_only: options.read_only,
            nosuid: options.nosuid,
            nodev: options.nodev,
            noexec: options.noexec,
            noatime: options.noatime,
            allow_other: options.allow_other,
            default_permissions: options.default_permissions,
            max_read: options.max_read,
            ..shuntfs_sys::MountOptions::default()
        },
    };
    mount_fuse(&request).map_err(|error| MountError::Refused { path: path.clone(), error })?;
    Ok((device, MountPoint { path, by: MountedBy::Calls }))
}

fn by_fusermount(
    path: PathBuf,
    options: &MountOptions,
) -> Result<(FuseDevice, MountPoint, Option<Lifeline>), MountError> {
    let text = fusermount_options(options);
    let mounted = if options.auto_unmount {
        mount_for_life(&path, &text).map(|(device, lifeline)| (device, Some(lifeline)))
    } else {
        mount_by_fusermount(&path, &text).map(|device| (device, None))
    };
    match mounted {
        Ok((device, lifeline)) => Ok((device, MountPoint { path, by: MountedBy::Fusermount }, lifeline)),
        Err(error) => Err(MountError::Refused { path, error }),
    }
}

/// The options as `fusermount3 -o` takes them. It splits at commas and takes a backslash as an escape.
fn fusermount_options(options: &MountOptions) -> OsString {
    let mut text = String::new();
    let mut add = |option: &str| {
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(option);
    };
    let escaped = |value: &str| value.replace('\\', "\\\\").replace(',', "\\,");
    add(if options.read_only { "ro" } else { "rw" });
    add(&format!("fsname={}", escaped(&options.source)));
    if !options.subtype.is_empty() {
        add(&format!("subtype={}", escaped(&options.subtype)));
    }
    for (option, on) in [
        ("nosuid", options.nosuid),
        ("nodev", options.nodev),
        ("noexec", options.noexec),
        ("noatime", options.noatime),
        ("allow_other", options.allow_other),
        ("default_permissions", options.default_permissions),
    ] {
        if on {
            add(option);
        }
    }
    if let Some(max_read) = options.max_read {
        add(&format!("max_read={max_read}"));
    }
    text.into()
}

impl MountPoint {
    /// Of a device that came mounted.
    pub(crate) fn handed_over(device: &FuseDevice) -> Self {
        let path = format!("/dev/fd/{}", device.as_raw_fd());
        Self { path: path.into(), by: MountedBy::Other }
    }

    /// The number of the connection that is mounted here. It is its mount's minor device number, which the mount table shows without
    /// asking the file system.
    pub(crate) fn connection(&self, device: &FuseDevice) -> Option<u32> {
        if let Ok(Some(id)) = device.connection_id() {
            return Some(id);
        }
        let mounts = mounts().ok()?;
        mounts.iter().rev().find(|mount| mount.mount_point == self.path).map(|mount| mount.dev.1)
    }

    /// Whether what is mounted there is still ours: somebody else may have unmounted it, and mounted another.
    pub(crate) fn is_mounted(&self, connection: Option<u32>) -> bool {
        let (Some(connection), Ok(mounts)) = (connection, mounts()) else { return true };
        let at_path = mounts.iter().rev().find(|mount| mount.mount_point == self.path);
        at_path.is_some_and(|mount| mount.dev.1 == connection)
    }

    /// Ends the connection by force. That it has ended already is as good.
    pub(crate) fn abort(&self, connection: Option<u32>) -> Result<(), AbortError> {
        let number = connection.ok_or(AbortError::Unnumbered)?;
        let Err(error) = abort_connection(number) else { return Ok(()) };
        if is_connection(number) == Some(false) {
            return Ok(());
        }
        // A sandbox may forbid the control file system and allow umount(2).
        if self.is_mounted(connection) && abort_by_umount(&self.path).is_ok() {
            return Ok(());
        }
        match error {
            OsError::NOENT => Err(AbortError::NoControl(number)),
            error => Err(AbortError::Refused(error)),
        }
    }

    /// Unmounts; `lazy` takes it out of sight at once and lets open files live on. That it is gone already is
    /// as good.
    pub(crate) fn unmount(&self, lazy: bool) -> Result<(), UnmountError> {
        let refused = |error| UnmountError::Refused { path: self.path.clone(), error };
        match self.by {
            MountedBy::Other => Err(UnmountError::NotOurs),
            MountedBy::Calls => match unmount(&self.path, lazy) {
                Ok(()) | Err(OsError::INVAL | OsError::NOENT) => Ok(()),
                Err(OsError::BUSY) => Err(UnmountError::Busy { path: self.path.clone() }),
                Err(errno) => {
                    let log = String::new();
                    Err(refused(shuntfs_sys::MountError::Refused { step: "umount", errno, log }))
                }
            },
            MountedBy::Fusermount => match unmount_by_fusermount(&self.path, lazy) {
                Ok(()) => Ok(()),
                Err(shuntfs_sys::MountError::Fusermount { message }) if message.contains("busy") => {
                    Err(UnmountError::Busy { path: self.path.clone() })
                }
                Err(error) => Err(refused(error)),
            },
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn handed_over_devices_are_recognised() {
        assert_eq!(handed_over(Path::new("/dev/fd/7")), Some(7));
        for other in ["/dev/fd", "/dev/fd/", "/dev/fd/-1", "/dev/fd/x", "/mnt/dev/fd/7", "dev/fd/7"] {
            assert_eq!(handed_over(Path::new(other)), None, "{other}");
        }
    }

    #[test]
    fn options_for_fusermount_are_escaped() {
        let options = MountOptions {
            source: "a,b\\c".into(),
            allow_other: true,
            max_read: Some(8192),
            nodev: false,
            ..MountOptions::default()
        };
        let expected =
            "rw,fsname=a\\,b\\\\c,subtype=shunt,nosuid,allow_other,default_permissions,max_read=8192";
        assert_eq!(fusermount_options(&options), OsString::from(expected));
    }

    #[test]
    fn a_missing_mount_point_is_named() {
        let error = mount(Path::new("/nonexistent/there"), &MountOptions::default(), FileType::Directory)
            .unwrap_err();
        assert!(error.to_string().contains("/nonexistent/there"), "{error}");
    }
}
