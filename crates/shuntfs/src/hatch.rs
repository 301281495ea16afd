//! An answer from another thread than the one that serves.

use std::io::IoSlice;
use std::sync::Arc;

use shuntfs_sys::FuseDevice;
use shuntfs_wire::{Errno, OutHeader, Unique};
use zerocopy::IntoBytes as _;

/// A way to answer a request with an error while its handler blocks the thread that has it: the caller, and whoever waits for a lock that the
/// kernel holds for it, then goes on. What the handler answers at last is not taken by the kernel, so a lookup that it counted must be taken
/// back by who used the hatch.
#[derive(Debug)]
pub struct Hatch {
    device: Arc<FuseDevice>,
    unique: Unique,
}

impl Hatch {
    pub(crate) fn new(device: &Arc<FuseDevice>, unique: Unique) -> Self {
        Self { device: Arc::clone(device), unique }
    }

    /// Answers the request with an error. To be called once at most, and not when the handler has returned.
    pub fn answer(self, errno: Errno) {
        let len = u32::try_from(size_of::<OutHeader>()).expect("a header is short");
        let header = OutHeader { len, error: -i32::from(errno.get()), unique: self.unique.0 };
        if let Err(error) = self.device.write(&[IoSlice::new(header.as_bytes())]) {
            tracing::debug!(%error, "a request is gone that was to be answered from elsewhere");
        }
    }
}
