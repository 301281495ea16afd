//! The names that files are known by, where inode numbers of files go by their paths. They are written down for the next server, if there may be
//! one: a file that lost its name, or was replaced, keeps its number for as long as it is known, and nothing below tells which that was.

use std::collections::HashMap;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use shuntfs::NodeId;
use shuntfs::takeover::NodePlace;

use crate::keeping_names::{KeptNames, LeftName, NamedFile};
use crate::node::{Way, mix};

/// Of each file that the kernel knows, the name that it was looked up by last.
#[derive(Debug, Default)]
pub(super) struct FileNames {
    /// By the number of the node.
    files: HashTable<Named>,
    /// Which file had a name last.
    nodes: HashMap<Way, NodeId>,
    kept: Option<KeptNames>,
}

#[derive(Debug)]
struct Named {
    node: NodeId,
    way: Way,
    /// Where it is written down for the next server.
    place: Option<NodePlace>,
}

impl FileNames {
    /// Names are written down from now on, and these are by predecessors. Those of files that `is_known` does not tell of are useless.
    pub(super) fn survive(
        &mut self,
        mut kept: KeptNames,
        left: impl ExactSizeIterator<Item = LeftName>,
        is_known: impl Fn(NodeId) -> bool,
    ) {
        self.files.reserve(left.len(), hash);
        self.nodes.reserve(left.len());
        for LeftName { file, place, further, named } in left {
            let file = file.filter(|file| is_known(*file));
            let Some((node, NamedFile { way, is_last })) = file.zip(named) else {
                kept.drop_left(place, further);
                continue;
            };
            match self.files.entry(mix(node.get()), |named| named.node == node, hash) {
                Entry::Occupied(_) => kept.drop_left(place, further),
                Entry::Vacant(room) => {
                    if is_last {
                        self.nodes.insert(way.clone(), node);
                    }
                    kept.has_further(node, further);
                    room.insert(Named { node, way, place: Some(place) });
                }
            }
        }
        self.kept = Some(kept);
    }

    /// The name that a file was looked up by last.
    pub(super) fn of(&self, node: NodeId) -> Option<&Way> {
        self.files.find(mix(node.get()), |named| named.node == node).map(|named| &named.way)
    }

    /// A file was looked up by this name.
    pub(super) fn note(&mut self, node: NodeId, way: Way) {
        let is_last = self.nodes.get(&way) == Some(&node);
        if is_last && self.of(node) == Some(&way) {
            return;
        }
        self.leave(node);
        self.have(node, way);
    }

    /// What had the first name has the second one now, and `back` says whether the other way round, too.
    pub(super) fn moved(&mut self, from: &Way, to: &Way, back: bool) {
        let (first, second) = (self.nodes.remove(from), self.nodes.remove(to));
        // It is written down before what comes to its name is: a server that dies in between leaves no name to two files.
        self.keep(second, (to, false));
        self.keep(first.filter(|_| back), (from, false));
        for (node, way) in [(second.filter(|_| back), from), (first, to)] {
            node.into_iter().for_each(|node| self.have(node, way.clone()));
        }
    }

    /// The same of what a server that is dead had moved, and perhaps noted: these are the files that have the names now.
    pub(super) fn was_moved(&mut self, (from, at_from): (&Way, &[NodeId]), (to, at_to): (&Way, &[NodeId])) {
        let moved = |names: &Self, at: &[NodeId], before: &Way| -> Vec<NodeId> {
            at.iter().copied().filter(|node| names.of(*node) == Some(before)).collect()
        };
        let (forth, back) = (moved(self, at_to, from), moved(self, at_from, to));
        for (way, at) in [(from, at_from), (to, at_to)] {
            if let Some(other) = self.nodes.get(way).copied().filter(|node| !at.contains(node)) {
                self.nodes.remove(way);
                self.keep(Some(other), (way, false));
            }
        }
        forth.into_iter().for_each(|node| self.have(node, to.clone()));
        back.into_iter().for_each(|node| self.have(node, from.clone()));
    }

    /// The kernel has forgotten a file.
    pub(super) fn forget(&mut self, node: NodeId) {
        self.leave(node);
        let found = self.files.find_entry(mix(node.get()), |named| named.node == node);
        let place = found.ok().and_then(|found| found.remove().0.place);
        if let Some(kept) = &mut self.kept {
            kept.let_go(place, node);
        }
    }

    /// A file is not the last one any more that had its name.
    fn leave(&mut self, node: NodeId) {
        let Some(way) = self.files.find(mix(node.get()), |named| named.node == node) else { return };
        if self.nodes.get(&way.way) == Some(&node) {
            self.nodes.remove(&way.way);
        }
    }

