//! What is noted of a node.

/// Bits of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Marks(pub(super) u32);

impl Marks {
    /// The descriptor was used since the clock's hand passed.
    pub(crate) const USED: Self = Self(1);
    /// The descriptor must not be closed while the node lives.
    pub(crate) const PINNED: Self = Self(1 << 1);
    /// A name of it was removed while nobody had it open, so the inode may be gone, and an open must hold it at once.
    pub(crate) const UNLINKED: Self = Self(1 << 2);
    /// It was seen to have no file capability, or was made through this mount.
    pub(crate) const NO_CAPABILITY: Self = Self(1 << 3);
    /// Somebody set a file capability, so [`Marks::NO_CAPABILITY`] tells nothing any more. It stays set, because
    /// an answer from before may be noted after.
    pub(crate) const CAPABILITY_SET: Self = Self(1 << 7);
    /// Nobody may write it (`chattr +i`), as last seen.
    pub(crate) const IMMUTABLE: Self = Self(1 << 5);
    /// It may only grow (`chattr +a`), as last seen.
    pub(crate) const APPEND_ONLY: Self = Self(1 << 6);
    /// It was open for reading and writing, so a shared mapping may outlive its opens.
    pub(crate) const MAPPED: Self = Self(1 << 4);
    /// It is a file with something in it that is small ([`crate::reread`]), as last seen.
    pub(crate) const SMALL: Self = Self(1 << 8);
    /// It was opened for reading alone once since it was opened otherwise; and twice.
    pub(crate) const READ_ONCE: Self = Self(1 << 9);
    pub(crate) const READ_TWICE: Self = Self(1 << 10);
    /// It is no folder and has several names, as last seen.
    pub(crate) const LINKED: Self = Self(1 << 11);
    /// It is a folder, and its names are compared byte by byte; or they are not, which was said.
    pub(crate) const EXACT: Self = Self(1 << 12);
    pub(crate) const FOLDS: Self = Self(1 << 13);
    /// The kernel may know it as one that is not sealed. It stays set.
    pub(crate) const UNSEALED: Self = Self(1 << 14);
    /// Others may have another view of the inode, and so another node, whose changes the kernel does not connect with
    /// this one. It stays set.
    pub(crate) const VARIES: Self = Self(1 << 16);
    /// When it was looked for, not all branches of a merge could be asked: it may be on more of them, or another one be shown.
    pub(crate) const DOUBTFUL: Self = Self(1 << 17);
    /// It was open for reading and writing in passthrough, so a mapping that stores into the lower file may outlive its opens. It stays set.
    pub(crate) const MAPPED_BELOW: Self = Self(1 << 18);
    /// Somebody has locked it below. It stays set.
    pub(crate) const LOCKED_BELOW: Self = Self(1 << 19);
    /// A server that is dead has seen its attributes, and this one has not.
    pub(crate) const UNSEEN: Self = Self(1 << 20);
    /// A server that is dead knew it by its descriptor, and it was not looked up since: the kernel may have forgotten it ([`crate::leftover`]).
    pub(crate) const LEFT: Self = Self(1 << 21);
    /// The next server reaches it by its descriptor, which therefore stays open. It stays set.
    pub(crate) const KEPT_OPEN: Self = Self(1 << 22);
    /// More is written down of it for the next server than its record.
    pub(crate) const KEPT_FURTHER: Self = Self(1 << 23);
    /// The kernel is to keep nothing of it.
    pub(crate) const FLEETING: Self = Self::VARIES.and(Self::DOUBTFUL);
}

impl Marks {
    /// Both.
    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
