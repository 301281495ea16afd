//! OPENDIR, READDIR, READDIRPLUS, RELEASEDIR, FSYNCDIR.

use std::sync::Arc;

use shuntfs_transport::Exchange;
use shuntfs_wire::{Errno, Fh, FopenFlags, FsyncFlags, NodeId, Op, OpenOut, ReadIn, Result};

use super::answer::Answer;
use crate::cx::Cx;
use crate::filesystem::Filesystem;
use crate::open_flags::OpenFlags;
use crate::reply::DirSink;
use crate::server::{Local, Server};

pub(super) async fn serve<F: Filesystem>(
    server: &Server<F>,
    cx: &Cx<'_>,
    node: NodeId,
    op: Op<'_>,
) -> Result<Answer> {
    let fs = &*server.fs;
    match op {
        Op::Opendir(arg) => {
            let opened = fs.opendir(cx, node, OpenFlags(arg.flags)).await?;
            let dir = Arc::new(opened.dir);
            let fh = server.dirs.insert(Arc::clone(&dir)).ok_or(Errno::NFILE)?;
            if let Some(keeps) = &server.keeps
                && let Err(error) = keeps.folder_opened(fs, fh, (node, cx.first_unique()), &dir)
            {
                server.dirs.remove(fh);
                return Err(error);
            }
            let cached = FopenFlags::CACHE_DIR | FopenFlags::KEEP_CACHE;
            let open_flags = if opened.cache { cached } else { FopenFlags::empty() };
            Ok(Answer::Open(OpenOut { fh: fh.0, open_flags, backing_id: 0 }))
        }
        Op::Releasedir(arg) => {
            if let Some(keeps) = &server.keeps {
                keeps.folder_closes(Fh(arg.fh));
            }
            let dir = match server.dirs.remove(Fh(arg.fh)) {
                Some(dir) => dir,
                // A server that is dead had closed it.
                None if cx.is_resent() => return Ok(Answer::Empty),
                None => return Err(Errno::BADF),
            };
            fs.releasedir(cx, node, dir).await;
            Ok(Answer::Empty)
        }
        Op::Fsyncdir(arg) => {
            let dir = server.folder(cx, node, arg.fh, OpenFlags::READ_ONLY).await?;
            let data_only = arg.fsync_flags.contains(FsyncFlags::FDATASYNC);
            fs.fsyncdir(cx, &dir, data_only).await.map(|()| Answer::Empty)
        }
        _ => Ok(Answer::NotOffered),
    }
}

pub(super) async fn readdir<F: Filesystem>(
    server: &Server<F>,
    local: &Local,
    x: &mut Exchange,
    arg: ReadIn,
    plus: bool,
) -> Result<Answer> {
    let header = x.header();
    let signal = x.signal();
    let cx = Cx::new(local, header, &signal);
    let node = header.node().ok_or(Errno::STALE)?;
    let dir = server.folder(&cx, node, arg.fh, OpenFlags(arg.flags)).await?;
    let payload = x.payload_mut();
    let len = (arg.size as usize).min(payload.len());
    let sink = DirSink::new(&mut payload[..len], plus);
    let listed = server.fs.readdir(&cx, node, &dir, arg.offset, sink).await?;
    Ok(Answer::Payload(listed.len))
}
