//! What was found bad, so that it is said once and, for a moment, not looked at again.
//!
//! The kernel asks for a bad page up to three times (measured on Linux 6.1 to 7.2), and so may every caller that tries again:
//! a verdict holds for [`FRESH`] without another look at the block. After that the block is read and hashed anew, because
//! somebody may have mended the lower file; it is said again only where it is bad in another way.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use shuntfs_verity::{Digest, Level, Mismatch};

/// How long a verdict holds without another look.
const FRESH: Duration = Duration::from_secs(1);
/// How many are remembered; beyond that all are forgotten, and may be said again.
const REMEMBERED_MAX: usize = 4096;

/// Which file it is: others may have the same digest. Its blocks are its own, and its tree is that of all with this digest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct FileName {
    pub(crate) digest: Digest,
    /// A hash of its path.
    pub(crate) path: u64,
}

/// A block of a sealed file or of its tree.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Place {
    file: FileName,
    level: Level,
    block: u64,
}

impl Place {
    /// A block of a file, or of the tree that is that of all files with its digest.
    pub(crate) fn of(file: FileName, level: Level, block: u64) -> Self {
        if level == Level::Data {
            Self { file, level, block }
        } else {
            Self::of_tree(file.digest, level, block)
        }
    }

    /// A block of a tree.
    pub(crate) fn of_tree(digest: Digest, level: Level, block: u64) -> Self {
        Self { file: FileName { digest, path: 0 }, level, block }
    }
}

/// The bad blocks that are remembered.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    found: Mutex<HashMap<Place, Verdict>>,
    count: AtomicUsize,
    /// Files that are shorter than they were sealed.
    short: Mutex<HashSet<FileName>>,
    /// Names that do not lead to what was sealed, by node and what is wrong.
    names: Mutex<HashSet<(u64, String)>>,
}

#[derive(Clone, Copy, Debug)]
struct Verdict {
    mismatch: Mismatch,
    at: Instant,
    /// Whether somebody was told.
    said: bool,
}

impl Verdicts {
    /// Forgets what was said of names: another manifest gives its nodes other numbers.
    pub(crate) fn forget_names(&self) {
        self.names.lock().clear();
    }

    /// Whether a block was just found bad.
    pub(crate) fn recent(&self, place: Place) -> Option<Mismatch> {
        // optimisation: as a rule there is none.
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let found = self.found.lock();
        found.get(&place).filter(|verdict| verdict.at.elapsed() < FRESH).map(|verdict| verdict.mismatch)
    }

    /// Remembers a bad block; whether that is news.
    pub(crate) fn note(&self, file: FileName, mismatch: Mismatch) -> bool {
        let before = self.remember(Place::of(file, mismatch.level, mismatch.block), mismatch, true);
        before.is_none_or(|before| !before.said || before.mismatch.found != mismatch.found)
    }

    /// Remembers a bad block of a tree, which nobody has asked for by itself.
    pub(crate) fn suspect(&self, tree: Digest, mismatch: Mismatch) {
        self.remember(Place::of_tree(tree, mismatch.level, mismatch.block), mismatch, false);
    }

    fn remember(&self, place: Place, mismatch: Mismatch, said: bool) -> Option<Verdict> {
        let mut found = self.found.lock();
        if found.len() >= REMEMBERED_MAX && !found.contains_key(&place) {
            found.clear();
        }
        let before = found.get(&place).copied();
        // Who asks again and again must not keep it from being looked at anew.
        let recalled = before.filter(|before| before.mismatch == mismatch && before.at.elapsed() < FRESH);
        let at = recalled.map_or_else(Instant::now, |before| before.at);
        // What was said stays said, however often it is seen.
        let said =
            said || before.is_some_and(|before| before.said && before.mismatch.found == mismatch.found);
        found.insert(place, Verdict { mismatch, at, said });
        self.count.store(found.len(), Ordering::Relaxed);
        before
    }

    /// Remembers a file that ends too early; whether that is news.
    pub(crate) fn note_short(&self, file: FileName) -> bool {
        let mut short = self.short.lock();
        if short.len() >= REMEMBERED_MAX && !short.contains(&file) {
            short.clear();
        }
        short.insert(file)
    }

