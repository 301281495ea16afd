//! An image of nothing: zeroes of any size.

use std::sync::atomic::{AtomicU64, Ordering};

/// The size where none is said: 1 TiB.
pub(crate) const DEFAULT_SIZE: u64 = 1 << 40;

/// Zeroes; what is written is dropped.
#[derive(Debug)]
pub(crate) struct Null {
    size: AtomicU64,
}

impl Null {
    pub(crate) fn new(size: u64) -> Self {
        Self { size: AtomicU64::new(size) }
    }

    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    pub(crate) fn resize(&self, size: u64) {
        self.size.store(size, Ordering::Relaxed);
    }

    pub(crate) fn reaches(&self, end: u64) {
        self.size.fetch_max(end, Ordering::Relaxed);
    }
}
