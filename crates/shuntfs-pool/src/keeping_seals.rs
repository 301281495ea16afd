//! What each node is by the seal, written down so that the next server knows it.
//!
//! A node of which nothing is written down was not looked up since the seal was taken, as far as the next server knows, and it has the kernel
//! look up its name before anybody opens it: so a record that is missing, for want of memory or because a server died, never makes a sealed
//! file one that is not.

use std::collections::HashMap;

use parking_lot::Mutex;
use shuntfs::NodeId;
use shuntfs::takeover::{KeptNode, KeptNodes, LeftNode, NodePlace};
use shuntfs_seal::NodeIndex;
use shuntfs_verified::Seals;

use crate::records::{Record, node_of};

/// What a node is by the seal of an epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SealRecord {
    pub(crate) epoch: u64,
    /// Which seal that is.
    pub(crate) tag: u64,
    /// `None` of a node that is not sealed.
    pub(crate) index: Option<NodeIndex>,
    /// Of a regular file that is sealed, in bytes.
    pub(crate) size: Option<u64>,
}

/// What predecessors have written down, by node; a place without a record is one that is damaged.
pub(crate) type LeftSeals = HashMap<NodeId, (NodePlace, Option<SealRecord>)>;

/// Where that is written down.
#[derive(Debug)]
pub(crate) struct KeptSeals {
    nodes: KeptNodes,
    places: Mutex<HashMap<NodeId, NodePlace>>,
}

impl KeptSeals {
    pub(crate) fn new(nodes: KeptNodes) -> Self {
        Self { nodes, places: Mutex::default() }
    }

    /// What is written down of a node is there.
    pub(crate) fn has(&self, node: NodeId, place: NodePlace) {
        self.places.lock().insert(node, place);
    }

    /// Writes down what a node is, before the kernel hears of it.
    pub(crate) fn keep(&self, node: NodeId, record: &SealRecord) {
        let Some(number) = Record::Seal.of(node) else { return };
        let kept = KeptNode { node: number, file: None, words: record.words() };
        let mut places = self.places.lock();
        let place = match places.get(&node) {
            Some(place) => self.nodes.replace(place, &kept),
            None => self.nodes.keep(&kept),
        };
        match place {
            Ok(place) => drop(places.insert(node, place)),
            Err(error) => {
                tracing::debug!(node = node.get(), %error, "that it is sealed is not written down");
                // What it was before is not what it is.
                places.remove(&node).into_iter().for_each(|place| self.nodes.let_go(place));
            }
        }
    }

    /// The kernel has forgotten the node.
    pub(crate) fn let_go(&self, node: NodeId) {
        let place = self.places.lock().remove(&node);
        place.into_iter().for_each(|place| self.nodes.let_go(place));
    }

    /// A record that no node needs any more.
    pub(crate) fn drop_left(&self, place: NodePlace) {
        self.nodes.let_go(place);
    }
}

impl SealRecord {
    fn words(&self) -> [u64; 8] {
        let index = self.index.map_or(0, |index| index.inode());
        let (has_size, size) = self.size.map_or((0, 0), |size| (1, size));
        [self.epoch, self.tag, index, has_size, size, 0, 0, 0]
    }

    fn of(words: [u64; 8]) -> Option<Self> {
        let [epoch, tag, index, has_size, size, 0, 0, 0] = words else { return None };
        let index = if index == 0 { None } else { Some(NodeIndex::from_inode(index)?) };
        Some(Self { epoch, tag, index, size: (has_size == 1).then_some(size) })
    }
}

/// Tells seals apart.
pub(crate) fn tag_of(seals: &Seals) -> u64 {
    let digest = seals.manifest().digest();
    digest.as_bytes().iter().take(8).fold(0, |tag, byte| tag << 8 | u64::from(*byte))
}

/// Takes what was written down of the seal apart from the nodes. One that is none of this is left out, as if it were missing.
pub(crate) fn part(mut left: Vec<LeftNode>) -> (Vec<LeftNode>, LeftSeals) {
    let of_seal = left.extract_if(.., |left| Record::Seal.has(left.node));
    let records =
        of_seal.filter_map(|left| Some((node_of(left.node)?, (left.place, SealRecord::of(left.words)))));
    let records = records.collect();
    (left, records)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_record_is_the_same_after_it_was_written_down() {
        let index = NodeIndex::from_inode(77);
        for record in [
            SealRecord { epoch: 0, tag: u64::MAX, index: None, size: None },
            SealRecord { epoch: 3, tag: 9, index, size: Some(0) },
            SealRecord { epoch: 3, tag: 9, index, size: Some(u64::MAX) },
            SealRecord { epoch: 3, tag: 9, index, size: None },
        ] {
            assert_eq!(SealRecord::of(record.words()), Some(record));
        }
        let record = SealRecord { epoch: 0, tag: 1, index, size: None };
        let mut words = record.words();
        words[7] = 1;
        assert_eq!(SealRecord::of(words), None);
    }
}
