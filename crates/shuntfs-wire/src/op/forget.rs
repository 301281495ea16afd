//! FORGET and BATCH_FORGET.

use zerocopy::native_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::macros::{layout, wire_struct};
use crate::{LookupCount, NodeId};

wire_struct! {
    /// Arguments of FORGET.
    pub struct ForgetIn {
        /// How many lookups the kernel takes back.
        pub nlookup: u64,
    }
}

layout!(ForgetIn, 8);

wire_struct! {
    /// Arguments of BATCH_FORGET; `count` records follow.
    pub struct BatchForgetIn {
        /// How many.
        pub count: u32,
        /// Zero.
        pub dummy: u32,
    }
}

layout!(BatchForgetIn, 8);

/// One record of BATCH_FORGET. It can stand at any address, because it is borrowed from where the request lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ForgetOne {
    nodeid: U64,
    nlookup: U64,
}

layout!(ForgetOne, 16, nodeid @ 0, nlookup @ 8);

impl ForgetOne {
    /// A record.
    #[must_use]
    pub const fn new(node: NodeId, lookups: LookupCount) -> Self {
        Self { nodeid: U64::new(node.get()), nlookup: U64::new(lookups.0) }
    }

    /// The node; `None` for zero, which names no node.
    #[must_use]
    pub const fn node(self) -> Option<NodeId> {
        NodeId::new(self.nodeid.get())
    }

    /// How many lookups the kernel takes back.
    #[must_use]
    pub const fn lookups(self) -> LookupCount {
        LookupCount(self.nlookup.get())
    }
}
