//! Queues of the kernel with a pool of payload buffers, and with zero copy (FUSE 7.46, Linux 7.3): how they are asked for, and what is taken
//! instead where the kernel refuses.
//!
//! A queue is made first (`ADD_QUEUE`), then gets its pool (`ADD_BUFPOOL`), then its entries (`REGISTER`). A pool whose memory is pinned, in a
//! place of the ring's table, is asked for as such; then each command of the queue names the place. What a queue must be able to do is
//! said when it is made and holds for good: `fs/fuse/dev_uring.c`. So a queue that was made for zero copy, and then gets no pool, takes no
//! entries, and the connection falls back to the device. All other refusals cost the pool or the zero copy alone.

use std::fmt;
use std::sync::OnceLock;

use shuntfs_sys::OsError;

/// What the kernel offers beyond a payload for each entry, as far as it is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Pools {
    /// Nothing.
    #[default]
    Lacking,
    /// Pools of payload buffers.
    Plain,
    /// The same with zero copy.
    ZeroCopy,
}

/// Why requests are not moved by zero copy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum NoZeroCopy {
    /// The kernel offers none.
    KernelLacks,
    /// It was turned off by a setting.
    TurnedOff,
    /// Requests do not come by io_uring.
    NoRing,
    /// `CAP_SYS_ADMIN` in the first user namespace is missing.
    NotPrivileged,
    /// No pool of payload buffers, or no table for pages, was available: too little memory is allowed, or there are too many entries.
    NoPool,
    /// The kernel refused it otherwise.
    Refused,
}

impl NoZeroCopy {
    /// Every reason.
    pub const ALL: [Self; 6] =
        [Self::KernelLacks, Self::TurnedOff, Self::NoRing, Self::NotPrivileged, Self::NoPool, Self::Refused];
}

impl fmt::Display for NoZeroCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::KernelLacks => "the kernel offers none (Linux 7.3 does)",
            Self::TurnedOff => "it is turned off",
            Self::NoRing => "requests do not come by io_uring",
            Self::NotPrivileged => "it needs CAP_SYS_ADMIN in the first user namespace",
            Self::NoPool => "no pool of payload buffers is available",
            Self::Refused => "the kernel refused it",
        })
    }
}

/// Whether each queue of a connection has something, or why not all do.
///
/// It is settled before the first request comes by a ring, as none does before all queues have entries.
#[derive(Debug)]
pub struct Settled<W>(OnceLock<W>);

/// Whether pages are moved by zero copy.
pub type ZeroCopy = Settled<NoZeroCopy>;

/// Whether the memory of pools is pinned.
pub type Pinned = Settled<NotPinned>;

impl<W: Copy> Settled<W> {
    pub(crate) fn new(off: Option<W>) -> Self {
        Self(off.map_or_else(OnceLock::new, OnceLock::from))
    }

    /// Why not; `None` where they do.
    #[must_use]
    pub fn off(&self) -> Option<W> {
        self.0.get().copied()
    }

    /// A queue does not. The first reason stays.
    pub(crate) fn turn_off(&self, why: W) {
        let _first = self.0.set(why);
    }
}

/// Why the memory of pools is not pinned.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum NotPinned {
    /// There are no pools.
    NoPool,
    /// Nobody asked for it.
    NotAsked,
    /// This process may lock less memory than that.
    Limit,
    /// The kernel refused it.
    Refused,
}

impl fmt::Display for NotPinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoPool => "there is no pool",
            Self::NotAsked => "it was not asked for",
            Self::Limit => "the limit of locked memory is lower (ulimit -l, LimitMEMLOCK=)",
            Self::Refused => "the kernel refused it",
        })
    }
}

/// How many payload buffers each of the kernel's queues has to do with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PoolPlan {
    /// In its pool.
    pub(crate) buffers: usize,
    /// Beside it, for READs by zero copy whose bytes have to be put together in memory after all.
    pub(crate) spares: usize,
}

