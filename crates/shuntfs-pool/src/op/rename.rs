//! RENAME and RENAME2.

use shuntfs::{Errno, NodeId, Result};
use shuntfs_sys::{OsError, stat_at};

use crate::error::errno;
use crate::guard::{Guard, NameMoves, Spot, is_known, was_moved_before};
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
    // It was judged before it was moved, and what is to be judged is there no more.
    if who.is_begun() && flags & mode::RENAME_EXCHANGE == 0 && was_moved(shared, from, to, flags) {
        tracing::debug!("a server that is dead had moved it");
        return was_moved_before(shared, from, to);
    }
    guard.judge(NameMoves { from, to, held: &held, flags })?.rename(shared)
}

/// Notes that a server that is dead had exchanged two names.
pub(crate) fn note_exchanged(shared: &Shared, from: Named<'_>, to: Named<'_>) -> Result<()> {
    let (from_folder, to_folder) = (shared.folder(from.parent)?, shared.folder(to.parent)?);
    was_moved_before(shared, from_folder.spot(from.name), to_folder.spot(to.name))
}

/// The numbers of the inodes that two names lead to, of which an exchange can be told.
pub(crate) fn inodes(shared: &Shared, from: Named<'_>, to: Named<'_>) -> Result<[u64; 2]> {
    let inode = |named: Named<'_>| {
        let folder = shared.folder(named.parent)?;
        let spot = folder.spot(named.name);
        stat_at(spot.dir, spot.c_name()).map(|stat| stat.ino).map_err(errno)
    };
    Ok([inode(from)?, inode(to)?])
}

/// Whether two names were exchanged since they led to `before`, and lead to `now`.
///
/// # Errors
/// EIO where they lead to something else: somebody has changed them below.
pub(crate) fn was_exchanged(before: [u64; 2], now: [u64; 2]) -> Result<bool> {
    let [from, to] = before;
    if before == now {
        return Ok(false);
    }
    if [to, from] == now {
        return Ok(true);
    }
    tracing::error!("two names were to be exchanged when the server died, and lead to something else now");
    Err(Errno::IO)
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

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn an_exchange_is_told_by_what_the_names_lead_to() {
        assert_eq!(was_exchanged([3, 4], [3, 4]), Ok(false));
        assert_eq!(was_exchanged([3, 4], [4, 3]), Ok(true));
        assert_eq!(was_exchanged([3, 3], [3, 3]), Ok(false), "it changes nothing");
        for now in [[3, 5], [5, 4], [4, 4], [5, 6]] {
            assert_eq!(was_exchanged([3, 4], now), Err(Errno::IO));
        }
    }
}
