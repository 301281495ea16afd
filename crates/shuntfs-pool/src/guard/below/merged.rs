//! Names of a merge that go and move.
//!
//! Files are removed and moved on the branches that their policies pick, folders on all that have them: a folder that
//! is left on one would still be there. Before anything is done it is checked whether all of it can be; what fails anyway is
//! undone where that is possible, and leaves a folder on fewer branches where it is not.
//!
//! A disk may hang in between, and the caller may get EIO and do something else. Then nothing further is done when the disk answers, and what was done is
//! undone only where it is as it was left.

use shuntfs::{Errno, LowerFile, Result};
use shuntfs_sys::dir::DirReader;
use shuntfs_sys::{Device, open_path_at, rename_at, reopen, stat_of};

use super::marked::{has, mask};
use super::moving::{Moving, Step, check_wanted, remove_at};
use crate::branch::touches_on;
use crate::error::errno;
use crate::folding;
use crate::guard::{NameGoes, NameMoves, Spot};
use crate::keeping_renames::{Exchange, inode_of};
use crate::merge::{self, Here, Merge, Order};
use crate::mode;
use crate::node::{Parts, Way};
use crate::policy::Function;
use crate::removal::Removal;
use crate::shared::{Folder, Shared};
use crate::who::Who;

/// Removes a name.
pub(super) fn remove(shared: &Shared, merge: &Merge, (who, goes): (Who, NameGoes<'_>)) -> Result<()> {
    let NameGoes { spot, held, is_folder } = goes;
    // A path that is made meanwhile would bring a folder back.
    let _order = is_folder.then(|| merge.order());
    let all = merge::present(shared, spot)?;
    held.check_judged(0, &all)?;
    let same: Vec<Here> = all.into_iter().filter(|here| here.stat.is_dir() == is_folder).collect();
    if same.is_empty() {
        // As below, where there is something of the other kind.
        return Err(match merge::present(shared, spot)?.first() {
            None => Errno::NOENT,
            Some(_) if is_folder => Errno::NOTDIR,
            Some(_) => Errno::ISDIR,
        });
    }
    if let (false, Some([picked, _])) = (is_folder, who.note()) {
        // Those that are left of what a server had begun to remove that is dead.
        let order = shared.branches.order();
        let left: Vec<Here> =
            same.into_iter().filter(|here| has(picked, &order, here.mount.branch)).collect();
        return remove_here(shared, spot, &left);
    }
    if !is_folder {
        return remove_here(
            shared,
            spot,
            &merge::changed(shared, merge, (Function::Unlink, Some(spot)), same)?,
        );
    }
    check_whole(shared, merge, spot)?;
    check_empty(shared, spot, &same)?;
    check_writable(shared, spot, &same)?;
    remove_folders(shared, merge, spot, &same)
}

/// From the last to the first, so that what is shown is there as long as anything is.
fn remove_here(shared: &Shared, spot: Spot<'_>, all: &[Here]) -> Result<()> {
    all.iter().rev().try_for_each(|here| {
        let gone = remove_at(here.mount, &here.dir, spot, false).map_err(errno);
        gone.inspect_err(|error| merge::pass_on_at(shared, Spot { mount: here.mount, ..spot }, *error))
    })
}

/// Whether a server that is dead had begun to move a name on several branches, which was judged before: on one that it noted the name is gone, and the new one
/// is there, or is that of what was to be moved.
pub(crate) fn goes_on(shared: &Shared, who: Who, moves: &NameMoves<'_>) -> bool {
    let Some([moved, _]) = who.note().filter(|_| moves.flags & mode::RENAME_EXCHANGE == 0) else {
        return false;
    };
    let order = shared.branches.order();
    let exchanges = shared.merge.as_ref().map(|merge| merge.renames.begun(who.request())).unwrap_or_default();
    let is_exchanged = |exchange: &Exchange| {
        let mut met = moves.held.subjects(1).iter().map(|subject| &subject.found);
        met.any(|found| {
            found.identity.mount.branch == exchange.branch && inode_of(&found.stat) == exchange.moved
        })
    };
    if exchanges.iter().any(is_exchanged) {
        return true;
    }
    let is_on = |index: usize, branch: u16| {
        moves.held.subjects(index).iter().any(|subject| subject.found.identity.mount.branch == branch)
    };
    order.iter().any(|branch| has(moved, &order, *branch) && !is_on(0, *branch) && is_on(1, *branch))
}

/// On which branches a file loses a name, where the policy leaves it on others.
///
/// # Errors
/// As the removal.
pub(crate) fn removed_on(shared: &Shared, spot: Spot<'_>) -> Result<u64> {
    let Some(merge) = &shared.merge else { return Ok(0) };
    let all = merge::present(shared, spot)?;
    let picked = merge::changed(shared, merge, (Function::Unlink, None), all)?;
    Ok(mask(&shared.branches.order(), picked.iter().map(|here| here.mount.branch)))
}

/// Refuses what would be done on some branches and could not be on others.
///
/// # Errors
/// EROFS.
fn check_writable<'h>(
    shared: &Shared,
    spot: Spot<'_>,
    all: impl IntoIterator<Item = &'h Here>,
) -> Result<()> {
    let read_only = all.into_iter().find(|here| shared.branch(here.mount).is_still_read_only());
    read_only.map_or(Ok(()), |here| {
        let why = merge::why_read_only(shared.branch(here.mount));
        Err(merge::refuse_at(shared, spot, (Errno::ROFS, Some(here.mount.branch)), why))
    })
}

