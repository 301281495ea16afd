//! The bytes of files, where they are not the kernel's or the library's to move, and what belongs to them:
//! space, holes, durability, copies below.

use std::sync::Arc;

use shuntfs::{
    ByteRange, CopyFileRange, Cx, Errno, Fallocate, Filled, LowerFile, ReadReply, Result, Whence, WriteData,
    Written,
};
use shuntfs_sys::data::{sync_all, sync_data};
use shuntfs_sys::stat_of;

use crate::error::errno;
use crate::file::PoolFile;
use crate::guard::{Changing, ContentChanges, Guard, ReadBelow, Reading};
use crate::merge;
use crate::node::Change;
use crate::op::room;
use crate::pool::Pool;
use crate::redact;
use crate::sealed;
use crate::shared::Shared;
use crate::who::Who;

/// Copies below run in pieces, so that a stop or an error in between is told with what was done.
const COPY_MAX: u64 = 1 << 30;

/// READ.
pub(crate) async fn read<'q>(
    pool: &Pool,
    cx: &Cx<'_>,
    file: &PoolFile,
    at: ByteRange,
    reply: ReadReply<'q>,
) -> Result<Filled<'q>> {
    // On the heap, as every request would have to have room for these.
    if let Some(shown) = &file.shown {
        return Box::pin(redact::read(pool, cx, file, shown, at, reply)).await;
    }
    if let Some(checked) = &file.checked {
        return Box::pin(sealed::read(checked, cx, at, reply)).await;
    }
    if let Some(copies) = &file.copies {
        return Box::pin(merge::read_copies(pool, cx, (file, copies), at, reply)).await;
    }
    pool.shared.reaches(file.node.mount())?;
    let lower = file.mover(&pool.shared)?;
    reply.read_from(cx, &lower, at.offset).await
}

/// WRITE, in place: the offset is the kernel's, also for `O_APPEND`. In a merge what finds no room is written on another branch.
pub(crate) async fn write(
    pool: &Pool,
    cx: &Cx<'_>,
    file: &PoolFile,
    offset: u64,
    data: WriteData<'_>,
) -> Result<Written> {
    if pool.shared.merge.is_none() {
        return write_once(pool, cx, file, offset, data).await;
    }
    let first = match Change::begin(&file.node) {
        Some(_change) => write_once(pool, cx, file, offset, data).await,
        None => Ok(Written(0)),
    };
    match first {
        Ok(written) if written == data.written() => first,
        Err(error) if !room::is_full(error) => first,
        // On the heap, as every request would have to have room for it.
        _ => Box::pin(write_rest(pool, cx, file, offset, data, first)).await,
    }
}

/// Goes on with a WRITE that found no room for all of its data, or found the file being moved.
async fn write_rest(
    pool: &Pool,
    cx: &Cx<'_>,
    file: &PoolFile,
    offset: u64,
    data: WriteData<'_>,
    first: Result<Written>,
) -> Result<Written> {
    let all = data.len();
    let mut done = 0;
    let mut last = first;
    if let Err(error) = first
        && !room::make_room(pool, cx, (file, all as u64), error).await
    {
        return first;
    }
    if let Ok(Written(len)) = first {
        done = len as usize;
    }
    while done < all {
        let rest = data.part(done, all - done);
        let at = offset + done as u64;
        let write = async || write_once(pool, cx, file, at, rest).await;
        last = room::with_room(pool, cx, (file, rest.len() as u64), write).await;
        match last {
            Ok(Written(len)) if len > 0 => done += len as usize,
            _ => break,
        }
    }
    // What was written counts, whatever became of the rest.
    if done > 0 { u32::try_from(done).map(Written).map_err(|_| Errno::IO) } else { last }
}

/// The same where the file is now.
async fn write_once(
    pool: &Pool,
    cx: &Cx<'_>,
    file: &PoolFile,
    offset: u64,
    data: WriteData<'_>,
) -> Result<Written> {
    let who = Who::of(cx);
    pool.shared.reaches(file.node.mount())?;
    let judged = Guard::new(&pool.shared, who).judge(ContentChanges { file, how: Changing::Write })?;
    if judged.only_grows() {
        // The caller may have taken `O_APPEND` from its descriptor since, so the offset is examined each time.
        let growing = judged.growing(&pool.shared)?;
        return elsewhere(pool, cx, data, move |bytes| growing.append(bytes, offset)).await;
    }
    let target = judged.target(&pool.shared)?;
    if target.keeps_set_ids(who.keeps_set_ids(), &data) {
        return elsewhere(pool, cx, data, move |bytes| target.write_keeping(bytes, offset)).await;
    }
    target.write(cx, data, offset).await
}

