//! From a name to a node, in two lower system calls.
//!
//! `name_to_handle_at` says which inode it is and on which mount, `statx` what it is like. Between the two calls
//! the name may come to mean something else; then the inode number in the handle differs from the one in the
//! attributes, and both are asked again through one descriptor. (An inode number that was freed and given out
//! again between the calls passes: the node then has the handle of the freed inode, the next operation on it
//! gets ESTALE, and the kernel looks the name up anew.)

use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use shuntfs::{Errno, Generation, LowerFile, Name, NodeId, Result};
use shuntfs_sys::{FileHandle, OsError, Stat, handle_at, handle_of, open_path_at, reopen, stat_at, stat_of};

use crate::branch::{Branch, Mount, MountIndex, touches_below};
use crate::error::errno;
use crate::guard::Spot;
use crate::merge::Merge;
use crate::mode;
use crate::name_buf::NameBuf;
use crate::node::{Identity, Marks, Node, Parts, Place, Way};
use crate::rules::Moment;
use crate::scarce::Room;
use crate::shared::{Shared, has_descriptors_left};
use crate::view::{Seen, View};

/// What a name means now.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) stat: Stat,
    /// What makes it the same one.
    pub(crate) identity: Identity,
    fd: Option<OwnedFd>,
    /// Before which change of names it was looked for.
    pub(crate) moment: Moment,
    /// How often a file had got another place before it was looked for.
    pub(crate) switches: u64,
    /// The same folder on other branches.
    more: Vec<Found>,
    /// Whether a branch could not be asked that may have the name, too.
    is_doubtful: bool,
}

impl Found {
    fn new(stat: Stat, mount: &Mount, handle: Option<FileHandle>, fd: Option<OwnedFd>) -> Self {
        let identity = Identity::new(&stat, mount.index, handle);
        let (moment, switches) = (Moment::default(), 0);
        Self { stat, identity, fd, moment, switches, more: Vec::new(), is_doubtful: false }
    }

    /// The same, where a branch that may have another copy did not answer.
    pub(crate) fn doubted(mut self, is_doubtful: bool) -> Self {
        self.is_doubtful |= is_doubtful;
        self
    }

    /// Where it is. Without a handle the descriptor is the only way there.
    pub(crate) fn into_places(self) -> Vec<Place> {
        let more = self.more.into_iter().flat_map(Self::into_places);
        let place = Place::new(self.identity);
        if let Some(fd) = self.fd.filter(|_| place.handle().is_none()) {
            drop(place.keep(Arc::new(LowerFile::new(fd))));
        }
        std::iter::once(place).chain(more).collect()
    }

    /// An `O_PATH` descriptor of it.
    ///
    /// # Errors
    /// ESTALE where it is gone, EMFILE at the descriptor limit.
    pub(crate) fn open(&self, shared: &Shared) -> Result<LowerFile> {
        let opened = match (&self.fd, &self.identity.handle) {
            (Some(fd), _) => shared.opening(|| reopen(fd, mode::O_PATH)),
            (None, Some(handle)) => {
                let mount = shared.mount(self.identity.mount);
                shared.opening(|| mount.open(handle))
            }
            (None, None) => Err(Errno::STALE),
        };
        opened.map(LowerFile::new)
    }

    /// By which of a folder's places it is numbered. Where handles last that is the one that was made first, as far as file systems tell: it
    /// stays so when the folder comes to further branches, and when branches come in another order. Else it is where the folder is shown.
    pub(crate) fn lead(&self, shared: &Shared) -> Lead {
        let lasts = shared.options.handles;
        let age = |one: &&Self| {
            let made = one.stat.btime.map_or((i64::MAX, u32::MAX), |time| (time.secs, time.nanos));
            (made, shared.branch(one.identity.mount).key())
        };
        let eldest = self.more.iter().chain([self]).filter(|_| lasts).min_by_key(age).unwrap_or(self);
        let (stat, identity) = (&eldest.stat, &eldest.identity);
        let branch = shared.branch(identity.mount);
        let generation = || branch.lasting()?.generation(identity.handle.as_ref()?);
        Lead {
            ino: branch.shown_ino(stat.ino, stat.dev),
            wish: shared.lasting_number(identity, View::WHOLE).filter(|_| lasts),
            generation: generation(),
        }
    }

