//! READLINK.

use shuntfs::{NodeId, Result};
use shuntfs_sys::readlink_of;

use crate::error::errno;
use crate::sealed;
use crate::shared::Shared;

/// READLINK: one lower call.
pub(crate) fn readlink(shared: &Shared, id: NodeId, target: &mut [u8]) -> Result<usize> {
    let node = shared.node(id)?;
    let descriptor = shared.to_access(&node)?;
    let len = readlink_of(&descriptor, target).map_err(errno)?;
    sealed::check_target(shared, id, &target[..len])?;
    Ok(len)
}
