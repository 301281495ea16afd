//! A file system in memory, just true enough that the kernel goes on asking.

mod data;
mod names;

use std::collections::BTreeMap;

use shuntfs_wire::{
    Attr, AttrOut, EntryOut, Errno, InitFlags, InitOut, IoctlOut, LkIn, LkOut, Op, OpenOut, PollOut, Request,
    Statx, StatxOut, Unique, abi,
};
use zerocopy::IntoBytes;

use crate::serve::MAX_WRITE;

/// The group of the root, in which whoever provokes is a supplementary member.
pub(crate) const GROUP: u32 = 2000;
/// How long names and attributes hold, in seconds: nothing is asked for twice.
const VALID: u64 = 3600;

/// How a request is answered.
pub(crate) enum Answer {
    Body(Vec<u8>),
    Error(Errno),
    /// The request with this number, held until now, fails with EINTR.
    Interrupted(Unique),
    /// The notification first, then an error.
    Notify(Vec<u8>, Errno),
    Silent,
}

#[derive(Default)]
struct Node {
    mode: u32,
    uid: u32,
    gid: u32,
    data: Vec<u8>,
    names: BTreeMap<Vec<u8>, u64>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    lock_owner: Option<u64>,
}

pub(crate) struct Memory {
    nodes: BTreeMap<u64, Node>,
    opened: u64,
}

impl Memory {
    pub(crate) fn new() -> Self {
        let root = Node { mode: 0o40_755, gid: GROUP, ..Node::default() };
        Self { nodes: BTreeMap::from([(1, root)]), opened: 0 }
    }

    pub(crate) fn answer(&mut self, request: &Request<'_>) -> Answer {
        let answer = match request.op {
            Op::Init(arg) => Ok(init(arg.offered())),
            Op::Forget(_) | Op::BatchForget(_) | Op::NotifyReply { .. } => return Answer::Silent,
            Op::Interrupt(arg) => return Answer::Interrupted(Unique(arg.unique)),
            Op::Lookup { name } => match self.notification(name.as_bytes()) {
                Some(notification) => return Answer::Notify(notification, Errno::NOENT),
                None => self.name_op(request),
            },
            Op::Setlkw(arg) if self.is_taken(request.header.nodeid, &arg) => return Answer::Silent,
            Op::Symlink { .. }
            | Op::Mknod { .. }
            | Op::Mkdir { .. }
            | Op::Create { .. }
            | Op::Tmpfile { .. }
            | Op::Link { .. }
            | Op::Unlink { .. }
            | Op::Rmdir { .. }
            | Op::Rename { .. }
            | Op::Rename2 { .. } => self.name_op(request),
            _ => self.node_op(request),
        };
        answer.map_or_else(Answer::Error, Answer::Body)
    }

    fn node_op(&mut self, request: &Request<'_>) -> Result<Vec<u8>, Errno> {
        let id = request.header.nodeid;
        match request.op {
            Op::Getattr(_) => self.attr_out(id),
            Op::Statx(_) => self.statx_out(id),
            Op::Setattr(arg) => self.setattr(id, &arg),
            Op::Open(_) | Op::Opendir(_) => Ok(self.open_out().as_bytes().to_vec()),
            // No flags are set on anything, in as many bytes as asked for.
            Op::Ioctl { arg, .. } => {
                let out = vec![0; arg.out_size as usize];
                Ok([IoctlOut::default().as_bytes(), &out].concat())
            }
            Op::Poll(_) => Ok(PollOut { revents: 5, padding: 0 }.as_bytes().to_vec()),
            Op::Getlk(arg) => {
                let lk = shuntfs_wire::FileLock { r#type: 2, ..arg.lk };
                Ok(LkOut { lk }.as_bytes().to_vec())
            }
            Op::Setlk(arg) | Op::Setlkw(arg) => {
                self.node(id)?.lock_owner = (arg.lk.r#type != 2).then_some(arg.owner);
                Ok(Vec::new())
            }
            Op::Flush(_)
            | Op::Release(_)
            | Op::Releasedir(_)
            | Op::Fsync(_)
            | Op::Fsyncdir(_)
            | Op::Access(_) => Ok(Vec::new()),
            _ => self.data_op(request),
        }
    }

    fn node(&mut self, id: u64) -> Result<&mut Node, Errno> {
        self.nodes.get_mut(&id).ok_or(Errno::NOENT)
    }

    fn is_taken(&self, id: u64, arg: &LkIn) -> bool {
        let owner = self.nodes.get(&id).and_then(|node| node.lock_owner);
        owner.is_some_and(|owner| owner != arg.owner)
    }

    fn open_out(&mut self) -> OpenOut {
        self.opened += 1;
        OpenOut { fh: self.opened, ..OpenOut::default() }
    }

    fn attr(&self, id: u64) -> Result<Attr, Errno> {
        let node = self.nodes.get(&id).ok_or(Errno::NOENT)?;
        let (ino, size) = (id, node.data.len() as u64);
        let (mode, uid, gid) = (node.mode, node.uid, node.gid);
        Ok(Attr { ino, size, mode, uid, gid, nlink: 1, blksize: 4096, ..Attr::default() })
    }

    fn attr_out(&self, id: u64) -> Result<Vec<u8>, Errno> {
        let out = AttrOut { attr_valid: VALID, attr: self.attr(id)?, ..AttrOut::default() };
        Ok(out.as_bytes().to_vec())
    }

    fn entry_out(&self, id: u64) -> Result<EntryOut, Errno> {
        let attr = self.attr(id)?;
        Ok(EntryOut { nodeid: id, entry_valid: VALID, attr_valid: VALID, attr, ..EntryOut::default() })
    }

    fn statx_out(&self, id: u64) -> Result<Vec<u8>, Errno> {
        let attr = self.attr(id)?;
        let mode = u16::try_from(attr.mode).map_err(|_| Errno::IO)?;
        let (nlink, uid, gid, ino, size) = (attr.nlink, attr.uid, attr.gid, attr.ino, attr.size);
        // STATX_BASIC_STATS and STATX_BTIME.
        let stat = Statx { mask: 0xfff, mode, nlink, uid, gid, ino, size, blksize: 4096, ..Statx::default() };
        Ok(StatxOut { attr_valid: VALID, stat, ..StatxOut::default() }.as_bytes().to_vec())
    }
}

/// Agrees to what brings more kinds of requests, or more in them.
fn init(offered: InitFlags) -> Vec<u8> {
    let wanted = InitFlags::ASYNC_READ
        | InitFlags::POSIX_LOCKS
        | InitFlags::FLOCK_LOCKS
        | InitFlags::ATOMIC_O_TRUNC
        | InitFlags::BIG_WRITES
        | InitFlags::DONT_MASK
        | InitFlags::HAS_IOCTL_DIR
        | InitFlags::DO_READDIRPLUS
        | InitFlags::READDIRPLUS_AUTO
        | InitFlags::PARALLEL_DIROPS
        | InitFlags::HANDLE_KILLPRIV_V2
        | InitFlags::MAX_PAGES
        | InitFlags::SETXATTR_EXT
        | InitFlags::INIT_EXT
        | InitFlags::SECURITY_CTX
        | InitFlags::CREATE_SUPP_GROUP;
    let mut out = InitOut {
        major: abi::MAJOR,
        minor: abi::MINOR,
        max_readahead: 65_536,
        max_background: 12,
        congestion_threshold: 9,
        max_write: MAX_WRITE,
        time_gran: 1,
        max_pages: 16,
        ..InitOut::default()
    };
    out.set_agreed(offered & wanted);
    out.as_bytes().to_vec()
}