fn remove_folders(shared: &Shared, merge: &Merge, spot: Spot<'_>, all: &[Here]) -> Result<()> {
    let node = merge.folder(shared, spot.folder.id, spot.c_name());
    for (index, here) in all.iter().enumerate().rev() {
        remove_at(here.mount, &here.dir, spot, true).map_err(errno)?;
        if let Some(parts) = node.as_ref().filter(|_| index > 0).and_then(|node| node.parts()) {
            parts.leave(here.mount.branch);
        }
    }
    merge.folders.removed(&shared.table, spot.folder.id, spot.c_name());
    Ok(())
}

/// Refuses to remove or move a folder that a branch has which is set aside: there it would stay, and come back with it.
fn check_whole(shared: &Shared, merge: &Merge, spot: Spot<'_>) -> Result<()> {
    if !merge.has_aside() {
        return Ok(());
    }
    let node = merge.folder(shared, spot.folder.id, spot.c_name());
    let is_partly_aside = node.as_ref().and_then(|node| node.parts()).is_some_and(Parts::is_partly_aside);
    if is_partly_aside { Err(Errno::IO) } else { Ok(()) }
}

/// Refuses to remove a folder that holds something on any branch.
fn check_empty(shared: &Shared, spot: Spot<'_>, all: &[Here]) -> Result<()> {
    for here in all {
        merge::touches_named(shared, spot, here.mount);
        let folder = LowerFile::new(shared.opening(|| open_path_at(&*here.dir, spot.c_name()))?);
        if !is_empty(shared, &folder)? {
            return Err(Errno::NOTEMPTY);
        }
    }
    Ok(())
}

/// Whether nothing is in a folder.
pub(super) fn is_empty(shared: &Shared, folder: &LowerFile) -> Result<bool> {
    let fd = shared.opening(|| reopen(folder, mode::O_RDONLY | mode::O_DIRECTORY))?;
    let mut reader = DirReader::new(fd);
    loop {
        match reader.peek().map_err(errno)? {
            Some(record) if record.name != c"." && record.name != c".." => return Ok(false),
            Some(_) => reader.advance().map_err(errno)?,
            None => {
                if !reader.fill().map_err(errno)? {
                    return Ok(true);
                }
            }
        }
    }
}

