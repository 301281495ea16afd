//! What a test says of the rings, and hears of them.

use std::ops::Range;

use shuntfs_sys::OsError;

/// FUSE over io_uring, as the fake kernel is to have it. It has a queue for each CPU that the machine may have, as Linux does, and gives
/// each request to the next one in turn.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Rings {
    /// Whether it has pools of payload buffers and zero copy, as Linux 7.3 does. Default: no, as Linux 6.14 to 7.2.
    pub pools: bool,
    /// How many CPUs the machine may have, and how many of them are online. Default: those of this one, and requests come from each.
    pub cpus: Option<(usize, usize)>,
    /// What it refuses. Default: nothing.
    pub refusals: Vec<Refusal>,
}

impl Rings {
    /// Rings as those of Linux 6.14 to 7.2.
    #[must_use]
    pub fn plain() -> Self {
        Self::default()
    }

    /// Rings as those of Linux 7.3.
    #[must_use]
    pub fn with_pools() -> Self {
        Self { pools: true, ..Self::default() }
    }

    /// The same on a machine that may have so many CPUs, of which the first ones are online and have callers.
    ///
    /// # Panics
    /// Where none or more than all are.
    #[must_use]
    pub fn of_cpus(mut self, possible: usize, online: usize) -> Self {
        assert!((1..=possible).contains(&online), "{online} of {possible} CPUs");
        self.cpus = Some((possible, online));
        self
    }

    /// The same with one more refusal.
    #[must_use]
    pub fn refusing(mut self, step: RingStep, which: Range<usize>, error: OsError) -> Self {
        self.refusals.push(Refusal { step, which, error });
        self
    }
}

/// What the kernel refuses while rings are set up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// At which step.
    pub step: RingStep,
    /// Which of the attempts at it, counted from 0 over all queues.
    pub which: Range<usize>,
    /// With which error. EAGAIN says that the kernel is not done with INIT, and that the same must be asked again.
    pub error: OsError,
}

/// A step of setting rings up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum RingStep {
    /// The table of buffers of a ring.
    Table,
    /// A queue for zero copy.
    QueueForZeroCopy,
    /// A queue without.
    Queue,
    /// Pinning memory into a ring's table.
    Pin,
    /// The pool of a queue, pinned or not.
    Pool,
    /// The pool of a queue, where its memory is pinned.
    PinnedPool,
    /// An entry.
    Entry,
}

impl RingStep {
    /// Every step.
    pub const ALL: [Self; 7] = [
        Self::Table,
        Self::QueueForZeroCopy,
        Self::Queue,
        Self::Pin,
        Self::Pool,
        Self::PinnedPool,
        Self::Entry,
    ];
}

/// A word of the kernel about a request that cannot be true.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Lie {
    /// Its payload is at this place of the pool.
    Offset(u32),
    /// Its payload has so many bytes.
    PayloadLen(u32),
}

/// What went by rings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct RingTotals {
    /// How many requests.
    pub requests: u64,
    /// How many of them had a buffer of a pool.
    pub in_pool: u64,
    /// How many of those had one that was pinned.
    pub in_pinned: u64,
    /// How many of them had their bytes in pages (zero copy).
    pub in_pages: u64,
    /// How many waited for an entry or a buffer.
    pub waited: u64,
}
