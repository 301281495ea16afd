//! An open file: opening costs no lower call, and the lower file is opened when an operation needs it. Only where the
//! bytes are not the kernel's to move is it opened at once for writing, because nobody else would meet its errors.
//!
//! An unlinked inode that nobody holds below is gone, and a lazy open holds nothing. So whoever removes a name
//! looks for open files of its node and pins a descriptor first, and whoever opens looks whether a name is being
//! removed, or was. Each counts itself before it looks at the other's count, so at least one of them sees the other.
//! Whoever takes a pin back looks afterwards whether a removal has begun, for the same reason.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use shuntfs::{
    Access, Backing, CacheHint, Delegation, Errno, LockOwner, LowerFile, OpenFlags, Opened, Result,
};
use shuntfs_rules::FlowWord;

use crate::branch::OpenThere;
use crate::error::errno;
use crate::gate::Gates;
use crate::guard::Terms;
use crate::merge::{self, Copies};
use crate::mode;
use crate::node::{Marks, Node};
use crate::options::FlowWish;
use crate::redact::Shown;
use crate::sealed::{self, Checked};
use crate::shared::{KEPT_FLAGS, Shared};
use crate::who::Who;

/// The pool's side of one open file.
#[derive(Debug)]
pub struct PoolFile {
    pub(crate) node: Arc<Node>,
    /// What a partial view shows; `None` is everything.
    pub(crate) shown: Option<Shown>,
    /// Its copies, if one is read where it cannot be.
    pub(crate) copies: Option<Copies>,
    /// What checks it, where it is sealed and does not check itself.
    pub(crate) checked: Option<Checked>,
    /// What rules made of the open.
    pub(crate) terms: Terms,
    flags: u32,
    /// Whether a shared mapping of it may store without our noticing.
    is_mappable: bool,
    /// Whether the kernel shall rather keep its pages ([`crate::reread`]).
    pub(crate) rereads: bool,
    /// What it passed because others, who see less, may want to look at the file.
    gates: Option<Arc<Gates>>,
    /// Open as the caller's open asks, or wider.
    mover: OnceLock<Arc<LowerFile>>,
    /// Open as an append-only file is written.
    appender: OnceLock<Arc<LowerFile>>,
    /// Open for reading, for what needs a real descriptor but no right to write, which would keep the file from
    /// being executed.
    reader: OnceLock<Arc<LowerFile>>,
    /// Whose POSIX and OFD locks went through this file.
    pub(crate) lock_owners: Mutex<Vec<LockOwner>>,
    pub(crate) has_flock: AtomicBool,
    /// Counts it on its branch, in a merge. Dropped last: what is not counted any more holds nothing there.
    _there: Option<OpenThere>,
}

impl PoolFile {
    /// How its bytes are to flow when they are read, and when they are written.
    pub(crate) fn flows(&self, shared: &Shared) -> (FlowWord, FlowWord) {
        let of_mount = match shared.options.flow {
            FlowWish::Passthrough => FlowWord::Passthrough,
            FlowWish::Relay => FlowWord::Splice,
            FlowWish::Served => FlowWord::Served,
        };
        self.terms.flows(self.flags, of_mount)
    }

    /// Counts the open.
    pub(crate) fn new(
        shared: &Shared,
        who: Who,
        node: Arc<Node>,
        flags: OpenFlags,
        mut terms: Terms,
    ) -> Self {
        if flags.may_write() && who.keeps_set_ids() && node.has_privileges() {
            // In every other flow the kernel or the lower file system strips suid and sgid, whoever writes.
            terms.writes = Some(FlowWord::Served);
        }
        // In other flows a mapping's pages come back to us as WRITEs, and the kernel knows what they change.
        // Under rules another open of the node may be in passthrough, and then this one's mapping is the lower file's.
        let is_passthrough = shared.options.flow == FlowWish::Passthrough || shared.rules.is_some();
        let is_mappable = is_passthrough && flags.0 & mode::O_ACCMODE == mode::O_RDWR;
        let there = shared.merge.is_some().then(|| shared.branch(node.mount()).open_there());
        node.opened(is_mappable);
        let passes = flags.may_write() && node.has(Marks::VARIES);
        let gates = passes.then(|| Arc::clone(&shared.copies.gates));
        if let Some(gates) = &gates {
            gates.write(&node);
        }
        Self {
            node,
            shown: None,
            copies: None,
            checked: None,
            terms,
            appender: OnceLock::new(),
            flags: flags.0,
            is_mappable,
            rereads: false,
            gates,
            mover: OnceLock::new(),
            reader: OnceLock::new(),
            lock_owners: Mutex::default(),
            has_flock: AtomicBool::new(false),
            _there: there,
        }
    }

    /// Whether its writes bypass the page cache. Where they are ours to move, the kernel then lets those of all such opens into the file
    /// at once, as the lower file system does, if we say that they do; otherwise one at a time (`fuse_dio_lock`, Linux 6.9).
    fn writes_direct(&self) -> bool {
        self.flags & mode::O_DIRECT != 0 && self.flags & mode::O_ACCMODE != mode::O_RDONLY
    }

    /// Whether what it shows is what the lower file holds, without a look at it.
    pub(crate) fn is_below(&self) -> bool {
        self.shown.is_none() && self.checked.is_none()
    }

    /// The lower file that this open's bytes go through.
    pub(crate) fn mover(&self, shared: &Shared) -> Result<Arc<LowerFile>> {
        if let Some(file) = self.mover.get() {
            return Ok(Arc::clone(file));
        }
        let file = open_to_move(shared, &self.node, self.flags)?;
        Ok(Arc::clone(self.mover.get_or_init(|| file)))
    }

