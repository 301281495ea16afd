//! An open file: opening costs no lower call, and the lower file is opened when an operation needs it. Only where the
//! bytes are not the kernel's to move is it opened at once for writing, because nobody else would meet its errors.
//!
//! An unlinked inode that nobody holds below is gone, and a lazy open holds nothing. So whoever removes a name
//! looks for open files of its node and pins a descriptor first, and whoever opens checks whether a name is being
//! removed, or was. Each counts itself before it looks at the other's count, so at least one of them sees the other.
//! Whoever takes a pin back looks afterwards whether a removal has begun, for the same reason.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use shuntfs::{
    Access, Backing, CacheHint, Delegation, Errno, Flow, Flows, LockOwner, LowerFile, OpenFlags, Opened,
    Reason, Result,
};
use shuntfs_rules::FlowWord;

use crate::branch::OpenThere;
use crate::error::errno;
use crate::guard::{TERMS_BITS, Terms};
use crate::lowers::{Course, Lowers};
use crate::merge::{self, Copies};
use crate::mode;
use crate::node::{Marks, Mobile, Node};
use crate::options::FlowWish;
use crate::redact::{self, Shown};
use crate::scarce::Room;
use crate::sealed::{self, Checked};
use crate::shared::Shared;
use crate::who::Who;

/// Where the terms of an open are in the second word that is kept of it, and whether they are.
const WORD_OF_TERMS: u32 = 8;
const HAS_TERMS: u64 = 1 << 7;
/// Whether it is checked as it is read.
const IS_CHECKED: u64 = 1 << 3;
/// Beside the flags of the open: its number.
const WORD_OF_OPENED: u32 = 32;
const _: () = assert!(WORD_OF_TERMS + TERMS_BITS <= u64::BITS);

