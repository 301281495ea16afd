//! UNLINK and RMDIR.

use shuntfs::{Errno, NodeId, Result};
use shuntfs_sys::{OsError, stat_at};

use crate::guard::{Guard, NameGoes, Spot, was_removed_before};
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
    let judged = guard.judge(NameGoes { spot, held: &held, is_folder });
    match judged.and_then(|judged| judged.remove(shared)) {
        // A server that is dead had removed it for this very request. Rules say the same of what they hide.
        Err(Errno::NOENT) if who.is_begun() && is_missing(spot) => {
            was_removed_before(shared, spot);
            Ok(())
        }
        removed => removed,
    }
}

fn is_missing(spot: Spot<'_>) -> bool {
    stat_at(spot.dir, spot.c_name()).is_err_and(|error| error == OsError::NOENT)
}
