//! The nodes that the kernel knows: what they are, and how often it has looked them up.

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

use parking_lot::Mutex;
use shuntfs_sys::descriptors::LeftDescriptors;
use shuntfs_wire::{Errno, LookupCount, NodeId, Result};

use super::layout::{NODES, Store, StoreError, check_of, once, twice};
use super::left::LeftNodes;
use crate::takeover::surviving::FileIdentity;

const NODE: usize = 1;
const DESCRIPTOR: usize = 2;
const DEVICE: usize = 3;
const INODE: usize = 4;
const WORDS: usize = 5;
/// How many words are the file system's.
pub(super) const OWN: usize = 8;
const CHECK: usize = WORDS + OWN;
/// These change while the rest stays.
const LOOKUPS: usize = CHECK + 1;
const MARKS: usize = LOOKUPS + 1;
/// The marks are what servers have made of them: the first layout has none, and what it holds there tells nothing.
const MARKS_KNOWN: u32 = 1 << 31;
const LIVE: u64 = 0x6e6f_6465;
/// It takes the place of another record of its node, which may be there still.
const SUCCEEDS: u64 = 0x6e65_7874;

/// What is kept of a node.
#[derive(Clone, Copy, Debug)]
pub struct KeptNode<'f> {
    /// Its number.
    pub node: NodeId,
    /// A descriptor that is open for as long as the node is known, and what it leads to.
    pub file: Option<(BorrowedFd<'f>, FileIdentity)>,
    /// What else the file system needs to know it again.
    pub words: [u64; OWN],
}

/// Where a node is kept, until it is let go.
// One more than the index, so that an `Option` of it takes four bytes: there is one for each node.
#[derive(PartialEq, Eq, Debug)]
pub struct NodePlace(NonZeroU32);

impl NodePlace {
    pub(super) fn of(index: u32) -> Self {
        Self(NonZeroU32::MIN.saturating_add(index))
    }

    fn index(&self) -> u32 {
        self.0.get() - 1
    }
}

const _: () = assert!(size_of::<Option<NodePlace>>() == 4 && NODES.count < u32::MAX);

/// Where a file system keeps its nodes, so that they survive the server. A node is kept before the kernel hears of it, and let go before its
/// descriptor is closed.
#[derive(Clone, Debug)]
pub struct KeptNodes {
    store: Arc<Store>,
    free: Arc<Mutex<Free>>,
    mount: u32,
}

#[derive(Debug)]
struct Free {
    list: Vec<u32>,
    next: u32,
}

impl Free {
    fn take(&mut self) -> Option<u32> {
        let fresh = self.next;
        self.list.pop().or_else(|| {
            self.next = fresh.checked_add(1)?;
            Some(fresh)
        })
    }
}

