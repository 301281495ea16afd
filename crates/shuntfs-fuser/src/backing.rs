//! Backing files: lower files whose bytes the kernel moves by itself.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};

use shuntfs_sys::FuseDevice;

/// A registered backing file. Dropping it takes the registration back; open files that use it go on.
///
/// All opens of one node at a time must use the same one.
#[derive(Debug)]
pub struct BackingId {
    device: Weak<FuseDevice>,
    pub(crate) backing_id: u32,
}

impl BackingId {
    /// Registers `fd` with the connection of `fuse_dev` and returns the kernel's number of it, which the caller has to
    /// take care of: [`crate::ReplyOpen::wrap_backing`] makes a [`BackingId`] of it.
    ///
    /// # Errors
    /// EPERM without CAP_SYS_ADMIN or where passthrough was not agreed on, EINVAL for what is no regular file, ELOOP
    /// where file systems are stacked too deep.
    pub fn create_raw(fuse_dev: impl AsFd, fd: impl AsFd) -> io::Result<u32> {
        let device = FuseDevice::from_fd(fuse_dev.as_fd().try_clone_to_owned()?)?;
        Ok(device.backing_open(fd)?)
    }

    /// Gives the kernel's number, and its care, to the caller.
    pub fn into_raw(self) -> u32 {
        let mut this = ManuallyDrop::new(self);
        this.device = Weak::new();
        this.backing_id
    }

    pub(crate) fn open(device: &Arc<FuseDevice>, fd: impl AsFd) -> io::Result<Self> {
        Ok(Self::wrap(device, device.backing_open(fd)?))
    }

    pub(crate) fn wrap(device: &Arc<FuseDevice>, backing_id: u32) -> Self {
        Self { device: Arc::downgrade(device), backing_id }
    }
}

impl Drop for BackingId {
    fn drop(&mut self) {
        if let Some(device) = self.device.upgrade()
            && let Err(error) = device.backing_close(self.backing_id)
        {
            tracing::error!(id = self.backing_id, %error, "a backing id could not be closed");
        }
    }
}
