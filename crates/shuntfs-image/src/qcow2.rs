//! The operations on a qcow2 image, on a queue.
//!
//! imago says where the bytes of a range are, keeps the tables, and copies what has to be copied when a cluster gets a
//! place of its own. The bytes themselves go between the lower file and the payload of the request, by the library: on a
//! ring that is one operation of the queue's own ring, and the thread serves others meanwhile.
//!
//! Data that lies in the caller's own pages (zero copy) is moved in the same steps, under the same locks: nothing here looks at what is
//! written, and where a range is decided for each request, as is how long that must hold.
//!
//! What frees clusters needs the image for itself: another request may still write to where a freed cluster was. Reads
//! and writes therefore hold [`Qcow2::access`] shared while their bytes move, and whoever frees or resizes holds it alone.
//!
//! imago keeps changed tables in memory, and so they would be lost with the process. Where another server may go on with the image,
//! they are handed over before an answer that needs them ([`Qcow2::hand_over`]): to the file, or to memory that the next server has
//! ([`crate::pending`]).

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use imago::format::PreallocateMode;
use imago::format::drivers::PreparedDataMapping;
use imago::{FormatAccess, Mapping};
use shuntfs::{ByteRange, Cx, Errno, Filled, ReadReply, Result, Whence, WriteData, Written};
use tokio::sync::{Mutex, RwLock, Semaphore, SemaphorePermit};

use crate::error::errno;
use crate::storage::Stored;
use crate::tables::Tables;

/// A qcow2 image, open.
#[derive(Debug)]
pub(crate) struct Qcow2 {
    access: RwLock<FormatAccess<Stored>>,
    size: AtomicU64,
    /// Of an image that is written.
    tables: Option<Arc<Tables>>,
    /// What pins a table of the second kind while bytes move has one of these.
    pins: Semaphore,
    checkpoint: Mutex<()>,
    /// Changes of the tables that may be in this process's memory alone.
    unwritten: AtomicU64,
}

/// imago has room for 128 tables of the second kind. A write to a new cluster keeps one while its bytes move, as does a read of
/// compressed clusters, and where all are kept, the next that is needed is an error. Others wait for less than a call takes.
const PINS_MAX: usize = 64;

impl Qcow2 {
    pub(crate) fn new(access: FormatAccess<Stored>, tables: Option<Arc<Tables>>) -> Self {
        Self {
            size: access.size().into(),
            access: RwLock::new(access),
            tables,
            pins: Semaphore::new(PINS_MAX),
            checkpoint: Mutex::default(),
            unwritten: AtomicU64::new(0),
        }
    }

