//! The file `store`: what makes a folder a store, and which tree it is of.
//!
//! The line `shuntfs store 1`, then `beside` for the folder `.shunt` of a tree, or `tree MAJOR:MINOR INODE PATH` up to the
//! end of the file. A tree is known again by either its path or its device and inode: it may be moved, mounted elsewhere,
//! or made anew in its place.

use std::ffi::{CStr, OsStr};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use shuntfs_sys::{open, regular, stat_of};

use crate::walk::Top;

pub(super) const NAME: &CStr = c"store";
const HEAD: &[u8] = b"shuntfs store 1\n";
const BESIDE: &[u8] = b"beside\n";
/// More than a path has.
const LEN_MAX: u64 = 16 << 10;

/// What the file says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Marker {
    /// It is in its tree.
    Beside,
    /// It is elsewhere.
    Of { identity: String, tree: Vec<u8> },
}

impl Marker {
    /// What the store of a tree is marked with.
    pub(super) fn of(top: &Top, tree: &Path, is_beside: bool) -> io::Result<Self> {
        if is_beside {
            return Ok(Self::Beside);
        }
        let stat = stat_of(top.fd())?;
        let identity = format!("{}:{} {}", stat.dev.major, stat.dev.minor, stat.ino);
        Ok(Self::Of { identity, tree: tree.canonicalize()?.as_os_str().as_bytes().to_vec() })
    }

    pub(super) fn is_beside(&self) -> bool {
        *self == Self::Beside
    }

    /// Reads one; `None` for what is none.
    pub(super) fn read(file: &File) -> Result<Option<Self>, regular::RegularError> {
        match regular::read_all(file, LEN_MAX) {
            Ok(bytes) => Ok(Self::parse(&bytes)),
            Err(regular::RegularError::TooLarge { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Beside => [HEAD, BESIDE].concat(),
            Self::Of { identity, tree } => [HEAD, b"tree ", identity.as_bytes(), b" ", tree].concat(),
        }
    }

    /// Whether the store in this folder, marked with this, is that of the tree that `wanted` says.
    pub(super) fn is_of(&self, folder: &OwnedFd, top: &Top, wanted: &Self) -> bool {
        match (self, wanted) {
            (Self::Beside, _) => {
                open::open_path_at(folder, c"..").and_then(stat_of).is_ok_and(|parent| top.is(&parent))
            }
            (Self::Of { identity, tree }, Self::Of { identity: its, tree: path }) => {
                identity == its || tree == path
            }
            // It was moved into a tree: is it that one?
            (Self::Of { identity, .. }, Self::Beside) => stat_of(top.fd())
                .is_ok_and(|stat| *identity == format!("{}:{} {}", stat.dev.major, stat.dev.minor, stat.ino)),
        }
    }

    /// Which tree it is of, for a person.
    pub(super) fn tree(&self, folder: &OwnedFd, path: &Path) -> PathBuf {
        match self {
            Self::Of { tree, .. } => OsStr::from_bytes(tree).into(),
            Self::Beside => {
                let parent = open::open_path_at(folder, c"..").map_err(io::Error::from);
                let shown =
                    parent.and_then(|parent| fs::read_link(format!("/proc/self/fd/{}", parent.as_raw_fd())));
                shown.unwrap_or_else(|_| path.join(".."))
            }
        }
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(HEAD)?;
        if rest == BESIDE {
            return Some(Self::Beside);
        }
        let mut parts = rest.strip_prefix(b"tree ")?.splitn(3, |byte| *byte == b' ');
        let (device, inode, tree) = (parts.next()?, parts.next()?, parts.next()?);
        let identity = format!("{} {}", std::str::from_utf8(device).ok()?, std::str::from_utf8(inode).ok()?);
        tree.starts_with(b"/").then(|| Self::Of { identity, tree: tree.to_vec() })
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_marker_is_read_as_it_was_written() {
        let of = Marker::Of { identity: "8:1 77".into(), tree: b"/a b\n\xff/c".to_vec() };
        for marker in [Marker::Beside, of] {
            let bytes = marker.to_bytes();
            assert_eq!(Marker::parse(&bytes), Some(marker));
            for len in 0..HEAD.len() + 5 {
                assert_eq!(Marker::parse(&bytes[..len]), None);
            }
        }
        for wrong in [
            &b"shuntfs store 2\nbeside\n"[..],
            b"shuntfs store 1\nbeside\nmore",
            b"shuntfs store 1\ntree 8:1 77 x",
        ] {
            assert_eq!(Marker::parse(wrong), None);
        }
    }
}
