//! CUSE_INIT, which opens the conversation on /dev/cuse.

use crate::macros::{flag_set, layout, wire_struct};

flag_set! {
    /// Flags of CUSE_INIT.
    pub struct CuseInitFlags: u32 {
        /// Ioctls come as the caller made them: the server asks for the data they point to by itself.
        const UNRESTRICTED_IOCTL = 1 << 0;
    }
}

wire_struct! {
    /// Arguments of CUSE_INIT.
    pub struct CuseInitIn {
        /// Major version of the protocol.
        pub major: u32,
        /// Minor version of the protocol.
        pub minor: u32,
        /// Zero.
        pub unused: u32,
        /// What the kernel offers.
        pub flags: CuseInitFlags,
    }
}

layout!(CuseInitIn, 16, minor @ 4, flags @ 12);

wire_struct! {
    /// The answer to CUSE_INIT; a list of `KEY=VALUE` strings with NULs follows, with `DEVNAME` among them.
    pub struct CuseInitOut {
        /// Major version of the protocol.
        pub major: u32,
        /// Minor version of the protocol.
        pub minor: u32,
        /// Zero.
        pub unused: u32,
        /// What the server agrees to.
        pub flags: CuseInitFlags,
        /// The most that one READ asks for, in bytes.
        pub max_read: u32,
        /// The most that one WRITE carries, in bytes.
        pub max_write: u32,
        /// Number of the character device; 0 lets the kernel choose.
        pub dev_major: u32,
        /// Number of the character device.
        pub dev_minor: u32,
        /// Zero.
        pub spare: [u32; 10],
    }
}

layout!(CuseInitOut, 72, flags @ 12, max_read @ 16, max_write @ 20, dev_major @ 24, dev_minor @ 28, spare @ 32);
