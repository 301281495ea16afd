//! Mounting in one call.

use std::io;
use std::path::Path;

use crate::config::Config;
use crate::filesystem::Filesystem;
use crate::session::{BackgroundSession, Session};

/// Mounts and serves until the file system is unmounted.
///
/// # Errors
/// As [`Session::new`] and [`Session::run`].
pub fn mount<FS: Filesystem, P: AsRef<Path>>(
    filesystem: FS,
    mountpoint: P,
    options: &Config,
) -> io::Result<()> {
    Session::new(filesystem, mountpoint, options)?.run()
}

/// Mounts and serves in a thread of its own; what it returns unmounts when it is dropped.
///
/// # Errors
/// As [`Session::new`].
pub fn spawn_mount<FS: Filesystem, P: AsRef<Path>>(
    filesystem: FS,
    mountpoint: P,
    options: &Config,
) -> io::Result<BackgroundSession> {
    Session::new(filesystem, mountpoint, options)?.spawn()
}

/// [`mount`], as fuser 0.17 calls it.
///
/// # Errors
/// As [`mount`].
pub fn mount2<FS: Filesystem, P: AsRef<Path>>(
    filesystem: FS,
    mountpoint: P,
    options: &Config,
) -> io::Result<()> {
    mount(filesystem, mountpoint, options)
}

/// [`spawn_mount`], as fuser 0.17 calls it.
///
/// # Errors
/// As [`spawn_mount`].
pub fn spawn_mount2<FS: Filesystem, P: AsRef<Path>>(
    filesystem: FS,
    mountpoint: P,
    options: &Config,
) -> io::Result<BackgroundSession> {
    spawn_mount(filesystem, mountpoint, options)
}
