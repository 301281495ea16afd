//! What is written down for the next server besides nodes. All records have numbers in one space: those of nodes are small, and three bits
//! above them say what another record is.

use shuntfs::NodeId;
use shuntfs::takeover::{LeftNode, LeftNodes, StoreError};

/// Where these bits are. Of a node whose number outlives the mount, which has the highest bit, they are a part of that number.
const SHIFT: u32 = 60;
const BITS: u64 = 15;

/// So many numbers of its own each server may give out of one kind.
const OF_SERVER: u32 = 40;

/// What a record is that is no node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Record {
    /// A lock below. It has a number of its own.
    Lock = 1,
    /// What a node is by the seal. It has the number of the node.
    Seal = 2,
    /// Where a file is about to be. It has the number of the node.
    Moving = 3,
    /// The rest of a long name. It has a number of its own.
    Further = 4,
    /// The name that a file was looked up by last, where its inode number goes by that. It has the number of the node.
    Name = 5,
    /// What the record of a node has no room for whose number outlives the mount. It has a number of its own, and tells which node it is of.
    Lasting = 6,
    /// What a rename exchanges on one branch. It has a number of its own.
    Exchange = 7,
}

impl Record {
    /// The first number that a server may give out, where records of this kind have numbers of their own.
    pub(crate) const fn first_of(self, server: u32) -> u64 {
        (self as u64) << SHIFT | (server as u64) << OF_SERVER
    }

    /// The same of records that belong to names of files: the upper half of the server's numbers.
    pub(crate) const fn first_of_names(self, server: u32) -> u64 {
        self.first_of(server) | 1 << (OF_SERVER - 1)
    }

    /// The server that has given out a record's own number.
    pub(crate) fn server_of(number: NodeId) -> u32 {
        u32::try_from((number.get() & !(BITS << SHIFT)) >> OF_SERVER).unwrap_or(u32::MAX)
    }

    /// The number of the record of a node.
    pub(crate) fn of(self, node: NodeId) -> Option<NodeId> {
        if node.get() >> SHIFT == 0 { NodeId::new(node.get() | self.first_of(0)) } else { None }
    }

    /// Whether a record is that of a node.
    const fn has_none(number: NodeId) -> bool {
        let kind = number.get() >> SHIFT & BITS;
        kind == 0 || kind > Self::Exchange as u64
    }

    /// Whether a record is of this kind.
    pub(crate) const fn has(self, number: NodeId) -> bool {
        number.get() >> SHIFT & BITS == self as u64
    }
}

/// What was left.
pub(crate) struct Apart {
    pub(crate) nodes: LeftNodes,
    /// [`Record::Name`], of which there may be as many.
    pub(crate) names: LeftNodes,
    /// All other records.
    pub(crate) others: Vec<LeftNode>,
}

/// Takes what was left apart, at once: callers wait, and there may be millions.
///
/// # Errors
/// One of the other records is damaged.
pub(crate) fn apart(mut nodes: LeftNodes) -> Result<Apart, StoreError> {
    let mut others = nodes.extract(|number| !Record::has_none(number));
    let names = others.extract(|number| Record::Name.has(number));
    Ok(Apart { nodes, names, others: others.collect::<Result<_, _>>()? })
}

/// The node that a record tells of.
pub(crate) fn node_of(number: NodeId) -> Option<NodeId> {
    NodeId::new(number.get() & !(BITS << SHIFT))
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_record_is_of_one_kind_and_no_node() {
        let kinds = [
            Record::Lock,
            Record::Seal,
            Record::Moving,
            Record::Further,
            Record::Name,
            Record::Lasting,
            Record::Exchange,
        ];
        let node = NodeId::new((1 << SHIFT) - 1).expect("not zero");
        for one in kinds {
            assert!(!one.has(node) && !one.has(NodeId::ROOT));
            assert!(Record::has_none(node) && Record::has_none(NodeId::ROOT));
            let own = NodeId::new(one.first_of((1 << 20) - 1)).expect("not zero");
            assert_eq!(Record::server_of(own), (1 << 20) - 1);
            for number in [one.of(node).expect("it has one"), one.of(NodeId::ROOT).expect("it has one"), own]
            {
                assert_eq!(kinds.map(|other| other.has(number)), kinds.map(|other| other == one));
                assert!(!Record::has_none(number));
            }
            assert_eq!(one.of(node).and_then(node_of), Some(node));
        }
        // The number of a node that outlives the mount is any, and is none of another record.
        for kind in 0..8 {
            let lasting = NodeId::new(1 << 63 | kind << SHIFT | 5).expect("not zero");
            assert!(Record::has_none(lasting));
            assert!(kinds.iter().all(|one| !one.has(lasting) && one.of(lasting).is_none()), "{kind}");
        }
    }
}
