//! Operations on names: LOOKUP, the creations without an open, and the removals.

use shuntfs_wire::{Errno, NodeId, Op, Result};

use super::answer::Answer;
use crate::args::{Link, Mkdir, Mknod, OpSet, Rename, Symlink};
use crate::attr::Entry;
use crate::cx::Cx;
use crate::encode;
use crate::filesystem::Filesystem;
use crate::server::Server;

pub(super) async fn serve<F: Filesystem>(
    server: &Server<F>,
    cx: &Cx<'_>,
    parent: NodeId,
    op: Op<'_>,
) -> Result<Answer> {
    let fs = &*server.fs;
    match op {
        Op::Lookup { name } => entry(&fs.lookup(cx, parent, name).await?),
        // Asked for only by file handles that outlived the kernel's inode.
        Op::LookupDot | Op::LookupDotDot if !server.gate.ops().contains(OpSet::EXPORT) => Err(Errno::STALE),
        Op::LookupDot => entry(&fs.lookup_node(cx, parent).await?),
        Op::LookupDotDot => entry(&fs.lookup_parent(cx, parent).await?),
        Op::Mknod { arg, name } => {
            let op = Mknod { parent, name, mode: arg.mode, umask: arg.umask, rdev: arg.rdev };
            entry(&fs.mknod(cx, op).await?)
        }
        Op::Mkdir { arg, name } => {
            entry(&fs.mkdir(cx, Mkdir { parent, name, mode: arg.mode, umask: arg.umask }).await?)
        }
        Op::Symlink { name, target } => entry(&fs.symlink(cx, Symlink { parent, name, target }).await?),
        Op::Link { arg, name } => {
            let node = NodeId::new(arg.oldnodeid).ok_or(Errno::STALE)?;
            entry(&fs.link(cx, Link { node, parent, name }).await?)
        }
        Op::Unlink { name } => fs.unlink(cx, parent, name).await.map(|()| Answer::Empty),
        Op::Rmdir { name } => fs.rmdir(cx, parent, name).await.map(|()| Answer::Empty),
        Op::Rename { arg, name, new_name } => {
            let new_parent = NodeId::new(arg.newdir).ok_or(Errno::STALE)?;
            rename(server, cx, Rename { parent, name, new_parent, new_name, flags: 0 }).await
        }
        Op::Rename2 { arg, name, new_name } => {
            let new_parent = NodeId::new(arg.newdir).ok_or(Errno::STALE)?;
            rename(server, cx, Rename { parent, name, new_parent, new_name, flags: arg.flags }).await
        }
        Op::Destroy => Ok(Answer::Empty),
        Op::NotifyReply { data, .. } => {
            server.core.retrievals.arrived(cx.unique(), data);
            Ok(Answer::Silent)
        }
        Op::Interrupt(_) => Ok(Answer::Silent),
        // INIT is answered before the queues start, unless the server that had read it died just before it answered.
        Op::Init(_) if cx.is_resent() => Ok(Answer::Init(server.core.negotiated.reply())),
        Op::Init(_) => Err(Errno::IO),
        _ => Ok(Answer::NotOffered),
    }
}

async fn rename<F: Filesystem>(server: &Server<F>, cx: &Cx<'_>, op: Rename<'_>) -> Result<Answer> {
    server.fs.rename(cx, op).await.map(|()| Answer::Empty)
}

fn entry(entry: &Entry) -> Result<Answer> {
    Ok(Answer::Entry(encode::entry_out(entry)))
}
