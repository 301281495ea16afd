//! Attributes: reading them, changing them, and the file system's own.

use std::sync::Arc;

use shuntfs::{AttrReply, Birth, Errno, LowerFile, NodeId, Result, SetAttr, Statfs, Timestamp};
use shuntfs_sys::{Stat, filesystem_of, stat_of};

use crate::error::errno;
use crate::guard::{AttributesChange, ContentCut, Guard, Limits, PrivilegesGo};
use crate::merge;
use crate::mode;
use crate::node::Node;
use crate::shared::Shared;
use crate::who::Who;

/// Bits of `STATX_ATTR_*` that tell about a place in a tree of mounts, which is not that of the lower file.
const MOUNT_ROOT: u64 = 0x2000;

/// GETATTR: one lower call where the descriptor is cached.
pub(crate) fn getattr(shared: &Shared, id: NodeId) -> Result<AttrReply> {
    if let Some(merge) = shared.controls(id) {
        return Ok(merge.control.attr(shared));
    }
    let node = shared.node(id)?;
    let stat = stat(shared, &node)?;
    Ok(shared.attr_reply(&node, &stat))
}

/// What a node is like now. A folder of a merge that was removed below where it was shown is shown in another of its places.
fn stat(shared: &Shared, node: &Arc<Node>) -> Result<Stat> {
    loop {
        let stat = stat_of(shared.descriptor(node)?).map_err(errno)?;
        if stat.nlink > 0 || !shared.leaves_any(node) {
            return Ok(stat);
        }
    }
}

/// ACCESS, which comes where the kernel checks nothing: what is forbidden to those who may do everything.
pub(crate) fn access(shared: &Shared, id: NodeId, mask: u32) -> Result<()> {
    let runs = if shared.controls(id).is_some() {
        false
    } else {
        let stat = stat_of(shared.descriptor(&shared.node(id)?)?).map_err(errno)?;
        stat.is_dir() || stat.mode & mode::EXEC != 0
    };
    if mask & mode::X_OK != 0 && !runs { Err(Errno::ACCES) } else { Ok(()) }
}

/// STATX.
pub(crate) fn statx(shared: &Shared, id: NodeId) -> Result<(AttrReply, Birth)> {
    if let Some(merge) = shared.controls(id) {
        return Ok((merge.control.attr(shared), Birth::default()));
    }
    let node = shared.node(id)?;
    let stat = stat(shared, &node)?;
    let birth = Birth {
        btime: stat.btime.map(|time| Timestamp { secs: time.secs, nanos: time.nanos }),
        attributes: stat.attributes & !MOUNT_ROOT,
        attributes_mask: stat.attributes_mask & !MOUNT_ROOT,
    };
    Ok((shared.attr_reply(&node, &stat), birth))
}

/// SETATTR. `by` is what may change by the open file that it came through, and `writable` its lower file where that may write.
pub(crate) fn setattr(
    shared: &Shared,
    who: Who,
    id: NodeId,
    (by, writable): (Option<Limits>, Option<Arc<LowerFile>>),
    set: SetAttr,
) -> Result<AttrReply> {
    let node = &shared.node(id)?;
    let guard = Guard::new(shared, who);
    let names_nothing = SetAttr { kill_priv: false, ..set } == SetAttr::default();
    let attributes = SetAttr { kill_priv: false, size: None, ..set };
    // Everything is judged before anything is done.
    let strip = names_nothing.then(|| guard.judge(PrivilegesGo { node })).transpose()?;
    let cut = set.size.map(|len| guard.judge(ContentCut { node, by, len })).transpose()?;
    let change = (attributes != SetAttr::default()).then(|| guard.judge(AttributesChange { node, set }));
    let change = change.transpose()?;
    let change = || -> Result<Stat> {
        if let Some(strip) = strip {
            strip.strip(shared)?;
        }
        if let Some(cut) = cut {
            cut.cut(shared, writable, &set)?;
        }
        if let Some(change) = change {
            change.set(shared)?;
        }
        stat(shared, node)
    };
    let changed = change();
    if changed.is_err() {
        // Some of it may have been done.
        shared.doubt_attributes(id);
    }
    changed.map(|stat| shared.attr_reply(node, &stat))
}

/// STATFS.
pub(crate) fn statfs(shared: &Shared, id: NodeId) -> Result<Statfs> {
    if shared.merge.is_some() {
        return merge::statfs(shared);
    }
    let node: Arc<Node> = shared.node(id)?;
    let descriptor = shared.descriptor(&node)?;
    let below = filesystem_of(&descriptor).map_err(errno)?;
    Ok(Statfs {
        blocks: below.blocks,
        bfree: below.bfree,
        bavail: below.bavail,
        files: below.files,
        ffree: below.ffree,
        bsize: below.bsize,
        namelen: below.namelen,
        frsize: below.frsize,
    })
}
