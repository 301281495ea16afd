//! Folders of a merge, by the folder that they are in and their name there.
//!
//! A file is the same one by its lower inode. A folder may be on several branches, come to further ones and leave some, so it is the same
//! one as long as its name is: each has a number, which is its identity in the table of nodes, and this map says which. Lock
//! order: the map, then the table. A number is given up when the table has no node of it any more, which is asked under the map's
//! lock, so a folder never has two nodes.

use std::collections::HashMap;
use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use shuntfs::NodeId;

use crate::node::{Identity, Node, Parts, Way};
use crate::table::Table;
use crate::view::View;

/// The number of the root, which is not in the map.
pub(crate) const ROOT: u64 = 0;

/// The numbers of the folders that the kernel knows.
#[derive(Debug)]
pub(crate) struct Folders {
    by_way: Mutex<HashMap<Way, u64>>,
    next: AtomicU64,
}

impl Default for Folders {
    fn default() -> Self {
        Self { by_way: Mutex::default(), next: AtomicU64::new(ROOT + 1) }
    }
}

impl Folders {
    /// The node of a folder, its lookup count raised by one; made where there is none, with the number `wish` if no other node has it.
    pub(crate) fn obtain(
        &self,
        table: &Table,
        way: Way,
        wish: Option<NodeId>,
        make: impl FnOnce(NodeId, Identity) -> Node,
    ) -> Arc<Node> {
        let mut by_way = self.by_way.lock();
        let serial = *by_way.entry(way).or_insert_with(|| self.next.fetch_add(1, Ordering::Relaxed));
        table.obtain(Identity::of_folder(serial), View::WHOLE, wish, make).0
    }

    /// The number of a folder that a predecessor knew; `None` where there is one of this name.
    pub(crate) fn adopt(&self, way: Way) -> Option<u64> {
        let serial = self.next.fetch_add(1, Ordering::Relaxed);
        let mut by_way = self.by_way.lock();
        if by_way.contains_key(&way) {
            return None;
        }
        by_way.insert(way, serial);
        Some(serial)
    }

    /// The number of one that a predecessor knew and that was removed.
    pub(crate) fn adopt_removed(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether a folder is known by this name.
    pub(crate) fn has(&self, way: &Way) -> bool {
        self.by_way.lock().contains_key(way)
    }

    /// The node of a folder, where the kernel knows it; its lookup count stays.
    pub(crate) fn peek(&self, table: &Table, parent: NodeId, name: &CStr) -> Option<Arc<Node>> {
        let serial = *self.by_way.lock().get(&(parent, name.into()))?;
        table.peek(&Identity::of_folder(serial)).pop()
    }

    /// A folder's node left the table.
    pub(crate) fn forget(&self, table: &Table, node: &Node) {
        let mut by_way = self.by_way.lock();
        // Under the lock, because a move changes it.
        let Some(way) = node.parts().and_then(|parts| parts.way()) else { return };
        if by_way.get(&way) == Some(&node.key().ino) && table.peek(node.key()).is_empty() {
            by_way.remove(&way);
        }
    }

    /// A folder lost its name: what gets it next is another one.
    pub(crate) fn removed(&self, table: &Table, parent: NodeId, name: &CStr) {
        let mut by_way = self.by_way.lock();
        if let Some(serial) = by_way.remove(&(parent, name.into())) {
            parts_of(table, serial, Parts::lost);
        }
    }

    /// What had the first name, a folder or not, has the second one now, and `back` says whether the other way round, too.
    pub(crate) fn moved(&self, table: &Table, from: Way, to: Way, back: bool) {
        let mut by_way = self.by_way.lock();
        let (first, second) = (by_way.remove(&from), by_way.remove(&to));
        if let Some(replaced) = second.filter(|_| !back) {
            parts_of(table, replaced, Parts::lost);
        }
        for (serial, way) in [(first, to), (second.filter(|_| back), from)] {
            let Some(serial) = serial else { continue };
            parts_of(table, serial, |parts| parts.moved(way.clone()));
            by_way.insert(way, serial);
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.by_way.lock().len()
    }
}

/// Does something to what is known of a folder, by its number.
fn parts_of(table: &Table, serial: u64, act: impl Fn(&Parts)) {
    for node in table.peek(&Identity::of_folder(serial)) {
        if let Some(parts) = node.parts() {
            act(parts);
            table.renamed(&node);
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::branch::MountIndex;
    use crate::node::Place;
    use shuntfs::LookupCount;
    use shuntfs_sys::Stat;

    fn obtain(folders: &Folders, table: &Table, name: &CStr) -> Arc<Node> {
        let way: Way = (NodeId::ROOT, name.into());
        folders.obtain(table, way.clone(), None, |id, key| {
            let place = Place::new(Identity::new(&Stat::default(), MountIndex::own(0), None));
            Node::folder(id, key, 0, Parts::new(1, vec![place], 0, Some(way)))
        })
    }

    #[test]
    fn a_name_has_one_folder_until_it_is_forgotten() {
        let (folders, table) = (Folders::default(), Table::new());
        let node = obtain(&folders, &table, c"a");
        assert!(Arc::ptr_eq(&node, &obtain(&folders, &table, c"a")));
        assert!(Arc::ptr_eq(&node, &folders.peek(&table, NodeId::ROOT, c"a").unwrap()));
        assert!(table.forget(node.id, LookupCount(1)).is_none());
        assert!(table.forget(node.id, LookupCount(1)).is_some());
        folders.forget(&table, &node);
        assert_eq!((folders.len(), table.len()), (0, 0));
        assert!(folders.peek(&table, NodeId::ROOT, c"a").is_none());
    }

    #[test]
    fn a_folder_that_was_found_again_keeps_its_number() {
        let (folders, table) = (Folders::default(), Table::new());
        let node = obtain(&folders, &table, c"a");
        assert!(table.forget(node.id, LookupCount(1)).is_some());
        let again = obtain(&folders, &table, c"a");
        folders.forget(&table, &node);
        assert!(Arc::ptr_eq(&again, &obtain(&folders, &table, c"a")));
    }

    #[test]
    fn a_folder_keeps_its_node_when_it_moves_and_loses_its_name_when_it_goes() {
        let (folders, table) = (Folders::default(), Table::new());
        let way = |name: &CStr| -> Way { (NodeId::ROOT, name.into()) };
        let [a, b] = [c"a", c"b"].map(|name| obtain(&folders, &table, name));
        folders.moved(&table, way(c"a"), way(c"b"), true);
        assert!(Arc::ptr_eq(&obtain(&folders, &table, c"b"), &a));
        assert!(Arc::ptr_eq(&obtain(&folders, &table, c"a"), &b));
        assert_eq!(a.parts().unwrap().way(), Some(way(c"b")));
        folders.moved(&table, way(c"a"), way(c"b"), false);
        assert!(Arc::ptr_eq(&obtain(&folders, &table, c"b"), &b), "in the place of the other");
        assert_eq!(a.parts().unwrap().way(), None, "it was replaced");
        folders.removed(&table, NodeId::ROOT, c"b");
        assert_eq!(b.parts().unwrap().way(), None);
        let other = obtain(&folders, &table, c"b");
        assert_ne!((other.id, other.key().ino), (b.id, b.key().ino));
        // The ones that went take nothing from it.
        assert!(table.forget(b.id, LookupCount(3)).is_some() && table.forget(a.id, LookupCount(2)).is_some());
        folders.forget(&table, &b);
        folders.forget(&table, &a);
        assert!(Arc::ptr_eq(&obtain(&folders, &table, c"b"), &other));
    }
}