/// The pool's side of one open file.
#[derive(Debug)]
pub struct PoolFile {
    pub(crate) node: Arc<Node>,
    /// What a partial view shows; `None` is everything.
    pub(crate) shown: Option<Shown>,
    /// What is shown of it, for the next server, where that is a copy.
    pub(crate) kept: Option<OwnedFd>,
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
    /// Whether the kernel reaches its lower file past us, by this open or another one.
    is_backed: AtomicBool,
    /// Counts it among those that are written in passthrough on a branch of a merge.
    writes_past: Mutex<Option<OpenThere>>,
    /// Whose POSIX and OFD locks went through this file.
    pub(crate) lock_owners: Mutex<Vec<LockOwner>>,
    pub(crate) has_flock: AtomicBool,
    /// Its number among open files, where locks are kept below.
    pub(crate) opened: u32,
    /// What its bytes go through.
    pub(crate) lowers: Arc<Lowers>,
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
        let lowers = Arc::new(Lowers::of_open(flags.may_write()));
        if shared.merge.is_some() {
            // First, so that whoever moves the file counts it on its new branch.
            node.make_mobile().opened(&lowers);
            lowers.count(&node, || shared.branch(node.mount()));
        }
        node.opened(is_mappable);
        if flags.may_write() && node.has(Marks::VARIES) {
            lowers.pass(&node, &shared.copies.gates);
        }
        Self {
            node,
            shown: None,
            kept: None,
            copies: None,
            checked: None,
            terms,
            flags: flags.0,
            is_mappable,
            rereads: false,
            is_backed: AtomicBool::new(false),
            writes_past: Mutex::default(),
            lock_owners: Mutex::default(),
            has_flock: AtomicBool::new(false),
            opened: if shared.locks_below() { shared.locks.next_opened() } else { 0 },
            lowers,
        }
    }

    /// A lower file of it that is open.
    pub(crate) fn held(&self) -> Option<Arc<LowerFile>> {
        [&self.lowers.mover, &self.lowers.reader, &self.lowers.appender]
            .into_iter()
            .find_map(|slot| slot.held())
    }

    /// What the next server needs to make it again: its flags, and what its open settled.
    pub(crate) fn words(&self) -> [u64; 2] {
        let terms = self.terms.bits();
        // Both are where releases without rules look for them.
        let serves_writes = u64::from(self.terms.writes == Some(FlowWord::Served));
        let goes_on = u64::from(self.shown.as_ref().is_some_and(Shown::goes_on));
        let settled = serves_writes | u64::from(self.rereads) << 1 | goes_on << 2;
        let settled = settled | if self.checked.is_some() { IS_CHECKED } else { 0 };
        let has_more = !self.is_below() || terms & !(3 << 2) != 0 || terms >> 2 & 3 != serves_writes * 3;
        [
            u64::from(self.flags) | u64::from(self.opened) << WORD_OF_OPENED,
            settled | if has_more { terms << WORD_OF_TERMS | HAS_TERMS } else { 0 },
        ]
    }

    /// Whether a file of these words is checked as it is read.
    pub(crate) fn is_checked_by([_, settled]: [u64; 2]) -> bool {
        settled & IS_CHECKED != 0
    }

    /// The open file that a predecessor had, which shows of a partial view what is in `copy`; `None` where they tell of none.
    pub(crate) fn of_words(
        shared: &Shared,
        node: Arc<Node>,
        [flags, settled]: [u64; 2],
        copy: Option<OwnedFd>,
    ) -> Option<Self> {
        let opened = u32::try_from(flags >> WORD_OF_OPENED).ok()?;
        let flags = OpenFlags(u32::try_from(flags & u64::from(u32::MAX)).ok()?);
        if opened != 0 && !shared.locks_below() {
            return None;
        }
        let has_terms = settled & HAS_TERMS != 0;
        let served = if settled & 1 != 0 { 3 << 2 } else { 0 };
        let terms = if has_terms { settled >> WORD_OF_TERMS } else { served };
        let others = settled & !(HAS_TERMS | IS_CHECKED) & ((1 << WORD_OF_TERMS) - 1);
        if others > 7 || !has_terms && settled > 3 {
            return None;
        }
        let terms = Terms::of_bits(terms)?;
        let is_partial = !node.view.is_whole();
        let (writes, unasked) = (terms.writes, Who::told(u32::MAX, u32::MAX));
        // Whoever opened it: what that decided is in the words.
        let mut file = Self::new(shared, unasked, node, flags, terms);
        file.terms.writes = writes;
        file.rereads = settled & 2 != 0;
        if shared.locks_below() {
            let (owners, flock) = shared.locks.left_of(file.node.id, opened);
            file.opened = opened;
            *file.lock_owners.lock() = owners;
            if let Some(lower) = flock {
                file.lowers.reader.set(lower);
                file.has_flock.store(true, Ordering::Relaxed);
            }
        }
        if is_partial {
            if flags.may_write() {
                return None;
            }
            let (shown, kept) = redact::left(shared, &file.node, copy, settled & 4 != 0)?;
            (file.shown, file.kept) = (Some(shown), kept);
        }
        Some(file)
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

    /// Whether what is written to it is moved without a look. What is only appended is written by a plain call, and would be copied once more.
    pub(crate) fn takes_unseen_data(&self) -> bool {
        !self.terms.limits.append_only
    }

    /// Notes how its bytes flow.
    pub(crate) fn flows_by(&self, shared: &Shared, flows: Flows) {
        // Where another open of the node is in passthrough, this one's mappings are, too.
        let is_below = |settled: shuntfs::Settled| {
            settled.flow == Flow::Passthrough || settled.reason == Reason::PassthroughOpens
        };
        let passes = is_below(flows.reads) || is_below(flows.writes);
        self.lowers.takes(if passes { Course::PastUs } else { Course::ByUs });
        if passes {
            self.is_backed.store(true, Ordering::Relaxed);
            if self.flags & mode::O_ACCMODE == mode::O_RDWR {
                shared.table.note_mapped_below(&self.node);
            }
        }
        if shared.merge.is_some() && self.may_write() {
            let mut counted = self.writes_past.lock();
            if flows.writes.flow == Flow::Passthrough {
                // Already, unless the node was in passthrough before.
                counted.get_or_insert_with(|| shared.branch(self.node.mount()).write_past());
            } else {
                *counted = None;
            }
        }
    }

    fn may_write(&self) -> bool {
        self.flags & mode::O_ACCMODE != mode::O_RDONLY
    }

    /// Refuses to have it pass through where it must be written, and could not be moved then although its branch may become full.
    ///
    /// # Errors
    /// ENOSPC.
    fn check_reserve(&self, shared: &Shared) -> Result<()> {
        if shared.merge.is_none() || !self.may_write() {
            return Ok(());
        }
        match merge::reserve(shared, &self.node) {
            Some(counted) => {
                *self.writes_past.lock() = Some(counted);
                Ok(())
            }
            None => Err(Errno::NOSPC),
        }
    }

    /// Has the node leave passthrough, where it is kept there for the next open only and this one had better not be in it. A mapping that
    /// stores into the lower file may be left of an earlier open, and keeps it there.
    pub(crate) fn leave_passthrough(&self, shared: &Shared) {
        if shared.merge.is_some()
            && self.may_write()
            && self.node.opens() == 1
            && let Some(notifier) = shared.notifier.get()
            && merge::leaves_passthrough(shared, &self.node)
        {
            notifier.drop_backing(self.node.id);
        }
    }

    /// Whether the kernel reaches its lower file past us, by this open or another one of the node: all opens of a node are alike in this.
    pub(crate) fn is_backed(&self) -> bool {
        self.is_backed.load(Ordering::Relaxed)
    }

    /// The lower file that this open's bytes go through.
    pub(crate) fn mover(&self, shared: &Shared) -> Result<Arc<LowerFile>> {
        let open = || {
            let opened = open_to_move(shared, &self.node, self.flags);
            opened.inspect_err(|error| merge::pass_on_of(shared, &self.node, *error))
        };
        self.lowers.mover.held_or(&self.node, open)
    }

    /// Has its bytes go through a lower file that was opened when it was made.
    pub(crate) fn is_moved_by(&self, file: LowerFile) {
        self.lowers.mover.set(file);
    }

    /// A lower file whose every write goes to the end.
    pub(crate) fn appender(&self, shared: &Shared) -> Result<Arc<LowerFile>> {
        let flags = mode::O_WRONLY | mode::O_APPEND | self.flags & mode::KEPT_FLAGS;
        self.lowers.appender.held_or(&self.node, || shared.open_node(&self.node, flags))
    }

    /// The mover where it is open and may write.
    pub(crate) fn open_writer(&self) -> Option<Arc<LowerFile>> {
        self.lowers.mover.held().filter(|_| self.may_write())
    }

    /// A lower file that can be read, or at least synced and asked.
    pub(crate) fn reader(&self, shared: &Shared) -> Result<Arc<LowerFile>> {
        let open = || match shared.open_node(&self.node, mode::O_RDONLY | mode::O_NONBLOCK) {
            // A server that is no superuser may have only what the caller has.
            Err(Errno::ACCES | Errno::PERM) => self.mover(shared),
            outcome => outcome,
        };
        self.lowers.reader.held_or(&self.node, open)
    }
}

