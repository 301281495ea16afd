//! What a server is allowed to do, and gives up of it before it serves anybody.
//!
//! Whoever starts a mount as root gives it every capability of root. A server of files has no use for most of them: they
//! are given up for good, with those that programs could bring back. Landlock is no help: it forbids to unmount.

use shuntfs_sys::{Cap, caps};

use crate::failure::Failure;

/// What every server needs: to mount, unmount and register backing files; to open by handle; to choose the scheduler's
/// class and the limit on descriptors; to see who keeps a mount busy, and which program asks; rings before Linux 5.12; to
/// give up, in each thread, what callers must not get.
const SERVING: [Cap; 9] = [
    Cap::SysAdmin,
    Cap::DacReadSearch,
    Cap::SysNice,
    Cap::SysResource,
    Cap::SysPtrace,
    Cap::IpcLock,
    Cap::Setuid,
    Cap::Setgid,
    Cap::Setpcap,
];

/// What acting for the users of a folder needs besides: the kernel has checked on the mount that they may.
const ACTING: [Cap; 8] = [
    Cap::DacOverride,
    Cap::Chown,
    Cap::Fowner,
    Cap::Fsetid,
    Cap::Mknod,
    Cap::Lease,
    Cap::LinuxImmutable,
    Cap::Setfcap,
];

/// What a server shows, as far as it decides what the server must be allowed to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Task {
    /// A folder, for whose users it acts.
    Folder,
    /// Files that it opens itself.
    OwnFiles,
    /// What was sealed, which nobody changes.
    Sealed,
}

/// The capabilities that a server of this kind keeps, where it had them.
pub(crate) fn kept(task: Task) -> Vec<Cap> {
    let more: &[Cap] = match task {
        Task::Folder => &ACTING,
        Task::OwnFiles => &[Cap::DacOverride, Cap::Fowner, Cap::Lease],
        Task::Sealed => &[],
    };
    SERVING.iter().chain(more).copied().collect()
}

/// Gives up what a server of this kind does not need, for this thread and all that it starts from now on.
///
/// # Errors
/// Where that fails: then nobody may be served.
pub(super) fn give_up(task: Task) -> Result<(), Failure> {
    let failed =
        |error| Failure::new(format!("cannot drop unneeded privileges: {}", std::io::Error::from(error)));
    caps::keep_only(&kept(task)).map_err(failed)?;
    // Ordinary users unmount by a set-uid program.
    if caps::has_effective(Cap::SysAdmin) {
        caps::forbid_new_privileges().map_err(failed)?;
    }
    Ok(())
}

#[cfg(test)]
mod test {
    use super::*;

    /// The units bound what a server can keep: a capability that is missing there is a feature that is off as a service.
    #[test]
    fn units_have_what_a_server_keeps_and_nothing_else() {
        for (unit, task) in [
            (include_str!("../../../../contrib/systemd/shunt@.service"), Task::Folder),
            (include_str!("../../../../contrib/systemd/shunt-export@.service"), Task::OwnFiles),
        ] {
            let line = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
            let mut bounded: Vec<&str> = line.expect("bounds them").split_whitespace().collect();
            let mut kept: Vec<&str> = kept(task).into_iter().map(Cap::name).collect();
            bounded.sort_unstable();
            kept.sort_unstable();
            assert_eq!(bounded, kept);
        }
    }
}
