//! GETLK, SETLK, SETLKW.

use shuntfs_transport::Exchange;
use shuntfs_wire::{Errno, Fh, LkFlags, LkIn, LockOwner, NodeId, Op, Result};

use super::answer::Answer;
use crate::args::{LockRequest, LockType, OpSet};
use crate::cx::Cx;
use crate::encode;
use crate::filesystem::Filesystem;
use crate::open_flags::OpenFlags;
use crate::server::{Local, Server};

pub(super) async fn serve<F: Filesystem>(
    server: &Server<F>,
    cx: &Cx<'_>,
    node: NodeId,
    op: Op<'_>,
) -> Result<Answer> {
    let (arg, wait) = match op {
        Op::Getlk(arg) | Op::Setlk(arg) => (arg, false),
        Op::Setlkw(arg) => (arg, true),
        _ => return Ok(Answer::NotOffered),
    };
    let lock = request(&arg, wait)?;
    let needed = if lock.flock { OpSet::FLOCK_LOCKS } else { OpSet::POSIX_LOCKS };
    if !server.gate.ops().contains(needed) {
        return Err(Errno::OPNOTSUPP);
    }
    let open = server.file_for(cx, node, arg.fh, OpenFlags::READ_ONLY).await?;
    if matches!(op, Op::Getlk(_)) {
        let found = server.fs.getlk(cx, node, &open.file, lock).await?;
        return Ok(Answer::Lock(encode::lock_out(&found)));
    }
    server.fs.setlk(cx, node, &open.file, lock).await.map(|()| Answer::Empty)
}

/// SETLKW that may wait for others, where the queue has room for that.
///
/// # Errors
/// ENOLCK where it has none and the lock is not free.
pub(super) async fn wait<F: Filesystem>(
    server: &Server<F>,
    local: &Local,
    x: &Exchange,
    arg: LkIn,
) -> Result<Answer> {
    let (header, signal) = (x.header(), x.signal());
    let (cx, node) = (Cx::new(local, header, &signal), header.node().unwrap_or(NodeId::ROOT));
    if let Some(_waiting) = x.begin_to_wait() {
        return serve(server, &cx, node, Op::Setlkw(arg)).await;
    }
    let taken = serve(server, &cx, node, Op::Setlk(arg)).await;
    taken.map_err(|error| if matches!(error, Errno::AGAIN | Errno::ACCES) { Errno::NOLCK } else { error })
}

/// Whether it may wait for others. An unlock of flock(2) comes as if it did.
pub(super) fn may_wait(arg: &LkIn) -> bool {
    encode::lock_in(&arg.lk).is_some_and(|range| range.kind != LockType::Unlock)
}

fn request(arg: &LkIn, wait: bool) -> Result<LockRequest> {
    let range = encode::lock_in(&arg.lk).ok_or(Errno::INVAL)?;
    let flock = arg.lk_flags.contains(LkFlags::FLOCK);
    Ok(LockRequest { fh: Fh(arg.fh), owner: LockOwner(arg.owner), range, flock, wait })
}
