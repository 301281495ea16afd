//! `shunt umount`.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use shuntfs_sys::mount::MountInfo;
use shuntfs_sys::{Cap, MountError, OsError, caps, mount as sys};
use thiserror::Error;

use crate::busy;
use crate::cli::UmountArgs;
use crate::control::{self, Client};
use crate::failure::Failure;
use crate::mounts::{self, Mounts, shown};

/// How long the end of the server is waited for, once its mount is gone.
const PATIENCE: Duration = Duration::from_secs(5);

/// Takes a mount away.
///
/// # Errors
/// Where there is no such mount, where it is busy, and without permission.
pub(crate) fn run(args: &UmountArgs) -> Result<(), Failure> {
    let list = Mounts::read()?;
    let mount = find(&list, &args.mountpoint)?;
    let socket = mounts::connection(mount).map(|connection| {
        control::folder_of(mounts::owner(mount).unwrap_or_default()).join(connection.to_string())
    });
    // Asked before, because a server that nobody can name afterwards cannot be waited for.
    let server = socket.filter(|_| !args.lazy).filter(|socket| Client::connect(socket).is_ok());
    if !(args.force && abort(mount)?) {
        take_away(&list, mount, args)?;
    }
    if let Some(socket) = server {
        wait_for_end(&socket);
    }
    Ok(())
}

/// The mount of shunt at a path.
pub(crate) fn find<'a>(list: &'a Mounts, path: &Path) -> Result<&'a MountInfo, Failure> {
    let located = list.locate(path).map_err(|error| {
        Failure::new(format!("cannot find {}: {error}", shown(path))).hint("all mounts: shunt list")
    })?;
    let Some(mount) = list.at(&located) else {
        let failure = Failure::new(format!("{} is not a mount point", shown(&located)));
        return Err(match list.covering(&located).filter(|mount| mounts::is_shunt(mount)) {
            Some(outer) => failure.hint(format!("it is inside the mount at {}", shown(&outer.mount_point))),
            None => failure.hint("all mounts: shunt list"),
        });
    };
    let ours = mounts::is_shunt(mount)
        || mounts::connection(mount).is_some_and(|connection| {
            Client::of_connection(connection, &Vec::from_iter(mounts::owner(mount))).is_ok()
        });
    if ours {
        return Ok(mount);
    }
    let other = format!("{} is a mount of type {}, not of shunt", shown(&located), shown(&mount.fs_type));
    Err(Failure::new(other).hint("all mounts: shunt list"))
}

fn take_away(list: &Mounts, mount: &MountInfo, args: &UmountArgs) -> Result<(), Failure> {
    // A forced end leaves nothing to save by waiting for the last close.
    match detach(&mount.mount_point, args.lazy || args.force) {
        Ok(()) => Ok(()),
        Err(DetachError::Busy) => {
            let by = busy::by_whom(list, mount);
            Err(Failure::new(format!("{} is busy: {by}", shown(&mount.mount_point)))
                .hint("end these, or detach it now and serve them to their end: shunt umount --lazy"))
        }
        Err(DetachError::Other(error)) => {
            let failure = Failure::new(format!("cannot unmount {}: {error}", shown(&mount.mount_point)));
            Err(match error.kind() {
                io::ErrorKind::PermissionDenied => failure.hint("only root and who mounted it may"),
                _ => failure,
            })
        }
    }
}

/// Why a mount is still there.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum DetachError {
    /// Someone uses it.
    #[error("it is busy")]
    Busy,
    /// Another reason.
    #[error("{0}")]
    Other(io::Error),
}

/// Unmounts, as root or through fusermount3.
pub(crate) fn detach(mount_point: &Path, lazy: bool) -> Result<(), DetachError> {
    if caps::has_effective(Cap::SysAdmin) {
        return sys::unmount(mount_point, lazy).map_err(|error| match error {
            OsError::BUSY => DetachError::Busy,
            error => DetachError::Other(error.into()),
        });
    }
    sys::unmount_by_fusermount(mount_point, lazy).map_err(|error| match error {
        // The program says why in words only.
        MountError::Fusermount { message } if message.contains("busy") => DetachError::Busy,
        error => DetachError::Other(io::Error::other(error)),
    })
}

/// Ends the connection, so that whoever waits for the server gets an error; `true` where the mount went, too.
/// The owner of a mount may do so through fusectl; root needs no fusectl.
fn abort(mount: &MountInfo) -> Result<bool, Failure> {
    if caps::has_effective(Cap::SysAdmin) {
        let _detached_below = sys::abort_by_umount(&mount.mount_point);
        return Ok(!Mounts::read()?.iter().any(|other| other.id == mount.id));
    }
    if let Some(connection) = mounts::connection(mount).and_then(|connection| u32::try_from(connection).ok())
    {
        // Without fusectl mounted, detaching alone must do.
        let _no_fusectl = sys::abort_connection(connection);
    }
    Ok(false)
}

/// Waits until the server has removed its socket, the last thing that it does.
fn wait_for_end(socket: &Path) {
    let end = Instant::now() + PATIENCE;
    while socket.exists() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
    }
}
