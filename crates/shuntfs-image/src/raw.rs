//! A raw image: a file or a block device whose bytes are the disk's.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shuntfs::{Backing, Cx, Delegation, Errno, Fallocate, LowerFile, Result, Whence};
use shuntfs_sys::{data, stat_of, truncate};

use crate::error::os;
use crate::open::OpenFile;
use crate::options::FlowWish;

/// A raw image, open.
#[derive(Debug)]
pub(crate) struct Raw {
    pub(crate) lower: Arc<LowerFile>,
    direct: Option<(Arc<LowerFile>, u64)>,
    is_device: bool,
    size: AtomicU64,
}

impl Raw {
    pub(crate) fn new(file: OpenFile) -> io::Result<Self> {
        let raw = Self {
            lower: file.lower,
            direct: file.direct,
            is_device: file.is_device,
            size: AtomicU64::new(0),
        };
        raw.look()?;
        Ok(raw)
    }

    /// The size when it was last looked at.
    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    /// Looks at the size: in passthrough the file grows without us.
    pub(crate) fn look(&self) -> io::Result<u64> {
        let size = if self.is_device { data::end_of(&*self.lower)? } else { stat_of(&*self.lower)?.size };
        self.size.store(size, Ordering::Relaxed);
        Ok(size)
    }

    /// Notes that the file was written up to there.
    pub(crate) fn reaches(&self, end: u64) {
        self.size.fetch_max(end, Ordering::Relaxed);
    }

    /// The file that a request is best served from.
    pub(crate) fn lower_for(&self, offset: u64, len: u64) -> &LowerFile {
        match &self.direct {
            Some((direct, align)) if (offset | len).is_multiple_of(*align) => direct,
            _ => &self.lower,
        }
    }

    /// How the bytes of an open shall flow.
    ///
    /// The kernel does not know where a disk ends: a write in passthrough beyond the end makes the file longer. So opens
    /// that may write are in passthrough only where the disk may grow; else WRITE comes to us. A device cannot be in
    /// passthrough, and what is to bypass the page cache below is not left to the flags of whoever opens the export.
    pub(crate) fn delegation(&self, may_write: bool, growable: bool, flow: FlowWish) -> Delegation {
        let backing = || Backing::File(Arc::clone(&self.lower));
        if flow == FlowWish::Served || self.direct.is_some() {
            return Delegation::Served;
        }
        if may_write && !growable {
            return Delegation::split(Delegation::Splice(backing()), Delegation::Served);
        }
        if flow == FlowWish::Passthrough && !self.is_device {
            return Delegation::Passthrough(backing());
        }
        Delegation::Splice(backing())
    }

    pub(crate) async fn resize(&self, cx: &Cx<'_>, size: u64) -> Result<()> {
        if self.is_device {
            return if size == self.size() { Ok(()) } else { Err(Errno::OPNOTSUPP) };
        }
        let lower = Arc::clone(&self.lower);
        let outcome = cx.offload(move || truncate(&*lower, size)).await;
        self.look().map_err(|error| crate::error::errno(&error))?;
        outcome.map_err(os)
    }

    pub(crate) async fn fallocate(&self, cx: &Cx<'_>, op: Fallocate) -> Result<()> {
        let lower = Arc::clone(&self.lower);
        let outcome = cx.offload(move || data::fallocate(&*lower, op.mode, op.offset, op.len)).await;
        self.look().map_err(|error| crate::error::errno(&error))?;
        outcome.map_err(os)
    }

    pub(crate) async fn sync(&self, cx: &Cx<'_>, data_only: bool) -> Result<()> {
        let lower = Arc::clone(&self.lower);
        let sync = move || if data_only { data::sync_data(&*lower) } else { data::sync_all(&*lower) };
        cx.offload(sync).await.map_err(os)
    }

    pub(crate) async fn seek(&self, cx: &Cx<'_>, offset: u64, whence: Whence) -> Result<u64> {
        let size = self.look().map_err(|error| crate::error::errno(&error))?;
        if self.is_device {
            // A device does not say what of it is a hole.
            return match whence {
                _ if offset >= size => Err(Errno::NXIO),
                Whence::Hole => Ok(size),
                _ => Ok(offset),
            };
        }
        let lower = Arc::clone(&self.lower);
        let seek = move || match whence {
            Whence::Hole => data::seek_hole(&*lower, offset),
            _ => data::seek_data(&*lower, offset),
        };
        cx.offload(seek).await.map_err(os)
    }
}
