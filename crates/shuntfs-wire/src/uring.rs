//! The structs of FUSE over io_uring.

use crate::macros::{layout, wire_struct};

/// Room for a request's header, or its reply's, in bytes.
pub const IN_OUT_LEN: usize = 128;
/// Room for a request's fixed struct in bytes.
pub const OP_IN_LEN: usize = 128;

wire_struct! {
    /// What the kernel and the server tell each other about a ring entry.
    pub struct UringEntInOut {
        /// Zero.
        pub flags: u64,
        /// To be given back at the commit.
        pub commit_id: u64,
        /// Length of what is in the payload, in bytes.
        pub payload_sz: u32,
        /// Zero.
        pub padding: u32,
        /// Zero.
        pub reserved: u64,
    }
}

layout!(UringEntInOut, 32, commit_id @ 8, payload_sz @ 16, reserved @ 24);

/// The header area of a ring entry.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable,
)]
#[repr(C)]
pub struct UringReqHeader {
    /// An [`crate::InHeader`] on the way in, an [`crate::OutHeader`] on the way out.
    pub in_out: [u8; IN_OUT_LEN],
    /// The request's fixed struct.
    pub op_in: [u8; OP_IN_LEN],
    /// What is said about the entry.
    pub ring_ent_in_out: UringEntInOut,
}

layout!(UringReqHeader, 288, op_in @ 128, ring_ent_in_out @ 256);

wire_struct! {
    /// The command part of a submission, at its byte 48.
    pub struct UringCmdReq {
        /// Zero.
        pub flags: u64,
        /// The entry's, at a commit.
        pub commit_id: u64,
        /// The kernel's queue: a CPU's number.
        pub qid: u16,
        /// Zero.
        pub padding: [u8; 6],
    }
}

layout!(UringCmdReq, 24, commit_id @ 8, qid @ 16);
