//! Changing mode, owner, times, extended attributes and inode flags.

use std::ffi::CStr;
use std::sync::Arc;

use shuntfs::{Errno, LowerFile, Result, SetAttr, SetTime, Timestamp};
use shuntfs_sys::ioctl::file_ioctl;
use shuntfs_sys::xattr::{remove_xattr, set_xattr};
use shuntfs_sys::{OsError, TimeSet, chmod, chown, set_times, stat_of};

use crate::branch::was_left;
use crate::error::errno;
use crate::guard::{AttributesChange, FlagsChange, Judged, PrivilegesGo, XattrChanges};
use crate::merge;
use crate::mode;
use crate::node::{Marks, Node, Parts};
use crate::op::ioctl::Command;
use crate::shared::Shared;
use crate::who::{Who, keeping_set_ids};

const CAPABILITY: &CStr = c"security.capability";
const ACCESS_ACL: &CStr = c"system.posix_acl_access";

impl Judged<AttributesChange<'_>> {
    /// Changes owner, mode and times.
    pub(crate) fn set(self, shared: &Shared) -> Result<()> {
        let AttributesChange { node, set } = self.change;
        let who = self.who;
        let changed = on_each(shared, node, |descriptor| change_all(shared, who, node, descriptor, set));
        changed.inspect_err(|error| merge::pass_on_of(shared, node, *error))
    }
}

/// Does something to an inode; to a folder of a merge in each of its places. What it does where the folder is shown counts; elsewhere nobody
/// sees it as long as that one is there, so a failure is no more than logged.
fn on_each(shared: &Shared, node: &Arc<Node>, act: impl Fn(&LowerFile) -> Result<()>) -> Result<()> {
    let Some(parts) = node.parts() else { return act(&*shared.descriptor(node)?) };
    let shown = parts.shown();
    act(&*shared.descriptor_at(node, &shown)?)?;
    for place in parts.all() {
        if was_left() {
            // The disk hung, and its caller was told EIO and may have changed it otherwise since.
            return Err(Errno::IO);
        }
        let branch = shared.branch(place.mount());
        if place.mount() == shown.mount() || branch.is_read_only() {
            continue;
        }
        if let Err(error) = shared.descriptor_at(node, &place).and_then(|descriptor| act(&descriptor)) {
            tracing::warn!(%error, branch = ?branch.source(), "the attributes of a folder are other ones there");
        }
    }
    Ok(())
}

/// Changes owner, mode and times.
fn change_all(shared: &Shared, who: Who, node: &Node, descriptor: &LowerFile, set: SetAttr) -> Result<()> {
    if set.uid.is_some() || set.gid.is_some() {
        change_owner(shared, who, node, descriptor, set)?;
    }
    if let Some(mode) = set.mode {
        // The kernel took the sgid bit away where the caller may not set it.
        keeping_set_ids(mode & mode::SGID != 0, || chmod(descriptor, mode)).map_err(errno)?;
    }
    if set.atime.is_some() || set.mtime.is_some() {
        set_times(descriptor, time_set(set.atime), time_set(set.mtime)).map_err(errno)?;
    }
    Ok(())
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

fn time_set(time: Option<SetTime>) -> TimeSet {
    match time {
        None => TimeSet::Omit,
        Some(SetTime::Now) => TimeSet::Now,
        Some(SetTime::At(Timestamp { secs, nanos })) => TimeSet::At(shuntfs_sys::Time { secs, nanos }),
    }
}

impl Judged<PrivilegesGo<'_>> {
    /// Takes suid, sgid and capabilities away, as far as the caller may not leave them.
    pub(crate) fn strip(self, shared: &Shared) -> Result<()> {
        let descriptor = &*shared.descriptor(self.change.node)?;
        let stat = stat_of(descriptor).map_err(errno)?;
        if stat.mode & mode::TYPE == mode::DIR {
            return Ok(());
        }
        let mut kept = stat.mode & !mode::SUID;
        if self.who.drops_sgid(&stat) {
            kept &= !mode::SGID;
        }
        if kept != stat.mode {
            keeping_set_ids(kept & mode::SGID != 0, || chmod(descriptor, kept & 0o7777)).map_err(errno)?;
        }
        match remove_xattr(descriptor, CAPABILITY) {
            Ok(()) | Err(OsError::NODATA | OsError::OPNOTSUPP | OsError::NOSYS) => Ok(()),
            Err(error) => Err(errno(error)),
        }
    }
}

impl Judged<XattrChanges<'_>> {
    /// Sets the attribute. `kill_sgid` is the kernel's word that an access ACL takes the sgid bit.
    pub(crate) fn set(self, shared: &Shared, value: &[u8], flags: u32, kill_sgid: bool) -> Result<()> {
        let XattrChanges { node, name } = self.change;
        if name == CAPABILITY {
            shared.table.peek(node.key()).iter().for_each(|node| node.mark(Marks::CAPABILITY_SET));
        }
        // An access ACL changes the mode; whether the caller may keep its sgid bit the kernel has decided.
        let keep = name == ACCESS_ACL && !kill_sgid;
        let changed = on_each(shared, node, |descriptor| {
            keeping_set_ids(keep, || set_xattr(descriptor, name, value, flags)).map_err(errno)?;
            if kill_sgid {
                let stat = stat_of(descriptor).map_err(errno)?;
                if stat.mode & mode::SGID != 0 {
                    chmod(descriptor, stat.mode & 0o7777 & !mode::SGID).map_err(errno)?;
                }
            }
            Ok(())
        });
        changed.inspect_err(|error| merge::pass_on_of(shared, node, *error))
    }

    /// Removes the attribute.
    pub(crate) fn remove(self, shared: &Shared) -> Result<()> {
        let XattrChanges { node, name } = self.change;
        let changed = on_each(shared, node, |descriptor| remove_xattr(descriptor, name).map_err(errno));
        changed.inspect_err(|error| merge::pass_on_of(shared, node, *error))
    }
}

impl Judged<FlagsChange<'_>> {
    /// Sets flags by an ioctl; `data` is its argument.
    pub(crate) fn set(self, lower: &LowerFile, command: Command, data: &mut [u8]) -> Result<i32> {
        let result = file_ioctl(lower, command.number, data).map_err(errno)?;
        // It may have become immutable, which opens must know.
        self.change.node.saw(&stat_of(lower).map_err(errno)?);
        // And it may fold names from now on.
        self.change.node.unmark(Marks::EXACT);
        self.change.node.parts().into_iter().for_each(Parts::may_fold);
        Ok(result)
    }
}

/// Asks by an ioctl that changes nothing; `data` is its argument and takes the answer.
///
/// # Errors
/// ENOTTY for one that changes something, and those of the lower file system.
pub(crate) fn ask(lower: &LowerFile, command: Command, data: &mut [u8]) -> Result<i32> {
    if command.only_asks() {
        file_ioctl(lower, command.number, data).map_err(errno)
    } else {
        Err(Errno::NOTTY)
    }
}