/// Writes by a plain call: here, or on the offload pool from a copy.
async fn elsewhere(
    pool: &Pool,
    cx: &Cx<'_>,
    data: WriteData<'_>,
    write: impl FnOnce(&[u8]) -> Result<usize> + Send + 'static,
) -> Result<Written> {
    let bytes = data.bytes(cx).await?;
    let written = if pool.shared.runs_inline() {
        write(&bytes)?
    } else {
        let bytes = bytes.into_owned();
        cx.offload(move || write(&bytes)).await?
    };
    u32::try_from(written).map(Written).map_err(|_| Errno::IO)
}

/// FSYNC. Always off the queue: it waits for a disk.
pub(crate) async fn fsync(pool: &Pool, cx: &Cx<'_>, file: &PoolFile, data_only: bool) -> Result<()> {
    pool.shared.reaches(file.node.mount())?;
    let lower = file.reader(&pool.shared)?;
    sync(cx, lower, data_only).await
}

/// Makes a lower file or folder durable.
pub(crate) async fn sync(cx: &Cx<'_>, lower: Arc<LowerFile>, data_only: bool) -> Result<()> {
    let synced = cx.offload(move || if data_only { sync_data(&lower) } else { sync_all(&lower) });
    synced.await.map_err(errno)
}

/// FALLOCATE.
pub(crate) async fn allocate(pool: &Pool, cx: &Cx<'_>, file: &PoolFile, op: Fallocate) -> Result<()> {
    let allocate = async || {
        let change = ContentChanges { file, how: Changing::Allocate { mode: op.mode } };
        let target = Guard::new(&pool.shared, Who::of(cx)).judge(change)?.target(&pool.shared)?;
        pool.run(cx, move |_| target.allocate(op.mode, op.offset, op.len)).await
    };
    room::with_room(pool, cx, (file, op.len), allocate).await
}

/// LSEEK.
pub(crate) async fn seek(
    pool: &Pool,
    cx: &Cx<'_>,
    file: &PoolFile,
    offset: u64,
    whence: Whence,
) -> Result<u64> {
    if !file.is_below() {
        return seek_shown(pool, cx, file, offset, whence).await;
    }
    let change = ReadBelow { file, how: Reading::Seek };
    let source = Guard::new(&pool.shared, Who::of(cx)).judge(change)?.source(&pool.shared)?;
    pool.run(cx, move |_| source.seek(offset, whence)).await
}

/// LSEEK in a partial view: where holes are is not told; there is data up to the end. And in a file that is checked: a hole
/// that somebody made below would be taken for zeroes, and never be read.
async fn seek_shown(pool: &Pool, cx: &Cx<'_>, file: &PoolFile, offset: u64, whence: Whence) -> Result<u64> {
    let node = Arc::clone(&file.node);
    let size = move |shared: &Shared| -> Result<u64> {
        match sealed::size(shared, &node) {
            Some(size) => Ok(size),
            None => Ok(stat_of(shared.descriptor(&node)?).map_err(errno)?.size),
        }
    };
    let size = pool.run(cx, size).await?;
    match whence {
        _ if offset >= size => Err(Errno::NXIO),
        Whence::Data => Ok(offset),
        Whence::Hole => Ok(size),
        _ => Err(Errno::INVAL),
    }
}

/// COPY_FILE_RANGE, below, so that file systems that share extents do. Always off the queue: it may be long.
pub(crate) async fn copy(pool: &Pool, cx: &Cx<'_>, op: CopyFileRange<'_, PoolFile>) -> Result<u64> {
    if op.flags != 0 {
        return Err(Errno::INVAL);
    }
    let shared = &pool.shared;
    let offsets = (op.from_offset, op.to_offset);
    let len = usize::try_from(op.len.min(COPY_MAX)).map_err(|_| Errno::INVAL)?;
    let copy = async || {
        let guard = Guard::new(shared, Who::of(cx));
        let from = guard.judge(ReadBelow { file: op.from, how: Reading::Copy })?;
        let to = guard.judge(ContentChanges { file: op.to, how: Changing::Copy })?;
        drop(guard);
        let (from, to) = (from.source(shared)?, to.target(shared)?);
        let copied = cx.offload(move || to.copy(&from, offsets, len)).await?;
        u64::try_from(copied).map_err(|_| Errno::IO)
    };
    room::with_room(pool, cx, (op.to, op.len.min(COPY_MAX)), copy).await
}
