//! Whether somebody else can change what a path leads to.
//!
//! A file decides for others only where nobody else can write it, and nobody else can put another in its place: its owner
//! and the owners of all folders on the way are root or the user of this process, and nobody else may write to them. In a
//! folder where everybody may make names but each takes away only his own (`/tmp`), the name's owner counts. Symlinks are
//! followed one by one, so that nobody is trusted because of where another's link leads.

use std::collections::VecDeque;
use std::ffi::{CString, OsStr, OsString};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use crate::OsError;
use crate::names::readlink_of;
use crate::open::{open_folder, open_path_at};
use crate::spawn::effective_uid;
use crate::stat::{FsMagic, Stat, filesystem_of, stat_of};

/// As many symlinks as the kernel follows.
const LINKS_MAX: usize = 40;
/// As long as a path can be.
const TARGET_MAX: usize = 4096;
/// Writable by the group or by everybody.
const OTHERS_WRITE: u32 = 0o022;

/// Why somebody else could change what a path leads to, or that nobody can tell.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Untrusted {
    /// A system call failed.
    Os(OsError),
    /// A file, a folder or a symlink on the way belongs to somebody else.
    Owner {
        /// What it is.
        path: PathBuf,
        /// Whose it is.
        uid: u32,
    },
    /// Others may write to a file or a folder on the way.
    Writable {
        /// What it is.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It is on a FUSE file system, whose server says of owners and modes what it likes. Asked of root alone: whoever else
    /// has a FUSE file system on the way has mounted it.
    Served {
        /// What it is.
        path: PathBuf,
    },
}

impl fmt::Display for Untrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Os(error) => io::Error::from(*error).fmt(f),
            Self::Owner { path, uid } => write!(f, "{} belongs to user {uid}", path.display()),
            Self::Writable { path, mode } => {
                write!(f, "others may write to {} (mode {mode:04o})", path.display())
            }
            Self::Served { path } => {
                write!(f, "{} is on a FUSE file system, whose server says whose it is", path.display())
            }
        }
    }
}

impl std::error::Error for Untrusted {}

impl From<OsError> for Untrusted {
    fn from(error: OsError) -> Self {
        Self::Os(error)
    }
}

/// Takes hold of what is at `path`, without opening it, where nobody but root and the user of this process can put something
/// else there or write to it.
///
/// # Errors
/// Who else could, and what open(2) gives.
pub fn hold(path: &Path) -> Result<OwnedFd, Untrusted> {
    let path = std::path::absolute(path).map_err(|error| os_error(&error))?;
    let ours = Ours { uid: effective_uid(), unmapped: unmapped_uid() };
    let mut walk = Walk::start(&ours)?;
    let mut parts = components(&path);
    let mut links = 0;
    while let Some(part) = parts.pop_front() {
        if part == ".." {
            walk.up(&ours)?;
            continue;
        }
        let name = CString::new(part.as_bytes()).map_err(|_| OsError::INVAL)?;
        let held = open_path_at(&walk.at, &name)?;
        let (stat, path) = (stat_of(&held)?, walk.path.join(&part));
        if ours.uid == 0 && filesystem_of(&held)?.magic == FsMagic::FUSE {
            return Err(Untrusted::Served { path });
        }
        ours.check_owner(&stat, &path)?;
        if stat.is_symlink() {
            links += 1;
            if links > LINKS_MAX {
                return Err(OsError::LOOP.into());
            }
            let mut target = vec![0; TARGET_MAX];
            let len = readlink_of(&held, &mut target)?;
            target.truncate(len);
            let target = PathBuf::from(OsString::from_vec(target));
            if target.is_absolute() {
                walk = Walk::start(&ours)?;
            }
            let mut next = components(&target);
            next.append(&mut parts);
            parts = next;
        } else if stat.is_dir() {
            walk = Walk { at: held, path };
            ours.check_folder(&stat, &walk.path)?;
        } else if parts.is_empty() {
            if stat.is_file() {
                // What is no file is refused by whoever opens it.
                ours.check_mode(&stat, &path)?;
            }
            return Ok(held);
        } else {
            return Err(OsError::NOTDIR.into());
        }
    }
    Ok(walk.at)
}

/// A folder, and how it is called.
struct Walk {
    at: OwnedFd,
    path: PathBuf,
}

impl Walk {
    fn start(ours: &Ours) -> Result<Self, Untrusted> {
        Self::at(open_folder(Path::new("/"))?, PathBuf::from("/"), ours)
    }

    fn up(&mut self, ours: &Ours) -> Result<(), Untrusted> {
        let path = self.path.parent().unwrap_or(&self.path).to_owned();
        *self = Self::at(open_path_at(&self.at, c"..")?, path, ours)?;
        Ok(())
    }

    fn at(at: OwnedFd, path: PathBuf, ours: &Ours) -> Result<Self, Untrusted> {
        let stat = stat_of(&at)?;
        ours.check_owner(&stat, &path)?;
        ours.check_folder(&stat, &path)?;
        Ok(Self { at, path })
    }
}