    /// Refuses what would be reached by a descriptor alone, if only the last ones are left.
    ///
    /// # Errors
    /// EMFILE.
    pub(crate) fn check_room(&self, shared: &Shared) -> Result<()> {
        let needed = self.fd.as_ref().filter(|_| self.identity.handle.is_none());
        let is_last = |fd: &OwnedFd| shared.scarce.is_last(fd, Room::Stays);
        if needed.is_some_and(is_last) && shared.table.peek(&self.identity).is_empty() {
            return Err(Errno::MFILE);
        }
        Ok(())
    }

    /// The same, without holding what was found.
    pub(crate) fn without_descriptor(self) -> Self {
        Self { fd: None, ..self }
    }
}

/// What a folder of a merge is numbered by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lead {
    /// The inode number that it is shown with.
    pub(crate) ino: u64,
    /// The number that it is found by in another mount, and the generation of that.
    wish: Option<NodeId>,
    generation: Option<Generation>,
}

/// Finds out what a name means: on whatever branch of a merge the folder is.
///
/// # Errors
/// Those of looking; ENOENT where there is nothing.
pub(crate) fn find(shared: &Shared, spot: Spot<'_>) -> Result<Found> {
    let (Some(merge), Some(parts)) = (&shared.merge, spot.folder.parts()) else {
        return find_at(shared, spot);
    };
    loop {
        let switches = shared.switches(spot)?;
        match find_in_merge(shared, merge, spot, parts) {
            // It may have come to a branch after that was asked, and have gone from another one before.
            Err(Errno::NOENT) if shared.has_switched(switches) => {}
            found => return found.map(|found| Found { switches, ..found }),
        }
    }
}

/// Finds out what a name means on the branch of the spot.
pub(crate) fn find_at(shared: &Shared, spot: Spot<'_>) -> Result<Found> {
    let (dir, name) = (spot.dir, spot.c_name());
    let moment = shared.rules.as_ref().map(|engine| engine.paths.moment()).unwrap_or_default();
    let switches = shared.switches(spot)?;
    let mount = shared.mount(spot.mount);
    if mount.has_handles()
        && let Some(found) = find_by_handle(mount, dir, name)?
        && !shared.table.must_hold(&found.identity)
    {
        return Ok(Found { moment, switches, ..found });
    }
    let fd = shared.opening(|| open_path_at(dir, name))?;
    by_descriptor(shared.branch(spot.mount), fd).map(|found| Found { moment, switches, ..found })
}

/// Finds out what a name means in a folder of a branch that need not be known to anybody.
pub(crate) fn find_below(shared: &Shared, branch: &Branch, dir: &LowerFile, name: &CStr) -> Result<Found> {
    let mount = branch.mounts.own();
    if mount.has_handles()
        && let Some(found) = find_by_handle(mount, dir, name)?
    {
        return Ok(found);
    }
    by_descriptor(branch, shared.opening(|| open_path_at(dir, name))?)
}

