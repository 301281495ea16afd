//! What a node is.

use std::fmt;
use std::os::unix::fs::FileTypeExt as _;

/// The type of a node: the type bits of `st_mode`, and what listings call `d_type`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FileType {
    /// A file with bytes.
    Regular,
    /// A folder.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

/// The bits of `st_mode` that say the type.
const TYPE_BITS: u32 = 0o170_000;

impl FileType {
    /// Every type.
    pub const ALL: [Self; 7] = [
        Self::Regular,
        Self::Directory,
        Self::Symlink,
        Self::Fifo,
        Self::Socket,
        Self::CharDevice,
        Self::BlockDevice,
    ];

    /// The type in the bits of an `st_mode`; `None` where they are no type's.
    #[must_use]
    pub fn of_mode(mode: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.mode_bits() == mode & TYPE_BITS)
    }

    /// The type behind a `d_type`; `None` for 0, which leaves it unsaid, and for what is no type's.
    #[must_use]
    pub fn of_dirent(kind: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.dirent_kind() == kind)
    }

    /// The bits in `st_mode` (`S_IFREG`, ...).
    #[must_use]
    pub const fn mode_bits(self) -> u32 {
        (self.dirent_kind() as u32) << 12
    }

    /// The number in a listing (`DT_REG`, ...).
    #[must_use]
    pub const fn dirent_kind(self) -> u8 {
        match self {
            Self::Fifo => 1,
            Self::CharDevice => 2,
            Self::Directory => 4,
            Self::BlockDevice => 6,
            Self::Regular => 8,
            Self::Symlink => 10,
            Self::Socket => 12,
        }
    }
}

impl From<std::fs::FileType> for FileType {
    fn from(kind: std::fs::FileType) -> Self {
        match kind {
            _ if kind.is_dir() => Self::Directory,
            _ if kind.is_symlink() => Self::Symlink,
            _ if kind.is_fifo() => Self::Fifo,
            _ if kind.is_socket() => Self::Socket,
            _ if kind.is_char_device() => Self::CharDevice,
            _ if kind.is_block_device() => Self::BlockDevice,
            _ => Self::Regular,
        }
    }
}

impl fmt::Display for FileType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Regular => "a file",
            Self::Directory => "a folder",
            Self::Symlink => "a symlink",
            Self::Fifo => "a FIFO",
            Self::Socket => "a socket",
            Self::CharDevice => "a character device",
            Self::BlockDevice => "a block device",
        })
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn what_std_found_is_the_same() {
        let kind = |path| FileType::from(std::fs::symlink_metadata(path).unwrap().file_type());
        assert_eq!(kind("/dev/null"), FileType::CharDevice);
        assert_eq!(kind("/proc/self"), FileType::Symlink);
        assert_eq!((kind("/"), kind("/proc/self/status")), (FileType::Directory, FileType::Regular));
    }

    #[test]
    fn each_type_is_found_by_both_its_numbers() {
        for kind in FileType::ALL {
            assert_eq!(FileType::of_mode(kind.mode_bits() | 0o7777), Some(kind));
            assert_eq!(FileType::of_dirent(kind.dirent_kind()), Some(kind));
        }
        assert_eq!((FileType::of_mode(0o644), FileType::of_dirent(0)), (None, None));
        assert_eq!(FileType::Regular.mode_bits(), 0o100_000);
        assert_eq!(FileType::Directory.mode_bits(), 0o040_000);
    }
}
