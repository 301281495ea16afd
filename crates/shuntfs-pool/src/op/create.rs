//! CREATE and TMPFILE: making a file and opening it, as the caller.

use shuntfs::{Entry, Errno, LookupCount, LowerFile, NodeId, OpenFlags, Opened, Result};
use shuntfs_sys::caps::{Cap, has_effective};
use shuntfs_sys::{reopen, stat_at, stat_of};

use super::{open, room};
use crate::error::errno;
use crate::file::{self, PoolFile};
use crate::find;
use crate::guard::{Arrival, Coming, Guard, Made, NameComes, NamelessComes, Spot, is_untouched};
use crate::merge::{self, New};
use crate::mode;
use crate::name_buf::NameBuf;
use crate::node::Change;
use crate::shared::{Folder, Shared};
use crate::who::Who;

fn is_there(dir: &LowerFile, name: &NameBuf) -> bool {
    stat_at(dir, name.as_c_str()).is_ok()
}

/// How often a name may vanish just when it was found to be there, before the kernel is to look again.
const RACES_MAX: usize = 16;

/// CREATE.
pub(crate) fn create(
    shared: &Shared,
    who: Who,
    parent: NodeId,
    name: &NameBuf,
    made: Made,
    flags: OpenFlags,
) -> Result<(Entry, Opened<PoolFile>)> {
    let new = New::of(&who, name.as_c_str().to_bytes(), Coming::File { made, flags });
    if who.is_begun() {
        merge::finish_way(shared, parent)?;
    }
    // The kernel looks again once when it hears ESTALE, and then the caller gets it.
    for _ in 0..RACES_MAX {
        if shared.is_ruled_merge() {
            match ask_before(shared, who, shared.folder(parent)?.spot(name), made, flags)? {
                Before::Nothing => {}
                Before::There(opened) => return Ok(*opened),
                Before::Gone => continue,
            }
        }
        if who.is_begun() && shared.merge.is_some() {
            // A server that is dead may have made it on another branch than the policy picks now.
            let folder = shared.folder(parent)?;
            let spot = folder.spot(name);
            if find::find(shared, spot).is_ok()
                && let Some(opened) = open_existing(shared, &Guard::new(shared, who), spot, flags)?
            {
                return Ok(opened);
            }
        }
        let folder = merge::for_new(shared, parent, &new)?;
        match create_once(shared, who, folder.spot(name), made, flags) {
            Err(Errno::ROFS) if shared.has_refused(&folder) => {}
            Err(Errno::NOENT | Errno::STALE) if shared.leaves_any(&folder.node) => {}
            outcome => {
                if let Some(outcome) = outcome? {
                    return Ok(outcome);
                }
            }
        }
    }
    Err(Errno::STALE)
}

/// What has a name, of a merge under rules, before a file is made.
enum Before {
    Nothing,
    /// A file, which was opened.
    There(Box<(Entry, Opened<PoolFile>)>),
    /// Something that has gone meanwhile.
    Gone,
}

/// Asks in a merge under rules whether a file may be made, before a path is made for it, and opens the one that is there on any branch: a rule
/// may hide it, so that the kernel believes that there is none.
fn ask_before(shared: &Shared, who: Who, spot: Spot<'_>, made: Made, flags: OpenFlags) -> Result<Before> {
    let guard = Guard::new(shared, who);
    let Err(error) = guard.judge_before(spot, Coming::File { made, flags }) else {
        return Ok(Before::Nothing);
    };
    // Under O_EXCL, too, where a server that is dead may have made it for this very request.
    let may_be_its = who.is_begun() && error == Errno::EXIST;
    if flags.0 & mode::O_EXCL != 0 && !may_be_its || find::find(shared, spot).is_err() {
        return Err(error);
    }
    let opened = open_existing(shared, &guard, spot, flags)?;
    Ok(opened.map_or(Before::Gone, |opened| Before::There(Box::new(opened))))
}

/// Makes the file, or opens the one that is there; `None` where that one has gone meanwhile.
fn create_once(
    shared: &Shared,
    who: Who,
    spot: Spot<'_>,
    made: Made,
    flags: OpenFlags,
) -> Result<Option<(Entry, Opened<PoolFile>)>> {
    let guard = Guard::new(shared, who);
    let judged = match guard.judge(NameComes { spot, what: Coming::File { made, flags } }) {
        Ok(judged) => judged,
        // Where it is there after all, what is said of it counts.
        Err(_) if flags.0 & mode::O_EXCL == 0 && is_there(spot.dir, spot.name) => {
            return open_existing(shared, &guard, spot, flags);
        }
        Err(error) => return Err(error),
    };
    // Else read-only, so that the descriptor can be registered and holds no right to write.
    let access =
        if opens_only_now(made, flags) { mode::O_RDWR | flags.0 & mode::KEPT_FLAGS } else { mode::O_RDONLY };
    let (fd, terms, untold) = match judged.create(shared, access) {
        Ok(created) => created,
        // Under O_EXCL, too, where a server that is dead had made it for this very request.
        Err(Errno::EXIST) if flags.0 & mode::O_EXCL == 0 || who.is_begun() => {
            return open_existing(shared, &guard, spot, flags);
        }
        Err(error) => return Err(error),
    };
    let (fd, mover) = if access == mode::O_RDONLY {
        (fd, None)
    } else {
        (shared.opening(|| reopen(&fd, mode::O_PATH))?, Some(fd))
    };
    let arrived = guard.arrive(spot, find::made(shared, spot.mount, fd)?, Arrival::Made)?;
    untold.told();
    let entry = arrived.entry(shared);
    let file = PoolFile::new(shared, guard.who(), arrived.node, flags, terms);
    if let Some(mover) = mover {
        file.is_moved_by(shared.lower_file(&file.node, mover));
    }
    Ok(Some((entry, file::answer(shared, file))))
}

