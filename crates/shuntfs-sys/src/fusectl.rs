//! The control file system of FUSE: the way to end a connection whose server does not answer.
//!
//! Where it is mounted, the owner of a connection may use its files. Where it is not, as in containers and small virtual
//! machines, root takes a mount of it that is attached nowhere (fsopen(2), fsmount(2), Linux 5.2): nothing of the
//! machine changes, and a read-only /sys is no obstacle.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use crate::{OsError, Result};

const MOUNTED_AT: &str = "/sys/fs/fuse/connections";

/// Aborts a connection by its number: every waiting caller gets an error, and the server's device too.
///
/// # Errors
/// ENOENT where there is no such connection, or none can be seen from here because the control file system is not
/// mounted and may not be; EACCES for a foreign one.
pub fn abort_connection(id: u32) -> Result<()> {
    let mounted = openat(rustix::fs::CWD, MOUNTED_AT, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let first = mounted.and_then(|folder| abort_in(&folder, id));
    first.or_else(|error| match detached() {
        Ok(folder) => abort_in(&folder, id),
        Err(_not_permitted) => Err(error),
    })
}

/// Whether a connection with this number is alive; `None` where that cannot be seen from here.
#[must_use]
pub fn is_connection(id: u32) -> Option<bool> {
    let folder = detached().ok()?;
    match openat(&folder, id.to_string(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        Ok(_there) => Some(true),
        Err(OsError::NOENT) => Some(false),
        Err(_) => None,
    }
}

fn abort_in(folder: &impl AsFd, id: u32) -> Result<()> {
    let file = openat(
        folder,
        format!("{id}/abort"),
        OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    rustix::io::write(&file, b"1").map(drop)
}

/// A mount of the control file system that only this descriptor holds.
fn detached() -> Result<OwnedFd> {
    let context = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
}
