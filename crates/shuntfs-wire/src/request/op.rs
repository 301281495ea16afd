//! What a request asks for.

use std::ffi::CStr;

use crate::Name;
use crate::op::{
    AccessIn, BmapIn, CopyFileRangeIn, CreateIn, CuseInitIn, FallocateIn, FlushIn, ForgetIn, ForgetOne,
    FsyncIn, GetattrIn, GetxattrIn, InitIn, InterruptIn, IoctlIn, LinkIn, LkIn, LseekIn, MkdirIn, MknodIn,
    NotifyRetrieveIn, OpenIn, PollIn, ReadIn, ReleaseIn, RemovemappingOne, Rename2In, RenameIn, SetattrIn,
    SetupmappingIn, SetxattrIn, StatxIn, SyncfsIn, WriteIn,
};

/// What a request asks for: one variant an opcode, with what it borrows from the request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the variants are the opcodes, documented there; `arg` is the fixed struct")]
pub enum Op<'a> {
    Lookup {
        name: Name<'a>,
    },
    /// LOOKUP of "." : an NFS server asks for the node itself.
    LookupDot,
    /// LOOKUP of "..": an NFS server asks for the parent.
    LookupDotDot,
    Forget(ForgetIn),
    Getattr(GetattrIn),
    Setattr(SetattrIn),
    Readlink,
    Symlink {
        name: Name<'a>,
        target: &'a CStr,
    },
    Mknod {
        arg: MknodIn,
        name: Name<'a>,
    },
    Mkdir {
        arg: MkdirIn,
        name: Name<'a>,
    },
    Unlink {
        name: Name<'a>,
    },
    Rmdir {
        name: Name<'a>,
    },
    Rename {
        arg: RenameIn,
        name: Name<'a>,
        new_name: Name<'a>,
    },
    Link {
        arg: LinkIn,
        name: Name<'a>,
    },
    Open(OpenIn),
    Read(ReadIn),
    Write {
        arg: WriteIn,
        data: &'a [u8],
    },
    Statfs,
    Release(ReleaseIn),
    Fsync(FsyncIn),
    Setxattr {
        arg: SetxattrIn,
        name: &'a CStr,
        value: &'a [u8],
    },
    Getxattr {
        arg: GetxattrIn,
        name: &'a CStr,
    },
    Listxattr(GetxattrIn),
    Removexattr {
        name: &'a CStr,
    },
    Flush(FlushIn),
    Init(InitIn),
    Opendir(OpenIn),
    Readdir(ReadIn),
    Releasedir(ReleaseIn),
    Fsyncdir(FsyncIn),
    Getlk(LkIn),
    Setlk(LkIn),
    Setlkw(LkIn),
    Access(AccessIn),
    Create {
        arg: CreateIn,
        name: Name<'a>,
    },
    Interrupt(InterruptIn),
    Bmap(BmapIn),
    Destroy,
    Ioctl {
        arg: IoctlIn,
        data: &'a [u8],
    },
    Poll(PollIn),
    NotifyReply {
        arg: NotifyRetrieveIn,
        data: &'a [u8],
    },
    BatchForget(&'a [ForgetOne]),
    Fallocate(FallocateIn),
    Readdirplus(ReadIn),
    Rename2 {
        arg: Rename2In,
        name: Name<'a>,
        new_name: Name<'a>,
    },
    Lseek(LseekIn),
    CopyFileRange(CopyFileRangeIn),
    CopyFileRange64(CopyFileRangeIn),
    Setupmapping(SetupmappingIn),
    Removemapping(&'a [RemovemappingOne]),
    Syncfs(SyncfsIn),
    /// TMPFILE; the kernel sends "/" for a name, which says nothing.
    Tmpfile {
        arg: CreateIn,
    },
    Statx(StatxIn),
    CuseInit(CuseInitIn),
    /// An operation that ABI 7.45 does not have.
    Unknown(u32),
}
