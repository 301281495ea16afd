//! The operations on a qcow2 image, on a queue.
//!
//! imago says where the bytes of a range are, keeps the tables, and copies what has to be copied when a cluster gets a
//! place of its own. The bytes themselves go between the lower file and the payload of the request, by the library: on a
//! ring that is one operation of the queue's own ring, and the thread serves others meanwhile.
//!
//! What frees clusters needs the image for itself: another request may still write to where a freed cluster was. Reads
//! and writes therefore hold [`Qcow2::access`] shared while their bytes move, and whoever frees or resizes holds it alone.

use std::io;

use imago::format::PreallocateMode;
use imago::{FormatAccess, Mapping};
use shuntfs::{ByteRange, Cx, Errno, Filled, ReadReply, Result, Whence, WriteData, Written};
use tokio::sync::RwLock;

use crate::error::errno;
use crate::storage::Stored;

/// A qcow2 image, open.
#[derive(Debug)]
pub(crate) struct Qcow2 {
    access: RwLock<FormatAccess<Stored>>,
    size: std::sync::atomic::AtomicU64,
}

impl Qcow2 {
    pub(crate) fn new(access: FormatAccess<Stored>) -> Self {
        let size = access.size().into();
        Self { access: RwLock::new(access), size }
    }

    pub(crate) fn size(&self) -> u64 {
        self.size.load(std::sync::atomic::Ordering::Acquire)
    }

    pub(crate) async fn read<'q>(
        &self,
        cx: &Cx<'_>,
        at: ByteRange,
        reply: ReadReply<'q>,
    ) -> Result<Filled<'q>> {
        let access = self.access.read().await;
        let ByteRange { offset, len } = at;
        let len = access.size().saturating_sub(offset).min(len.into());
        if len == 0 {
            return reply.fill_with(|_| Ok(0));
        }
        let (mapping, run) = access.get_mapping(offset, len).await.map_err(|error| said(&error))?;
        let room = usize::try_from(len).map_err(|_| Errno::INVAL)?;
        if run >= len {
            match mapping {
                Mapping::Raw { storage, offset, .. }
                    if reply.capacity() == room && storage.holds(offset.saturating_add(len)) =>
                {
                    return reply.read_from(cx, storage.lower_for(offset, len), offset).await;
                }
                Mapping::Zero { .. } => {
                    return reply.fill_with(|bytes| {
                        bytes[..room].fill(0);
                        Ok(room)
                    });
                }
                _ => {}
            }
        }
        // Several runs, or compressed clusters, or the end of the disk: by imago, and copied once.
        let mut bytes = vec![0; room];
        access.read(&mut bytes, offset).await.map_err(|error| said(&error))?;
        reply.copy_from_slice(&bytes)
    }

    /// Writes all of it; the caller has looked at the size.
    pub(crate) async fn write(&self, cx: &Cx<'_>, offset: u64, data: WriteData<'_>) -> Result<Written> {
        let access = self.access.read().await;
        let whole = data.as_slice().len();
        let mut done = 0;
        while done < whole {
            let (at, left) = (offset + done as u64, (whole - done) as u64);
            // optimisation: clusters that have their place, and are nobody else's, need nothing but their bytes.
            let (mapping, run) = access.get_mapping(at, left).await.map_err(|error| said(&error))?;
            if let Mapping::Raw { storage, offset: place, writable: true, .. } = mapping {
                let run = usize::try_from(run).map_err(|_| Errno::IO)?.min(whole - done);
                put(cx, storage, place, data.part(done, run)).await?;
                storage.reaches(place + run as u64);
                done += run;
                continue;
            }
            let mapping = access.prepare_data_mapping(at, left, true).await.map_err(|error| said(&error))?;
            let run = usize::try_from(mapping.length()).map_err(|_| Errno::IO)?.min(whole - done);
            let (storage, place) = (mapping.storage(), mapping.offset());
            put(cx, storage, place, data.part(done, run)).await?;
            storage.reaches(place + run as u64);
            access.commit_data_mapping(mapping).await.map_err(|error| said(&error))?;
            done += run;
        }
        u32::try_from(whole).map(Written).map_err(|_| Errno::IO)
    }

    pub(crate) async fn resize(&self, size: u64) -> Result<()> {
        let mut access = self.access.write().await;
        let outcome = access.resize(size, PreallocateMode::None).await;
        self.size.store(access.size(), std::sync::atomic::Ordering::Release);
        outcome.map_err(|error| said(&error))
    }

    /// Makes the disk at least so large.
    pub(crate) async fn grow(&self, size: u64, how: PreallocateMode) -> Result<()> {
        let access = self.access.write().await;
        let outcome = access.resize_grow(size, how).await;
        self.size.store(access.size(), std::sync::atomic::Ordering::Release);
        outcome.map_err(|error| said(&error))
    }

    /// Makes a range zero and gives its clusters back.
    pub(crate) async fn punch(&self, offset: u64, len: u64) -> Result<()> {
        let mut access = self.access.write().await;
        access.discard_to_zero(offset, len).await.map_err(|error| said(&error))
    }

    /// Makes a range zero and keeps its clusters where there are any.
    pub(crate) async fn zero(&self, offset: u64, len: u64) -> Result<()> {
        // Alone, too: what it does not zero by its table it writes as data, beside writes of the same cluster.
        let access = self.access.write().await;
        access.write_zeroes(offset, len).await.map_err(|error| said(&error))
    }

    pub(crate) async fn seek(&self, offset: u64, whence: Whence) -> Result<u64> {
        let access = self.access.read().await;
        let size = access.size();
        if offset >= size {
            return Err(Errno::NXIO);
        }
        let mut at = offset;
        while at < size {
            let (mapping, run) = access.get_mapping(at, size - at).await.map_err(|error| said(&error))?;
            let is_hole = matches!(mapping, Mapping::Zero { .. } | Mapping::Eof { .. });
            if is_hole == matches!(whence, Whence::Hole) {
                return Ok(at);
            }
            if run == 0 {
                break;
            }
            at += run;
        }
        // The end of the disk is a hole.
        if matches!(whence, Whence::Hole) { Ok(size) } else { Err(Errno::NXIO) }
    }

    /// Hands what is kept in memory to the lower file.
    pub(crate) async fn flush(&self) -> io::Result<()> {
        self.access.read().await.flush().await
    }

    /// The same, and makes it durable.
    pub(crate) async fn sync(&self) -> io::Result<()> {
        let access = self.access.read().await;
        access.flush().await?;
        access.sync().await
    }

    pub(crate) async fn read_into(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let mut vector = imago::io_buffers::IoVectorMut::new();
        vector.push(bytes);
        self.access.read().await.readv(vector, offset).await
    }

    pub(crate) async fn write_from(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let mut vector = imago::io_buffers::IoVector::new();
        vector.push(bytes);
        self.access.read().await.writev(vector, offset).await
    }
}

/// Writes all of a part to its place.
async fn put(cx: &Cx<'_>, storage: &Stored, place: u64, data: WriteData<'_>) -> Result<()> {
    let len = data.as_slice().len();
    let mut done = 0;
    while done < len {
        let (at, left) = (place + done as u64, (len - done) as u64);
        let Written(more) = data.part(done, len - done).write_to(cx, storage.lower_for(at, left), at).await?;
        if more == 0 {
            return Err(Errno::NOSPC);
        }
        done += more as usize;
    }
    Ok(())
}

/// The error number; what was wrong is only in the log.
fn said(error: &io::Error) -> Errno {
    let errno = errno(error);
    tracing::debug!(%errno, "the image: {error}");
    errno
}
