//! From a request to a call.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use shuntfs_sys::FuseDevice;
use shuntfs_wire as wire;
use shuntfs_wire::{Op, Opcode};

use crate::attr::TimeOrNow;
use crate::config::SessionACL;
use crate::errno::Errno;
use crate::filesystem::Filesystem;
use crate::flags::{
    AccessFlags, CopyFileRangeFlags, IoctlFlags, OpenFlags, PollEvents, PollFlags, RenameFlags, WriteFlags,
};
use crate::ids::{FileHandle, ForgetOne, INodeNo, LockOwner};
use crate::notify::PollNotifier;
use crate::reply::{
    ReplyAttr, ReplyBmap, ReplyData, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLock, ReplyLseek, ReplyPoll,
    ReplyStatfs, ReplyWrite, ReplyXattr,
};
use crate::reply_dir::{ReplyDirectory, ReplyDirectoryPlus};
use crate::reply_open::{ReplyCreate, ReplyOpen};
use crate::request::Request;
use crate::time;

/// Whom a session serves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Door {
    pub(crate) acl: SessionACL,
    /// The user who mounted.
    pub(crate) owner: u32,
}

impl Door {
    /// Whether a request must be served. Some come from the kernel itself, for nobody.
    fn is_open_to(self, header: &wire::InHeader) -> bool {
        match self.acl {
            SessionACL::All => return true,
            SessionACL::RootAndOwner if header.uid == 0 => return true,
            _ if header.uid == self.owner => return true,
            _ => {}
        }
        matches!(
            header.operation(),
            Some(
                Opcode::Destroy
                    | Opcode::Read
                    | Opcode::Readdir
                    | Opcode::Readdirplus
                    | Opcode::Forget
                    | Opcode::BatchForget
                    | Opcode::Write
                    | Opcode::Fsync
                    | Opcode::Fsyncdir
                    | Opcode::Release
                    | Opcode::Releasedir
            )
        )
    }
}

/// Whether the kernel waits for an answer to a request.
pub(crate) fn is_answered(header: &wire::InHeader) -> bool {
    !matches!(header.operation(), Some(Opcode::Forget | Opcode::BatchForget | Opcode::NotifyReply))
}

/// A request and all that serves it.
pub(crate) struct Call<'c, F> {
    pub(crate) fs: &'c F,
    pub(crate) door: Door,
    pub(crate) device: &'c Arc<FuseDevice>,
    pub(crate) request: wire::Request<'c>,
}

