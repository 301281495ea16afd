//! By which of its names a file with several was looked up the last time.
//!
//! Who asks for a file's place means the name that he used, and a request only says which file. The kernel looks a name up before it sends the
//! request where it keeps none, so the last name is the one. Where it keeps names it may be another one of the same file. A table of one
//! size, in which a file takes the place of another.

use std::sync::OnceLock;

use parking_lot::Mutex;
use shuntfs::NodeId;

use crate::node::{Way, mix};

/// How many files there is room for.
const SLOTS: usize = 1 << 10;

type Slot = Mutex<Option<(NodeId, Way)>>;

/// The table, made when the first such file comes.
#[derive(Debug, Default)]
pub(crate) struct Linked(OnceLock<Box<[Slot]>>);

impl Linked {
    /// Notes by which name a file was found.
    pub(super) fn note(&self, node: NodeId, way: Way) {
        let slots = self.0.get_or_init(|| (0..SLOTS).map(|_| Mutex::default()).collect());
        let before = slots[slot(node)].lock().replace((node, way));
        drop(before);
    }

    /// By which name a file was found the last time, as far as that is known.
    pub(super) fn of(&self, node: NodeId) -> Option<Way> {
        let held = self.0.get()?[slot(node)].lock();
        held.as_ref().filter(|(known, _)| *known == node).map(|(_, way)| way.clone())
    }
}

fn slot(node: NodeId) -> usize {
    usize::try_from(mix(node.get()) & 0xffff).expect("16 bits fit") % SLOTS
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn the_last_name_counts_and_there_is_room_for_so_many() {
        let linked = Linked::default();
        let node = |number| NodeId::new(number).unwrap();
        assert_eq!(linked.of(node(7)), None);
        linked.note(node(7), (NodeId::ROOT, c"a".into()));
        linked.note(node(7), (NodeId::ROOT, c"b".into()));
        assert_eq!(linked.of(node(7)), Some((NodeId::ROOT, c"b".into())));
        let all = 4 * u64::try_from(SLOTS).unwrap();
        (1..all).for_each(|number| linked.note(node(number), (node(number), c"x".into())));
        let known =
            (1..all).filter(|number| linked.of(node(*number)) == Some((node(*number), c"x".into()))).count();
        assert!((1..=SLOTS).contains(&known), "{known}");
    }
}
