//! RENAME and RENAME2.

use shuntfs::{Errno, NodeId, Result};
use shuntfs_sys::{OsError, stat_at};

use crate::guard::{Guard, NameMoves, Spot, is_known};
use crate::mode;
use crate::name_buf::NameBuf;
use crate::shared::Shared;
use crate::who::Who;

/// A name and its folder, as a request has them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named<'n> {
    pub(crate) parent: NodeId,
    pub(crate) name: &'n NameBuf,
}

/// RENAME and RENAME2: one lower call, and two to see whose names they are.
pub(crate) fn rename(shared: &Shared, who: Who, from: Named<'_>, to: Named<'_>, flags: u32) -> Result<()> {
    let (from_folder, to_folder) = (shared.folder(from.parent)?, shared.folder(to.parent)?);
    let (from, to) = (from_folder.spot(from.name), to_folder.spot(to.name));
    let guard = Guard::new(shared, who);
    let held = guard.hold(&[from, to])?;
    if who.is_begun() && flags & mode::RENAME_EXCHANGE != 0 {
        // Once more would undo it, and nobody knows which it is.
        tracing::error!(
            "two names were to be exchanged when the server died, and it is not known whether they were"
        );
        return Err(Errno::IO);
    }
    match guard.judge(NameMoves { from, to, held: &held, flags })?.rename(shared) {
        Err(error) if who.is_begun() && was_moved(shared, from, to, flags) => {
            tracing::debug!(%error, "a server that is dead had moved it");
            Ok(())
        }
        renamed => renamed,
    }
}

/// Whether a name is where it was to go, and no longer where it was; or a whiteout is there.
fn was_moved(shared: &Shared, from: Spot<'_>, to: Spot<'_>, flags: u32) -> bool {
    let has_gone = match stat_at(from.dir, from.c_name()) {
        Err(error) => error == OsError::NOENT,
        Ok(stat) => {
            let is_whiteout =
                stat.mode & mode::TYPE == mode::CHARACTER && (stat.rdev.major, stat.rdev.minor) == (0, 0);
            flags & mode::RENAME_WHITEOUT != 0 && is_whiteout
        }
    };
    has_gone && is_known(shared, to)
}
