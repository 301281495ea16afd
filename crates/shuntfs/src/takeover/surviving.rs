//! File systems with state, of which what must survive a server is kept outside of it.

use std::error::Error;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use shuntfs_sys::descriptors::LeftDescriptors;
use shuntfs_sys::{FuseDevice, OsError, stat_of};
use shuntfs_wire::{Fh, NodeId, Result};

use super::store::{KeptCounters, KeptNodes, LeftNodes, OpenRecord, Store, Table};
use crate::args::OpSet;
use crate::backing::{BackingId, Registrar};
use crate::delegation::Delegation;
use crate::filesystem::Filesystem;
use crate::flow::Worth;
use crate::nodes::SettledOpen;
use crate::server::Open;

/// A file system whose state survives its server: nodes, open files and folders, and what is in passthrough. To implement it is a promise
/// that a new value of the type, made in another process as the first one was made and told what was kept, goes on where that one was.
///
/// The descriptors that are named to be kept must be in a table that outlives the server, as they are where `shuntfs-keeper` keeps the mount.
///
/// - A node is kept ([`KeptNodes::keep`]) before the kernel hears of it, and every lookup is counted there before it is answered. Of two that
///   race for one inode one alone is kept.
/// - What an operation changes below may have been changed already: where [`Cx::is_begun`](crate::Cx::is_begun), a server died between the
///   begin and the answer. Where a name must be made and is there, it is this request's; where one must be removed and is gone, it was
///   removed; where one must be moved, and it is at the other place and no longer at the first, it was moved. Nobody else on the mount can have done
///   it, because the caller holds the lock of the folder. Reading, writing and setting attributes is simply done again.
/// - What was done and not answered is answered by the library, without the file system.
/// - An operation that ends the server again and again is answered EIO: the third server that dies of a request is the last.
///
/// POLL must not be among the operations ([`TakeoverError::Keeps`](super::TakeoverError::Keeps)), nor POSIX locks and flock unless it keeps them
/// ([`Surviving::keeps_locks`]): the kernel then sees to locks itself. A request that waits for a lock comes again, and waits once more.
pub trait Surviving: Filesystem {
    /// Takes the place where nodes are kept, and those that predecessors knew: none for the first server. Called once, before any request.
    /// An error of `left` must be passed on.
    ///
    /// # Errors
    /// Why it cannot go on with them. The connection is then as it was.
    fn take_nodes(&self, nodes: KeptNodes, left: LeftNodes) -> std::result::Result<(), NotTaken>;

    /// Whether locks survive, too: who holds them, so that they can be given back, and that a request for a lock that is held already by the same
    /// owner is granted. Default: they do not.
    fn keeps_locks(&self) -> bool {
        false
    }

    /// All that a predecessor had open and nobody needs is closed, and no request has come yet. Default: nothing may be done then.
    fn settled(&self) {}

    /// What must be kept of an open file: whatever [`Surviving::take_file`] needs. Called inline, before the open is answered.
    fn keep_file<'f>(&self, file: &'f Self::File) -> KeptOpen<'f>;

    /// An open file again, and how its bytes flow: as its open had been answered, because the kernel knows no better. `None` where the node is
    /// not known any more: the kernel has closed the file, and told that it forgot the node before it told of the close.
    ///
    /// # Errors
    /// Why it cannot be.
    fn take_file(
        &self,
        node: NodeId,
        left: LeftOpen,
    ) -> std::result::Result<Option<(Self::File, Delegation)>, NotTaken>;

    /// What must be kept of an open folder.
    fn keep_dir<'f>(&self, dir: &'f Self::Dir) -> KeptOpen<'f>;

    /// An open folder again. Cookies of listings lead to where they led. `None` as for [`Surviving::take_file`].
    ///
    /// # Errors
    /// Why it cannot be.
    fn take_dir(&self, node: NodeId, left: LeftOpen) -> std::result::Result<Option<Self::Dir>, NotTaken>;
}

/// Why what was kept cannot be gone on with.
pub type NotTaken = Box<dyn Error + Send + Sync>;

/// What a descriptor leads to, so that a wrong one is known.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FileIdentity {
    /// Of the lower file system: major and minor number, 32 bits each.
    pub device: u64,
    /// The number of its inode.
    pub inode: u64,
}

impl FileIdentity {
    /// Asks the kernel, by one call.
    ///
    /// # Errors
    /// Those of statx(2).
    pub fn of(file: impl AsFd) -> std::result::Result<Self, OsError> {
        let found = stat_of(file)?;
        Ok(Self { device: u64::from(found.dev.major) << 32 | u64::from(found.dev.minor), inode: found.ino })
    }
}

/// What is kept of something open.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeptOpen<'f> {
    /// A descriptor that stays open for as long as the file does, and what it leads to.
    pub file: Option<(BorrowedFd<'f>, FileIdentity)>,
    /// What else is needed.
    pub words: [u64; 2],
}

