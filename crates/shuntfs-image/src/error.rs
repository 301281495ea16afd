//! Why an image cannot be opened, and what its errors are called in replies.

use std::io;
use std::path::{Path, PathBuf};

use shuntfs::Errno;
use thiserror::Error;

use crate::header::HeaderError;
use crate::snapshots::SnapshotError;

/// Why an image cannot be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The file, or a layer below it, is not available.
    #[error("{} cannot be opened: {error}", shown(path))]
    Open {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// It is a folder, a FIFO, a socket or a terminal.
    #[error("{} is neither a file nor a block device", shown(path))]
    NoImage {
        /// Which.
        path: PathBuf,
    },
    /// An image names something that is not a regular file.
    #[error("{} is not a regular file", shown(path))]
    NoFile {
        /// Which.
        path: PathBuf,
    },
    /// Somebody else has it open in a way that excludes ours.
    #[error("{} is in use: {how}", shown(path))]
    InUse {
        /// Which.
        path: PathBuf,
        /// By what.
        how: &'static str,
    },
    /// It is no qcow2 image, or a broken one, or one with what is not supported.
    #[error("{}: {error}", shown(path))]
    Header {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        error: HeaderError,
    },
    /// Its tables cannot be read.
    #[error("{} is not a sound qcow2 image: {error}", shown(path))]
    Broken {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// It is of a format that is not supported.
    #[error("{} is {what}, which is not supported", shown(path))]
    Foreign {
        /// Which.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// It names a backing file that is not to be opened.
    #[error("{} stands on the backing file {}, which is not opened: {why}", shown(path), shown(name))]
    Forbidden {
        /// The image that names it.
        path: PathBuf,
        /// What it names.
        name: PathBuf,
        /// Why not.
        why: Refusal,
    },
    /// The backing file of an image is not available.
    #[error("the backing file of {} is unavailable: {error}", shown(path))]
    Below {
        /// The image that names it.
        path: PathBuf,
        /// Why.
        #[source]
        error: Box<ImageError>,
    },
    /// What it says of its backing file leads nowhere that we go.
    #[error("the backing file of {} is not supported: {}", shown(path), shown(name))]
    Backing {
        /// The image that names it.
        path: PathBuf,
        /// What it says.
        name: String,
    },
    /// An image is its own backing file, over some corners.
    #[error("the backing chain of {} loops at {}", shown(path), shown(again))]
    Loop {
        /// The image.
        path: PathBuf,
        /// The layer that came a second time.
        again: PathBuf,
    },
    /// More layers than anybody makes.
    #[error("the backing chain of {} has more than {most} layers", shown(path))]
    TooDeep {
        /// The image.
        path: PathBuf,
        /// The bound.
        most: usize,
    },
    /// The snapshot is not available.
    #[error("{}: {error}", shown(path))]
    Snapshot {
        /// The image.
        path: PathBuf,
        /// Why.
        #[source]
        error: SnapshotError,
    },
    /// Options that contradict each other.
    #[error("{0}")]
    Options(&'static str),
}

/// Why what an image names is not opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Nothing may be opened beside the image.
    #[error("the image is to be shown by itself")]
    Wished,
    /// Another one was named, which took the place of the first.
    #[error("only one backing file was named")]
    NotNamed,
    /// Root would read for others.
    #[error("users other than root can write the image, and make it name any file")]
    OthersImage,
    /// The same, by way of a folder.
    #[error("users other than root decide what that name leads to")]
    OthersFolder,
}

/// A path as it is shown: names in images hold what their makers like.
fn shown(path: impl AsRef<Path>) -> String {
    let text = path.as_ref().to_string_lossy();
    text.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

impl ImageError {
    /// The error number that this comes down to.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            Self::Open { error, .. } | Self::Broken { error, .. } => errno(error),
            Self::InUse { .. } => Errno::BUSY,
            Self::Loop { .. } | Self::TooDeep { .. } => Errno::LOOP,
            Self::Snapshot { .. } => Errno::NOENT,
            Self::Header { .. } | Self::Backing { .. } | Self::Foreign { .. } => Errno::OPNOTSUPP,
            Self::Forbidden { .. } => Errno::ACCES,
            Self::Below { error, .. } => error.errno(),
            Self::NoImage { .. } | Self::NoFile { .. } | Self::Options(_) => Errno::INVAL,
        }
    }
}

/// The error number of an operation on an image. What has no number is a mistake in the image: EIO.
pub(crate) fn errno(error: &io::Error) -> Errno {
    if let Some(number) = error.raw_os_error() {
        return Errno::from_lower(number);
    }
    match error.kind() {
        io::ErrorKind::Unsupported => Errno::OPNOTSUPP,
        io::ErrorKind::OutOfMemory => Errno::NOMEM,
        io::ErrorKind::StorageFull | io::ErrorKind::WriteZero => Errno::NOSPC,
        io::ErrorKind::NotFound => Errno::NOENT,
        io::ErrorKind::PermissionDenied => Errno::ACCES,
        _ => Errno::IO,
    }
}

/// The same for a system call.
pub(crate) fn os(error: shuntfs_sys::OsError) -> Errno {
    Errno::from_lower(error.raw_os_error())
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn numbers_stay_and_the_rest_is_an_error_of_the_image() {
        assert_eq!(errno(&io::Error::from_raw_os_error(28)), Errno::NOSPC);
        assert_eq!(errno(&io::Error::from_raw_os_error(38)), Errno::OPNOTSUPP);
        assert_eq!(errno(&io::ErrorKind::Unsupported.into()), Errno::OPNOTSUPP);
        assert_eq!(errno(&io::ErrorKind::StorageFull.into()), Errno::NOSPC);
        assert_eq!(errno(&io::Error::other("a table is broken")), Errno::IO);
        assert_eq!(errno(&io::ErrorKind::InvalidData.into()), Errno::IO);
    }
}
