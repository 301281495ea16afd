//! A path on a mount, with the numbers by which the kernel and the server know it.

use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use shuntfs_sys::mount::MountInfo;
use shuntfs_sys::xattr::get_xattr;
use shuntfs_sys::{FileHandle, OsError, Stat, handle, open, stat_of};
use shuntfs_verified::NODE_XATTR;

use crate::control::Spot;
use crate::failure::Failure;
use crate::mounts::{self, Mounts, shown};
use crate::patience::within;

/// How long the mount may take to look up a path.
const PATIENCE: Duration = Duration::from_secs(10);
/// The kernel's type of a handle that FUSE gives (`FILEID_INO64_GEN`, and the same for a handle that only
/// identifies).
const FUSE_HANDLE: i32 = 0x81;

/// The number of a mount's top (`FUSE_ROOT_ID`).
const ROOT: u64 = 1;
/// Who tells the number of a node.
pub(crate) const NODES_ARE_TOLD: &str =
    "Linux 6.6 or newer does; before, the mount does of files that you may read, unless it has --xattrs off";

/// A path on a mount. The kernel knows its nodes as long as this is held.
#[derive(Debug)]
pub(crate) struct Located {
    /// The path, with its folder looked up.
    pub(crate) path: PathBuf,
    /// The path below the mount point.
    pub(crate) below: PathBuf,
    pub(crate) mount: MountInfo,
    pub(crate) spot: Spot,
    /// What exists, where anything is.
    pub(crate) stat: Option<Stat>,
    pub(crate) node: Option<u64>,
    _held: Vec<OwnedFd>,
}

struct Found {
    path: PathBuf,
    folder: OwnedFd,
    file: Option<OwnedFd>,
}

/// Looks up a path. With `follow` it must be there, and a symlink at its end is followed; else its folder must be there.
///
/// # Errors
/// Where that does not exist, it is not on a mount of shunt, or the kernel does not tell nodes.
pub(crate) fn locate(path: &Path, follow: bool) -> Result<Located, Failure> {
    let wanted = path.to_owned();
    let found = within(PATIENCE, move || find(&wanted, follow)).ok_or_else(|| {
        Failure::new(format!("{} cannot be looked up: its mount does not answer", shown(path)))
            .hint("all mounts: shunt list")
    })?;
    let found = found.map_err(|error| {
        let what = if follow { "" } else { "the folder of " };
        let failure = Failure::new(format!("cannot look up {what}{}: {error}", shown(path)));
        match error.kind() {
            // The same to us: a rule can hide a folder from whoever asks, too.
            io::ErrorKind::NotFound => failure.hint("it is not there, or a rule hides it from you"),
            _ => failure,
        }
    })?;
    let list = Mounts::read()?;
    let mount = list.covering(&found.path).filter(|mount| mounts::is_fuse(mount)).ok_or_else(|| {
        Failure::new(format!("{} is not on a mount of shunt", shown(&found.path)))
            .hint("all mounts: shunt list")
    })?;
    of_mount(found, mount.clone())
}

fn of_mount(found: Found, mount: MountInfo) -> Result<Located, Failure> {
    let Found { path, folder, file } = found;
    let Ok(below) = path.strip_prefix(&mount.mount_point).map(Path::to_path_buf) else {
        return Err(Failure::new(format!("{} is not below its mount point", shown(&path))));
    };
    let untold = || Failure::new(format!("nobody tells the node of {}", shown(&path))).hint(NODES_ARE_TOLD);
    // The top of a mount has the same number everywhere.
    let is_top = below.as_os_str().is_empty();
    let node = if is_top { Some(ROOT) } else { file.as_ref().and_then(node_of) };
    let stat = file.as_ref().and_then(|file| stat_of(file).ok());
    // The top of a mount has no name in it.
    let (folder_node, name) = match below.file_name() {
        Some(name) if below.parent() == Some(Path::new("")) => (Some(ROOT), PathBuf::from(name)),
        Some(name) => (node_of(&folder), PathBuf::from(name)),
        None => (node, PathBuf::new()),
    };
    let spot = Spot { folder: folder_node.ok_or_else(untold)?, name };
    let held = [Some(folder), file].into_iter().flatten().collect();
    Ok(Located { path, below, mount, spot, stat, node, _held: held })
}

fn find(path: &Path, follow: bool) -> io::Result<Found> {
    let absolute = std::path::absolute(path)?;
    let path = match (absolute.parent(), absolute.file_name()) {
        (Some(folder), Some(name)) if !follow => folder.canonicalize()?.join(name),
        _ => absolute.canonicalize()?,
    };
    let folder = open::open_folder(path.parent().unwrap_or(&path))?;
    let name = path.file_name().unwrap_or(".".as_ref());
    let name = CString::new(name.as_bytes()).map_err(|_| OsError::INVAL)?;
    let file = match open::open_path_at(&folder, &name) {
        Ok(file) => Some(file),
        Err(OsError::NOENT) => None,
        Err(error) => return Err(error.into()),
    };
    Ok(Found { path, folder, file })
}

/// The node's number, as the kernel tells it, or else the server.
fn node_of(fd: &OwnedFd) -> Option<u64> {
    let by_kernel = handle::identifier_of(fd).ok().and_then(|(handle, _)| node_in(&handle));
    by_kernel.or_else(|| {
        let mut digits = [0; 20];
        let len = get_xattr(fd, NODE_XATTR, &mut digits).ok()?;
        std::str::from_utf8(digits.get(..len)?).ok()?.parse().ok()
    })
}

/// The node's number inside a handle: high word, low word, generation (`fs/fuse/inode.c`, `fuse_encode_fh`).
fn node_in(handle: &FileHandle) -> Option<u64> {
    let word = |index: usize| {
        let bytes = handle.bytes().get(index * 4..)?;
        bytes.first_chunk().map(|word| u32::from_ne_bytes(*word))
    };
    (handle.kind() == FUSE_HANDLE).then_some(())?;
    Some(u64::from(word(0)?) << 32 | u64::from(word(1)?))
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn the_node_is_read_from_a_handle_of_fuse_only() {
        let bytes: Vec<u8> = [1_u32, 2, 9].iter().flat_map(|word| word.to_ne_bytes()).collect();
        let node = |kind| FileHandle::new(kind, &bytes).as_ref().and_then(node_in);
        assert_eq!(node(0x81), Some(1 << 32 | 2));
        assert_eq!(node(1), None);
        assert_eq!(FileHandle::new(0x81, &[1, 2]).as_ref().and_then(node_in), None);
    }
}
