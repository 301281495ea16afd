//! What the queues of one mount share, and what each has for itself.

use std::cell::RefCell;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use shuntfs_runtime::Queue;
use shuntfs_sys::device::FuseDevice;
use shuntfs_wire::{Errno, Fh, InitFlags, NodeId, Result};

use crate::args::OpSet;
use crate::counters::{Counters, QueueCounters};
use crate::cx::Cx;
use crate::delegation::{Access, Backing, Delegation, LowerFile};
use crate::filesystem::Filesystem;
use crate::handles::Handles;
use crate::negotiate::Negotiated;
use crate::nodes::{Counted, Nodes};
use crate::notify::Retrievals;
use crate::open_flags::OpenFlags;
use crate::stalls::StallCounts;
use crate::takeover::{Keeps, Requests};
use crate::trace::{Hub, NodePlace, Observed};

/// What knows nothing of the file system's type.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) device: Arc<FuseDevice>,
    pub(crate) negotiated: Negotiated,
    pub(crate) nodes: Nodes,
    pub(crate) counters: Counters,
    pub(crate) retrievals: Retrievals,
    pub(crate) hub: Arc<Hub>,
    pub(crate) stalls: Arc<StallCounts>,
    /// Where requests are noted for a successor.
    pub(crate) requests: Option<Requests>,
}

/// The file system and its open files, shared by all queues.
pub(crate) struct Server<F: Filesystem> {
    pub(crate) fs: Arc<F>,
    pub(crate) gate: Gate,
    pub(crate) core: Arc<Core>,
    pub(crate) files: Handles<Open<F::File>>,
    pub(crate) dirs: Handles<F::Dir>,
    /// Where what is open is noted for a successor.
    pub(crate) keeps: Option<Keeps<F>>,
}

/// What every request reads first: both in one cache line, which is written only when somebody begins or ceases to look.
#[derive(Debug)]
#[repr(C, align(16))]
pub(crate) struct Gate {
    ops: OpSet,
    is_traced: AtomicBool,
}

/// What one queue has for itself.
pub(crate) struct Local {
    pub(crate) core: Arc<Core>,
    pub(crate) queue: Queue,
    pub(crate) counters: Arc<QueueCounters>,
    /// Places for notes of requests that are the queue's.
    pub(crate) notes: RefCell<Vec<u32>>,
}

/// One open file.
pub(crate) struct Open<T> {
    pub(crate) node: NodeId,
    pub(crate) file: Arc<T>,
    pub(crate) counted: Counted,
    pub(crate) delegation: Delegation,
    /// What moves the bytes of READ, and of WRITE.
    lower: [OnceLock<Arc<LowerFile>>; 2],
}

/// Which way bytes move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    Read,
    Write,
}

impl<F: Filesystem> Server<F> {
    pub(crate) fn new(fs: Arc<F>, ops: OpSet, core: Arc<Core>, keeps: Option<Keeps<F>>) -> Self {
        let gate = Gate { ops, is_traced: AtomicBool::new(false) };
        Self { fs, gate, core, files: Handles::new(), dirs: Handles::new(), keeps }
    }

    /// The flags of an open, as the file system is to take them. Under writeback caching the kernel reads pages that a write
    /// completes, and places what is appended by itself.
    pub(crate) fn flags(&self, flags: u32) -> OpenFlags {
        let flags = OpenFlags(flags);
        if !self.core.negotiated.init_flags().contains(InitFlags::WRITEBACK_CACHE) || !flags.may_write() {
            return flags;
        }
        flags.without(OpenFlags::ACCESS | OpenFlags::APPEND) | OpenFlags::READ_WRITE
    }

    /// The open file of a request. Where opens are not answered, the kernel has no number for it, and the file is opened
    /// for this request alone, with `flags`.
    pub(crate) async fn file_for(
        &self,
        cx: &Cx<'_>,
        node: NodeId,
        fh: u64,
        flags: OpenFlags,
    ) -> Result<Arc<Open<F::File>>> {
        if fh != 0 || self.gate.ops().contains(OpSet::OPEN) {
            return self.files.get(Fh(fh)).ok_or(Errno::BADF);
        }
        let opened = self.fs.open(cx, node, flags).await?;
        Ok(Arc::new(Open::new(node, Arc::new(opened.file), Counted::ALONE, opened.delegation)))
    }