/// Asks the branches that have the folder, in their order. What cannot be asked does not exist, if another one has the name, and the
/// kernel is to keep nothing of it; else nobody knows.
fn find_in_merge(shared: &Shared, merge: &Merge, spot: Spot<'_>, parts: &Parts) -> Result<Found> {
    let look = |place: &Place| -> Result<Found> {
        let branch = shared.branch(place.mount());
        let found = branch.pulse.time(|| -> Result<Found> {
            let dir = &*shared.descriptor_at(spot.folder, place)?;
            find_at(shared, Spot { mount: place.mount(), dir, ..spot })
        });
        found.inspect_err(|error| branch.health.failed(*error))
    };
    if let Some(place) = merge.hint(shared, spot).and_then(|branch| parts.on(branch))
        && let Ok(found) = look(&place)
        && !found.stat.is_dir()
    {
        return Ok(found);
    }
    // Of before the first look: what is shown hangs on what the others have.
    let moment = shared.rules.as_ref().map(|engine| engine.paths.moment()).unwrap_or_default();
    // Before the look where the folder is: branches may change meanwhile.
    let round = merge.hint_round();
    let (mut found, mut failed) = (Vec::<Found>::new(), None);
    for (rank, place) in parts.all().iter().enumerate() {
        match look(place) {
            Ok(first) if found.is_empty() && !first.stat.is_dir() && merge.shows_first() => {
                // A branch before it that failed may have the name, too.
                let is_doubtful = is_doubtful(merge, spot, failed);
                if rank > 0 && !is_doubtful {
                    merge.note_hint(shared, spot, place.mount().branch, round);
                }
                return Ok(Found { is_doubtful, moment, ..first });
            }
            Ok(one) => found.push(one),
            Err(Errno::NOENT) => {}
            Err(Errno::STALE) if shared.leaves(spot.folder, place) => {}
            Err(error) => {
                failed.get_or_insert(error);
            }
        }
    }
    if found.is_empty() {
        return Err(failed.unwrap_or(Errno::NOENT));
    }
    let stats: Vec<_> = found.iter().map(|one| (one.identity.mount, one.stat)).collect();
    let shown = merge.shown(shared, &stats);
    let mut shown = found.swap_remove(shown);
    shown.is_doubtful = is_doubtful(merge, spot, failed);
    shown.moment = moment;
    if shown.stat.is_dir() {
        shown.more = found.into_iter().filter(|other| other.stat.is_dir()).collect();
    }
    Ok(shown)
}

/// What a name means on each branch that has it: one thing at most, where there is one branch.
///
/// # Errors
/// Those of looking, of any branch: what is about to change must be known. That there is nothing is no error.
pub(crate) fn copies(shared: &Shared, spot: Spot<'_>) -> Result<Vec<Found>> {
    let look = |spot: Spot<'_>| match find_at(shared, spot) {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    };
    let Some(parts) = spot.folder.parts() else { return Ok(Vec::from_iter(look(spot)?)) };
    let mut copies = Vec::new();
    for place in parts.all() {
        let dir = &*shared.descriptor_at(spot.folder, &place)?;
        copies.extend(look(Spot { mount: place.mount(), dir, ..spot })?);
    }
    Ok(copies)
}

/// Whether a branch may have the name that was not asked, or has not answered.
fn is_doubtful(merge: &Merge, spot: Spot<'_>, failed: Option<Errno>) -> bool {
    failed.is_some() || spot.folder.has(Marks::DOUBTFUL) || merge.doubts_names()
}

/// `None` where the quick way does not tell for sure.
fn find_by_handle(mount: &Mount, dir: &LowerFile, name: &CStr) -> Result<Option<Found>> {
    let (handle, mount_id) = match handle_at(dir, name) {
        Ok(found) => found,
        Err(error @ (OsError::NOENT | OsError::NAMETOOLONG | OsError::NOTDIR | OsError::STALE)) => {
            return Err(errno(error));
        }
        Err(_) => return Ok(None),
    };
    if u64::try_from(mount_id) != Ok(mount.id) {
        return Ok(None);
    }
    let Some(ino) = handle.inode(mount.magic) else { return Ok(None) };
    let stat = stat_at(dir, name).map_err(errno)?;
    let same = stat.ino == ino && stat.mnt_id.is_none_or(|id| id == mount.id);
    Ok(same.then(|| Found::new(stat, mount, Some(handle), None)))
}

/// What an `O_PATH` descriptor of something in a branch holds.
pub(crate) fn by_descriptor(branch: &Branch, fd: OwnedFd) -> Result<Found> {
    // The handle comes first, because it tells the mount without asking the file system there, which may be the
    // one that this process serves.
    let (handle, noted) = match handle_of(&fd) {
        Ok((handle, id)) => {
            let id = u64::try_from(id).map_err(|_| Errno::IO)?;
            let own = branch.mounts.own();
            if id != own.id {
                touches_below(own.index.branch);
            }
            (Some(handle), Some(branch.mounts.find_or_note(id, &fd)?))
        }
        Err(_) => (None, None),
    };
    let stat = stat_of(&fd).map_err(errno)?;
    let mount = match noted {
        Some(mount) => mount,
        None => branch.mounts.find_or_note(stat.mnt_id.unwrap_or(branch.mounts.own().id), &fd)?,
    };
    branch.lane.heed(mount);
    let handle = handle.filter(|_| mount.has_handles());
    Ok(Found::new(stat, mount, handle, Some(fd)))
}

