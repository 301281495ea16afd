//! The counters of queues, which go on under every server of a mount.
//!
//! Nothing depends on them, so they have no checks. What they are differs between releases more often than the rest of the layout: a word
//! tells of their shape, and where that is another release's they begin anew.

use std::sync::Arc;

use shuntfs_sys::placed::Placed;

use super::layout::{COUNTERS, Store, check_of};
use crate::counters::QueueCounts;

/// The word that tells of their shape. The rest of its page is free.
const AT_SHAPE: usize = COUNTERS.start;
const QUEUES_START: usize = COUNTERS.start + 512;
/// How many words a queue has.
const LEN: usize = Placed::<QueueCounts>::WORDS;

/// Where the counters of queues are kept.
#[derive(Debug)]
pub(crate) struct KeptCounters(Arc<Store>);

impl KeptCounters {
    /// Those of a mount; `None` where its state has no place for them.
    pub(crate) fn take(store: &Arc<Store>) -> Option<Self> {
        if !store.has_counters() {
            return None;
        }
        if store.get(AT_SHAPE) != shape() {
            store.clear(COUNTERS).ok()?;
            store.publish(AT_SHAPE, shape());
        }
        Some(Self(Arc::clone(store)))
    }

    /// Those of a queue; `None` where there is no room for them.
    pub(crate) fn place(&self, queue: usize) -> Option<Placed<QueueCounts>> {
        let start = queue.checked_mul(LEN)?.checked_add(QUEUES_START)?;
        let words = start..start.checked_add(LEN).filter(|end| *end <= COUNTERS.end)?;
        self.0.reserve(words.clone()).ok()?;
        Placed::new(Arc::clone(&self.0), |store| store.words(words))
    }
}

/// Differs where there are other counts, or the same in another order.
fn shape() -> u64 {
    check_of(LEN as u64, QueueCounts::names().flat_map(String::into_bytes).map(u64::from))
}
