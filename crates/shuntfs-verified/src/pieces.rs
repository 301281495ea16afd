//! Data that is read and checked before it is asked for.
//!
//! A ring's thread serves its READs one after another, on the CPU of their caller, who waits for the hashing as for the rest of it,
//! however many processors have nothing to do. So other threads read and check the *pieces* that come next, and the READs that follow
//! are copies of what they found good. Nobody sees a piece that was not: who needs its blocks reads them anew, and tells what is
//! wrong. That is for lower files which come as fast as from the page cache. On a device READs that overlap are served by several threads anyway, and the copy would only cost: 1,390 MiB/s where it was
//! 1,690, with the lower file in the page cache on two CPUs; on rings 1,720 where it was 1,470, and 1,600 where it was 1,140.
//!
//! A piece has the length of four READs, as far as that is 1 MiB: waking another thread takes a good part of the time that one
//! READ does. There is one ahead of the reader besides the one it is in, and none before it has read so much sequentially.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::task::{Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;

use crate::rooms::{ROOM_LEN, Room};

/// READs in a piece.
const READS: u64 = 4;
/// Pieces begin and end at multiples of this from where the first began: the largest block size.
const GRAIN: u64 = 64 << 10;

/// The pieces of one open file, in their order.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    pieces: VecDeque<Arc<Piece>>,
    /// Up to where pieces were asked for.
    until: u64,
}

/// Some blocks of a file that are on their way, here, or not available.
#[derive(Debug)]
pub(crate) struct Piece {
    span: Range<u64>,
    outcome: OnceLock<Option<Checked>>,
    waiting: Mutex<Vec<Waker>>,
}

/// What was found good.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) room: Room,
    /// How long the lower file took for each part of the length of a usual READ.
    pub(crate) took: Duration,
}

/// The duty to say what became of a piece; who drops it says that it is not available.
#[derive(Debug)]
pub(crate) struct Promise(Arc<Piece>);

impl Pieces {
    /// What to read ahead now, where a READ of `len` bytes ended at `end` after `run` were read sequentially; at most one piece.
    pub(crate) fn wanted(&self, end: u64, len: u64, run: u64, size: u64) -> Option<Range<u64>> {
        let piece_len = (READS * len).next_multiple_of(GRAIN).min(ROOM_LEN as u64);
        if run < piece_len {
            return None;
        }
        let state = self.state.lock();
        // Behind the reader, or far before it: it has jumped since.
        let goes_on = (end..=end.saturating_add(2 * ROOM_LEN as u64)).contains(&state.until);
        let start = if goes_on { state.until } else { end };
        let is_due = start < end.saturating_add(piece_len) && start < size;
        is_due.then(|| start..start.saturating_add(piece_len).min(size))
    }

    /// Enters a piece that is being read; `None` where somebody else did meanwhile.
    pub(crate) fn promise(&self, span: Range<u64>) -> Option<Promise> {
        let mut state = self.state.lock();
        let is_next = state.pieces.back().is_some_and(|last| last.span.end == span.start);
        if !is_next {
            if state.pieces.iter().any(|piece| piece.span.contains(&span.start)) {
                return None;
            }
            state.pieces.clear();
        }
        let (outcome, waiting) = (OnceLock::new(), Mutex::default());
        state.until = span.end;
        let piece = Arc::new(Piece { span, outcome, waiting });
        state.pieces.push_back(Arc::clone(&piece));
        Some(Promise(piece))
    }

    /// The pieces that hold these bytes, if there are such.
    pub(crate) fn with(&self, span: &Range<u64>) -> Option<Vec<Arc<Piece>>> {
        let state = self.state.lock();
        let touch = |piece: &&Arc<Piece>| piece.span.start < span.end && span.start < piece.span.end;
        let found: Vec<_> = state.pieces.iter().filter(touch).cloned().collect();
        let whole = found.first()?.span.start <= span.start
            && found.last().is_some_and(|last| span.end <= last.span.end);
        whole.then_some(found)
    }

    /// The reader got there: what lies before is not kept.
    pub(crate) fn passed(&self, offset: u64) {
        let mut state = self.state.lock();
        while state.pieces.front().is_some_and(|first| first.span.end <= offset) {
            state.pieces.pop_front();
        }
    }
}

impl Piece {
    pub(crate) fn end(&self) -> u64 {
        self.span.end
    }

    /// Waits until it is known what became of it.
    pub(crate) async fn settled(&self) -> Option<&Checked> {
        poll_fn(|cx| {
            if self.outcome.get().is_none() {
                let mut waiting = self.waiting.lock();
                // It may have come before the lock did.
                if self.outcome.get().is_none() {
                    waiting.push(cx.waker().clone());
                    return Poll::Pending;
                }
            }
            Poll::Ready(self.outcome.get().and_then(Option::as_ref))
        })
        .await
    }

