//! UNLINK and RMDIR.

use shuntfs::{Errno, NodeId, Result};

use crate::find;
use crate::guard::{Guard, NameGoes, Spot, note_now, removed_on, was_removed_before};
use crate::merge::Merge;
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

/// On which branches the policy has a name of a merge removed, if that cannot be told from what is left.
pub(crate) fn picked(shared: &Shared, parent: NodeId, name: &NameBuf) -> Result<u64> {
    let folder = shared.folder(parent)?;
    removed_on(shared, folder.spot(name))
}

fn remove(shared: &Shared, who: Who, parent: NodeId, name: &NameBuf, is_folder: bool) -> Result<()> {
    let folder = shared.folder(parent)?;
    let name_goes = |merge: &Merge| merge.folders.removed(&shared.table, parent, name.as_c_str());
    let (guard, spot) = (Guard::new(shared, who), folder.spot(name));
    let held = guard.hold(&[spot])?;
    let judged = guard.judge(NameGoes { spot, held: &held, is_folder });
    match judged.and_then(|judged| judged.remove(shared)) {
        // A server that is dead had removed it for this very request. Rules say the same of what they hide.
        Err(Errno::NOENT) if who.is_begun() && is_missing(shared, spot) => {
            was_removed_before(shared, spot);
            shared.merge.as_ref().filter(|_| is_folder).into_iter().for_each(name_goes);
            Ok(())
        }
        Ok(()) if who.is_begun() && shared.merge.is_some() => note_now(shared, &[spot]),
        removed => removed,
    }
}

fn is_missing(shared: &Shared, spot: Spot<'_>) -> bool {
    find::find(shared, spot).is_err_and(|error| error == Errno::NOENT)
}
