//! Queues of the kernel with a pool of payload buffers, and with zero copy (FUSE 7.46, Linux 7.3): how they are asked for, and what is taken
//! instead where the kernel refuses.
//!
//! A queue is made first (`ADD_QUEUE`), then gets its pool (`ADD_BUFPOOL`), then its entries (`REGISTER`). What a queue must be able to do is
//! said when it is made and holds for good: `fs/fuse/dev_uring.c`. So a queue that was made for zero copy, and then gets no pool, takes no
//! entries, and the connection falls back to the device. All other refusals cost the pool or the zero copy alone.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};

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

/// Whether a connection's queues move pages by zero copy: each of them does, or there is a reason why not all do.
///
/// It is settled before the first request comes by a ring, as none does before all queues have entries.
#[derive(Debug)]
pub struct ZeroCopy(AtomicU8);

impl ZeroCopy {
    pub(crate) fn new(off: Option<NoZeroCopy>) -> Self {
        Self(AtomicU8::new(off.map_or(0, number)))
    }

    /// Why not; `None` where they do.
    #[must_use]
    pub fn off(&self) -> Option<NoZeroCopy> {
        let place = usize::from(self.0.load(Ordering::Acquire)).checked_sub(1)?;
        NoZeroCopy::ALL.get(place).copied()
    }

    /// A queue does not. The first reason stays.
    pub(crate) fn turn_off(&self, why: NoZeroCopy) {
        let _was_off = self.0.compare_exchange(0, number(why), Ordering::AcqRel, Ordering::Acquire);
    }
}

fn number(why: NoZeroCopy) -> u8 {
    let place = NoZeroCopy::ALL.iter().position(|other| *other == why);
    place.and_then(|place| u8::try_from(place + 1).ok()).expect("every reason has a place")
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
    },
}

/// What comes of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    Ask(Step),
    Register(Mode),
}

impl Step {
    /// What comes after the kernel's answer to this, and why there is no zero copy, where that is new.
    pub(crate) fn after(self, answer: Result<(), OsError>) -> (Next, Option<NoZeroCopy>) {
        match (self, answer) {
            (Self::MakeForZeroCopy, Ok(())) => (Next::Ask(Self::AddPool { zero_copy: true }), None),
            (Self::MakeForZeroCopy, Err(OsError::PERM)) => {
                (Next::Ask(Self::Make), Some(NoZeroCopy::NotPrivileged))
            }
            (Self::MakeForZeroCopy, Err(_)) => (Next::Ask(Self::Make), Some(NoZeroCopy::Refused)),
            (Self::Make, Ok(())) => (Next::Ask(Self::AddPool { zero_copy: false }), None),
            (Self::Make, Err(_)) => (Next::Register(Mode::Own), Some(NoZeroCopy::Refused)),
            (Self::AddPool { zero_copy: true }, Ok(())) => (Next::Register(Mode::ZeroCopy), None),
            (Self::AddPool { zero_copy: false }, Ok(())) => (Next::Register(Mode::Pool), None),
            // Made for zero copy, it will take no entry, and its refusal is what tells the kernel to go on without rings.
            (Self::AddPool { .. }, Err(_)) => (Next::Register(Mode::Own), Some(NoZeroCopy::NoPool)),
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// What happens to a queue whose kernel answers as given, one after another.
    fn outcome(first: Step, answers: &[Result<(), OsError>]) -> (Mode, Option<NoZeroCopy>) {
        let (mut step, mut why) = (first, None);
        for (place, answer) in answers.iter().enumerate() {
            let (next, more) = step.after(*answer);
            why = why.or(more);
            match next {
                Next::Ask(another) => step = another,
                Next::Register(mode) => {
                    assert_eq!(place + 1, answers.len(), "{first:?} {answers:?}");
                    return (mode, why);
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
            assert_eq!(outcome(first, answers), (mode, why), "{first:?} {answers:?}");
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
