//! Moving a file to another branch: because its own has no room for what must be written, or because a rule says so ([`super::errand`]).
//!
//! While it is copied nobody changes it ([`crate::node::Change`]), and who reads it reads the old one. Then comes the moment ([`super::switching`]) in which
//! the copy gets the name, the file loses it, and the node is that of the copy. The files that are open go on with the copy.
//!
//! Whoever waits for the name waits for what is done in that moment, so all that can be looked at before is examined before, and what is closed is closed
//! after it.

use std::ffi::{CStr, CString};
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use shuntfs::{Errno, LowerFile, Name};
use shuntfs_sys::caps::{Cap, has_effective};
use shuntfs_sys::verity::STATX_ATTR_VERITY;
use shuntfs_sys::{OsError, Stat, handle_of, open_path_at, reopen, stat_at, stat_of};

use super::alone::{check_views, hold_views, would_be_shown};
use super::change::release;
use super::choose::{Considered, Here, present};
use super::errand::Errand;
use super::path::{grow, made_on, sync_way};
use super::queries::{relative, way_of};
use super::state::Merge;
use crate::branch::{MountIndex, copies_to, touches_on, was_left};
use crate::error::errno;
use crate::guard::{Spot, Transfer, Untaken};
use crate::lowers::Left;
use crate::mode;
use crate::name_buf::NameBuf;
use crate::node::{Identity, Marks, Mobile, Move, Node, Place, Way};
use crate::policy::{Category, Pick, Policy};
use crate::shared::{Folder, Shared};

/// What the names of copies begin with that are not finished, in the top folder of a branch whose file system makes no file without a name.
const TEMPORARY: &[u8] = b".shunt-moving-";
/// What those of notes begin with, that a file is on two branches for a moment.
const NOTE: &[u8] = b".shunt-moved-";
/// How many digits follow.
const DIGITS: usize = 16;

/// `STATX_ATTR_IMMUTABLE`, `STATX_ATTR_APPEND`, and of files that the kernel checks by fs-verity, which a copy would lose.
const FIXED: u64 = 0x10 | 0x20 | STATX_ATTR_VERITY;

/// A name for a copy that is not finished.
pub(crate) fn temporary_name() -> CString {
    numbered(TEMPORARY)
}

/// Whether a name is one of these.
pub(crate) fn is_temporary(name: &CStr) -> bool {
    is_numbered(TEMPORARY, name)
}

/// A name for a note that a file is on two branches.
pub(crate) fn note_name() -> CString {
    numbered(NOTE)
}

/// Whether a name is one of these.
pub(crate) fn is_note(name: &CStr) -> bool {
    is_numbered(NOTE, name)
}

fn numbered(first: &[u8]) -> CString {
    let number = RandomState::new().hash_one(0);
    CString::new([first, format!("{number:016x}").as_bytes()].concat()).expect("there is no NUL in it")
}

fn is_numbered(first: &[u8], name: &CStr) -> bool {
    let digits = name.to_bytes().strip_prefix(first);
    digits.is_some_and(|digits| digits.len() == DIGITS && digits.iter().all(u8::is_ascii_hexdigit))
}

/// Why a file is not moved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Unmoved {
    /// Files are not to be moved.
    Off,
    /// The kernel writes to it past us.
    Passthrough,
    /// A mapping may be left that does.
    Mapped,
    /// It has so many names.
    Linked(u32),
    /// It has no name.
    Nameless,
    /// It has a name that is not known.
    Unknown,
    /// Other branches have a file of its name.
    Copies,
    /// A branch that cannot be asked may have one, which would be shown.
    Aside,
    /// It may have other paths through another mount.
    Twins,
    /// It is open for somebody who sees only a part of it.
    Viewed,
    /// It is immutable or append-only below, or has fs-verity.
    Fixed,
    /// It was locked below.
    Locked,
    /// No other branch will do, for these reasons.
    NoBranch(String),
    /// Somebody changed it beside the pool.
    Changed,
    /// It is open for writing.
    Written,
    /// It is being opened, or moved for somebody else.
    InUse,
    /// It has another name by now, or is another file.
    Renamed,
    /// A branch on which that takes a step does not answer.
    Busy,
    /// That failed.
    Failed(Errno),
}