    /// What it has of these bytes; nothing where it has none.
    pub(crate) fn part<'c>(&self, checked: &'c Checked, wanted: &Range<u64>) -> &'c [u8] {
        let both = wanted.start.max(self.span.start)..wanted.end.min(self.span.end);
        let at = |offset: u64| usize::try_from(offset - self.span.start).unwrap_or(usize::MAX);
        if both.start < both.end { &checked.room[at(both.start)..at(both.end)] } else { &[] }
    }

    fn settle(&self, outcome: Option<Checked>) {
        // Only its promise settles a piece, once.
        let _first = self.outcome.set(outcome);
        let waiting = std::mem::take(&mut *self.waiting.lock());
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl Promise {
    /// It is here, and good.
    pub(crate) fn keep(self, checked: Checked) {
        self.0.settle(Some(checked));
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.0.settle(None);
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::rooms::Rooms;
    use pollster::block_on;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    fn checked(rooms: &Arc<Rooms>, byte: u8) -> Checked {
        let mut room = rooms.take().unwrap();
        room.fill(byte);
        Checked { room, took: Duration::ZERO }
    }

    #[test]
    fn a_reader_is_one_piece_ahead_once_it_has_read_as_much() {
        let (pieces, size, len) = (Pieces::default(), 10 * MIB + 5, 256 * KIB);
        let mut asked = Vec::new();
        for start in (0..9 * MIB).step_by(1 << 18) {
            let end = start + len;
            if let Some(span) = pieces.wanted(end, len, end, size) {
                assert!(end >= MIB && span.start <= end + MIB, "{end}: {span:?}");
                drop(pieces.promise(span.clone()));
                asked.push(span);
            }
            pieces.passed(end);
            assert!(pieces.state.lock().pieces.len() <= 2);
        }
        assert_eq!(asked[..2], [MIB..2 * MIB, 2 * MIB..3 * MIB]);
        assert!(asked.windows(2).all(|two| two[0].end == two[1].start), "{asked:?}");
        // The last one is as long as the file is.
        assert_eq!(pieces.wanted(9 * MIB + len, len, 9 * MIB, size), Some(10 * MIB..size));
        drop(pieces.promise(10 * MIB..size));
        assert_eq!(pieces.wanted(size, 5, 10 * MIB, size), None);
    }

    #[test]
    fn a_reader_that_jumps_starts_anew() {
        let pieces = Pieces::default();
        drop(pieces.promise(MIB..2 * MIB));
        assert_eq!(pieces.wanted(50 * MIB, 64 * KIB, MIB, 99 * MIB), Some(50 * MIB..50 * MIB + 256 * KIB));
        let _ahead = pieces.promise(50 * MIB..51 * MIB);
        assert!(pieces.with(&(MIB..MIB + 1)).is_none(), "it is gone");
        assert!(pieces.promise(50 * MIB..51 * MIB).is_none(), "another queue was first");
        assert_eq!(pieces.wanted(MIB, 64 * KIB, 100 * KIB, 99 * MIB), None, "too little was read on end");
    }

    #[test]
    fn bytes_come_from_one_piece_or_from_neighbours() {
        let (pieces, rooms) = (Pieces::default(), Rooms::new(2));
        let (one, other) = (pieces.promise(0..MIB).unwrap(), pieces.promise(MIB..2 * MIB).unwrap());
        one.keep(checked(&rooms, 1));
        other.keep(checked(&rooms, 2));
        let span = MIB - 3..MIB + 5;
        let mut bytes = Vec::new();
        for piece in pieces.with(&span).unwrap() {
            bytes.extend_from_slice(piece.part(block_on(piece.settled()).unwrap(), &span));
        }
        assert_eq!(bytes, [1, 1, 1, 2, 2, 2, 2, 2]);
        assert_eq!(pieces.with(&(0..5)).unwrap().len(), 1);
        assert!(pieces.with(&(2 * MIB - 1..2 * MIB + 1)).is_none(), "not all of it");
        pieces.passed(MIB);
        assert!(pieces.with(&(0..5)).is_none() && pieces.with(&(MIB..MIB + 5)).is_some());
    }

    #[test]
    fn who_waits_is_told_whatever_becomes_of_a_piece() {
        let (pieces, rooms) = (Pieces::default(), Rooms::new(1));
        for is_good in [true, false] {
            let promise = pieces.promise(0..MIB).unwrap();
            let piece = pieces.with(&(0..1)).unwrap().remove(0);
            let waiter = std::thread::spawn(move || block_on(piece.settled()).map(|checked| checked.room[0]));
            if is_good {
                promise.keep(checked(&rooms, 7))
            } else {
                drop(promise)
            }
            assert_eq!(waiter.join().unwrap(), is_good.then_some(7));
            pieces.passed(MIB);
        }
    }
}
