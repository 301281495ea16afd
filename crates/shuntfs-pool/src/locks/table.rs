//! The lower open file of each lock owner.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use shuntfs::takeover::KeptNodes;
use shuntfs::{LockOwner, LockRange, LowerFile, NodeId, Result};

use super::keeping::{KeptLocks, LeftLock, LockPlace, LockRecord};
use super::ranges;
use super::wait::Waiters;

/// Who holds locks below, and who waits for one.
#[derive(Debug)]
pub(crate) struct LockTable {
    holders: Mutex<HashMap<(NodeId, LockOwner), Holder>>,
    /// Lower files that carry a flock, by the numbers of their open files, where that is written down.
    flocks: Mutex<HashMap<u32, (Arc<LowerFile>, LockPlace)>>,
    /// The number of the last open file.
    opened: AtomicU32,
    kept: OnceLock<KeptLocks>,
    /// Open files of predecessors.
    left: Mutex<HashSet<u32>>,
    pub(crate) waiters: Arc<Waiters>,
}

#[derive(Debug)]
struct Holder {
    file: Arc<LowerFile>,
    ranges: Vec<LockRange>,
    opened: u32,
    /// Where it is written down, if another server may follow.
    place: Option<LockPlace>,
}

impl LockTable {
    /// A table without locks, where at most `waiters_max` may wait.
    pub(crate) fn new(waiters_max: usize) -> Self {
        Self {
            holders: Mutex::default(),
            flocks: Mutex::default(),
            opened: AtomicU32::new(0),
            kept: OnceLock::new(),
            left: Mutex::default(),
            waiters: Arc::new(Waiters::new(waiters_max)),
        }
    }

    /// A number for an open file that no other one has.
    pub(crate) fn next_opened(&self) -> u32 {
        self.opened.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    /// Writes locks down from now on, and knows those of predecessors. On which nodes these are.
    pub(crate) fn survive(
        &self,
        nodes: KeptNodes,
        left: Vec<LeftLock>,
    ) -> std::result::Result<HashSet<NodeId>, &'static str> {
        let locked = left.iter().map(|left| left.record.node).collect();
        let (mut holders, mut flocks) = (self.holders.lock(), self.flocks.lock());
        for LeftLock { place, file, record } in left {
            let LockRecord { node, owner, opened, range } = record;
            match owner {
                None => drop(flocks.insert(opened, (file, place))),
                Some(owner) => {
                    let ranges = range.into_iter().collect();
                    holders.insert((node, owner), Holder { file, ranges, opened, place: Some(place) });
                }
            }
        }
        self.kept.set(KeptLocks::new(nodes)).map_err(|_| "locks are written down already")?;
        Ok(locked)
    }

    /// What a predecessor had locked through the open file of this number: the owners, and the lower file with its flock.
    pub(crate) fn left_of(&self, node: NodeId, opened: u32) -> (Vec<LockOwner>, Option<Arc<LowerFile>>) {
        self.opened.fetch_max(opened, Ordering::Relaxed);
        self.left.lock().insert(opened);
        let holders = self.holders.lock();
        let of_file = holders.iter().filter(|((of, _), holder)| *of == node && holder.opened == opened);
        let owners = of_file.map(|((_, owner), _)| *owner).collect();
        (owners, self.flocks.lock().get(&opened).map(|(file, _)| Arc::clone(file)))
    }

    /// Drops the locks of files that are not open any more: they were being closed when a predecessor died.
    pub(crate) fn settle(&self) {
        let opened = std::mem::take(&mut *self.left.lock());
        let mut gone: Vec<(Arc<LowerFile>, Option<LockPlace>)> = Vec::new();
        {
            let (mut holders, mut flocks) = (self.holders.lock(), self.flocks.lock());
            let of_holders = holders.extract_if(|_, holder| !opened.contains(&holder.opened));
            gone.extend(of_holders.map(|(_, holder)| (holder.file, holder.place)));
            let of_flocks = flocks.extract_if(|number, _| !opened.contains(number));
            gone.extend(of_flocks.map(|(_, (file, place))| (file, Some(place))));
        }
        gone.into_iter().for_each(|(file, place)| self.close(file, place));
    }

    /// Writes down that an open file has a flock, or is about to.
    ///
    /// # Errors
    /// ENOLCK where that cannot be.
    pub(crate) fn keep_flock(&self, node: NodeId, opened: u32, file: &Arc<LowerFile>) -> Result<()> {
        let Some(kept) = self.kept.get() else { return Ok(()) };
        let mut flocks = self.flocks.lock();
        if let Entry::Vacant(vacant) = flocks.entry(opened) {
            let place = kept.keep(file, &LockRecord { node, owner: None, opened, range: None })?;
            vacant.insert((Arc::clone(file), place));
        }
        Ok(())
    }

    /// The open file of this number is closed.
    pub(crate) fn drop_flock(&self, opened: u32) {
        let flock = self.flocks.lock().remove(&opened);
        flock.into_iter().for_each(|(file, place)| self.close(file, Some(place)));
    }

    fn close(&self, file: Arc<LowerFile>, place: Option<LockPlace>) {
        if let (Some(kept), Some(place)) = (self.kept.get(), place) {
            kept.let_go(place);
        }
        drop(file);
    }

    /// The lower file of an owner's locks, if the owner has had any.
    pub(crate) fn file(&self, node: NodeId, owner: LockOwner) -> Option<Arc<LowerFile>> {
        self.holders.lock().get(&(node, owner)).map(|holder| Arc::clone(&holder.file))
    }

    /// The same, opened where there is none.
    pub(crate) fn file_or(
        &self,
        (node, opened): (NodeId, u32),
        owner: LockOwner,
        open: impl FnOnce() -> Result<Arc<LowerFile>>,
    ) -> Result<Arc<LowerFile>> {
        if let Some(file) = self.file(node, owner) {
            return Ok(file);
        }
        let file = open()?;
        let mut holders = self.holders.lock();
        let holder = match holders.entry((node, owner)) {
            Entry::Occupied(holder) => holder.into_mut(),
            Entry::Vacant(vacant) => {
                let record = LockRecord { node, owner: Some(owner), opened, range: None };
                let place = self.kept.get().map(|kept| kept.keep(&file, &record)).transpose()?;
                vacant.insert(Holder { file, ranges: Vec::new(), opened, place })
            }
        };
        Ok(Arc::clone(&holder.file))
    }

    /// Notes a lock that was taken or given back.
    pub(crate) fn note(&self, node: NodeId, owner: LockOwner, range: LockRange) {
        if let Some(Holder { file, ranges, opened, place }) = self.holders.lock().get_mut(&(node, owner)) {
            ranges::apply(ranges, range);
            if let (Some(kept), Some(place)) = (self.kept.get(), place) {
                let range = ranges.last().copied();
                let record = LockRecord { node, owner: Some(owner), opened: *opened, range };
                kept.keep_anew(place, file, &record);
            }
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
        dropped.into_iter().for_each(|holder: Holder| self.close(holder.file, holder.place));
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
        let one = table.file_or((NodeId::ROOT, 1), first, || open(file.path())).unwrap();
        assert!(Arc::ptr_eq(&one, &table.file_or((NodeId::ROOT, 1), first, || unreachable!()).unwrap()));
        let two = table.file_or((NodeId::ROOT, 1), second, || open(file.path())).unwrap();
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
