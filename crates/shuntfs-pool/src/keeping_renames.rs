//! What a rename over several branches exchanges, written down so that the next server knows how far it came.
//!
//! As long as a step may fail, what is replaced keeps the old name (`guard/below/moving.rs`). Which of the two has which name on a branch, inodes alone
//! tell. A record stays until the names are as the caller is told, and longer only where that could not be reached: then nobody is to take what is
//! left under the old name for what was to be moved.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use shuntfs::NodeId;
use shuntfs::takeover::{KeptNode, KeptNodes, LeftNode, NodePlace};
use shuntfs_sys::Stat;

use crate::node::device_number;
use crate::records::Record;

/// Records of so many servers before are of requests that do not come again: of one request only three die.
const SERVERS: u32 = 16;

/// An inode.
pub(crate) type Inode = (u32, u64);

/// The inode that has a name.
pub(crate) fn inode_of(stat: &Stat) -> Inode {
    (device_number(stat.dev), stat.ino)
}

/// What is exchanged on one branch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Exchange {
    pub(crate) branch: u16,
    /// What gets the new name.
    pub(crate) moved: Inode,
    /// What has it, and gets the old one until it is removed.
    pub(crate) replaced: Inode,
}

/// Where that is written down.
#[derive(Debug, Default)]
pub(crate) struct Renames {
    nodes: OnceLock<KeptNodes>,
    next: AtomicU64,
    /// Of requests that servers had begun that are dead.
    left: Mutex<HashMap<u64, Vec<(Exchange, NodePlace)>>>,
}

/// A record, which stays where this is dropped without [`NotedExchange::end`].
#[derive(Debug)]
pub(crate) struct NotedExchange<'r> {
    nodes: &'r KeptNodes,
    place: NodePlace,
}

impl NotedExchange<'_> {
    /// The names are as the caller is told.
    pub(crate) fn end(self) {
        self.nodes.let_go(self.place);
    }
}

impl Renames {
    /// Writes down from now on, and knows what predecessors have written.
    pub(crate) fn survive(&self, nodes: KeptNodes, left: Vec<LeftNode>) {
        let server = nodes.servers();
        self.next.store(Record::Exchange.first_of(server), Ordering::Relaxed);
        let mut known = self.left.lock();
        for LeftNode { node, place, words, .. } in left {
            match Exchange::of(words).filter(|_| Record::server_of(node).saturating_add(SERVERS) >= server) {
                Some((request, exchange)) => known.entry(request).or_default().push((exchange, place)),
                None => nodes.let_go(place),
            }
        }
        let _once = self.nodes.set(nodes);
    }

    /// Writes down what a request is about to exchange; `None` where no server would learn of it.
    pub(crate) fn note(&self, request: u64, exchange: Exchange) -> Option<NotedExchange<'_>> {
        // The first layout is that of a release which does not know such records.
        let nodes = self.nodes.get().filter(|nodes| request != 0 && nodes.layout() > 1)?;
        let node = NodeId::new(self.next.fetch_add(1, Ordering::Relaxed))?;
        let place = nodes.keep(&KeptNode { node, file: None, words: exchange.words(request) }).ok()?;
        Some(NotedExchange { nodes, place })
    }

    /// What a server that is dead was about to exchange for a request.
    pub(crate) fn begun(&self, request: u64) -> Vec<Exchange> {
        let left = self.left.lock();
        left.get(&request).into_iter().flatten().map(|(exchange, _)| *exchange).collect()
    }

    /// The records of that, by who goes on with it.
    pub(crate) fn take(&self, request: u64) -> Vec<NotedExchange<'_>> {
        let (left, nodes) = (self.left.lock().remove(&request), self.nodes.get());
        let records = left.into_iter().flatten().zip(nodes.into_iter().cycle());
        records.map(|((_, place), nodes)| NotedExchange { nodes, place }).collect()
    }
}

impl Exchange {
    fn words(self, request: u64) -> [u64; 8] {
        let Self { branch, moved, replaced } = self;
        let (moved_on, replaced_on) = (u64::from(moved.0), u64::from(replaced.0));
        [request, u64::from(branch), moved_on, moved.1, replaced_on, replaced.1, 0, 0]
    }

    fn of(words: [u64; 8]) -> Option<(u64, Self)> {
        let [request, branch, moved_on, moved, replaced_on, replaced, 0, 0] = words else { return None };
        let inode = |device: u64, ino| Some((u32::try_from(device).ok()?, ino));
        let branch = u16::try_from(branch).ok()?;
        let (moved, replaced) = (inode(moved_on, moved)?, inode(replaced_on, replaced)?);
        Some((request, Self { branch, moved, replaced }))
    }
}

/// Takes what was written down of renames apart from the nodes.
pub(crate) fn part(mut left: Vec<LeftNode>) -> (Vec<LeftNode>, Vec<LeftNode>) {
    let exchanges = left.extract_if(.., |left| Record::Exchange.has(left.node)).collect();
    (left, exchanges)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_record_is_the_same_after_it_was_written_down() {
        let exchange = Exchange { branch: u16::MAX, moved: (u32::MAX, u64::MAX), replaced: (0, 7) };
        assert_eq!(Exchange::of(exchange.words(9)), Some((9, exchange)));
        let mut words = exchange.words(9);
        words[7] = 1;
        assert_eq!(Exchange::of(words), None);
    }
}
