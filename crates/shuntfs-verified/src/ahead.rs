//! Who reads on, and how far the tree is fetched ahead for it.
//!
//! The lowest level of the tree is cut in *strips* of 8 MiB of data each: 16 blocks, 64 KiB, where blocks are the usual 4 KiB.
//! A sequential reader gets whole strips, each in one read, and the next one before it gets there. Any other reader gets the
//! block that it needs and the one beside it, which costs no more than the one alone.
//!
//! Where reading below is slow, a sequential reader has the lower file itself read ahead, too: the readahead of the lower file system
//! goes on only when somebody reads, and that is when the hashing is over. Where it is fast that costs more than it saves, because
//! the kernel then takes single pages where its own readahead takes large pieces: 200 ms of processor time instead of 140 for
//! 250 MiB.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use shuntfs_verity::{Level, Shape};

use crate::pieces::Pieces;

/// How much data a strip of the tree covers, at least.
const STRIP_DATA: u64 = 8 << 20;
/// A reader that read on for so long, from the start of the file or from where it came to, is sequential.
const SEQUENTIAL_MIN: u64 = 64 << 10;
/// The kernel reads ahead with several requests at once, which may overtake each other by so much.
const OVERTAKEN_MAX: u64 = 4 << 20;

/// How far the lower file is read ahead of a sequential reader at most, which is never further than it has read sequentially: 1 ms
/// of a lower file system that gives 2 GB/s.
const LEAD_MAX: u64 = 2 << 20;
/// The least that is worth asking for.
const LEAD_STEP: u64 = 512 << 10;
/// What is asked for in one call: more is cut by file systems whose readahead is the usual one.
pub(crate) const LEAD_PIECE: u64 = 128 << 10;
/// Reading below is slow where a READ of 256 KiB, the kernel's usual, takes so long: half a gigabyte a second...
const SLOW: Duration = Duration::from_micros(500);
/// ...and after two of them in a row (one may be a thread that lost its CPU) so many READs are helped. Then it is looked anew, at
/// the cost of two that wait.
const SLOW_FOR: u32 = 512;

/// From the page cache 256 KiB come in 25 to 60 microseconds, and to a queue that shares its CPU with its caller in up to 150. What
/// does not take longer...
const QUICK: Duration = Duration::from_micros(150);
/// (A thread that checks ahead has a CPU to itself.)
const QUICK_AHEAD: Duration = Duration::from_micros(75);
/// ...so many times more often than it does comes from there: readahead below makes some READs of any file quick, and a busy
/// machine some of any file slow. One that is not quick counts for four that are.
const QUICK_MIN: u32 = 8;
const QUICK_MAX: u32 = 32;
const NOT_QUICK: u32 = 4;

/// How one open file is read.
#[derive(Debug, Default)]
pub struct Stream {
    /// Where a sequential reader goes on.
    next: AtomicU64,
    /// How much was read sequentially.
    run: AtomicU64,
    /// One more than the last strip that was asked for ahead.
    ahead: AtomicU64,
    /// Up to where the lower file was asked for ahead.
    lead: AtomicU64,
    was_slow: AtomicBool,
    /// How much more often than not reading below was quick.
    quick: AtomicU32,
    /// READs that must be helped.
    helped: AtomicU32,
    /// Data that was checked ahead.
    pub(crate) pieces: Pieces,
}

/// How a reader goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pace {
    Sequential,
    Random,
}

impl Stream {
    /// Notes a READ of these bytes. Races between queues only make a guess worse.
    pub(crate) fn note(&self, bytes: &Range<u64>) -> Pace {
        let next = self.next.load(Ordering::Relaxed);
        let near = next.saturating_sub(OVERTAKEN_MAX)..=next.saturating_add(OVERTAKEN_MAX);
        let len = bytes.end - bytes.start;
        let goes_on = bytes.start == next || (near.contains(&bytes.start) && self.is_sequential());
        // A single read tells nothing, however long: a page fault somewhere reads around itself.
        let run = if goes_on { self.run.load(Ordering::Relaxed).saturating_add(len) } else { 0 };
        self.run.store(run, Ordering::Relaxed);
        self.next.store(if goes_on { next.max(bytes.end) } else { bytes.end }, Ordering::Relaxed);
        if self.is_sequential() { Pace::Sequential } else { Pace::Random }
    }

    /// Whether a strip must be asked for ahead: it was not, as far as this stream knows.
    pub(crate) fn asks_ahead(&self, strip: u64) -> bool {
        self.ahead.swap(strip + 1, Ordering::Relaxed) != strip + 1
    }

