//! What operations give, and what happens to it where nobody waits for it any more: the disk hung, and its caller got EIO.

use shuntfs::{AttrReply, Birth, Entry, Errno, LookupCount, NodeId, Opened, Result, Statfs};
use shuntfs_sys::OsError;

use crate::dir::{Collected, PoolDir, Pushed};
use crate::file::PoolFile;
use crate::op::ioctl;
use crate::shared::Shared;

/// What an operation gives.
pub(crate) trait Outcome {
    /// What its caller gets who does not wait for it; `None` where it always does.
    fn unless_waited_for() -> Option<Self>
    where
        Self: Sized;

    /// It came after all. Whatever it counts as the kernel's is not.
    fn take_back(self, shared: &Shared);
}

/// What an operation gives where nothing fails.
pub(crate) trait Answer {
    /// The nodes whose lookup counts it raises by one.
    fn looked_up(&self) -> Vec<NodeId> {
        Vec::new()
    }
}

impl<T: Answer> Outcome for Result<T> {
    fn unless_waited_for() -> Option<Self> {
        Some(Err(Errno::IO))
    }

    fn take_back(self, shared: &Shared) {
        if let Ok(answer) = self {
            answer.looked_up().into_iter().for_each(|node| shared.forget(node, LookupCount(1)));
        }
    }
}

impl<T> Outcome for shuntfs_sys::Result<T> {
    fn unless_waited_for() -> Option<Self> {
        Some(Err(OsError::IO))
    }

    fn take_back(self, _: &Shared) {}
}

/// What is closed is closed by nobody else.
impl Outcome for () {
    fn unless_waited_for() -> Option<Self> {
        None
    }

    fn take_back(self, _: &Shared) {}
}

/// Whether a file was moved. One that was stays where it is.
impl Outcome for bool {
    fn unless_waited_for() -> Option<Self> {
        Some(false)
    }

    fn take_back(self, _: &Shared) {}
}

impl Answer for () {}
impl Answer for u64 {}
impl Answer for usize {}
impl Answer for [u64; 2] {}
impl Answer for (usize, Vec<u8>) {}
impl Answer for AttrReply {}
impl Answer for (AttrReply, Birth) {}
impl Answer for Statfs {}
impl Answer for Opened<PoolFile> {}
impl Answer for PoolDir {}
impl Answer for ioctl::Answer {}

impl Answer for Entry {
    fn looked_up(&self) -> Vec<NodeId> {
        self.node.into_iter().collect()
    }
}

impl Answer for (Entry, Opened<PoolFile>) {
    fn looked_up(&self) -> Vec<NodeId> {
        self.0.looked_up()
    }
}

impl Answer for Collected {
    fn looked_up(&self) -> Vec<NodeId> {
        self.nodes()
    }
}

impl Answer for Pushed {
    fn looked_up(&self) -> Vec<NodeId> {
        self.0.clone()
    }
}
