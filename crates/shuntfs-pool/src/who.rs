//! Acting with the identity of the caller.
//!
//! The kernel has checked permissions (`default_permissions`); what is left is whose the new inode is, and
//! which of its mode bits that identity may set. None of this may live across an await: it is the thread's.

use shuntfs::Cx;
use shuntfs_sys::{Caller, Stat, as_caller, with_fsetid};

use crate::mode;

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Who {
    uid: u32,
    gid: u32,
    group: Option<u32>,
    /// The asking thread; 0 where it is not visible.
    pid: u32,
    /// A server that is dead had begun to do what is asked for.
    is_begun: bool,
    /// What it had noted of that.
    note: Option<[u64; 2]>,
    /// The number of the request; 0 where nobody asks.
    request: u64,
}

impl Who {
    pub(crate) fn of(cx: &Cx<'_>) -> Self {
        let (group, is_begun) = (cx.supp_group(), cx.is_begun());
        let note = if is_begun { cx.begun_note() } else { None };
        Self {
            uid: cx.uid(),
            gid: cx.gid(),
            group,
            pid: cx.pid(),
            is_begun,
            note,
            request: cx.first_unique(),
        }
    }

    /// Somebody who does not ask, and has no process.
    pub(crate) fn told(uid: u32, gid: u32) -> Self {
        Self { uid, gid, group: None, pid: 0, is_begun: false, note: None, request: 0 }
    }

    #[cfg(test)]
    pub(crate) const fn new(uid: u32, gid: u32, group: Option<u32>) -> Self {
        Self { uid, gid, group, pid: 0, is_begun: false, note: None, request: 0 }
    }

    /// The same, whose request a server that is dead had begun.
    #[cfg(test)]
    pub(crate) fn begun(self) -> Self {
        Self { is_begun: true, ..self }
    }

    /// The same, of which it had noted this.
    #[cfg(test)]
    pub(crate) fn noted(self, note: [u64; 2]) -> Self {
        Self { note: Some(note), ..self.begun() }
    }

    #[cfg(test)]
    pub(crate) fn root() -> Self {
        Self::new(0, 0, None)
    }

    pub(crate) fn uid(self) -> u32 {
        self.uid
    }

    pub(crate) fn gid(self) -> u32 {
        self.gid
    }

    /// Whether a server that is dead had begun to do what is asked for, and it may be done: what must be made may be there, by this very request.
    pub(crate) fn is_begun(self) -> bool {
        self.is_begun
    }

    /// What a server that is dead had noted of what is asked for, before it changed something.
    pub(crate) fn note(self) -> Option<[u64; 2]> {
        self.note
    }

    /// The number of the request, by which a server that comes after this one knows it again; 0 where nobody asks.
    pub(crate) fn request(self) -> u64 {
        self.request
    }

    pub(crate) fn pid(self) -> u32 {
        self.pid
    }

    /// The caller's supplementary groups, from its process; `None` where that cannot be asked.
    pub(crate) fn supplementary(self) -> Option<Vec<u32>> {
        if self.pid == 0 {
            return None;
        }
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        let groups = status.lines().find_map(|line| line.strip_prefix("Groups:"))?;
        groups.split_ascii_whitespace().map(|group| group.parse().ok()).collect()
    }

    /// Whether the caller keeps suid and sgid where the kernel would strip them from others. The request does
    /// not say which capabilities the caller has, and uid 0 of another user namespace is not 0 here.
    pub(crate) fn keeps_set_ids(self) -> bool {
        self.uid == 0
    }

    /// Whether a change of data or owner takes the sgid bit that `stat` shows: always where the group may execute,
    /// else from those who are not in the file's group (`setattr_should_drop_sgid` in `fs/attr.c`).
    pub(crate) fn drops_sgid(self, stat: &Stat) -> bool {
        stat.mode & mode::SGID != 0 && (stat.mode & mode::GROUP_EXEC != 0 || !self.is_trusted_by(stat.gid))
    }

    /// Whether the caller may leave the sgid bit on files of this group.
    pub(crate) fn is_trusted_by(self, gid: u32) -> bool {
        self.keeps_set_ids() || gid == self.gid || Some(gid) == self.group || self.has_supplementary(gid)
    }

    /// Requests tell no supplementary groups, so the caller is examined, who waits. Where that is not
    /// possible there are none, by which a bit is rather taken than left.
    fn has_supplementary(self, gid: u32) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        lists_group(&status, gid)
    }

    /// Creates as the caller. `mode` is that of what is made: its sgid bit is subject to the caller's groups,
    /// unless the caller is above that.
    ///
    /// # Errors
    /// Those of `make`, and EPERM, before anything is made, where the server cannot act as the caller.
    pub(crate) fn create<T>(
        self,
        mode: u32,
        umask: u32,
        make: impl FnOnce() -> shuntfs_sys::Result<T>,
    ) -> shuntfs_sys::Result<T> {
        let caller = Caller { uid: self.uid, gid: self.gid, group: self.group, umask };
        let privileged = self.keeps_set_ids() && mode & mode::SGID != 0;
        as_caller(&caller, || if privileged { with_fsetid(make) } else { make() })
    }
}

/// Whether the text of `/proc/PID/status` lists a supplementary group.
fn lists_group(status: &str, gid: u32) -> bool {
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    groups.split_ascii_whitespace().any(|group| group.parse() == Ok(gid))
}

/// Does `work` so that the lower file system keeps suid and sgid where `keep` holds; the thread as such lacks
/// the capability, so that lower writes strip them.
pub(crate) fn keeping_set_ids<R>(keep: bool, work: impl FnOnce() -> R) -> R {
    if keep { with_fsetid(work) } else { work() }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn groups_are_read_from_the_status() {
        let status = "Name:\tsh\nGid:\t7\t7\t7\t7\nFDSize:\t64\nGroups:\t5000 6000 \nNStgid:\t1\n";
        assert!(lists_group(status, 5000) && lists_group(status, 6000));
        assert!(!lists_group(status, 7) && !lists_group(status, 500) && !lists_group(status, 1));
        assert!(!lists_group("", 0) && !lists_group("Groups:\t\n", 0));
    }

    #[test]
    fn the_group_decides_only_where_it_may_not_execute() {
        let stat = |mode| Stat { mode, gid: 5000, ..Stat::default() };
        let (outside, inside) = (Who::new(4000, 4000, None), Who::new(4000, 5000, None));
        for (mode, by_outside, by_inside, by_root) in [
            (0o100_767, false, false, false),
            (0o102_767, true, false, false),
            (0o102_777, true, true, true),
            (0o104_777, false, false, false),
        ] {
            assert_eq!(outside.drops_sgid(&stat(mode)), by_outside, "{mode:o}");
            assert_eq!(inside.drops_sgid(&stat(mode)), by_inside, "{mode:o}");
            assert_eq!(Who::root().drops_sgid(&stat(mode)), by_root, "{mode:o}");
        }
    }
}