    /// A file has a name, and is the last one that has.
    fn have(&mut self, node: NodeId, way: Way) {
        let before = self.nodes.insert(way.clone(), node).filter(|before| *before != node);
        self.keep(before, (&way, false));
        let entry = self.files.entry(mix(node.get()), |named| named.node == node, hash);
        let named = match entry {
            Entry::Occupied(found) => {
                let named = found.into_mut();
                named.way = way;
                named
            }
            Entry::Vacant(room) => room.insert(Named { node, way, place: None }).into_mut(),
        };
        if let Some(kept) = &mut self.kept {
            kept.keep(&mut named.place, node, (named.way.0, &named.way.1), true);
        }
    }

    /// Writes down what name a file has, if anybody goes on, and whether it is the last one that had it.
    fn keep(&mut self, node: Option<NodeId>, (way, is_last): (&Way, bool)) {
        let (Some(node), Some(kept)) = (node, &mut self.kept) else { return };
        if let Some(named) = self.files.find_mut(mix(node.get()), |named| named.node == node) {
            kept.keep(&mut named.place, node, (way.0, &way.1), is_last);
        }
    }
}

fn hash(named: &Named) -> u64 {
    mix(named.node.get())
}

#[cfg(test)]
mod test {
    use std::ffi::CStr;

    use super::*;

    fn node(number: u64) -> NodeId {
        NodeId::new(number).unwrap()
    }

    fn way(name: &CStr) -> Way {
        (NodeId::ROOT, name.into())
    }

    fn of(names: &FileNames, number: u64) -> Option<Box<CStr>> {
        names.of(node(number)).map(|way| way.1.clone())
    }

    #[test]
    fn files_are_known_by_the_name_that_was_used_last() {
        let mut names = FileNames::default();
        for (number, name) in [(7, c"a"), (8, c"b"), (7, c"c"), (7, c"a")] {
            names.note(node(number), way(name));
        }
        names.moved(&way(c"a"), &way(c"b"), true);
        assert_eq!((of(&names, 7), of(&names, 8)), (Some(c"b".into()), Some(c"a".into())));
        // What is replaced may be open still.
        names.moved(&way(c"a"), &way(c"b"), false);
        assert_eq!((of(&names, 7), of(&names, 8)), (Some(c"b".into()), Some(c"b".into())));
        names.note(node(9), way(c"a"));
        names.forget(node(7));
        names.moved(&way(c"b"), &way(c"d"), false);
        assert_eq!((of(&names, 7), of(&names, 8)), (None, Some(c"d".into())));
        [8, 9].into_iter().for_each(|number| names.forget(node(number)));
        assert!(names.files.is_empty() && names.nodes.is_empty());
    }

    /// A server that died while it moved names may have noted that, or not; the next one is asked to do it again.
    #[test]
    fn a_move_that_is_done_again_changes_nothing_more() {
        let lay_out = || {
            let mut names = FileNames::default();
            for (number, name) in [(7, c"a"), (8, c"b"), (9, c"c")] {
                names.note(node(number), way(name));
            }
            names
        };
        let (a, b) = (way(c"a"), way(c"b"));
        let seen = |names: &FileNames| {
            let last = [c"a", c"b", c"c"].map(|name| names.nodes.get(&way(name)).copied());
            ([7, 8, 9].map(|number| of(names, number)), last)
        };
        let mut expected = lay_out();
        expected.moved(&a, &b, false);
        for was_noted in [true, false] {
            let mut names = lay_out();
            if was_noted {
                names.moved(&a, &b, false);
            }
            // File 8 was replaced, and has no name.
            names.was_moved((&a, &[]), (&b, &[node(7)]));
            assert_eq!(seen(&names), seen(&expected), "{was_noted}");
            // It goes on with its last name when the name moves on.
            names.moved(&b, &way(c"d"), false);
            assert_eq!((of(&names, 7), of(&names, 8)), (Some(c"d".into()), Some(c"b".into())));
        }
        let mut expected = lay_out();
        expected.moved(&a, &b, true);
        for was_noted in [true, false] {
            let mut names = lay_out();
            if was_noted {
                names.moved(&a, &b, true);
            }
            names.was_moved((&a, &[node(8)]), (&b, &[node(7)]));
            assert_eq!(seen(&names), seen(&expected), "{was_noted}");
        }
        // One of the two was noted.
        let mut names = lay_out();
        names.moved(&b, &a, false);
        names.was_moved((&a, &[node(8)]), (&b, &[node(7)]));
        assert_eq!(seen(&names), seen(&expected));
        // A file that is known by another name keeps that.
        let mut names = lay_out();
        names.was_moved((&a, &[]), (&b, &[node(9)]));
        assert_eq!(seen(&names).0, [c"a", c"b", c"c"].map(|name| Some(name.into())));
        assert_eq!(seen(&names).1, [None, None, Some(node(9))]);
    }
}
