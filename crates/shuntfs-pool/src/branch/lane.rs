//! Where the lower calls of a branch are made.

use std::sync::atomic::{AtomicBool, Ordering};

use super::mounts::Mount;
use crate::options::Calls;

/// The way that the lower calls of one branch take: in the queue, or on the offload pool.
#[derive(Debug)]
pub(crate) struct Lane {
    calls: Calls,
    /// Whether they leave the queue; rises forever when a mount that can block shows up.
    leaves_queue: AtomicBool,
}

impl Lane {
    /// The lane of a branch on this mount.
    pub(super) fn new(calls: Calls, own: &Mount) -> Self {
        let lane = Self { calls, leaves_queue: AtomicBool::new(false) };
        lane.heed(own);
        lane
    }

    /// Whether lower calls run in the queue.
    pub(crate) fn runs_inline(&self) -> bool {
        !self.leaves_queue.load(Ordering::Relaxed)
    }

    /// From now on lower calls leave the queue where those on `mount` may keep it waiting.
    pub(crate) fn heed(&self, mount: &Mount) {
        if self.can_block(mount) {
            self.leaves_queue.store(true, Ordering::Relaxed);
        }
    }

    /// Whether calls on `mount` may keep a queue waiting, by its kind or because the options say so.
    pub(crate) fn can_block(&self, mount: &Mount) -> bool {
        match self.calls {
            Calls::Auto => mount.magic.can_block(),
            Calls::Inline => false,
            Calls::Offload => true,
        }
    }
}