/// Moves a name, or exchanges two.
pub(super) fn rename(shared: &Shared, merge: &Merge, (who, moves): (Who, NameMoves<'_>)) -> Result<()> {
    let NameMoves { from, to, held, flags } = moves;
    if flags & mode::RENAME_WHITEOUT != 0 {
        // It hides what is on lower layers, of which there are none.
        return Err(Errno::INVAL);
    }
    let order = merge.order();
    // A file that hangs between two branches will be removed from one of them, under its name.
    [from, to].into_iter().try_for_each(|spot| shared.switches(spot).map(drop))?;
    // Either may get what is on several branches, the first one when the move fails and is undone.
    [from, to].into_iter().for_each(|spot| merge.forget_hint(spot));
    let (sources, targets) = (merge::present(shared, from)?, merge::present(shared, to)?);
    held.check_judged(0, &sources)?;
    held.check_judged(1, &targets)?;
    // Of an exchange the note tells the inodes (`op/rename.rs`), and it is done again as a whole.
    if let Some(note) = who.note().filter(|_| flags & mode::RENAME_EXCHANGE == 0) {
        return go_on(shared, merge, &order, (from, to), (who, flags, note));
    }
    let is_folder = merge::visible(shared, merge, &sources)?.stat.is_dir();
    let (way, new_way): (Way, Way) =
        ((from.folder.id, from.c_name().into()), (to.folder.id, to.c_name().into()));
    // Both may be folders where they are exchanged.
    [from, to].into_iter().try_for_each(|spot| check_whole(shared, merge, spot))?;
    if flags & mode::RENAME_EXCHANGE != 0 {
        let (one, other) = match (&sources[..], &targets[..]) {
            ([one], [other]) if one.mount == other.mount => (one, other),
            _ => {
                let why = "names are exchanged only if both are on one branch, and on no other";
                return Err(merge::refuse_at(shared, from, (Errno::XDEV, None), why));
            }
        };
        check_writable(shared, from, [one])?;
        touches_on(one.mount);
        check_wanted().map_err(errno)?;
        rename_at(&*one.dir, from.c_name(), &*other.dir, to.c_name(), flags).map_err(errno)?;
        merge.moved(shared, way, new_way, true);
        return Ok(());
    }
    if flags & mode::RENAME_NOREPLACE != 0 && !targets.is_empty() {
        return Err(Errno::EXIST);
    }
    let targets = others(shared, (&sources, from), (targets, to))?;
    let sources: Vec<Here> = sources.into_iter().filter(|here| here.stat.is_dir() == is_folder).collect();
    let sources = if is_folder { sources } else { merge::moved(shared, merge, Some(from), sources)? };
    check_writable(shared, from, &sources)?;
    let moves = self::moves(shared, merge, &order, to, sources)?;
    let is_moved = |here: &&Here| moves.iter().any(|(source, _)| source.mount.branch == here.mount.branch);
    let (replaced, left): (Vec<Here>, Vec<Here>) = targets.into_iter().partition(|here| is_moved(&here));
    check_targets(shared, to, is_folder, &replaced, &left)?;
    let removal = Removal::begin(shared, to)?;
    let steps = vec![Step::Ahead; moves.len()];
    let (moves, request) = (&*moves, who.request());
    let moving = Moving { shared, merge, request, from, to, moves, replaced: &replaced, left: &left };
    moving.finish(flags, steps, Vec::new()).inspect_err(|error| {
        let mount = moves.first().map_or(to.mount, |(source, _)| source.mount);
        merge::pass_on_at(shared, Spot { mount, ..to }, *error);
    })?;
    removal.doubt_copies();
    merge.moved(shared, way, new_way, false);
    Ok(())
}

/// The branches on which a name moves, and those on which what has the new one goes; none if the kernel moves it in one step.
///
/// # Errors
/// As the move.
pub(crate) fn moved_on(shared: &Shared, from: Spot<'_>, to: Spot<'_>) -> Result<[u64; 2]> {
    let Some(merge) = &shared.merge else { return Ok([0; 2]) };
    let (sources, targets) = (merge::present(shared, from)?, merge::present(shared, to)?);
    let is_folder = merge::visible(shared, merge, &sources)?.stat.is_dir();
    let targets = others(shared, (&sources, from), (targets, to))?;
    let sources: Vec<Here> = sources.into_iter().filter(|here| here.stat.is_dir() == is_folder).collect();
    let sources = if is_folder { sources } else { merge::moved(shared, merge, None, sources)? };
    let is_moved = |here: &&Here| sources.iter().any(|source| source.mount.branch == here.mount.branch);
    let left = targets.iter().filter(|here| !is_moved(here));
    let order = shared.branches.order();
    let numbers = [
        sources.iter().map(|here| here.mount.branch).collect::<Vec<_>>(),
        left.map(|here| here.mount.branch).collect(),
    ];
    let note = numbers.map(|numbers| mask(&order, numbers));
    Ok(if sources.len() == 1 && note[1] == 0 { [0; 2] } else { note })
}

/// Goes on with what a server had begun that is dead: it moved the name on these branches, and then removed what had the new one on those.
/// Each step is done if the old name is gone, or the new one; or if the new one is that of what was to be moved, where names are exchanged.
fn go_on(
    shared: &Shared,
    merge: &Merge,
    order: &Order<'_>,
    (from, to): (Spot<'_>, Spot<'_>),
    (who, flags, [moved, left]): (Who, u32, [u64; 2]),
) -> Result<()> {
    let branches = shared.branches.order();
    let is_known = merge.folders.has(&(from.folder.id, from.c_name().into()));
    // What is replaced may have either name.
    let removals = [Removal::begin(shared, to)?, Removal::begin(shared, from)?];
    let on = |spot: Spot<'_>, mask: u64| -> Result<Vec<Here>> {
        let all = merge::present(shared, spot)?.into_iter();
        Ok(all.filter(|here| has(mask, &branches, here.mount.branch)).collect())
    };
    let (sources, targets, left) = (on(from, moved)?, on(to, moved)?, on(to, left)?);
    let exchanges = merge.renames.begun(who.request());
    let replaces_itself = |source: &Here, target: &Here| is_itself(shared, (source, from), (target, to));
    let (mut moves, mut replaced, mut steps) = (Vec::new(), Vec::new(), Vec::new());
    for branch in branches.iter().copied() {
        let at = |all: &[Here]| all.iter().find(|here| here.mount.branch == branch).cloned();
        let exchange = exchanges.iter().find(|exchange| exchange.branch == branch);
        let is_moved = |here: &Here| exchange.is_some_and(|exchange| inode_of(&here.stat) == exchange.moved);
        let (source, step) = match (at(&sources), at(&targets)) {
            (None, None) => continue,
            (Some(old), Some(new)) if is_moved(&new) && !is_moved(&old) => {
                let source = Here { stat: new.stat, ..old.clone() };
                replaced.push(old);
                (source, Step::Exchanged)
            }
            (Some(source), target) => {
                let is_itself =
                    target.as_ref().map_or(Ok(true), |target| replaces_itself(&source, target))?;
                replaced.extend(target.filter(|_| !is_itself));
                (source, Step::Ahead)
            }
            (None, Some(new)) => {
                let folder = merge::on_branch(shared, merge, order, from.folder, branch)?;
                (Here { dir: folder.descriptor, ..new }, Step::Moved)
            }
        };
        moves.push((source, merge::on_branch(shared, merge, order, to.folder, branch)?));
        steps.push(step);
    }
    let earlier = merge.renames.take(who.request());
    let (moves, request) = (&*moves, who.request());
    let moving = Moving { shared, merge, request, from, to, moves, replaced: &replaced, left: &left };
    moving.finish(flags, steps, earlier)?;
    if is_known || merge::present(shared, to)?.first().is_none_or(|here| !here.stat.is_dir()) {
        let way = |spot: Spot<'_>| -> Way { (spot.folder.id, spot.c_name().into()) };
        merge.folder_moved(shared, way(from), way(to), false);
    }
    merge.was_moved(shared, from, to)?;
    removals.iter().for_each(Removal::doubt_copies);
    // Folders were looked for while this one was on some branches by one name and on others by another.
    merge.see_folders_again(shared);
    Ok(())
}

