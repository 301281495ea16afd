//! The folders that are open, because their listings hold the branches that they are of.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::dir::Walk;

/// So many closed ones are kept at least before they are looked for.
const CLOSED_MIN: usize = 16;

/// The folders that are open.
#[derive(Debug, Default)]
pub(crate) struct Walks(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    walks: Vec<Weak<Walk>>,
    /// At this many the closed ones are forgotten: there are as many again as were open the last time, so that each costs little.
    limit: usize,
}

impl Walks {
    /// Notes one that was opened.
    pub(crate) fn note(&self, walk: &Arc<Walk>) {
        let mut known = self.0.lock();
        if known.walks.len() >= known.limit {
            known.walks.retain(|walk| walk.strong_count() > 0);
            known.limit = known.walks.len() * 2 + CLOSED_MIN;
        }
        known.walks.push(Arc::downgrade(walk));
    }

    /// Those that are open.
    pub(super) fn all(&self) -> Vec<Arc<Walk>> {
        self.0.lock().walks.iter().filter_map(Weak::upgrade).collect()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.lock().walks.len()
    }
}