/// Who may change what we trust.
struct Ours {
    uid: u32,
    /// In a user namespace all whom it does not know look like this user. The root folder is theirs there.
    unmapped: Option<u32>,
}

impl Ours {
    fn check_owner(&self, stat: &Stat, path: &Path) -> Result<(), Untrusted> {
        let is_outside = stat.is_dir() && Some(stat.uid) == self.unmapped;
        if stat.uid == 0 || stat.uid == self.uid || is_outside {
            return Ok(());
        }
        Err(Untrusted::Owner { path: path.to_owned(), uid: stat.uid })
    }

    fn check_folder(&self, stat: &Stat, path: &Path) -> Result<(), Untrusted> {
        // Who else makes names there takes away none of ours.
        if stat.mode & libc::S_ISVTX != 0 { Ok(()) } else { self.check_mode(stat, path) }
    }

    fn check_mode(&self, stat: &Stat, path: &Path) -> Result<(), Untrusted> {
        if stat.mode & OTHERS_WRITE == 0 {
            return Ok(());
        }
        Err(Untrusted::Writable { path: path.to_owned(), mode: stat.mode & 0o7777 })
    }
}

/// The user that files of unmapped users seem to belong to, where this process is in a user namespace of its own.
fn unmapped_uid() -> Option<u32> {
    let map = std::fs::read_to_string("/proc/self/uid_map").ok()?;
    let whole = map.split_whitespace().eq(["0", "0", "4294967295"]);
    let overflow = || std::fs::read_to_string("/proc/sys/kernel/overflowuid").ok()?.trim().parse().ok();
    if whole { None } else { Some(overflow().unwrap_or(65534)) }
}

fn components(path: &Path) -> VecDeque<OsString> {
    let named = |component: Component<'_>| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsStr::new("..").to_owned()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().filter_map(named).collect()
}

fn os_error(error: &io::Error) -> OsError {
    let raw = error.raw_os_error();
    raw.map_or(OsError::IO, OsError::from_raw_os_error)
}

#[cfg(test)]
mod test {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    /// A folder in a folder in /tmp, with a file, as the user of the test has them.
    fn place() -> (tempfile::TempDir, PathBuf) {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir(top.path().join("in")).unwrap();
        let file = top.path().join("in/file");
        fs::write(&file, "x").unwrap();
        mode(&file, 0o644);
        (top, file)
    }

    #[test]
    fn what_only_we_can_change_is_held() {
        let (top, file) = place();
        let same = |path: &Path| {
            let held = stat_of(hold(path).unwrap()).unwrap();
            held.ino == stat_of(fs::File::open(&file).unwrap()).unwrap().ino
        };
        assert!(same(&file));
        symlink("in/file", top.path().join("relative")).unwrap();
        symlink(&file, top.path().join("absolute")).unwrap();
        symlink("../in", top.path().join("in/round")).unwrap();
        for path in ["relative", "absolute", "in/../in/file", "in/round/file"] {
            assert!(same(&top.path().join(path)), "{path}");
        }
        symlink("loop", top.path().join("loop")).unwrap();
        for (path, error) in
            [("loop", OsError::LOOP), ("none", OsError::NOENT), ("in/file/x", OsError::NOTDIR)]
        {
            assert_eq!(hold(&top.path().join(path)).unwrap_err(), Untrusted::Os(error), "{path}");
        }
        assert!(stat_of(hold(top.path()).unwrap()).unwrap().is_dir());
    }

    #[test]
    fn what_others_may_write_to_is_not() {
        let (top, file) = place();
        let folder = top.path().join("in");
        for (path, bits) in [(&file, 0o664), (&file, 0o646), (&folder, 0o775), (&folder, 0o757)] {
            let before = fs::metadata(path).unwrap().permissions();
            mode(path, bits);
            let refused = Untrusted::Writable { path: path.clone(), mode: bits };
            assert_eq!(hold(&file).unwrap_err(), refused);
            fs::set_permissions(path, before).unwrap();
        }
        mode(&folder, 0o1777);
        hold(&file).unwrap();
    }

    /// Needs root, who can give files away.
    #[test]
    fn what_belongs_to_others_is_not() {
        if effective_uid() != 0 {
            println!("SKIPPED: only root gives files away");
            return;
        }
        let (top, file) = place();
        let folder = top.path().join("in");
        for path in [&file, &folder] {
            chown(path, Some(4001), None).unwrap();
            assert_eq!(hold(&file).unwrap_err(), Untrusted::Owner { path: path.clone(), uid: 4001 });
            chown(path, Some(0), None).unwrap();
        }
        // A link that somebody else can point elsewhere, though it leads to what is ours.
        let link = top.path().join("link");
        symlink(&file, &link).unwrap();
        std::os::unix::fs::lchown(&link, Some(4001), None).unwrap();
        assert_eq!(hold(&link).unwrap_err(), Untrusted::Owner { path: link.clone(), uid: 4001 });
    }
}