impl KeptNodes {
    /// Those of a store, with what a predecessor left there. Descriptors are taken from `left`.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(crate) fn take(
        store: &Arc<Store>,
        left: &mut LeftDescriptors,
    ) -> std::result::Result<(Self, LeftNodes), StoreError> {
        LeftNodes::find(store, left)
    }

    /// Those of a store of which so many records have been used, and these are free.
    pub(super) fn of(store: &Arc<Store>, list: Vec<u32>, next: u32) -> std::result::Result<Self, StoreError> {
        let free = Arc::new(Mutex::new(Free { list, next }));
        Ok(Self { store: Arc::clone(store), free, mount: store.mount_number()? })
    }

    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    /// A number of the mount, the same in all of its servers, that other mounts do not have: for generations of nodes, which must not change.
    #[must_use]
    pub fn mount_number(&self) -> u32 {
        self.mount
    }

    /// How many servers there have been, this one among them: for numbers of nodes that no other server has given out.
    #[must_use]
    pub fn servers(&self) -> u32 {
        self.store.servers()
    }

    /// The layout of the state, which is that of the release that began the mount: that release may go on with it.
    #[must_use]
    pub fn layout(&self) -> u8 {
        self.store.version()
    }

    /// Keeps a node that was looked up once.
    ///
    /// # Errors
    /// ENFILE where there are too many, ENOMEM.
    pub fn keep(&self, node: &KeptNode<'_>) -> Result<NodePlace> {
        let index = self.room()?;
        self.store.write_node(index, node, (LIVE, 1, twice(MARKS_KNOWN)));
        Ok(NodePlace::of(index))
    }

    /// Room for a record that nobody uses.
    fn room(&self) -> Result<u32> {
        let index = self.free.lock().take().ok_or(Errno::NFILE)?;
        if let Err(error) = self.store.grow_to(&NODES, index) {
            self.free.lock().list.push(index);
            return Err(error);
        }
        Ok(index)
    }

    /// Keeps something else of a node, whose lookups stay counted and whose marks stay; where it is kept from then on. A successor finds either the one or the other.
    /// Nobody may change these meanwhile.
    ///
    /// # Errors
    /// ENFILE where there are too many, ENOMEM, EIO where the count is damaged; it is kept where it was then.
    pub fn replace(&self, place: &NodePlace, node: &KeptNode<'_>) -> Result<NodePlace> {
        let before = place.index();
        let lookups = once(self.store.get(NODES.at(before) + LOOKUPS)).ok_or(Errno::IO)?;
        let (next, marks) = (self.room()?, self.store.get(NODES.at(before) + MARKS));
        self.store.write_node(next, node, (SUCCEEDS, lookups, marks));
        self.store.publish(NODES.at(before), 0);
        self.store.publish(NODES.at(next), LIVE);
        self.free.lock().list.push(before);
        Ok(NodePlace::of(next))
    }

    /// The number and the words that are kept there, read anew: a file system need not have them in its own memory, too. `None` where they
    /// are not what was written.
    #[must_use]
    pub fn read(&self, place: &NodePlace) -> Option<(NodeId, [u64; OWN])> {
        let found = self.store.found_node(place.index()).ok().flatten()?;
        Some((found.node, found.words))
    }

    /// The node was looked up so many times more. To be called before the kernel hears of it.
    pub fn raise(&self, place: &NodePlace, lookups: LookupCount) {
        let by = u32::try_from(lookups.0).unwrap_or(u32::MAX);
        self.store.count(place.index(), |count| count.saturating_add(by));
    }

    /// The kernel takes back so many lookups; how many are left.
    pub fn lower(&self, place: &NodePlace, lookups: LookupCount) -> LookupCount {
        let by = u32::try_from(lookups.0).unwrap_or(u32::MAX);
        LookupCount(self.store.count(place.index(), |count| count.saturating_sub(by)).into())
    }

    /// Marks a node with these bits, of the lowest 31, for successors. They stay until the node is let go. To be called before what they tell of begins.
    pub fn mark(&self, place: &NodePlace, marks: u32) {
        self.store.mark(place.index(), marks);
    }

    /// The node is known no more. To be called before its descriptor is closed.
    pub fn let_go(&self, place: NodePlace) {
        self.store.publish(NODES.at(place.index()), 0);
        self.free.lock().list.push(place.index());
    }
}

/// A node as it is written down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FoundNode {
    pub(super) index: u32,
    pub(super) node: NodeId,
    pub(super) lookups: u32,
    pub(super) descriptor: Option<(RawFd, FileIdentity)>,
    pub(super) words: [u64; OWN],
    pub(super) marks: Option<u32>,
}

/// What its first words say of a record, which are not checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beginning {
    pub(super) node: NodeId,
    pub(super) has_descriptor: bool,
    /// Whether it takes another one's place.
    pub(super) succeeds: bool,
}

impl Store {
    fn write_node(&self, index: u32, node: &KeptNode<'_>, (state, lookups, marks): (u64, u32, u64)) {
        let at = NODES.at(index);
        let (number, identity) = node.file.map_or((0, FileIdentity::default()), |(file, identity)| {
            (u64::try_from(file.as_raw_fd()).map_or(0, |number| number + 1), identity)
        });
        let mut body = [node.node.get(), number, identity.device, identity.inode, 0, 0, 0, 0, 0, 0, 0, 0];
        body[WORDS - NODE..].copy_from_slice(&node.words);
        for (place, word) in body.into_iter().enumerate() {
            self.put(at + NODE + place, word);
        }
        self.put(at + CHECK, check_of(at as u64, body));
        self.put(at + LOOKUPS, twice(lookups));
        if self.has_marks() {
            self.put(at + MARKS, marks);
        }
        self.publish(at, state);
    }

    /// Adds to marks that are known. Damaged ones stay, for the successor to find.
    fn mark(&self, index: u32, marks: u32) {
        if self.has_marks() {
            let more = |known: u32| (known & MARKS_KNOWN != 0).then(|| twice(known | marks & !MARKS_KNOWN));
            let _as_before = self.update(NODES.at(index) + MARKS, |word| once(word).and_then(more));
        }
    }

