//! WRITE: served, by range, or moved without a look at the bytes.

use shuntfs_transport::Exchange;
use shuntfs_wire::{Errno, Result, WriteFlags, WriteIn, WriteOut};

use super::answer::Answer;
use super::ranges;
use crate::cx::Cx;
use crate::delegation::{Delegation, Flow};
use crate::filesystem::Filesystem;
use crate::open_flags::OpenFlags;
use crate::reply::{WriteData, Written};
use crate::server::{Direction, Local, Server};

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
    let written = |flow| local.counters.written(flow, u64::from(arg.size));
    match open.delegation.of_writes() {
        // On the heap, as every request would have to have room for it.
        Delegation::PerRange(map) => {
            written(Flow::Ranges);
            Box::pin(ranges::write(server, &cx, (&open.file, &**map), arg.offset, data)).await
        }
        Delegation::Splice(_) | Delegation::Passthrough(_)
            if !server.fs.exchanges_lower(&open.file)
                && (data.kill_priv() || !server.fs.keeps_set_ids(&open.file)) =>
        {
            written(Flow::Relay);
            Ok(Answer::RelayWrite(server.lower(&open, Direction::Write)?, arg.offset))
        }
        _ => {
            written(Flow::Served);
            let Written(size) = server.fs.write(&cx, &open.file, arg.offset, data).await?;
            Ok(Answer::Written(WriteOut { size: size.min(arg.size), padding: 0 }, Flow::Served))
        }
    }
}
