//! A node: one view of one lower inode that the kernel knows. Nearly always that is the whole one, and the only one.
//!
//! What a node is kept by: the kernel's lookup count (in the table), and each open file (an `Arc`). How its
//! lower inode is reached: by file handle through a cached `O_PATH` descriptor, or, where the lower file
//! system has no handles, by a descriptor that is always open.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use shuntfs::{LowerFile, NodeId};
use shuntfs_sys::{Device, FileHandle, Stat, encode_dev};

use crate::branch::MountIndex;
use crate::mode;
use crate::reread;
use crate::view::View;

/// What makes a lower inode the same one: never a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    /// Inode number.
    pub(crate) ino: u64,
    /// Device, in 32 bits; 0 where there is a handle, which says by itself which subvolume it is of.
    pub(crate) device: u32,
    /// The mount, because a folder that is mounted twice must be two nodes: it has two parents.
    pub(crate) mount: MountIndex,
    /// The handle, whose generation tells two lives of one inode number apart; `None` where there are none.
    pub(crate) handle: Option<FileHandle>,
}

impl Identity {
    pub(crate) fn new(stat: &Stat, mount: MountIndex, handle: Option<FileHandle>) -> Self {
        let device = if handle.is_some() { 0 } else { device_number(stat.dev) };
        Self { ino: stat.ino, device, mount, handle }
    }

    /// The identity that a handle alone gives, where its inode number is known.
    pub(crate) fn of_handle(ino: u64, mount: MountIndex, handle: FileHandle) -> Self {
        Self { ino, device: 0, mount, handle: Some(handle) }
    }

    /// A hash of it; inode numbers of one device spread by themselves, so one round of mixing will do.
    pub(crate) fn hash(&self) -> u64 {
        let place = (u64::from(self.device) << 32) | u64::from(self.mount.bits());
        mix(self.ino ^ mix(place))
    }
}

impl std::hash::Hash for Identity {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        state.write_u64(Self::hash(self));
    }
}

pub(crate) fn device_number(device: Device) -> u32 {
    encode_dev(device.major, device.minor)
}

/// Spreads the bits of a number (the finalizer of splitmix64).
pub(crate) fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// `STATX_ATTR_IMMUTABLE`.
const STATX_IMMUTABLE: u64 = 0x10;
/// `STATX_ATTR_APPEND`.
const STATX_APPEND: u64 = 0x20;

/// One view of a lower inode that the kernel knows, or an open file keeps.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) identity: Identity,
    /// What of the inode this node shows.
    pub(crate) view: View,
    /// How many lookups the kernel holds. Raised only under the table's identity lock.
    pub(crate) lookups: AtomicU64,
    /// Open files.
    opens: AtomicU32,
    /// Removals of one of its names that are under way.
    removals: AtomicU32,
    /// Open files that may store through a shared mapping.
    mappable: AtomicU32,
    /// The mode as last seen.
    mode: AtomicU32,
    marks: AtomicU32,
    /// The `O_PATH` descriptor: cached, or pinned ([`Marks::PINNED`]).
    descriptor: Mutex<Option<Arc<LowerFile>>>,
}

/// Bits of [`Node`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Marks(u32);

impl Marks {
    /// The descriptor was used since the clock's hand passed.
    pub(crate) const USED: Self = Self(1);
    /// The descriptor must not be closed while the node lives.
    pub(crate) const PINNED: Self = Self(1 << 1);
    /// A name of it was removed while nobody had it open, so the inode may be gone, and an open must hold it at once.
    pub(crate) const UNLINKED: Self = Self(1 << 2);
    /// It was seen to have no file capability, or was made through this mount.
    pub(crate) const NO_CAPABILITY: Self = Self(1 << 3);
    /// Somebody set a file capability, so [`Marks::NO_CAPABILITY`] tells nothing any more. It stays set, because
    /// an answer from before may be noted after.
    pub(crate) const CAPABILITY_SET: Self = Self(1 << 7);
    /// Nobody may write it (`chattr +i`), as last seen.
    pub(crate) const IMMUTABLE: Self = Self(1 << 5);
    /// It may only grow (`chattr +a`), as last seen.
    pub(crate) const APPEND_ONLY: Self = Self(1 << 6);
    /// It was open for reading and writing, so a shared mapping may outlive its opens.
    pub(crate) const MAPPED: Self = Self(1 << 4);
    /// It is a file with something in it that is small ([`crate::reread`]), as last seen.
    pub(crate) const SMALL: Self = Self(1 << 8);
    /// It was opened for reading alone once since it was opened otherwise; and twice.
    pub(crate) const READ_ONCE: Self = Self(1 << 9);
    pub(crate) const READ_TWICE: Self = Self(1 << 10);
    /// It is no folder and has several names, as last seen.
    pub(crate) const LINKED: Self = Self(1 << 11);
    /// It is a folder, and its names are compared byte by byte; or they are not, which was said.
    pub(crate) const EXACT: Self = Self(1 << 12);
    pub(crate) const FOLDS: Self = Self(1 << 13);
    /// The kernel may know it as one that is not sealed. It stays set.
    pub(crate) const UNSEALED: Self = Self(1 << 14);
    /// Others may have another view of the inode, and so another node, whose changes the kernel does not connect with
    /// this one. It stays set.
    pub(crate) const VARIES: Self = Self(1 << 16);
}

