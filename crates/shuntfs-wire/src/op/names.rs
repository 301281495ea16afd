//! Operations on names: MKNOD, MKDIR, RENAME, RENAME2, LINK. (LOOKUP, SYMLINK, UNLINK and RMDIR have names only.)

use crate::macros::{layout, wire_struct};

wire_struct! {
    /// Arguments of MKNOD; the name follows.
    pub struct MknodIn {
        /// Type and permission bits; before the umask if [`crate::InitFlags::DONT_MASK`] was agreed to.
        pub mode: u32,
        /// Device number, in the kernel's 32-bit encoding.
        pub rdev: u32,
        /// The caller's umask.
        pub umask: u32,
        /// Zero.
        pub padding: u32,
    }
}

layout!(MknodIn, 16, rdev @ 4, umask @ 8);

wire_struct! {
    /// Arguments of MKDIR; the name follows.
    pub struct MkdirIn {
        /// Permission bits; before the umask if [`crate::InitFlags::DONT_MASK`] was agreed to.
        pub mode: u32,
        /// The caller's umask.
        pub umask: u32,
    }
}

layout!(MkdirIn, 8, umask @ 4);

wire_struct! {
    /// Arguments of RENAME; the old and the new name follow.
    pub struct RenameIn {
        /// The folder that gets the name.
        pub newdir: u64,
    }
}

layout!(RenameIn, 8);

wire_struct! {
    /// Arguments of RENAME2; the old and the new name follow.
    pub struct Rename2In {
        /// The folder that gets the name.
        pub newdir: u64,
        /// `RENAME_NOREPLACE`, `RENAME_EXCHANGE`, `RENAME_WHITEOUT`.
        pub flags: u32,
        /// Zero.
        pub padding: u32,
    }
}

layout!(Rename2In, 16, flags @ 8);

wire_struct! {
    /// Arguments of LINK; the new name follows. The header's node is the folder.
    pub struct LinkIn {
        /// The node that gets another name.
        pub oldnodeid: u64,
    }
}

layout!(LinkIn, 8);