impl fmt::Display for Unmoved {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => out.write_str("moving files is turned off (moveonenospc=false)"),
            Self::Passthrough => {
                out.write_str("it is open in passthrough, where the kernel cannot be given another file")
            }
            Self::Mapped => {
                out.write_str("it was open for reading and writing in passthrough, so a mapping may be left that stores into it")
            }
            Self::Linked(names) => write!(out, "it has {names} names, which would become two files"),
            Self::Nameless => out.write_str("it has no name"),
            Self::Unknown => out.write_str("the name by which it was opened is not known"),
            Self::Copies => out.write_str("other branches have a file of its name"),
            Self::Aside => {
                out.write_str("a branch that does not answer may have a file of its name, which would be shown")
            }
            Self::Twins => {
                out.write_str("its file system is mounted below the branches in several places, so it may have other paths")
            }
            Self::Viewed => {
                out.write_str("it is open for somebody from whom a part of it is hidden, who could not go on with the copy")
            }
            Self::Fixed => out.write_str("it is immutable or append-only on its branch, or has fs-verity"),
            Self::Locked => out.write_str("it was locked on its branch (locks=lower)"),
            Self::NoBranch(why) => write!(out, "no other branch will do: {why}"),
            Self::Changed => out.write_str("somebody changed it beside the pool while it was copied"),
            Self::Written => out.write_str("it is open for writing"),
            Self::InUse => out.write_str("it is being opened, or moved for somebody else"),
            Self::Renamed => out.write_str("it was renamed or replaced meanwhile"),
            Self::Busy => out.write_str("a removal of its name, or a branch on the way, takes too long"),
            Self::Failed(error) => write!(out, "that failed: {error}"),
        }
    }
}

/// Checks whether files are moved at all, and whether this one may be as it is open. `is_backed` says whether the kernel reaches it past us.
///
/// # Errors
/// Why not.
pub(crate) fn check_move(shared: &Shared, node: &Node, is_backed: bool) -> Result<(), Unmoved> {
    let is_on = shared.merge.as_ref().is_some_and(|merge| merge.settings.moves().is_some());
    if !is_on || node.mobile().is_none() {
        Err(Unmoved::Off)
    } else if is_backed {
        Err(Unmoved::Passthrough)
    } else {
        Ok(())
    }
}

/// Moves a file that has no room for `len` bytes more where it is, and that may be moved ([`check_move`]).
///
/// May take as long as the file is large, so never in a queue.
///
/// # Errors
/// Why it is where it was.
pub(crate) fn relocate(shared: &Shared, moving: Move, len: u64) -> Result<(), Unmoved> {
    let merge = shared.merge.as_ref().ok_or(Unmoved::Off)?;
    let policy = merge.settings.moves().ok_or(Unmoved::Off)?;
    let node = moving.node();
    let relocation = Relocation { shared, merge, node, aim: Aim::Room(policy), moving: Some(&moving) };
    let moved = relocation.run(len).map(drop);
    let node = Arc::clone(node);
    drop(moving);
    // Its branch may have been removed, and this may have been the last file there.
    release(shared, merge, &node);
    moved
}

/// What a file is moved for.
#[derive(Clone, Copy)]
pub(super) enum Aim<'a> {
    /// For room, to the branch that the policy picks.
    Room(&'static Policy),
    /// For a rule.
    Errand(&'a Errand<'a>),
}

/// A file, and what is needed to move it.
pub(super) struct Relocation<'s> {
    pub(super) shared: &'s Shared,
    pub(super) merge: &'s Merge,
    pub(super) node: &'s Arc<Node>,
    pub(super) aim: Aim<'s>,
    /// `None` where it is only checked whether the file can be moved.
    pub(super) moving: Option<&'s Move>,
}

