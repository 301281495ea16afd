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
use crate::rules;
use crate::shared::Shared;
use crate::who::Who;

/// UNLINK: one lower call, and one to see whose name it is.
pub(crate) fn unlink(shared: &Shared, who: Who, parent: NodeId, name: &NameBuf) -> Result<()> {
    shared.check_writable()?;
    let (folder, dir) = shared.folder(parent)?;
    rules::check_remove(shared, who, &folder, &dir, name)?;
    let removal = Removal::begin(shared, &folder, &dir, name)?;
    unlink_at(&dir, name.as_c_str()).map_err(errno)?;
    rules::note_removed(shared, parent, name, &removal.nodes);
    Ok(())
}

/// RMDIR. A folder that somebody works in stays reachable, as below.
pub(crate) fn rmdir(shared: &Shared, who: Who, parent: NodeId, name: &NameBuf) -> Result<()> {
    shared.check_writable()?;
    let (folder, dir) = shared.folder(parent)?;
    rules::check_remove(shared, who, &folder, &dir, name)?;
    let _removal = Removal::begin(shared, &folder, &dir, name)?;
    rmdir_at(&dir, name.as_c_str()).map_err(errno)
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
    let (from_folder, from_dir) = shared.folder(from.parent)?;
    let (to_folder, to_dir) = shared.folder(to.parent)?;
    let ends = (
        rules::End { folder: &from_folder, dir: &from_dir, name: from.name },
        rules::End { folder: &to_folder, dir: &to_dir, name: to.name },
    );
    rules::check_rename(shared, who, ends.0, ends.1, flags)?;
    let moving = rules::Moving::begin(shared, ends.0, ends.1, flags);
    let replaces = flags & (mode::RENAME_EXCHANGE | mode::RENAME_NOREPLACE) == 0;
    let _removal = if replaces { Some(Removal::begin(shared, &to_folder, &to_dir, to.name)?) } else { None };
    let rename = || rename_at(&from_dir, from.name.as_c_str(), &to_dir, to.name.as_c_str(), flags);
    // A whiteout is a new inode, and the caller's.
    let renamed = if flags & mode::RENAME_WHITEOUT != 0 { who.create(0, 0, rename) } else { rename() };
    renamed.map_err(errno)?;
    moving.done();
    Ok(())
}

/// A node that the kernel knows, about to lose a name. If somebody may still use it without a name, its inode is held:
/// files that are open, and folders always, because a working folder is not open.
///
/// What is not open is not held, so that its space is free when the call returns. (The price: a descriptor that
/// a caller opened with `O_PATH` cannot be asked for attributes once its file is gone.)
struct Removal<'s> {
    shared: &'s Shared,
    /// One for each view.
    nodes: Vec<Arc<Node>>,
}

impl<'s> Removal<'s> {
    fn begin(shared: &'s Shared, folder: &Node, dir: &LowerFile, name: &NameBuf) -> Result<Self> {
        let nodes = find::known(shared, folder, dir, name.as_c_str());
        // Before the look at the opens: whoever opens from now on sees it.
        nodes.iter().for_each(|node| node.removing());
        let removal = Self { shared, nodes };
        for node in removal.nodes.iter().filter(|node| node.opens() > 0 || node.is_dir()) {
            shared.parked.forget(node.id);
            match file::hold(shared, node) {
                // It is gone already; the caller will hear so.
                Err(Errno::STALE) => {}
                outcome => outcome?,
            }
        }
        Ok(removal)
    }
}

impl Drop for Removal<'_> {
    fn drop(&mut self) {
        for node in &self.nodes {
            if node.has(Marks::PINNED) {
                node.removed();
                settle(self.shared, node);
            } else {
                // In this order, so that an open sees one or the other.
                node.mark(Marks::UNLINKED);
                node.removed();
                // A cached descriptor would keep the space of a file that nobody uses any more.
                drop(node.drop_descriptor());
            }
        }
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
    // Whoever removes the last name now, or has done so meanwhile, may have relied on the pin; `held` has kept the inode.
    if node.is_losing_a_name() || !has_name() {
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