    pub(crate) fn tables(&self) -> Option<&Arc<Tables>> {
        self.tables.as_ref()
    }

    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
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
            return Ok(reply.cursor().finish());
        }
        let (mapping, run) = access.get_mapping(offset, len).await.map_err(|error| said(&error))?;
        let room = usize::try_from(len).map_err(|_| Errno::INVAL)?;
        if run >= len {
            match mapping {
                Mapping::Raw { storage, offset, .. }
                    if reply.capacity() == room && storage.holds(offset.saturating_add(len)) =>
                {
                    return storage.ways(offset, len).read(cx, reply, offset).await;
                }
                Mapping::Zero { .. } => {
                    let mut out = reply.cursor();
                    out.zeroes(room)?;
                    return Ok(out.finish());
                }
                _ => {}
            }
        }
        // Several runs, or compressed clusters, or the end of the disk: by imago, and copied once.
        let _pin = self.pins.acquire().await.map_err(|_| Errno::IO)?;
        let mut bytes = vec![0; room];
        access.read(&mut bytes, offset).await.map_err(|error| said(&error))?;
        reply.copy_from_slice(&bytes)
    }

    /// Writes all of it; the caller has looked at the size.
    pub(crate) async fn write(&self, cx: &Cx<'_>, offset: u64, data: WriteData<'_>) -> Result<Written> {
        let access = self.access.read().await;
        let whole = data.len();
        let (mut done, mut changes) = (0, 0);
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
            let (mapping, _pin) = self.allocate(&access, at, left).await.map_err(|error| said(&error))?;
            let run = usize::try_from(mapping.length()).map_err(|_| Errno::IO)?.min(whole - done);
            let (storage, place) = (mapping.storage(), mapping.offset());
            put(cx, storage, place, data.part(done, run)).await?;
            storage.reaches(place + run as u64);
            if let Some(tables) = &self.tables {
                tables.marks.written.add();
            }
            changes += 1;
            self.changes();
            access.commit_data_mapping(mapping).await.map_err(|error| said(&error))?;
            done += run;
        }
        drop(access);
        self.hand_over(changes).await.map_err(|error| said(&error))?;
        u32::try_from(whole).map(Written).map_err(|_| Errno::IO)
    }

    /// Finds a place for new bytes, and a table that will lead there when they have been written.
    async fn allocate<'a>(
        &'a self,
        access: &'a FormatAccess<Stored>,
        at: u64,
        len: u64,
    ) -> io::Result<(PreparedDataMapping<'a, Stored>, SemaphorePermit<'a>)> {
        let pin = self.pins.acquire().await.map_err(io::Error::other)?;
        self.before_allocation(access).await?;
        let mapping = access.prepare_data_mapping(at, len, true).await?;
        if let Some(tables) = &self.tables {
            tables.ready_for_data().await?;
        }
        Ok((mapping, pin))
    }

    /// What was freed may be used anew when no table of the disk leads there any more.
    async fn before_allocation(&self, access: &FormatAccess<Stored>) -> io::Result<()> {
        let Some(tables) = self.tables.as_ref().filter(|tables| tables.marks.freed.is_open()) else {
            return Ok(());
        };
        let _alone = self.checkpoint.lock().await;
        if tables.marks.freed.is_open() { make_durable(access, tables).await } else { Ok(()) }
    }

    /// A change of the tables begins that others may see before it is in the file.
    fn changes(&self) {
        self.unwritten.fetch_add(1, Ordering::AcqRel);
        // Whoever sees the change below sees the number, too.
        fence(Ordering::Release);
    }

    /// Before an answer, where another server may go on: it has the tables that lead to what is promised. `changes` are the caller's own;
    /// those of others count, too, because bytes may have gone to a cluster that another request has found a place for and not yet told of.
    /// Where that fails, each later answer tries again.
    async fn hand_over(&self, changes: u64) -> io::Result<()> {
        fence(Ordering::Acquire);
        let is_sheltered = self.tables.as_ref().is_some_and(|tables| tables.is_sheltered());
        if is_sheltered && self.unwritten.load(Ordering::Acquire) > 0 {
            self.flush().await?;
        }
        self.unwritten.fetch_sub(changes, Ordering::AcqRel);
        Ok(())
    }

    pub(crate) async fn resize(&self, size: u64) -> Result<()> {
        let mut access = self.access.write().await;
        self.changes();
        self.complete(&access).await.map_err(|error| said(&error))?;
        let outcome = access.resize(size, PreallocateMode::None).await;
        self.size.store(access.size(), Ordering::Release);
        drop(access);
        outcome.map_err(|error| said(&error))?;
        self.hand_over(1).await.map_err(|error| said(&error))
    }

    /// Makes the disk at least so large.
    pub(crate) async fn grow(&self, size: u64, how: PreallocateMode) -> Result<()> {
        let access = self.access.write().await;
        if size <= access.size() {
            return Ok(());
        }
        self.changes();
        self.complete(&access).await.map_err(|error| said(&error))?;
        let outcome = access.resize_grow(size, how).await;
        self.size.store(access.size(), Ordering::Release);
        drop(access);
        outcome.map_err(|error| said(&error))?;
        self.hand_over(1).await.map_err(|error| said(&error))
    }

    /// Makes a range zero and gives its clusters back, to the image and to the file system below.
    pub(crate) async fn punch(&self, offset: u64, len: u64) -> Result<()> {
        let mut access = self.access.write().await;
        let end = offset.saturating_add(len).min(access.size());
        let mut at = offset;
        self.changes();
        while at < end {
            let (mapping, run) = access.get_mapping(at, end - at).await.map_err(|error| said(&error))?;
            if run == 0 {
                break;
            }
            let place = match mapping {
                // optimisation: what has no cluster needs none to be zero, nor a table that says so.
                Mapping::Zero { explicit: false, .. } => None,
                Mapping::Raw { offset, writable: true, .. } => Some(Some(offset)),
                _ => Some(None),
            };
            if let Some(place) = place {
                self.punch_run(&mut access, at..at + run, place).await.map_err(|error| said(&error))?;
            }
            at += run;
        }
        drop(access);
        self.hand_over(1).await.map_err(|error| said(&error))
    }

    /// The same for clusters beside each other: in the image file, too, from `place` on, where nobody else has them.
    async fn punch_run(
        &self,
        access: &mut FormatAccess<Stored>,
        run: Range<u64>,
        place: Option<u64>,
    ) -> io::Result<()> {
        let Some(tables) = &self.tables else { return Err(io::ErrorKind::PermissionDenied.into()) };
        let cluster = tables.cluster();
        let start = run.start.next_multiple_of(cluster);
        let end = if run.end == access.size() { run.end } else { run.end / cluster * cluster };
        if start >= end {
            return access.discard_to_zero(run.start, run.end - run.start).await;
        }
        // Whole clusters first, and by themselves: zeroing a part of one may take a cluster that was just freed.
        access.discard_to_zero(start, end - start).await?;
        if let Some(place) = place {
            let len = (end - start).next_multiple_of(cluster);
            tables.punch(place + (start - run.start), len).await?;
        }
        access.discard_to_zero(run.start, start - run.start).await?;
        access.discard_to_zero(end, run.end - end).await
    }

    /// Makes a range zero and keeps its clusters where there are any.
    pub(crate) async fn zero(&self, offset: u64, len: u64) -> Result<()> {
        // Alone, too: what it does not zero by its table it writes as data, beside writes of the same cluster.
        let access = self.access.write().await;
        self.before_allocation(&access).await.map_err(|error| said(&error))?;
        self.changes();
        access.write_zeroes(offset, len).await.map_err(|error| said(&error))?;
        drop(access);
        self.hand_over(1).await.map_err(|error| said(&error))
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
        let Some(tables) = &self.tables else { return Ok(()) };
        self.access.read().await.flush().await?;
        if tables.holds_pointers() && !tables.is_sheltered() {
            let access = self.access.write().await;
            access.flush().await?;
            tables.publish().await?;
        }
        Ok(())
    }

    /// The same, and makes it durable.
    pub(crate) async fn sync(&self) -> io::Result<()> {
        let Some(tables) = &self.tables else { return Ok(()) };
        make_durable(&*self.access.read().await, tables).await?;
        if tables.holds_pointers() {
            // Most of it is durable by now, so that nobody waits for long.
            let access = self.access.write().await;
            self.complete(&access).await?;
        }
        Ok(())
    }

    /// Nothing is kept in memory then, or under way: the image has been waited for.
    async fn complete(&self, access: &FormatAccess<Stored>) -> io::Result<()> {
        let Some(tables) = &self.tables else { return Ok(()) };
        access.flush().await?;
        tables.publish().await?;
        tables.is_complete();
        make_durable(access, tables).await
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
        let access = self.access.read().await;
        self.before_allocation(&access).await?;
        self.changes();
        access.writev(vector, offset).await?;
        drop(access);
        self.hand_over(1).await
    }
}

