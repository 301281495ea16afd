//! The system calls that shuntfs makes, behind a safe interface.
//!
//! One family of calls a module. Everything takes descriptors, not paths, follows no symlink that it was not asked to,
//! and opens close-on-exec. The crate knows no protocol and keeps no state beyond a descriptor of `/proc/self/fd`,
//! what a thread was prepared to be ([`identity`]), whether rings are forbidden ([`uring::forbid_rings`]), and where reads of devices are
//! counted ([`pulse`]).

pub mod attrs;
pub mod bulkstat;
pub mod calls;
pub mod caps;
pub mod child;
pub mod data;
pub mod descriptors;
pub mod device;
pub mod dir;
pub mod event;
pub mod handle;
pub mod identity;
pub mod ioctl;
pub mod kernel;
pub mod lease;
pub mod let_go;
pub mod limits;
pub mod locks;
pub mod lookers;
pub mod memory;
pub mod mount;
pub mod names;
pub mod open;
pub mod passing;
pub mod placed;
pub mod process;
pub mod program;
pub mod pulse;
pub mod region;
pub mod regular;
pub mod sched;
pub mod shared_words;
pub mod signal;
pub mod spawn;
pub mod stat;
pub mod threads;
pub mod trusted;
pub mod uring;
pub mod verity;
pub mod xattr;

mod access_times;
mod faults;
mod fusectl;
mod fusermount;
mod mountinfo;
mod peer;
mod proc_fd;
mod raw;
mod splice;
mod statfs;

pub use access_times::{AccessTime, AccessTimes, open_with_access_times};
pub use attrs::{TimeSet, chmod, chown, set_times, truncate};
pub use caps::Cap;
pub use device::FuseDevice;
pub use dir::{DirReader, DirRecord};
pub use event::EventFd;
#[cfg(feature = "faults")]
pub use faults::{Failed, Faults};
pub use handle::{FileHandle, handle_at, handle_of, open_by_handle};
pub use identity::{Caller, ThreadIdentity, as_caller, prepare_thread, with_fsetid};
pub use lease::{give_back_lease, is_undisturbed, take_read_lease};
pub use let_go::let_go;
pub use locks::{FlockOp, HeldLock, LockKind, LockSpec, flock, ofd_lock, ofd_test};
pub use mount::{MountError, MountInfo, MountOptions, MountRequest, mounts};
pub use names::{
    link_to, mkdir_at, mknod_at, path_of, readlink_of, rename_at, rmdir_at, symlink_at, unlink_at,
};
pub use open::{CWD, open_at, open_folder, open_path_at, open_target, reopen, tmpfile_at};
pub use peer::{Peer, PeerEnd};
pub use rustix::io::Errno as OsError;
pub use signal::{Signal, SignalFd};
pub use stat::{
    Device, FsMagic, FsStat, Stat, Time, decode_dev, encode_dev, filesystem_of, stat_at, stat_of,
};
pub use xattr::{get_xattr, list_xattr, remove_xattr, set_xattr};

/// The result of a system call.
pub type Result<T> = std::result::Result<T, OsError>;
