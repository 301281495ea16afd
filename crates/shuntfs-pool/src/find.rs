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

use shuntfs::{Errno, LowerFile, Result};
use shuntfs_sys::{FileHandle, OsError, Stat, handle_at, handle_of, open_path_at, stat_at, stat_of};

use crate::branch::{Branch, Mount};
use crate::error::errno;
use crate::node::{Identity, Marks, Node};
use crate::rules::Moment;
use crate::shared::Shared;
use crate::view::Seen;

/// What a name means now.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) stat: Stat,
    /// What makes it the same one.
    pub(crate) identity: Identity,
    fd: Option<OwnedFd>,
    /// Before which change of names it was looked for.
    pub(crate) moment: Moment,
}

impl Found {
    fn new(stat: Stat, mount: &Mount, handle: Option<FileHandle>, fd: Option<OwnedFd>) -> Self {
        let identity = Identity::new(&stat, mount.index, handle);
        Self { stat, identity, fd, moment: Moment::default() }
    }

    /// The same, without holding what was found.
    pub(crate) fn without_descriptor(self) -> Self {
        Self { fd: None, ..self }
    }
}

/// Finds out what `name` in the folder means.
pub(crate) fn find(shared: &Shared, parent: &Node, dir: &LowerFile, name: &CStr) -> Result<Found> {
    let moment = shared.rules.as_ref().map(|engine| engine.paths.moment()).unwrap_or_default();
    let mount = shared.mount(parent.place.mount());
    if mount.has_handles()
        && let Some(found) = find_by_handle(mount, dir, name)?
    {
        return Ok(Found { moment, ..found });
    }
    let fd = shared.opening(|| open_path_at(dir, name))?;
    by_descriptor(shared.branch(parent.place.mount()), fd).map(|found| Found { moment, ..found })
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
pub(crate) fn made(shared: &Shared, parent: &Node, fd: OwnedFd) -> Result<Found> {
    let stat = stat_of(&fd).map_err(errno)?;
    let mount = shared.mount(parent.place.mount());
    let handle = if mount.has_handles() { Some(handle_of(&fd).map_err(errno)?.0) } else { None };
    Ok(Found::new(stat, mount, handle, Some(fd)))
}

/// The node of what was found, as it is seen, with its lookup count raised, and its attributes.
pub(crate) fn obtain(shared: &Shared, found: Found, seen: Seen) -> (Arc<Node>, Stat) {
    let Found { stat, identity, fd, moment: _ } = found;
    let mut fd = fd.map(|fd| Arc::new(LowerFile::new(fd)));
    let by_handle = identity.handle.is_some();
    let wish = shared.lasting_number(&identity, seen.view);
    let (node, _) = shared.table.obtain(identity, seen.view, wish, |id, identity| {
        let node = Node::new(id, identity, seen.view, stat.mode);
        if !by_handle && let Some(fd) = fd.take() {
            // Without a handle this descriptor is the only way to the inode, and what keeps its number its own.
            node.pin(fd);
        }
        node
    });
    if by_handle && let Some(fd) = fd {
        drop(shared.adopt(&node, fd));
    }
    if seen.varies {
        node.mark(Marks::VARIES);
    }
    (node, stat)
}

/// The nodes that a name means, one for each view that the kernel knows: one lower call where handles tell inode
/// numbers. Nothing is counted as a lookup.
///
/// # Errors
/// Those of looking: then nobody knows who loses a name. That there is none is no error.
pub(crate) fn known(shared: &Shared, parent: &Node, dir: &LowerFile, name: &CStr) -> Result<Vec<Arc<Node>>> {
    let mount = shared.mount(parent.place.mount());
    if mount.has_handles()
        && let Ok((handle, id)) = handle_at(dir, name)
        && u64::try_from(id) == Ok(mount.id)
        && let Some(ino) = handle.inode(mount.magic)
    {
        return Ok(shared.table.peek(&Identity::of_handle(ino, mount.index, handle)));
    }
    match find(shared, parent, dir, name) {
        Ok(found) => Ok(shared.table.peek(&found.identity)),
        Err(Errno::NOENT) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Notes that a node was made through this mount.
pub(crate) fn is_new(shared: &Shared, node: &Node) {
    if shared.is_ours_alone() {
        node.mark(Marks::NO_CAPABILITY);
    }
}
