//! Folders of a merge that are asked for by number, or as the folder around another one.
//!
//! A folder of a merge is the same one by its name, on all branches that have it. So its number leads to it on one branch, the path that it has there
//! leads to it in the mount, and it is the one that was asked for if a lookup by that path gives its number. Whatever comes between is
//! seen by that.

use std::ffi::CString;
use std::sync::Arc;

use shuntfs::{Entry, Errno, LookupCount, LowerFile, Name, NodeId, Result};
use shuntfs_sys::{Stat, path_of, stat_of};

use super::by_number::only;
use crate::branch::Branch;
use crate::error::errno;
use crate::find::{self, Found};
use crate::merge;
use crate::name_buf::NameBuf;
use crate::node::{Node, Parts};
use crate::shared::{Folder, Shared};
use crate::view::Seen;

/// How often a folder is looked for whose path is another one each time.
const RACES_MAX: usize = 8;

/// The folder that is here on a branch, if it has this number.
///
/// # Errors
/// ESTALE where it has not, and where it is not shown; those of looking its path up.
pub(super) fn folder(shared: &Shared, branch: &Branch, found: &Found, id: NodeId) -> Result<Entry> {
    let held = found.open(shared)?;
    following(branch, &held, |names| only(shared, walk(shared, names)?, id))
}

/// The folder around another one, which is here on a branch.
///
/// # Errors
/// As [`folder`].
pub(super) fn parent(shared: &Shared, branch: &Branch, inner: &Folder) -> Result<Entry> {
    following(branch, &inner.descriptor, |names| {
        let (_, around) = names.split_last().ok_or(Errno::STALE)?;
        let (id, _) = inner.node.parts().and_then(Parts::way).ok_or(Errno::STALE)?;
        if !around.is_empty() {
            return only(shared, walk(shared, around)?, id);
        }
        if id != NodeId::ROOT {
            return Err(Errno::STALE);
        }
        let stat = stat_of(shared.descriptor(&shared.root)?).map_err(errno)?;
        Ok(shared.entry(&shared.root, &stat))
    })
}

/// Does something with the names that lead to a folder from the top of a branch; again where they have changed meanwhile and lead to it no
/// more.
fn following(branch: &Branch, held: &LowerFile, act: impl Fn(&[CString]) -> Result<Entry>) -> Result<Entry> {
    for _ in 0..RACES_MAX {
        let before = path_of(held).map_err(|_| Errno::STALE)?;
        let names = merge::names_below(branch, held).map_err(|_| Errno::STALE)?.ok_or(Errno::STALE)?;
        match act(&names) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::STALE) => {}
            outcome => return outcome,
        }
        if path_of(held) == Ok(before) {
            break;
        }
    }
    Err(Errno::STALE)
}

/// Folders that were looked up on the way, which the kernel does not hear of.
struct Passed<'s> {
    shared: &'s Shared,
    ids: Vec<NodeId>,
}

impl Drop for Passed<'_> {
    fn drop(&mut self) {
        self.ids.iter().for_each(|id| self.shared.forget(*id, LookupCount(1)));
    }
}

/// The folder that these names lead to from the root on, on whatever branches it is, its lookup count raised by one.
fn walk(shared: &Shared, names: &[CString]) -> Result<(Arc<Node>, Stat)> {
    let mut passed = Passed { shared, ids: Vec::with_capacity(names.len()) };
    let (mut here, mut last) = (NodeId::ROOT, None);
    for name in names {
        let name = NameBuf::new(Name::new(name).ok_or(Errno::INVAL)?)?;
        if merge::is_reserved(shared, here, &name) {
            return Err(Errno::STALE);
        }
        let folder = shared.folder(here)?;
        let spot = folder.spot(&name);
        let found = find::find(shared, spot)?;
        if !found.stat.is_dir() {
            return Err(Errno::NOTDIR);
        }
        let (node, stat) = find::obtain_by(shared, spot, found, Seen::ALL);
        here = node.id;
        passed.ids.push(here);
        last = Some((node, stat));
    }
    passed.ids.pop();
    last.ok_or(Errno::STALE)
}
