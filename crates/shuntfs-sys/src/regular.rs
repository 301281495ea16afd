//! Opening what has to be a regular file, by a path that anyone may have prepared.
//!
//! A FIFO makes an open wait for somebody at its other end, a device does something when it is opened (a watchdog
//! starts, a tape winds back), and a file of `/proc` may wait for what will be said next. So the path is taken hold of
//! without opening it, what it is, is examined, and only a regular file is opened: the very one that was looked at.
//! Descriptors stay `O_NONBLOCK`, and how much is read is bounded. A file system that does not answer cannot be guarded
//! against here.

use std::ffi::CStr;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::OFlags;

use crate::OsError;
use crate::open::{open_path_at, open_target, reopen};
use crate::stat::{Stat, stat_of};

/// Why a file was not opened, or not read.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RegularError {
    /// A system call failed.
    Os(OsError),
    /// It is something else; this is what, with its article: `a FIFO`.
    NotRegular(&'static str),
    /// It has more bytes than it may.
    TooLarge {
        /// What it may have.
        max: u64,
    },
}

impl RegularError {
    /// What a system call would have said: EINVAL for what is not a regular file (EISDIR for a folder, ELOOP for a
    /// symlink), EFBIG for one that is too large.
    #[must_use]
    pub fn errno(&self) -> OsError {
        match self {
            Self::Os(error) => *error,
            Self::NotRegular(FOLDER) => OsError::ISDIR,
            Self::NotRegular(SYMLINK) => OsError::LOOP,
            Self::NotRegular(_) => OsError::INVAL,
            Self::TooLarge { .. } => OsError::FBIG,
        }
    }
}

impl fmt::Display for RegularError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Os(error) => io::Error::from(*error).fmt(f),
            Self::NotRegular(what) => write!(f, "it is {what}, not a regular file"),
            Self::TooLarge { max } => write!(f, "it has more than {max} bytes"),
        }
    }
}

impl std::error::Error for RegularError {}

impl From<OsError> for RegularError {
    fn from(error: OsError) -> Self {
        Self::Os(error)
    }
}

impl From<RegularError> for io::Error {
    fn from(error: RegularError) -> Self {
        match error {
            RegularError::Os(error) => error.into(),
            other => Self::new(Self::from(other.errno()).kind(), other),
        }
    }
}

const FOLDER: &str = "a folder";
const SYMLINK: &str = "a symlink";

/// Opens the regular file at `path` for reading; symlinks are followed.
///
/// # Errors
/// What open(2) gives, and [`RegularError::NotRegular`] for anything else, which is then not opened.
pub fn open(path: &Path) -> Result<File, RegularError> {
    open_held(&open_target(path)?)
}

/// Opens the regular file `name` of a folder for reading; a symlink is not followed.
///
/// # Errors
/// As [`open`].
pub fn open_at(dir: impl AsFd, name: &CStr) -> Result<File, RegularError> {
    open_held(&open_path_at(dir, name)?)
}

/// Opens for reading what an `O_PATH` descriptor holds, if it is a regular file.
///
/// # Errors
/// As [`open`].
pub fn open_held(held: impl AsFd) -> Result<File, RegularError> {
    check(&stat_of(&held)?)?;
    Ok(File::from(reopen(&held, OFlags::NONBLOCK.bits())?))
}

/// Reads the whole regular file at `path`; symlinks are followed.
///
/// # Errors
/// As [`open`], what read(2) gives, and [`RegularError::TooLarge`] where there are more than `max_len` bytes.
pub fn read_to_end(path: &Path, max_len: u64) -> Result<Vec<u8>, RegularError> {
    read_all(&open(path)?, max_len)
}

/// Reads an open file from where it stands to its end.
///
/// # Errors
/// What read(2) gives, and [`RegularError::TooLarge`] where there are more than `max_len` bytes.
pub fn read_all(file: &File, max_len: u64) -> Result<Vec<u8>, RegularError> {
    let mut bytes = Vec::new();
    let read = file.take(max_len.saturating_add(1)).read_to_end(&mut bytes);
    read.map_err(|error| OsError::from_io_error(&error).unwrap_or(OsError::IO))?;
    match u64::try_from(bytes.len()) {
        Ok(len) if len <= max_len => Ok(bytes),
        _ => Err(RegularError::TooLarge { max: max_len }),
    }
}

/// Says no to what is not a regular file.
///
/// # Errors
/// [`RegularError::NotRegular`].
pub fn check(stat: &Stat) -> Result<(), RegularError> {
    if stat.is_file() { Ok(()) } else { Err(RegularError::NotRegular(kind_of(stat))) }
}

fn kind_of(stat: &Stat) -> &'static str {
    match stat.mode & libc::S_IFMT {
        libc::S_IFDIR => FOLDER,
        libc::S_IFLNK => SYMLINK,
        libc::S_IFIFO => "a FIFO",
        libc::S_IFSOCK => "a socket",
        libc::S_IFCHR | libc::S_IFBLK => "a device",
        _ => "something unknown",
    }
}

#[cfg(test)]
mod test {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::symlink;

    use super::*;

    const MAX: u64 = 8;

    fn refusal(path: &Path) -> RegularError {
        read_to_end(path, MAX).expect_err("is refused")
    }

    #[test]
    fn regular_files_are_read_up_to_the_bound_and_symlinks_lead_to_them() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        for (text, whole) in [("", true), ("12345678", true), ("123456789", false)] {
            std::fs::write(&file, text).unwrap();
            let read = read_to_end(&file, MAX);
            assert_eq!(read, if whole { Ok(text.into()) } else { Err(RegularError::TooLarge { max: MAX }) });
        }
        symlink("file", dir.path().join("link")).unwrap();
        assert!(open(&dir.path().join("link")).is_ok());
        let folder = crate::open_folder(dir.path()).unwrap();
        assert!(open_at(&folder, c"file").is_ok());
        assert_eq!(open_at(&folder, c"link").unwrap_err().errno(), OsError::LOOP);
        assert_eq!(refusal(&dir.path().join("none")), RegularError::Os(OsError::NOENT));
    }

    /// Each of these makes a plain open or read wait, or does something when it is opened.
    #[test]
    fn nothing_else_is_opened() {
        let dir = tempfile::tempdir().unwrap();
        let folder = crate::open_folder(dir.path()).unwrap();
        crate::mknod_at(&folder, c"fifo", libc::S_IFIFO | 0o600, 0).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
        symlink("fifo", dir.path().join("link")).unwrap();
        for (path, what) in [
            (dir.path().join("fifo"), "a FIFO"),
            (dir.path().join("link"), "a FIFO"),
            (dir.path().join("socket"), "a socket"),
            (dir.path().to_owned(), "a folder"),
            ("/dev/zero".into(), "a device"),
        ] {
            let error = refusal(&path);
            assert_eq!(error.to_string(), format!("it is {what}, not a regular file"));
            assert_eq!(io::Error::from(error.clone()).to_string(), error.to_string());
        }
    }

    /// Files of `/proc` say that they are regular, and some wait for what comes next.
    #[test]
    fn a_read_does_not_wait_either() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), "x").unwrap();
        let file = open(&dir.path().join("file")).unwrap();
        let flags = rustix::fs::fcntl_getfl(&file).unwrap();
        assert!(flags.contains(OFlags::NONBLOCK), "{}: {flags:?}", file.as_raw_fd());
    }
}
