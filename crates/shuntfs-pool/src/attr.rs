//! Attributes: reading them, changing them, and the file system's own.

use std::sync::Arc;

use shuntfs::{AttrReply, Birth, Errno, LowerFile, NodeId, Result, SetAttr, SetTime, Statfs, Timestamp};
use shuntfs_sys::{
    OsError, TimeSet, chmod, chown, filesystem_of, remove_xattr, set_times, stat_of, truncate,
};

use crate::error::errno;
use crate::mode;
use crate::node::Node;
use crate::shared::Shared;
use crate::who::{Who, keeping_set_ids};

/// Bits of `STATX_ATTR_*` that tell about a place in a tree of mounts, which is not that of the lower file.
const MOUNT_ROOT: u64 = 0x2000;

/// GETATTR: one lower call where the descriptor is cached.
pub(crate) fn getattr(shared: &Shared, id: NodeId) -> Result<AttrReply> {
    let node = shared.node(id)?;
    let descriptor = shared.descriptor(&node)?;
    let stat = stat_of(&descriptor).map_err(errno)?;
    Ok(shared.attr_reply(&node, &stat))
}

/// STATX.
pub(crate) fn statx(shared: &Shared, id: NodeId) -> Result<(AttrReply, Birth)> {
    let node = shared.node(id)?;
    let descriptor = shared.descriptor(&node)?;
    let stat = stat_of(&descriptor).map_err(errno)?;
    let birth = Birth {
        btime: stat.btime.map(|time| Timestamp { secs: time.secs, nanos: time.nanos }),
        attributes: stat.attributes & !MOUNT_ROOT,
        attributes_mask: stat.attributes_mask & !MOUNT_ROOT,
    };
    Ok((shared.attr_reply(&node, &stat), birth))
}

/// SETATTR. `writable` is an open lower file of the caller's that may write, where there is one.
pub(crate) fn setattr(
    shared: &Shared,
    who: Who,
    id: NodeId,
    writable: Option<Arc<LowerFile>>,
    set: SetAttr,
) -> Result<AttrReply> {
    shared.check_writable()?;
    let node = shared.node(id)?;
    let descriptor = shared.descriptor(&node)?;
    let names_nothing = SetAttr { kill_priv: false, ..set } == SetAttr::default();
    if names_nothing {
        strip_privileges(who, &descriptor)?;
    }
    if let Some(len) = set.size {
        if !node.view.is_whole() {
            return Err(Errno::ACCES);
        }
        let keep = !set.kill_priv && who.keeps_set_ids() && node.has_privileges();
        match writable {
            Some(file) => keeping_set_ids(keep, || truncate(&file, len)).map_err(errno)?,
            None => {
                let file = shared.open_node(&node, mode::O_WRONLY | mode::O_NONBLOCK)?;
                keeping_set_ids(keep, || truncate(&file, len)).map_err(errno)?;
            }
        }
    }
    if set.uid.is_some() || set.gid.is_some() {
        change_owner(shared, who, &node, &descriptor, set)?;
    }
    if let Some(mode) = set.mode {
        // The kernel took the sgid bit away where the caller may not set it.
        keeping_set_ids(mode & mode::SGID != 0, || chmod(&descriptor, mode)).map_err(errno)?;
    }
    if set.atime.is_some() || set.mtime.is_some() {
        set_times(&descriptor, time_set(set.atime), time_set(set.mtime)).map_err(errno)?;
    }
    let stat = stat_of(&descriptor).map_err(errno)?;
    Ok(shared.attr_reply(&node, &stat))
}

/// Gives a file to others. That takes suid away from everything but a folder, and sgid where the group may execute;
/// elsewhere sgid stays for those who may leave it there, which the server's thread may not.
fn change_owner(shared: &Shared, who: Who, node: &Node, descriptor: &LowerFile, set: SetAttr) -> Result<()> {
    let keeps = (node.has_privileges() || !shared.is_ours_alone()) && !node.is_dir() && {
        let stat = stat_of(descriptor).map_err(errno)?;
        // Where suid goes the mode is set, and that is a matter of the new group, too.
        stat.mode & mode::SGID != 0
            && !who.drops_sgid(&stat)
            && (stat.mode & mode::SUID == 0 || who.is_trusted_by(set.gid.unwrap_or(stat.gid)))
    };
    keeping_set_ids(keeps, || chown(descriptor, set.uid, set.gid)).map_err(errno)
}

/// A SETATTR that names nothing: the kernel is about to let somebody change the file who may not leave it
/// suid, sgid or with capabilities.
fn strip_privileges(who: Who, descriptor: &LowerFile) -> Result<()> {
    let stat = stat_of(descriptor).map_err(errno)?;
    if stat.mode & mode::TYPE == mode::DIR {
        return Ok(());
    }
    let mut kept = stat.mode & !mode::SUID;
    if who.drops_sgid(&stat) {
        kept &= !mode::SGID;
    }
    if kept != stat.mode {
        keeping_set_ids(kept & mode::SGID != 0, || chmod(descriptor, kept & 0o7777)).map_err(errno)?;
    }
    match remove_xattr(descriptor, c"security.capability") {
        Ok(()) | Err(OsError::NODATA | OsError::OPNOTSUPP | OsError::NOSYS) => Ok(()),
        Err(error) => Err(errno(error)),
    }
}

fn time_set(time: Option<SetTime>) -> TimeSet {
    match time {
        None => TimeSet::Omit,
        Some(SetTime::Now) => TimeSet::Now,
        Some(SetTime::At(Timestamp { secs, nanos })) => TimeSet::At(shuntfs_sys::Time { secs, nanos }),
    }
}

/// STATFS.
pub(crate) fn statfs(shared: &Shared, id: NodeId) -> Result<Statfs> {
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
