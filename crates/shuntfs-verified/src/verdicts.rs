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

/// A block of a sealed file or of its tree; files are told apart by their digests.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Place {
    pub(crate) file: Digest,
    pub(crate) level: Level,
    pub(crate) block: u64,
}

/// The bad blocks that are remembered.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    found: Mutex<HashMap<Place, Verdict>>,
    count: AtomicUsize,
    /// Files that are shorter than they were sealed.
    short: Mutex<HashSet<Digest>>,
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
    pub(crate) fn note(&self, file: Digest, mismatch: Mismatch) -> bool {
        let before = self.remember(file, mismatch, true);
        before.is_none_or(|before| !before.said || before.mismatch.found != mismatch.found)
    }

    /// Remembers a bad block that nobody has asked for by itself.
    pub(crate) fn suspect(&self, file: Digest, mismatch: Mismatch) {
        self.remember(file, mismatch, false);
    }

    fn remember(&self, file: Digest, mismatch: Mismatch, said: bool) -> Option<Verdict> {
        let mut found = self.found.lock();
        let place = Place { file, level: mismatch.level, block: mismatch.block };
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
    pub(crate) fn note_short(&self, file: Digest) -> bool {
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

    fn mismatch(block: u64, found: u8) -> Mismatch {
        Mismatch { level: Level::Data, block, expected: digest(1), found: digest(found) }
    }

    #[test]
    fn a_bad_block_is_news_once_and_again_when_it_is_bad_in_another_way() {
        let verdicts = Verdicts::default();
        let place = |block| Place { file: digest(9), level: Level::Data, block };
        assert_eq!(verdicts.recent(place(3)), None);
        assert!(verdicts.note(digest(9), mismatch(3, 7)));
        assert!(!verdicts.note(digest(9), mismatch(3, 7)));
        assert_eq!(verdicts.recent(place(3)), Some(mismatch(3, 7)));
        assert_eq!(verdicts.recent(place(4)), None);
        assert!(verdicts.note(digest(9), mismatch(3, 8)));
        verdicts.suspect(digest(9), mismatch(3, 8));
        assert!(!verdicts.note(digest(9), mismatch(3, 8)), "said is said");
        verdicts.suspect(digest(9), mismatch(5, 8));
        assert_eq!(verdicts.recent(place(5)), Some(mismatch(5, 8)));
        assert!(verdicts.note(digest(9), mismatch(5, 8)), "nobody was told yet");
        assert!(verdicts.note(digest(8), mismatch(3, 8)), "of another file");
    }

    /// A caller that tried more often than once a second was told of the old verdict forever, and a mended file stayed bad.
    #[test]
    fn asking_again_does_not_make_a_verdict_younger() {
        let verdicts = Verdicts::default();
        let place = Place { file: digest(9), level: Level::Data, block: 3 };
        verdicts.note(digest(9), mismatch(3, 7));
        let start = Instant::now();
        while verdicts.recent(place).is_some() {
            assert!(start.elapsed() < 5 * FRESH, "it is never looked at again");
            verdicts.note(digest(9), mismatch(3, 7));
            std::thread::sleep(FRESH / 10);
        }
    }

    #[test]
    fn memory_is_bounded() {
        let verdicts = Verdicts::default();
        for block in 0..3 * REMEMBERED_MAX as u64 {
            assert!(verdicts.note(digest(9), mismatch(block, 7)));
            let name = Digest::new(Algorithm::Sha256, &[block.to_le_bytes(); 4].concat()).unwrap();
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
