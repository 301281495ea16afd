//! The hash of a node id, for tables that OPEN and RELEASE ask: one multiplication instead of SipHash.
//!
//! File systems choose the ids, perhaps inode numbers, and callers might choose those. So each table has a key that nobody knows.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Makes the hashers of one table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeHash {
    key: u64,
    factor: u64,
}

/// Hashes one number.
#[derive(Debug)]
pub(crate) struct NodeHasher {
    key: u64,
    factor: u64,
}

impl Default for NodeHash {
    fn default() -> Self {
        let random = RandomState::new();
        Self { key: random.hash_one(0), factor: random.hash_one(1) | 1 }
    }
}

impl BuildHasher for NodeHash {
    type Hasher = NodeHasher;

    fn build_hasher(&self) -> NodeHasher {
        NodeHasher { key: self.key, factor: self.factor }
    }
}

impl Hasher for NodeHasher {
    fn write_u64(&mut self, number: u64) {
        // Once leaves the numbers of some tables uneven: those whose key multiplies badly.
        self.key = fold(fold(number ^ self.key, self.factor), SECOND);
    }

    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut number = [0; 8];
            number[..part.len()].copy_from_slice(part);
            self.write_u64(u64::from_ne_bytes(number));
        }
    }

    fn finish(&self) -> u64 {
        self.key
    }
}

/// The golden ratio in 64 bits.
const SECOND: u64 = 0x9e37_79b9_7f4a_7c15;

/// The halves of a product, mixed.
#[expect(clippy::cast_possible_truncation, reason = "the halves are what is wanted")]
fn fold(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    (product ^ (product >> 64)) as u64
}

#[cfg(test)]
mod test {
    use std::collections::HashSet;

    use shuntfs_wire::NodeId;

    use super::*;

    /// The table takes the low bits for the place and the high ones for a first comparison.
    #[test]
    fn ids_that_are_alike_are_spread() {
        for step in [1, 64, 4096, 1 << 20, 1 << 32, 1 << 48] {
            let hash = NodeHash::default();
            let of = |number: u64| hash.hash_one(NodeId::new(1 + number * step).expect("not 0"));
            let (low, high): (HashSet<_>, HashSet<_>) =
                (0..4096).map(of).map(|hash| (hash & 0xfff, hash >> 57)).unzip();
            // Of 4096 balls in as many bins some 2589 have one.
            assert!(low.len() > 2000, "{step}: {} places", low.len());
            assert!(high.len() > 100, "{step}: {} marks", high.len());
        }
    }

    #[test]
    fn each_table_has_a_key_of_its_own() {
        let (one, other) = (NodeHash::default(), NodeHash::default());
        assert_ne!(one.hash_one(NodeId::ROOT), other.hash_one(NodeId::ROOT));
        assert_eq!(one.hash_one(NodeId::ROOT), one.hash_one(NodeId::ROOT));
    }
}