/// A file that was just made, with a descriptor that will do as the node's own: it holds no right to write.
pub(crate) fn made(shared: &Shared, on: MountIndex, fd: OwnedFd) -> Result<Found> {
    let stat = stat_of(&fd).map_err(errno)?;
    let mount = shared.mount(on);
    let handle = if mount.has_handles() { Some(handle_of(&fd).map_err(errno)?.0) } else { None };
    Ok(Found::new(stat, mount, handle, Some(fd)))
}

/// The node of what was found, as it is seen, with its lookup count raised, and its attributes.
pub(crate) fn obtain(shared: &Shared, found: Found, seen: Seen) -> (Arc<Node>, Stat) {
    let Found { stat, identity, fd, .. } = found;
    let mut fd = fd.map(|fd| Arc::new(LowerFile::new(fd)));
    let must_hold = shared.table.must_hold(&identity) && fd.as_deref().is_some_and(has_descriptors_left);
    let by_handle = identity.handle.is_some() && !must_hold;
    let key = fd.as_ref().map(|_| identity.clone());
    let wish = shared.lasting_number(&identity, seen.view);
    let (node, _) = shared.table.obtain(identity, seen.view, wish, |id, identity| {
        let node = Node::new(id, identity, seen.view, stat.mode);
        if !by_handle && let Some(fd) = fd.take() {
            // Without a handle this descriptor is the only way to the inode, and what keeps its number its own.
            node.mark(Marks::KEPT_OPEN);
            node.pin(fd);
        }
        node
    });
    // It may have been moved to another branch since it was found.
    let place = node.place();
    if by_handle && let Some(fd) = fd.filter(|_| key.as_ref() == Some(place.inode())) {
        drop(shared.adopt(&node, place, fd));
    }
    if seen.varies {
        node.mark(Marks::VARIES);
    }
    (node, stat)
}

/// The same of what was found by a name: a folder of a merge is the same one by that.
pub(crate) fn obtain_by(shared: &Shared, spot: Spot<'_>, found: Found, seen: Seen) -> (Arc<Node>, Stat) {
    match &shared.merge {
        Some(merge) if found.stat.is_dir() => {
            let (node, stat) = obtain_folder(shared, merge, spot, found);
            if seen.varies {
                node.mark(Marks::VARIES);
            }
            (node, stat)
        }
        Some(merge) => {
            let is_doubtful = found.is_doubtful;
            let (node, stat) = obtain(shared, found, seen);
            node.doubt(is_doubtful);
            merge.note_name(spot, node.id, &stat);
            (node, stat)
        }
        None => obtain(shared, found, seen),
    }
}

fn obtain_folder(shared: &Shared, merge: &Merge, spot: Spot<'_>, found: Found) -> (Arc<Node>, Stat) {
    let (stat, mount, is_doubtful) = (found.stat, found.identity.mount, found.is_doubtful);
    let way: Way = (spot.folder.id, spot.c_name().into());
    let lead = found.lead(shared);
    let mut places = Some(found.into_places());
    let node = merge.folders.obtain(&shared.table, way.clone(), lead.wish, |id, key| {
        let generation = lead.generation.filter(|_| lead.wish == Some(id));
        let parts = Parts::new(lead.ino, Vec::new(), mount.branch, Some(way)).with_generation(generation);
        parts.found(places.take().unwrap_or_default(), mount.branch, false, &shared.branches.order());
        Node::folder(id, key, stat.mode, parts)
    });
    if let (Some(parts), Some(places)) = (node.parts(), places) {
        parts.found(places, mount.branch, is_doubtful, &shared.branches.order());
        node.unmark(Marks::UNSEEN);
    }
    folder_is_there(shared, merge, &node, is_doubtful);
    (node, stat)
}

