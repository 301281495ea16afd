//! RENAME and RENAME2.

use shuntfs::{Errno, NodeId, Result};
use shuntfs_sys::{OsError, stat_at};

use crate::find;
use crate::guard::{Guard, NameMoves, Spot, is_known, moved_on, was_moved_before};
use crate::merge::{self, Merge};
use crate::mode;
use crate::name_buf::NameBuf;
use crate::node::Way;
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
    if who.is_begun() {
        merge::finish_way(shared, to_folder.node.id)?;
    }
    let guard = Guard::new(shared, who);
    let held = guard.hold(&[from, to])?;
    // It was judged before it was moved, and what must be judged is there no more. Where there is a note, steps may be left.
    let may_be_done = who.is_begun() && who.note().is_none() && flags & mode::RENAME_EXCHANGE == 0;
    if may_be_done && was_moved(shared, from, to, flags) {
        tracing::debug!("a server that is dead had moved it");
        return was_moved_before(shared, from, to);
    }
    guard.judge(NameMoves { from, to, held: &held, flags })?.rename(shared)?;
    if who.is_begun() && shared.merge.is_some() { was_moved_before(shared, from, to) } else { Ok(()) }
}

/// The numbers of the inodes that two names lead to, of which an exchange can be told.
pub(crate) fn inodes(shared: &Shared, from: Named<'_>, to: Named<'_>) -> Result<[u64; 2]> {
    let inode = |named: Named<'_>| {
        let folder = shared.folder(named.parent)?;
        find::find(shared, folder.spot(named.name)).map(|found| found.stat.ino)
    };
    Ok([inode(from)?, inode(to)?])
}

/// The branches on which a name of a merge moves, and those on which what has the new name goes, for another server.
pub(crate) fn branches(shared: &Shared, from: Named<'_>, to: Named<'_>) -> Result<[u64; 2]> {
    let (from_folder, to_folder) = (shared.folder(from.parent)?, shared.folder(to.parent)?);
    moved_on(shared, from_folder.spot(from.name), to_folder.spot(to.name))
}

/// Notes that a server that is dead had exchanged two names: for rules, and of folders of a merge, unless they are known by these names.
pub(crate) fn note_exchanged(shared: &Shared, from: Named<'_>, to: Named<'_>) -> Result<()> {
    let (from_folder, to_folder) = (shared.folder(from.parent)?, shared.folder(to.parent)?);
    // When it is known which folder of a merge is where.
    let note = || was_moved_before(shared, from_folder.spot(from.name), to_folder.spot(to.name));
    let Some(merge) = &shared.merge else { return note() };
    merge.was_moved(shared, from_folder.spot(from.name), to_folder.spot(to.name))?;
    let way = |named: Named<'_>| -> Way { (named.parent, named.name.as_c_str().into()) };
    for (one, other) in [(from, to), (to, from)] {
        let known = merge.folders.peek(&shared.table, one.parent, one.name.as_c_str());
        let Some(ino) = known.and_then(|node| node.parts().map(|parts| parts.ino)) else { continue };
        let folder = shared.folder(other.parent)?;
        if find::find(shared, folder.spot(other.name))?.lead(shared).ino == ino {
            merge.folder_moved(shared, way(from), way(to), true);
            merge.see_folders_again(shared);
            break;
        }
    }
    note()
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
    if let Some(merge) = &shared.merge {
        return was_moved_in(shared, merge, from, to).unwrap_or(false);
    }
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

/// The same in a merge, which is told of it if it is not known yet.
fn was_moved_in(shared: &Shared, merge: &Merge, from: Spot<'_>, to: Spot<'_>) -> Result<bool> {
    let way = |spot: Spot<'_>| -> Way { (spot.folder.id, spot.c_name().into()) };
    let there = merge::present(shared, to)?;
    if !merge::present(shared, from)?.is_empty() || there.is_empty() {
        return Ok(false);
    }
    if there.iter().all(|here| !here.stat.is_dir()) {
        if !is_known(shared, to) {
            return Ok(false);
        }
        merge.was_moved(shared, from, to)?;
        merge.folder_moved(shared, way(from), way(to), false);
        return Ok(true);
    }
    if merge.folders.has(&way(from)) {
        merge.folder_moved(shared, way(from), way(to), false);
        merge.see_folders_again(shared);
        return Ok(true);
    }
    Ok(is_known(shared, to))
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
