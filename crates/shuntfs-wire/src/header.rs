//! The header in front of every request, and of every reply and notification.

use crate::macros::{layout, wire_struct};
use crate::{Errno, NodeId, Opcode, Unique, abi};

wire_struct! {
    /// What stands in front of every request.
    pub struct InHeader {
        /// Length of the whole request in bytes, this header included.
        pub len: u32,
        /// The operation; [`InHeader::operation`] types it.
        pub opcode: u32,
        /// The request's number, to be repeated by the reply.
        pub unique: u64,
        /// The node it is about; 0 where there is none (INIT, BATCH_FORGET ...).
        pub nodeid: u64,
        /// The caller's file system user; [`abi::INVALID_ID`] where it cannot be mapped.
        pub uid: u32,
        /// The caller's file system group; [`abi::INVALID_ID`] where it cannot be mapped.
        pub gid: u32,
        /// The calling thread, 0 where it is not visible from the mount's pid namespace.
        pub pid: u32,
        /// Length of the extensions at the end of the request, in units of 8 bytes (7.38).
        pub total_extlen: u16,
        /// Zero.
        pub padding: u16,
    }
}

layout!(InHeader, 40, len @ 0, opcode @ 4, unique @ 8, nodeid @ 16, uid @ 24, gid @ 28, pid @ 32, total_extlen @ 36);

impl InHeader {
    /// Length in bytes.
    pub const LEN: usize = size_of::<Self>();

    /// The operation; `None` for one that this crate does not know.
    #[must_use]
    pub const fn operation(&self) -> Option<Opcode> {
        Opcode::new(self.opcode)
    }

    /// The node it is about; `None` for zero.
    #[must_use]
    pub const fn node(&self) -> Option<NodeId> {
        NodeId::new(self.nodeid)
    }

    /// The request's number, as the reply must repeat it.
    #[must_use]
    pub const fn request(&self) -> Unique {
        Unique(self.unique)
    }

    /// Whether the kernel sends this request for a second time: an earlier server may have carried it out.
    #[must_use]
    pub const fn is_resent(&self) -> bool {
        self.unique & abi::UNIQUE_RESEND != 0
    }

    /// Length of the extensions at the request's end, in bytes.
    #[must_use]
    pub const fn extensions_len(&self) -> usize {
        self.total_extlen as usize * 8
    }
}

wire_struct! {
    /// What stands in front of every reply, and, with a `unique` of zero, of every notification.
    pub struct OutHeader {
        /// Length of the whole reply in bytes, this header included. On a ring it is not read.
        pub len: u32,
        /// Zero, or an error number with a minus sign; in a notification its code.
        pub error: i32,
        /// The request's number.
        pub unique: u64,
    }
}

layout!(OutHeader, 16, len @ 0, error @ 4, unique @ 8);

impl OutHeader {
    /// Length in bytes.
    pub const LEN: usize = size_of::<Self>();

    /// In front of a successful reply of `body_len` bytes. Bodies are bounded by a request's size (at most
    /// 65,535 pages), so that the sum always fits; one that did not would be refused by the kernel.
    #[must_use]
    pub fn success(unique: Unique, body_len: usize) -> Self {
        let len = u32::try_from(Self::LEN.saturating_add(body_len)).unwrap_or(u32::MAX);
        Self { len, error: 0, unique: unique.0 }
    }

    /// The whole of an error reply: this is the one place where an error number gets its sign.
    #[must_use]
    pub fn error(unique: Unique, errno: Errno) -> Self {
        Self { len: LEN_ONLY, error: -i32::from(errno.get()), unique: unique.0 }
    }
}

const LEN_ONLY: u32 = 16;

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn replies_carry_length_sign_and_number() {
        let good = OutHeader::success(Unique(8), 104);
        assert_eq!((good.len, good.error, good.unique), (120, 0, 8));
        let bad = OutHeader::error(Unique(abi::UNIQUE_RESEND | 2), Errno::NOENT);
        assert_eq!((bad.len, bad.error, bad.unique), (16, -2, abi::UNIQUE_RESEND | 2));
    }

    #[test]
    fn a_resent_request_says_so() {
        assert!(InHeader { unique: abi::UNIQUE_RESEND | 6, ..Default::default() }.is_resent());
        assert!(!InHeader { unique: 6, ..Default::default() }.is_resent());
    }
}
