//! WRITE: served, by range, or moved without a look at the bytes.

use shuntfs_transport::Exchange;
use shuntfs_wire::{Errno, Op, Result, WriteFlags, WriteIn, WriteOut};

use super::answer::Answer;
use super::ranges;
use crate::cx::Cx;
use crate::delegation::{Delegation, Flow};
use crate::filesystem::Filesystem;
use crate::open_flags::OpenFlags;
use crate::range_map::{RangeSource, run};
use crate::reply::{WriteData, Written};
use crate::server::{Direction, Local, Open, Server};

pub(super) async fn write<F: Filesystem>(
    server: &Server<F>,
    local: &Local,
    x: &Exchange,
    arg: WriteIn,
    data: &[u8],
) -> Result<Answer> {
    let signal = x.signal();
    let cx = Cx::new(local, x.header(), &signal);
    let node = x.header().node().ok_or(Errno::STALE)?;
    let open = server.file_for(&cx, node, arg.fh, OpenFlags(arg.flags)).await?;
    let data = WriteData::new(x, data, arg.write_flags.contains(WriteFlags::KILL_SUIDGID));
    let flow = |flow| if data.is_unseen() { Flow::ZeroCopy } else { flow };
    let written = |flow| local.counters.written(flow, u64::from(arg.size));
    if let Delegation::PerRange(map) = open.delegation.of_writes() {
        written(flow(Flow::Ranges));
        // On the heap, as every request would have to have room for it.
        return Box::pin(ranges::write(server, &cx, (&open.file, &**map), arg.offset, data)).await;
    }
    if let Some(answer) = moved(server, &open, &arg)? {
        written(Flow::Relay);
        return Ok(answer);
    }
    written(flow(Flow::Served));
    let Written(size) = server.fs.write(&cx, &open.file, arg.offset, data).await?;
    Ok(Answer::Written(WriteOut { size: size.min(arg.size), padding: 0 }, flow(Flow::Served)))
}

/// The answer to a WRITE whose data is all moved to one place of one lower file, without a look at it. Data that the library's threads must
/// not write, because they would strip the file of what this WRITE is to leave it, goes by the file system.
fn moved<F: Filesystem>(server: &Server<F>, open: &Open<F::File>, arg: &WriteIn) -> Result<Option<Answer>> {
    let keeps = || !arg.write_flags.contains(WriteFlags::KILL_SUIDGID) && server.fs.keeps_set_ids(&open.file);
    let (lower, to) = match open.delegation.of_writes() {
        Delegation::Splice(_) | Delegation::Passthrough(_) => {
            if server.fs.exchanges_lower(&open.file) || keeps() {
                return Ok(None);
            }
            (server.lower(open, Direction::Write)?, arg.offset)
        }
        Delegation::PerRange(map) => match run(&**map, arg.offset, arg.size as usize) {
            (RangeSource::Lower(lower, to), len) if len == arg.size as usize && !keeps() => (lower, to),
            _ => return Ok(None),
        },
        _ => return Ok(None),
    };
    Ok(Some(Answer::RelayWrite(lower, to)))
}

/// A WRITE whose data nobody here has seen: its answer where it is moved as a whole, and else none, and the data is there if the file system
/// is to see it.
pub(super) async fn unseen<F: Filesystem>(
    server: &Server<F>,
    local: &Local,
    x: &mut Exchange,
) -> Result<Option<Answer>> {
    let (header, signal) = (x.header(), x.signal());
    let arg = match x.request().map(|request| request.op) {
        Ok(Op::Write { arg, .. }) => arg,
        _ => return Ok(None),
    };
    let cx = Cx::new(local, header, &signal);
    let node = header.node().ok_or(Errno::STALE)?;
    let open = server.file_for(&cx, node, arg.fh, OpenFlags(arg.flags)).await?;
    let answer = moved(server, &open, &arg)?;
    match answer {
        Some(_) => local.counters.written(Flow::ZeroCopy, u64::from(arg.size)),
        None if server.fs.takes_unseen_data(&open.file) => {}
        None => x.fetch().await?,
    }
    Ok(answer)
}
