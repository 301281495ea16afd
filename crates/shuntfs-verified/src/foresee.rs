//! Checks ahead of whoever reads sequentially: what is read into the pieces that come next, and READs answered from them.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use shuntfs::{Cx, Errno, Filled, LowerFile, ReadReply};
use shuntfs_sys::data::read_at;
use shuntfs_sys::threads;
use shuntfs_verity::Level;

use crate::ahead::{Pace, Stream};
use crate::checked::{CheckedFile, Job, compare};
use crate::io::ThreadIo;
use crate::options::DataReadahead;
use crate::pieces::{Checked, Piece};
use crate::rooms::Room;
use crate::tree::{Fault, HashTree};
use pollster::block_on;

/// What is read before it is hashed, so that it lies in the second-level cache when it is.
const STEP: u64 = 256 << 10;

impl CheckedFile {
    /// Has the next piece read and checked by another thread, where that is due after this READ.
    pub(crate) fn check_ahead(&self, cx: &Cx<'_>, stream: &Stream, job: &Job) {
        let len = job.span.end - job.span.start;
        // The READ before this one may come after it, by another queue.
        stream.pieces.passed(if job.span.end == self.size() {
            u64::MAX
        } else {
            job.span.start.saturating_sub(len)
        });
        if self.checks.data_readahead == DataReadahead::Auto && !stream.is_quick() {
            return;
        }
        let Some(span) = stream.pieces.wanted(job.span.end, len, stream.run(), self.size()) else { return };
        let Some(room) = self.checks.rooms.take() else { return };
        let Some(promise) = stream.pieces.promise(span.clone()) else { return };
        let (tree, lower, checks) =
            (Arc::clone(&self.tree), Arc::clone(&self.lower), Arc::clone(&self.checks));
        let cpu = threads::current_cpu();
        drop(cx.offload(move || {
            // The kernel wakes a thread on its waker's CPU where it takes the others for busy, as it does with the sleeping ones of
            // many virtual machines; there it would take turns with the queue.
            if let Err(error) = threads::leave_cpu(cpu) {
                tracing::debug!(%error, "a piece is checked on its reader's CPU");
            }
            // Who needs what is wrong reads it anew, and tells.
            if let Ok((checked, blocks)) = read_and_check(&tree, &lower, span, room) {
                checks.counters.data_blocks.add(blocks);
                promise.keep(checked);
            }
        }));
    }

    /// Waits for pieces that a READ must be answered from; whether all of them are good.
    pub(crate) async fn are_good(&self, pieces: &[Arc<Piece>], stream: &Stream, job: &Job) -> bool {
        for piece in pieces {
            let Some(checked) = piece.settled().await else { return false };
            if job.span.end == piece.end() {
                stream.took_ahead(checked.took);
            }
        }
        self.checks.counters.reads_ahead.bump();
        true
    }

    /// Answers with what is in pieces that are here.
    ///
    /// # Errors
    /// EIO where one of them is not, which nobody sees.
    pub(crate) async fn answer_from<'q>(
        &self,
        pieces: &[Arc<Piece>],
        wanted: Range<u64>,
        reply: ReadReply<'q>,
    ) -> Result<Filled<'q>, Fault> {
        let mut here = Vec::with_capacity(pieces.len());
        for piece in pieces {
            here.push((piece, piece.settled().await.ok_or(Fault::Lower(Errno::IO))?));
        }
        let len = usize::try_from(wanted.end - wanted.start).map_err(|_| Fault::Lower(Errno::IO))?;
        let mut out = reply.cursor();
        for (piece, checked) in here {
            out.put(piece.part(checked, &wanted)).map_err(Fault::Lower)?;
        }
        if out.written_mut().len() == len { Ok(out.finish()) } else { Err(Fault::Lower(Errno::IO)) }
    }
}

/// Reads whole blocks into a room and compares them; also how many they are.
fn read_and_check(
    tree: &HashTree,
    lower: &LowerFile,
    span: Range<u64>,
    mut room: Room,
) -> Result<(Checked, u64), Fault> {
    let block_size = u64::from(tree.shape().params().block_size().bytes());
    let (mut reading, mut steps, mut blocks_done) = (Duration::ZERO, 0, 0);
    let mut rest = span.clone();
    while !rest.is_empty() {
        let step = rest.start..(rest.start + STEP).min(rest.end);
        rest.start = step.end;
        let at = |offset: u64| usize::try_from(offset - span.start).unwrap_or(usize::MAX);
        let bytes = room.get_mut(at(step.start)..at(step.end)).ok_or(Fault::Short)?;
        let began = Instant::now();
        read_whole(lower, bytes, step.start)?;
        reading += began.elapsed();
        steps += 1;
        let blocks = step.start / block_size..step.end.div_ceil(block_size);
        let hashes = match tree.cached_hashes(&blocks) {
            Some(hashes) => hashes,
            None => block_on(tree.hashes(&ThreadIo, blocks.clone(), Pace::Sequential))?,
        };
        blocks_done += blocks.end - blocks.start;
        debug_assert_eq!(tree.shape().bytes_of(Level::Data, blocks.clone()), step, "whole blocks");
        compare(tree, &hashes, blocks, bytes)?;
    }
    Ok((Checked { room, took: reading / steps.max(1) }, blocks_done))
}

/// Reads all of it, or says why not.
fn read_whole(lower: &LowerFile, mut bytes: &mut [u8], mut offset: u64) -> Result<(), Fault> {
    while !bytes.is_empty() {
        let read = read_at(lower, bytes, offset)
            .map_err(|error| Fault::Lower(Errno::from_lower(error.raw_os_error())))?;
        if read == 0 {
            return Err(Fault::Short);
        }
        bytes = &mut bytes[read..];
        offset += read as u64;
    }
    Ok(())
}
