//! How operations reach branches: in the queue or beside it, seen by who watches, and not where a branch is set aside.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use shuntfs::{Errno, LowerFile, Result};
use shuntfs_sys::FsMagic;

use crate::branch::{self, Escape, MountIndex};
use crate::merge::Merge;
use crate::node::Node;
use crate::outcome::Outcome;
use crate::shared::Shared;

impl Shared {
    /// Whether lower calls run in the queue.
    pub(crate) fn runs_inline(&self) -> bool {
        let is_strained = self.merge.as_ref().is_some_and(Merge::is_strained);
        !is_strained && self.branches.known().all(|branch| branch.lane.runs_inline())
    }

    /// Does what makes lower calls for a request, which its caller need not wait for if they do not come back.
    pub(crate) fn attempt<T: Outcome>(&self, escape: impl FnOnce() -> Escape, act: impl FnOnce() -> T) -> T {
        let Some(in_flight) = self.merge.as_ref().and_then(Merge::begin) else { return act() };
        let Some(instead) = T::unless_waited_for() else { return act() };
        let in_flight = in_flight.with(escape());
        let outcome = act();
        if in_flight.end() {
            outcome.take_back(self);
            instead
        } else {
            outcome
        }
    }

    /// Does what makes lower calls, where it is seen if they do not come back.
    pub(crate) fn under_way<T>(&self, act: impl FnOnce() -> T) -> T {
        let _in_flight = self.merge.as_ref().and_then(Merge::begin);
        act()
    }

    /// The next lower call is on this mount.
    ///
    /// # Errors
    /// EIO where its branch is set aside: nothing is asked of it.
    pub(crate) fn reaches(&self, mount: MountIndex) -> Result<()> {
        if self.merge.is_none() {
            return Ok(());
        }
        branch::touches_on(mount);
        if self.branch(mount).health.is_aside() { Err(Errno::IO) } else { Ok(()) }
    }

    /// An open lower file, which says whether its file system may keep a queue waiting.
    pub(crate) fn lower_file(&self, node: &Node, fd: OwnedFd) -> LowerFile {
        let mount = node.mount();
        let file = LowerFile::new(fd);
        let is_on_fuse = self.mount(mount).magic == FsMagic::FUSE;
        let file = if is_on_fuse { file.that_ignores_nowait() } else { file };
        let branch = self.branch(mount);
        let (file, is_watched) = match &self.merge {
            Some(merge) => (file.counted_by(Arc::clone(branch.traffic())), merge.options.timeout.is_some()),
            None => (file, false),
        };
        if is_watched || branch.lane.can_block(self.mount(mount)) { file.that_can_block() } else { file }
    }
}