impl PoolPlan {
    /// For entries up to `depth` and room for `units` payloads in all; `None` where that is not enough for both.
    pub(crate) fn new(depth: usize, units: usize, payload_len: usize) -> Option<Self> {
        let longest = u32::MAX as usize / payload_len;
        let spares = (units / 4).clamp(1, SPARES_MAX).min(depth);
        let buffers = units.saturating_sub(spares).min(depth).min(longest);
        (buffers > 0).then_some(Self { buffers, spares })
    }
}

/// More READs than these wait for one another; they are few.
const SPARES_MAX: usize = 8;

/// How a queue of the kernel gets its payloads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// Each entry has its own.
    Own,
    /// From a pool.
    Pool,
    /// The same; READs and WRITEs of files that are open so have their pages in the ring's table.
    ZeroCopy,
}

/// What a queue is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// To be, with zero copy.
    MakeForZeroCopy,
    /// To be.
    Make,
    /// To have a pool.
    AddPool {
        /// It was made for zero copy.
        zero_copy: bool,
        /// The pool's memory is pinned.
        pinned: bool,
    },
}

/// What comes of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    Ask(Step),
    Register {
        mode: Mode,
        /// Each command of the queue has to name the pool's memory.
        pinned: bool,
    },
}

/// What cannot be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lost {
    ZeroCopy(NoZeroCopy),
    Pinned(NotPinned),
}

