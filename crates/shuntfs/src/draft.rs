//! Bytes of a lower file that lie in the payload and are examined before they are the answer.

use std::ops::Range;
use std::sync::Arc;

use shuntfs_transport::{Exchange, Judge};
use shuntfs_wire::{ByteRange, Errno, Result};

use crate::cx::Cx;
use crate::delegation::LowerFile;
use crate::reply::{Filled, ReadReply};

/// Bytes in the payload that are not the answer yet. Dropping them leaves the request to be answered with an error.
#[must_use = "what is good is kept, and is then the answer"]
#[derive(Debug)]
pub struct Draft<'q> {
    exchange: &'q mut Exchange,
    start: usize,
    /// How many bytes the answer may have.
    answer_max: usize,
    len: usize,
}

impl<'q> ReadReply<'q> {
    /// How many bytes a draft can have: more than the answer, where only a part of it must be kept.
    #[must_use]
    pub fn draft_max(&self) -> usize {
        self.exchange.payload_len().saturating_sub(self.start)
    }

    /// Reads bytes of a lower file into the payload, to be looked at: fewer than asked for only where the file ends.
    ///
    /// # Errors
    /// Those of reading it; EINVAL where `at` is longer than [`ReadReply::draft_max`].
    pub async fn draft_from(self, cx: &Cx<'_>, lower: &Arc<LowerFile>, at: ByteRange) -> Result<Draft<'q>> {
        let _ = cx;
        let wanted = at.len as usize;
        if wanted > self.draft_max() {
            return Err(Errno::INVAL);
        }
        let mut done = 0;
        while done < wanted {
            let offset = at.offset.checked_add(done as u64).ok_or(Errno::INVAL)?;
            let rest = ByteRange { offset, len: u32::try_from(wanted - done).unwrap_or(u32::MAX) };
            match self.exchange.read_lower(self.start + done, lower, rest).await? {
                0 => break,
                more => done += more,
            }
        }
        Ok(Draft { exchange: self.exchange, start: self.start, answer_max: self.len, len: done })
    }
}

impl<'q> Draft<'q> {
    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.exchange.payload()[self.start..][..self.len]
    }

    /// Has `judge` look at each of `parts`, at the first one here and at the others at the same time on the offload pool. The
    /// outcomes come in the order of the parts. A part must lie within the bytes.
    pub async fn examine<T: Send + 'static>(&self, parts: &[Range<usize>], judge: &Judge<T>) -> Vec<T> {
        assert!(parts.iter().all(|part| part.end <= self.len), "{parts:?} of {}", self.len);
        self.exchange.examine(self.start, parts, judge).await
    }

    /// Answers with a part of the bytes, and no others. At most as many as the caller asked for. While somebody still looks at them,
    /// because [`Draft::examine`] was dropped or leaked half way, only a part at the start can be kept: any other is answered EIO.
    pub fn keep(self, part: Range<usize>) -> Filled<'q> {
        let part = part.start.min(self.len)..part.end.min(self.len);
        let len = part.len().min(self.answer_max);
        if part.start > 0 && !self.exchange.is_settled() {
            return Filled::bare(len);
        }
        if part.start > 0 {
            let from = self.start + part.start;
            self.exchange.payload_mut().copy_within(from..from + len, self.start);
        }
        Filled::bytes(len)
    }
}
