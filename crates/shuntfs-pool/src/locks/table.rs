//! The lower open file of each lock owner.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use shuntfs::{LockOwner, LockRange, LowerFile, NodeId, Result};

use super::ranges;
use super::wait::Waiters;

/// Who holds locks below, and who waits for one.
#[derive(Debug)]
pub(crate) struct LockTable {
    holders: Mutex<HashMap<(NodeId, LockOwner), Holder>>,
    pub(crate) waiters: Arc<Waiters>,
}

#[derive(Debug)]
struct Holder {
    file: Arc<LowerFile>,
    ranges: Vec<LockRange>,
}

impl LockTable {
    /// A table without locks, where at most `waiters_max` may wait.
    pub(crate) fn new(waiters_max: usize) -> Self {
        Self { holders: Mutex::default(), waiters: Arc::new(Waiters::new(waiters_max)) }
    }

    /// The lower file of an owner's locks, if the owner has had any.
    pub(crate) fn file(&self, node: NodeId, owner: LockOwner) -> Option<Arc<LowerFile>> {
        self.holders.lock().get(&(node, owner)).map(|holder| Arc::clone(&holder.file))
    }

    /// The same, opened where there is none.
    pub(crate) fn file_or(
        &self,
        node: NodeId,
        owner: LockOwner,
        open: impl FnOnce() -> Result<Arc<LowerFile>>,
    ) -> Result<Arc<LowerFile>> {
        if let Some(file) = self.file(node, owner) {
            return Ok(file);
        }
        let file = open()?;
        let mut holders = self.holders.lock();
        let holder = holders.entry((node, owner)).or_insert(Holder { file, ranges: Vec::new() });
        Ok(Arc::clone(&holder.file))
    }

    /// Notes a lock that was taken or given back.
    pub(crate) fn note(&self, node: NodeId, owner: LockOwner, range: LockRange) {
        if let Some(holder) = self.holders.lock().get_mut(&(node, owner)) {
            ranges::apply(&mut holder.ranges, range);
        }
    }

    /// The process on the mount, other than `owner`, whose lock meets this range.
    pub(crate) fn process_at(&self, node: NodeId, owner: LockOwner, start: u64, end: u64) -> Option<u32> {
        let holders = self.holders.lock();
        let others = holders.iter().filter(|((held, whose), _)| *held == node && *whose != owner);
        others.map(|(_, holder)| ranges::holder_of(&holder.ranges, start, end)).find_map(|pid| pid)
    }

    /// Drops all locks of these owners on a node.
    pub(crate) fn drop_owners(&self, node: NodeId, owners: &[LockOwner]) {
        let mut dropped = Vec::new();
        {
            let mut holders = self.holders.lock();
            dropped.extend(owners.iter().filter_map(|owner| holders.remove(&(node, *owner))));
        }
        if dropped.is_empty() {
            return;
        }
        // The locks go as the files are closed, so only then is there anything new to try for.
        drop(dropped);
        self.waiters.kick();
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.holders.lock().len()
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use shuntfs::LockType;
    use shuntfs_sys::{FlockOp, flock};

    fn open(path: &std::path::Path) -> Result<Arc<LowerFile>> {
        let file = std::fs::File::open(path).map_err(|_| shuntfs::Errno::IO)?;
        Ok(Arc::new(LowerFile::new(file.into())))
    }

    #[test]
    fn owners_have_files_of_their_own_and_lose_their_locks_with_them() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let table = LockTable::new(1);
        let (first, second) = (LockOwner(1), LockOwner(2));
        let one = table.file_or(NodeId::ROOT, first, || open(file.path())).unwrap();
        assert!(Arc::ptr_eq(&one, &table.file_or(NodeId::ROOT, first, || unreachable!()).unwrap()));
        let two = table.file_or(NodeId::ROOT, second, || open(file.path())).unwrap();
        flock(&one, FlockOp::Exclusive, false).unwrap();
        assert!(flock(&two, FlockOp::Exclusive, false).is_err());
        table.note(NodeId::ROOT, first, LockRange { start: 5, end: 9, kind: LockType::Write, pid: 77 });
        assert_eq!(table.process_at(NodeId::ROOT, second, 9, 9), Some(77));
        assert_eq!(table.process_at(NodeId::ROOT, first, 9, 9), None, "its own does not stand in its way");
        assert_eq!(table.process_at(NodeId::ROOT, second, 10, 99), None);
        drop(one);
        table.drop_owners(NodeId::ROOT, &[first]);
        assert_eq!(table.len(), 1);
        flock(&two, FlockOp::Exclusive, false).unwrap();
    }
}
