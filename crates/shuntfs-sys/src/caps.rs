//! Linux capabilities of the calling thread.

use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::Result;

/// A capability that matters to a server of files.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Cap {
    /// Give files away.
    Chown,
    /// Pass permission checks.
    DacOverride,
    /// Open by handle.
    DacReadSearch,
    /// Pass checks of ownership.
    Fowner,
    /// Keep suid and sgid on a change.
    Fsetid,
    /// Change groups.
    Setgid,
    /// Change users.
    Setuid,
    /// Change the rules of capabilities.
    Setpcap,
    /// Make device nodes.
    Mknod,
    /// Mount, and register backing files.
    SysAdmin,
    /// Choose priorities and classes of the scheduler.
    SysNice,
    /// Use reserved blocks and pass limits.
    SysResource,
    /// Take leases on files of others.
    Lease,
    /// Make files immutable, or append-only for everybody.
    LinuxImmutable,
    /// Give capabilities to programs.
    Setfcap,
    /// Look at processes of other users: their program, their open files.
    SysPtrace,
    /// Hold memory beyond the limit, as rings do before Linux 5.12.
    IpcLock,
}

impl Cap {
    /// Every capability known here.
    pub const ALL: [Self; 17] = [
        Self::Chown,
        Self::DacOverride,
        Self::DacReadSearch,
        Self::Fowner,
        Self::Fsetid,
        Self::Setgid,
        Self::Setuid,
        Self::Setpcap,
        Self::Mknod,
        Self::SysAdmin,
        Self::SysNice,
        Self::SysResource,
        Self::Lease,
        Self::LinuxImmutable,
        Self::Setfcap,
        Self::SysPtrace,
        Self::IpcLock,
    ];

    /// The kernel's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Chown => "CAP_CHOWN",
            Self::DacOverride => "CAP_DAC_OVERRIDE",
            Self::DacReadSearch => "CAP_DAC_READ_SEARCH",
            Self::Fowner => "CAP_FOWNER",
            Self::Fsetid => "CAP_FSETID",
            Self::Setgid => "CAP_SETGID",
            Self::Setuid => "CAP_SETUID",
            Self::Setpcap => "CAP_SETPCAP",
            Self::Mknod => "CAP_MKNOD",
            Self::SysAdmin => "CAP_SYS_ADMIN",
            Self::SysNice => "CAP_SYS_NICE",
            Self::SysResource => "CAP_SYS_RESOURCE",
            Self::Lease => "CAP_LEASE",
            Self::LinuxImmutable => "CAP_LINUX_IMMUTABLE",
            Self::Setfcap => "CAP_SETFCAP",
            Self::SysPtrace => "CAP_SYS_PTRACE",
            Self::IpcLock => "CAP_IPC_LOCK",
        }
    }

    pub(crate) fn bit(self) -> CapabilitySet {
        match self {
            Self::Chown => CapabilitySet::CHOWN,
            Self::DacOverride => CapabilitySet::DAC_OVERRIDE,
            Self::DacReadSearch => CapabilitySet::DAC_READ_SEARCH,
            Self::Fowner => CapabilitySet::FOWNER,
            Self::Fsetid => CapabilitySet::FSETID,
            Self::Setgid => CapabilitySet::SETGID,
            Self::Setuid => CapabilitySet::SETUID,
            Self::Setpcap => CapabilitySet::SETPCAP,
            Self::Mknod => CapabilitySet::MKNOD,
            Self::SysAdmin => CapabilitySet::SYS_ADMIN,
            Self::SysNice => CapabilitySet::SYS_NICE,
            Self::SysResource => CapabilitySet::SYS_RESOURCE,
            Self::Lease => CapabilitySet::LEASE,
            Self::LinuxImmutable => CapabilitySet::LINUX_IMMUTABLE,
            Self::Setfcap => CapabilitySet::SETFCAP,
            Self::SysPtrace => CapabilitySet::SYS_PTRACE,
            Self::IpcLock => CapabilitySet::IPC_LOCK,
        }
    }
}

/// Whether the calling thread may use the capability right now, in its own user namespace.
#[must_use]
pub fn has_effective(cap: Cap) -> bool {
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(cap.bit()))
}