/// What a predecessor has kept of something open.
#[derive(Debug)]
pub struct LeftOpen {
    /// The descriptor, of which it is known that it leads to what it led to.
    pub file: Option<OwnedFd>,
    /// What else was kept.
    pub words: [u64; 2],
}

/// What a connection leaves behind when its server has died.
#[derive(Debug)]
pub struct LeftBehind {
    /// A duplicate of the device.
    pub device: FuseDevice,
    /// Duplicates of the clones that requests were read through.
    pub clones: Vec<FuseDevice>,
    /// The file in memory that has the state.
    pub state: OwnedFd,
    /// Everything that dead servers had open. What is not needed is closed.
    pub descriptors: LeftDescriptors,
    /// Which deaths are held against a request.
    pub deaths: Deaths,
}

/// How many servers may die of one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deaths {
    /// So many; the next one answers it with EIO.
    pub max: u8,
    /// Whether those do not count that have died so far, because they were of another program.
    pub anew: bool,
}

impl Default for Deaths {
    fn default() -> Self {
        Self { max: 3, anew: false }
    }
}

/// What the library itself would have to keep, and does not.
pub(super) const KEPT: [(OpSet, &str); 3] =
    [(OpSet::POSIX_LOCKS, "POSIX_LOCKS"), (OpSet::FLOCK_LOCKS, "FLOCK_LOCKS"), (OpSet::POLL, "POLL")];

/// The same, of this file system.
pub(super) fn kept_of<F: Surviving>(fs: &F) -> &'static [(OpSet, &'static str)] {
    if fs.keeps_locks() { &KEPT[2..] } else { &KEPT }
}

/// Writes down what is open.
pub(crate) struct Keeps<F: Filesystem> {
    pub(super) store: Arc<Store>,
    file: for<'f> fn(&F, &'f F::File) -> KeptOpen<'f>,
    dir: for<'f> fn(&F, &'f F::Dir) -> KeptOpen<'f>,
}

impl<F: Filesystem> Keeps<F> {
    pub(super) fn new(store: Arc<Store>) -> Self
    where
        F: Surviving,
    {
        Self { store, file: F::keep_file, dir: F::keep_dir }
    }

    /// The place of what queues count.
    pub(crate) fn counters(&self) -> Option<KeptCounters> {
        KeptCounters::take(&self.store)
    }

    /// Registers lower files so that a successor knows of it.
    pub(crate) fn registrar(&self, device: &Arc<FuseDevice>) -> Arc<dyn Registrar> {
        Arc::new(Noting { device: Arc::clone(device), store: Arc::clone(&self.store) })
    }

    /// Notes an open file, by the request of that number.
    ///
    /// # Errors
    /// ENFILE where there are too many, ENOMEM.
    pub(crate) fn file_opened(
        &self,
        fs: &F,
        fh: Fh,
        open: &Open<F::File>,
        (settled, worth, unique): (&SettledOpen, Worth, u64),
    ) -> Result<()> {
        let KeptOpen { file, words } = (self.file)(fs, &open.file);
        let record = OpenRecord {
            node: open.node,
            unique,
            counted: open.counted,
            worth,
            flows: settled.flows,
            backing: settled.backing.map_or(0, |id| id.0),
            descriptor: file.map(|(file, identity)| (file.as_raw_fd(), identity)),
            words,
        };
        self.store.opened(Table::Files, fh, &record)
    }

    pub(crate) fn file_closes(&self, fh: Fh) {
        self.store.closes(Table::Files, fh);
    }

    /// Notes an open folder, by the request of that number.
    ///
    /// # Errors
    /// ENFILE where there are too many, ENOMEM.
    pub(crate) fn folder_opened(
        &self,
        fs: &F,
        fh: Fh,
        (node, unique): (NodeId, u64),
        dir: &F::Dir,
    ) -> Result<()> {
        let KeptOpen { file, words } = (self.dir)(fs, dir);
        let descriptor = file.map(|(file, identity)| (file.as_raw_fd(), identity));
        self.store.opened(
            Table::Folders,
            fh,
            &OpenRecord { descriptor, words, ..OpenRecord::of_folder(node, unique) },
        )
    }

    pub(crate) fn folder_closes(&self, fh: Fh) {
        self.store.closes(Table::Folders, fh);
    }
}

/// Registers with the kernel, and writes down what it did.
#[derive(Debug)]
struct Noting {
    device: Arc<FuseDevice>,
    store: Arc<Store>,
}

impl Registrar for Noting {
    fn register(&self, lower: BorrowedFd<'_>) -> std::result::Result<BackingId, OsError> {
        let id = self.device.register(lower)?;
        self.store.backing_registered(id.0);
        Ok(id)
    }

    fn unregister(&self, id: BackingId) {
        // In this order: a number that is gone and noted is tried again, one that is there and not noted would stay.
        self.device.unregister(id);
        self.store.backing_goes(id.0);
    }
}
