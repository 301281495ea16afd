//! READ: served, by range, or moved without a look at the bytes.

use shuntfs_transport::Exchange;
use shuntfs_wire::{ByteRange, Errno, ReadIn, Result};

use super::answer::Answer;
use super::ranges;
use crate::cx::Cx;
use crate::delegation::{Delegation, Flow};
use crate::filesystem::Filesystem;
use crate::open_flags::OpenFlags;
use crate::reply::ReadReply;
use crate::server::{Direction, Local, Server};

pub(super) async fn read<F: Filesystem>(
    server: &Server<F>,
    local: &Local,
    x: &mut Exchange,
    arg: ReadIn,
) -> Result<Answer> {
    let header = x.header();
    let signal = x.signal();
    let cx = Cx::new(local, header, &signal);
    let node = header.node().ok_or(Errno::STALE)?;
    let open = server.file_for(&cx, node, arg.fh, OpenFlags(arg.flags)).await?;
    let at = ByteRange { offset: arg.offset, len: arg.size };
    let reads = open.delegation.of_reads();
    let answer = match reads {
        Delegation::PerRange(map) => ranges::read(server, &cx, x, (&open.file, &**map), at).await?,
        Delegation::Served | Delegation::Verified | Delegation::VerifiedBelow(_) | Delegation::Split(_)
            if x.is_in_pages() =>
        {
            Answer::Payload(Box::pin(in_memory(server, &cx, x, (&open.file, at))).await?)
        }
        Delegation::Served | Delegation::Verified | Delegation::VerifiedBelow(_) | Delegation::Split(_) => {
            let reply = ReadReply::new(x, 0, at.len as usize);
            let filled = server.fs.read(&cx, &open.file, at, reply).await?;
            Answer::Payload(filled.filled()?)
        }
        // A passthrough file's READ comes here, too: readahead(2) and posix_fadvise(2) cause them.
        Delegation::Splice(_) | Delegation::Passthrough(_) => {
            Answer::RelayRead(server.lower(&open, Direction::Read)?, at)
        }
    };
    let (len, flow) = match answer {
        Answer::Payload(len) => (len, served_by(reads)),
        Answer::Read(len, flow) => (len, flow),
        _ => return Ok(answer),
    };
    local.counters.read(flow, len as u64);
    Ok(Answer::Read(len, flow))
}

fn served_by(reads: &Delegation) -> Flow {
    match reads {
        Delegation::Verified | Delegation::VerifiedBelow(_) => Flow::Verified,
        _ => Flow::Served,
    }
}

/// Serves a READ whose bytes are to go to pages, though they must be seen: no open that wishes so asks for that, but a kernel may.
async fn in_memory<F: Filesystem>(
    server: &Server<F>,
    cx: &Cx<'_>,
    x: &mut Exchange,
    (file, at): (&F::File, ByteRange),
) -> Result<usize> {
    x.with_payload().await;
    let filled = server.fs.read(cx, file, at, ReadReply::new(x, 0, at.len as usize)).await?.filled()?;
    x.put(0..filled).await?;
    Ok(filled)
}
