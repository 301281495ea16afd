//! What a pool is asked to be.

use std::path::PathBuf;
use std::sync::Arc;

use shuntfs_sys::AccessTimes;

use crate::ledger::Earlier;
use crate::merge::{KeptBranches, MergeOptions};

/// Who may wait for locks below at once, by default.
const LOCK_WAITERS: usize = 64;

/// The settings of a pool. Start from [`PoolOptions::new`] and change fields.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolOptions {
    /// The folder that is shown.
    pub source: PathBuf,
    /// Several folders that are shown as one, instead of `source`, which is then only what the pool is called. Default: none.
    pub merge: Option<MergeOptions>,
    /// What the kernel may keep. Default: everything, forever, because the folder changes only through the
    /// mount. Danger: changes made below show late or never.
    pub cache: Cache,
    /// Who keeps locks. Default: the kernel.
    pub locks: Locks,
    /// How many processes may wait for locks that are kept below; beyond that waiting is refused with ENOLCK.
    /// A user's own are at most as many as there is room left: half of all where nobody else waits. Default: 64. Each holds one of its queue's entries while it waits, so a session whose depth is no larger
    /// than this can be stopped by waiting alone.
    pub lock_waiters: usize,
    /// How bytes shall flow. Default: passthrough.
    pub flow: FlowWish,
    /// Whether changes are refused with EROFS. Default: no.
    pub read_only: bool,
    /// Whether handles of files (`name_to_handle_at`, an NFS server's) hold when the kernel has forgotten the file, and when the pool is
    /// mounted again. The source, or each branch of several, must then be where a whole file system is mounted, with nothing mounted below it;
    /// there are no rules and no seals, and inode numbers of several branches go by the default or by `DevinoHash32`. Default: no. Danger: whoever may open handles (`CAP_DAC_READ_SEARCH`) reaches every file of the source by
    /// a number.
    pub handles: bool,
    /// Whether the kernel checks permissions, which must be what the mount says, too (`default_permissions`). Default: yes. Without, it does
    /// not ask for a folder's attributes after each change in it. Danger: whoever can reach the mount may do what the server may.
    pub checks_permissions: bool,
    /// Whether files have extended attributes, ACLs included. Default: yes. Without, the kernel does not ask for file capabilities before
    /// the first write to a file; the lower file system takes those away anyway. Danger: ACLs of the lower files are not asked, and
    /// the group bits of a file that has one say more than it allows, so only for a mount that one user can reach.
    pub xattrs: bool,
    /// How many `O_PATH` descriptors are kept for nodes in use. Default: the smaller of 4096 and a quarter of
    /// the limit on open descriptors. Each saves one system call on the next use of its node. Nodes of a lower
    /// file system without file handles keep one descriptor each beyond this.
    pub descriptors: Option<usize>,
    /// Whether lower system calls run in the queue. Default: by the type of the lower file system.
    pub calls: Calls,
    /// When what is read below gets a new time of access. Default: as the lower mounts say. Otherwise each lower mount is mounted
    /// once more for the pool alone, which needs CAP_SYS_ADMIN, and opens go through that: one more call each. File systems
    /// without file handles keep these times in their own way. What the kernel answers from its caches is no access.
    pub access_times: AccessTimes,
    /// Where the branches in force are noted, if another server may go on with them: they are opened from there. Default: nowhere.
    pub kept: Option<Arc<KeptBranches>>,
    /// What an earlier server of the mount did by the rules ([`crate::Ledger::earlier`]). Default: there was none.
    pub earlier: Earlier,
    /// Whether this is another server of a mount, whose source was checked when it began. Default: no. What was mounted over a part of it since then
    /// keeps files from being found by handle ([`PoolOptions::handles`]), and is no error.
    pub goes_on: bool,
}

impl PoolOptions {
    /// A pool of the folder `source` with every default.
    #[must_use]
    pub fn new(source: impl Into<PathBuf>) -> Self {
        Self {
            source: source.into(),
            merge: None,
            cache: Cache::Default,
            locks: Locks::Kernel,
            lock_waiters: LOCK_WAITERS,
            flow: FlowWish::Passthrough,
            read_only: false,
            handles: false,
            checks_permissions: true,
            xattrs: true,
            descriptors: None,
            calls: Calls::Auto,
            access_times: AccessTimes::default(),
            kept: None,
            earlier: Earlier::None,
            goes_on: false,
        }
    }
}

/// What the kernel may keep of names, attributes, listings and data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Cache {
    /// Everything, without limit in time: entries, attributes, names that do not exist, symlinks, listings,
    /// pages. For folders that change only through the mount.
    Default,
    /// Entries and attributes for a second, nothing else: no names that do not exist, and pages until the next open. For folders that
    /// others change, and where a second makes no difference. Where rules or seals decide, nothing.
    Second,
    /// Nothing. For folders that others change.
    None,
}

/// Who keeps POSIX, OFD and `flock` locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Locks {
    /// The kernel: they hold between processes on the mount, and cost no request.
    Kernel,
    /// The lower file system: processes that work below see them, too. Each lock costs a request, and each
    /// close. A deadlock of POSIX locks is not found.
    Lower,
}

/// How the bytes of regular files shall flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum FlowWish {
    /// By the kernel, where it is available.
    Passthrough,
    /// By the library: `relay` on a ring, `splice` on a device.
    Relay,
    /// By the pool's own `read` and `write`.
    Served,
}

/// Where lower system calls run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Calls {
    /// In the queue for local file systems, on the offload pool for those that can block (network, FUSE,
    /// unknown).
    Auto,
    /// In the queue. Danger: one call that hangs stalls every request of its queue.
    Inline,
    /// On the offload pool. Costs a hand-over to another thread for each call.
    Offload,
}