/// The folders to which a name goes, on the branches where it is.
fn moves(
    shared: &Shared,
    merge: &Merge,
    order: &Order<'_>,
    to: Spot<'_>,
    sources: Vec<Here>,
) -> Result<Vec<(Here, Folder)>> {
    let target = |here: Here| -> Result<(Here, Folder)> {
        let folder = merge::on_branch(shared, merge, order, to.folder, here.mount.branch)?;
        Ok((here, folder))
    };
    let moves = sources.into_iter().map(target).collect::<Result<Vec<_>>>()?;
    check_apart(shared, to, &moves)?;
    Ok(moves)
}

/// Refuses to move copies of several branches into one folder that is below them, where the last one would be left.
fn check_apart(shared: &Shared, to: Spot<'_>, moves: &[(Here, Folder)]) -> Result<()> {
    if moves.len() < 2 {
        return Ok(());
    }
    let inode = |(_, folder): &(Here, Folder)| -> Result<(Device, u64)> {
        touches_on(folder.mount);
        let stat = stat_of(&folder.descriptor).map_err(errno)?;
        Ok((stat.dev, stat.ino))
    };
    let mut inodes = moves.iter().map(inode).collect::<Result<Vec<_>>>()?;
    inodes.sort_unstable();
    let all = inodes.len();
    inodes.dedup();
    if inodes.len() == all {
        Ok(())
    } else {
        let why = "its copies would come to one folder, which branches share";
        Err(merge::refuse_at(shared, to, (Errno::XDEV, None), why))
    }
}

