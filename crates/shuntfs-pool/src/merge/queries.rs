//! Questions to a merge where something is, asked as extended attributes of it.
//!
//! A folder knows its name and the folder that it is in. A file is kept by its inode alone. If it has several names, the last one is noted that it was
//! looked up by; else its name is the one that the kernel has for a descriptor of it, whose folders the mount must know. Either is trusted only if it
//! means this very file.

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path};
use std::sync::Arc;

use shuntfs::{Errno, LowerFile, Name, NodeId, Result};
use shuntfs_sys::{path_of, stat_at, stat_of};

use super::choose::chain;
use super::control;
use super::state::Merge;
use crate::branch::Branch;
use crate::error::errno;
use crate::find;
use crate::guard::Spot;
use crate::name_buf::NameBuf;
use crate::node::{Node, Parts, Way};
use crate::rules::Engine;
use crate::shared::Shared;

/// What the names of these attributes begin with.
pub(crate) const PREFIX: &[u8] = b"user.mergerfs.";

/// The answer where an attribute is a question or a setting; `None` where it is an ordinary one.
pub(crate) fn query(shared: &Shared, merge: &Merge, id: NodeId, name: &CStr) -> Option<Result<Vec<u8>>> {
    if id == control::NODE {
        return Some(control::get(shared, merge, name));
    }
    let question = name.to_bytes().strip_prefix(PREFIX)?;
    Some(shared.node(id).and_then(|node| answer(shared, merge, &node, question)))
}

/// # Errors
/// ENODATA where nothing is asked that there is an answer to. ESTALE where the name is not known: the kernel then looks the path up once more and
/// asks again. ENOENT for a file without a name.
fn answer(shared: &Shared, merge: &Merge, node: &Arc<Node>, question: &[u8]) -> Result<Vec<u8>> {
    let base = || shared.branch(node.mount()).source();
    let way = || -> Result<Option<Way>> {
        let way = way_of(shared, merge, node)?;
        check_told(shared, merge, way.as_ref())?;
        Ok(way)
    };
    match question {
        b"basepath" => Ok(base().as_os_str().as_bytes().to_owned()),
        b"relpath" => relative(shared, merge, way()?.as_ref()),
        b"fullpath" => Ok(full(base(), &relative(shared, merge, way()?.as_ref())?)),
        b"allpaths" => {
            let way = way()?;
            let relative = relative(shared, merge, way.as_ref())?;
            Ok(everywhere(shared, way.as_ref(), &relative)?.join(&0))
        }
        _ => Err(Errno::NODATA),
    }
}

/// Refuses to tell a name that rules may hide from somebody: who asks has met the file by one of its names, and it may be another one.
///
/// # Errors
/// EACCES.
fn check_told(shared: &Shared, merge: &Merge, way: Option<&Way>) -> Result<()> {
    let Some(rules) = shared.rules.as_ref().map(Engine::rules).filter(|rules| rules.hides()) else {
        return Ok(());
    };
    let path = relative(shared, merge, way)?;
    let mut around = path.iter().enumerate().skip(1).filter(|(_, byte)| **byte == b'/').map(|(end, _)| end);
    let is_hidden = |end: usize| rules.possible(&path[1..end]).hide;
    if around.any(is_hidden) || is_hidden(path.len()) { Err(Errno::ACCES) } else { Ok(()) }
}

/// A path below a branch. That of the root ends with a slash, so that it is one after the other for all.
fn full(base: &Path, relative: &[u8]) -> Vec<u8> {
    [base.as_os_str().as_bytes(), relative].concat()
}

/// The path of a name from the root of the mount on, with a slash before each component.
pub(super) fn relative(shared: &Shared, merge: &Merge, way: Option<&Way>) -> Result<Vec<u8>> {
    let Some((folder, name)) = way else { return Ok(b"/".into()) };
    let mut path = Vec::new();
    for around in chain(shared, &shared.node(*folder)?)?.iter().rev() {
        let (_, name) = named(shared, merge, around)?;
        path.push(b'/');
        path.extend_from_slice(name.to_bytes());
    }
    path.push(b'/');
    path.extend_from_slice(name.to_bytes());
    Ok(path)
}

/// The way to a folder, unless it has lost its name.
fn named(shared: &Shared, merge: &Merge, folder: &Arc<Node>) -> Result<Way> {
    let (parent, name) = folder.parts().and_then(Parts::way).ok_or(Errno::STALE)?;
    let known = merge.folder(shared, parent, &name);
    if known.is_some_and(|known| Arc::ptr_eq(&known, folder)) {
        Ok((parent, name))
    } else {
        Err(Errno::STALE)
    }
}