impl Relocation<'_> {
    /// Tries one branch after the other; the one that it came to.
    pub(super) fn run(&self, len: u64) -> Result<u16, Unmoved> {
        let stat = self.check()?;
        // By its partial views it is not changed meanwhile, either.
        let views = hold_views(self.shared, self.node)?;
        // To move it is no access. Where we are not its owner, it counts as one.
        let flags = mode::O_RDONLY | mode::O_NONBLOCK;
        let from = match self.shared.open_node(self.node, flags | mode::O_NOATIME) {
            Err(Errno::PERM) => self.shared.open_node(self.node, flags),
            from => from,
        };
        let from = from.map_err(Unmoved::Failed)?;
        self.check_unwritten_below(&from)?;
        let needed = Transfer::takes(&from, &stat).saturating_add(len);
        let mut tried: Vec<(u16, Errno)> = Vec::new();
        loop {
            let (folder, _) = {
                // Else it may be on its way to another name.
                let _order = self.merge.order();
                self.way()?
            };
            let branch = match self.aim {
                Aim::Room(policy) => self.pick(policy, &folder, needed, &tried)?,
                Aim::Errand(errand) => self.pick_named(errand, needed, &tried)?,
            };
            match self.carry(&folder, branch, (&from, &stat, &views)) {
                // Nobody waits for it any more.
                Err(Carried::NotThere(_)) if was_left() => return Err(Unmoved::Busy),
                Err(Carried::NotThere(error)) => {
                    self.moving.into_iter().for_each(Move::goes_on);
                    tried.push((branch, error));
                }
                Err(Carried::Nowhere(why)) => return Err(why),
                Ok(()) => return Ok(branch),
            }
        }
    }

    /// What the file is like, if it can be moved at all.
    pub(super) fn check(&self) -> Result<Stat, Unmoved> {
        let node = self.node;
        if node.has(Marks::MAPPED_BELOW) {
            return Err(Unmoved::Mapped);
        }
        if node.has(Marks::LOCKED_BELOW) {
            return Err(Unmoved::Locked);
        }
        let descriptor = self.shared.descriptor(node).map_err(Unmoved::Failed)?;
        let stat = stat_of(&descriptor).map_err(|error| Unmoved::Failed(errno(error)))?;
        // Who has no right to the file by its mode could not open it where it goes.
        let may_open = stat.mode & 0o600 == 0o600 || has_effective(Cap::DacOverride);
        match stat.nlink {
            _ if !may_open => Err(Unmoved::Failed(Errno::ACCES)),
            _ if !stat.is_file() || !node.view.is_whole() => Err(Unmoved::Failed(Errno::INVAL)),
            0 => Err(Unmoved::Nameless),
            1 if stat.attributes & FIXED != 0 => Err(Unmoved::Fixed),
            1 => Ok(stat),
            names => Err(Unmoved::Linked(names)),
        }
    }

    /// The folder that the file is in, and its name there.
    pub(super) fn way(&self) -> Result<(Arc<Node>, NameBuf), Unmoved> {
        let way = match way_of(self.shared, self.merge, self.node) {
            Ok(Some(way)) => way,
            Ok(None) | Err(Errno::STALE) => return Err(Unmoved::Unknown),
            Err(Errno::NOENT) => return Err(Unmoved::Nameless),
            Err(error) => return Err(Unmoved::Failed(error)),
        };
        let folder = self.shared.node(way.0).map_err(|_| Unmoved::Unknown)?;
        let name = Name::new(&way.1).and_then(|name| NameBuf::new(name).ok());
        let name = name.ok_or(Unmoved::Unknown)?;
        match self.aim {
            Aim::Errand(errand) if !errand.is_at(&folder, &name) => Err(Unmoved::Renamed),
            _ => Ok((folder, name)),
        }
    }

    /// The branch to which the policy has it moved. It must take all of the file, whatever it must have for something new.
    fn pick(
        &self,
        policy: &'static Policy,
        folder: &Arc<Node>,
        needed: u64,
        tried: &[(u16, Errno)],
    ) -> Result<u16, Unmoved> {
        let (shared, merge) = (self.shared, self.merge);
        let mut considered = merge.for_something_new(shared, folder, policy).map_err(Unmoved::Failed)?;
        let own = self.node.mount();
        // Nothing is won on the same file system.
        let device = shared.mount(own).device();
        let is_same =
            |number: u16| number == own.branch || shared.branches.at(number).mounts.own().device() == device;
        let is_tried = |number: u16| tried.iter().any(|(tried, _)| *tried == number);
        considered.branches.retain(|(number, _)| !is_same(*number) && !is_tried(*number));
        let others = considered.branches.len();
        considered.branches.retain(|(number, _)| would_be_shown(shared, folder, *number));
        if considered.branches.is_empty() && others > 0 && tried.is_empty() {
            return Err(Unmoved::Aside);
        }
        for (_, candidate) in &mut considered.branches {
            if let Ok(candidate) = candidate {
                candidate.min_free = candidate.min_free.max(needed);
            }
        }
        let pick = considered.pick(policy, Category::Create, merge.seed());
        let known = considered.known();
        match pick.chosen() {
            Ok(chosen) => Ok(known[chosen[0]]),
            Err(_) => Err(Unmoved::NoBranch(self.why(&considered, &pick, tried))),
        }
    }

    /// Why no branch will do.
    fn why(&self, considered: &Considered, pick: &Pick, tried: &[(u16, Errno)]) -> String {
        let mut why = self.why_tried(tried);
        why.extend(Some(considered.why_none(self.shared, pick)).filter(|why| !why.is_empty()));
        if why.is_empty() { "there is none on another file system".to_owned() } else { why.join("; ") }
    }

    /// What became of those that were tried.
    pub(super) fn why_tried(&self, tried: &[(u16, Errno)]) -> Vec<String> {
        let called = |number: u16| self.shared.branches.at(number).source().display();
        let failed =
            |(number, error): &(u16, Errno)| format!("{}: copying it there failed: {error}", called(*number));
        tried.iter().map(failed).collect()
    }

    /// Copies it to a branch, and has it be there.
    fn carry(
        &self,
        folder: &Arc<Node>,
        branch: u16,
        (from, stat, views): (&Arc<LowerFile>, &Stat, &[Move]),
    ) -> Result<(), Carried> {
        let (shared, merge) = (self.shared, self.merge);
        let begin = || {
            let there = self.made_durably(folder, branch, || made_on(shared, merge, folder, branch))?;
            copies_to(branch);
            Transfer::begin(shared, &there, stat)
        };
        let copy = self.step(begin)?;
        let copied = |bytes| self.copied(bytes).and_then(|()| self.check_on(branch));
        copy.fill(from, stat, &copied).map_err(|error| match self.is_given_up() {
            true => Carried::Nowhere(Unmoved::Written),
            false => Carried::NotThere(error),
        })?;
        self.step(|| self.finish(copy, branch, (from, stat, views)))
    }

    /// A part of the move that is seen by itself if a disk hangs: the copy between two takes as long as the file is large. What makes room is under way
    /// as a whole, as a part of the request that needs it.
    fn step<T>(&self, act: impl FnOnce() -> T) -> T {
        match self.aim {
            Aim::Room(_) => act(),
            Aim::Errand(_) => self.shared.under_way(act),
        }
    }

    /// Gives a copy that is whole its name, and has the file be there.
    fn finish(
        &self,
        copy: Transfer,
        branch: u16,
        (from, stat, views): (&Arc<LowerFile>, &Stat, &[Move]),
    ) -> Result<(), Carried> {
        let (shared, merge) = (self.shared, self.merge);
        let nameless = shared.opening(|| reopen(copy.file(), mode::O_PATH))?;
        // Nothing is moved, linked or grown from here on. It may have been moved meanwhile.
        let order = merge.order();
        let (folder, name) = self.way()?;
        let there = self.made_durably(&folder, branch, || grow(shared, merge, &order, (&folder, branch)))?;
        let stat = self.renewed(&copy, from, stat)?;
        let here = self.only(there.spot_of(&folder, &name), &stat)?;
        // Nobody who changes it goes on from here to the end.
        if was_left() || !self.moving.is_some_and(Move::commit) {
            let why = if self.is_given_up() { Unmoved::Written } else { Unmoved::Busy };
            return Err(why.into());
        }
        let switch = merge.switching.begin(folder.id, name.as_c_str()).ok_or(Unmoved::Busy)?;
        self.check_still(&here, &name, (&stat, views))?;
        self.check_unused()?;
        self.check_unwritten_below(from)?;
        let place = place_of(shared, there.mount, &nameless)?;
        let may_go_on = || order.is_held() && self.check_unwritten_below(from).is_ok();
        let noted = shared.table.moves(self.node, place.inode());
        copy.take_place(&there, name.as_c_str(), (&here, &may_go_on))?;
        drop(place.keep(Arc::new(LowerFile::new(named(&there, &name, nameless)))));
        let left = self.settle(place, &there, (&folder, &name));
        drop(noted);
        drop(switch);
        drop(order);
        // To close it may take its time.
        drop((left, copy));
        // Its number may be another one, and so are its folder's times.
        shared.doubt_attributes(self.node.id);
        shared.doubt_attributes(folder.id);
        self.tell(here.mount, branch, &(folder.id, name.as_c_str().into()), &stat);
        Ok(())
    }

    /// A folder on a branch that stays there whatever happens, if it was not there before.
    fn made_durably(
        &self,
        folder: &Arc<Node>,
        branch: u16,
        make: impl FnOnce() -> shuntfs::Result<Folder>,
    ) -> shuntfs::Result<Folder> {
        let was_there = folder.parts().is_some_and(|parts| parts.on(branch).is_some());
        let made = make()?;
        if !was_there {
            sync_way(self.shared, folder, branch)?;
        }
        Ok(made)
    }

    /// Ends the copy where nobody waits for it any more, or the branch does not answer, or was removed, which is kept by it.
    fn check_on(&self, branch: u16) -> shuntfs_sys::Result<()> {
        let there = self.shared.branches.at(branch);
        let is_useless = was_left() || there.health.is_aside() || there.is_let_go();
        if is_useless { Err(OsError::IO) } else { Ok(()) }
    }

    /// What the file is like after it was copied. Attributes that were changed beside the pool meanwhile are those of the copy, too.
    fn renewed(&self, copy: &Transfer, from: &LowerFile, stat: &Stat) -> Result<Stat, Carried> {
        touches_on(self.node.mount());
        let now = stat_of(from).map_err(errno)?;
        if now.ctime == stat.ctime {
            return Ok(*stat);
        }
        if (now.size, now.mtime) != (stat.size, stat.mtime) {
            return Err(Unmoved::Changed.into());
        }
        // It was read meanwhile, by us.
        let now = Stat { atime: stat.atime, ..now };
        copy.take_attributes(from, &now)?;
        Ok(now)
    }

    /// Where the file has its name, if no other branch has it and nobody else uses it.
    pub(super) fn only(&self, spot: Spot<'_>, stat: &Stat) -> Result<Here, Carried> {
        if !would_be_shown(self.shared, spot.folder, spot.mount.branch) {
            return Err(Unmoved::Aside.into());
        }
        let mut all = present(self.shared, spot)?;
        let Some(here) = all.pop() else { return Err(Unmoved::Nameless.into()) };
        if !all.is_empty() || here.mount.branch != self.node.mount().branch {
            return Err(Unmoved::Copies.into());
        }
        if self.node.has(Marks::LOCKED_BELOW) {
            return Err(Unmoved::Locked.into());
        }
        check_same(&here.stat, stat)?;
        Ok(here)
    }

    /// Looks once more at what may have changed since.
    fn check_still(
        &self,
        here: &Here,
        name: &NameBuf,
        (stat, views): (&Stat, &[Move]),
    ) -> Result<(), Carried> {
        check_views(self.shared, self.node, views)?;
        touches_on(here.mount);
        match stat_at(&*here.dir, name.as_c_str()) {
            Ok(now) => Ok(check_same(&now, stat)?),
            Err(OsError::NOENT) => Err(Unmoved::Nameless.into()),
            Err(error) => Err(Unmoved::Failed(errno(error)).into()),
        }
    }

    /// It is on another branch now. Nothing here can fail. What it leaves on its own is returned.
    fn settle(
        &self,
        place: Place,
        there: &Folder,
        (folder, name): (&Arc<Node>, &NameBuf),
    ) -> (Vec<Left>, Vec<Arc<LowerFile>>) {
        let (shared, merge, node) = (self.shared, self.merge, self.node);
        let before = node.place();
        if place.handle().is_none() {
            // Its descriptor is the only way to it.
            node.mark(Marks::PINNED);
        }
        shared.table.rebind(node, place, shared.lasting_generation(node));
        let branch = shared.branch(there.mount);
        let opens = node.mobile().map(Mobile::opens).unwrap_or_default();
        let left = opens.iter().map(|open| open.exchange(node, branch)).collect();
        // Its space is free once nobody has it open.
        let mut idle = Vec::from_iter(before.give_up(|| false));
        if shared.caches_descriptor(node) && !node.has(Marks::PINNED) {
            idle.extend(shared.descriptors.admit(node));
        } else {
            idle.extend(node.drop_descriptor());
        }
        merge.forget_hint(there.spot_of(folder, name));
        if let Aim::Room(_) = self.aim {
            merge.moved_one();
        }
        (left, idle)
    }

    fn tell(&self, from: MountIndex, to: u16, way: &Way, stat: &Stat) {
        let (shared, branches) = (self.shared, &self.shared.branches);
        let path = relative(shared, self.merge, Some(way)).unwrap_or_default();
        tracing::info!(
            path = %String::from_utf8_lossy(&path),
            from = ?shared.branch(from).source(),
            to = ?branches.at(to).source(),
            bytes = stat.size,
            "moved to another branch, {}",
            match self.aim {
                Aim::Room(_) => "because its own is full",
                Aim::Errand(_) => "as a rule says",
            }
        );
    }
}

