//! Who writes a file and who looks at it under a lease keep out of each other's way here, before they meet in the kernel.
//!
//! There, an open for writing that finds a lease waits, but not through a signal, and not at all with `O_NONBLOCK`; and
//! where the kernel opens a backing file, whatever goes wrong reaches the caller as EIO. So an open for writing through
//! the mount waits here until nobody looks, and from then to its close nobody begins to. The lease is for everybody else.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::branch::waits;
use crate::node::Node;

/// An open for writing that is counted, until this is dropped.
#[derive(Debug)]
pub(crate) struct Passed {
    gates: Arc<Gates>,
    /// Of the inode that the file has now.
    hash: u64,
}

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
    /// Counts an open for writing, once nobody looks.
    pub(crate) fn write(self: &Arc<Self>, node: &Node) -> Passed {
        let hash = node.key().hash();
        let mut gates = self.by_inode.lock();
        gates.entry(hash).or_default().writers += 1;
        while gates.get(&hash).is_some_and(|gate| gate.looks > 0) {
            waits(|| self.nobody_looks.wait(&mut gates));
        }
        Passed { gates: Arc::clone(self), hash }
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
        // A partial view has no other inode as long as it is known: nobody moves a file by it.
        end(&mut self.by_inode.lock(), node.key().hash(), |gate| gate.looks -= 1);
        self.nobody_looks.notify_all();
    }

    /// Whether nobody writes or looks.
    #[cfg(test)]
    pub(crate) fn are_free(&self) -> bool {
        self.by_inode.lock().is_empty()
    }

    /// Whether anybody looks at anything.
    pub(crate) fn is_anything_looked_at(&self) -> bool {
        self.by_inode.lock().values().any(|gate| gate.looks > 0)
    }
}

impl Passed {
    /// The file was moved and is another inode. Whoever looks at that one already does so under the lease: nobody has written it yet.
    pub(crate) fn follow(&mut self, node: &Node) {
        let hash = node.key().hash();
        if hash != self.hash {
            let mut gates = self.gates.by_inode.lock();
            gates.entry(hash).or_default().writers += 1;
            end(&mut gates, self.hash, |gate| gate.writers -= 1);
            self.hash = hash;
        }
    }
}

impl Drop for Passed {
    fn drop(&mut self) {
        end(&mut self.gates.by_inode.lock(), self.hash, |gate| gate.writers -= 1);
    }
}

fn end(gates: &mut HashMap<u64, Gate>, hash: u64, end: impl FnOnce(&mut Gate)) {
    let gate = gates.get_mut(&hash).expect("what ends has begun");
    end(gate);
    if gate.writers == 0 && gate.looks == 0 {
        gates.remove(&hash);
    }
}

#[cfg(test)]
mod test {
    use std::time::Duration;

    use super::*;
    use crate::branch::MountIndex;
    use crate::node::{Identity, Place};
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
        let writes_other = gates.write(&other);
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
        drop(writer.join().unwrap());
        drop(writes_other);
        assert!(gates.look(&one));
        gates.looked(&one);
        assert!(gates.are_free());
    }

    /// The close of a file that had been moved panicked, because it looked for its open under the new inode.
    #[test]
    fn a_writer_is_counted_where_the_file_is_and_leaves_nothing_behind() {
        let identity = |ino| Identity::new(&Stat { ino, ..Stat::default() }, MountIndex::own(0), None);
        let node = |ino| Node::new(NodeId::ROOT, identity(ino), View::WHOLE, 0);
        let (gates, moved, new) = (Arc::new(Gates::default()), node(1), node(2));
        let (mut first, mut second) = (gates.write(&moved), gates.write(&moved));
        moved.moved(Place::new(identity(2)));
        first.follow(&moved);
        first.follow(&moved);
        assert!(!gates.look(&new) && !gates.look(&node(1)), "one is counted at each");
        second.follow(&moved);
        assert!(gates.look(&node(1)));
        gates.looked(&node(1));
        drop(first);
        assert!(!gates.look(&new));
        drop(second);
        assert!(gates.are_free());
    }
}
