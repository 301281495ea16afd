//! A mount whose life is not a server's.

use std::os::fd::AsFd;
use std::path::Path;

use shuntfs_sys::device::FuseDevice;
use shuntfs_sys::mount::Lifeline;
use shuntfs_sys::{Cap, caps, event};

use crate::file_type::FileType;
use crate::mount::{self, AbortError, MountError, MountPoint, MountedBy, UnmountError};
use crate::options::MountOptions;
use crate::run::SignalOutcome;
use crate::session::set_readahead;

/// A mount apart from whoever serves it: for the process that keeps its device. Dropping it unmounts; where files are open, it detaches the
/// mount from the tree. When its device is closed in all processes, the connection ends.
#[derive(Debug)]
pub struct KeptMount {
    device: FuseDevice,
    point: MountPoint,
    connection: Option<u32>,
    /// What unmounts where this process cannot any more. Goes last.
    _lifeline: Option<Lifeline>,
}

impl KeptMount {
    /// Mounts on `path`, as [`crate::Session::mount`] does. Whoever touches the mount waits until it is served. `root` is what the root
    /// of the file system is ([`crate::Filesystem::root_type`]).
    ///
    /// No thread is left when this returns.
    ///
    /// # Errors
    /// [`MountError`]; nothing is then left mounted.
    pub fn mount(path: &Path, options: &MountOptions, root: FileType) -> Result<Self, MountError> {
        mount::check_identity()?;
        let (device, point, lifeline) = mount::mount(path, options, root)?;
        Ok(Self { connection: point.connection(&device), device, point, _lifeline: lifeline })
    }

    /// A device that somebody else has mounted, or that stands in for one in a test. Whoever mounted it is to unmount it.
    #[must_use]
    pub fn of_device(device: FuseDevice) -> Self {
        let point = MountPoint::handed_over(&device);
        Self { connection: point.connection(&device), device, point, _lifeline: None }
    }

    /// The device of a mount on `path` that another process of the same user had made, which is dead: this is to unmount it now.
    #[must_use]
    pub fn left_on(device: FuseDevice, path: &Path) -> Self {
        let by = if caps::has_effective(Cap::SysAdmin) { MountedBy::Calls } else { MountedBy::Fusermount };
        let point = MountPoint { path: path.to_owned(), by };
        Self { connection: point.connection(&device), device, point, _lifeline: None }
    }

    /// Its device.
    #[must_use]
    pub fn device(&self) -> &FuseDevice {
        &self.device
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.point.path
    }

    /// The connection's number, as in `/sys/fs/fuse/connections`; `None` where it is not known.
    #[must_use]
    pub fn connection(&self) -> Option<u32> {
        self.connection
    }

    /// Has the kernel read so many bytes ahead, as [`crate::SessionOptions::readahead`] does. Once a server is ready: what is agreed on at
    /// INIT overrides what was set before. Only root may.
    pub fn set_readahead(&self, bytes: u64) {
        if let Some(connection) = self.connection {
            set_readahead(connection, bytes);
        }
    }

    /// Whether the connection has ended: unmounted, by whomever, or aborted.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        // What cannot be asked now is asked again later.
        event::has_ended(self.device.as_fd()).unwrap_or(false)
    }

    /// Unmounts. Where that is `lazy`, the mount leaves the tree at once, and open files are served on until they are closed.
    ///
    /// # Errors
    /// [`UnmountError`].
    pub fn unmount(&self, lazy: bool) -> Result<(), UnmountError> {
        if self.point.by == MountedBy::Other || self.point.is_mounted(self.connection) {
            return self.point.unmount(lazy);
        }
        Ok(())
    }

    /// Ends the connection by force: every waiting caller gets an error, and so does every later one.
    ///
    /// # Errors
    /// [`AbortError`].
    pub fn abort(&self) -> Result<(), AbortError> {
        self.point.abort(self.connection)
    }

    /// Ends it at the `asked`-th signal, each time with more force, as [`crate::Session::run`] does.
    #[must_use]
    pub fn end(&self, asked: u32) -> SignalOutcome {
        match asked {
            0 | 1 => SignalOutcome::of(false, self.unmount(false)),
            2 => SignalOutcome::of(true, self.unmount(true)),
            _ => SignalOutcome::of_force(self.abort()),
        }
    }
}

impl Drop for KeptMount {
    fn drop(&mut self) {
        let gone = match self.unmount(false) {
            Err(UnmountError::Busy { .. }) => self.unmount(true),
            gone => gone,
        };
        match gone {
            Ok(()) | Err(UnmountError::NotOurs) => {}
            Err(error) => tracing::warn!(%error, "the mount stays"),
        }
    }
}
