//! The lower mounts of a branch: its own, and every other file system that is mounted below the source.
//!
//! A mount is noticed when a name leads into it. Where it takes handles it is held by a descriptor from then on, so
//! its id cannot be used again, and what was there stays reachable; unmounting it below gives EBUSY while the pool
//! lives. Where it takes none, its nodes hold it, and nothing that is kept of it here can mislead a later mount.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use shuntfs::{Errno, Result};
use shuntfs_sys::bulkstat::xfs_generation;
use shuntfs_sys::{
    AccessTimes, Device, FsMagic, MountInfo, OsError, filesystem_of, handle_of, let_go, mounts,
    open_by_handle, open_with_access_times, reopen, stat_of,
};

use super::twins::Tree;
use crate::error::errno;
use crate::mode;
use crate::node::{Identity, device_number};

/// Which lower mount of a pool: its branch, and its place in the branch's table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct MountIndex {
    pub(crate) branch: u16,
    mount: u16,
}

impl MountIndex {
    /// No mount: what has it is not one lower inode.
    pub(crate) const NOWHERE: Self = Self { branch: u16::MAX, mount: u16::MAX };

    /// Of what was on a branch that is gone. No branch has this number.
    pub(crate) const GONE: Self = Self { branch: u16::MAX, mount: 0 };

    /// The mount that the branch with this number is on.
    pub(crate) fn own(branch: u16) -> Self {
        Self { branch, mount: 0 }
    }

    /// Whether it is the branch's own.
    pub(crate) fn is_own(self) -> bool {
        self.mount == 0
    }

    /// Both numbers in one.
    pub(crate) fn bits(self) -> u32 {
        u32::from(self.branch) << 16 | u32::from(self.mount)
    }

    /// Of both numbers in one.
    pub(crate) fn of_bits(bits: u32) -> Self {
        let [branch_high, branch_low, high, low] = bits.to_be_bytes();
        Self { branch: u16::from_be_bytes([branch_high, branch_low]), mount: u16::from_be_bytes([high, low]) }
    }

    #[cfg(test)]
    pub(crate) fn other(mount: u16) -> Self {
        Self { branch: 0, mount }
    }
}

/// One lower mount.
#[derive(Debug)]
pub(crate) struct Mount {
    /// Its place in the table, as nodes name it.
    pub(crate) index: MountIndex,
    /// The kernel's mount id.
    pub(crate) id: u64,
    /// The device of the file system as such, whatever its files show.
    device: (u32, u32),
    /// Which folder of the file system is mounted, and where; `None` where the kernel does not list it here.
    place: Option<(PathBuf, PathBuf)>,
    /// It gives what is new the group of its folder (`grpid`).
    pub(crate) gives_group: bool,
    /// The kind of file system.
    pub(crate) magic: FsMagic,
    /// Open for reading, because handles cannot be opened through `O_PATH`; `None` where handles are not
    /// available, for lack of support or of `CAP_DAC_READ_SEARCH`.
    anchor: Option<OwnedFd>,
    /// The same file system on a mount of our own, where times of access must be kept otherwise than on this one.
    timed: Option<OwnedFd>,
}

impl Mount {
    /// Gets to know the mount that `root` (or any file on it, `O_PATH`) is on.
    pub(crate) fn of(
        index: MountIndex,
        id: u64,
        root: &OwnedFd,
        times: AccessTimes,
    ) -> shuntfs_sys::Result<Self> {
        let below = filesystem_of(root)?;
        let listed = listed(id);
        let device = match &listed {
            Some(mount) => mount.dev,
            None => stat_of(root).map(|stat| (stat.dev.major, stat.dev.minor))?,
        };
        let gives_group = listed.as_ref().is_some_and(gives_group);
        let place = listed.map(|mount| (mount.root, mount.mount_point));
        let anchor = usable_anchor(root);
        let differs = !times.are_kept_by(below.flags);
        let timed = if differs { timed_anchor(anchor.as_ref(), times) } else { None };
        Ok(Self { index, id, device, place, gives_group, magic: below.magic, anchor, timed })
    }

    /// The device of its file system as such.
    pub(crate) fn device(&self) -> (u32, u32) {
        self.device
    }