    /// Reading below took so long.
    pub(crate) fn took(&self, took: Duration) {
        self.note_time(took, QUICK);
    }

    /// Reading below took so long, for as much, by a thread that checks ahead.
    pub(crate) fn took_ahead(&self, took: Duration) {
        self.note_time(took, QUICK_AHEAD);
    }

    fn note_time(&self, took: Duration, quick_max: Duration) {
        let quick = self.quick.load(Ordering::Relaxed);
        let quick =
            if took < quick_max { (quick + 1).min(QUICK_MAX) } else { quick.saturating_sub(NOT_QUICK) };
        self.quick.store(quick, Ordering::Relaxed);
        let slow = took >= SLOW;
        if self.was_slow.swap(slow, Ordering::Relaxed) && slow {
            self.helped.store(SLOW_FOR, Ordering::Relaxed);
        }
    }

    /// What of the lower file of `size` bytes must be read ahead now, where a sequential READ ends at `end`.
    pub(crate) fn leads(&self, end: u64, size: u64) -> Option<Range<u64>> {
        let helped = self.helped.load(Ordering::Relaxed);
        self.helped.store(helped.checked_sub(1)?, Ordering::Relaxed);
        let reach = self.run.load(Ordering::Relaxed).min(LEAD_MAX);
        let until = end.saturating_add(reach).min(size);
        let asked = self.lead.load(Ordering::Relaxed);
        // Behind the reader, or far before it: it has jumped since.
        let goes_on = (end..=until.saturating_add(OVERTAKEN_MAX)).contains(&asked);
        let start = if goes_on { asked } else { end };
        let step = if until == size { 1 } else { LEAD_STEP };
        if until < start.saturating_add(step) {
            return None;
        }
        // Of several queues that come here at once, one asks.
        self.lead.compare_exchange(asked, until, Ordering::Relaxed, Ordering::Relaxed).ok()?;
        Some(start..until)
    }

    /// Whether reading below takes no time to speak of.
    pub(crate) fn is_quick(&self) -> bool {
        self.quick.load(Ordering::Relaxed) >= QUICK_MIN
    }

    /// How much was read sequentially.
    pub(crate) fn run(&self) -> u64 {
        self.run.load(Ordering::Relaxed)
    }

    fn is_sequential(&self) -> bool {
        self.run.load(Ordering::Relaxed) >= SEQUENTIAL_MIN
    }
}

/// How many blocks of the lowest level a strip has.
pub(crate) fn strip_len(shape: &Shape) -> u64 {
    let params = shape.params();
    let covered = u64::from(params.block_size().bytes()) * params.arity() as u64;
    STRIP_DATA.div_ceil(covered)
}

/// What to read of the lowest level, where `wanted` is needed of it.
pub(crate) fn about(shape: &Shape, wanted: &Range<u64>, pace: Pace) -> Range<u64> {
    let unit = match pace {
        Pace::Sequential => strip_len(shape),
        Pace::Random => 2,
    };
    let end = wanted.end.next_multiple_of(unit).min(shape.blocks(Level::Tree(0)));
    wanted.start - wanted.start % unit..end
}

#[cfg(test)]
mod test {
    use super::*;
    use shuntfs_verity::{Algorithm, BlockSize, Params, Salt};

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    fn paces(reads: &[(u64, u64)]) -> Vec<Pace> {
        let stream = Stream::default();
        reads.iter().map(|(start, len)| stream.note(&(*start..start + len))).collect()
    }

    #[test]
    fn readers_are_told_apart() {
        use Pace::{Random, Sequential};
        let page = 4 * KIB;
        assert_eq!(paces(&[(0, 128 * KIB)]), [Sequential], "a large read from the start");
        assert_eq!(paces(&[(0, 16 * KIB), (16 * KIB, 112 * KIB)]), [Random, Sequential]);
        let faults = [(7 * MIB, 128 * KIB), (90 * MIB, 128 * KIB), (20 * MIB, 128 * KIB)];
        assert_eq!(paces(&faults), [Random; 3], "page faults read around themselves");
        assert_eq!(paces(&[(7 * MIB, 128 * KIB), (7 * MIB + 128 * KIB, 128 * KIB)]), [Random, Sequential]);
        assert_eq!(paces(&[(0, page), (900 * KIB, page), (30 * MIB, page), (0, page)]), [Random; 4]);
        // Neighbours that somebody reads at random now and then are no stream.
        assert_eq!(paces(&[(0, page), (page, page), (9 * MIB, page), (9 * MIB + page, page)]), [Random; 4]);
        let overtaken =
            [(0, 128 * KIB), (256 * KIB, 128 * KIB), (128 * KIB, 128 * KIB), (384 * KIB, 128 * KIB)];
        assert_eq!(paces(&overtaken), [Sequential; 4]);
        let jump = [(0, MIB), (100 * MIB, page), (100 * MIB + page, page)];
        assert_eq!(paces(&jump), [Sequential, Random, Random]);
    }

