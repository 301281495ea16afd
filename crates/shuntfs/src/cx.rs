//! What an operation knows of its request.

use std::fmt;
use std::future::Future;

use shuntfs_transport::Signal;
use shuntfs_wire::{InHeader, NodeId, Unique};

use crate::server::Local;

/// The context of one request; it never leaves its queue.
#[derive(Clone, Copy)]
pub struct Cx<'r> {
    local: &'r Local,
    header: InHeader,
    supp_group: Option<u32>,
    signal: &'r Signal,
}

impl<'r> Cx<'r> {
    /// The context of a request.
    pub(crate) fn new(local: &'r Local, header: InHeader, signal: &'r Signal) -> Self {
        Self { local, header, supp_group: None, signal }
    }

    /// With the group that a creation may give.
    pub(crate) fn with_group(self, supp_group: Option<u32>) -> Self {
        Self { supp_group, ..self }
    }

    /// The caller's file system uid.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.header.uid
    }

    /// The caller's file system gid.
    #[must_use]
    pub fn gid(&self) -> u32 {
        self.header.gid
    }

    /// The caller's thread id, 0 where it is not visible.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.header.pid
    }

    /// The folder's group where the caller of a creation has it as supplementary.
    #[must_use]
    pub fn supp_group(&self) -> Option<u32> {
        self.supp_group
    }

    /// The request's number.
    #[must_use]
    pub fn unique(&self) -> Unique {
        self.header.request()
    }

    /// Runs blocking work on the offload pool.
    pub fn offload<T, W>(&self, work: W) -> impl Future<Output = T> + use<T, W>
    where
        T: Send + 'static,
        W: FnOnce() -> T + Send + 'static,
    {
        self.local.queue.offload(work)
    }

    /// Resolves when the caller was interrupted by a signal; an operation that ignores it is correct. EINTR is
    /// only to be answered where nothing was done.
    pub async fn interrupted(&self) {
        self.signal.arrived().await;
    }

    /// Lets go of a node's registered lower file, because the node is to have another one: at once, or with its
    /// last close where it is open in passthrough. Until then the kernel demands the old one.
    pub fn drop_backing(&self, node: NodeId) {
        self.local.core.nodes.drop_backing(node);
    }
}

impl fmt::Debug for Cx<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cx")
            .field("header", &self.header)
            .field("supp_group", &self.supp_group)
            .finish_non_exhaustive()
    }
}