/// Why a file did not get to a branch.
pub(super) enum Carried {
    /// The branch is no place for it.
    NotThere(Errno),
    /// No branch is.
    Nowhere(Unmoved),
}

impl From<Errno> for Carried {
    fn from(error: Errno) -> Self {
        Self::NotThere(error)
    }
}

impl From<Unmoved> for Carried {
    fn from(why: Unmoved) -> Self {
        Self::Nowhere(why)
    }
}

impl From<Untaken> for Carried {
    fn from(why: Untaken) -> Self {
        match why {
            Untaken::Failed(error) => Self::NotThere(error),
            Untaken::Overtaken => Self::Nowhere(Unmoved::Changed),
        }
    }
}

/// Checks whether what has the name is the file as it was copied.
fn check_same(now: &Stat, copied: &Stat) -> Result<(), Unmoved> {
    match now.nlink {
        1 if is_as_copied(now, copied) => Ok(()),
        1 => Err(Unmoved::Changed),
        names => Err(Unmoved::Linked(names)),
    }
}

/// Whether a file is what it was when it was copied, and has the one name that it had.
pub(crate) fn is_as_copied(now: &Stat, copied: &Stat) -> bool {
    let content = |stat: &Stat| (stat.ino, stat.dev, stat.size, stat.mtime);
    // Of the time of change, because ACLs and other attributes are told by nothing else.
    let attributes = |stat: &Stat| (stat.mode, stat.uid, stat.gid, stat.ctime);
    now.nlink == 1 && content(now) == content(copied) && attributes(now) == attributes(copied)
}

