//! The two kinds of rings: one that a descriptor names, and one that none does.
//!
//! # Safety
//! What submissions name is their owners' promise, made when they are pushed.
#![expect(unsafe_code, reason = "submissions name memory that the kernel fills")]

use std::time::Duration;

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, cqueue, squeue};

use super::bare::BareRing;
use super::ring::{Completion, from_io};
use crate::Result;

type Described = IoUring<squeue::Entry128, cqueue::Entry>;

/// One ring.
pub(super) enum Base {
    Described(Box<Described>),
    Bare(BareRing),
}

impl Base {
    /// The one that a descriptor names.
    pub(super) fn described(&self) -> Option<&Described> {
        match self {
            Self::Described(ring) => Some(ring),
            Self::Bare(_) => None,
        }
    }

    /// How many submissions wait for the next call.
    pub(super) fn queued(&mut self) -> u32 {
        match self {
            Self::Described(ring) => u32::try_from(ring.submission().len()).unwrap_or(u32::MAX),
            Self::Bare(ring) => ring.queued(),
        }
    }

    /// Queues all of them or none (false).
    ///
    /// # Safety
    /// As of [`super::Ring::push`], for each.
    pub(super) unsafe fn push(&mut self, entries: &[squeue::Entry128]) -> bool {
        match self {
            // SAFETY: handed on to the caller by this function's contract.
            Self::Described(ring) => unsafe { ring.submission().push_multiple(entries) }.is_ok(),
            Self::Bare(ring) => ring.push(entries),
        }
    }

    pub(super) fn submit(&mut self) -> Result<()> {
        match self {
            Self::Described(ring) => ring.submit().map(drop).map_err(|error| from_io(&error)),
            Self::Bare(ring) => ring.submit(),
        }
    }

    /// Submits what is queued and waits for so many completions. With a `want` of zero it runs the task work that completions were deferred
    /// to, which a mere submission does not.
    pub(super) fn enter(&mut self, want: u32, limit: Option<Duration>) -> Result<()> {
        let queued = self.queued();
        let ring = match self {
            Self::Described(ring) => ring,
            Self::Bare(ring) => return ring.enter(want, limit.filter(|_| want > 0)),
        };
        let entered = match limit {
            _ if want == 0 => {
                let flags = EnterFlags::GETEVENTS.bits();
                // SAFETY: no argument is passed, and the submissions were pushed under the contracts of their methods.
                unsafe { ring.submitter().enter::<()>(queued, 0, flags, None) }
            }
            None => ring.submit_and_wait(want as usize),
            Some(limit) => {
                let limit = Timespec::from(limit);
                ring.submitter().submit_with_args(want as usize, &SubmitArgs::new().timespec(&limit))
            }
        };
        entered.map(drop).map_err(|error| from_io(&error))
    }

    /// The next completion.
    pub(super) fn next(&mut self) -> Option<Completion> {
        match self {
            Self::Described(ring) => {
                let entry = ring.completion().next()?;
                Some(Completion { user_data: entry.user_data(), result: entry.result() })
            }
            Self::Bare(ring) => ring.next(),
        }
    }
}
