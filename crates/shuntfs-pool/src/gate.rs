//! Who writes a file and who looks at it under a lease keep out of each other's way here, before they meet in the kernel.
//!
//! There, an open for writing that finds a lease waits, but not through a signal, and not at all with `O_NONBLOCK`; and
//! where the kernel opens a backing file, whatever goes wrong reaches the caller as EIO. So an open for writing through
//! the mount waits here until nobody looks, and from then to its close nobody begins to. The lease is for everybody else.

use std::collections::HashMap;

use parking_lot::{Condvar, Mutex};

use crate::node::Node;

/// The files that are open for writing or looked at. Two whose hashes are the same count as one.
#[derive(Debug, Default)]
pub(crate) struct Gates {
    by_inode: Mutex<HashMap<u64, Gate>>,
    nobody_looks: Condvar,
}

#[derive(Clone, Copy, Default, Debug)]
struct Gate {
    writers: u32,
    looks: u32,
}

impl Gates {
    /// Counts an open for writing, once nobody looks; [`Gates::wrote`] must follow.
    pub(crate) fn write(&self, node: &Node) {
        let hash = node.key().hash();
        let mut gates = self.by_inode.lock();
        gates.entry(hash).or_default().writers += 1;
        while gates.get(&hash).is_some_and(|gate| gate.looks > 0) {
            self.nobody_looks.wait(&mut gates);
        }
    }

    /// Takes an open for writing back.
    pub(crate) fn wrote(&self, node: &Node) {
        self.change(node, |gate| gate.writers -= 1);
    }

    /// Begins to look, unless somebody writes; whether it was begun, and [`Gates::looked`] must follow.
    pub(crate) fn look(&self, node: &Node) -> bool {
        let mut gates = self.by_inode.lock();
        let gate = gates.entry(node.key().hash()).or_default();
        let is_free = gate.writers == 0;
        gate.looks += u32::from(is_free);
        is_free
    }

    /// Ends a look.
    pub(crate) fn looked(&self, node: &Node) {
        self.change(node, |gate| gate.looks -= 1);
        self.nobody_looks.notify_all();
    }

    fn change(&self, node: &Node, change: impl FnOnce(&mut Gate)) {
        let hash = node.key().hash();
        let mut gates = self.by_inode.lock();
        let gate = gates.get_mut(&hash).expect("what ends has begun");
        change(gate);
        if gate.writers == 0 && gate.looks == 0 {
            gates.remove(&hash);
        }
    }

    /// Whether anybody looks at anything.
    pub(crate) fn is_anything_looked_at(&self) -> bool {
        self.by_inode.lock().values().any(|gate| gate.looks > 0)
    }
}

#[cfg(test)]
mod test {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::branch::MountIndex;
    use crate::node::Identity;
    use crate::view::View;
    use shuntfs::NodeId;
    use shuntfs_sys::Stat;

    #[test]
    fn writers_wait_for_looks_and_looks_give_way_to_writers() {
        let node = |ino| {
            let identity = Identity::new(&Stat { ino, ..Stat::default() }, MountIndex::own(0), None);
            Arc::new(Node::new(NodeId::ROOT, identity, View::WHOLE, 0))
        };
        let (gates, one, other) = (Arc::new(Gates::default()), node(1), node(2));
        assert!(gates.look(&one) && gates.look(&one) && gates.is_anything_looked_at());
        gates.write(&other);
        assert!(!gates.look(&other));
        let writer = std::thread::spawn({
            let (gates, one) = (Arc::clone(&gates), Arc::clone(&one));
            move || gates.write(&one)
        });
        gates.looked(&one);
        std::thread::sleep(Duration::from_millis(30));
        assert!(!writer.is_finished(), "one look is left");
        assert!(!gates.look(&one), "who waits goes first");
        gates.looked(&one);
        writer.join().unwrap();
        gates.wrote(&one);
        gates.wrote(&other);
        assert!(gates.look(&one));
        gates.looked(&one);
        assert!(gates.by_inode.lock().is_empty());
    }
}
