//! What of the machine an operator should know before a server dies: said once, at the start.

use std::fmt;
use std::time::Duration;

use shuntfs_sys::{kernel, limits};

/// Major, minor, patch.
type Release = (u32, u32, u32);

/// A fault of kernels that a takeover can meet.
struct Fault {
    /// From the first to the last that has it.
    kernels: &'static [(Release, Release)],
    what: &'static str,
}

static FAULTS: [Fault; 2] = [
    Fault {
        kernels: &[((6, 9, 0), (6, 12, 95)), ((6, 13, 0), (6, 18, 38)), ((6, 19, 0), (7, 1, 3))],
        what: "this kernel can use memory after it was freed when a request that was interrupted is sent again and its caller is then \
               killed (CVE-2026-64265): Linux 6.12.96, 6.18.39 and 7.1.4 do not, nor do distributions' kernels that have the fix",
    },
    Fault {
        kernels: &[((6, 9, 0), (7, 2, 2))],
        what: "in this kernel a request that is interrupted while it is sent again meets a race: in Linux 7.2.3 it does not, nor in \
               distributions' kernels that have the fix",
    },
];

/// What is wrong with a kernel, as far as its number tells.
fn faults(release: Release) -> impl Iterator<Item = &'static str> {
    let has = move |(first, last): &(Release, Release)| (*first..=*last).contains(&release);
    FAULTS.iter().filter(move |fault| fault.kernels.iter().any(has)).map(|fault| fault.what)
}

/// After how long the kernel ends a connection of which a request is not answered, by its two settings (seconds, 0 is off):
/// `init_server_timeout` of fs/fuse/inode.c, Linux 6.18, for a server that asks for no time limit itself.
fn request_timeout(default: Option<u64>, longest: Option<u64>) -> Option<Duration> {
    let set = [default, longest].into_iter().flatten().filter(|seconds| *seconds > 0);
    set.min().map(Duration::from_secs)
}

/// Where the core dump of a server goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Dump {
    /// Into a file, of this length at most.
    File(Option<u64>),
    /// To a program.
    Program,
}

/// By RLIMIT_CORE and `kernel.core_pattern`; `None` where there is none.
fn dump(limit: Option<u64>, pattern: &str) -> Option<Dump> {
    match limit {
        // The limit is not for programs (core(5)).
        _ if pattern.starts_with('|') => Some(Dump::Program),
        Some(0) => None,
        limit => Some(Dump::File(limit)),
    }
}

impl fmt::Display for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(Some(limit)) => write!(f, "a core dump of up to {limit} bytes (RLIMIT_CORE)"),
            Self::File(None) => f.write_str("a core dump of any length (RLIMIT_CORE)"),
            Self::Program => f.write_str("a core dump to a program (kernel.core_pattern)"),
        }
    }
}

/// Says it all.
pub(crate) fn tell() {
    for fault in faults(kernel::kernel_release()) {
        tracing::warn!("{fault}");
    }
    let of = kernel::fuse_sysctl;
    if let Some(timeout) = request_timeout(of("default_request_timeout"), of("max_request_timeout")) {
        tracing::warn!(
            ?timeout,
            "a gap between two servers that is longer than the request timeout ends the mount: set \
             fs.fuse.default_request_timeout and fs.fuse.max_request_timeout to 0 before it is mounted"
        );
    }
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if let Some(dump) = dump(limits::core_len(), &pattern) {
        tracing::info!("a server that crashes writes {dump}, and callers wait until it is written");
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn kernels_with_faults_are_known_by_their_number() {
        let count = |release| faults(release).count();
        let table = [
            ((6, 8, 12), 0),
            ((6, 9, 0), 2),
            ((6, 12, 95), 2),
            ((6, 12, 96), 1),
            ((6, 12, 200), 1),
            ((6, 13, 0), 2),
            ((6, 17, 99), 2),
            ((6, 18, 0), 2),
            ((6, 18, 38), 2),
            ((6, 18, 39), 1),
            ((6, 18, 44), 1),
            ((6, 19, 0), 2),
            ((7, 0, 20), 2),
            ((7, 1, 3), 2),
            ((7, 1, 4), 1),
            ((7, 2, 0), 1),
            ((7, 2, 2), 1),
            ((7, 2, 3), 0),
            ((7, 3, 0), 0),
            ((8, 0, 0), 0),
            ((0, 0, 0), 0),
        ];
        for (release, expected) in table {
            assert_eq!(count(release), expected, "{release:?}");
        }
        assert!(faults((7, 1, 3)).next().is_some_and(|what| what.contains("CVE-2026-64265")));
        assert!(faults((7, 1, 4)).next().is_some_and(|what| what.contains("7.2.3")));
    }

    #[test]
    fn the_shorter_request_timeout_counts() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        for (default, longest, expected) in [
            (None, None, None),
            (Some(0), Some(0), None),
            (Some(30), Some(0), seconds(30)),
            (Some(0), Some(600), seconds(600)),
            (Some(30), Some(600), seconds(30)),
            (Some(900), Some(600), seconds(600)),
            (Some(30), None, seconds(30)),
        ] {
            assert_eq!(request_timeout(default, longest), expected, "{default:?} {longest:?}");
        }
    }

    #[test]
    fn core_dumps_are_told_of_where_there_are_any() {
        assert_eq!(dump(Some(0), "core\n"), None);
        assert_eq!(dump(Some(1 << 30), "core\n"), Some(Dump::File(Some(1 << 30))));
        assert_eq!(dump(None, "/var/core.%p\n"), Some(Dump::File(None)));
        let program = dump(Some(0), "|/usr/lib/systemd/systemd-coredump %P\n");
        assert_eq!(program, Some(Dump::Program), "the limit is not for programs");
        assert!(program.is_some_and(|dump| dump.to_string().contains("core_pattern")));
    }
}
