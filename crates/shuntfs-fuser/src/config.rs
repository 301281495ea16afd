//! What a session can be told.

use std::collections::HashSet;
use std::io;

/// Settings of a session.
#[derive(Debug, Clone, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Config {
    /// Options of the mount.
    pub mount_options: Vec<MountOption>,
    /// Whom the file system serves.
    pub acl: SessionACL,
    /// How many calls of the file system may run at once. Default: one.
    pub n_threads: Option<usize>,
    /// Taken and not needed: which transport is taken is said elsewhere (see the crate's text), and `cloned` is the
    /// default.
    pub clone_fd: bool,
}

/// An option of the mount.
#[derive(Debug, Eq, PartialEq, Hash, Clone)]
pub enum MountOption {
    /// What the mount table shows as the source.
    FSName(String),
    /// What the mount table shows after `fuse.`.
    Subtype(String),
    /// An option by its name: one of the flags below, `nodiratime`, `allow_other`, `max_read=BYTES`, or
    /// `shuntfs_transport=KIND`.
    CUSTOM(String),
    /// The mount goes when the process ends, however it does. Needs another [`SessionACL`] than `Owner`, and
    /// fusermount3.
    AutoUnmount,
    /// The kernel checks permissions.
    DefaultPermissions,
    /// Device files work.
    Dev,
    /// Device files have no effect; the default.
    NoDev,
    /// Set-user-id and set-group-id bits work.
    Suid,
    /// Set-user-id and set-group-id bits have no effect; the default.
    NoSuid,
    /// Nothing can be changed.
    RO,
    /// Files can be changed; the default.
    RW,
    /// Programs can be run; the default.
    Exec,
    /// Programs cannot be run.
    NoExec,
    /// Reading changes the time of access; the default.
    Atime,
    /// Reading leaves the time of access alone.
    NoAtime,
    /// Changes of folders are durable at once.
    DirSync,
    /// Writes are durable at once.
    Sync,
    /// Writes need not be durable at once; the default.
    Async,
}

/// Whose requests are served.
#[derive(Default, Debug, Eq, PartialEq, Clone, Copy)]
pub enum SessionACL {
    /// Everybody's.
    All,
    /// Those of root and of the user who mounts.
    RootAndOwner,
    /// Those of the user who mounts.
    #[default]
    Owner,
}

impl SessionACL {
    /// Whether the kernel is to let other users in at all.
    pub(crate) fn lets_others_in(self) -> bool {
        self != Self::Owner
    }
}

impl MountOption {
    /// What cannot stand beside it.
    fn opposite(&self) -> Option<Self> {
        Some(match self {
            Self::Dev => Self::NoDev,
            Self::NoDev => Self::Dev,
            Self::Suid => Self::NoSuid,
            Self::NoSuid => Self::Suid,
            Self::RO => Self::RW,
            Self::RW => Self::RO,
            Self::Exec => Self::NoExec,
            Self::NoExec => Self::Exec,
            Self::Atime => Self::NoAtime,
            Self::NoAtime => Self::Atime,
            Self::Sync => Self::Async,
            Self::Async => Self::Sync,
            _ => return None,
        })
    }
}

impl Config {
    /// Checks what cannot be right whatever the machine.
    pub(crate) fn check(&self) -> io::Result<()> {
        let invalid = |what: String| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        let options: HashSet<&MountOption> = self.mount_options.iter().collect();
        let opposed = |option: &&MountOption| option.opposite().is_some_and(|other| options.contains(&other));
        let conflicts: Vec<&MountOption> = self.mount_options.iter().filter(opposed).collect();
        if !conflicts.is_empty() {
            return invalid(format!("these mount options contradict each other: {conflicts:?}"));
        }
        if options.contains(&MountOption::AutoUnmount) && !self.acl.lets_others_in() {
            return invalid("auto_unmount needs an acl other than Owner".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn checked(options: &[MountOption], acl: SessionACL) -> bool {
        Config { mount_options: options.to_vec(), acl, ..Config::default() }.check().is_ok()
    }

    #[test]
    fn contradictions_are_refused() {
        use MountOption::{AutoUnmount, Dev, NoDev, NoExec, RO, RW, Suid};
        let owner = SessionACL::Owner;
        assert!(checked(&[], owner));
        assert!(checked(&[Suid, NoExec], owner));
        assert!(!checked(&[RO, Suid, RW], owner));
        assert!(!checked(&[NoDev, Dev], owner));
        assert!(!checked(&[AutoUnmount], owner));
        assert!(checked(&[AutoUnmount], SessionACL::All));
    }
}
