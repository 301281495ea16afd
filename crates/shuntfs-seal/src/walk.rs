//! Walking a tree: folders by descriptor, names sorted, no symlink followed.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use shuntfs_sys::dir::DirReader;
use shuntfs_sys::{Device, OsError, Stat, Time, open, stat_of};

use crate::Xattr;
use crate::manifest::{STORE_NAME, XATTRS_LEN_MAX};

/// `O_NONBLOCK`: what is a file now may be a pipe when it is opened.
const NONBLOCK: u32 = 0o4000;
const XATTR_PREFIXES: [&[u8]; 5] =
    [b"user.", b"security.", b"trusted.", b"system.posix_acl_access", b"system.posix_acl_default"];
/// What is shown and is no part of the file: by our mounts of a sealed file, and by XFS a second time of an access list.
const SHOWN_XATTRS: [&[u8]; 2] = [b"user.shuntfs.", b"trusted.SGI_ACL_"];

/// What must not change while a file is sealed, and by which it is known again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct State {
    pub(crate) dev: Device,
    pub(crate) ino: u64,
    pub(crate) size: u64,
    pub(crate) mtime: Time,
    pub(crate) ctime: Time,
}

impl State {
    pub(crate) fn of(stat: &Stat) -> Self {
        Self { dev: stat.dev, ino: stat.ino, size: stat.size, mtime: stat.mtime, ctime: stat.ctime }
    }
}

/// The top of a tree.
#[derive(Debug)]
pub(crate) struct Top {
    path: PathBuf,
    folder: OwnedFd,
    identity: (Device, u64),
}

impl Top {
    /// Takes hold of a folder.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let folder = open::open_folder(path)?;
        let stat = stat_of(&folder)?;
        Ok(Self { path: path.to_owned(), folder, identity: (stat.dev, stat.ino) })
    }

    /// The folder itself, which cannot be read by this.
    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.folder
    }

    /// The device that it is on.
    pub(crate) fn device(&self) -> Device {
        self.identity.0
    }

    /// Whether a folder is this one.
    pub(crate) fn is(&self, stat: &Stat) -> bool {
        self.identity == (stat.dev, stat.ino)
    }

    /// The whole path of what is at a path below, for a person.
    pub(crate) fn name(&self, below: &[u8]) -> PathBuf {
        if below.is_empty() { self.path.clone() } else { self.path.join(std::ffi::OsStr::from_bytes(below)) }
    }

    /// Opens the folder at a path below for listing.
    pub(crate) fn folder(&self, below: &[u8]) -> shuntfs_sys::Result<OwnedFd> {
        if below.is_empty() {
            return open::reopen(&self.folder, 0);
        }
        let path = CString::new(below).map_err(|_| OsError::INVAL)?;
        open::open_beneath(&self.folder, &path, NONBLOCK)
    }

    /// Opens the regular file at a path below for reading.
    pub(crate) fn file(&self, below: &[u8]) -> shuntfs_sys::Result<OwnedFd> {
        let path = CString::new(below).map_err(|_| OsError::INVAL)?;
        open::open_beneath(&self.folder, &path, NONBLOCK)
    }

    /// Lists a folder, sorted, without what is no part of the tree.
    pub(crate) fn list(&self, folder: &OwnedFd, is_top: bool) -> shuntfs_sys::Result<Vec<CString>> {
        let mut names = list(folder)?;
        if is_top {
            names.retain(|name| name.to_bytes() != STORE_NAME);
        }
        names.sort();
        names.dedup();
        Ok(names)
    }
}

/// The names of a folder, in any order, without `.` and `..`.
pub(crate) fn list(folder: &OwnedFd) -> shuntfs_sys::Result<Vec<CString>> {
    let mut reader = DirReader::new(open::duplicate(folder)?);
    let mut names: Vec<CString> = Vec::new();
    while reader.fill()? {
        while let Some(record) = reader.peek()? {
            if !matches!(record.name.to_bytes(), b"." | b"..") {
                names.push(record.name.to_owned());
            }
            reader.advance()?;
        }
    }
    Ok(names)
}

/// Takes hold of a name of a folder.
pub(crate) fn node(folder: &OwnedFd, name: &CStr) -> shuntfs_sys::Result<(OwnedFd, Stat)> {
    let fd = open::open_path_at(folder, name)?;
    let stat = stat_of(&fd)?;
    Ok((fd, stat))
}

/// Every extended attribute that can be read and that says something of the file: those of users, security modules and
/// the superuser, and access lists. Sorted by name.
pub(crate) fn xattrs(fd: impl AsFd) -> shuntfs_sys::Result<Vec<Xattr>> {
    let names = match grown(|room| shuntfs_sys::list_xattr(&fd, room)) {
        Err(OsError::OPNOTSUPP | OsError::NOSYS) => return Ok(Vec::new()),
        names => names?,
    };
    let mut found = Vec::new();
    for name in names.split_inclusive(|byte| *byte == 0) {
        let Ok(name) = CStr::from_bytes_with_nul(name) else { continue };
        let bytes = name.to_bytes();
        let wanted = XATTR_PREFIXES.iter().any(|prefix| bytes.starts_with(prefix));
        if !wanted || SHOWN_XATTRS.iter().any(|prefix| bytes.starts_with(prefix)) {
            continue;
        }
        match grown(|room| shuntfs_sys::get_xattr(&fd, name, room)) {
            Ok(value) => found.push(Xattr { name: bytes.to_vec(), value }),
            // Gone meanwhile, or not for us.
            Err(OsError::NODATA | OsError::ACCESS | OsError::PERM | OsError::OPNOTSUPP) => {}
            Err(error) => return Err(error),
        }
    }
    found.sort();
    Ok(found)
}

/// Calls with no room to learn how much it takes, then with so much.
fn grown(mut call: impl FnMut(&mut [u8]) -> shuntfs_sys::Result<usize>) -> shuntfs_sys::Result<Vec<u8>> {
    loop {
        let len = call(&mut [])?;
        if len == 0 {
            return Ok(Vec::new());
        }
        if u32::try_from(len).map_or(true, |len| len > XATTRS_LEN_MAX) {
            return Err(OsError::TOOBIG);
        }
        let mut room = vec![0; len];
        match call(&mut room) {
            Ok(len) => {
                room.truncate(len);
                return Ok(room);
            }
            // It grew meanwhile.
            Err(OsError::RANGE) => {}
            Err(error) => return Err(error),
        }
    }
}

/// A path below the top, from its folder's and a name.
pub(crate) fn join(folder: &[u8], name: &[u8]) -> Vec<u8> {
    if folder.is_empty() { name.to_vec() } else { [folder, b"/", name].concat() }
}

/// Reads where a symlink leads.
pub(crate) fn target(fd: impl AsFd) -> shuntfs_sys::Result<Vec<u8>> {
    let mut room = vec![0; 4096];
    let len = shuntfs_sys::readlink_of(fd, &mut room)?;
    room.truncate(len);
    Ok(room)
}
