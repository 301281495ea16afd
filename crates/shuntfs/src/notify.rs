//! Notifications: what the file system tells the kernel without being asked.

use std::collections::HashMap;
use std::io::IoSlice;
use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::time::Duration;

use parking_lot::Mutex;
use shuntfs_sys::OsError;
use shuntfs_sys::device::FuseDevice;
use shuntfs_wire::{Errno, Name, NodeId, Notification, Unique};
use thiserror::Error;

use crate::poll::PollHandle;
use crate::server::Core;

/// How long the kernel may take to hand over what it has cached: it waits for nothing but a queue.
const RETRIEVE_LIMIT: Duration = Duration::from_secs(10);

/// Tells the kernel what has changed behind its back.
///
/// Never to be used from inside a request, nor from a thread that serves requests, but for [`Notifier::attributes`],
/// [`Notifier::new_epoch`], [`Notifier::poll`] and [`Notifier::doubt`], which wait for nothing: the kernel takes locks
/// that the caller of a request holds while it waits for the answer. [`Notifier::entry`], [`Notifier::expire`]
/// and [`Notifier::delete`] take the folder's lock, which LOOKUP and READDIR hold shared and every change of
/// its names holds alone; [`Notifier::data`] waits for pages that READ and WRITE have locked;
/// [`Notifier::store`] locks pages. Use a thread of your own, and hold no lock of the file system's that a
/// request needs.
#[derive(Clone, Debug)]
pub struct Notifier {
    core: Weak<Core>,
}

/// Why a notification had no effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum NotifyError {
    /// The kernel does not know the node or the name: there was nothing to be told.
    #[error("the kernel does not know it")]
    Unknown,
    /// The session has ended.
    #[error("the session has ended")]
    Ended,
    /// The kernel is too old for it, or does not have it on this transport.
    #[error("the kernel does not have this notification here")]
    Unsupported,
    /// The kernel refused it for another reason.
    #[error("the kernel refused it: {0}")]
    Refused(Errno),
}

impl Notifier {
    pub(crate) fn new(core: Weak<Core>) -> Self {
        Self { core }
    }

    /// A node's attributes and ACLs are no longer what the kernel keeps.
    ///
    /// # Errors
    /// [`NotifyError`].
    pub fn attributes(&self, node: NodeId) -> Result<(), NotifyError> {
        self.send(&Notification::InvalInode { node, offset: -1, len: 0 })
    }

    /// A node's attributes and its data from `offset` on are no longer what the kernel keeps; `len` of 0 is
    /// "to the end". For a folder, the cached listing.
    ///
    /// # Errors
    /// [`NotifyError`].
    pub fn data(&self, node: NodeId, offset: u64, len: u64) -> Result<(), NotifyError> {
        let offset = i64::try_from(offset).map_err(|_| NotifyError::Refused(Errno::INVAL))?;
        let len = i64::try_from(len).map_err(|_| NotifyError::Refused(Errno::INVAL))?;
        self.send(&Notification::InvalInode { node, offset, len })
    }

    /// A name no longer stands for what the kernel thinks; its dentry goes.
    ///
    /// # Errors
    /// [`NotifyError`].
    pub fn entry(&self, parent: NodeId, name: Name<'_>) -> Result<(), NotifyError> {
        self.send(&Notification::InvalEntry { parent, name, expire_only: false })
    }

    /// A name must be looked up again before it is trusted.
    ///
    /// # Errors
    /// [`NotifyError`].
    pub fn expire(&self, parent: NodeId, name: Name<'_>) -> Result<(), NotifyError> {
        self.send(&Notification::InvalEntry { parent, name, expire_only: true })
    }

    /// A name was removed, and watchers are to hear of it.
    ///
    /// # Errors
    /// [`NotifyError`].
    pub fn delete(&self, parent: NodeId, child: NodeId, name: Name<'_>) -> Result<(), NotifyError> {
        self.send(&Notification::Delete { parent, child, name })
    }

    /// Puts bytes into the page cache of a node.
    ///
    /// # Errors
    /// [`NotifyError`].
    pub fn store(&self, node: NodeId, offset: u64, data: &[u8]) -> Result<(), NotifyError> {
        self.send(&Notification::Store { node, offset, data })
    }

    /// Takes bytes out of the page cache of a node, `len` at most and one payload at most: those that are cached from `offset` on,
    /// which may be none. Waits for the kernel's answer, which a queue takes, for ten seconds at most.
    ///
    /// # Errors
    /// [`NotifyError`]; ETIMEDOUT where no answer came. [`NotifyError::Unsupported`] on io_uring, where the kernel's answer never
    /// comes (seen with Linux 6.18).
    pub fn retrieve(&self, node: NodeId, offset: u64, len: u32) -> Result<Vec<u8>, NotifyError> {
        let (tell, told) = mpsc::sync_channel(1);
        let core = self.core.upgrade().ok_or(NotifyError::Ended)?;
        if core.nodes.has_ring() {
            return Err(NotifyError::Unsupported);
        }
        let unique = core.retrievals.begin(tell);
        drop(core);
        let size = len;
        let asked = self.send(&Notification::Retrieve { unique, node, offset, size });
        let got = match asked {
            Ok(()) => told.recv_timeout(RETRIEVE_LIMIT).map_err(|_| NotifyError::Refused(Errno::TIMEDOUT)),
            Err(error) => Err(error),
        };
        if let Some(core) = self.core.upgrade() {
            core.retrievals.end(unique);
        }
        got
    }