    /// Remembers what is wrong with the name of a node; whether that is news.
    pub(crate) fn note_name(&self, node: u64, wrong: &str) -> bool {
        let mut names = self.names.lock();
        let name = (node, wrong.to_owned());
        if names.len() >= REMEMBERED_MAX && !names.contains(&name) {
            names.clear();
        }
        names.insert(name)
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use shuntfs_verity::Algorithm;

    fn digest(byte: u8) -> Digest {
        Digest::new(Algorithm::Sha256, &[byte; 32]).unwrap()
    }

    fn mismatch_at(level: Level, block: u64, found: u8) -> Mismatch {
        Mismatch { level, block, expected: digest(1), found: digest(found) }
    }

    fn mismatch(block: u64, found: u8) -> Mismatch {
        mismatch_at(Level::Data, block, found)
    }

    fn file(byte: u8) -> FileName {
        FileName { digest: digest(byte), path: 5 }
    }

    /// A copy of a file that was damaged could not be read for as long as somebody read the damaged one.
    #[test]
    fn a_copy_of_a_bad_file_is_not_bad_and_shares_its_tree() {
        let (one, other, verdicts) = (file(9), FileName { path: 6, ..file(9) }, Verdicts::default());
        let at = |file, level| verdicts.recent(Place::of(file, level, 3));
        assert!(verdicts.note(one, mismatch(3, 7)) && verdicts.note_short(one));
        assert_eq!((at(one, Level::Data), at(other, Level::Data)), (Some(mismatch(3, 7)), None));
        assert!(verdicts.note(other, mismatch(3, 7)) && verdicts.note_short(other), "it is bad, too");
        let of_tree = mismatch_at(Level::Tree(0), 3, 7);
        assert!(verdicts.note(one, of_tree));
        assert_eq!(at(other, Level::Tree(0)), Some(of_tree));
        assert!(!verdicts.note(other, of_tree), "it was said");
    }

    #[test]
    fn a_bad_block_is_news_once_and_again_when_it_is_bad_in_another_way() {
        let verdicts = Verdicts::default();
        let place = |block| Place::of(file(9), Level::Data, block);
        assert_eq!(verdicts.recent(place(3)), None);
        assert!(verdicts.note(file(9), mismatch(3, 7)));
        assert!(!verdicts.note(file(9), mismatch(3, 7)));
        assert_eq!(verdicts.recent(place(3)), Some(mismatch(3, 7)));
        assert_eq!(verdicts.recent(place(4)), None);
        assert!(verdicts.note(file(9), mismatch(3, 8)));
        verdicts.remember(place(3), mismatch(3, 8), false);
        assert!(!verdicts.note(file(9), mismatch(3, 8)), "said is said");
        verdicts.remember(place(5), mismatch(5, 8), false);
        assert_eq!(verdicts.recent(place(5)), Some(mismatch(5, 8)));
        assert!(verdicts.note(file(9), mismatch(5, 8)), "nobody was told yet");
        assert!(verdicts.note(file(8), mismatch(3, 8)), "of another file");
    }

    /// A caller that tried more often than once a second was told of the old verdict forever, and a mended file stayed bad.
    #[test]
    fn asking_again_does_not_make_a_verdict_younger() {
        let verdicts = Verdicts::default();
        let place = Place::of(file(9), Level::Data, 3);
        verdicts.note(file(9), mismatch(3, 7));
        let start = Instant::now();
        while verdicts.recent(place).is_some() {
            assert!(start.elapsed() < 5 * FRESH, "it is never looked at again");
            verdicts.note(file(9), mismatch(3, 7));
            std::thread::sleep(FRESH / 10);
        }
    }

    #[test]
    fn memory_is_bounded() {
        let verdicts = Verdicts::default();
        for block in 0..3 * REMEMBERED_MAX as u64 {
            assert!(verdicts.note(file(9), mismatch(block, 7)));
            let name = FileName { path: block, ..file(9) };
            assert!(verdicts.note_short(name) && !verdicts.note_short(name));
            assert!(
                verdicts.note_name(block, "it is missing") && !verdicts.note_name(block, "it is missing")
            );
        }
        assert!(verdicts.found.lock().len() <= REMEMBERED_MAX);
        assert!(verdicts.short.lock().len() <= REMEMBERED_MAX);
        assert!(verdicts.names.lock().len() <= REMEMBERED_MAX);
    }
}