    /// The open folder of a READDIR; as [`Server::file_for`].
    pub(crate) async fn folder(
        &self,
        cx: &Cx<'_>,
        node: NodeId,
        fh: u64,
        flags: OpenFlags,
    ) -> Result<Arc<F::Dir>> {
        if fh != 0 || self.gate.ops().contains(OpSet::OPENDIR) {
            return self.dirs.get(Fh(fh)).ok_or(Errno::BADF);
        }
        self.fs.opendir(cx, node, flags).await.map(|opened| Arc::new(opened.dir))
    }

    /// Where a node is, as the file system tells; with an open file, where `fh` is one.
    pub(crate) fn place_for_people(&self, node: NodeId, fh: Fh) -> Option<NodePlace> {
        let ask = || {
            let open = self.files.get(fh);
            self.fs.place_of(node, open.as_ref().map(|open| &*open.file))
        };
        self.core.counters.ask_aside("place_of", ask).flatten()
    }

    /// The lower file that moves the bytes of an open one, asked for when it is needed first; each time, where it may become another one.
    pub(crate) fn lower(&self, open: &Open<F::File>, direction: Direction) -> Result<Arc<LowerFile>> {
        // Where both directions flow alike, one lower file moves both.
        let (delegation, place) = match (&open.delegation, direction) {
            (split @ Delegation::Split(_), Direction::Read) => (split.of_reads(), 0),
            (split @ Delegation::Split(_), Direction::Write) => (split.of_writes(), 1),
            (whole, _) => (whole, 0),
        };
        if let Some(lower) = open.lower[place].get() {
            return Ok(Arc::clone(lower));
        }
        let lower = match delegation {
            Delegation::Splice(backing) | Delegation::Passthrough(backing) => {
                self.lower_of(open.node, &open.file, backing, Access::Move)?
            }
            _ => return Err(Errno::BADF),
        };
        if self.fs.exchanges_lower(&open.file) {
            return Ok(lower);
        }
        Ok(Arc::clone(open.lower[place].get_or_init(|| lower)))
    }

    /// The lower file of a delegation.
    pub(crate) fn lower_of(
        &self,
        node: NodeId,
        file: &F::File,
        backing: &Backing,
        access: Access,
    ) -> Result<Arc<LowerFile>> {
        match backing {
            Backing::File(lower) => Ok(Arc::clone(lower)),
            Backing::OfNode => self.fs.lower_file(node, file, access),
        }
    }
}

impl Gate {
    /// The operations that are answered.
    pub(crate) fn ops(&self) -> OpSet {
        self.ops
    }

    /// Whether somebody looks at requests.
    pub(crate) fn is_traced(&self) -> bool {
        self.is_traced.load(Ordering::Relaxed)
    }
}

impl<F: Filesystem> Drop for Server<F> {
    fn drop(&mut self) {
        self.core.hub.end();
    }
}

impl<F: Filesystem> Observed for Server<F> {
    fn set_traced(&self, is_traced: bool) {
        self.gate.is_traced.store(is_traced, Ordering::Relaxed);
    }

    fn place_of(&self, node: NodeId) -> Option<NodePlace> {
        self.place_for_people(node, Fh(0))
    }
}

impl<T> Open<T> {
    pub(crate) fn new(node: NodeId, file: Arc<T>, counted: Counted, delegation: Delegation) -> Self {
        Self { node, file, counted, delegation, lower: [const { OnceLock::new() }; 2] }
    }
}

impl fmt::Debug for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Local").field("queue", &self.queue.index()).finish_non_exhaustive()
    }
}

impl<F: Filesystem> fmt::Debug for Server<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("gate", &self.gate)
            .field("files", &self.files.len())
            .field("dirs", &self.dirs.len())
            .finish_non_exhaustive()
    }
}
