//! What the pool wants of the kernel.

use std::sync::atomic::{AtomicBool, Ordering};

use shuntfs::{Filesystem, InitError, InitFlags, Offered, OpSet, Wanted};
use shuntfs_sys::OsError;
use shuntfs_sys::xattr::get_xattr;

use crate::branch::{Agreed, Branch};
use crate::error::PoolError;
use crate::options::FlowWish;
use crate::pool::Pool;
use crate::shared::Shared;

/// The first protocol whose requests say what is stripped (`HANDLE_KILLPRIV_V2`, Linux 5.11).
const MINOR_NEEDED: u32 = 33;

/// What the kernel offered at INIT, as far as it is asked for later.
#[derive(Debug, Default)]
pub(crate) struct KernelOffer {
    /// Whether a file that bypasses the page cache can be mapped shared (Linux 6.6).
    pub(crate) maps_direct: AtomicBool,
    /// Whether bytes that nobody has to see may move by zero copy (Linux 7.3).
    pub(crate) zero_copy: AtomicBool,
}

/// INIT.
pub(crate) fn init(shared: &Shared, offered: &Offered) -> Result<Wanted, InitError> {
    if offered.minor < MINOR_NEEDED {
        return Err(InitError::ProtocolTooOld { minor: offered.minor, needed: MINOR_NEEDED });
    }
    let maps_direct = offered.flags.contains(InitFlags::DIRECT_IO_ALLOW_MMAP);
    shared.kernel.maps_direct.store(maps_direct, Ordering::Relaxed);
    shared.kernel.zero_copy.store(offered.zero_copy(), Ordering::Relaxed);
    let mut ops = Pool::OPS;
    if !shared.locks_below() {
        // The kernel keeps locks, and nothing is left that a close would have to tell.
        ops.remove(OpSet::POSIX_LOCKS | OpSet::FLOCK_LOCKS | OpSet::FLUSH);
    }
    if !shared.hears_of_open_folders() {
        ops.remove(OpSet::OPENDIR);
    }
    if shared.options.checks_permissions {
        ops.remove(OpSet::ACCESS);
    }
    if !shared.options.xattrs {
        ops.remove(OpSet::XATTR);
    }
    if !shared.options.handles {
        ops.remove(OpSet::EXPORT);
    }
    let agreed = agreed(shared);
    Ok(Wanted {
        ops: Some(ops),
        passthrough: shared.options.flow == FlowWish::Passthrough,
        stack_depth: if agreed.stacked { 2 } else { 1 },
        posix_acl: agreed.acls,
        // What they carry must hold for a time, or the kernel looks each name up again; and where that is a short one, it is for who
        // looks at once.
        readdirplus: !shared.ttl().is_zero(),
        readdirplus_auto: !shared.is_ours_alone(),
        kill_priv: true,
        cache_symlinks: shared.is_ours_alone(),
        // What the mount alone changes is known to the kernel; a time that moved would only drop good pages.
        auto_inval_data: !shared.is_ours_alone(),
        dont_mask: true,
        // For O_RDONLY|O_TRUNC the kernel checks whether the file is being executed only after OPEN, and by then the running
        // program would be truncated.
        atomic_trunc: false,
        supp_group: true,
        // Rules and seals go by names, and somebody could guess a handle of what is hidden from him.
        file_handles: shared.rules.is_none() && shared.sealed.is_none(),
        ..Wanted::default()
    })
}

/// What INIT agrees on with the kernel by what the branches are. Asked of them once: those of that time may have been removed since.
fn agreed(shared: &Shared) -> Agreed {
    shared.branches.agreed(|| {
        let has = |test: fn(&Branch) -> bool| shared.branches.known().any(test);
        let options = &shared.options;
        Agreed {
            stacked: has(Branch::is_stacked),
            // Where permissions are not checked, this would bring the check back.
            acls: options.checks_permissions && options.xattrs && has(has_acls),
        }
    })
}

/// Refuses a branch, while the pool is mounted, that would have made INIT ask for something else.
///
/// # Errors
/// [`PoolError::OfMount`].
pub(crate) fn check_suits(shared: &Shared, branch: &Branch) -> Result<(), PoolError> {
    let refuse = |what| Err(PoolError::OfMount { path: branch.source().to_owned(), what });
    let (agreed, options) = (agreed(shared), &shared.options);
    if branch.is_stacked() && !agreed.stacked {
        return refuse("is on an overlay or on FUSE");
    }
    // Without them the kernel would judge by the mode alone, and let in whom an ACL keeps out.
    if options.checks_permissions && options.xattrs && !agreed.acls && has_acls(branch) {
        return refuse("has POSIX ACLs");
    }
    Ok(())
}

/// Whether a branch's file system has POSIX ACLs: then the kernel must enforce them, else it must not ask.
fn has_acls(branch: &Branch) -> bool {
    match get_xattr(branch.root(), c"system.posix_acl_access", &mut []) {
        Ok(_) | Err(OsError::NODATA) => true,
        Err(_) => false,
    }
}
