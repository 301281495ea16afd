//! Whether somebody else can change what a path leads to.
//!
//! Two questions: who decides *what a path leads to* ([`lead`]), and who can change that thing, too ([`hold`]). Nobody else
//! decides where every folder in which a name is looked up belongs to root or the user of this process, and nobody else may
//! write to it. In a folder where everybody may make names but each removes only his own (`/tmp`), the owner of what
//! exists counts. Symlinks are followed one by one, so that nobody is trusted because of where another's link leads.

use std::collections::VecDeque;
use std::ffi::{CString, OsStr, OsString};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
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
    let ours = Ours::new();
    let found = walk(path, &ours, Missing::Said)?;
    ours.check_owner(&found.stat, &found.path)?;
    match (found.stat.is_dir(), found.stat.is_file()) {
        (true, _) => ours.check_folder(&found.stat, &found.path)?,
        (_, true) => ours.check_mode(&found.stat, &found.path)?,
        // What is no file is refused by whoever opens it.
        _ => {}
    }
    Ok(found.at)
}

/// Checks that nobody but root and the user of this process can write to a file that is held already.
///
/// # Errors
/// Who else could.
pub fn check(file: impl AsFd) -> Result<(), Untrusted> {
    let (stat, ours) = (stat_of(&file)?, Ours::new());
    let link = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    let path = std::fs::read_link(&link).unwrap_or_else(|_| link.into());
    ours.check_owner(&stat, &path)?;
    ours.check_mode(&stat, &path)
}

/// Takes hold of what is at `path`, without opening it, where nobody but root and the user of this process can put something
/// else there. Whose it is, and who can write to it, is not asked: a file of somebody else in a folder of ours is there because we
/// want it.
///
/// # Errors
/// Who else could, and what open(2) gives. ENOENT says that nobody else can put anything there: where others make names,
/// what is missing is [`Untrusted::Writable`].
pub fn lead(path: &Path) -> Result<OwnedFd, Untrusted> {
    walk(path, &Ours::new(), Missing::Refused).map(|found| found.at)
}

/// What is said of a name that does not exist, in a folder where others make names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    Said,
    Refused,
}

fn walk(path: &Path, ours: &Ours, missing: Missing) -> Result<Found, Untrusted> {
    let path = std::path::absolute(path).map_err(|error| os_error(&error))?;
    let mut at = Found::root()?;
    let mut parts = components(&path);
    let mut links = 0;
    while let Some(part) = parts.pop_front() {
        if !at.stat.is_dir() {
            return Err(OsError::NOTDIR.into());
        }
        if part == ".." {
            // Nobody moves a folder but who may write to the one above, which was looked at.
            at = at.above()?;
            continue;
        }
        let next = match at.taken(&part, ours) {
            Err(Untrusted::Os(OsError::NOENT)) if missing == Missing::Refused && at.is_for_others() => {
                return Err(at.writable());
            }
            next => next?,
        };
        if !next.stat.is_symlink() {
            at = next;
            continue;
        }
        links += 1;
        if links > LINKS_MAX {
            return Err(OsError::LOOP.into());
        }
        let target = next.target()?;
        if target.is_absolute() {
            at = Found::root()?;
        }
        let mut next = components(&target);
        next.append(&mut parts);
        parts = next;
    }
    Ok(at)
}

/// What a part of a path leads to, and how it is called.
struct Found {
    at: OwnedFd,
    stat: Stat,
    path: PathBuf,
}

impl Found {
    fn root() -> Result<Self, Untrusted> {
        Self::new(open_folder(Path::new("/"))?, PathBuf::from("/"))
    }

    fn new(at: OwnedFd, path: PathBuf) -> Result<Self, Untrusted> {
        Ok(Self { stat: stat_of(&at)?, at, path })
    }

    fn above(&self) -> Result<Self, Untrusted> {
        let path = self.path.parent().unwrap_or(&self.path).to_owned();
        Self::new(open_path_at(&self.at, c"..")?, path)
    }

    /// What this folder has by a name, which nobody else could have put there.
    fn taken(&self, name: &OsStr, ours: &Ours) -> Result<Self, Untrusted> {
        ours.check_owner(&self.stat, &self.path)?;
        ours.check_folder(&self.stat, &self.path)?;
        let path = self.path.join(name);
        let name = CString::new(name.as_bytes()).map_err(|_| OsError::INVAL)?;
        let found = Self::new(open_path_at(&self.at, &name)?, path)?;
        if ours.uid == 0 && filesystem_of(&found.at)?.magic == FsMagic::FUSE {
            return Err(Untrusted::Served { path: found.path });
        }
        // Others make names here, too; and their links are nobody's in any folder.
        if self.is_for_others() || found.stat.is_symlink() {
            ours.check_owner(&found.stat, &found.path)?;
        }
        Ok(found)
    }

    fn is_for_others(&self) -> bool {
        self.stat.mode & OTHERS_WRITE != 0
    }

    fn writable(&self) -> Untrusted {
        Untrusted::Writable { path: self.path.clone(), mode: self.stat.mode & 0o7777 }
    }

    fn target(&self) -> Result<PathBuf, Untrusted> {
        let mut target = vec![0; TARGET_MAX];
        let len = readlink_of(&self.at, &mut target)?;
        target.truncate(len);
        Ok(PathBuf::from(OsString::from_vec(target)))
    }
}

/// Who may change what we trust.
struct Ours {
    uid: u32,
    /// In a user namespace all whom it does not know look like this user. The root folder is theirs there.
    unmapped: Option<u32>,
}

impl Ours {
    fn new() -> Self {
        Self { uid: effective_uid(), unmapped: unmapped_uid() }
    }

    fn check_owner(&self, stat: &Stat, path: &Path) -> Result<(), Untrusted> {
        let is_outside = stat.is_dir() && Some(stat.uid) == self.unmapped;
        if stat.uid == 0 || stat.uid == self.uid || is_outside {
            return Ok(());
        }
        Err(Untrusted::Owner { path: path.to_owned(), uid: stat.uid })
    }

    fn check_folder(&self, stat: &Stat, path: &Path) -> Result<(), Untrusted> {
        // Who else makes names there removes none of ours.
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
        let inode = |path: &Path| stat_of(lead(path).unwrap()).unwrap().ino;
        assert_eq!(inode(&top.path().join("in/round/file")), inode(&file));
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
        // What others may come to make leads nowhere, and what is missing elsewhere stays missing.
        let refused = Untrusted::Writable { path: folder.clone(), mode: 0o1777 };
        assert_eq!(lead(&folder.join("none")).unwrap_err(), refused);
        assert_eq!(hold(&folder.join("none")).unwrap_err(), Untrusted::Os(OsError::NOENT));
        mode(&folder, 0o755);
        assert_eq!(lead(&folder.join("none")).unwrap_err(), Untrusted::Os(OsError::NOENT));
        mode(&file, 0o666);
        lead(&file).unwrap();
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
            let refused = Untrusted::Owner { path: path.clone(), uid: 4001 };
            assert_eq!(hold(&file).unwrap_err(), refused);
            // A file of theirs in a folder of ours is there because we want it.
            assert_eq!(lead(&file).err(), (path == &folder).then_some(refused));
            chown(path, Some(0), None).unwrap();
        }
        // A link that somebody else can point elsewhere, though it leads to what is ours.
        let link = top.path().join("link");
        symlink(&file, &link).unwrap();
        std::os::unix::fs::lchown(&link, Some(4001), None).unwrap();
        assert_eq!(hold(&link).unwrap_err(), Untrusted::Owner { path: link.clone(), uid: 4001 });
    }
}
