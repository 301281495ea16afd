//! Where the lower inode of a node is, and how it is reached.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use shuntfs::LowerFile;
use shuntfs_sys::FileHandle;

use super::identity::Identity;
use crate::branch::MountIndex;

/// A lower inode, and the hold on it: by file handle through a cached `O_PATH` descriptor, or, where the lower file system
/// has no handles, by a descriptor that is always open.
#[derive(Debug)]
pub(crate) struct Place {
    inode: Identity,
    /// The `O_PATH` descriptor, cached or pinned.
    descriptor: Mutex<Option<Arc<LowerFile>>>,
    /// Where the file is instead, since it was moved to another branch. It stays, because others may be looking at it; a file is not moved so
    /// often that this would matter.
    next: OnceLock<Box<Self>>,
}

impl Place {
    pub(crate) fn new(inode: Identity) -> Self {
        Self { inode, descriptor: Mutex::new(None), next: OnceLock::new() }
    }

    /// Where the file is now, and how often it was moved.
    pub(super) fn now(&self) -> (&Self, usize) {
        let (mut here, mut moves) = (self, 0);
        while let Some(next) = here.next.get() {
            here = next;
            moves += 1;
        }
        (here, moves)
    }

    /// The file was moved from here to there. Only one does so at a time.
    pub(super) fn moved(&self, there: Self) {
        let is_first = self.next.set(Box::new(there)).is_ok();
        assert!(is_first, "a file is moved from where it is");
    }

    /// Which inode is there.
    pub(crate) fn inode(&self) -> &Identity {
        &self.inode
    }

    /// The mount that it is on, and so the branch.
    pub(crate) fn mount(&self) -> MountIndex {
        self.inode.mount
    }

    /// What it is opened by where there is no descriptor.
    pub(crate) fn handle(&self) -> Option<&FileHandle> {
        self.inode.handle.as_ref()
    }

    /// The descriptor, where it is open.
    pub(crate) fn held(&self) -> Option<Arc<LowerFile>> {
        self.descriptor.lock().clone()
    }

    /// Whether the descriptor is open.
    pub(crate) fn is_held(&self) -> bool {
        self.descriptor.lock().is_some()
    }

    /// Keeps a descriptor unless there is one; the one that is kept, and whether it is the given one.
    pub(crate) fn keep(&self, descriptor: Arc<LowerFile>) -> (Arc<LowerFile>, bool) {
        let mut held = self.descriptor.lock();
        match &*held {
            Some(earlier) => (Arc::clone(earlier), false),
            None => {
                *held = Some(Arc::clone(&descriptor));
                (descriptor, true)
            }
        }
    }

    /// Gives the descriptor up, unless it must stay, which is asked while nobody can take or change it.
    pub(crate) fn give_up(&self, must_stay: impl FnOnce() -> bool) -> Option<Arc<LowerFile>> {
        let mut held = self.descriptor.lock();
        if must_stay() { None } else { held.take() }
    }
}