/// Whether the creation is the one chance to open the file as the caller asks: its mode forbids its own owner to, and the
/// server is an ordinary user, who is bound by that, too. (Git makes its objects so.)
fn opens_only_now(made: Made, flags: OpenFlags) -> bool {
    let allowed = made.mode & !made.umask & 0o600;
    allowed != 0o600 && flags.may_write() && !has_effective(Cap::DacOverride)
}

/// CREATE of a name that is there already, because the kernel did not know; `None` where it has gone since.
fn open_existing(
    shared: &Shared,
    guard: &Guard<'_>,
    spot: Spot<'_>,
    flags: OpenFlags,
) -> Result<Option<(Entry, Opened<PoolFile>)>> {
    guard.check_overwritten(spot)?;
    let found = match find::find(shared, spot) {
        Err(Errno::NOENT) => return Ok(None),
        found => found?,
    };
    if flags.0 & mode::O_EXCL != 0 && !is_untouched(&found.stat, guard.who()) {
        // Somebody else has made it.
        return Err(Errno::EXIST);
    }
    if !found.stat.is_file() {
        // CREATE can only answer with a regular file; told so, the kernel looks the name up and does what it is for.
        return Err(Errno::STALE);
    }
    let arrived = guard.arrive(spot, found, Arrival::Met)?;
    let node = &arrived.node;
    let cut = flags.0 & mode::O_TRUNC != 0;
    // While it is moved to another branch the kernel is to look again, and then opens it, which waits.
    let change = if cut { room::begin(shared, node) } else { Some(Change::NONE) };
    let opened = change.as_ref().ok_or(Errno::STALE);
    let opened = opened.and_then(|_| open::open_node(shared, guard, node, flags)).and_then(|opened| {
        let stat = if cut { stat_of(shared.descriptor(node)?).map_err(errno)? } else { arrived.stat };
        Ok((shared.entry(node, &stat), opened))
    });
    if opened.is_err() {
        shared.forget(node.id, LookupCount(1));
        // It may have been cut.
        shared.doubt_attributes(node.id);
    }
    match opened {
        Err(Errno::STALE) => Ok(None),
        opened => opened.map(Some),
    }
}

/// TMPFILE.
pub(crate) fn tmpfile(
    shared: &Shared,
    who: Who,
    parent: NodeId,
    made: Made,
    flags: OpenFlags,
) -> Result<(Entry, Opened<PoolFile>)> {
    let what = Coming::File { made, flags };
    if shared.is_ruled_merge() {
        // Before a path is made for it.
        let shown = shared.folder(parent)?;
        Guard::new(shared, who)
            .judge(NamelessComes { folder: parent, dir: &shown.descriptor, what })
            .map(drop)?;
    }
    if who.is_begun() {
        merge::finish_way(shared, parent)?;
    }
    loop {
        let folder = merge::for_new(shared, parent, &New::of(&who, b"", what))?;
        match tmpfile_in(shared, who, (parent, &folder), what, flags) {
            Err(Errno::NOENT | Errno::STALE) if shared.leaves_any(&folder.node) => {}
            outcome => return outcome,
        }
    }
}

fn tmpfile_in(
    shared: &Shared,
    who: Who,
    (parent, folder): (NodeId, &Folder),
    what: Coming<'_>,
    flags: OpenFlags,
) -> Result<(Entry, Opened<PoolFile>)> {
    let guard = Guard::new(shared, who);
    let judged = guard.judge(NamelessComes { folder: parent, dir: &folder.descriptor, what })?;
    let (writable, terms) = judged.create(shared)?;
    let hold = shared.opening(|| reopen(&writable, mode::O_PATH))?;
    let arrived = guard.arrive_nameless(parent, find::made(shared, folder.mount, hold)?);
    // It has no name, so nothing but a descriptor keeps it; `writable` does until here.
    let held = file::hold(shared, &arrived.node);
    drop(writable);
    if let Err(error) = held {
        shared.forget(arrived.node.id, LookupCount(1));
        return Err(error);
    }
    let entry = arrived.entry(shared);
    let file = PoolFile::new(shared, guard.who(), arrived.node, flags, terms);
    Ok((entry, file::answer(shared, file)))
}
