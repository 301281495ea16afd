//! Acting with the identity of the caller.
//!
//! The kernel has checked permissions (`default_permissions`); what is left is whose the new inode is, and
//! which of its mode bits that identity may set. None of this may live across an await: it is the thread's.

use shuntfs::Cx;
use shuntfs_sys::{Caller, as_caller, with_fsetid};

use crate::mode;

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Who {
    uid: u32,
    gid: u32,
    group: Option<u32>,
}

impl Who {
    pub(crate) fn of(cx: &Cx<'_>) -> Self {
        Self { uid: cx.uid(), gid: cx.gid(), group: cx.supp_group() }
    }

    #[cfg(test)]
    pub(crate) fn new(uid: u32, gid: u32, group: Option<u32>) -> Self {
        Self { uid, gid, group }
    }

    #[cfg(test)]
    pub(crate) fn root() -> Self {
        Self::new(0, 0, None)
    }

    /// Whether the caller keeps suid and sgid where the kernel would strip them from others. The request does
    /// not say which capabilities the caller has, and uid 0 of another user namespace is not 0 here.
    pub(crate) fn keeps_set_ids(self) -> bool {
        self.uid == 0
    }

    /// Creates as the caller. `mode` is that of what is made: its sgid bit is subject to the caller's groups,
    /// unless the caller is above that.
    pub(crate) fn create<R>(self, mode: u32, umask: u32, make: impl FnOnce() -> R) -> R {
        let caller = Caller { uid: self.uid, gid: self.gid, group: self.group, umask };
        let privileged = self.keeps_set_ids() && mode & mode::SGID != 0;
        as_caller(&caller, || if privileged { with_fsetid(make) } else { make() })
    }
}

/// Does `work` so that the lower file system keeps suid and sgid where `keep` holds; the thread as such lacks
/// the capability, so that lower writes strip them.
pub(crate) fn keeping_set_ids<R>(keep: bool, work: impl FnOnce() -> R) -> R {
    if keep { with_fsetid(work) } else { work() }
}
