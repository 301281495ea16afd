//! Linux capabilities of the calling thread.

use rustix::thread::CapabilitySet;

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
}

impl Cap {
    /// Every capability known here.
    pub const ALL: [Self; 12] = [
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
        }
    }
}

/// Whether the calling thread may use the capability right now, in its own user namespace.
#[must_use]
pub fn has_effective(cap: Cap) -> bool {
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(cap.bit()))
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
}
