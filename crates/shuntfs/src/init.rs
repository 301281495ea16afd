//! What the kernel offers at INIT, and what a file system wants of it.

use std::time::Duration;

use shuntfs_wire::InitFlags;
use thiserror::Error;

use crate::args::OpSet;

/// What the kernel offers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Offered {
    /// Minor number of the protocol; the major is 7.
    pub minor: u32,
    /// Every INIT flag offered.
    pub flags: InitFlags,
}

impl Offered {
    /// Whether io_uring may move bytes by zero copy here (Linux 7.3): worth knowing for a file system whose reads are mostly
    /// [`crate::ReadReply::read_from`], because they move so in files that are open by range ([`crate::Delegation::PerRange`]), and in served
    /// ones they do not.
    #[must_use]
    pub fn zero_copy(&self) -> bool {
        self.flags.contains(InitFlags::OVER_IO_URING | InitFlags::HAS_IO_URING_BUFPOOL)
    }
}

/// What a file system wants: `Wanted { kill_priv: true, ..Wanted::default() }`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// The optional operations it will answer in this mount, of those in [`crate::Filesystem::OPS`]. Default (`None`): all of them.
    pub ops: Option<OpSet>,
    /// Whether opens may be put in passthrough. Default: yes.
    pub passthrough: bool,
    /// How deep the lower file systems may be stacked, 1 or 2; 2 where branches lie on overlayfs. Default: 1.
    pub stack_depth: u32,
    /// Whether the kernel enforces POSIX ACLs, read as xattrs. Default: no.
    pub posix_acl: bool,
    /// Whether the file system strips suid, sgid and capabilities itself as `HANDLE_KILLPRIV_V2` demands,
    /// also at a SETATTR that names nothing. Default: no.
    pub kill_priv: bool,
    /// Whether listings carry entries (READDIRPLUS). Default: yes.
    pub readdirplus: bool,
    /// Whether they do so only where the caller looks names up anyway, as the kernel sees it. Default: no, always.
    pub readdirplus_auto: bool,
    /// Whether the kernel caches symlink targets. Default: yes.
    pub cache_symlinks: bool,
    /// Whether cached pages are dropped when a refreshed mtime or size differs. Default: yes.
    pub auto_inval_data: bool,
    /// Whether the umask comes apart from the mode, for the lower file system to apply. Default: no.
    pub dont_mask: bool,
    /// Whether OPEN truncates. Default: no (a SETATTR does).
    pub atomic_trunc: bool,
    /// Whether creations carry the parent's group where the caller has it as supplementary. Default: no.
    pub supp_group: bool,
    /// Whether the kernel gathers writes in its page cache and sends them later, in large pieces. It then is the owner of sizes and times
    /// of the files, and no file is in passthrough ([`crate::Reason::Writeback`]). Opens for writing alone come as ones for both, because
    /// pages are read to be completed, and never with `O_APPEND`. Default: no. Danger: what changes a file other than this mount is
    /// not seen, and what was written is lost with the machine, or the server, until `fsync` or a close.
    pub writeback_cache: bool,
    /// Whether `name_to_handle_at` gives handles of what is in the mount. Default: yes; without [`OpSet::EXPORT`] they hold for as long as
    /// the kernel remembers the node. Without, there is no way to a node but by its names, for root neither (from FUSE 7.40 on,
    /// Linux 6.9; older kernels do not know the wish).
    pub file_handles: bool,
    /// Granularity of times. Default: 1 ns.
    pub time_granularity: Duration,
}

impl Default for Wanted {
    fn default() -> Self {
        Self {
            ops: None,
            passthrough: true,
            stack_depth: 1,
            posix_acl: false,
            kill_priv: false,
            readdirplus: true,
            readdirplus_auto: false,
            cache_symlinks: true,
            auto_inval_data: true,
            dont_mask: false,
            atomic_trunc: false,
            supp_group: false,
            writeback_cache: false,
            file_handles: true,
            time_granularity: Duration::from_nanos(1),
        }
    }
}

/// Why a mount cannot be.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum InitError {
    /// The kernel's protocol is too old.
    #[error("the kernel speaks FUSE 7.{minor}, and 7.{needed} is needed")]
    ProtocolTooOld {
        /// The kernel's.
        minor: u32,
        /// The least that will do.
        needed: u32,
    },
    /// An operation is useless without another, and harmful.
    #[error("{operation} is among the operations of the file system, and {needed} is not")]
    Without {
        /// The operation that is there.
        operation: &'static str,
        /// The one that is not.
        needed: &'static str,
    },
    /// A capability that the file system cannot do without is missing.
    #[error("the kernel lacks {0}")]
    Lacks(&'static str),
}
