//! Extended attributes: SETXATTR, GETXATTR, LISTXATTR. (REMOVEXATTR has a name only.)

use crate::macros::{flag_set, layout, wire_struct};

flag_set! {
    /// What the kernel asks of a SETXATTR beyond the caller's flags.
    pub struct SetxattrFlags: u32 {
        /// Setting `system.posix_acl_access` clears sgid.
        const ACL_KILL_SGID = 1 << 0;
    }
}

wire_struct! {
    /// Arguments of SETXATTR; the name and the value follow.
    pub struct SetxattrIn {
        /// Length of the value in bytes.
        pub size: u32,
        /// `XATTR_CREATE`, `XATTR_REPLACE`.
        pub flags: u32,
        /// What the kernel asks on top; empty unless [`crate::InitFlags::SETXATTR_EXT`] was agreed to.
        pub setxattr_flags: SetxattrFlags,
        /// Zero.
        pub padding: u32,
    }
}

layout!(SetxattrIn, 16, flags @ 4, setxattr_flags @ 8);

impl SetxattrIn {
    /// Length in bytes where [`crate::InitFlags::SETXATTR_EXT`] was not agreed to: `size` and `flags` only.
    pub const SHORT_LEN: usize = 8;
}

wire_struct! {
    /// Arguments of GETXATTR, after which the name follows, and of LISTXATTR.
    pub struct GetxattrIn {
        /// Room at the caller's in bytes; 0 asks for the length.
        pub size: u32,
        /// Zero.
        pub padding: u32,
    }
}

layout!(GetxattrIn, 8);

wire_struct! {
    /// The answer to GETXATTR and LISTXATTR where the length was asked for.
    pub struct GetxattrOut {
        /// The length in bytes.
        pub size: u32,
        /// Zero.
        pub padding: u32,
    }
}

layout!(GetxattrOut, 8);
