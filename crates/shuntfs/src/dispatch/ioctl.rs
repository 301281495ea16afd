//! IOCTL, on files and on folders.

use shuntfs_transport::Exchange;
use shuntfs_wire::{Errno, IoctlFlags, IoctlIn, Result};

use super::answer::Answer;
use crate::args::Ioctl;
use crate::cx::Cx;
use crate::filesystem::{Filesystem, IoctlTarget};
use crate::open_flags::OpenFlags;
use crate::reply::IoctlReply;
use crate::server::{Local, Server};

/// The most that a command's number can say it carries (`_IOC_SIZE`, 14 bits).
const INPUT_MAX: usize = 1 << 14;

/// A copy of the input: the answer overwrites the request. Ioctls are rare, so this may allocate.
pub(super) fn copy(data: &[u8]) -> Box<[u8]> {
    data[..data.len().min(INPUT_MAX)].into()
}

pub(super) async fn ioctl<F: Filesystem>(
    server: &Server<F>,
    local: &Local,
    x: &mut Exchange,
    arg: IoctlIn,
    input: &[u8],
) -> Result<Answer> {
    let header = x.header();
    let signal = x.signal();
    let cx = Cx::new(local, header, &signal);
    let node = header.node().ok_or(Errno::STALE)?;
    let dir = arg.flags.contains(IoctlFlags::DIR);
    let op = Ioctl { node, command: arg.cmd, argument: arg.arg, input, output_max: arg.out_size, dir };
    let reply = IoctlReply::new(x.payload_mut(), arg.out_size as usize);
    let filled = if dir {
        let dir = server.folder(&cx, node, arg.fh, OpenFlags::READ_ONLY).await?;
        server.fs.ioctl(&cx, IoctlTarget::Dir(&*dir), op, reply).await
    } else {
        let open = server.file_for(&cx, node, arg.fh, OpenFlags::READ_ONLY).await?;
        server.fs.ioctl(&cx, IoctlTarget::File(&*open.file), op, reply).await
    };
    match filled {
        Ok(filled) => filled.filled().map(Answer::Payload),
        // The caller is to see ENOTTY for a command that nobody knows.
        Err(Errno::NOSYS) => Err(Errno::NOTTY),
        Err(errno) => Err(errno),
    }
}