impl<F: Filesystem> Call<'_, F> {
    /// Makes the call. Without an `answer` the kernel expects none.
    pub(crate) fn make(self, answer: Option<crate::sender::Answer>) {
        let header = self.request.header;
        let (req, ino) = (Request::new(header), INodeNo(header.nodeid));
        let Some(answer) = answer else { return self.forget(&req, ino) };
        if !self.door.is_open_to(&header) {
            return answer.error(Errno::EACCES);
        }
        if let Err((answer, errno)) = self.names(&req, ino, answer) {
            answer.error(errno);
        }
    }

    fn forget(&self, req: &Request, ino: INodeNo) {
        match self.request.op {
            Op::Forget(arg) => self.fs.forget(req, ino, arg.nlookup),
            Op::BatchForget(nodes) => {
                let nodes: Vec<ForgetOne> = nodes.iter().copied().map(ForgetOne::new).collect();
                self.fs.batch_forget(req, &nodes);
            }
            // What NOTIFY_REPLY brings nobody asked for.
            _ => {}
        }
    }

    fn names(&self, req: &Request, ino: INodeNo, answer: crate::sender::Answer) -> Handled {
        let fs = self.fs;
        match self.request.op {
            Op::Lookup { name } => fs.lookup(req, ino, os(name), ReplyEntry(answer)),
            Op::LookupDot => fs.lookup(req, ino, OsStr::new("."), ReplyEntry(answer)),
            Op::LookupDotDot => fs.lookup(req, ino, OsStr::new(".."), ReplyEntry(answer)),
            Op::Readlink => fs.readlink(req, ino, ReplyData(answer)),
            Op::Symlink { name, target } => {
                fs.symlink(req, ino, os(name), Path::new(os_c(target)), ReplyEntry(answer));
            }
            Op::Mknod { arg, name } => {
                fs.mknod(req, ino, os(name), arg.mode, arg.umask, arg.rdev, ReplyEntry(answer));
            }
            Op::Mkdir { arg, name } => fs.mkdir(req, ino, os(name), arg.mode, arg.umask, ReplyEntry(answer)),
            Op::Unlink { name } => fs.unlink(req, ino, os(name), ReplyEmpty(answer)),
            Op::Rmdir { name } => fs.rmdir(req, ino, os(name), ReplyEmpty(answer)),
            Op::Rename { arg, name, new_name } => {
                let (to, flags) = (INodeNo(arg.newdir), RenameFlags::empty());
                fs.rename(req, ino, os(name), to, os(new_name), flags, ReplyEmpty(answer));
            }
            Op::Rename2 { arg, name, new_name } => {
                let (to, flags) = (INodeNo(arg.newdir), RenameFlags::from_bits_retain(arg.flags));
                fs.rename(req, ino, os(name), to, os(new_name), flags, ReplyEmpty(answer));
            }
            Op::Link { arg, name } => {
                fs.link(req, INodeNo(arg.oldnodeid), ino, os(name), ReplyEntry(answer));
            }
            Op::Create { arg, name } => {
                let flags = arg.flags.cast_signed();
                fs.create(req, ino, os(name), arg.mode, arg.umask, flags, ReplyCreate(answer));
            }
            _ => return self.attributes(req, ino, answer),
        }
        Ok(())
    }

    fn attributes(&self, req: &Request, ino: INodeNo, answer: crate::sender::Answer) -> Handled {
        let fs = self.fs;
        match self.request.op {
            Op::Getattr(arg) => {
                let by_file = arg.getattr_flags.contains(wire::GetattrFlags::FH);
                fs.getattr(req, ino, by_file.then_some(FileHandle(arg.fh)), ReplyAttr(answer));
            }
            Op::Setattr(arg) => self.setattr(req, ino, &arg, ReplyAttr(answer)),
            Op::Statfs => fs.statfs(req, ino, ReplyStatfs(answer)),
            Op::Access(arg) => {
                let mask = AccessFlags::from_bits_retain(arg.mask.cast_signed());
                fs.access(req, ino, mask, ReplyEmpty(answer));
            }
            Op::Setxattr { arg, name, value } => {
                let flags = arg.flags.cast_signed();
                fs.setxattr(req, ino, os_c(name), value, flags, 0, ReplyEmpty(answer));
            }
            Op::Getxattr { arg, name } => fs.getxattr(req, ino, os_c(name), arg.size, ReplyXattr(answer)),
            Op::Listxattr(arg) => fs.listxattr(req, ino, arg.size, ReplyXattr(answer)),
            Op::Removexattr { name } => fs.removexattr(req, ino, os_c(name), ReplyEmpty(answer)),
            _ => return self.data(req, ino, answer),
        }
        Ok(())
    }

    fn setattr(&self, req: &Request, ino: INodeNo, arg: &wire::SetattrIn, reply: ReplyAttr) {
        use wire::SetattrValid as Valid;
        let has = |bit| arg.valid.contains(bit);
        let time = |bit, now, secs, nanos| {
            let given = || TimeOrNow::SpecificTime(time::from_wire(secs, nanos));
            has(bit).then(|| if has(now) { TimeOrNow::Now } else { given() })
        };
        self.fs.setattr(
            req,
            ino,
            has(Valid::MODE).then_some(arg.mode),
            has(Valid::UID).then_some(arg.uid),
            has(Valid::GID).then_some(arg.gid),
            has(Valid::SIZE).then_some(arg.size),
            time(Valid::ATIME, Valid::ATIME_NOW, arg.atime, arg.atimensec),
            time(Valid::MTIME, Valid::MTIME_NOW, arg.mtime, arg.mtimensec),
            has(Valid::CTIME).then(|| time::from_wire(arg.ctime, arg.ctimensec)),
            has(Valid::FH).then_some(FileHandle(arg.fh)),
            None,
            None,
            None,
            None,
            reply,
        );
    }

    fn data(&self, req: &Request, ino: INodeNo, answer: crate::sender::Answer) -> Handled {
        let fs = self.fs;
        match self.request.op {
            Op::Open(arg) => fs.open(req, ino, open_flags(arg.flags), ReplyOpen(answer)),
            Op::Read(arg) if is_place(arg.offset) => {
                let owner = arg.read_flags.contains(wire::ReadFlags::LOCKOWNER);
                let (fh, owner) = (FileHandle(arg.fh), owner.then_some(LockOwner(arg.lock_owner)));
                let flags = open_flags(arg.flags);
                fs.read(req, ino, fh, arg.offset, arg.size, flags, owner, ReplyData(answer));
            }
            Op::Write { arg, data } if is_place(arg.offset) => {
                let owner = arg.write_flags.contains(wire::WriteFlags::LOCKOWNER);
                let (fh, owner) = (FileHandle(arg.fh), owner.then_some(LockOwner(arg.lock_owner)));
                let bits = WriteFlags::from_bits_retain(arg.write_flags.bits());
                let flags = open_flags(arg.flags);
                fs.write(req, ino, fh, arg.offset, data, bits, flags, owner, ReplyWrite(answer));
            }
            Op::Flush(arg) => {
                fs.flush(req, ino, FileHandle(arg.fh), LockOwner(arg.lock_owner), ReplyEmpty(answer));
            }
            Op::Release(arg) => {
                let has = |bit| arg.release_flags.contains(bit);
                let owner = has(wire::ReleaseFlags::FLOCK_UNLOCK).then_some(LockOwner(arg.lock_owner));
                let (flags, flush) = (open_flags(arg.flags), has(wire::ReleaseFlags::FLUSH));
                fs.release(req, ino, FileHandle(arg.fh), flags, owner, flush, ReplyEmpty(answer));
            }
            Op::Fsync(arg) => fs.fsync(req, ino, FileHandle(arg.fh), data_only(&arg), ReplyEmpty(answer)),
            Op::Opendir(arg) => fs.opendir(req, ino, open_flags(arg.flags), ReplyOpen(answer)),
            Op::Readdir(arg) => {
                let reply = ReplyDirectory::new(answer, arg.size);
                fs.readdir(req, ino, FileHandle(arg.fh), arg.offset, reply);
            }
            Op::Readdirplus(arg) => {
                let reply = ReplyDirectoryPlus::new(answer, arg.size);
                fs.readdirplus(req, ino, FileHandle(arg.fh), arg.offset, reply);
            }
            Op::Releasedir(arg) => {
                fs.releasedir(req, ino, FileHandle(arg.fh), open_flags(arg.flags), ReplyEmpty(answer));
            }
            Op::Fsyncdir(arg) => {
                fs.fsyncdir(req, ino, FileHandle(arg.fh), data_only(&arg), ReplyEmpty(answer));
            }
            _ => return self.ranges(req, ino, answer),
        }
        Ok(())
    }

    fn ranges(&self, req: &Request, ino: INodeNo, answer: crate::sender::Answer) -> Handled {
        let fs = self.fs;
        match self.request.op {
            Op::Fallocate(arg) if is_place(arg.offset) && is_place(arg.length) => {
                let (fh, mode) = (FileHandle(arg.fh), arg.mode.cast_signed());
                fs.fallocate(req, ino, fh, arg.offset, arg.length, mode, ReplyEmpty(answer));
            }
            Op::Lseek(arg) => {
                let (offset, whence) = (arg.offset.cast_signed(), arg.whence.cast_signed());
                fs.lseek(req, ino, FileHandle(arg.fh), offset, whence, ReplyLseek(answer));
            }
            Op::CopyFileRange(arg) if is_place(arg.off_in) && is_place(arg.off_out) => fs.copy_file_range(
                req,
                ino,
                FileHandle(arg.fh_in),
                arg.off_in,
                INodeNo(arg.nodeid_out),
                FileHandle(arg.fh_out),
                arg.off_out,
                arg.len,
                CopyFileRangeFlags::from_bits_retain(arg.flags),
                ReplyWrite(answer),
            ),
            Op::Getlk(arg) => {
                let (fh, owner, lock) = (FileHandle(arg.fh), LockOwner(arg.owner), arg.lk);
                let kind = lock.r#type.cast_signed();
                fs.getlk(req, ino, fh, owner, lock.start, lock.end, kind, lock.pid, ReplyLock(answer));
            }
            Op::Setlk(arg) | Op::Setlkw(arg) => {
                let wait = matches!(self.request.op, Op::Setlkw(_));
                let (fh, owner, lock) = (FileHandle(arg.fh), LockOwner(arg.owner), arg.lk);
                let (kind, reply) = (lock.r#type.cast_signed(), ReplyEmpty(answer));
                fs.setlk(req, ino, fh, owner, lock.start, lock.end, kind, lock.pid, wait, reply);
            }
            _ => return self.devices(req, ino, answer),
        }
        Ok(())
    }

    fn devices(&self, req: &Request, ino: INodeNo, answer: crate::sender::Answer) -> Handled {
        let fs = self.fs;
        match self.request.op {
            Op::Bmap(arg) => fs.bmap(req, ino, arg.blocksize, arg.block, ReplyBmap(answer)),
            Op::Ioctl { arg, data } if !arg.flags.contains(wire::IoctlFlags::UNRESTRICTED) => {
                let (fh, flags) = (FileHandle(arg.fh), IoctlFlags::from_bits_retain(arg.flags.bits()));
                fs.ioctl(req, ino, fh, flags, arg.cmd, data, arg.out_size, ReplyIoctl(answer));
            }
            Op::Poll(arg) => {
                let handle = PollNotifier::new(self.device, arg.kh);
                let events = PollEvents::from_bits_retain(arg.events);
                let flags = PollFlags::from_bits_retain(arg.flags.bits());
                fs.poll(req, ino, FileHandle(arg.fh), handle, events, flags, ReplyPoll(answer));
            }
            Op::Destroy => answer.empty(),
            // A place beyond the largest file. Arms above have taken all others.
            Op::Read(_) | Op::Write { .. } | Op::Fallocate(_) | Op::CopyFileRange(_) => {
                return Err((answer, Errno::EINVAL));
            }
            // The kernel does without: it remembers that.
            _ => return Err((answer, Errno::ENOSYS)),
        }
        Ok(())
    }
}

/// A request that was passed on, or that nobody takes.
type Handled = Result<(), (crate::sender::Answer, Errno)>;

fn os(name: wire::Name<'_>) -> &OsStr {
    OsStr::from_bytes(name.as_bytes())
}

fn os_c(text: &CStr) -> &OsStr {
    OsStr::from_bytes(text.to_bytes())
}

fn open_flags(flags: u32) -> OpenFlags {
    OpenFlags(flags.cast_signed())
}

fn data_only(arg: &wire::FsyncIn) -> bool {
    arg.fsync_flags.contains(wire::FsyncFlags::FDATASYNC)
}

/// Whether a file can have so many bytes.
fn is_place(offset: u64) -> bool {
    i64::try_from(offset).is_ok()
}
