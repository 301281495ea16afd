//! The interface of the crate `fuser` (0.18), served by shuntfs.
//!
//! A file system written for fuser needs one changed line:
//!
//! ```toml
//! fuser = { package = "shuntfs-fuser", version = "0.1" }
//! ```
//!
//! It then takes its requests from one device, from cloned devices or from io_uring. Which, the environment says
//! (`SHUNTFS_FUSER_TRANSPORT` = `device`, `cloned`, `uring` or `auto`), or else a mount option
//! (`MountOption::CUSTOM("shuntfs_transport=uring")`). Default: `cloned`. `auto` takes io_uring where it is available, else
//! cloned devices. `SHUNTFS_FUSER_QUEUES` says how many threads take requests; default: [`Config::n_threads`], and on
//! io_uring one for each CPU. In any case no more calls run at once than [`Config::n_threads`] says.
//!
//! `docs/fuser.md` says where it differs from fuser.

mod attr;
mod backing;
mod config;
mod dispatch;
mod errno;
#[cfg(feature = "experimental")]
pub mod experimental;
mod filesystem;
mod flags;
mod handshake;
mod ids;
mod init_flags;
mod kernel_config;
mod mount;
mod notify;
mod reply;
mod reply_dir;
mod reply_open;
mod request;
mod sender;
mod serve;
mod session;
mod spawn;
mod time;
mod transport;

pub use attr::{FileAttr, FileType, TimeOrNow};
pub use backing::BackingId;
pub use config::{Config, MountOption, SessionACL};
pub use errno::Errno;
pub use filesystem::Filesystem;
pub use flags::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, FopenFlags, IoctlFlags, OpenAccMode, OpenFlags,
    PollEvents, PollFlags, RenameFlags, WriteFlags, consts,
};
pub use ids::{FileHandle, ForgetOne, Generation, INodeNo, LockOwner, RequestId, Version};
pub use init_flags::InitFlags;
pub use kernel_config::KernelConfig;
pub use notify::{Notifier, PollHandle, PollNotifier};
pub use reply::{
    ReplyAttr, ReplyBmap, ReplyData, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLock, ReplyLseek, ReplyPoll,
    ReplyStatfs, ReplyWrite, ReplyXattr,
};
pub use reply_dir::{ReplyDirectory, ReplyDirectoryPlus};
pub use reply_open::{ReplyCreate, ReplyOpen};
pub use request::Request;
pub use session::{BackgroundSession, Session, SessionUnmounter};
pub use spawn::{mount, mount2, spawn_mount, spawn_mount2};
