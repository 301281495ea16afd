//! UNLINK and RMDIR.

use shuntfs::{Errno, NodeId, Result};

use crate::guard::{Guard, NameGoes};
use crate::name_buf::NameBuf;
use crate::shared::Shared;
use crate::who::Who;

/// UNLINK: one lower call, and one to see whose name it is.
pub(crate) fn unlink(shared: &Shared, who: Who, parent: NodeId, name: &NameBuf) -> Result<()> {
    remove(shared, who, parent, name, false)
}

/// RMDIR. A folder that somebody works in stays reachable, as below.
pub(crate) fn rmdir(shared: &Shared, who: Who, parent: NodeId, name: &NameBuf) -> Result<()> {
    remove(shared, who, parent, name, true)
}

fn remove(shared: &Shared, who: Who, parent: NodeId, name: &NameBuf, is_folder: bool) -> Result<()> {
    let folder = shared.folder(parent)?;
    let (guard, spot) = (Guard::new(shared, who), folder.spot(name));
    let held = guard.hold(&[spot])?;
    match guard.judge(NameGoes { spot, held: &held, is_folder })?.remove(shared) {
        // A server that is dead had removed it for this very request.
        Err(Errno::NOENT) if who.is_begun() => Ok(()),
        removed => removed,
    }
}
