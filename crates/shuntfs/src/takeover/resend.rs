//! Having requests sent again.

use shuntfs_sys::device::FuseDevice;
use shuntfs_wire::Notification;

use crate::notify::{NotifyError, tell};

/// Has the kernel send every request again that was read, on whichever descriptor of the connection, and not answered. They come before all
/// others, marked ([`crate::Cx::is_resent`]), and only an answer to the new number counts. To do it twice is harmless. Requests on io_uring
/// stay where they are.
///
/// The server that had read them must be dead, all of its threads: otherwise two serve them. To do it at once, before there is a successor,
/// lets callers be killed that had become unkillable by being served.
///
/// # Errors
/// [`NotifyError::Unsupported`] before Linux 6.9 (the kernel does not offer [`shuntfs_wire::InitFlags::HAS_RESEND`]);
/// [`NotifyError::Ended`] where the connection is gone, which the kernel does not always tell.
pub fn resend(device: &FuseDevice) -> Result<(), NotifyError> {
    tell(device, &Notification::Resend)
}
