//! When the time of last access is kept: a property of the mount through which a file is reached.

#![expect(unsafe_code, reason = "neither rustix nor libc has a wrapper of mount_setattr(2)")]

use std::os::fd::{AsRawFd, OwnedFd};

use libc::c_uint;
use rustix::mount::{OpenTreeFlags, open_tree};

use crate::stat::stat_of;
use crate::{OsError, Result, faults, raw, reopen};

/// When files and folders that are read get a new time of access. The default leaves it to the mount that they are on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AccessTimes {
    /// Of everything.
    pub kept: Option<AccessTime>,
    /// Not of folders, whatever is kept of the rest (`nodiratime`).
    pub not_of_folders: bool,
}

/// When a time of access is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessTime {
    /// At each access (`strictatime`).
    Strict,
    /// Where it is older than the last change or than a day (`relatime`).
    Relative,
    /// Never (`noatime`).
    Never,
}

impl AccessTimes {
    /// Whether a mount with these `ST_*` flags ([`FsStat::flags`](crate::FsStat::flags)) keeps them so already.
    #[must_use]
    pub fn are_kept_by(self, flags: u64) -> bool {
        let kept = if flags & libc::ST_NOATIME != 0 {
            AccessTime::Never
        } else if flags & libc::ST_RELATIME != 0 {
            AccessTime::Relative
        } else {
            AccessTime::Strict
        };
        let has_not_of_folders = flags & libc::ST_NODIRATIME != 0;
        self == Self::default()
            || self.kept.is_none_or(|wanted| wanted == kept)
                && (kept == AccessTime::Never || self.not_of_folders == has_not_of_folders)
    }

    /// What mount_setattr(2) sets and clears.
    fn attributes(self) -> (u64, u64) {
        let (mut set, mut clear) = match self.kept {
            None => (0, 0),
            Some(AccessTime::Strict) => (libc::MOUNT_ATTR_STRICTATIME, libc::MOUNT_ATTR__ATIME),
            Some(AccessTime::Relative) => (libc::MOUNT_ATTR_RELATIME, libc::MOUNT_ATTR__ATIME),
            Some(AccessTime::Never) => (libc::MOUNT_ATTR_NOATIME, libc::MOUNT_ATTR__ATIME),
        };
        if self.not_of_folders {
            set |= libc::MOUNT_ATTR_NODIRATIME;
        } else if self.kept.is_some() {
            clear |= libc::MOUNT_ATTR_NODIRATIME;
        }
        (set, clear)
    }
}

/// Opens `file`, a folder or a regular file, for reading through a mount of its own, which nobody else sees and which keeps
/// times of access so. What is opened by a handle through that descriptor is on that mount, too. Linux 5.12.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN or where the mount's flags are locked, ENOSYS before Linux 5.12, EINVAL for what is no
/// folder and no regular file, what open(2) gives.
pub fn open_with_access_times(file: &OwnedFd, times: AccessTimes) -> Result<OwnedFd> {
    faults::point()?;
    let stat = stat_of(file)?;
    if !stat.is_dir() && !stat.is_file() {
        return Err(OsError::INVAL);
    }
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    let tree = open_tree(file, c"", flags)?;
    let (attr_set, attr_clr) = times.attributes();
    let wanted = libc::mount_attr { attr_set, attr_clr, propagation: 0, userns_fd: 0 };
    let (fd, path) = (tree.as_raw_fd(), c"".as_ptr());
    let empty_path = c_uint::try_from(libc::AT_EMPTY_PATH).expect("a flag");
    let (attributes, len) = (&raw const wanted, size_of_val(&wanted));
    // SAFETY: `path` is a C string, and `wanted` is read alone, `len` bytes of it.
    let done = unsafe { libc::syscall(libc::SYS_mount_setattr, fd, path, empty_path, attributes, len) };
    raw::check(done)?;
    let nonblock = u32::try_from(libc::O_NONBLOCK).expect("a flag");
    reopen(&tree, nonblock)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_mount_that_keeps_them_so_is_not_made_again() {
        use AccessTime::{Never, Relative, Strict};
        let (relatime, noatime, nodiratime) = (libc::ST_RELATIME, libc::ST_NOATIME, libc::ST_NODIRATIME);
        let times = |kept, not_of_folders| AccessTimes { kept, not_of_folders };
        for (wanted, flags, are_kept) in [
            (times(None, false), 0, true),
            (times(None, false), noatime | nodiratime, true),
            (times(None, true), relatime, false),
            (times(None, true), relatime | nodiratime, true),
            (times(None, true), noatime, true),
            (times(Some(Never), false), noatime | nodiratime, true),
            (times(Some(Never), false), relatime, false),
            (times(Some(Relative), false), relatime, true),
            (times(Some(Relative), false), relatime | nodiratime, false),
            (times(Some(Relative), true), relatime, false),
            (times(Some(Relative), false), noatime, false),
            (times(Some(Strict), false), 0, true),
            (times(Some(Strict), false), relatime, false),
            (times(Some(Strict), true), nodiratime, true),
        ] {
            assert_eq!(wanted.are_kept_by(flags), are_kept, "{wanted:?} on {flags:#x}");
        }
    }

    #[test]
    fn neither_devices_nor_pipes_are_opened() {
        let null = crate::open_target(std::path::Path::new("/dev/null")).unwrap();
        assert_eq!(open_with_access_times(&null, AccessTimes::default()).err(), Some(OsError::INVAL));
    }
}
