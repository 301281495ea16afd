//! What of an export survives its server, so that another one can go on with it.
//!
//! - The image: the next server has the same files ([`ImageFiles`](crate::ImageFiles)), and finds in them whatever was answered
//!   ([`Image::surviving`](crate::Image::surviving)).
//! - Open files: a bit each, whether they may write.
//! - What is only in memory: owner and mode, the size of a null image, and the first error of making durable ([`Facts`]). They are kept in the
//!   record of the only node.

use std::sync::Arc;

use parking_lot::Mutex;
use shuntfs::takeover::{
    KeptNode, KeptNodes, KeptOpen, LeftNode, LeftNodes, LeftOpen, NodePlace, NotTaken, Surviving,
};
use shuntfs::{Delegation, NodeId, Result};

use crate::export::{Export, ExportFile, Owner};
use crate::open::Disk;

/// What is kept beside the image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Facts {
    pub(crate) owner: Owner,
    /// Of a null image.
    pub(crate) size: u64,
    /// The first error of making durable, by its number; 0 where there was none.
    pub(crate) lost: i32,
}

/// Tells a record of ours from others.
const MARK: u64 = 0x7368_756e_7469_6d67;

impl Facts {
    fn words(self, number: u64) -> [u64; 8] {
        let Owner { mode, uid, gid } = self.owner;
        let owner = u64::from(uid) << 32 | u64::from(gid);
        [MARK, number, mode.into(), owner, self.size, u64::from(self.lost.unsigned_abs()), 0, 0]
    }

    /// With the number of the record.
    fn of(words: [u64; 8]) -> Option<(u64, Self)> {
        let [MARK, number, mode, owner, size, lost, 0, 0] = words else { return None };
        let half = |word: u64| u32::try_from(word).ok();
        let mode = half(mode).filter(|mode| mode & !0o777 == 0)?;
        let (uid, gid) = (half(owner >> 32)?, half(owner & u64::from(u32::MAX))?);
        let lost = i32::try_from(lost).ok()?;
        Some((number, Self { owner: Owner { mode, uid, gid }, size, lost }))
    }
}

/// Where the facts are kept.
#[derive(Debug)]
pub(crate) struct Keeping {
    nodes: KeptNodes,
    now: Mutex<Kept>,
}

#[derive(Debug)]
struct Kept {
    facts: Facts,
    number: u64,
    place: NodePlace,
}

impl Keeping {
    /// Of the records that were left, the last one counts; `facts` where there is none.
    fn take(nodes: KeptNodes, left: LeftNodes, facts: Facts) -> std::result::Result<Self, NotTaken> {
        let mut last: Option<Kept> = None;
        for left in left {
            let LeftNode { place, node, words, .. } = left?;
            let found = Facts::of(words).filter(|_| node == NodeId::ROOT);
            let (number, facts) = found.ok_or("a node is none that an export has written down")?;
            let other = match &last {
                Some(kept) if kept.number > number => Some(place),
                _ => last.replace(Kept { facts, number, place }).map(|kept| kept.place),
            };
            // Its server died before it let go of the older one.
            other.into_iter().for_each(|place| nodes.let_go(place));
        }
        let kept = match last {
            Some(kept) => kept,
            None => {
                Kept { facts, number: 0, place: keep(&nodes, facts, 0).map_err(|errno| errno.to_string())? }
            }
        };
        Ok(Self { nodes, now: Mutex::new(kept) })
    }

    fn facts(&self) -> Facts {
        self.now.lock().facts
    }

    /// Changes them, before anybody is told of it. The old record goes when the new one is there.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Facts)) -> Result<()> {
        let mut now = self.now.lock();
        let mut facts = now.facts;
        change(&mut facts);
        if facts == now.facts {
            return Ok(());
        }
        let number = now.number + 1;
        let place = keep(&self.nodes, facts, number)?;
        let before = std::mem::replace(&mut *now, Kept { facts, number, place });
        self.nodes.let_go(before.place);
        Ok(())
    }
}

fn keep(nodes: &KeptNodes, facts: Facts, number: u64) -> Result<NodePlace> {
    nodes.keep(&KeptNode { node: NodeId::ROOT, file: None, words: facts.words(number) })
}

/// For an export of an [`Image::surviving`](crate::Image::surviving).
impl Surviving for Export {
    fn take_nodes(&self, nodes: KeptNodes, left: LeftNodes) -> std::result::Result<(), NotTaken> {
        let keeping = Arc::new(Keeping::take(nodes, left, self.facts())?);
        let facts = keeping.facts();
        *self.owner.lock() = facts.owner;
        if let Disk::Null(null) = &self.image.disk {
            null.resize(facts.size);
        }
        if let Some(lost) = self.image.lost() {
            let kept = Arc::clone(&keeping);
            lost.goes_on(facts.lost, move |error| {
                if let Err(errno) = kept.change(|facts| facts.lost = error) {
                    tracing::error!(%errno, "that something was lost is not kept for the next server");
                }
            });
        }
        self.keeping.set(keeping).map_err(|_| "the nodes were taken before".into())
    }

    fn keep_file<'f>(&self, file: &'f ExportFile) -> KeptOpen<'f> {
        KeptOpen { file: None, words: [file.may_write.into(), 0] }
    }

    fn take_file(
        &self,
        _: NodeId,
        left: LeftOpen,
    ) -> std::result::Result<Option<(ExportFile, Delegation)>, NotTaken> {
        let may_write = match left.words {
            [0, 0] => false,
            [1, 0] if self.image.writable => true,
            _ => return Err("an open file is none that an export has written down".into()),
        };
        Ok(Some((ExportFile { may_write }, self.delegation(may_write))))
    }

    fn keep_dir<'f>(&self, _: &'f ()) -> KeptOpen<'f> {
        KeptOpen::default()
    }

    fn take_dir(&self, _: NodeId, _: LeftOpen) -> std::result::Result<Option<()>, NotTaken> {
        Err("an export has no folders".into())
    }
}

#[cfg(test)]
mod test {
    use super::*;

    const FACTS: Facts =
        Facts { owner: Owner { mode: 0o640, uid: 5, gid: u32::MAX }, size: 1 << 40, lost: 28 };

    #[test]
    fn facts_are_read_as_they_were_written_and_nothing_else_is() {
        let words = FACTS.words(7);
        assert_eq!(Facts::of(words), Some((7, FACTS)));
        for (place, word) in [(0, 0), (2, 0o1000), (2, u64::MAX), (5, u64::MAX), (6, 1), (7, 1)] {
            let mut wrong = words;
            wrong[place] = word;
            assert_eq!(Facts::of(wrong), None, "{place}");
        }
    }
}
