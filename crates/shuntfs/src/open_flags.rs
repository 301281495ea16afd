//! The flags of an open.

use std::ops::BitOr;

/// The flags of an open, as in `open(2)`, in the numbers of this machine.
///
/// ```
/// use shuntfs::OpenFlags;
///
/// let flags = OpenFlags::WRITE_ONLY | OpenFlags::APPEND;
/// assert!(flags.may_write() && !flags.may_read() && flags.contains(OpenFlags::APPEND));
/// assert_eq!(flags.without(OpenFlags::APPEND), OpenFlags::WRITE_ONLY);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenFlags(pub u32);

impl OpenFlags {
    /// For reading (`O_RDONLY`), which is no bit.
    pub const READ_ONLY: Self = Self(0);
    /// For writing (`O_WRONLY`).
    pub const WRITE_ONLY: Self = Self(0o1);
    /// For both (`O_RDWR`).
    pub const READ_WRITE: Self = Self(0o2);
    /// The bits of the three above.
    pub const ACCESS: Self = Self(0o3);
    /// Make the file where it does not exist.
    pub const CREATE: Self = Self(0o100);
    /// With [`OpenFlags::CREATE`]: the file must be new.
    pub const EXCLUSIVE: Self = Self(0o200);
    /// Cut the file to nothing.
    pub const TRUNCATE: Self = Self(0o1000);
    /// Each write goes to the end. The kernel gives each WRITE its offset anyway.
    pub const APPEND: Self = Self(0o2000);
    /// Do not wait.
    pub const NON_BLOCKING: Self = Self(0o4000);
    /// Data is durable when a write returns.
    pub const DATA_SYNC: Self = Self(0o10_000);
    /// Data and attributes are; includes [`OpenFlags::DATA_SYNC`].
    pub const SYNC: Self = Self(0o4_010_000);
    /// Reading leaves the time of access alone.
    pub const NO_ACCESS_TIME: Self = Self(0o1_000_000);
    /// A hold on the file that can neither read nor write. No request carries it.
    pub const PATH: Self = Self(0o10_000_000);
    /// No page cache. The number differs between architectures.
    pub const DIRECT: Self = Self(shuntfs_sys::open::O_DIRECT);
    /// Only a folder. The number differs between architectures.
    pub const DIRECTORY: Self = Self(shuntfs_sys::open::O_DIRECTORY);
    /// No symlink. The number differs between architectures.
    pub const NO_FOLLOW: Self = Self(shuntfs_sys::open::O_NOFOLLOW);

    /// Whether all bits of `other` are set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// These flags without the bits of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The bits that both have.
    #[must_use]
    pub const fn only(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether the open is for reading. The number 3 is not: it asks for the right to both, and can do neither.
    #[must_use]
    pub const fn may_read(self) -> bool {
        matches!(self.0 & 0o3, 0 | 2)
    }

    /// Whether the open is for more than reading. The number 3 is, too: it asks for the right to both.
    #[must_use]
    pub const fn may_write(self) -> bool {
        self.0 & 0o3 != 0
    }
}

impl BitOr for OpenFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
