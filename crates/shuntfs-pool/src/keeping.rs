//! Which nodes the next server is to know, and how often the kernel has looked them up.
//!
//! A node of a folder whose file system has handles is a few words: they lead to the inode in any process. What cannot be written down so, on another
//! file system that is mounted below the source, is lost with the server, and its callers hear ESTALE.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use shuntfs::takeover::{KeptNode, KeptNodes, NodePlace};
use shuntfs::{LookupCount, NodeId};
use shuntfs_sys::FileHandle;

use crate::branch::MountIndex;
use crate::node::{Identity, Node, mix};
use crate::view::Views;

const SHARDS: usize = 64;
/// So many bytes of a handle find room.
const HANDLE_MAX: usize = 40;

/// Where nodes are written down.
#[derive(Debug)]
pub(crate) struct Keeping {
    nodes: KeptNodes,
    places: Box<[Mutex<HashMap<NodeId, NodePlace>>]>,
    /// That one could not be was said.
    has_warned: AtomicBool,
}

impl Keeping {
    pub(crate) fn new(nodes: KeptNodes) -> Self {
        let places = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { nodes, places, has_warned: AtomicBool::new(false) }
    }

    /// A predecessor had written it down there.
    pub(crate) fn has(&self, id: NodeId, place: NodePlace) {
        self.shard(id).lock().insert(id, place);
    }

    /// A node was looked up for the first time.
    pub(crate) fn keep(&self, node: &Node) {
        let kept = words_of(node).and_then(|words| {
            let kept = KeptNode { node: node.id, file: None, words };
            self.nodes.keep(&kept).ok()
        });
        match kept {
            Some(place) => self.has(node.id, place),
            None if !self.has_warned.swap(true, Ordering::Relaxed) => {
                tracing::warn!(
                    node = node.id.get(),
                    "nodes are not kept that are on other mounts, or too many"
                );
            }
            None => {}
        }
    }

    /// And once more.
    pub(crate) fn raise(&self, id: NodeId) {
        if let Some(place) = self.shard(id).lock().get(&id) {
            self.nodes.raise(place, LookupCount(1));
        }
    }

    /// The kernel takes lookups back.
    pub(crate) fn lower(&self, id: NodeId, count: LookupCount) {
        if let Some(place) = self.shard(id).lock().get(&id) {
            self.nodes.lower(place, count);
        }
    }

    /// It is known no more.
    pub(crate) fn let_go(&self, id: NodeId) {
        let place = self.shard(id).lock().remove(&id);
        if let Some(place) = place {
            self.nodes.let_go(place);
        }
    }

    fn shard(&self, id: NodeId) -> &Mutex<HashMap<NodeId, NodePlace>> {
        &self.places[usize::try_from(mix(id.get()) % SHARDS as u64).unwrap_or(0)]
    }
}

/// What a node is, in words: inode number; view and mount; type and length of the handle, and the mode; the handle, beside which the device is 0.
fn words_of(node: &Node) -> Option<[u64; 8]> {
    let Identity { ino, device, mount, handle } = node.key();
    let handle = handle.as_ref()?;
    let bytes = handle.bytes();
    if !mount.is_own() || *device != 0 || node.parts().is_some() || bytes.len() > HANDLE_MAX {
        return None;
    }
    let mut words = [0; 8];
    words[0] = *ino;
    words[1] = u64::from(node.view.number()) | u64::from(mount.bits()) << 32;
    let len_and_mode = u64::from(node.mode() & 0xffff) | (bytes.len() as u64) << 16;
    words[2] = u64::from(handle.kind().cast_unsigned()) | len_and_mode << 32;
    for (word, bytes) in words[3..].iter_mut().zip(bytes.chunks(8)) {
        *word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    }
    Some(words)
}

/// The node that they tell of, by the views that there are.
pub(crate) fn node_of(id: NodeId, words: [u64; 8], views: &Views) -> Option<Node> {
    let halves = |word: u64| {
        let low = u32::try_from(word & u64::from(u32::MAX)).unwrap_or(0);
        (low, u32::try_from(word >> 32).unwrap_or(0))
    };
    let ((view, mount), (kind, len_and_mode)) = (halves(words[1]), halves(words[2]));
    let (mode, len) = (len_and_mode & 0xffff, usize::try_from(len_and_mode >> 16).ok()?);
    let mut bytes: Vec<u8> = words[3..].iter().flat_map(|word| word.to_le_bytes()).collect();
    if len > bytes.len() {
        return None;
    }
    bytes.truncate(len);
    let mount = MountIndex::of_bits(mount);
    let handle = FileHandle::new(kind.cast_signed(), &bytes)?;
    let identity = Identity::of_handle(words[0], mount, handle);
    let view = views.numbered(view).filter(|_| mount.is_own())?;
    Some(Node::new(id, identity, view, mode))
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
                let again = node_of(id, words_of(&node).expect("fits"), &views).expect("is one");
                assert_eq!((again.key(), again.mode(), again.id), (&identity, 0o104_755, id), "{len}");
                assert_eq!(again.view, view);
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
        assert!(words_of(&node(handle(41), MountIndex::own(0))).is_none());
        assert!(words_of(&node(None, MountIndex::own(0))).is_none());
        assert!(words_of(&node(handle(8), MountIndex::other(1))).is_none());
        let mut words = words_of(&node(handle(8), MountIndex::own(0))).expect("fits");
        words[2] |= 0xff << 48;
        let views = Views::default();
        assert!(node_of(id, words, &views).is_none(), "no handle is so long");
        words = words_of(&node(handle(8), MountIndex::own(0))).expect("fits");
        words[1] |= 1;
        assert!(node_of(id, words, &views).is_none(), "there is no such view");
    }
}