/// A folder was looked for.
fn folder_is_there(shared: &Shared, merge: &Merge, node: &Node, is_doubtful: bool) {
    if let Some(parts) = node.parts().filter(|_| merge.has_aside()) {
        // It was looked for, and then its branch was set aside.
        let order = shared.branches.order();
        let aside = order.iter().filter(|number| shared.branches.at(**number).health.is_aside());
        aside.for_each(|number| parts.set_aside(*number));
    }
    node.doubt(is_doubtful);
    if is_doubtful {
        // What the kernel keeps may be of a branch that does not answer now.
        shared.doubt_attributes(node.id);
    }
}

/// Looks for a folder of a merge that a predecessor knew, by its name in the folder around it, whose places are known.
///
/// # Errors
/// ESTALE where it no longer exists, and those of looking.
pub(crate) fn see_folder(shared: &Shared, merge: &Merge, node: &Node) -> Result<()> {
    let parts = node.parts().ok_or(Errno::NOTDIR)?;
    let (outer, name) = parts.way().ok_or(Errno::STALE)?;
    let outer = shared.folder(outer)?;
    let name = NameBuf::new(Name::new(&name).ok_or(Errno::INVAL)?)?;
    let found = match find(shared, outer.spot(&name)) {
        Ok(found) if found.stat.is_dir() => found,
        Ok(_) | Err(Errno::NOENT) => return Err(Errno::STALE),
        Err(error) => return Err(error),
    };
    let (stat, mount, is_doubtful) = (found.stat, found.identity.mount, found.is_doubtful);
    parts.found(found.into_places(), mount.branch, is_doubtful, &shared.branches.order());
    node.saw(&stat);
    node.unmark(Marks::UNSEEN);
    folder_is_there(shared, merge, node, is_doubtful);
    Ok(())
}

/// The nodes that a name means, one for each view that the kernel knows, and in a merge one for each file and the folder. Nothing
/// is counted as a lookup.
///
/// # Errors
/// Those of looking: then nobody knows who loses a name. That there is none is no error.
pub(crate) fn known(shared: &Shared, spot: Spot<'_>) -> Result<Vec<Arc<Node>>> {
    let (Some(merge), Some(parts)) = (&shared.merge, spot.folder.parts()) else {
        return known_at(shared, spot);
    };
    let mut nodes = Vec::from_iter(merge.folder(shared, spot.folder.id, spot.c_name()));
    for place in parts.all() {
        let dir = match shared.descriptor_at(spot.folder, &place) {
            Err(Errno::STALE) if shared.leaves(spot.folder, &place) => continue,
            dir => dir?,
        };
        let here = known_at(shared, Spot { mount: place.mount(), dir: &dir, ..spot })?;
        nodes.extend(here.into_iter().filter(|node| node.parts().is_none()));
    }
    Ok(nodes)
}

/// One lower call where handles tell inode numbers.
fn known_at(shared: &Shared, spot: Spot<'_>) -> Result<Vec<Arc<Node>>> {
    let (dir, name) = (spot.dir, spot.c_name());
    let mount = shared.mount(spot.mount);
    if mount.has_handles()
        && let Ok((handle, id)) = handle_at(dir, name)
        && u64::try_from(id) == Ok(mount.id)
        && let Some(ino) = handle.inode(mount.magic)
    {
        return Ok(shared.table.peek(&Identity::of_handle(ino, mount.index, handle)));
    }
    match find_at(shared, spot) {
        Ok(found) => Ok(shared.table.peek(&found.identity)),
        Err(Errno::NOENT) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The inode number of a folder of a merge, for a listing that does not look its names up: `None` where that says it itself, because no
/// handle goes by it, and for what is no folder.
pub(crate) fn folder_ino(shared: &Shared, spot: Spot<'_>) -> Option<u64> {
    let merge = shared.merge.as_ref().filter(|_| shared.options.handles)?;
    if let Some(node) = merge.folder(shared, spot.folder.id, spot.c_name()) {
        return node.parts().map(|parts| shared.folder_ino(&node, parts));
    }
    let found = find(shared, spot).ok().filter(|found| found.stat.is_dir())?;
    Some(found.lead(shared).ino)
}

/// Notes that a node was made through this mount.
pub(crate) fn is_new(shared: &Shared, node: &Node) {
    if shared.is_ours_alone() {
        node.mark(Marks::NO_CAPABILITY);
    }
}