/// A descriptor of a copy that has its name now. The one from before will do, but the kernel never tells a name by it.
fn named(there: &Folder, name: &NameBuf, nameless: OwnedFd) -> OwnedFd {
    let inode = |fd: &OwnedFd| stat_of(fd).map(|stat| (stat.ino, stat.dev)).ok();
    match open_path_at(&there.descriptor, name.as_c_str()) {
        Ok(named) if inode(&named) == inode(&nameless) => named,
        _ => nameless,
    }
}

/// The place of what was made on a mount.
fn place_of(shared: &Shared, on: MountIndex, held: &OwnedFd) -> shuntfs::Result<Place> {
    let (stat, mount) = (stat_of(held).map_err(errno)?, shared.mount(on));
    let handle = if mount.has_handles() { Some(handle_of(held).map_err(errno)?.0) } else { None };
    Ok(Place::new(Identity::new(&stat, mount.index, handle)))
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn names_of_copies_are_told_from_others() {
        let name = temporary_name();
        assert!(is_temporary(&name) && name != temporary_name() && !is_note(&name));
        assert!(is_note(&note_name()) && !is_temporary(&note_name()));
        for other in
            [c".shunt-moving-", c".shunt-moving-0123456789abcde", c".shunt-moving-0123456789abcdeg", c"x"]
        {
            assert!(!is_temporary(other), "{other:?}");
        }
    }
}
