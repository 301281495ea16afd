//! The names that files are known by, where inode numbers of files go by their paths. They are written down for the next server, if there may be
//! one: a file that lost its name, or was replaced, keeps its number for as long as it is known, and nothing below tells which that was.

use std::collections::HashMap;
use std::hash::BuildHasher as _;

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};
use shuntfs::NodeId;
use shuntfs::takeover::{LeftNode, LeftNodes, NodePlace, StoreError};

use crate::keeping_names::{KeptNames, told_by};
use crate::node::{Way, mix};
use crate::records::node_of;

/// Of each file that the kernel knows, the name that it was looked up by last.
#[derive(Debug, Default)]
pub(super) struct FileNames {
    /// By the number of the node.
    files: HashTable<Named>,
    /// Which file had a name last, by the hash of that.
    last: HashTable<Last>,
    hasher: DefaultHashBuilder,
    kept: Option<KeptNames>,
}

#[derive(Debug)]
struct Named {
    node: NodeId,
    /// Of its name.
    hash: u32,
    /// Where that is written down for the next server; it is read there when it is needed.
    place: Option<NodePlace>,
    /// The name, where it is not written down.
    way: Option<Box<Way>>,
}

#[derive(Debug)]
struct Last {
    node: NodeId,
    hash: u32,
}

impl FileNames {
    /// Names are written down from now on, and these are by predecessors. Those of files that `is_known` does not tell of are useless. What belongs to
    /// them is taken out of `further`.
    ///
    /// # Errors
    /// One is damaged.
    pub(super) fn survive(
        &mut self,
        mut kept: KeptNames,
        left: LeftNodes,
        further: &mut HashMap<u64, LeftNode>,
        is_known: impl Fn(NodeId) -> bool,
    ) -> Result<(), StoreError> {
        self.files.reserve(left.len(), by_node);
        self.last.reserve(left.len(), by_name);
        let mut name = Vec::new();
        for left in left {
            let LeftNode { place, node: number, words, .. } = left?;
            let mut rest = Vec::new();
            let told = told_by(&words, &mut name, |number| {
                let LeftNode { place, words, .. } = further.remove(&number)?;
                rest.push(place);
                Some(words)
            });
            let file = node_of(number).filter(|file| is_known(*file));
            let Some((node, told)) = file.zip(told) else {
                kept.drop_left(place, rest);
                continue;
            };
            match self.files.entry(mix(node.get()), |named| named.node == node, by_node) {
                Entry::Occupied(_) => kept.drop_left(place, rest),
                Entry::Vacant(room) => {
                    let hash = hash_of(&self.hasher, told.folder, &name);
                    if told.is_last {
                        // A file that is replaced lost its name before another one got it.
                        self.last.insert_unique(spread(hash), Last { node, hash }, by_name);
                    }
                    kept.has_further(node, rest);
                    room.insert(Named { node, hash, place: Some(place), way: None });
                }
            }
        }
        self.kept = Some(kept);
        Ok(())
    }

    /// The name that a file was looked up by last; `None` also where what is written down of it is damaged.
    pub(super) fn of(&self, node: NodeId) -> Option<Way> {
        let named = self.files.find(mix(node.get()), |named| named.node == node)?;
        let read = || self.kept.as_ref()?.read(named.place.as_ref()?, node);
        named.way.as_deref().cloned().or_else(read)
    }

    /// Which file had a name last.
    fn last(&self, way: &Way) -> Option<NodeId> {
        let hash = hash_of(&self.hasher, way.0, way.1.to_bytes());
        let is_it = |last: &Last| last.hash == hash && self.of(last.node).as_ref() == Some(way);
        self.last.find(spread(hash), is_it).map(|last| last.node)
    }

    /// The same, and no file has from now on.
    fn take_last(&mut self, way: &Way) -> Option<NodeId> {
        self.last(way).inspect(|node| self.leave(*node))
    }

    /// A file was looked up by this name.
    pub(super) fn note(&mut self, node: NodeId, way: Way) {
        if self.last(&way) == Some(node) {
            return;
        }
        self.have(node, way);
    }

    /// What had the first name has the second one now, and `back` says whether the other way round, too.
    pub(super) fn moved(&mut self, from: &Way, to: &Way, back: bool) {
        let (first, second) = (self.take_last(from), self.take_last(to));
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
            at.iter().copied().filter(|node| names.of(*node).as_ref() == Some(before)).collect()
        };
        let (forth, back) = (moved(self, at_to, from), moved(self, at_from, to));
        for (way, at) in [(from, at_from), (to, at_to)] {
            if let Some(other) = self.last(way).filter(|node| !at.contains(node)) {
                self.leave(other);
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
        let Some(named) = self.files.find(mix(node.get()), |named| named.node == node) else { return };
        if let Ok(found) = self.last.find_entry(spread(named.hash), |last| last.node == node) {
            let _ = found.remove();
        }
    }

    /// A file has a name, and is the last one that has.
    fn have(&mut self, node: NodeId, way: Way) {
        let before = self.take_last(&way).filter(|before| *before != node);
        self.keep(before, (&way, false));
        self.leave(node);
        let hash = hash_of(&self.hasher, way.0, way.1.to_bytes());
        self.last.insert_unique(spread(hash), Last { node, hash }, by_name);
        let entry = self.files.entry(mix(node.get()), |named| named.node == node, by_node);
        let named = entry.or_insert(Named { node, hash, place: None, way: None }).into_mut();
        named.hash = hash;
        named.has(&mut self.kept, (&way, true));
    }

    /// Writes down what name a file has, if anybody goes on, and whether it is the last one that had it.
    fn keep(&mut self, node: Option<NodeId>, way: (&Way, bool)) {
        let Some(node) = node else { return };
        if let Some(named) = self.files.find_mut(mix(node.get()), |named| named.node == node) {
            named.has(&mut self.kept, way);
        }
    }
}

impl Named {
    /// It has this name, and may be the last one that has.
    fn has(&mut self, kept: &mut Option<KeptNames>, (way, is_last): (&Way, bool)) {
        if let Some(kept) = kept {
            kept.keep(&mut self.place, self.node, (way.0, &way.1), is_last);
        }
        self.way = self.place.is_none().then(|| Box::new(way.clone()));
    }
}

const _: () = assert!(size_of::<Named>() == 24 && size_of::<Last>() == 16);

fn by_node(named: &Named) -> u64 {
    mix(named.node.get())
}

fn by_name(last: &Last) -> u64 {
    spread(last.hash)
}

/// The hash of a name, as it is held for each file.
fn hash_of(hasher: &DefaultHashBuilder, folder: NodeId, name: &[u8]) -> u32 {
    u32::try_from(hasher.hash_one((folder.get(), name)) >> 32).unwrap_or(0)
}

/// A table goes by all bits.
fn spread(hash: u32) -> u64 {
    mix(u64::from(hash))
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
        names.of(node(number)).map(|way| way.1)
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
        assert!(names.files.is_empty() && names.last.is_empty());
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
            let last = [c"a", c"b", c"c"].map(|name| names.last(&way(name)));
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
