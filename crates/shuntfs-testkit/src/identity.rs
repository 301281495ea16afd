//! Doing something as another user, on a thread of its own.
//!
//! The kernel keeps identity by thread; only the C library spreads it over the process. The raw calls change one
//! thread, and the thread ends with the closure, so nothing has to be put back.
//!
//! # Safety
//! `unshare` is unsafe in rustix because of CLONE_FILES, which is not used here; the file system ids are plain numbers.
#![expect(unsafe_code, reason = "these calls have no safe form")]

use rustix::fs::Mode;
use rustix::process::umask;
use rustix::thread::{
    Gid, Uid, UnshareFlags, set_thread_groups, set_thread_res_gid, set_thread_res_uid, unshare_unsafe,
};
use std::thread;

/// The user that tests are when they have no privilege.
pub const NOBODY: u32 = 65534;

/// Who does something.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Real, effective and saved user id.
    pub uid: u32,
    /// Real, effective and saved group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// The file creation mask.
    pub umask: u32,
}

impl Identity {
    /// A user without supplementary groups and with the usual mask.
    #[must_use]
    pub fn new(uid: u32, gid: u32) -> Self {
        Self { uid, gid, groups: Vec::new(), umask: 0o022 }
    }

    /// A user without any privilege.
    #[must_use]
    pub fn nobody() -> Self {
        Self::new(NOBODY, NOBODY)
    }

    /// Who we are already, but with folder and mask of its own.
    #[must_use]
    pub fn same() -> Self {
        Self::new(rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
    }

    /// Adds supplementary groups.
    #[must_use]
    pub fn groups(mut self, groups: &[u32]) -> Self {
        self.groups = groups.to_vec();
        self
    }

    /// Sets the file creation mask.
    #[must_use]
    pub fn umask(mut self, mask: u32) -> Self {
        self.umask = mask;
        self
    }

    /// Runs `work` as this identity on a thread of its own, with a current folder and a mask of its own.
    ///
    /// # Panics
    /// The identity cannot be taken on (tests that need this run as root), or `work` panics.
    pub fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        thread::scope(|scope| {
            let worker = scope.spawn(|| {
                self.take_on().expect("root may take on any identity");
                work()
            });
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Lets the calling thread act on file systems as this identity from now on; what it is otherwise stays root.
    ///
    /// One system call for each id instead of a thread: for tests that change users a million times.
    ///
    /// # Panics
    /// The thread is not root's.
    pub fn act(&self) {
        let groups: Vec<Gid> = self.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
        set_thread_groups(&groups).expect("root may take on any groups");
        // SAFETY: the call takes a number and changes this thread alone.
        unsafe { libc::setfsgid(self.gid) };
        // SAFETY: as above.
        unsafe { libc::setfsuid(self.uid) };
        // A number that is none changes nothing and tells what is.
        // SAFETY: as above.
        let now = unsafe { libc::setfsuid(u32::MAX) };
        assert_eq!(u32::try_from(now).ok(), Some(self.uid), "the identity was not taken on");
    }

    fn take_on(&self) -> rustix::io::Result<()> {
        // SAFETY: only the file system state (current folder, mask) is unshared; descriptors stay shared.
        unsafe { unshare_unsafe(UnshareFlags::FS) }?;
        umask(Mode::from_raw_mode(self.umask));
        if self.uid == rustix::process::geteuid().as_raw() && self.groups.is_empty() {
            return Ok(());
        }
        let groups: Vec<Gid> = self.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        set_thread_groups(&groups)?;
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_thread_acts_as_others_and_comes_back() {
        if !rustix::process::geteuid().is_root() {
            crate::skipped("taking on an identity needs root");
            return;
        }
        thread::spawn(|| {
            let file = tempfile::NamedTempFile::new().unwrap();
            Identity::nobody().act();
            assert!(std::fs::read(file.path()).is_err(), "root's file is root's");
            Identity::new(0, 0).act();
            assert!(std::fs::read(file.path()).is_ok());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn the_identity_ends_with_its_thread() {
        if !rustix::process::geteuid().is_root() {
            crate::skipped("taking on an identity needs root");
            return;
        }
        let text = Identity::nobody()
            .groups(&[7, 8])
            .run(|| std::fs::read_to_string("/proc/thread-self/status").unwrap());
        assert!(text.contains("Uid:\t65534\t65534\t65534\t65534"), "{text}");
        assert!(text.contains("Groups:\t7 8"), "{text}");
        let ours = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        assert!(ours.contains("Uid:\t0\t0\t0\t0"), "{ours}");
    }
}
