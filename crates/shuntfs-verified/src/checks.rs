//! What all checked files of a mount share.

use std::sync::Arc;

use crate::cache::TreeCache;
use crate::counters::{Counters, VerifyFacts};
use crate::options::{CheckOptions, DataReadahead, TreeReadahead};
use crate::rooms::Rooms;
use crate::verdicts::Verdicts;

/// Enough for five who read sequentially at a time; others have each READ checked when it comes.
const ROOMS: usize = 16;

/// What all checked files of a mount share: verified tree blocks, verdicts, counters.
#[derive(Debug)]
pub struct Checks {
    pub(crate) cache: TreeCache,
    pub(crate) verdicts: Verdicts,
    pub(crate) counters: Counters,
    pub(crate) reads_ahead: bool,
    pub(crate) data_readahead: DataReadahead,
    /// Memory for data that is checked ahead.
    pub(crate) rooms: Arc<Rooms>,
    /// How many threads may hash one READ.
    pub(crate) hands: usize,
}

impl Checks {
    /// Nothing checked yet.
    #[must_use]
    pub fn new(options: &CheckOptions) -> Arc<Self> {
        Arc::new(Self {
            cache: TreeCache::new(options.tree_cache),
            verdicts: Verdicts::default(),
            counters: Counters::default(),
            reads_ahead: options.tree_readahead == TreeReadahead::On,
            data_readahead: options.data_readahead,
            rooms: Rooms::new(ROOMS),
            hands: std::thread::available_parallelism().map_or(1, usize::from),
        })
    }

    /// What was done so far.
    #[must_use]
    pub fn facts(&self) -> VerifyFacts {
        self.counters.facts(self.cache.len(), self.cache.max())
    }
}
