//! The folder of a case, with short words for what every case needs.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Statx, StatxFlags, fstat, open, openat, statx};
use rustix::io::{pread, pwrite};

use super::{Observation, Seen};

/// A case's own, empty folder.
#[derive(Debug)]
pub struct Ctx {
    dir: OwnedFd,
    path: PathBuf,
    lower: PathBuf,
}

impl Ctx {
    /// Opens a case's folder; `lower` is the same folder seen on the lower file system.
    ///
    /// # Errors
    /// The folder cannot be opened.
    pub fn new(path: &Path, lower: &Path) -> Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let dir =
            open(path, flags, Mode::empty()).with_context(|| format!("cannot open {}", path.display()))?;
        Ok(Self { dir, path: path.to_owned(), lower: lower.to_owned() })
    }

    /// The open folder.
    #[must_use]
    pub fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// The full path of a name in it.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The same file on the lower file system.
    #[must_use]
    pub fn lower(&self, name: &str) -> PathBuf {
        self.lower.join(name)
    }

    /// Opens a file.
    ///
    /// # Errors
    /// As open(2).
    pub fn open(&self, name: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        openat(&self.dir, name, flags | OFlags::CLOEXEC, Mode::empty())
    }

    /// Opens a file for reading and writing, making it with the given permissions where it is missing.
    ///
    /// # Errors
    /// As open(2).
    pub fn create(&self, name: &str, mode: u32) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        openat(&self.dir, name, flags, Mode::from_raw_mode(mode))
    }

    /// Makes a file with content, permissions 0644 whatever the mask.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn make(&self, name: &str, content: &[u8]) -> Result<OwnedFd> {
        let fd = self.create(name, 0o644).with_context(|| format!("cannot make {name}"))?;
        let written = pwrite(&fd, content, 0)?;
        anyhow::ensure!(written == content.len(), "short write of {written}");
        rustix::fs::fchmod(&fd, Mode::from_raw_mode(0o644))?;
        Ok(fd)
    }

    /// Makes a folder, permissions as given whatever the mask.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn make_folder(&self, name: &str, mode: u32) -> Result<()> {
        rustix::fs::mkdirat(&self.dir, name, Mode::from_raw_mode(0o755))?;
        self.chmod(name, mode)?;
        Ok(())
    }

    /// Changes permissions.
    ///
    /// # Errors
    /// As chmod(2).
    pub fn chmod(&self, name: &str, mode: u32) -> rustix::io::Result<()> {
        rustix::fs::chmodat(&self.dir, name, Mode::from_raw_mode(mode), AtFlags::empty())
    }

    /// Changes the owner.
    ///
    /// # Errors
    /// As chown(2).
    pub fn chown(&self, name: &str, uid: u32, gid: u32) -> rustix::io::Result<()> {
        let (uid, gid) = (rustix::fs::Uid::from_raw(uid), rustix::fs::Gid::from_raw(gid));
        rustix::fs::chownat(&self.dir, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Looks at a name without following it.
    ///
    /// # Errors
    /// As stat(2).
    pub fn statx(&self, name: &str) -> rustix::io::Result<Statx> {
        statx(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS | StatxFlags::BTIME)
    }

    /// A name's type, permissions, owner, links and size as text.
    #[must_use]
    pub fn look(&self, name: &str) -> String {
        match self.statx(name) {
            Ok(stat) => describe(&stat),
            Err(error) => rustix::io::Result::<()>::Err(error).seen(),
        }
    }

    /// A file's permission bits as text, or the error.
    #[must_use]
    pub fn mode(&self, name: &str) -> String {
        match self.statx(name) {
            Ok(stat) => format!("{:04o}", stat.stx_mode & 0o7777),
            Err(error) => rustix::io::Result::<()>::Err(error).seen(),
        }
    }

    /// Reads a whole file by a fresh open.
    ///
    /// # Errors
    /// As open(2) and read(2).
    pub fn read(&self, name: &str) -> rustix::io::Result<Vec<u8>> {
        let fd = self.open(name, OFlags::RDONLY)?;
        read_all(&fd)
    }

    /// The names in a folder, sorted, as text.
    ///
    /// # Errors
    /// As getdents(2).
    pub fn names(&self, folder: &str) -> rustix::io::Result<Vec<String>> {
        let fd = self.open(folder, OFlags::RDONLY | OFlags::DIRECTORY)?;
        list(&fd)
    }

    /// Starts an observation.
    #[must_use]
    pub fn observe(&self) -> Observation {
        Observation::new()
    }
}

/// Reads a file from its start to its end.
///
/// # Errors
/// As read(2).
pub(super) fn read_all(fd: impl AsFd) -> rustix::io::Result<Vec<u8>> {
    let mut all = Vec::new();
    let mut room = vec![0_u8; 1 << 20];
    loop {
        let len = pread(&fd, &mut room[..], all.len() as u64)?;
        if len == 0 {
            return Ok(all);
        }
        all.extend_from_slice(&room[..len]);
    }
}

/// The sorted names in an open folder.
///
/// # Errors
/// As getdents(2).
pub(super) fn list(fd: impl AsFd) -> rustix::io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(fd)? {
        names.push(entry?.file_name().to_bytes().escape_ascii().to_string());
    }
    names.sort();
    Ok(names)
}

/// An open file's type, permissions, owner, links and size as text.
///
/// # Errors
/// As fstat(2).
pub(super) fn describe_fd(fd: impl AsFd) -> rustix::io::Result<String> {
    let stat = fstat(fd)?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    let size = if kind == FileType::RegularFile { format!(" size={}", stat.st_size) } else { String::new() };
    Ok(format!(
        "{kind:?} {:04o} {}:{} links={}{size}",
        stat.st_mode & 0o7777,
        stat.st_uid,
        stat.st_gid,
        stat.st_nlink
    ))
}

/// The fields of stat that two file systems must agree on. A folder's size is its file system's own affair.
pub(super) fn describe(stat: &Statx) -> String {
    let kind = FileType::from_raw_mode(u32::from(stat.stx_mode));
    let size = match kind {
        FileType::RegularFile | FileType::Symlink => format!(" size={}", stat.stx_size),
        FileType::CharacterDevice | FileType::BlockDevice => {
            format!(" device={}:{}", stat.stx_rdev_major, stat.stx_rdev_minor)
        }
        _ => String::new(),
    };
    format!(
        "{kind:?} {:04o} {}:{} links={}{size}",
        stat.stx_mode & 0o7777,
        stat.stx_uid,
        stat.stx_gid,
        stat.stx_nlink
    )
}
