//! Which nodes the next server is to know, and how often the kernel has looked them up.
//!
//! A node on a file system that has handles is a few words: they lead to the inode in any process. Where there are none, as for ordinary users, its
//! descriptor is written down, which stays open because the keeper shares the table. So it is with what is on another file system that is mounted
//! below the source, because another server knows that mount only by what is open there, with long handles, and with folders that were removed.
//!
//! A folder of a merge is written down by its name and the node of the folder around it; where it is, is found by these. A long name goes on in
//! further records, which have numbers that no node has. One that is about to be removed is written down with a descriptor, too, which alone leads to it
//! when it has no name.
//!
//! Where a node has a number that outlives the mount, its generation must stay, too. That follows from the inode, but for a folder of a merge, whose
//! record has it, and for a file that was moved to another branch, of which a further record tells.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use shuntfs::takeover::{FileIdentity, KeptNode, KeptNodes, LeftNode, NodePlace};
use shuntfs::{Generation, LookupCount, LowerFile, NodeId, Result};
use shuntfs_sys::{FileHandle, decode_dev};

use crate::branch::MountIndex;
use crate::node::{Identity, Marks, Node, Parts, Way};
use crate::records::{self, Record};
use crate::view::Views;

/// So many bytes of a handle find room.
const HANDLE_MAX: usize = 40;
/// So many bytes of a name find room in the record of the folder, and in each further one.
const NAME_FIRST: usize = 24;
const NAME_FURTHER: usize = 64;

/// A mapping that stores into the lower file may be left of it ([`Marks::MAPPED_BELOW`]).
pub(crate) const MAPPED_BELOW: u32 = 1;

/// Where nodes are written down. Each node has the place of its own record ([`Node::kept`]): as long as somebody has the lock of that, the
/// record is not replaced.
#[derive(Debug)]
pub(crate) struct Keeping {
    nodes: KeptNodes,
    /// Further records: of folders with long names, and of files that were moved and whose numbers last.
    further: Mutex<HashMap<NodeId, Vec<NodePlace>>>,
    next_further: AtomicU64,
    next_lasting: AtomicU64,
    /// Descriptors that are written down of folders of a merge: they stay open as long.
    held: Mutex<HashMap<NodeId, Arc<LowerFile>>>,
    /// Nodes that a predecessor knew by their descriptors, and that the kernel may have forgotten.
    left: Mutex<Vec<NodeId>>,
    /// That one could not be was said.
    has_warned: AtomicBool,
}

impl Keeping {
    pub(crate) fn new(nodes: KeptNodes) -> Self {
        let next_further = Record::Further.first_of(nodes.servers());
        Self {
            further: Mutex::default(),
            next_further: AtomicU64::new(next_further),
            next_lasting: AtomicU64::new(Record::Lasting.first_of(nodes.servers())),
            held: Mutex::default(),
            nodes,
            left: Mutex::default(),
            has_warned: AtomicBool::new(false),
        }
    }

    /// Further records of a node are there.
    pub(crate) fn has_further(&self, node: &Node, places: Vec<NodePlace>) {
        if !places.is_empty() {
            node.mark(Marks::KEPT_FURTHER);
            self.further.lock().insert(node.id, places);
        }
    }

    /// A folder of a merge is written down with this descriptor.
    pub(crate) fn has_held(&self, node: &Node, held: Arc<LowerFile>) {
        node.mark(Marks::KEPT_FURTHER);
        self.held.lock().insert(node.id, held);
    }

    /// What a node has beside its record, which is nothing of most: its further records, and the descriptor of a folder of a merge.
    fn take_further(&self, node: &Node) -> (Vec<NodePlace>, Option<Arc<LowerFile>>) {
        if !node.has(Marks::KEPT_FURTHER) || !node.unmark(Marks::KEPT_FURTHER) {
            return (Vec::new(), None);
        }
        let further = self.further.lock().remove(&node.id);
        (further.unwrap_or_default(), self.held.lock().remove(&node.id))
    }

    /// A predecessor had written something down that is useless any more.
    pub(crate) fn drop_left(&self, place: NodePlace) {
        self.nodes.let_go(place);
    }