/// What has the new name and is not what moves: on a branch that ignores case the new name may mean the old one, and nothing is replaced.
///
/// # Errors
/// Those of asking how names are compared.
fn others(
    shared: &Shared,
    (sources, from): (&[Here], Spot<'_>),
    (targets, to): (Vec<Here>, Spot<'_>),
) -> Result<Vec<Here>> {
    let mut others = Vec::new();
    for target in targets {
        let source = sources.iter().find(|source| source.mount == target.mount);
        if !source.map_or(Ok(false), |source| is_itself(shared, (source, from), (&target, to)))? {
            others.push(target);
        }
    }
    Ok(others)
}

/// Whether two names are one, and not two links of a file.
fn is_itself(
    shared: &Shared,
    (source, from): (&Here, Spot<'_>),
    (target, to): (&Here, Spot<'_>),
) -> Result<bool> {
    if (source.stat.dev, source.stat.ino) != (target.stat.dev, target.stat.ino) {
        return Ok(false);
    }
    if source.stat.is_dir() || source.stat.nlink == 1 {
        return Ok(true);
    }
    let name = |spot: Spot<'_>| spot.c_name().to_string_lossy().to_lowercase();
    let magic = shared.mount(source.mount).magic;
    touches_on(source.mount);
    Ok(name(from) == name(to) && folding::folds(shared, magic, &source.dir)? == Some(true))
}

/// Refuses what would leave something at the new name that is not what was moved there.
fn check_targets(
    shared: &Shared,
    to: Spot<'_>,
    is_folder: bool,
    replaced: &[Here],
    left: &[Here],
) -> Result<()> {
    let all = || replaced.iter().chain(left);
    if all().next().is_none() {
        return Ok(());
    }
    match (is_folder, all().all(|here| here.stat.is_dir()), all().any(|here| here.stat.is_dir())) {
        (true, false, _) => return Err(Errno::NOTDIR),
        (false, _, true) => return Err(Errno::ISDIR),
        _ => {}
    }
    check_writable(shared, to, left)?;
    if is_folder {
        for here in all() {
            check_empty(shared, to, std::slice::from_ref(here))?;
        }
    }
    Ok(())
}
