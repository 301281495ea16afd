//! Which lower files carry locks, and whose they are, written down for the next server.
//!
//! A lock belongs to the lower open file, which stays open when a server dies. So it stays, and what the next server needs is the descriptor: to give
//! the lock back, and to take it once more for a request that comes again, which changes nothing. Of the ranges the last one is kept, to tell
//! whose lock stands in the way.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shuntfs::takeover::{FileIdentity, KeptNode, KeptNodes, LeftNode, NodePlace};
use shuntfs::{Errno, LockOwner, LockRange, LockType, LowerFile, NodeId, Result};

use crate::records::Record;

/// Whose locks a lower file carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LockRecord {
    pub(crate) node: NodeId,
    /// `None` for a flock, which is the open file's.
    pub(crate) owner: Option<LockOwner>,
    /// The number of the open file that the first of them came through.
    pub(crate) opened: u32,
    pub(crate) range: Option<LockRange>,
}

/// Where one is written down.
#[derive(Debug)]
pub(super) struct LockPlace {
    number: NodeId,
    place: NodePlace,
}

/// Where all are written down.
#[derive(Debug)]
pub(super) struct KeptLocks {
    nodes: KeptNodes,
    next: AtomicU64,
}

impl KeptLocks {
    pub(super) fn new(nodes: KeptNodes) -> Self {
        let next = AtomicU64::new(Record::Lock.first_of(nodes.servers()));
        Self { nodes, next }
    }

    /// Writes down a lower file, before it carries a lock.
    ///
    /// # Errors
    /// ENOLCK where that cannot be: the next server could not give the lock back.
    pub(super) fn keep(&self, file: &LowerFile, record: &LockRecord) -> Result<LockPlace> {
        let number = NodeId::new(self.next.fetch_add(1, Ordering::Relaxed)).ok_or(Errno::NOLCK)?;
        let place = with(number, file, record, |kept| self.nodes.keep(kept))?;
        Ok(LockPlace { number, place })
    }

    /// Writes something else down of it.
    pub(super) fn keep_anew(&self, at: &mut LockPlace, file: &LowerFile, record: &LockRecord) {
        if let Ok(next) = with(at.number, file, record, |kept| self.nodes.replace(&at.place, kept)) {
            at.place = next;
        }
    }

    /// To be called before the file is closed.
    pub(super) fn let_go(&self, at: LockPlace) {
        self.nodes.let_go(at.place);
    }
}

fn with(
    number: NodeId,
    file: &LowerFile,
    record: &LockRecord,
    write: impl FnOnce(&KeptNode<'_>) -> Result<NodePlace>,
) -> Result<NodePlace> {
    let identity = FileIdentity::of(file).map_err(|_| Errno::NOLCK)?;
    let kept = KeptNode { node: number, file: Some((file.as_fd(), identity)), words: record.words() };
    write(&kept).map_err(|_| Errno::NOLCK)
}

impl LockRecord {
    fn words(&self) -> [u64; 8] {
        let (is_flock, owner) = self.owner.map_or((1, 0), |owner| (0, owner.0));
        let how = is_flock | u64::from(self.opened) << 32;
        let kind = |kind| match kind {
            LockType::Read => 1,
            LockType::Write => 2,
            _ => 0,
        };
        let range = self
            .range
            .map_or([0; 3], |range| [range.start, range.end, kind(range.kind) | u64::from(range.pid) << 32]);
        [self.node.get(), how, owner, range[0], range[1], range[2], 0, 0]
    }

    fn of(words: [u64; 8]) -> Option<Self> {
        let [node, how, owner, start, end, kind, 0, 0] = words else { return None };
        let range = match kind & u64::from(u32::MAX) {
            1 => Some(LockType::Read),
            2 => Some(LockType::Write),
            _ => None,
        };
        let pid = u32::try_from(kind >> 32).ok()?;
        Some(Self {
            node: NodeId::new(node)?,
            owner: (how & 1 == 0).then_some(LockOwner(owner)),
            opened: u32::try_from(how >> 32).ok()?,
            range: range.map(|kind| LockRange { start, end, kind, pid }),
        })
    }
}

/// A lower file that carries locks for a predecessor.
#[derive(Debug)]
pub(crate) struct LeftLock {
    pub(super) place: LockPlace,
    pub(super) file: Arc<LowerFile>,
    pub(super) record: LockRecord,
}

/// Takes those apart from the nodes.
///
/// # Errors
/// One is not what was written.
pub(crate) fn part(
    mut left: Vec<LeftNode>,
) -> std::result::Result<(Vec<LeftNode>, Vec<LeftLock>), &'static str> {
    let of_locks = left.extract_if(.., |left| Record::Lock.has(left.node));
    let read = |LeftNode { place, node, file, words, .. }: LeftNode| {
        let place = LockPlace { number: node, place };
        Some(LeftLock { place, file: Arc::new(LowerFile::new(file?)), record: LockRecord::of(words)? })
    };
    let locks =
        of_locks.map(read).collect::<Option<Vec<_>>>().ok_or("a lock is none that a pool has noted")?;
    Ok((left, locks))
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_record_is_the_same_after_it_was_written_down() {
        let range = |kind| Some(LockRange { start: 5, end: u64::MAX >> 1, kind, pid: 77 });
        let node = NodeId::ROOT;
        for record in [
            LockRecord { node, owner: None, opened: u32::MAX, range: None },
            LockRecord { node, owner: Some(LockOwner(u64::MAX)), opened: 0, range: range(LockType::Read) },
            LockRecord { node, owner: Some(LockOwner(0)), opened: 1, range: range(LockType::Write) },
        ] {
            assert_eq!(LockRecord::of(record.words()), Some(record));
        }
        assert_eq!(LockRecord::of([1, 0, 0, 0, 0, 0, 0, 1]), None);
    }
}