    /// Whether it shows all of its file system, at this place.
    pub(crate) fn is_whole_at(&self, folder: &Path) -> bool {
        self.place.as_ref().is_some_and(|(root, point)| root == Path::new("/") && point == folder)
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

    /// The generation of the inode with this number, where XFS tells.
    ///
    /// # Errors
    /// ESTALE where there is none, else those of [`xfs_generation`].
    pub(crate) fn generation_of(&self, inode: u64) -> shuntfs_sys::Result<u32> {
        xfs_generation(self.anchor.as_ref().ok_or(OsError::OPNOTSUPP)?, inode)
    }

    /// Whether what is read is opened through another mount of the file system than this one.
    pub(crate) fn is_timed(&self) -> bool {
        self.timed.is_some()
    }

    /// Opens what a handle means, `O_PATH`, on the mount that keeps times of access as asked, where there is one. Without
    /// a handle it is what that mount shows as its root.
    pub(crate) fn open_timed(
        &self,
        handle: Option<&shuntfs_sys::FileHandle>,
    ) -> Option<shuntfs_sys::Result<OwnedFd>> {
        let timed = self.timed.as_ref()?;
        Some(match handle {
            Some(handle) => open_by_handle(timed, handle, mode::O_PATH | mode::O_NOFOLLOW),
            None => reopen(timed, mode::O_PATH),
        })
    }
}

/// A mount as the kernel's list has it; its device is, for btrfs, that of all subvolumes.
fn listed(id: u64) -> Option<MountInfo> {
    mounts().ok()?.into_iter().find(|mount| u64::try_from(mount.id) == Ok(id))
}

fn gives_group(mount: &MountInfo) -> bool {
    mount.super_options.split(',').any(|option| matches!(option, "grpid" | "bsdgroups"))
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

/// The file system of `anchor` with times of access as asked; `None` where they cannot be kept so.
fn timed_anchor(anchor: Option<&OwnedFd>, times: AccessTimes) -> Option<OwnedFd> {
    let timed = anchor.ok_or(OsError::OPNOTSUPP).and_then(|anchor| open_with_access_times(anchor, times));
    timed
        .inspect_err(|error| tracing::warn!(%error, "times of access are kept as the lower mount keeps them"))
        .ok()
}

/// How many mounts a pool shows at most; each keeps a descriptor.
const MOUNTS_MAX: usize = 256;

/// All of a branch; the first is its own. Read without a lock, because every lookup does.
#[derive(Debug)]
pub(crate) struct Mounts {
    known: Box<[OnceLock<Mount>]>,
    /// How many there are; held while one is added.
    count: Mutex<usize>,
    /// Whether a file system is mounted more than once.
    has_twins: AtomicBool,
    times: AccessTimes,
}

impl Mounts {
    pub(crate) fn new(own: Mount, times: AccessTimes) -> Self {
        let known: Box<[_]> =
            std::iter::once(own.into()).chain((1..MOUNTS_MAX).map(|_| OnceLock::new())).collect();
        Self { known, count: Mutex::new(1), has_twins: AtomicBool::new(false), times }
    }

    /// The mount with this place in the table.
    pub(crate) fn at(&self, index: MountIndex) -> &Mount {
        let slot = self.known.get(usize::from(index.mount));
        slot.and_then(OnceLock::get).expect("indices are given out for mounts that are noted")
    }

    /// The branch's own.
    pub(crate) fn own(&self) -> &Mount {
        self.at(MountIndex::own(0))
    }

    /// The mount with this id, if it is known.
    pub(crate) fn find(&self, id: u64) -> Option<&Mount> {
        self.known.iter().map_while(OnceLock::get).find(|mount| mount.id == id)
    }

    /// The mount that `fd` is on; noted where it is new.
    ///
    /// # Errors
    /// ELOOP for the mount that this process itself serves: whoever asked it would wait for itself. EMFILE where
    /// there are too many.
    pub(crate) fn find_or_note(&self, id: u64, fd: &OwnedFd) -> Result<&Mount> {
        if let Some(mount) = self.find(id) {
            return Ok(mount);
        }
        if is_served_here(id) {
            tracing::warn!("the mount point lies below the source; it is not shown inside itself");
            return Err(Errno::LOOP);
        }
        // Asked outside of the lock: another file system may take its time.
        let own = self.own().index;
        let found = Mount::of(own, id, fd, self.times).map_err(errno)?;
        let mut count = self.count.lock();
        if let Some(mount) = self.find(id) {
            return Ok(mount);
        }
        let Some(slot) = self.known.get(*count) else {
            tracing::warn!(limit = MOUNTS_MAX, "too many file systems are mounted below the source");
            return Err(Errno::MFILE);
        };
        let index = MountIndex { mount: u16::try_from(*count).expect("at most 256"), ..own };
        *count += 1;
        let has_twin = self.known.iter().map_while(OnceLock::get).any(|mount| mount.device == found.device);
        let mount = slot.get_or_init(|| Mount { index, ..found });
        if has_twin {
            self.has_twins.store(true, Ordering::SeqCst);
        }
        Ok(mount)
    }

    /// Whether a file may have paths through several mounts, with one name only.
    pub(crate) fn has_twins(&self) -> bool {
        self.has_twins.load(Ordering::SeqCst)
    }

    /// The other paths below `source` of what has this one, because its file system is mounted in several places there.
    pub(crate) fn aliases(&self, source: &Path, path: &[u8]) -> Vec<Vec<u8>> {
        let Some((device, inside)) = self.inside(source, path) else { return Vec::new() };
        let mut aliases = self.paths_to(source, device, &inside);
        aliases.retain(|alias| Path::new(OsStr::from_bytes(alias)) != Path::new(OsStr::from_bytes(path)));
        aliases
    }

    /// The file system of what has a path below `source`, and its path inside of that.
    pub(super) fn inside(&self, source: &Path, path: &[u8]) -> Option<((u32, u32), PathBuf)> {
        let absolute = source.join(OsStr::from_bytes(path));
        let (mount, rest) = self.covering(&absolute)?;
        let (root, _) = mount.place.as_ref()?;
        Some((mount.device, root.join(rest)))
    }

    /// The paths below `source` by which mounts of the file system on this device show what has a path inside of it.
    pub(super) fn paths_to(&self, source: &Path, device: (u32, u32), inside: &Path) -> Vec<Vec<u8>> {
        let all = self.known.iter().map_while(OnceLock::get).filter(|mount| mount.device == device);
        let paths = all.filter_map(|mount| {
            let (root, point) = mount.place.as_ref()?;
            let absolute = point.join(inside.strip_prefix(root).ok()?);
            // What is mounted further in hides it there.
            let is_there =
                self.covering(&absolute).is_some_and(|(covering, _)| covering.index == mount.index);
            let path = absolute.strip_prefix(source).ok().filter(|_| is_there)?;
            Some(path.as_os_str().as_bytes().to_owned())
        });
        paths.collect()
    }

    /// What of each file system is shown below `source`: its device, and the folder inside of it; `None` where that is not known.
    pub(super) fn trees(&self, source: &Path) -> Vec<Tree> {
        let tree = |mount: &Mount| {
            let folder = mount.place.as_ref().map(|(root, point)| match source.strip_prefix(point) {
                Ok(rest) => root.join(rest),
                // It is mounted below the source.
                Err(_) => root.clone(),
            });
            (mount.device, folder)
        };
        self.known.iter().map_while(OnceLock::get).map(tree).collect()
    }

    /// The mount that an absolute path is on, and what follows its mount point.
    fn covering<'p>(&self, path: &'p Path) -> Option<(&Mount, &'p Path)> {
        let all = self.known.iter().map_while(OnceLock::get);
        let over = all.filter_map(|mount| {
            let (_, point) = mount.place.as_ref()?;
            Some((mount, point.components().count(), path.strip_prefix(point).ok()?))
        });
        over.max_by_key(|(_, depth, _)| *depth).map(|(mount, _, rest)| (mount, rest))
    }

    /// An inode as it is wherever its file system is mounted: on its device, and on no mount.
    pub(crate) fn home(&self, identity: &Identity) -> Identity {
        let (major, minor) = self.at(identity.mount).device;
        let of_handle = || device_number(Device { major, minor });
        // Without a handle the device is that of the subvolume, which is the same through each mount.
        let device = identity.handle.as_ref().map_or(identity.device, |_| of_handle());
        Identity { mount: MountIndex::NOWHERE, device, ..identity.clone() }
    }

    /// The mounts of the file system on this device.
    pub(super) fn of_device(&self, device: (u32, u32)) -> impl Iterator<Item = MountIndex> {
        let known = self.known.iter().map_while(OnceLock::get);
        known.filter(move |mount| mount.device == device).map(|mount| mount.index)
    }

    /// How many there are, by a look at each and without a lock.
    pub(super) fn noted(&self) -> usize {
        self.known.iter().map_while(OnceLock::get).count()
    }

    /// Has their descriptors lead nowhere.
    ///
    /// # Errors
    /// Those of [`let_go()`]; then some lead where they did.
    pub(crate) fn let_go(&self) -> shuntfs_sys::Result<()> {
        let known = self.known.iter().map_while(OnceLock::get);
        known.flat_map(|mount| mount.anchor.iter().chain(&mount.timed)).try_for_each(let_go)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        *self.count.lock()
    }
}

/// Whether this process holds the FUSE device that serves the mount. Asked once for each mount, and without a
/// request to the mounted file system, which may be ourselves.
pub(super) fn is_served_here(id: u64) -> bool {
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

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn the_number_of_mounts_is_bounded() {
        let root = shuntfs_sys::open_folder(std::path::Path::new("/")).unwrap();
        let times = AccessTimes::default();
        let mounts = Mounts::new(Mount::of(MountIndex::own(3), 1 << 40, &root, times).unwrap(), times);
        for number in 1..MOUNTS_MAX {
            let id = (1 << 40) + u64::try_from(number).unwrap();
            let index = mounts.find_or_note(id, &root).unwrap().index;
            assert_eq!((index.branch, usize::from(index.mount)), (3, number));
            assert_eq!(mounts.find_or_note(id, &root).unwrap().index, index);
        }
        assert_eq!(mounts.len(), MOUNTS_MAX);
        assert_eq!(mounts.find_or_note(1 << 41, &root).err(), Some(Errno::MFILE));
        assert_eq!(mounts.at(MountIndex::other(255)).id, (1 << 40) + 255);
    }
}
