//! The structs of requests and replies, an operation family a file. Names are the kernel's without `fuse_`.

mod attr;
mod cuse;
mod data;
mod file;
mod forget;
mod init;
mod ioctl;
mod lock;
mod mapping;
mod names;
mod notify;
mod poll;
mod range;
mod statfs;
mod statx;
mod various;
mod xattr;

pub use attr::{Attr, AttrFlags, AttrOut, EntryOut, GetattrFlags, GetattrIn, SetattrIn, SetattrValid};
pub use cuse::{CuseInitFlags, CuseInitIn, CuseInitOut};
pub use data::{FsyncFlags, FsyncIn, ReadFlags, ReadIn, WriteFlags, WriteIn, WriteOut};
pub use file::{
    CreateIn, CreateOut, FlushIn, FopenFlags, OpenIn, OpenInFlags, OpenOut, ReleaseFlags, ReleaseIn,
};
pub use forget::{BatchForgetIn, ForgetIn, ForgetOne};
pub use init::{InitIn, InitOut};
pub use ioctl::{IOCTL_IOVEC_MAX, IoctlFlags, IoctlIn, IoctlIovec, IoctlOut};
pub use lock::{FileLock, LkFlags, LkIn, LkOut};
pub use mapping::{RemovemappingIn, RemovemappingOne, SetupmappingFlags, SetupmappingIn};
pub use names::{LinkIn, MkdirIn, MknodIn, Rename2In, RenameIn};
pub use notify::{
    InvalEntryFlags, NotifyDeleteOut, NotifyInvalEntryOut, NotifyInvalInodeOut, NotifyPollWakeupOut,
    NotifyPruneOut, NotifyRetrieveIn, NotifyRetrieveOut, NotifyStoreOut,
};
pub use poll::{PollFlags, PollIn, PollOut};
pub use range::{CopyFileRangeIn, CopyFileRangeOut, FallocateIn, LseekIn, LseekOut};
pub use statfs::{Kstatfs, StatfsOut};
pub use statx::{Statx, StatxIn, StatxOut, SxTime};
pub use various::{AccessIn, BmapIn, BmapOut, InterruptIn, SyncfsIn};
pub use xattr::{GetxattrIn, GetxattrOut, SetxattrFlags, SetxattrIn};
