//! What is done to open files beside moving their bytes: FSYNC, FALLOCATE, LSEEK, COPY_FILE_RANGE, POLL.

use shuntfs_wire::{
    CopyFileRangeIn, CopyFileRangeOut, Errno, FsyncFlags, LseekOut, NodeId, Op, PollFlags, PollOut, Result,
    WriteOut,
};

use super::answer::Answer;
use crate::args::{CopyFileRange, Fallocate, Whence};
use crate::cx::Cx;
use crate::filesystem::Filesystem;
use crate::open_flags::OpenFlags;
use crate::poll::{Poll, PollEvents, PollHandle};
use crate::server::Server;

const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;
/// The longest copy whose length the older answer can carry, in whole pages.
const COPY_MAX: u64 = u32::MAX as u64 & !0xffff;

pub(super) async fn serve<F: Filesystem>(
    server: &Server<F>,
    cx: &Cx<'_>,
    node: NodeId,
    op: Op<'_>,
) -> Result<Answer> {
    let fs = &*server.fs;
    match op {
        Op::Fsync(arg) => {
            let open = server.file_for(cx, node, arg.fh, OpenFlags::READ_ONLY).await?;
            let data_only = arg.fsync_flags.contains(FsyncFlags::FDATASYNC);
            fs.fsync(cx, &open.file, data_only).await.map(|()| Answer::Empty)
        }
        Op::Fallocate(arg) => {
            let open = server.file_for(cx, node, arg.fh, OpenFlags::READ_WRITE).await?;
            let op = Fallocate { offset: arg.offset, len: arg.length, mode: arg.mode };
            fs.fallocate(cx, &open.file, op).await.map(|()| Answer::Empty)
        }
        Op::Lseek(arg) => {
            let open = server.file_for(cx, node, arg.fh, OpenFlags::READ_ONLY).await?;
            let whence = match arg.whence {
                SEEK_DATA => Whence::Data,
                SEEK_HOLE => Whence::Hole,
                _ => return Err(Errno::INVAL),
            };
            let offset = fs.lseek(cx, &open.file, arg.offset, whence).await?;
            Ok(Answer::Lseek(LseekOut { offset }))
        }
        Op::Poll(arg) => {
            let open = server.file_for(cx, node, arg.fh, OpenFlags::READ_ONLY).await?;
            let waits = arg.flags.contains(PollFlags::SCHEDULE_NOTIFY);
            let events = PollEvents::from_bits_retain(arg.events);
            let op = Poll { events, waiter: waits.then_some(PollHandle(arg.kh)) };
            let ready = fs.poll(cx, &open.file, op).await?;
            Ok(Answer::Polled(PollOut { revents: ready.bits(), padding: 0 }))
        }
        Op::CopyFileRange(arg) => {
            let arg = CopyFileRangeIn { len: arg.len.min(COPY_MAX), ..arg };
            let copied = Box::pin(copy(server, cx, node, arg)).await?;
            let size = u32::try_from(copied).map_err(|_| Errno::IO)?;
            Ok(Answer::Write(WriteOut { size, padding: 0 }))
        }
        Op::CopyFileRange64(arg) => {
            let bytes_copied = Box::pin(copy(server, cx, node, arg)).await?;
            Ok(Answer::Copied(CopyFileRangeOut { bytes_copied }))
        }
        _ => Ok(Answer::NotOffered),
    }
}

async fn copy<F: Filesystem>(
    server: &Server<F>,
    cx: &Cx<'_>,
    from_node: NodeId,
    arg: CopyFileRangeIn,
) -> Result<u64> {
    let to_node = NodeId::try_from(arg.nodeid_out)?;
    let from = server.file_for(cx, from_node, arg.fh_in, OpenFlags::READ_ONLY).await?;
    let to = server.file_for(cx, to_node, arg.fh_out, OpenFlags::READ_WRITE).await?;
    let op = CopyFileRange {
        from_node,
        from: &*from.file,
        from_offset: arg.off_in,
        to_node,
        to: &*to.file,
        to_offset: arg.off_out,
        len: arg.len,
        flags: arg.flags,
    };
    server.fs.copy_file_range(cx, op).await.map(|copied| copied.min(arg.len))
}