impl Marks {
    /// Both.
    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl Node {
    /// A node that the kernel has not heard of yet.
    pub(crate) fn new(id: NodeId, identity: Identity, view: View, mode: u32) -> Self {
        Self {
            id,
            identity,
            view,
            lookups: AtomicU64::new(0),
            opens: AtomicU32::new(0),
            removals: AtomicU32::new(0),
            mappable: AtomicU32::new(0),
            mode: AtomicU32::new(mode),
            marks: AtomicU32::new(0),
            descriptor: Mutex::new(None),
        }
    }

    pub(crate) fn mark(&self, marks: Marks) {
        self.marks.fetch_or(marks.0, Ordering::SeqCst);
    }

    /// Takes marks away; whether one of them was there.
    pub(crate) fn unmark(&self, marks: Marks) -> bool {
        self.marks.fetch_and(!marks.0, Ordering::SeqCst) & marks.0 != 0
    }

    pub(crate) fn has(&self, marks: Marks) -> bool {
        self.marks.load(Ordering::SeqCst) & marks.0 != 0
    }

    /// Notes the mode, the flags and about the length of fresh attributes.
    pub(crate) fn saw(&self, stat: &Stat) {
        self.mode.store(stat.mode, Ordering::Relaxed);
        for (is_set, mark) in [
            (stat.attributes & STATX_IMMUTABLE != 0, Marks::IMMUTABLE),
            (stat.attributes & STATX_APPEND != 0, Marks::APPEND_ONLY),
            (!stat.is_dir() && stat.nlink > 1, Marks::LINKED),
            (stat.is_file() && (1..=reread::LEN_MAX).contains(&stat.size), Marks::SMALL),
        ] {
            if is_set && !self.has(mark) {
                self.mark(mark);
            } else if !is_set && self.has(mark) {
                self.unmark(mark);
            }
        }
    }

    /// The mode as last seen.
    pub(crate) fn mode(&self) -> u32 {
        self.mode.load(Ordering::Relaxed)
    }

    /// Whether a change of the data would strip something from the mode as last seen.
    pub(crate) fn has_privileges(&self) -> bool {
        self.mode() & (mode::SUID | mode::SGID) != 0
    }

    pub(crate) fn is_dir(&self) -> bool {
        self.mode() & mode::TYPE == mode::DIR
    }

    pub(crate) fn is_file(&self) -> bool {
        self.mode() & mode::TYPE == mode::FILE
    }

    /// Counts an open file; [`Node::closed`] must follow.
    pub(crate) fn opened(&self, mappable: bool) {
        self.opens.fetch_add(1, Ordering::SeqCst);
        if mappable {
            self.mappable.fetch_add(1, Ordering::SeqCst);
            self.mark(Marks::MAPPED);
        }
    }

    pub(crate) fn closed(&self, mappable: bool) {
        let before = self.opens.fetch_sub(1, Ordering::SeqCst);
        assert!(before > 0, "more closes than opens of node {}", self.id.get());
        if mappable {
            self.mappable.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// How many files are open.
    pub(crate) fn opens(&self) -> u32 {
        self.opens.load(Ordering::SeqCst)
    }

    /// Counts a removal that begins; [`Node::removed`] must follow.
    pub(crate) fn removing(&self) {
        self.removals.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn removed(&self) {
        self.removals.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether a name is being removed now.
    pub(crate) fn is_losing_a_name(&self) -> bool {
        self.removals.load(Ordering::SeqCst) > 0
    }

    /// Whether an open file may store through a shared mapping now.
    pub(crate) fn is_mappable(&self) -> bool {
        self.mappable.load(Ordering::SeqCst) > 0
    }

    /// The descriptor, where it is open.
    pub(crate) fn descriptor(&self) -> Option<Arc<LowerFile>> {
        let held = self.descriptor.lock().clone();
        if held.is_some() && !self.has(Marks::USED) {
            self.mark(Marks::USED);
        }
        held
    }

    /// Whether the descriptor is open.
    pub(crate) fn has_descriptor(&self) -> bool {
        self.descriptor.lock().is_some()
    }

    /// Keeps a descriptor unless there is one; the one that is kept, and whether it is the given one.
    pub(crate) fn keep(&self, descriptor: Arc<LowerFile>) -> (Arc<LowerFile>, bool) {
        let mut held = self.descriptor.lock();
        match &*held {
            Some(earlier) => (Arc::clone(earlier), false),
            None => {
                *held = Some(Arc::clone(&descriptor));
                (descriptor, true)
            }
        }
    }

    /// Keeps a descriptor for the node's life, or until [`Node::unpin`].
    pub(crate) fn pin(&self, descriptor: Arc<LowerFile>) {
        // The mark comes first, so that the clock does not take the descriptor in between.
        self.mark(Marks::PINNED);
        drop(self.keep(descriptor));
    }

    /// Lets the clock have the descriptor again, where the node can be reached by handle.
    pub(crate) fn unpin(&self) -> bool {
        self.identity.handle.is_some() && self.unmark(Marks::PINNED)
    }

    /// Gives the descriptor up, unless it is pinned.
    pub(crate) fn drop_descriptor(&self) -> Option<Arc<LowerFile>> {
        let mut held = self.descriptor.lock();
        if self.has(Marks::PINNED) { None } else { held.take() }
    }
}

// 256 bytes of ours a cached node, with its two table slots (at most 2.3 x 9 bytes each), the counters of its
// `Arc` (16), the allocator's word (8) and a handle on the heap (at most 24 with overhead).
const _: () = assert!(size_of::<Node>() + 16 + 8 + 2 * 21 + 24 <= 256);