impl Step {
    /// What comes after the kernel's answer to this, for a ring whose memory is pinned or not, and what was lost, where that is new.
    pub(crate) fn after(self, answer: Result<(), OsError>, pinned: bool) -> (Next, Option<Lost>) {
        let own = Next::Register { mode: Mode::Own, pinned: false };
        let add_pool = |zero_copy| Next::Ask(Self::AddPool { zero_copy, pinned });
        match (self, answer) {
            (Self::MakeForZeroCopy, Ok(())) => (add_pool(true), None),
            (Self::MakeForZeroCopy, Err(OsError::PERM)) => {
                (Next::Ask(Self::Make), Some(Lost::ZeroCopy(NoZeroCopy::NotPrivileged)))
            }
            (Self::MakeForZeroCopy, Err(_)) => {
                (Next::Ask(Self::Make), Some(Lost::ZeroCopy(NoZeroCopy::Refused)))
            }
            (Self::Make, Ok(())) => (add_pool(false), None),
            (Self::Make, Err(_)) => (own, Some(Lost::ZeroCopy(NoZeroCopy::Refused))),
            (Self::AddPool { zero_copy, pinned }, Ok(())) => {
                let mode = if zero_copy { Mode::ZeroCopy } else { Mode::Pool };
                (Next::Register { mode, pinned }, None)
            }
            (Self::AddPool { zero_copy, pinned: true }, Err(_)) => {
                let step = Self::AddPool { zero_copy, pinned: false };
                (Next::Ask(step), Some(Lost::Pinned(NotPinned::Refused)))
            }
            // Made for zero copy, it will take no entry, and its refusal is what tells the kernel to go on without rings.
            (Self::AddPool { .. }, Err(_)) => (own, Some(Lost::ZeroCopy(NoZeroCopy::NoPool))),
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// What happens to a queue whose kernel answers as given, one after another.
    fn outcome(
        first: Step,
        answers: &[Result<(), OsError>],
        is_pinned: bool,
    ) -> (Mode, bool, Option<NoZeroCopy>, Option<NotPinned>) {
        let (mut step, mut no_zero_copy, mut not_pinned) = (first, None, None);
        for (place, answer) in answers.iter().enumerate() {
            let (next, lost) = step.after(*answer, is_pinned);
            match lost {
                Some(Lost::ZeroCopy(why)) => no_zero_copy = no_zero_copy.or(Some(why)),
                Some(Lost::Pinned(why)) => not_pinned = not_pinned.or(Some(why)),
                None => {}
            }
            match next {
                Next::Ask(another) => step = another,
                Next::Register { mode, pinned } => {
                    assert_eq!(place + 1, answers.len(), "{first:?} {answers:?}");
                    return (mode, pinned, no_zero_copy, not_pinned);
                }
            }
        }
        panic!("{answers:?} are too few")
    }

    #[test]
    fn each_refusal_takes_the_next_best() {
        use NoZeroCopy::{NoPool, NotPrivileged, Refused};
        use Step::{Make, MakeForZeroCopy};
        let (ok, no) = (Ok(()), Err(OsError::INVAL));
        let (denied, memory) = (Err(OsError::PERM), Err(OsError::NOMEM));
        for (first, answers, mode, why) in [
            (MakeForZeroCopy, &[ok, ok][..], Mode::ZeroCopy, None),
            (MakeForZeroCopy, &[denied, ok, ok], Mode::Pool, Some(NotPrivileged)),
            (MakeForZeroCopy, &[denied, ok, memory], Mode::Own, Some(NotPrivileged)),
            (MakeForZeroCopy, &[denied, no], Mode::Own, Some(NotPrivileged)),
            (MakeForZeroCopy, &[no, ok, ok], Mode::Pool, Some(Refused)),
            (MakeForZeroCopy, &[Err(OsError::EXIST), Err(OsError::EXIST)], Mode::Own, Some(Refused)),
            (MakeForZeroCopy, &[ok, memory], Mode::Own, Some(NoPool)),
            (MakeForZeroCopy, &[ok, no], Mode::Own, Some(NoPool)),
            (Make, &[ok, ok], Mode::Pool, None),
            (Make, &[ok, memory], Mode::Own, Some(NoPool)),
            (Make, &[no], Mode::Own, Some(Refused)),
        ] {
            let wanted = (mode, false, why, None);
            assert_eq!(outcome(first, answers, false), wanted, "{first:?} {answers:?}");
        }
    }

    #[test]
    fn a_pool_that_is_not_taken_pinned_is_asked_for_once_more() {
        use NoZeroCopy::{NoPool, NotPrivileged};
        use Step::{Make, MakeForZeroCopy};
        let (ok, no, denied) = (Ok(()), Err(OsError::INVAL), Err(OsError::PERM));
        let refused = Some(NotPinned::Refused);
        for (first, answers, wanted) in [
            (MakeForZeroCopy, &[ok, ok][..], (Mode::ZeroCopy, true, None, None)),
            (MakeForZeroCopy, &[ok, no, ok], (Mode::ZeroCopy, false, None, refused)),
            (MakeForZeroCopy, &[ok, no, no], (Mode::Own, false, Some(NoPool), refused)),
            (MakeForZeroCopy, &[denied, ok, ok], (Mode::Pool, true, Some(NotPrivileged), None)),
            (Make, &[ok, no, ok], (Mode::Pool, false, None, refused)),
        ] {
            assert_eq!(outcome(first, answers, true), wanted, "{first:?} {answers:?}");
        }
    }

    #[test]
    fn the_first_reason_stays() {
        let state = ZeroCopy::new(None);
        assert_eq!(state.off(), None);
        state.turn_off(NoZeroCopy::NotPrivileged);
        state.turn_off(NoZeroCopy::NoPool);
        assert_eq!(state.off(), Some(NoZeroCopy::NotPrivileged));
        for why in NoZeroCopy::ALL {
            assert_eq!(ZeroCopy::new(Some(why)).off(), Some(why));
            assert!(why.to_string().contains(' '));
        }
    }

    #[test]
    fn a_pool_has_no_more_than_there_is_room_for() {
        for (depth, units, buffers, spares) in
            [(32, 127, 32, 8), (32, 32, 24, 8), (32, 3, 2, 1), (32, 2, 1, 1), (1, 100, 1, 1)]
        {
            let plan = PoolPlan::new(depth, units, 1 << 20).expect("enough");
            assert_eq!((plan.buffers, plan.spares), (buffers, spares), "{depth} {units}");
            assert!(plan.buffers + plan.spares <= units);
        }
        assert_eq!(PoolPlan::new(32, 1, 1 << 20), None);
        let huge = PoolPlan::new(1000, 10_000, 1 << 28).expect("enough");
        assert!(huge.buffers << 28 <= u32::MAX as usize, "the kernel counts it in 32 bits");
    }
}
