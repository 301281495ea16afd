//! Extended attributes, and READLINK, which answers the same way.

use std::ffi::CStr;

use shuntfs_transport::Exchange;
use shuntfs_wire::{Errno, GetxattrIn, GetxattrOut, NodeId, Op, Result, SetxattrFlags};

use super::answer::Answer;
use crate::args::SetXattr;
use crate::cx::Cx;
use crate::filesystem::Filesystem;
use crate::reply::{Filled, ReadReply};
use crate::server::{Local, Server};

/// The longest target that the kernel takes: a page less the NUL.
const LINK_MAX: usize = 4095;
/// The longest name of an attribute, with its NUL.
const NAME_MAX: usize = 256;

/// A name of its own, for operations whose answer overwrites the request.
#[derive(Clone, Copy)]
pub(super) struct NameBuf {
    bytes: [u8; NAME_MAX],
}

impl NameBuf {
    pub(super) fn new(name: &CStr) -> Result<Self> {
        let name = name.to_bytes_with_nul();
        let mut bytes = [0; NAME_MAX];
        bytes.get_mut(..name.len()).ok_or(Errno::RANGE)?.copy_from_slice(name);
        Ok(Self { bytes })
    }

    fn name(&self) -> Result<&CStr> {
        CStr::from_bytes_until_nul(&self.bytes).map_err(|_| Errno::INVAL)
    }
}

pub(super) async fn getxattr<F: Filesystem>(
    server: &Server<F>,
    local: &Local,
    x: &mut Exchange,
    arg: GetxattrIn,
    name: &NameBuf,
) -> Result<Answer> {
    let header = x.header();
    let signal = x.signal();
    let cx = Cx::new(local, header, &signal);
    let node = header.node().ok_or(Errno::STALE)?;
    let reply = ReadReply::new(x, 0, arg.size as usize);
    let filled = server.fs.getxattr(&cx, node, name.name()?, reply).await?;
    bytes_or_length(arg, &filled)
}

pub(super) async fn listxattr<F: Filesystem>(
    server: &Server<F>,
    local: &Local,
    x: &mut Exchange,
    arg: GetxattrIn,
) -> Result<Answer> {
    let header = x.header();
    let signal = x.signal();
    let cx = Cx::new(local, header, &signal);
    let node = header.node().ok_or(Errno::STALE)?;
    let reply = ReadReply::new(x, 0, arg.size as usize);
    let filled = server.fs.listxattr(&cx, node, reply).await?;
    bytes_or_length(arg, &filled)
}

fn bytes_or_length(arg: GetxattrIn, filled: &Filled<'_>) -> Result<Answer> {
    if arg.size != 0 {
        return filled.filled().map(Answer::Payload);
    }
    let size = u32::try_from(filled.len()).map_err(|_| Errno::TOOBIG)?;
    Ok(Answer::Xattr(GetxattrOut { size, padding: 0 }))
}

pub(super) async fn readlink<F: Filesystem>(
    server: &Server<F>,
    local: &Local,
    x: &mut Exchange,
) -> Result<Answer> {
    let header = x.header();
    let signal = x.signal();
    let cx = Cx::new(local, header, &signal);
    let node = header.node().ok_or(Errno::STALE)?;
    let filled = server.fs.readlink(&cx, node, ReadReply::new(x, 0, LINK_MAX)).await?;
    filled.filled().map(Answer::Payload)
}

pub(super) async fn change<F: Filesystem>(
    server: &Server<F>,
    cx: &Cx<'_>,
    node: NodeId,
    op: Op<'_>,
) -> Result<Answer> {
    let fs = &*server.fs;
    match op {
        Op::Setxattr { arg, name, value } => {
            let kill_sgid = arg.setxattr_flags.contains(SetxattrFlags::ACL_KILL_SGID);
            let op = SetXattr { node, name, value, flags: arg.flags, kill_sgid };
            fs.setxattr(cx, op).await.map(|()| Answer::Empty)
        }
        Op::Removexattr { name } => fs.removexattr(cx, node, name).await.map(|()| Answer::Empty),
        _ => Ok(Answer::NotOffered),
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn names_are_copied_up_to_the_limit() {
        assert_eq!(NameBuf::new(c"user.x").unwrap().name(), Ok(c"user.x"));
        let longest = std::ffi::CString::new(vec![b'n'; 255]).unwrap();
        assert_eq!(NameBuf::new(&longest).unwrap().name(), Ok(longest.as_c_str()));
        let longer = std::ffi::CString::new(vec![b'n'; 256]).unwrap();
        assert_eq!(NameBuf::new(&longer).err(), Some(Errno::RANGE));
    }
}
