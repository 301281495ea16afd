//! OPEN, CREATE, TMPFILE, FLUSH, RELEASE: where a wish becomes a flow.

use std::sync::Arc;

use shuntfs_wire::{
    CreateIn, CreateOut, EntryOut, Errno, Fh, FopenFlags, LockOwner, NodeId, Op, OpenOut, ReleaseFlags,
    ReleaseIn, Result,
};

use super::answer::Answer;
use crate::args::{Create, OpSet, OpenFlags, Tmpfile};
use crate::attr::Entry;
use crate::cx::Cx;
use crate::delegation::{Access, Delegation, Flow, LowerFile, Opened};
use crate::encode;
use crate::filesystem::Filesystem;
use crate::flow::{OpenKind, Wish};
use crate::nodes::Nodes;
use crate::server::{Local, Open, Server};

pub(super) async fn serve<F: Filesystem>(
    server: &Server<F>,
    local: &Local,
    cx: &Cx<'_>,
    node: NodeId,
    op: Op<'_>,
) -> Result<Answer> {
    let fs = &*server.fs;
    match op {
        Op::Open(arg) => {
            let flags = OpenFlags(arg.flags);
            let opened = fs.open(cx, node, flags).await?;
            install(server, local, node, opened, flags.may_write()).map(Answer::Open)
        }
        Op::Create { arg, name } => {
            let CreateIn { flags, mode, umask, .. } = arg;
            let op = Create { parent: node, name, mode, umask, flags: OpenFlags(flags) };
            let (entry, opened) = fs.create(cx, op).await?;
            created(server, local, &entry, opened)
        }
        Op::Tmpfile { arg, .. } => {
            let CreateIn { flags, mode, umask, .. } = arg;
            let op = Tmpfile { parent: node, mode, umask, flags: OpenFlags(flags) };
            let (entry, opened) = fs.tmpfile(cx, op).await?;
            created(server, local, &entry, opened)
        }
        Op::Flush(arg) => {
            let open = server.file(arg.fh)?;
            fs.flush(cx, &open.file, LockOwner(arg.lock_owner)).await.map(|()| Answer::Empty)
        }
        Op::Release(arg) => release(server, cx, arg).await,
        _ => Ok(Answer::NotOffered),
    }
}

fn created<F: Filesystem>(
    server: &Server<F>,
    local: &Local,
    entry: &Entry,
    opened: Opened<F::File>,
) -> Result<Answer> {
    let node = entry.node.ok_or(Errno::IO)?;
    // A file that was just made has shown that it can be written.
    let open = install(server, local, node, opened, false)?;
    let entry: EntryOut = encode::entry_out(entry);
    Ok(Answer::Created(CreateOut { entry, open }))
}

/// Settles an open, counts it and gives it a number. What fails or panics on the way is undone. `tries_lower` opens
/// the lower file where we are to move the bytes, so that the caller hears now what forbids it: a file system that
/// became read-only, a program that runs.
fn install<F: Filesystem>(
    server: &Server<F>,
    local: &Local,
    node: NodeId,
    opened: Opened<F::File>,
    tries_lower: bool,
) -> Result<OpenOut> {
    let Opened { file, delegation, cache, flush } = opened;
    let file = Arc::new(file);
    let lower = || -> Result<Arc<LowerFile>> {
        match &delegation {
            Delegation::Passthrough(backing) | Delegation::Splice(backing) => {
                server.lower_of(node, &file, backing, Access::Register)
            }
            Delegation::Served | Delegation::PerRange(_) => Err(Errno::BADF),
        }
    };
    let settled = server.core.nodes.open(node, Wish::of(&delegation), cache, &lower);
    let undo = Undo { nodes: &server.core.nodes, node, kind: settled.kind };
    let open = Open::new(node, file, (settled.flow, settled.kind), delegation);
    if tries_lower && matches!(settled.flow, Flow::Splice | Flow::Relay) {
        server.lower(&open)?;
    }
    local.counters.opened(settled.flow, settled.reason);
    server.fs.opened(node, &open.file, settled.flow, settled.reason);
    let fh = server.files.insert(Arc::new(open)).ok_or(Errno::NFILE)?;
    std::mem::forget(undo);
    let needs_flush = flush && server.ops.contains(OpSet::FLUSH);
    let open_flags = settled.flags | if needs_flush { FopenFlags::empty() } else { FopenFlags::NOFLUSH };
    let backing_id = settled.backing.map_or(0, |id| id.0);
    Ok(OpenOut { fh: fh.0, open_flags, backing_id: i32::try_from(backing_id).unwrap_or_default() })
}

async fn release<F: Filesystem>(server: &Server<F>, cx: &Cx<'_>, arg: ReleaseIn) -> Result<Answer> {
    let open = server.files.remove(Fh(arg.fh)).ok_or(Errno::BADF)?;
    server.core.nodes.close(open.node, open.kind);
    let flock = arg.release_flags.contains(ReleaseFlags::FLOCK_UNLOCK).then_some(LockOwner(arg.lock_owner));
    let (node, file) = (open.node, Arc::clone(&open.file));
    // The lower file that moved its bytes is closed before the file system hears of the end.
    drop(open);
    server.fs.release(cx, node, file, flock).await;
    Ok(Answer::Empty)
}

/// Takes a counted open back, unless it is forgotten.
struct Undo<'a> {
    nodes: &'a Nodes,
    node: NodeId,
    kind: OpenKind,
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        self.nodes.close(self.node, self.kind);
    }
}