    /// The marks of a node.
    ///
    /// # Errors
    /// Why they are not what was written.
    fn marks(&self, index: u32) -> std::result::Result<Option<u32>, &'static str> {
        let word = self.get(NODES.at(index) + MARKS);
        // Nobody has ever written there.
        if !self.has_marks() || word == 0 {
            return Ok(None);
        }
        let marks = once(word).filter(|marks| marks & MARKS_KNOWN != 0);
        marks.map(|marks| Some(marks & !MARKS_KNOWN)).ok_or("its marks are not what was written")
    }

    /// Changes a count; what it is then. One that is damaged stays, for the successor to find.
    fn count(&self, index: u32, change: impl Fn(u32) -> u32) -> u32 {
        let word = NODES.at(index) + LOOKUPS;
        let was = self.update(word, |count| once(count).map(|count| twice(change(count))));
        was.ok().and_then(once).map_or(u32::MAX, change)
    }

    /// Where a predecessor died while it replaced a record, the new one stays, which is whole.
    pub(super) fn settle_nodes(&self) -> std::result::Result<(), StoreError> {
        let all = 0..self.top(&NODES)?;
        let is = |index: &u32, state| self.get(NODES.at(*index)) == state;
        let mut next = HashSet::new();
        for index in all.clone().filter(|index| is(index, SUCCEEDS)) {
            next.extend(self.found_node(index)?.map(|found| found.node));
        }
        if next.is_empty() {
            return Ok(());
        }
        for index in all.clone().filter(|index| is(index, LIVE)) {
            if self.found_node(index)?.is_some_and(|found| next.contains(&found.node)) {
                self.publish(NODES.at(index), 0);
            }
        }
        // Only now: a server that dies in between leaves records that can still be told apart.
        all.filter(|index| is(index, SUCCEEDS)).for_each(|index| self.publish(NODES.at(index), LIVE));
        Ok(())
    }

    /// What a record begins with; `None` where there is none. As long as nothing more is read of it, it is not trusted.
    ///
    /// # Errors
    /// [`StoreError::Record`].
    pub(super) fn beginning_of(&self, index: u32) -> std::result::Result<Option<Beginning>, StoreError> {
        let at = NODES.at(index);
        let wrong = |why| StoreError::Record { what: NODES.what, index, why };
        let state = self.get(at);
        if state == 0 {
            return Ok(None);
        }
        if state != LIVE && state != SUCCEEDS {
            return Err(wrong("its state is none"));
        }
        let node = NodeId::new(self.get(at + NODE)).ok_or_else(|| wrong("it has no number"))?;
        let has_descriptor = self.get(at + DESCRIPTOR) != 0;
        Ok(Some(Beginning { node, has_descriptor, succeeds: state == SUCCEEDS }))
    }

    pub(super) fn found_node(&self, index: u32) -> std::result::Result<Option<FoundNode>, StoreError> {
        let at = NODES.at(index);
        let wrong = |why| StoreError::Record { what: NODES.what, index, why };
        match self.get(at) {
            0 => return Ok(None),
            LIVE | SUCCEEDS => {}
            _ => return Err(wrong("its state is none")),
        }
        let body: [u64; CHECK - NODE] = std::array::from_fn(|place| self.get(at + NODE + place));
        if self.get(at + CHECK) != check_of(at as u64, body) {
            return Err(wrong("it is not what was written"));
        }
        let lookups =
            once(self.get(at + LOOKUPS)).ok_or_else(|| wrong("its lookups are not counted right"))?;
        let word = |place: usize| body[place - NODE];
        let descriptor = match word(DESCRIPTOR) {
            0 => None,
            number => {
                let number = RawFd::try_from(number - 1).map_err(|_| wrong("its descriptor is none"))?;
                Some((number, FileIdentity { device: word(DEVICE), inode: word(INODE) }))
            }
        };
        let node = NodeId::new(word(NODE)).ok_or_else(|| wrong("it has no number"))?;
        let marks = self.marks(index).map_err(wrong)?;
        let words = std::array::from_fn(|place| word(WORDS + place));
        Ok(Some(FoundNode { index, node, lookups, descriptor, words, marks }))
    }
}
