//! The lower mounts: the branch's own, and every other file system that is mounted below the source.
//!
//! A mount is noticed when a name leads into it. It is held by a descriptor from then on, so its id cannot be
//! used again, and what was there stays reachable; unmounting it below gives EBUSY while the pool lives.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::RwLock;
use shuntfs::{Errno, Result};
use shuntfs_sys::{FsMagic, filesystem_of, handle_of, mounts, open_by_handle, reopen, stat_of};

use crate::error::errno;
use crate::mode;
use crate::node::device_number;

/// One lower mount.
#[derive(Debug)]
pub(crate) struct Mount {
    /// Its place in the table, as nodes name it.
    pub(crate) index: u32,
    /// The kernel's mount id.
    pub(crate) id: u64,
    /// The kind of file system.
    pub(crate) magic: FsMagic,
    /// Open for reading, because handles cannot be opened through `O_PATH`; `None` where handles are not to be
    /// had, for lack of support or of `CAP_DAC_READ_SEARCH`.
    anchor: Option<OwnedFd>,
}

impl Mount {
    /// Gets to know the mount that `root` (or any file on it, `O_PATH`) is on.
    pub(crate) fn of(index: u32, id: u64, root: &OwnedFd) -> shuntfs_sys::Result<Self> {
        let magic = filesystem_of(root)?.magic;
        Ok(Self { index, id, magic, anchor: usable_anchor(root) })
    }

    /// Whether nodes on it are reached by handle.
    pub(crate) fn has_handles(&self) -> bool {
        self.anchor.is_some()
    }

    #[cfg(test)]
    pub(crate) fn without_handles(mut self) -> Self {
        self.anchor = None;
        self
    }

    /// Opens what a handle means, `O_PATH`.
    pub(crate) fn open(&self, handle: &shuntfs_sys::FileHandle) -> shuntfs_sys::Result<OwnedFd> {
        let anchor = self.anchor.as_ref().expect("a node has a handle only where its mount takes handles");
        open_by_handle(anchor, handle, mode::O_PATH | mode::O_NOFOLLOW)
    }
}

/// A descriptor that handles can be opened through: tried out, because support, privilege and the file
/// system's own limits show in no other way.
fn usable_anchor(root: &OwnedFd) -> Option<OwnedFd> {
    let stat = stat_of(root).ok()?;
    if !stat.is_dir() && !stat.is_file() {
        // Opening a device may do something.
        return None;
    }
    let (handle, _) = handle_of(root).ok()?;
    let anchor = reopen(root, mode::O_RDONLY | mode::O_NONBLOCK).ok()?;
    match open_by_handle(&anchor, &handle, mode::O_PATH | mode::O_NOFOLLOW) {
        Ok(_) => Some(anchor),
        Err(error) => {
            tracing::info!(%error, "no access by file handle: each node keeps a descriptor");
            None
        }
    }
}

/// All of them; index 0 is the branch's own.
#[derive(Debug)]
pub(crate) struct Mounts {
    known: RwLock<Vec<Arc<Mount>>>,
}

impl Mounts {
    pub(crate) fn new(own: Mount) -> Self {
        Self { known: RwLock::new(vec![Arc::new(own)]) }
    }

    /// The mount with this place in the table.
    pub(crate) fn at(&self, index: u32) -> Arc<Mount> {
        let index = usize::try_from(index).expect("an index of a Vec");
        Arc::clone(&self.known.read()[index])
    }

    /// The mount with this id, if it is known.
    pub(crate) fn find(&self, id: u64) -> Option<Arc<Mount>> {
        self.known.read().iter().find(|mount| mount.id == id).cloned()
    }

    /// The mount that `fd` is on; noted where it is new.
    ///
    /// # Errors
    /// ELOOP for the mount that this process itself serves: whoever asked it would wait for itself.
    pub(crate) fn find_or_note(&self, id: u64, fd: &OwnedFd) -> Result<Arc<Mount>> {
        if let Some(mount) = self.find(id) {
            return Ok(mount);
        }
        if is_served_here(id) {
            tracing::warn!("the mount point lies below the source; it is not shown inside itself");
            return Err(Errno::LOOP);
        }
        // Asked outside of the lock: another file system may take its time.
        let found = Mount::of(0, id, fd).map_err(errno)?;
        let mut known = self.known.write();
        if let Some(mount) = known.iter().find(|mount| mount.id == id) {
            return Ok(Arc::clone(mount));
        }
        let index = u32::try_from(known.len()).map_err(|_| Errno::NOMEM)?;
        let mount = Arc::new(Mount { index, ..found });
        known.push(Arc::clone(&mount));
        Ok(mount)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.known.read().len()
    }
}

/// Whether this process holds the FUSE device that serves the mount. Asked once for each mount, and without a
/// request to the mounted file system, which may be ourselves.
fn is_served_here(id: u64) -> bool {
    let Ok(all) = mounts() else { return false };
    let is_it = |mount: &&shuntfs_sys::MountInfo| u64::try_from(mount.id).is_ok_and(|known| known == id);
    let Some(mount) = all.iter().find(is_it) else { return false };
    if !mount.fs_type.starts_with("fuse") {
        return false;
    }
    let connection = mount.dev.1;
    let Ok(descriptors) = std::fs::read_dir("/proc/self/fdinfo") else { return false };
    descriptors.flatten().any(|entry| {
        let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
        text.lines()
            .filter_map(|line| line.strip_prefix("fuse_connection:"))
            .any(|number| number.trim().parse() == Ok(connection))
    })
}

/// Inode numbers of other devices than the branch's are changed in their top 24 bits by their device, so that
/// they do not meet the branch's own; the same device always gives the same change.
pub(crate) fn shown_ino(ino: u64, device: shuntfs_sys::Device, own: u32) -> u64 {
    let device = device_number(device);
    if device == own { ino } else { ino ^ (crate::node::mix(u64::from(device)) & !0xff_ffff_ffff) }
}

#[cfg(test)]
mod test {
    use super::*;
    use shuntfs_sys::Device;

    #[test]
    fn inode_numbers_of_devices_do_not_meet() {
        let own = device_number(Device { major: 8, minor: 1 });
        assert_eq!(shown_ino(2, Device { major: 8, minor: 1 }, own), 2);
        let mut seen: Vec<_> = (2..200).map(|minor| shown_ino(2, Device { major: 8, minor }, own)).collect();
        seen.push(2);
        seen.sort_unstable();
        let all = seen.len();
        seen.dedup();
        assert_eq!(seen.len(), all);
        let other = Device { major: 8, minor: 7 };
        assert_eq!(shown_ino(5, other, own), shown_ino(5, other, own));
        assert_eq!(shown_ino(5, other, own) & 0xff_ffff_ffff, 5);
    }
}
