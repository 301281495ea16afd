//! What operations do, as values, and who is asked about it.

use std::ffi::CStr;
use std::sync::Arc;

use shuntfs::{LowerFile, OpenFlags, Result};
use shuntfs_rules::Use;

use super::terms::use_of;
use crate::branch::MountIndex;
use crate::mode;
use crate::name_buf::NameBuf;
use crate::node::Node;
use crate::rules::Asking;
use crate::shared::Shared;

/// Something that an operation does. Every kind answers every question: none has a default.
pub(crate) trait Change {
    /// What the rules say of how it is done.
    type Terms;

    /// Whether something below becomes different.
    fn writes(&self) -> bool;

    /// What the rules say.
    ///
    /// # Errors
    /// Where they refuse it, and EACCES where they cannot tell.
    fn ask_rules(&self, asking: &Asking<'_>) -> Result<Self::Terms>;

    /// The same where there are none.
    fn without_rules(&self) -> Self::Terms;

    /// Refuses what a seal forbids, and what needs one.
    ///
    /// # Errors
    /// EPERM where it would change what is sealed, EACCES where a rule wants a seal that does not exist, and those of the
    /// manifest.
    fn ask_seals(&self, shared: &Shared, terms: &Self::Terms) -> Result<()>;

    /// Refuses what the file's own state forbids: that the caller sees only a part of it, flags of its inode.
    ///
    /// # Errors
    /// EACCES for what nobody does with a partial view, EPERM for what the flags forbid.
    fn ask_state(&self, shared: &Shared) -> Result<()>;
}

/// A name in a folder, and the way there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot<'n> {
    pub(crate) folder: &'n Arc<Node>,
    /// The mount that `dir` is on, and so the branch.
    pub(crate) mount: MountIndex,
    pub(crate) dir: &'n LowerFile,
    pub(crate) name: &'n NameBuf,
}

impl<'n> Spot<'n> {
    pub(crate) fn c_name(&self) -> &'n CStr {
        self.name.as_c_str()
    }

    pub(crate) fn bytes(&self) -> &'n [u8] {
        self.name.as_c_str().to_bytes()
    }
}

/// What a creation is to look like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    /// Type and permission bits, before the umask.
    pub(crate) mode: u32,
    /// The caller's umask, which a default ACL overrules.
    pub(crate) umask: u32,
}

/// What comes with a name, or without one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Coming<'c> {
    /// A file that will be open with these flags.
    File { made: Made, flags: OpenFlags },
    /// A folder.
    Folder { made: Made },
    /// A symlink.
    Symlink { target: &'c CStr },
    /// What its mode says: a device, a FIFO, a socket, or a file that is not opened.
    Node { made: Made, rdev: u32 },
}

impl Coming<'_> {
    /// What rules are asked about: permission bits with the umask applied.
    pub(crate) fn permissions(&self) -> u32 {
        let made = match self {
            Self::File { made, .. } | Self::Folder { made } | Self::Node { made, .. } => *made,
            Self::Symlink { .. } => Made { mode: 0o777, umask: 0 },
        };
        made.mode & !made.umask & 0o7777
    }

    /// How it will be open: a device or a folder is not when it is made.
    pub(crate) fn how(&self) -> Use {
        match self {
            Self::File { flags, .. } => use_of(flags.0),
            Self::Node { .. } if self.is_file() => use_of(mode::O_RDONLY),
            Self::Folder { .. } | Self::Symlink { .. } | Self::Node { .. } => Use::LOOK,
        }
    }

    pub(super) fn is_file(&self) -> bool {
        match self {
            Self::File { .. } => true,
            Self::Folder { .. } | Self::Symlink { .. } => false,
            Self::Node { made, .. } => made.mode & mode::TYPE == mode::FILE,
        }
    }
}