impl Drop for PoolFile {
    fn drop(&mut self) {
        self.node.closed(self.is_mappable);
    }
}

/// Opens a lower file for moving bytes. Offsets come with each WRITE, so never `O_APPEND`, which would overrule
/// them; and wide enough to read, because the kernel may ask for the rest of a page that is written in part.
fn open_to_move(shared: &Shared, node: &Arc<Node>, flags: u32) -> Result<Arc<LowerFile>> {
    let access = flags & mode::O_ACCMODE;
    // Offsets and lengths suit the disk on which it was opened, and not every one to which it may have been moved.
    let unkept = if node.moves() > 0 { mode::O_DIRECT } else { 0 };
    let kept = flags & mode::KEPT_FLAGS & !unkept;
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
    let delegation = match &file.shown {
        Some(_) => redact::delegation(shared, &file),
        None => Delegation::split(to(reads), to(writes)),
    };
    let of_open = match shared.is_ours_alone() {
        _ if file.writes_direct() && shared.kernel.maps_direct.load(Ordering::Relaxed) => CacheHint::Direct,
        true => CacheHint::Keep,
        false => CacheHint::Drop,
    };
    let cache = if file.rereads { CacheHint::Again } else { file.terms.cache.unwrap_or(of_open) };
    Opened { file, delegation, cache, flush: shared.locks_below() }
}

/// Keeps a node's inode from vanishing with its last name.
///
/// # Errors
/// Those of reaching it; EMFILE where only the last descriptors are left.
pub(crate) fn hold(shared: &Shared, node: &Arc<Node>) -> Result<()> {
    if node.has(Marks::PINNED) {
        return Ok(());
    }
    hold_places(shared, node)?;
    let is_last = |descriptor: Arc<LowerFile>| shared.scarce.is_last(&descriptor, Room::Holds);
    // Where there is no handle, it is held in any case.
    if node.has_handles() && node.descriptor().is_some_and(is_last) {
        node.unmark(Marks::PINNED);
        drop(node.drop_descriptor());
        return Err(Errno::MFILE);
    }
    Ok(())
}

fn hold_places(shared: &Shared, node: &Arc<Node>) -> Result<()> {
    let Some(parts) = node.parts() else {
        loop {
            let place = node.place();
            let descriptor = shared.descriptor(node)?;
            // The mark comes first, so that the clock does not take the descriptor in between.
            node.mark(Marks::PINNED);
            drop(place.keep(descriptor));
            // Else it was moved to another branch meanwhile, and must be held there.
            if std::ptr::eq(place, node.place()) {
                return Ok(());
            }
        }
    };
    // First, so that the clock takes none of them.
    node.mark(Marks::PINNED);
    for place in parts.all() {
        if let Err(error) = shared.descriptor_at(node, &place) {
            node.unmark(Marks::PINNED);
            return Err(error);
        }
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
        Access::Register => {
            // The kernel could not be given the copy. The open is counted already, so that whoever begins to move the file sees it.
            if file.node.mobile().is_some_and(Mobile::is_moving) {
                return Err(Errno::BUSY);
            }
            file.check_reserve(shared)?;
            shared.to_access(&file.node)
        }
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
    if file.has_flock.load(Ordering::Relaxed) {
        shared.locks.drop_flock(file.opened);
    }
    let owners = std::mem::take(&mut *file.lock_owners.lock());
    shared.locks.drop_owners(file.node.id, &owners);
    let merge = shared.merge.as_ref().map(|merge| (merge, Arc::clone(&file.node)));
    drop(file);
    if let Some((merge, node)) = merge {
        merge::release(shared, merge, &node);
    }
}