    /// Tells who polls a file that it may be ready for something else now; they ask again. That nobody waits any more is as good.
    ///
    /// # Errors
    /// [`NotifyError`].
    pub fn poll(&self, waiter: PollHandle) -> Result<(), NotifyError> {
        self.send(&Notification::Poll { kh: waiter.0 })
    }

    /// Has every request that was read but not answered sent again, those of this session, too. Does not reach requests on
    /// io_uring. Whoever takes a connection over has it done by [`Session::take_over`](crate::Session::take_over).
    ///
    /// # Errors
    /// [`NotifyError`]; [`NotifyError::Unsupported`] before Linux 6.9.
    pub fn resend(&self) -> Result<(), NotifyError> {
        self.send(&Notification::Resend)
    }

    /// Has every name looked up again before it is trusted. Attributes stay, and so may cached listings.
    ///
    /// # Errors
    /// [`NotifyError`].
    pub fn new_epoch(&self) -> Result<(), NotifyError> {
        self.send(&Notification::IncEpoch)
    }

    /// Has the kernel look a name up again, and ask again for the folder's listing and attributes, because a change of the
    /// name failed half way: the kernel believes that it failed as a whole. From inside of the request that failed: where
    /// the kernel has no epochs (before Linux 6.16) a thread of its own waits for the folder's lock. No error is told, because
    /// there is one already.
    pub fn doubt(&self, parent: NodeId, name: Name<'_>) {
        let told = [self.attributes(parent), self.new_epoch()];
        let later = told.contains(&Err(NotifyError::Unsupported)).then(|| {
            let (notifier, name) = (self.clone(), name.as_c_str().to_owned());
            let tell = move || {
                let told = [
                    Name::new(&name).map_or(Ok(()), |name| notifier.entry(parent, name)),
                    notifier.data(parent, 0, 0),
                ];
                told.into_iter().for_each(heed);
            };
            std::thread::Builder::new().name("fuse-doubt".into()).spawn(tell)
        });
        told.into_iter().for_each(heed);
        if let Some(Err(error)) = later {
            tracing::warn!(%error, "the kernel may believe for a while that a name is not there");
        }
    }

    /// Has the kernel forget these nodes where nothing uses them, so that FORGETs come.
    ///
    /// # Errors
    /// [`NotifyError`].
    pub fn prune(&self, nodes: &[NodeId]) -> Result<(), NotifyError> {
        self.send(&Notification::Prune { nodes })
    }

    /// Lets go of a node's backing id: at once, or with its last close where it is open in passthrough. The kernel holds the lower
    /// file by it, and so keeps the lower file system from being unmounted.
    pub fn drop_backing(&self, node: NodeId) {
        if let Some(core) = self.core.upgrade() {
            core.nodes.drop_backing(node);
        }
    }

    fn send(&self, notification: &Notification<'_>) -> Result<(), NotifyError> {
        let core = self.core.upgrade().ok_or(NotifyError::Ended)?;
        tell(&core.device, notification)
    }
}

/// Sends a notification on any descriptor of the connection.
pub(crate) fn tell(device: &FuseDevice, notification: &Notification<'_>) -> Result<(), NotifyError> {
    let mut message = Vec::new();
    notification.encode(&mut message);
    match device.write(&[IoSlice::new(&message)]) {
        Ok(_) => Ok(()),
        Err(OsError::NOENT) => Err(NotifyError::Unknown),
        Err(OsError::NODEV | OsError::NOTCONN | OsError::PERM | OsError::CONNABORTED) => {
            Err(NotifyError::Ended)
        }
        Err(OsError::INVAL) => Err(NotifyError::Unsupported),
        Err(error) => Err(NotifyError::Refused(Errno::from_lower(error.raw_os_error()))),
    }
}

/// Says what nobody waits for.
fn heed(told: Result<(), NotifyError>) {
    match told {
        Ok(()) | Err(NotifyError::Ended | NotifyError::Unknown | NotifyError::Unsupported) => {}
        Err(error) => tracing::warn!(%error, "the kernel may believe for a while what is not so any more"),
    }
}

/// Who waits for which NOTIFY_REPLY.
#[derive(Debug, Default)]
pub(crate) struct Retrievals {
    begun: AtomicU64,
    waiting: Mutex<HashMap<u64, SyncSender<Vec<u8>>>>,
}

impl Retrievals {
    /// The number of a new one. Requests of the kernel's own have even numbers, which count up from zero, and those that it sends
    /// again have the top bit ([`shuntfs_wire::abi::UNIQUE_RESEND`]).
    fn begin(&self, tell: SyncSender<Vec<u8>>) -> u64 {
        let unique = 1 << 62 | self.begun.fetch_add(1, Ordering::Relaxed) << 1 | 1;
        self.waiting.lock().insert(unique, tell);
        unique
    }

    fn end(&self, unique: u64) {
        self.waiting.lock().remove(&unique);
    }

    /// A NOTIFY_REPLY came. That nobody waits for it any more is as good.
    pub(crate) fn arrived(&self, unique: Unique, data: &[u8]) {
        let tell = self.waiting.lock().remove(&unique.0);
        if let Some(tell) = tell {
            drop(tell.try_send(data.to_vec()));
        }
    }
}