    /// Has its bytes go through a lower file that was opened when it was made.
    pub(crate) fn is_moved_by(&self, file: LowerFile) {
        self.mover.get_or_init(|| Arc::new(file));
    }

    /// A lower file whose every write goes to the end.
    pub(crate) fn appender(&self, shared: &Shared) -> Result<Arc<LowerFile>> {
        if let Some(file) = self.appender.get() {
            return Ok(Arc::clone(file));
        }
        let kept = self.flags & KEPT_FLAGS;
        let file = shared.open_node(&self.node, mode::O_WRONLY | mode::O_APPEND | kept)?;
        Ok(Arc::clone(self.appender.get_or_init(|| file)))
    }

    /// The mover where it is open and may write.
    pub(crate) fn open_writer(&self) -> Option<Arc<LowerFile>> {
        let may_write = self.flags & mode::O_ACCMODE != mode::O_RDONLY;
        self.mover.get().filter(|_| may_write).cloned()
    }

    /// A lower file that can be read, or at least synced and asked.
    pub(crate) fn reader(&self, shared: &Shared) -> Result<Arc<LowerFile>> {
        if let Some(file) = self.reader.get() {
            return Ok(Arc::clone(file));
        }
        let file = match shared.open_node(&self.node, mode::O_RDONLY | mode::O_NONBLOCK) {
            // A server that is no superuser may have only what the caller has.
            Err(Errno::ACCES | Errno::PERM) => self.mover(shared)?,
            outcome => outcome?,
        };
        Ok(Arc::clone(self.reader.get_or_init(|| file)))
    }
}

impl Drop for PoolFile {
    fn drop(&mut self) {
        self.node.closed(self.is_mappable);
        if let Some(gates) = &self.gates {
            gates.wrote(&self.node);
        }
    }
}

/// Opens a lower file for moving bytes. Offsets come with each WRITE, so never `O_APPEND`, which would overrule
/// them; and wide enough to read, because the kernel may ask for the rest of a page that is written in part.
fn open_to_move(shared: &Shared, node: &Arc<Node>, flags: u32) -> Result<Arc<LowerFile>> {
    let access = flags & mode::O_ACCMODE;
    let kept = flags & KEPT_FLAGS;
    let noatime = flags & mode::O_NOATIME;
    let wide = if access == mode::O_WRONLY { mode::O_RDWR } else { access.min(mode::O_RDWR) };
    let append = flags & mode::O_APPEND;
    let tries = [
        wide | kept | noatime,
        wide | kept,
        access.min(mode::O_RDWR) | kept,
        // An append-only inode is opened in no other way, and there every write goes to the end anyway.
        access.min(mode::O_RDWR) | kept | append,
    ];
    let mut refused = Errno::ACCES;
    let mut last = None;
    for flags in tries {
        if last == Some(flags) {
            continue;
        }
        last = Some(flags);
        match shared.open_node(node, flags) {
            Err(error @ (Errno::ACCES | Errno::PERM)) => refused = error,
            outcome => return outcome,
        }
    }
    Err(refused)
}

/// The answer to an open.
pub(crate) fn answer(shared: &Shared, file: PoolFile) -> Opened<PoolFile> {
    let (reads, writes) = file.flows(shared);
    let to = |word| match word {
        FlowWord::Passthrough if file.node.is_file() => Delegation::Passthrough(Backing::OfNode),
        FlowWord::Passthrough | FlowWord::Splice => Delegation::Splice(Backing::OfNode),
        FlowWord::Served => Delegation::Served,
    };
    let delegation = Delegation::split(to(reads), to(writes));
    let of_open = match shared.is_ours_alone() {
        _ if file.writes_direct() && shared.maps_direct.load(Ordering::Relaxed) => CacheHint::Direct,
        true => CacheHint::Keep,
        false => CacheHint::Drop,
    };
    let cache = if file.rereads { CacheHint::Again } else { file.terms.cache.unwrap_or(of_open) };
    Opened { file, delegation, cache, flush: shared.locks_below() }
}

/// Keeps a node's inode from vanishing with its last name.
pub(crate) fn hold(shared: &Shared, node: &Arc<Node>) -> Result<()> {
    if node.has(Marks::PINNED) {
        return Ok(());
    }
    let Some(parts) = node.parts() else {
        let descriptor = shared.descriptor(node)?;
        node.pin(descriptor);
        return Ok(());
    };
    // First, so that the clock takes none of them.
    node.mark(Marks::PINNED);
    for place in parts.all() {
        shared.descriptor_at(node, &place)?;
    }
    Ok(())
}

/// The lower file of a delegation.
pub(crate) fn lower_file(shared: &Shared, file: &PoolFile, access: Access) -> Result<Arc<LowerFile>> {
    if let Some(checked) = &file.checked {
        return sealed::lower_file(checked, access);
    }
    match access {
        // The node's own descriptor holds no right to write, so that the file can be executed.
        Access::Register => shared.to_access(&file.node),
        _ => file.mover(shared),
    }
}

/// RELEASE.
pub(crate) fn release(shared: &Shared, file: Arc<PoolFile>) {
    if file.has_flock.load(Ordering::Relaxed)
        && let Ok(lower) = file.reader(shared)
        && let Err(error) = shuntfs_sys::flock(&lower, shuntfs_sys::FlockOp::Unlock, false)
    {
        // The lock goes with the descriptor in any case.
        tracing::debug!(error = ?errno(error), "unlocking at the last close");
    }
    let owners = std::mem::take(&mut *file.lock_owners.lock());
    shared.locks.drop_owners(file.node.id, &owners);
    let merge = shared.merge.as_ref().map(|merge| (merge, Arc::clone(&file.node)));
    drop(file);
    if let Some((merge, node)) = merge {
        merge::release(shared, merge, &node);
    }
}
