//! Where a node is, for people: from what is known without a call below, which may hang.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use shuntfs::{LowerFile, NodeId, NodePlace};
use shuntfs_sys::path_of;

use crate::branch::Branch;
use crate::file::PoolFile;
use crate::node::{Marks, Node};
use crate::rules::DEPTH_MAX;
use crate::shared::Shared;

/// Where a node is, by the names that are noted of it, or else by the path that the kernel has for a descriptor that is open anyway.
pub(crate) fn place_of(shared: &Shared, id: NodeId, file: Option<&PoolFile>) -> Option<NodePlace> {
    if id == NodeId::ROOT {
        return Some(NodePlace::default());
    }
    let node = shared.table.find(id).filter(|node| !node.has(Marks::UNSEEN))?;
    let branch = shared.branch(node.mount());
    let path = noted(shared, &node).or_else(|| {
        let open = file.and_then(PoolFile::held);
        below(branch, &*open.or_else(|| held(&node))?)
    })?;
    let place = NodePlace::new(path);
    Some(if shared.merge.is_some() { place.on(branch.source().as_os_str().as_bytes()) } else { place })
}

fn held(node: &Node) -> Option<Arc<LowerFile>> {
    node.parts().map_or_else(|| node.place().held(), |parts| parts.shown_if_found()?.held())
}

/// By names: rules note all of them, and a merge those of folders.
fn noted(shared: &Shared, node: &Arc<Node>) -> Option<Vec<u8>> {
    if let Some(rules) = shared.all_rules()
        && let Some(path) = rules.paths.of(node.id).into_iter().next()
    {
        return Some(path);
    }
    let mut names = Vec::new();
    let mut here = Arc::clone(node);
    while here.id != NodeId::ROOT {
        let (folder, name) = here.parts()?.way()?;
        names.push(name);
        if folder == NodeId::ROOT {
            break;
        }
        if names.len() > DEPTH_MAX {
            return None;
        }
        here = shared.table.find(folder)?;
    }
    let names: Vec<&[u8]> = names.iter().rev().map(|name| name.to_bytes()).collect();
    Some(names.join(&b'/'))
}

/// The path of a descriptor below the top of its branch, as the kernel has both now. It may be one of several names, and need not lead there
/// any more: nothing is decided by it.
fn below(branch: &Branch, descriptor: &LowerFile) -> Option<Vec<u8>> {
    let (path, root) = (path_of(descriptor).ok()?, path_of(&**branch.root()).ok()?);
    let inside = path.strip_prefix(&root).ok().filter(|inside| *inside != Path::new(""))?;
    Some(inside.as_os_str().as_bytes().to_vec())
}
