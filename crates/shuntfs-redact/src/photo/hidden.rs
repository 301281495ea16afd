//! What a walk has found.

use std::ops::Range;

use super::Odd;
use super::part::Part;
use crate::ranges::Ranges;

/// More pieces than any photo has.
const PIECES_MAX: usize = 1 << 16;

/// What must be hidden, and where EXIF was understood.
#[derive(Default, Debug)]
pub(super) struct Hidden {
    pieces: Vec<Range<u64>>,
    /// Where the TIFF headers are that were walked.
    pub(super) walked: Vec<usize>,
}

impl Hidden {
    /// Hides a part.
    pub(super) fn hide(&mut self, part: Part<'_>) -> Result<(), Odd> {
        if self.pieces.len() >= PIECES_MAX {
            return Err(Odd);
        }
        let start = part.start() as u64;
        self.pieces.push(start..start + part.len() as u64);
        Ok(())
    }

    /// Hides everything from an offset on, however long the file may become.
    pub(super) fn hide_from(&mut self, start: usize) {
        self.pieces.push(start as u64..u64::MAX);
    }

    /// How far the finding is; [`Hidden::back_to`] forgets what came after.
    pub(super) fn mark(&self) -> (usize, usize) {
        (self.pieces.len(), self.walked.len())
    }

    pub(super) fn back_to(&mut self, (pieces, walked): (usize, usize)) {
        self.pieces.truncate(pieces);
        self.walked.truncate(walked);
    }

    pub(super) fn into_ranges(self) -> Ranges {
        self.pieces.into_iter().collect()
    }
}
