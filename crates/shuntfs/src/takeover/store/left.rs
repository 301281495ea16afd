//! The nodes that predecessors knew: found at once, and read when the file system asks for them, by as many threads as it likes.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::vec::IntoIter;

use parking_lot::Mutex;
use shuntfs_sys::descriptors::LeftDescriptors;
use shuntfs_wire::{LookupCount, NodeId};

use super::layout::{NODES, Store, StoreError};
use super::nodes::{Beginning, FoundNode, KeptNodes, NodePlace, OWN};
use crate::takeover::surviving::FileIdentity;

/// A node that a predecessor knew.
#[derive(Debug)]
pub struct LeftNode {
    /// Where it is kept.
    pub place: NodePlace,
    /// Its number.
    pub node: NodeId,
    /// How often the kernel has looked it up; at most a few times too often, where a server died between counting and answering.
    pub lookups: LookupCount,
    /// The descriptor, of which it is known that it leads to what it led to; `None` where it does not: overlayfs gives a file with several names
    /// another inode number when it copies it up.
    pub file: Option<OwnedFd>,
    /// What the file system has written down.
    pub words: [u64; OWN],
    /// What it has marked it with since ([`KeptNodes::mark`]); `None` where the state has the layout of an earlier release, which had no marks.
    pub marks: Option<u32>,
}

/// The nodes that predecessors knew. Each is read, and checked, when it is its turn: an iterator that ends with an error has found that the state is
/// damaged, and nothing that it gave before may be gone on with then. What is not read stays kept, and its descriptor open.
#[derive(Debug)]
pub struct LeftNodes {
    all: IntoIter<Left>,
    kept: KeptNodes,
    files: Arc<LeftFiles>,
}

/// Descriptors, by the places of their nodes; few have any.
#[derive(Debug)]
struct LeftFiles(Mutex<HashMap<u32, Option<OwnedFd>>>);

impl LeftFiles {
    fn take(&self, index: u32) -> Option<OwnedFd> {
        self.0.lock().remove(&index).flatten()
    }
}

impl Drop for LeftFiles {
    /// The records of these name them still, for another server that shares the table.
    fn drop(&mut self) {
        std::mem::take(self.0.get_mut()).into_values().flatten().for_each(std::mem::forget);
    }
}

/// A record that is there. Its number counts once it was read and checked.
#[derive(Clone, Copy, Debug)]
struct Left {
    index: u32,
    node: NodeId,
}

impl LeftNodes {
    /// How many there are at most: of some the kernel may have given back the last lookup.
    #[must_use]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.as_slice().is_empty()
    }

    /// Their numbers, which are not checked yet.
    pub fn numbers(&self) -> impl ExactSizeIterator<Item = NodeId> {
        self.all.as_slice().iter().map(|left| left.node)
    }

    /// Takes those out whose numbers are such.
    #[must_use]
    pub fn extract(&mut self, mut is_such: impl FnMut(NodeId) -> bool) -> Self {
        let mut all: Vec<Left> = std::mem::take(&mut self.all).collect();
        let others: Vec<Left> = all.extract_if(.., |left| is_such(left.node)).collect();
        self.all = all.into_iter();
        self.with(others)
    }

    /// Takes the next ones out, so many or all that there are: for a thread of its own.
    #[must_use]
    pub fn take_next(&mut self, count: usize) -> Self {
        let next = self.all.by_ref().take(count).collect();
        self.with(next)
    }

    fn with(&self, all: Vec<Left>) -> Self {
        Self { all: all.into_iter(), kept: self.kept.clone(), files: Arc::clone(&self.files) }
    }

    /// Finds those of a store. Descriptors are taken from `left`.
    pub(super) fn find(
        store: &Arc<Store>,
        left: &mut LeftDescriptors,
    ) -> Result<(KeptNodes, Self), StoreError> {
        let next = store.top(&NODES)?;
        let mut found = Found::look(store, next)?;
        if found.is_unsettled {
            store.settle_nodes()?;
            found = Found::look(store, next)?;
        }
        let Found { all, free, with_descriptor, .. } = found;
        let mut files = HashMap::new();
        for index in with_descriptor {
            if let Some(found) = store.found_node(index)? {
                files.insert(index, file_of(&found, left)?);
            }
        }
        let kept = KeptNodes::of(store, free, next)?;
        let files = Arc::new(LeftFiles(Mutex::new(files)));
        Ok((kept.clone(), Self { all: all.into_iter(), kept, files }))
    }
}

/// Which records there are, by their beginnings.
#[derive(Default)]
struct Found {
    all: Vec<Left>,
    free: Vec<u32>,
    with_descriptor: Vec<u32>,
    /// Whether one is to take another one's place.
    is_unsettled: bool,
}

impl Found {
    fn look(store: &Store, next: u32) -> Result<Self, StoreError> {
        let mut found = Self::default();
        for index in 0..next {
            let Some(Beginning { node, has_descriptor, succeeds }) = store.beginning_of(index)? else {
                found.free.push(index);
                continue;
            };
            found.all.push(Left { index, node });
            found.is_unsettled |= succeeds;
            if has_descriptor {
                found.with_descriptor.push(index);
            }
        }
        Ok(found)
    }
}

impl Iterator for LeftNodes {
    type Item = Result<LeftNode, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let Left { index, .. } = self.all.next()?;
            let found = match self.kept.store().found_node(index) {
                Ok(None) => continue,
                Ok(Some(found)) => found,
                Err(error) => return Some(Err(error)),
            };
            let FoundNode { node, lookups, words, marks, descriptor, .. } = found;
            let file = descriptor.and_then(|_| self.files.take(index));
            let place = NodePlace::of(index);
            // Its last lookup was taken back, and its server died then.
            if lookups == 0 {
                self.kept.let_go(place);
                continue;
            }
            return Some(Ok(LeftNode {
                place,
                node,
                lookups: LookupCount(lookups.into()),
                file,
                words,
                marks,
            }));
        }
    }
}

/// The descriptor of a node that has one, if it leads where it led.
fn file_of(found: &FoundNode, left: &mut LeftDescriptors) -> Result<Option<OwnedFd>, StoreError> {
    let Some((number, identity)) = found.descriptor else { return Ok(None) };
    let why = "its descriptor is not open";
    let wrong = || StoreError::Record { what: NODES.what, index: found.index, why };
    let file = left.take(number).ok_or_else(wrong)?;
    Ok((FileIdentity::of(&file) == Ok(identity)).then_some(file))
}
