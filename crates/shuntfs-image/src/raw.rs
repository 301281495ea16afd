//! A raw image: a file or a block device whose bytes are the disk's.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shuntfs::{Backing, Cx, Delegation, Errno, Fallocate, LowerFile, Result, Whence, WriteData, Written};
use shuntfs_sys::{data, stat_of, truncate};
use tokio::sync::Mutex;

use crate::error::os;
use crate::header;
use crate::lost::{Depth, Lost};
use crate::moving::Ways;
use crate::open::OpenFile;
use crate::options::FlowWish;

/// How many bytes make a qcow2 image of a file.
const MAGIC_LEN: usize = 4;

/// A raw image, open.
#[derive(Debug)]
pub(crate) struct Raw {
    pub(crate) lower: Arc<LowerFile>,
    direct: Option<(Arc<LowerFile>, u64)>,
    is_device: bool,
    size: AtomicU64,
    lost: Arc<Lost>,
    /// Taken by writes of the first bytes, where these are not to become those of a qcow2 image.
    start: Option<Mutex<()>>,
}

impl Raw {
    /// `was_probed`: the first bytes say that the image is raw, and must go on saying so. Whoever writes the disk (a guest) would
    /// otherwise make of it an image that names a file of the host, to be read at the next export.
    pub(crate) fn new(file: OpenFile, was_probed: bool) -> io::Result<Self> {
        let raw = Self {
            lower: file.lower,
            direct: file.direct,
            is_device: file.is_device,
            size: AtomicU64::new(0),
            lost: Arc::default(),
            start: was_probed.then(Mutex::default),
        };
        raw.look()?;
        Ok(raw)
    }

    pub(crate) fn lost(&self) -> &Arc<Lost> {
        &self.lost
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

    /// How a request is best served.
    pub(crate) fn ways(&self, offset: u64, len: u64) -> Ways<'_> {
        Ways::new(self.direct.as_ref(), &self.lower, (offset, len))
    }

    /// How the bytes of an open shall flow.
    ///
    /// The kernel does not know where a disk ends: a write in passthrough beyond the end makes the file longer. So opens
    /// that may write are in passthrough only where the disk may grow and begin with any bytes; else WRITE comes to us. A device cannot be in
    /// passthrough, and what is to bypass the page cache below is not left to the flags of whoever opens the export.
    pub(crate) fn delegation(&self, may_write: bool, growable: bool, flow: FlowWish) -> Delegation {
        let backing = || Backing::File(Arc::clone(&self.lower));
        if flow == FlowWish::Served || self.direct.is_some() {
            return Delegation::Served;
        }
        if may_write && (!growable || self.start.is_some()) {
            return Delegation::split(Delegation::Splice(backing()), Delegation::Served);
        }
        if flow == FlowWish::Passthrough && !self.is_device {
            return Delegation::Passthrough(backing());
        }
        Delegation::Splice(backing())
    }

    /// Whether writes in passthrough are not available because the first bytes are watched.
    pub(crate) fn is_watched(&self) -> bool {
        self.start.is_some()
    }

    pub(crate) async fn write(&self, cx: &Cx<'_>, offset: u64, data: WriteData<'_>) -> Result<Written> {
        let written = match &self.start {
            // On the heap, as every other WRITE would have to have room for it.
            Some(start) if offset < MAGIC_LEN as u64 => {
                Box::pin(self.write_start(cx, start, offset, data)).await?
            }
            _ => self.ways(offset, data.len() as u64).write(cx, data, offset).await?,
        };
        self.reaches(offset + u64::from(written.0));
        Ok(written)
    }

    /// Writes the first bytes, which are watched. What was looked at is written, whatever the caller makes of its memory meanwhile.
    async fn write_start(
        &self,
        cx: &Cx<'_>,
        start: &Mutex<()>,
        offset: u64,
        data: WriteData<'_>,
    ) -> Result<Written> {
        let _alone = start.lock().await;
        let bytes = data.bytes(cx).await?;
        self.check_start(offset, &bytes)?;
        let Cow::Owned(bytes) = bytes else {
            return self.ways(offset, data.len() as u64).write(cx, data, offset).await;
        };
        let lower = Arc::clone(&self.lower);
        let written = cx.offload(move || data::write_at(&*lower, &bytes, offset)).await.map_err(os)?;
        u32::try_from(written).map(Written).map_err(|_| Errno::IO)
    }

    fn check_start(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let (mut start, place) = ([0; MAGIC_LEN], usize::try_from(offset).map_err(|_| Errno::INVAL)?);
        data::read_at(&*self.lower, &mut start, 0).map_err(os)?;
        start[place..].iter_mut().zip(bytes).for_each(|(byte, new)| *byte = *new);
        if header::is_qcow(&start) {
            tracing::warn!("a write that makes the image look like qcow2 is refused; --format raw allows it");
            return Err(Errno::PERM);
        }
        Ok(())
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
        let (lower, lost) = (Arc::clone(&self.lower), Arc::clone(&self.lost));
        let sync = move || match data_only {
            true => lost.sync(Depth::Data, || data::sync_data(&*lower)),
            false => lost.sync(Depth::All, || data::sync_all(&*lower)),
        };
        cx.offload(sync).await.map_err(|error| crate::error::errno(&error))
    }

    /// The last act.
    pub(crate) fn close(&self) -> io::Result<()> {
        self.lost.sync(Depth::All, || data::sync_all(&*self.lower))
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
