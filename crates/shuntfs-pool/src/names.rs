//! Moving and removing names, and reading what a symlink says.

use std::sync::Arc;

use shuntfs::{Errno, LowerFile, NodeId, Result};
use shuntfs_sys::{readlink_of, rename_at, rmdir_at, stat_of, unlink_at};

use crate::error::errno;
use crate::file;
use crate::find;
use crate::mode;
use crate::name_buf::NameBuf;
use crate::node::{Marks, Node};
use crate::shared::Shared;
use crate::who::Who;

/// UNLINK: one lower call, and one to see whose name it is.
pub(crate) fn unlink(shared: &Shared, parent: NodeId, name: &NameBuf) -> Result<()> {
    shared.check_writable()?;
    let (folder, dir) = shared.folder(parent)?;
    let loser = losing_a_name(shared, &folder, &dir, name)?;
    let removed = unlink_at(&dir, name.as_c_str()).map_err(errno);
    lost_a_name(shared, loser);
    removed
}

/// RMDIR. A folder that somebody works in stays reachable, as below.
pub(crate) fn rmdir(shared: &Shared, parent: NodeId, name: &NameBuf) -> Result<()> {
    shared.check_writable()?;
    let (folder, dir) = shared.folder(parent)?;
    let loser = losing_a_name(shared, &folder, &dir, name)?;
    let removed = rmdir_at(&dir, name.as_c_str()).map_err(errno);
    lost_a_name(shared, loser);
    removed
}

/// A name and its folder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'n> {
    pub(crate) parent: NodeId,
    pub(crate) name: &'n NameBuf,
}

/// RENAME and RENAME2.
pub(crate) fn rename(shared: &Shared, who: Who, from: Place<'_>, to: Place<'_>, flags: u32) -> Result<()> {
    shared.check_writable()?;
    let (_, from_dir) = shared.folder(from.parent)?;
    let (to_folder, to_dir) = shared.folder(to.parent)?;
    let replaces = flags & (mode::RENAME_EXCHANGE | mode::RENAME_NOREPLACE) == 0;
    let loser = if replaces { losing_a_name(shared, &to_folder, &to_dir, to.name)? } else { None };
    let rename = || rename_at(&from_dir, from.name.as_c_str(), &to_dir, to.name.as_c_str(), flags);
    // A whiteout is a new inode, and the caller's.
    let renamed = if flags & mode::RENAME_WHITEOUT != 0 { who.create(0, 0, rename) } else { rename() };
    lost_a_name(shared, loser);
    renamed.map_err(errno)
}

/// The node that is about to lose this name, where the kernel knows it. If somebody may still use it without a
/// name, its inode is held: files that are open, and folders always, because a working folder is not open.
///
/// What is not open is not held, so that its space is free when the call returns. (The price: a descriptor that
/// a caller opened with `O_PATH` cannot be asked for attributes once its file is gone.)
fn losing_a_name(
    shared: &Shared,
    folder: &Node,
    dir: &LowerFile,
    name: &NameBuf,
) -> Result<Option<Arc<Node>>> {
    let Some(node) = find::known(shared, folder, dir, name.as_c_str()) else { return Ok(None) };
    node.mark(Marks::UNLINKED);
    if node.opens() > 0 || node.is_dir() {
        match file::hold(shared, &node) {
            // It is gone already; the caller will hear so.
            Err(Errno::STALE) => {}
            outcome => outcome?,
        }
    }
    Ok(Some(node))
}

/// After the name is gone, or was not to be removed.
fn lost_a_name(shared: &Shared, loser: Option<Arc<Node>>) {
    let Some(node) = loser else { return };
    if node.has(Marks::PINNED) {
        settle(shared, &node);
    } else {
        // A cached descriptor would keep the space of a file that nobody uses any more.
        drop(node.drop_descriptor());
    }
}

/// Gives the descriptor of a pinned node back to the cache, where the node has a name left: it is then reached by
/// handle as before.
pub(crate) fn settle(shared: &Shared, node: &Arc<Node>) {
    let Some(held) = node.descriptor() else { return };
    let has_name = || stat_of(&held).is_ok_and(|stat| stat.nlink > 0);
    if !has_name() {
        return;
    }
    node.unmark(Marks::UNLINKED);
    shared.unpin(node);
    // Somebody may have removed the last name meanwhile, and relied on the pin; `held` has kept the inode.
    if !has_name() {
        node.mark(Marks::UNLINKED);
        node.pin(held);
    }
}

/// READLINK.
pub(crate) fn readlink(shared: &Shared, id: NodeId, target: &mut [u8]) -> Result<usize> {
    let node = shared.node(id)?;
    let descriptor = shared.descriptor(&node)?;
    readlink_of(&descriptor, target).map_err(errno)
}
