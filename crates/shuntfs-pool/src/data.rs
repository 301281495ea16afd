//! The bytes of files, where they are not the kernel's or the library's to move, and what belongs to them:
//! space, holes, durability, copies below.

use std::sync::Arc;

use shuntfs::{
    ByteRange, CopyFileRange, Cx, Errno, Fallocate, Filled, LowerFile, ReadReply, Result, Whence, WriteData,
    Written,
};
use shuntfs_sys::data::{copy_range, fallocate, seek_data, seek_hole, sync_all, sync_data, write_at};
use shuntfs_sys::stat_of;

use crate::error::errno;
use crate::file::PoolFile;
use crate::pool::Pool;
use crate::redact;
use crate::sealed;
use crate::shared::Shared;
use crate::who::{Who, keeping_set_ids};

/// Copies below run in pieces, so that a stop or an error in between is told with what was done.
const COPY_MAX: u64 = 1 << 30;

/// `FALLOC_FL_KEEP_SIZE`
const FALLOC_KEEP_SIZE: u32 = 1;

/// READ.
pub(crate) async fn read<'q>(
    pool: &Pool,
    cx: &Cx<'_>,
    file: &PoolFile,
    at: ByteRange,
    reply: ReadReply<'q>,
) -> Result<Filled<'q>> {
    if let Some(shown) = &file.shown {
        return redact::read(pool, cx, file, shown, at, reply).await;
    }
    if let Some(checked) = &file.checked {
        return sealed::read(checked, cx, at, reply).await;
    }
    let lower = file.mover(&pool.shared)?;
    reply.read_from(cx, &lower, at.offset).await
}

/// WRITE, once and in place: the offset is the kernel's, also for `O_APPEND`.
pub(crate) async fn write(
    pool: &Pool,
    cx: &Cx<'_>,
    file: &PoolFile,
    offset: u64,
    data: WriteData<'_>,
) -> Result<Written> {
    pool.shared.check_writable()?;
    if file.course.append_only {
        return append(pool, cx, file, offset, data).await;
    }
    let lower = file.mover(&pool.shared)?;
    let keeps = !data.kill_priv() && Who::of(cx).keeps_set_ids() && file.node.has_privileges();
    if !keeps {
        // The thread lacks CAP_FSETID, so the lower file system strips what is to go.
        return data.write_to(cx, &lower, offset).await;
    }
    let written = if pool.shared.runs_inline() {
        keeping_set_ids(true, || write_at(&lower, data.as_slice(), offset))
    } else {
        let bytes = data.as_slice().to_vec();
        cx.offload(move || keeping_set_ids(true, || write_at(&lower, &bytes, offset))).await
    };
    let written = written.map_err(errno)?;
    u32::try_from(written).map(Written).map_err(|_| Errno::IO)
}

/// WRITE to a file that may only grow. The caller may have taken `O_APPEND` from its descriptor since, so the offset is
/// looked at each time; and whatever happens in between, the lower file appends.
async fn append(
    pool: &Pool,
    cx: &Cx<'_>,
    file: &PoolFile,
    offset: u64,
    data: WriteData<'_>,
) -> Result<Written> {
    let lower = file.appender(&pool.shared)?;
    let write = move |bytes: &[u8]| -> Result<usize> {
        let end = stat_of(&lower).map_err(errno)?.size;
        if offset == end { write_at(&lower, bytes, offset).map_err(errno) } else { Err(Errno::PERM) }
    };
    let written = if pool.shared.runs_inline() {
        write(data.as_slice())?
    } else {
        let bytes = data.as_slice().to_vec();
        cx.offload(move || write(&bytes)).await?
    };
    u32::try_from(written).map(Written).map_err(|_| Errno::IO)
}

/// FSYNC. Always off the queue: it waits for a disk.
pub(crate) async fn fsync(pool: &Pool, cx: &Cx<'_>, file: &PoolFile, data_only: bool) -> Result<()> {
    let lower = file.reader(&pool.shared)?;
    sync(cx, lower, data_only).await
}

/// Makes a lower file or folder durable.
pub(crate) async fn sync(cx: &Cx<'_>, lower: Arc<LowerFile>, data_only: bool) -> Result<()> {
    let synced = cx.offload(move || if data_only { sync_data(&lower) } else { sync_all(&lower) });
    synced.await.map_err(errno)
}

/// FALLOCATE. The kernel has stripped what a change of the data strips.
pub(crate) async fn allocate(pool: &Pool, cx: &Cx<'_>, file: &PoolFile, op: Fallocate) -> Result<()> {
    pool.shared.check_writable()?;
    if file.course.append_only && op.mode & !FALLOC_KEEP_SIZE != 0 {
        return Err(Errno::PERM);
    }
    let lower = file.mover(&pool.shared)?;
    let keep = file.node.has_privileges();
    let allocate = move || keeping_set_ids(keep, || fallocate(&lower, op.mode, op.offset, op.len));
    pool.run(cx, move |_| allocate()).await.map_err(errno)
}

/// LSEEK.
pub(crate) async fn seek(
    pool: &Pool,
    cx: &Cx<'_>,
    file: &PoolFile,
    offset: u64,
    whence: Whence,
) -> Result<u64> {
    if file.shown.is_some() {
        return seek_shown(pool, cx, file, offset, whence).await;
    }
    let lower = file.reader(&pool.shared)?;
    let seek = move || match whence {
        Whence::Data => seek_data(&lower, offset),
        Whence::Hole => seek_hole(&lower, offset),
        _ => Err(shuntfs_sys::OsError::INVAL),
    };
    pool.run(cx, move |_| seek()).await.map_err(errno)
}

/// LSEEK in a partial view: where holes are is not told; there is data up to the end.
async fn seek_shown(pool: &Pool, cx: &Cx<'_>, file: &PoolFile, offset: u64, whence: Whence) -> Result<u64> {
    let node = Arc::clone(&file.node);
    let descriptor = move |shared: &Shared| stat_of(shared.descriptor(&node)?).map_err(errno);
    let size = pool.run(cx, descriptor).await?.size;
    match whence {
        _ if offset >= size => Err(Errno::NXIO),
        Whence::Data => Ok(offset),
        Whence::Hole => Ok(size),
        _ => Err(Errno::INVAL),
    }
}

/// COPY_FILE_RANGE, below, so that file systems that share extents do. Always off the queue: it may be long.
pub(crate) async fn copy(pool: &Pool, cx: &Cx<'_>, op: CopyFileRange<'_, PoolFile>) -> Result<u64> {
    pool.shared.check_writable()?;
    if op.flags != 0 {
        return Err(Errno::INVAL);
    }
    if op.from.shown.is_some() {
        // The lower file holds more than is shown: the kernel then copies what it reads.
        return Err(Errno::XDEV);
    }
    if op.to.course.append_only {
        return Err(Errno::PERM);
    }
    let from = op.from.reader(&pool.shared)?;
    let to = op.to.mover(&pool.shared)?;
    let keep = op.to.node.has_privileges();
    let (from_offset, to_offset) = (op.from_offset, op.to_offset);
    let len = usize::try_from(op.len.min(COPY_MAX)).map_err(|_| Errno::INVAL)?;
    let copied =
        cx.offload(move || keeping_set_ids(keep, || copy_range(&from, from_offset, &to, to_offset, len)));
    let copied = copied.await.map_err(errno)?;
    u64::try_from(copied).map_err(|_| Errno::IO)
}