/// The name of a node, and the folder that it is in; `None` for the root.
///
/// # Errors
/// ESTALE where that is not known, ENOENT for a file without a name.
pub(super) fn way_of(shared: &Shared, merge: &Merge, node: &Arc<Node>) -> Result<Option<Way>> {
    if node.id == NodeId::ROOT {
        return Ok(None);
    }
    if node.parts().is_some() {
        return named(shared, merge, node).map(Some);
    }
    if let Some(way) = merge.linked.of(node.id)
        && leads_to(shared, &way, node) == Ok(true)
    {
        return Ok(Some(way));
    }
    let descriptor = to_name(shared, node)?;
    match way_of_file(shared, merge, node, &descriptor)? {
        Some(way) => Ok(Some(way)),
        None if stat_of(&*descriptor).is_ok_and(|stat| stat.nlink == 0) => Err(Errno::NOENT),
        None => Err(Errno::STALE),
    }
}

/// A descriptor of a file whose name the kernel is to tell: a new one where that can be had, because one that was opened by handle when the kernel
/// had no name for the file never gets one.
fn to_name(shared: &Shared, node: &Arc<Node>) -> Result<Arc<LowerFile>> {
    let place = node.place();
    shared.reaches(place.mount())?;
    let mount = shared.mount(place.mount());
    let opened = place.handle().map(|handle| shared.opening(|| mount.open(handle)));
    match opened {
        Some(Ok(fd)) => Ok(Arc::new(LowerFile::new(fd))),
        // It has lost its last name, and not every file system finds it by its handle then.
        None | Some(Err(Errno::STALE)) => shared.descriptor(node),
        Some(Err(error)) => Err(error),
    }
}

/// The names on the way from the top of a branch to what a descriptor holds, as the kernel has them now; `None` where it knows of none. Whether
/// they lead there must be checked.
///
/// # Errors
/// ENAMETOOLONG where they are longer than 4095 bytes together, with the way to the branch.
pub(crate) fn names_below(branch: &Branch, descriptor: &LowerFile) -> Result<Option<Vec<CString>>> {
    // Both as of now: somebody may have moved the branch.
    let (path, root) = (path_of(descriptor).map_err(errno)?, path_of(&**branch.root()).map_err(errno)?);
    let Ok(inside) = path.strip_prefix(&root) else { return Ok(None) };
    let name =
        |component: Component<'_>| CString::new(component.as_os_str().as_bytes()).map_err(|_| Errno::INVAL);
    inside.components().map(name).collect::<Result<Vec<_>>>().map(Some)
}

/// The way to a file by the path that the kernel has for a descriptor of it; `None` where that does not lead to it.
fn way_of_file(shared: &Shared, merge: &Merge, node: &Node, descriptor: &LowerFile) -> Result<Option<Way>> {
    let names = names_below(shared.branch(node.mount()), descriptor)?;
    let Some((last, names)) = names.as_ref().and_then(|names| names.split_last()) else { return Ok(None) };
    let mut folder = NodeId::ROOT;
    for name in names {
        let Some(inner) = merge.folder(shared, folder, name) else { return Ok(None) };
        folder = inner.id;
    }
    let way: Way = (folder, last.as_c_str().into());
    Ok(leads_to(shared, &way, node)?.then_some(way))
}

/// Whether a file has this name on the branch that it is on.
fn leads_to(shared: &Shared, (folder, name): &Way, node: &Node) -> Result<bool> {
    let folder = shared.node(*folder)?;
    let Some(place) = folder.parts().and_then(|parts| parts.on(node.mount().branch)) else {
        return Ok(false);
    };
    let dir = shared.descriptor_at(&folder, &place)?;
    let name = NameBuf::new(Name::new(name).ok_or(Errno::INVAL)?)?;
    match find::find_at(shared, Spot { folder: &folder, mount: place.mount(), dir: &dir, name: &name }) {
        Ok(found) => Ok(found.identity == *node.key()),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The path of a name on each branch that has it, whatever it is there. A branch that does not answer is left out.
fn everywhere(shared: &Shared, way: Option<&Way>, relative: &[u8]) -> Result<Vec<Vec<u8>>> {
    let Some((folder, name)) = way else {
        return Ok(shared
            .branches
            .in_use()
            .into_iter()
            .map(|branch| full(branch.source(), relative))
            .collect());
    };
    let folder = shared.node(*folder)?;
    let mut paths = Vec::new();
    for place in folder.parts().map(Parts::all).unwrap_or_default() {
        let branch = shared.branch(place.mount()).source();
        let there = shared.descriptor_at(&folder, &place).and_then(|dir| stat_at(&*dir, name).map_err(errno));
        match there {
            Ok(_) => paths.push(full(branch, relative)),
            Err(Errno::NOENT) => {}
            Err(error) => tracing::warn!(%error, ?branch, "it is not told whether a name is there"),
        }
    }
    if paths.is_empty() { Err(Errno::STALE) } else { Ok(paths) }
}