/// Writes what is kept in memory and makes it durable; what was freed before that may be used anew.
async fn make_durable(access: &FormatAccess<Stored>, tables: &Tables) -> io::Result<()> {
    // What imago still has to free it frees first.
    access.flush().await?;
    let freed = tables.marks.freed.now();
    access.flush().await?;
    tables.sync().await?;
    tables.marks.freed.close(freed);
    Ok(())
}

/// Writes all of a part to its place.
async fn put(cx: &Cx<'_>, storage: &Stored, place: u64, data: WriteData<'_>) -> Result<()> {
    let len = data.len();
    let mut done = 0;
    while done < len {
        let (at, part) = (place + done as u64, data.part(done, len - done));
        let Written(more) = storage.ways(at, part.len() as u64).write(cx, part, at).await?;
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

#[cfg(test)]
mod test {
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use crate::open::{Disk, Image};
    use crate::options::ImageOptions;

    const CLUSTER: usize = 4096;
    /// What one table leads to.
    const OF_TABLE: u64 = 2 << 20;
    const WRITERS: u64 = 256;

    /// An empty image with clusters of 4 KiB, whose tables are for 2 MiB each.
    fn image() -> Vec<u8> {
        let mut bytes = vec![0; 4 * CLUSTER];
        let mut put = |place: usize, more: &[u8]| bytes[place..][..more.len()].copy_from_slice(more);
        put(0, b"QFI\xfb\0\0\0\x03");
        put(20, &12_u32.to_be_bytes());
        put(24, &(WRITERS * OF_TABLE).to_be_bytes());
        put(36, &256_u32.to_be_bytes());
        put(40, &(3 * CLUSTER as u64).to_be_bytes());
        put(48, &(CLUSTER as u64).to_be_bytes());
        put(56, &1_u32.to_be_bytes());
        put(96, &4_u32.to_be_bytes());
        put(100, &104_u32.to_be_bytes());
        put(CLUSTER, &(2 * CLUSTER as u64).to_be_bytes());
        (0..4).for_each(|cluster| put(2 * CLUSTER + cluster * 2, &1_u16.to_be_bytes()));
        bytes
    }

    /// A regression: each write to a new cluster keeps a table in memory while its bytes move, and with more of them under way
    /// than there is room for tables (128) the next one was EIO: five queues of 32 requests are enough.
    #[test]
    fn writers_far_from_each_other_wait_for_room_for_their_tables() {
        let file = tempfile::NamedTempFile::new().expect("makes");
        std::fs::write(file.path(), image()).expect("writes");
        let options =
            ImageOptions { path: file.path().to_owned(), writable: true, ..ImageOptions::default() };
        let image = Image::open(&options).expect("opens");
        let Disk::Qcow2(qcow2) = &image.disk else { panic!("is one") };
        let write = async |writer: u64| {
            let access = qcow2.access.read().await;
            let (mapping, _pin) =
                qcow2.allocate(&access, writer * OF_TABLE, 512).await.expect("there is a place for it");
            // The bytes take their time: all others come meanwhile.
            let mut waited = false;
            std::future::poll_fn(|_| {
                if std::mem::replace(&mut waited, true) { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            access.commit_data_mapping(mapping).await.expect("is there");
        };
        let mut writers: Vec<Pin<Box<dyn Future<Output = ()>>>> =
            (0..WRITERS).map(|writer| Box::pin(write(writer)) as _).collect();
        let mut context = Context::from_waker(Waker::noop());
        while !writers.is_empty() {
            writers.retain_mut(|writer| writer.as_mut().poll(&mut context).is_pending());
        }
        image.close().expect("is durable");
    }
}
