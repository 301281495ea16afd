//! A node: one view of one lower inode that the kernel knows. Nearly always that is the whole one, and the only one.
//!
//! What a node is kept by: the kernel's lookup count (in the table), and each open file (an `Arc`).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use shuntfs::takeover::NodePlace;
use shuntfs::{LowerFile, NodeId};
use shuntfs_sys::Stat;

use super::identity::Identity;
use super::marks::Marks;
use super::mobile::Mobile;
use super::parts::Parts;
use super::place::Place;
use crate::branch::MountIndex;
use crate::mode;
use crate::reread;
use crate::view::View;

/// `STATX_ATTR_IMMUTABLE`.
const STATX_IMMUTABLE: u64 = 0x10;
/// `STATX_ATTR_APPEND`.
const STATX_APPEND: u64 = 0x20;

/// One view of a lower inode that the kernel knows, or an open file keeps.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) id: NodeId,
    /// Where its lower inode was found first; of a folder in a merge only its key.
    first: Place,
    /// What it has if it may be moved while it is open.
    mobile: OnceLock<Box<Mobile>>,
    /// Where it is, if it is a folder in a merge.
    parts: Option<Box<Parts>>,
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
    /// Where it is written down for the next server ([`crate::keeping`]).
    pub(crate) kept: Mutex<Option<NodePlace>>,
}

impl Node {
    /// A node that the kernel has not heard of yet.
    pub(crate) fn new(id: NodeId, identity: Identity, view: View, mode: u32) -> Self {
        Self {
            id,
            first: Place::new(identity),
            mobile: OnceLock::new(),
            parts: None,
            view,
            lookups: AtomicU64::new(0),
            opens: AtomicU32::new(0),
            removals: AtomicU32::new(0),
            mappable: AtomicU32::new(0),
            mode: AtomicU32::new(mode),
            marks: AtomicU32::new(0),
            kept: Mutex::new(None),
        }
    }

    /// A folder that may be in several places.
    pub(crate) fn folder(id: NodeId, key: Identity, mode: u32, parts: Parts) -> Self {
        Self { parts: Some(Box::new(parts)), ..Self::new(id, key, View::WHOLE, mode) }
    }

    /// Where it is, if it is a folder in a merge.
    pub(crate) fn parts(&self) -> Option<&Parts> {
        self.parts.as_deref()
    }

    /// Where its lower inode is; of a folder in a merge only its key.
    pub(crate) fn place(&self) -> &Place {
        self.first.now().0
    }

    /// Where its lower inode was when the kernel first heard of it; of a folder in a merge only its key.
    pub(crate) fn first_place(&self) -> &Place {
        &self.first
    }

    /// How often it was moved to another branch.
    pub(crate) fn moves(&self) -> usize {
        self.first.now().1
    }

    /// It was moved to another branch. The table must know it there: see [`crate::table::Table::rebind`].
    pub(crate) fn moved(&self, there: Place) {
        self.place().moved(there);
    }

    /// What it has if it may be moved while it is open.
    pub(crate) fn mobile(&self) -> Option<&Mobile> {
        self.mobile.get().map(|mobile| &**mobile)
    }

    /// From now on it may be moved while it is open.
    pub(crate) fn make_mobile(&self) -> &Mobile {
        self.mobile.get_or_init(Box::default)
    }

    /// The mount that it is on, and so the branch; of a folder in several places, where it is shown.
    pub(crate) fn mount(&self) -> MountIndex {
        self.parts().map_or_else(|| self.place().mount(), |parts| parts.shown().mount())
    }

    /// What makes it the same one in the table.
    pub(crate) fn key(&self) -> &Identity {
        self.place().inode()
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

    /// Notes whether all branches of a merge could be asked for it.
    pub(crate) fn doubt(&self, is_doubtful: bool) {
        if is_doubtful {
            self.mark(Marks::DOUBTFUL);
        } else if self.has(Marks::DOUBTFUL) {
            self.unmark(Marks::DOUBTFUL);
        }
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
        let held = self.parts().map_or_else(|| self.place().held(), |parts| parts.shown_if_found()?.held());
        if held.is_some() {
            self.used();
        }
        held
    }

    /// Notes that a descriptor is in use.
    pub(crate) fn used(&self) {
        if !self.has(Marks::USED) {
            self.mark(Marks::USED);
        }
    }

    /// Whether it can be reached without a descriptor.
    pub(crate) fn has_handles(&self) -> bool {
        let have = |parts: &Parts| parts.all().iter().all(|place| place.handle().is_some());
        self.parts().map_or_else(|| self.place().handle().is_some(), have)
    }

    /// Whether a descriptor is open.
    pub(crate) fn has_descriptor(&self) -> bool {
        self.parts().map_or_else(|| self.place().is_held(), Parts::is_held)
    }

    /// Keeps a descriptor unless there is one; the one that is kept, and whether it is the given one.
    pub(crate) fn keep(&self, descriptor: Arc<LowerFile>) -> (Arc<LowerFile>, bool) {
        self.place().keep(descriptor)
    }

    /// Keeps a descriptor for the node's life, or until [`Node::unpin`].
    pub(crate) fn pin(&self, descriptor: Arc<LowerFile>) {
        // The mark comes first, so that the clock does not take the descriptor in between.
        self.mark(Marks::PINNED);
        drop(self.keep(descriptor));
    }

    /// Lets the clock have the descriptor again, where the node can be reached by handle.
    pub(crate) fn unpin(&self) -> bool {
        (self.place().handle().is_some() || self.parts.is_some())
            && !self.has(Marks::KEPT_OPEN)
            && self.unmark(Marks::PINNED)
    }

    /// Gives the descriptor up, unless it is pinned.
    pub(crate) fn drop_descriptor(&self) -> Option<Arc<LowerFile>> {
        let is_pinned = || self.has(Marks::PINNED);
        self.parts().map_or_else(|| self.place().give_up(is_pinned), |parts| parts.give_up(is_pinned))
    }
}

// 256 bytes of ours a cached node, with its two table slots (at most 2.3 x 9 bytes each), the counters of its
// `Arc` (16), the allocator's word (8) and a handle on the heap (at most 24 with overhead).
const _: () = assert!(size_of::<Node>() + 16 + 8 + 2 * 21 + 24 <= 256);