    #[test]
    fn a_strip_is_asked_for_once() {
        let stream = Stream::default();
        assert!(
            stream.asks_ahead(0) && !stream.asks_ahead(0) && stream.asks_ahead(1) && !stream.asks_ahead(1)
        );
    }

    #[test]
    fn a_lower_file_is_quick_while_no_read_of_it_takes_its_time() {
        let stream = Stream::default();
        for _ in 0..QUICK_MIN {
            assert!(!stream.is_quick());
            stream.took(QUICK / 2);
        }
        assert!(stream.is_quick());
        stream.took(QUICK);
        assert!(!stream.is_quick());
        (0..100).for_each(|_| stream.took(QUICK / 2));
        stream.took(QUICK);
        assert!(stream.is_quick(), "now and then a thread loses its CPU");
        (0..10).for_each(|_| stream.took(QUICK));
        assert!(!stream.is_quick(), "it does not come from the page cache any more");
    }

    #[test]
    fn the_lower_file_is_read_ahead_as_far_as_was_read_on_end() {
        let size = 100 * MIB + 5;
        let stream = Stream::default();
        stream.took(SLOW);
        stream.took(SLOW / 2);
        stream.took(SLOW);
        assert_eq!(stream.helped.load(Ordering::Relaxed), 0, "it was slow now and then");
        stream.took(SLOW);
        let mut asked = Vec::new();
        for start in (0..5 * MIB).step_by(1 << 18) {
            let end = start + 256 * KIB;
            stream.note(&(start..end));
            let lead = stream.leads(end, size);
            if let Some(lead) = &lead {
                assert_eq!(lead.start, asked.last().map_or(end, |last: &Range<u64>| last.end.max(end)));
                assert!(lead.end <= 2 * end && lead.end <= end + LEAD_MAX);
                assert!(lead.end - lead.start >= LEAD_STEP);
            }
            asked.extend(lead);
        }
        let last = asked.last().unwrap();
        assert!(last.end > 6 * MIB + 256 * KIB, "{asked:?}");
        assert_eq!(stream.leads(last.end - LEAD_MAX, size), None, "all of that was asked for");
        // The end of the file is asked for, and nothing beyond it.
        stream.note(&(5 * MIB..99 * MIB));
        assert_eq!(stream.leads(99 * MIB, size), Some(99 * MIB..size));
        assert_eq!(stream.leads(size, size), None);
        // A reader that jumps back is asked for anew.
        stream.note(&(0..MIB));
        stream.note(&(MIB..2 * MIB));
        assert_eq!(stream.leads(2 * MIB, size), Some(2 * MIB..3 * MIB));
        for _ in 0..SLOW_FOR {
            stream.leads(2 * MIB, size);
        }
        stream.note(&(2 * MIB..4 * MIB));
        assert_eq!(stream.leads(4 * MIB, size), None, "it may be fast by now");
    }

    #[test]
    fn a_strip_covers_eight_mebibytes_whatever_the_blocks() {
        for (algorithm, block, strip) in [
            (Algorithm::Sha256, 4096, 16),
            (Algorithm::Sha512, 4096, 32),
            (Algorithm::Sha256, 1024, 256),
            (Algorithm::Sha256, 65536, 1),
        ] {
            let params = Params::new(algorithm, BlockSize::new(block).unwrap(), Salt::NONE).unwrap();
            let shape = Shape::new(&params, 1 << 40).unwrap();
            assert_eq!(strip_len(&shape), strip, "{algorithm} {block}");
            assert!(strip * u64::from(block) * params.arity() as u64 >= 4 * MIB);
        }
    }

    #[test]
    fn what_is_read_stays_inside_the_level() {
        // 64000 data blocks: 500 blocks in the lowest level.
        let shape = Shape::new(&Params::default(), 64000 * 4096).unwrap();
        let about = |wanted: Range<u64>, pace| about(&shape, &wanted, pace);
        assert_eq!(about(3..4, Pace::Random), 2..4);
        assert_eq!(about(3..5, Pace::Random), 2..6);
        assert_eq!(about(3..4, Pace::Sequential), 0..16);
        assert_eq!(about(15..17, Pace::Sequential), 0..32);
        assert_eq!(about(499..500, Pace::Sequential), 496..500);
        assert_eq!(about(499..500, Pace::Random), 498..500);
    }
}
