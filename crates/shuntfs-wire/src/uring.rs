//! The structs of FUSE over io_uring.

use crate::macros::{flag_set, layout, wire_struct};

/// The command that gives the kernel an entry, and fetches its first request.
pub const CMD_REGISTER: u32 = 1;
/// The command that gives the kernel an entry's answer, and fetches the next request.
pub const CMD_COMMIT_AND_FETCH: u32 = 2;
/// The command that makes a queue, before its first entry: [`UringCmdReq::add_queue`] (7.46).
pub const CMD_ADD_QUEUE: u32 = 3;
/// The command that gives a queue a pool of payload buffers, before its first entry: [`UringAddBufpool`] (7.46).
pub const CMD_ADD_BUFPOOL: u32 = 4;

/// Room for a request's header, or its reply's, in bytes.
pub const IN_OUT_LEN: usize = 128;
/// Room for a request's fixed struct in bytes.
pub const OP_IN_LEN: usize = 128;

flag_set! {
    /// What is special about a request in a ring entry.
    pub struct UringEntFlags: u64 {
        /// Its pages are in the entry's place in the ring's table of buffers, and not in the payload (7.46).
        const ZERO_COPY = 1 << 0;
    }
}

flag_set! {
    /// What a queue must be able to do.
    pub struct UringQueueFlags: u64 {
        /// Zero copy: it needs `CAP_SYS_ADMIN`, a pool, and a place in the ring's table of buffers for each entry (7.46).
        const ZERO_COPY = 1 << 0;
    }
}

wire_struct! {
    /// What the kernel and the server tell each other about a ring entry.
    pub struct UringEntInOut {
        /// Of a request; zero in an answer.
        pub flags: UringEntFlags,
        /// To be given back at the commit.
        pub commit_id: u64,
        /// Length of what is in the payload, in bytes; of a WRITE with [`UringEntFlags::ZERO_COPY`], of what is in its pages.
        pub payload_sz: u32,
        /// Where in the queue's pool the request's buffer begins, in bytes (7.46). Zero without a pool, and for a request without a buffer.
        pub offset: u32,
        /// Zero.
        pub reserved: u64,
    }
}

layout!(UringEntInOut, 32, commit_id @ 8, payload_sz @ 16, offset @ 20, reserved @ 24);

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
    /// The command part of a submission, at its byte 48, but for [`CMD_ADD_BUFPOOL`].
    pub struct UringCmdReq {
        /// Of [`CMD_ADD_QUEUE`]; else zero.
        pub flags: UringQueueFlags,
        /// The entry's, at a commit.
        pub commit_id: u64,
        /// The kernel's queue: a CPU's number.
        pub qid: u16,
        /// Zero.
        pub padding: [u8; 6],
        /// The entry's place in the ring's table of buffers, at [`CMD_REGISTER`] on a queue with [`UringQueueFlags::ZERO_COPY`]; else zero.
        pub zero_copy_index: u16,
        /// Zero.
        pub reserved: [u8; 6],
    }
}

layout!(UringCmdReq, 32, commit_id @ 8, qid @ 16, zero_copy_index @ 24);

impl UringCmdReq {
    /// Makes a queue that can do what `flags` say.
    #[must_use]
    pub fn add_queue(qid: u16, flags: UringQueueFlags) -> Self {
        Self { flags, qid, ..Self::default() }
    }
}

wire_struct! {
    /// The command part of a [`CMD_ADD_BUFPOOL`] (7.46).
    pub struct UringAddBufpool {
        /// Zero.
        pub flags: u64,
        /// Zero.
        pub commit_id: u64,
        /// The kernel's queue: a CPU's number.
        pub qid: u16,
        /// Zero.
        pub padding: [u8; 6],
        /// Where the pool begins in the server's memory.
        pub address: u64,
        /// How long it is, in bytes: at least one payload, the longest that was agreed at INIT.
        pub len: u32,
        /// Zero.
        pub reserved: u32,
    }
}

layout!(UringAddBufpool, 40, qid @ 16, address @ 24, len @ 32);

#[cfg(test)]
mod test {
    use zerocopy::IntoBytes;

    use super::*;

    /// Linux 6.18 has 24 bytes of it and 8 of nothing, which are zero on its queues, as they were before there was a table.
    #[test]
    fn commands_are_as_they_were_without_zero_copy() {
        let commit = UringCmdReq { commit_id: 0x1122_3344_5566_7788, qid: 0x0102, ..UringCmdReq::default() };
        let mut wanted = [0; 32];
        wanted[8..16].copy_from_slice(&0x1122_3344_5566_7788_u64.to_ne_bytes());
        wanted[16..18].copy_from_slice(&0x0102_u16.to_ne_bytes());
        assert_eq!(commit.as_bytes(), wanted);
    }

    #[test]
    fn what_7_46_adds_lies_where_its_header_says() {
        let queue = UringCmdReq::add_queue(3, UringQueueFlags::ZERO_COPY);
        assert_eq!((queue.as_bytes()[0], queue.as_bytes()[16]), (1, 3));
        let entry = UringCmdReq { zero_copy_index: 0x0506, ..UringCmdReq::default() };
        assert_eq!(&entry.as_bytes()[24..], [&0x0506_u16.to_ne_bytes()[..], &[0; 6]].concat());
        let pool = UringAddBufpool { qid: 9, address: 0x1000, len: 0x2000, ..UringAddBufpool::default() };
        assert_eq!(pool.as_bytes()[16], 9);
        assert_eq!(&pool.as_bytes()[24..32], 0x1000_u64.to_ne_bytes());
        assert_eq!(&pool.as_bytes()[32..36], 0x2000_u32.to_ne_bytes());
    }
}