    /// The same of a node that leads nowhere any more, and whose number may come again: only that it was looked up stays written down. Where that is
    /// from now on.
    pub(crate) fn keep_count(&self, place: NodePlace, node: NodeId, mut words: [u64; 8]) -> NodePlace {
        // Another branch may get the number of the one that is gone.
        words[1] = words[1] & u64::from(u32::MAX) | u64::from(MountIndex::GONE.bits()) << 32;
        // The old record leads nowhere, too, until there is another branch.
        self.nodes.replace(&place, &KeptNode { node, file: None, words }).unwrap_or(place)
    }

    /// Fewer lookups of such a node are not given back.
    pub(crate) fn lower_left(&self, place: &NodePlace, count: LookupCount) {
        self.nodes.lower(place, count);
    }

    /// A node was looked up for the first time by this server, whose number was that of such a node, of which lookups are written down at this place.
    pub(crate) fn keep_owed(&self, node: &Node, place: NodePlace) {
        *node.kept.lock() = Some(place);
        self.keep_anew(node, None);
        self.raise(node);
    }

    /// The kernel may have forgotten a node that a predecessor knew.
    pub(crate) fn may_be_left(&self, node: &Node) {
        node.mark(Marks::LEFT);
        self.left.lock().push(node.id);
    }

    /// All of those, once.
    pub(crate) fn take_left(&self) -> Vec<NodeId> {
        std::mem::take(&mut self.left.lock())
    }

    /// A node was looked up for the first time. Nobody else has it yet.
    pub(crate) fn keep(&self, node: &mut Node) {
        let kept = self.written(node, None, |kept| self.nodes.keep(kept).ok());
        match kept {
            Some(place) => *node.kept.get_mut() = Some(place),
            None if !self.has_warned.swap(true, Ordering::Relaxed) => {
                tracing::warn!(
                    node = node.id.get(),
                    "it is not kept for another server: there are too many nodes, or no memory"
                );
            }
            None => {}
        }
    }

    /// It is found by another name, or is elsewhere, from now on. One that is known no more stays so. If it was moved and its number lasts, that
    /// has a generation that does not follow from where it is.
    pub(crate) fn keep_anew(&self, node: &Node, generation: Option<Generation>) {
        let mut kept = node.kept.lock();
        let Some(place) = &*kept else { return };
        // The descriptor is closed when it is written down no more.
        let (before, _held_before) = self.take_further(node);
        let next = self.written(node, generation, |kept| self.nodes.replace(place, kept).ok());
        before.into_iter().for_each(|place| self.nodes.let_go(place));
        let old = std::mem::replace(&mut *kept, next);
        // Otherwise it was replaced.
        old.filter(|_| kept.is_none()).into_iter().for_each(|place| self.nodes.let_go(place));
    }

    /// The only name of a file is about to be that of an inode at another place: noted until [`Keeping::has_moved`]. A server that is killed in between
    /// does not tell where it is then, but what has the name does.
    pub(crate) fn moves(&self, node: &Node, to: &Identity) -> Option<NodePlace> {
        let words = words_of_file(node, to)?;
        match Record::Moving.of(node.id) {
            Some(id) => self.nodes.keep(&KeptNode { node: id, file: None, words }).ok(),
            None => self.keep_lasting(node.id, words, LASTING_MOVES),
        }
    }

    /// Writes down something of a node whose number lasts.
    fn keep_lasting(&self, node: NodeId, mut words: [u64; 8], what: u64) -> Option<NodePlace> {
        // The handles of file systems on which numbers last are shorter.
        if words[LASTING_WHAT] != 0 || words[LASTING_NODE] != 0 {
            return None;
        }
        (words[LASTING_WHAT], words[LASTING_NODE]) = (what, node.get());
        let number = self.next_lasting.fetch_add(1, Ordering::Relaxed);
        self.nodes.keep(&KeptNode { node: NodeId::new(number)?, file: None, words }).ok()
    }

    /// It is, or will not be.
    pub(crate) fn has_moved(&self, noted: NodePlace) {
        self.nodes.let_go(noted);
    }

