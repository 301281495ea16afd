//! What an operation knows of its request.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use shuntfs_sys::OsError;
use shuntfs_sys::data::{read_at, read_at_cached};
use shuntfs_transport::Signal;
use shuntfs_wire::abi::UNIQUE_RESEND;
use shuntfs_wire::{Errno, InHeader, NodeId, Result, Unique};

use crate::delegation::LowerFile;
use crate::hatch::Hatch;
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

    /// The node that the request names; the folder for what is done to a name.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.header.node().unwrap_or(NodeId::ROOT)
    }

    /// The request's number.
    #[must_use]
    pub fn unique(&self) -> Unique {
        self.header.request()
    }

    /// Whether the kernel sends the request for a second time, because the server that had read it first died before it answered. That
    /// server may have carried it out, or have begun to: a name that must be made may be there already.
    #[must_use]
    pub fn is_resent(&self) -> bool {
        self.header.is_resent()
    }

    /// Whether a server that is dead had begun to carry the request out, and nobody knows how far it came: a name that must be made may be there
    /// already, by this very request. A request that was read and not begun, or of which the outcome is known, is none of these
    /// where the file system is [`crate::takeover::Surviving`]; elsewhere each that comes again is.
    #[must_use]
    pub fn is_begun(&self) -> bool {
        match &self.local.core.requests {
            Some(requests) => requests.is_begun_again(&self.header),
            None => self.is_resent(),
        }
    }

    /// Whether what is noted of a request is there for the next server.
    #[must_use]
    pub fn keeps_notes(&self) -> bool {
        self.local.core.requests.is_some()
    }

    /// Notes two words of the request for a server that comes after this one, before a change of which it could not be seen later whether it
    /// was done. What was noted before stays. It looks through all requests that are noted: for what is rare.
    pub fn note_begun(&self, words: [u64; 2]) {
        if let Some(requests) = &self.local.core.requests {
            requests.note(&self.header, words);
        }
    }

    /// What a server that is dead had noted of the request ([`Cx::note_begun`]).
    #[must_use]
    pub fn begun_note(&self) -> Option<[u64; 2]> {
        self.local.core.requests.as_ref()?.note_of(&self.header)
    }

    /// The request's number, as it was when it first came; no other request of the connection has it.
    #[must_use]
    pub fn first_unique(&self) -> u64 {
        self.header.unique & !UNIQUE_RESEND
    }

    /// A way to answer the request from another thread, if the handler blocks this one; `None` on io_uring, where the queue alone can.
    #[must_use]
    pub fn hatch(&self) -> Option<Hatch> {
        let is_on_ring = self.local.core.nodes.has_ring();
        (!is_on_ring).then(|| Hatch::new(self.local.queue.device(), self.unique()))
    }

    /// Runs blocking work on the offload pool.
    pub fn offload<T, W>(&self, work: W) -> impl Future<Output = T> + use<T, W>
    where
        T: Send + 'static,
        W: FnOnce() -> T + Send + 'static,
    {
        self.local.queue.offload(work)
    }

    /// Reads a lower file into memory of the caller's, as much as that is long; gives it back, cut to what was read: less than
    /// asked for only at the file's end. What is not cached is waited for on the ring, or else on the offload pool, so that the
    /// request can wait for something else, too.
    ///
    /// # Errors
    /// Those of reading.
    pub async fn read_lower(&self, lower: &Arc<LowerFile>, into: Vec<u8>, offset: u64) -> Result<Vec<u8>> {
        let outcome = if self.local.queue.has_ring() {
            self.read_by_ring(lower, into, offset).await
        } else {
            self.read_by_pool(lower, into, offset).await
        };
        outcome.map_err(|error| Errno::from_lower(error.raw_os_error()))
    }

    async fn read_by_ring(
        &self,
        lower: &Arc<LowerFile>,
        mut into: Vec<u8>,
        offset: u64,
    ) -> shuntfs_sys::Result<Vec<u8>> {
        let wanted = into.len();
        let (bytes, mut done) = self.local.queue.read_owned(lower, into, offset).await?;
        into = bytes;
        // The kernel seldom stops before the end; what is missing then is read at its own place.
        while done > 0 && done < wanted {
            let rest = vec![0; wanted - done];
            let (rest, more) = self.local.queue.read_owned(lower, rest, offset + done as u64).await?;
            if more == 0 {
                break;
            }
            into[done..done + more].copy_from_slice(&rest[..more]);
            done += more;
        }
        into.truncate(done);
        Ok(into)
    }

    async fn read_by_pool(
        &self,
        lower: &Arc<LowerFile>,
        mut into: Vec<u8>,
        offset: u64,
    ) -> shuntfs_sys::Result<Vec<u8>> {
        // optimisation: what is cached costs no other thread.
        match read_at_cached(&**lower, &mut into, offset) {
            Ok(count) if count == into.len() => return Ok(into),
            Ok(_) | Err(OsError::AGAIN | OsError::OPNOTSUPP) => {}
            Err(error) => return Err(error),
        }
        let lower = Arc::clone(lower);
        self.offload(move || {
            let count = read_whole(&lower, &mut into, offset)?;
            into.truncate(count);
            Ok(into)
        })
        .await
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

/// Reads until the room is full or the file ends.
fn read_whole(lower: &LowerFile, into: &mut [u8], offset: u64) -> shuntfs_sys::Result<usize> {
    let mut done = 0;
    while done < into.len() {
        match read_at(lower, &mut into[done..], offset + done as u64)? {
            0 => break,
            more => done += more,
        }
    }
    Ok(done)
}

impl fmt::Debug for Cx<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cx")
            .field("header", &self.header)
            .field("supp_group", &self.supp_group)
            .finish_non_exhaustive()
    }
}