/// Gives up every capability but these, for the calling thread and all that it starts from now on, for good: they leave
/// the bounding set, too, so that no program that is started brings them back. To be called before there are other
/// threads. Without CAP_SETPCAP the bounding set stays as it is.
///
/// # Errors
/// What capset(2) and prctl(2) give.
pub fn keep_only(kept: &[Cap]) -> Result<()> {
    let kept = kept.iter().fold(CapabilitySet::empty(), |all, cap| all.union(cap.bit()));
    let sets = rustix::thread::capabilities(None)?;
    if sets.effective.contains(Cap::Setpcap.bit()) {
        for number in 0..u64::BITS {
            let one = CapabilitySet::from_bits_retain(1 << number);
            match rustix::thread::capability_is_in_bounding_set(one) {
                Ok(true) if !kept.contains(one) => rustix::thread::remove_capability_from_bounding_set(one)?,
                Ok(_) => {}
                // There are no more.
                Err(_) => break,
            }
        }
    }
    let inheritable = CapabilitySet::empty();
    // What is ambient is inheritable, too.
    if sets.inheritable != inheritable {
        rustix::thread::clear_ambient_capability_set()?;
    }
    let (effective, permitted) = (sets.effective.intersection(kept), sets.permitted.intersection(kept));
    let wanted = CapabilitySets { effective, permitted, inheritable };
    // An ordinary user has nothing to give up, and may be in a sandbox where nobody may try.
    if wanted == sets { Ok(()) } else { rustix::thread::set_capabilities(None, wanted) }
}

/// Makes sure that no program that this thread or one that it starts may run gets more rights than they have: set-uid
/// programs, fusermount3 among them, stay without effect.
///
/// # Errors
/// None that Linux is known to give.
pub fn forbid_new_privileges() -> Result<()> {
    rustix::thread::set_no_new_privs(true)
}

/// What a process may do, as /proc shows it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rights {
    /// The names of the capabilities that it has or can take.
    pub capabilities: Vec<String>,
    /// Whether programs that it starts get no more than it has.
    pub no_new_privileges: bool,
    /// Whether a filter of system calls is in force.
    pub seccomp: bool,
}

impl Rights {
    /// Those of the calling thread; `None` where /proc does not exist.
    #[must_use]
    pub fn of_this_thread() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/thread-self/status").ok()?)
    }

    fn parse(status: &str) -> Option<Self> {
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.map(str::trim)
        };
        let permitted = u64::from_str_radix(field("CapPrm")?, 16).ok()?;
        let named = CapabilitySet::from_bits_retain(permitted).iter_names();
        Some(Self {
            capabilities: named.map(|(name, _)| format!("CAP_{name}")).collect(),
            no_new_privileges: field("NoNewPrivs") == Some("1"),
            seccomp: field("Seccomp").is_some_and(|mode| mode != "0"),
        })
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn agrees_with_proc() {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
        let bits = u64::from_str_radix(line.trim(), 16).unwrap();
        for cap in Cap::ALL {
            assert_eq!(has_effective(cap), bits & cap.bit().bits() != 0, "{}", cap.name());
        }
    }

    /// In a thread of its own, which takes what it gave up with it.
    #[test]
    fn what_is_given_up_is_gone_for_good() {
        if !has_effective(Cap::SysAdmin) || !has_effective(Cap::Setpcap) {
            println!("SKIPPED: needs root");
            return;
        }
        std::thread::spawn(|| {
            keep_only(&[Cap::SysAdmin, Cap::Setpcap, Cap::Chown]).unwrap();
            forbid_new_privileges().unwrap();
            let rights = Rights::of_this_thread().unwrap();
            let mut names = rights.capabilities.clone();
            names.sort_unstable();
            assert_eq!(names, ["CAP_CHOWN", "CAP_SETPCAP", "CAP_SYS_ADMIN"]);
            assert!(rights.no_new_privileges);
            let taken = CapabilitySets {
                effective: CapabilitySet::DAC_OVERRIDE,
                permitted: CapabilitySet::DAC_OVERRIDE,
                inheritable: CapabilitySet::empty(),
            };
            assert!(rustix::thread::set_capabilities(None, taken).is_err());
            // Nor does a program bring it back.
            let ran =
                std::process::Command::new("grep").args(["CapBnd", "/proc/self/status"]).output().unwrap();
            let bits = String::from_utf8(ran.stdout).unwrap();
            let bits = u64::from_str_radix(bits.trim_start_matches("CapBnd:").trim(), 16).unwrap();
            assert_eq!(
                bits,
                (CapabilitySet::SYS_ADMIN | CapabilitySet::SETPCAP | CapabilitySet::CHOWN).bits()
            );
        })
        .join()
        .unwrap();
        assert!(has_effective(Cap::DacOverride), "the other threads keep theirs");
    }

    #[test]
    fn rights_are_read() {
        let text = "Name:\tx\nCapInh:\t0\nCapPrm:\t0000000000200001\nNoNewPrivs:\t1\nSeccomp:\t2\n";
        let rights = Rights::parse(text).unwrap();
        assert_eq!(rights.capabilities, ["CAP_CHOWN", "CAP_SYS_ADMIN"]);
        assert!(rights.no_new_privileges && rights.seccomp);
        assert_eq!(Rights::parse("Name:\tx\n"), None);
    }
}