    /// Writes a node down by `write`, with the further records that it needs, which come first.
    fn written(
        &self,
        node: &Node,
        generation: Option<Generation>,
        write: impl FnOnce(&KeptNode<'_>) -> Option<NodePlace>,
    ) -> Option<NodePlace> {
        let (mut words, held, name) = match node.parts() {
            None => {
                let (words, held) = words_of(node)?;
                (words, held, None)
            }
            Some(parts) => {
                let held = if self.nodes.layout() > 1 { held_of(node, parts) } else { None };
                let (mount, held) = held.map_or((0, None), |(mount, held)| (mount.bits(), Some(held)));
                let way = parts.way();
                if way.is_none() && held.is_none() {
                    return None;
                }
                (words_of_folder(node, parts, (way.as_ref(), mount)), held, way.map(|way| way.1))
            }
        };
        let file = held.as_ref().map(|(held, identity)| (held.as_fd(), *identity));
        let rest = name.as_ref().and_then(|name| name.to_bytes().get(NAME_FIRST..)).unwrap_or_default();
        let further = rest.chunks(NAME_FURTHER);
        let count = further.len() as u64;
        let mut first = 0;
        if count > 0 {
            first = self.next_further.fetch_add(count, Ordering::Relaxed);
            words[FOLDER_FURTHER] = first;
        }
        let mut places = Vec::new();
        for (id, bytes) in (first..).zip(further) {
            let mut words = [0; 8];
            put_bytes(&mut words, bytes);
            let kept = NodeId::new(id).map(|node| KeptNode { node, file: None, words });
            places.extend(kept.and_then(|kept| self.nodes.keep(&kept).ok()));
        }
        let mut is_whole = places.len() as u64 == count;
        if let Some(generation) = generation {
            let kept = self.keep_lasting(node.id, [generation.0, 0, 0, 0, 0, 0, 0, 0], LASTING_GENERATION);
            is_whole &= kept.is_some();
            places.extend(kept);
        }
        let place = is_whole.then(|| write(&KeptNode { node: node.id, file, words })).flatten();
        if place.is_some() {
            self.has_further(node, places);
            let held = held.filter(|_| node.parts().is_some());
            held.into_iter().for_each(|(held, _)| self.has_held(node, held));
        } else {
            places.into_iter().for_each(|place| self.nodes.let_go(place));
        }
        place
    }

    /// It is marked for the next server, before what that tells of begins.
    pub(crate) fn mark(&self, node: &Node, marks: u32) {
        if let Some(place) = &*node.kept.lock() {
            self.nodes.mark(place, marks);
        }
    }

    /// And once more.
    pub(crate) fn raise(&self, node: &Node) {
        if let Some(place) = &*node.kept.lock() {
            self.nodes.raise(place, LookupCount(1));
        }
    }

    /// The kernel takes lookups back.
    pub(crate) fn lower(&self, node: &Node, count: LookupCount) {
        if let Some(place) = &*node.kept.lock() {
            self.nodes.lower(place, count);
        }
    }

    /// It is known no more.
    pub(crate) fn let_go(&self, node: &Node) {
        let place = node.kept.lock().take();
        if let Some(place) = place {
            self.nodes.let_go(place);
            // In this order: a record that nobody names is found to be useless.
            let (further, _held) = self.take_further(node);
            further.into_iter().for_each(|place| self.nodes.let_go(place));
        }
    }
}

/// Whether a node of this inode is found again by words alone. Others must keep a descriptor.
pub(crate) fn is_in_words(inode: &Identity) -> bool {
    let fits = |handle: &FileHandle| handle.bytes().len() <= HANDLE_MAX;
    inode.mount.is_own() && inode.handle.as_ref().is_some_and(fits)
}

/// A descriptor, and what it leads to.
type Held = (Arc<LowerFile>, FileIdentity);

/// What a node is, in words: inode number; view and mount; type and length of the handle, and the mode; the handle, beside which the device is 0. Where
/// there is no handle, or none that leads anywhere in another server, its length is 0, and the device is in its place. Then the descriptor is kept, and
/// for a folder that was removed, too.
fn words_of(node: &Node) -> Option<([u64; 8], Option<Held>)> {
    let place = node.place();
    let inode = place.inode();
    if is_in_words(inode) {
        let words = words_of_file(node, inode)?;
        let held = if node.has(Marks::KEPT_OPEN) { place.held() } else { None };
        let held = held.and_then(|held| FileIdentity::of(&held).ok().map(|identity| (held, identity)));
        return Some((words, held));
    }
    let mut words = first_words(node, inode)?;
    words[3] = u64::from(inode.device);
    let held = place.held()?;
    let identity = if inode.handle.is_some() {
        FileIdentity::of(&held).ok()?
    } else {
        let of = decode_dev(inode.device);
        FileIdentity { device: u64::from(of.major) << 32 | u64::from(of.minor), inode: inode.ino }
    };
    Some((words, Some((held, identity))))
}

/// The same of one whose file is that inode, which has a handle.
fn words_of_file(node: &Node, inode: &Identity) -> Option<[u64; 8]> {
    let handle = inode.handle.as_ref()?;
    let bytes = handle.bytes();
    if inode.device != 0 || !is_in_words(inode) {
        return None;
    }
    let mut words = first_words(node, inode)?;
    words[2] |= u64::from(handle.kind().cast_unsigned()) | (bytes.len() as u64) << 48;
    put_bytes(&mut words[3..], bytes);
    Some(words)
}

fn first_words(node: &Node, inode: &Identity) -> Option<[u64; 8]> {
    if node.parts().is_some() {
        return None;
    }
    let mut words = [0; 8];
    words[0] = inode.ino;
    words[1] = u64::from(node.view.number()) | u64::from(inode.mount.bits()) << 32;
    words[2] = u64::from(node.mode() & 0xffff) << 32;
    Some(words)
}

/// Where the record of a folder has the number of the first further one.
const FOLDER_FURTHER: usize = 4;
/// Whether it has a generation, in its third word.
const FOLDER_LASTS: u64 = 1;

/// Which mounts a folder's descriptor can be on: one of a higher number is not written down.
const HELD_MAX: u32 = u32::MAX >> 1;

/// Where a record of a node whose number lasts tells what it is, and of which node: where it is about to be, or which generation it has.
const LASTING_WHAT: usize = 6;
const LASTING_NODE: usize = 7;
const LASTING_MOVES: u64 = 1;
const LASTING_GENERATION: u64 = 2;

/// What a folder of a merge is, in words: its number as it is shown; that it is on no mount, and the generation if its number lasts; the mode and the
/// length of its name, on which mount a descriptor is that is kept, and whether its number lasts; the node of the folder around it; the first further
/// record; the name. One that was removed has no name.
fn words_of_folder(node: &Node, parts: &Parts, (way, held_on): (Option<&Way>, u32)) -> [u64; 8] {
    let (outer, name) = way.map_or((0, &b""[..]), |(outer, name)| (outer.get(), name.to_bytes()));
    let mut words = [0; 8];
    words[0] = parts.ino;
    words[1] = u64::from(MountIndex::NOWHERE.bits()) << 32;
    words[2] = (u64::from(node.mode() & 0xffff) | (name.len() as u64) << 16) << 32 | u64::from(held_on) << 1;
    if let Some(generation) = parts.generation {
        words[1] |= generation.0 & u64::from(u32::MAX);
        words[2] |= FOLDER_LASTS;
    }
    words[3] = outer;
    put_bytes(&mut words[5..], &name[..name.len().min(NAME_FIRST)]);
    words
}

/// The descriptor by which the next server reaches a folder of a merge, if it is to: where it is removed last.
fn held_of(node: &Node, parts: &Parts) -> Option<(MountIndex, Held)> {
    let place = parts.all().into_iter().next().filter(|_| node.has(Marks::KEPT_OPEN))?;
    let held = place.held().filter(|_| place.mount().bits() <= HELD_MAX)?;
    let identity = FileIdentity::of(&held).ok()?;
    Some((place.mount(), (held, identity)))
}

fn put_bytes(words: &mut [u64], bytes: &[u8]) {
    for (word, bytes) in words.iter_mut().zip(bytes.chunks(8)) {
        let mut whole = [0; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_le_bytes(whole);
    }
}

/// A folder of a merge that a predecessor had written down.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct LeftFolder {
    /// `None` where it was removed.
    pub(crate) way: Option<Way>,
    /// Where its descriptor is, if it has one.
    pub(crate) held_on: MountIndex,
    pub(crate) ino: u64,
    pub(crate) mode: u32,
    /// Of its number, if that lasts.
    pub(crate) generation: Option<Generation>,
    pub(crate) further: Vec<NodePlace>,
}

/// What was left beside nodes.
pub(crate) struct Parted {
    /// By their numbers.
    pub(crate) further: HashMap<u64, LeftNode>,
    /// Where files were about to be, by the numbers of their nodes.
    pub(crate) moving: HashMap<u64, LeftNode>,
    /// The generations of files that were moved and whose numbers last.
    pub(crate) generations: HashMap<NodeId, (Generation, NodePlace)>,
    /// What is useless.
    pub(crate) useless: Vec<NodePlace>,
}

/// Takes records of the kinds that are written down here apart.
pub(crate) fn part(mut left: Vec<LeftNode>) -> Parted {
    let further = left.extract_if(.., |left| Record::Further.has(left.node));
    let further = further.map(|left| (left.node.get(), left)).collect();
    let moving = left.extract_if(.., |left| Record::Moving.has(left.node));
    let moving = moving.filter_map(|left| Some((records::node_of(left.node)?.get(), left))).collect();
    let lasting: Vec<LeftNode> = left.extract_if(.., |left| Record::Lasting.has(left.node)).collect();
    let mut parted = Parted { further, moving, generations: HashMap::new(), useless: Vec::new() };
    lasting.into_iter().for_each(|left| parted.take_lasting(left));
    parted
}

impl Parted {
    fn take_lasting(&mut self, mut left: LeftNode) {
        let what = std::mem::take(&mut left.words[LASTING_WHAT]);
        let node = std::mem::take(&mut left.words[LASTING_NODE]);
        match (what, NodeId::new(node)) {
            (LASTING_MOVES, Some(_)) => drop(self.moving.insert(node, left)),
            (LASTING_GENERATION, Some(node)) => {
                // A server that died while it wrote the node down again has left two, which are the same.
                let other = self.generations.insert(node, (Generation(left.words[0]), left.place));
                self.useless.extend(other.map(|(_, place)| place));
            }
            _ => self.useless.push(left.place),
        }
    }
}

/// Whether the words are of the same inode, seen in the same way.
pub(crate) fn are_of_one(one: &[u64; 8], other: &[u64; 8]) -> bool {
    // The mode may have been seen at another time.
    let is_such = |at: usize| {
        if at == 2 { (one[2] ^ other[2]) & u64::from(u32::MAX) == 0 } else { one[at] == other[at] }
    };
    (0..8).all(is_such)
}

/// Whether these words are of a node that is reached by its descriptor alone.
pub(crate) fn has_no_handle(words: &[u64; 8]) -> bool {
    words[2] >> 48 == 0
}

/// Whether these words are of a folder of a merge.
pub(crate) fn is_folder(words: &[u64; 8]) -> bool {
    words[1] >> 32 == u64::from(MountIndex::NOWHERE.bits())
}

/// The folder that they tell of; `None` where they tell of none.
pub(crate) fn folder_of(words: [u64; 8], further: &mut HashMap<u64, LeftNode>) -> Option<LeftFolder> {
    let len = usize::try_from(words[2] >> 48).ok()?;
    let mut name: Vec<u8> = words[5..].iter().flat_map(|word| word.to_le_bytes()).collect();
    let (mut places, mut next) = (Vec::new(), words[FOLDER_FURTHER]);
    while name.len() < len {
        let LeftNode { place, words, .. } = further.remove(&next)?;
        name.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        places.push(place);
        next = next.checked_add(1)?;
    }
    name.truncate(len);
    let name: Box<CStr> = CString::new(name).ok()?.into_boxed_c_str();
    let way = if len == 0 { None } else { Some((NodeId::new(words[3])?, name)) };
    let mode = u32::try_from(words[2] >> 32 & 0xffff).ok()?;
    let lasts = words[2] & FOLDER_LASTS != 0;
    let generation = lasts.then_some(Generation(words[1] & u64::from(u32::MAX)));
    let held_on = MountIndex::of_bits(u32::try_from(words[2] >> 1 & u64::from(HELD_MAX)).ok()?);
    Some(LeftFolder { way, held_on, ino: words[0], mode, generation, further: places })
}

/// The mount on which a node was that is no folder of a merge. Another server may know that mount by another number, but not its branch.
pub(crate) fn mount_of(words: &[u64; 8]) -> MountIndex {
    MountIndex::of_bits(u32::try_from(words[1] >> 32).unwrap_or(u32::MAX))
}

/// Which inode a descriptor leads to that a dead server kept, if the words do not tell that by a handle. What is on another mount, or has a
/// long handle, is examined by `find`.
///
/// # Errors
/// Those of finding it.
pub(crate) fn inode_of(
    words: &[u64; 8],
    file: &OwnedFd,
    find: impl FnOnce(&OwnedFd) -> Result<Identity>,
) -> Result<Option<Identity>> {
    if !has_no_handle(words) {
        return Ok(None);
    }
    let device = u32::try_from(words[3]).unwrap_or(0);
    let mount = mount_of(words);
    let is_known = mount.is_own() && device != 0;
    let known = || Ok(Identity { ino: words[0], device, mount, handle: None });
    if is_known { known() } else { find(file) }.map(Some)
}

/// The node that they tell of, by the views that there are. Of one that was kept by a descriptor alone that is [`inode_of`] the words.
pub(crate) fn node_of(id: NodeId, words: [u64; 8], inode: Option<Identity>, views: &Views) -> Option<Node> {
    let halves = |word: u64| {
        let low = u32::try_from(word & u64::from(u32::MAX)).unwrap_or(0);
        (low, u32::try_from(word >> 32).unwrap_or(0))
    };
    let ((view, mount), (kind, len_and_mode)) = (halves(words[1]), halves(words[2]));
    let (mode, len) = (len_and_mode & 0xffff, usize::try_from(len_and_mode >> 16).ok()?);
    let mount = MountIndex::of_bits(mount);
    let view = views.numbered(view)?;
    if let Some(inode) = inode {
        return Some(Node::new(id, inode, view, mode));
    }
    let mut bytes = [0; HANDLE_MAX];
    for (bytes, word) in bytes.chunks_exact_mut(8).zip(&words[3..]) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    let bytes = bytes.get(..len).filter(|_| mount.is_own())?;
    let handle = FileHandle::new(kind.cast_signed(), bytes)?;
    Some(Node::new(id, Identity::of_handle(words[0], mount, handle), view, mode))
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::view::View;
    use shuntfs_sys::Stat;

    #[test]
    fn a_node_is_the_same_after_it_was_written_down() {
        let id = NodeId::new(77).expect("not zero");
        let views = Views::default();
        let partial = views.of(&[shuntfs_rules::Redact::Whole]);
        for len in [0, 8, 12, 20, 33, 40] {
            let bytes: Vec<u8> = (1..=len).collect();
            let handle = FileHandle::new(-3, &bytes);
            let identity =
                Identity::new(&Stat { ino: u64::MAX - 5, ..Stat::default() }, MountIndex::own(0), handle);
            for view in [View::WHOLE, partial] {
                let node = Node::new(id, identity.clone(), view, 0o104_755);
                let (words, held) = words_of(&node).expect("fits");
                assert!(held.is_none());
                let again = node_of(id, words, None, &views).expect("is one");
                assert_eq!((again.key(), again.mode(), again.id), (&identity, 0o104_755, id), "{len}");
                assert_eq!(again.view, view);
            }
        }
    }

    #[test]
    fn a_node_without_a_handle_is_written_down_with_its_descriptor() {
        let (id, views) = (NodeId::new(77).expect("not zero"), Views::default());
        let file = shuntfs_sys::open_folder(std::path::Path::new("/")).expect("opens");
        let found = FileIdentity::of(&file).expect("stats");
        let identity = Identity::new(&shuntfs_sys::stat_of(&file).expect("stats"), MountIndex::own(2), None);
        let node = Node::new(id, identity.clone(), View::WHOLE, 0o40_755);
        assert!(words_of(&node).is_none(), "it cannot be found again");
        node.pin(Arc::new(LowerFile::new(file)));
        let (words, held) = words_of(&node).expect("fits");
        let (held, kept) = held.expect("is held");
        assert_eq!(kept, found);
        let copy = held.as_fd().try_clone_to_owned().expect("a duplicate");
        let nobody = |_: &OwnedFd| -> Result<Identity> { panic!("the words tell it") };
        let inode = inode_of(&words, &copy, nobody).expect("is known");
        let again = node_of(id, words, inode, &views).expect("is one");
        assert_eq!((again.key(), again.mode(), again.id), (&identity, 0o40_755, id));
    }

    /// What was on another mount, or had a long handle, was not written down, and its users got ESTALE after a kill.
    #[test]
    fn what_words_do_not_lead_to_is_written_down_with_its_descriptor() {
        let (id, views) = (NodeId::new(77).expect("not zero"), Views::default());
        let file =
            Arc::new(LowerFile::new(shuntfs_sys::open_folder(std::path::Path::new("/")).expect("opens")));
        let found = FileIdentity::of(&*file).expect("stats");
        let stat = shuntfs_sys::stat_of(&*file).expect("stats");
        let handle = |len: usize| FileHandle::new(1, &vec![7; len]);
        for (mount, len) in [(MountIndex::other(3), 8), (MountIndex::own(0), 41), (MountIndex::other(3), 128)]
        {
            let identity = Identity::new(&stat, mount, handle(len));
            let node = Node::new(id, identity.clone(), View::WHOLE, 0o40_755);
            assert!(words_of(&node).is_none(), "it cannot be found again");
            node.pin(Arc::clone(&file));
            let (words, held) = words_of(&node).expect("fits");
            assert_eq!(held.expect("is held").1, found);
            assert_eq!(mount_of(&words), mount);
            let copy = file.as_fd().try_clone_to_owned().expect("a duplicate");
            let inode = inode_of(&words, &copy, |_| Ok(identity.clone())).expect("is found");
            let again = node_of(id, words, inode, &views).expect("is one");
            assert_eq!((again.key(), again.mode(), again.id), (&identity, 0o40_755, id));
        }
        let removed =
            Node::new(id, Identity::new(&stat, MountIndex::own(0), handle(8)), View::WHOLE, 0o40_755);
        removed.pin(Arc::clone(&file));
        assert!(words_of(&removed).expect("fits").1.is_none(), "its handle is enough");
        removed.mark(Marks::KEPT_OPEN);
        assert!(!removed.unpin(), "the next server needs it");
        let (words, held) = words_of(&removed).expect("fits");
        let again = node_of(id, words, None, &views).expect("is one");
        assert_eq!((again.key(), held.expect("is held").1), (removed.key(), found));
    }

    /// Another generation would have the kernel fail what is open there.
    #[test]
    fn a_folder_has_the_generation_of_its_number_again() {
        for generation in [None, Some(0), Some(7), Some(u64::from(u32::MAX))].map(|some| some.map(Generation))
        {
            let way: Way = (NodeId::ROOT, c"name".into());
            let parts = Parts::new(9, Vec::new(), 0, Some(way.clone())).with_generation(generation);
            let node = Node::folder(
                NodeId::new(1 << 63 | 77).expect("not zero"),
                Identity::of_folder(5),
                0o40_755,
                parts,
            );
            for held_on in [0, 3, HELD_MAX].map(MountIndex::of_bits) {
                let parts = node.parts().expect("is one");
                let words = words_of_folder(&node, parts, (Some(&way), held_on.bits()));
                assert!(is_folder(&words), "{generation:?}");
                let way = Some(way.clone());
                let expected =
                    LeftFolder { way, held_on, ino: 9, mode: 0o40_755, generation, further: Vec::new() };
                assert_eq!(folder_of(words, &mut HashMap::new()), Some(expected));
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_not_written_down() {
        let id = NodeId::new(77).expect("not zero");
        let node =
            |handle, mount| Node::new(id, Identity::new(&Stat::default(), mount, handle), View::WHOLE, 0);
        let handle = |len: usize| FileHandle::new(1, &vec![7; len]);
        assert!(words_of(&node(handle(8), MountIndex::own(0))).is_some());
        assert!(words_of(&node(None, MountIndex::own(0))).is_none());
        let (mut words, _) = words_of(&node(handle(8), MountIndex::own(0))).expect("fits");
        words[2] |= 0xff << 48;
        let views = Views::default();
        assert!(node_of(id, words, None, &views).is_none(), "no handle is so long");
        (words, _) = words_of(&node(handle(8), MountIndex::own(0))).expect("fits");
        words[1] |= 1;
        assert!(node_of(id, words, None, &views).is_none(), "there is no such view");
    }
}
