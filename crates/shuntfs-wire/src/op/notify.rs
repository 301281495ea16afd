//! Bodies of notifications, and of the NOTIFY_REPLY that answers one. [`crate::Notification`] encodes them.

use crate::macros::{flag_set, layout, wire_struct};

wire_struct! {
    /// Body of POLL.
    pub struct NotifyPollWakeupOut {
        /// The kernel's number, from the POLL request.
        pub kh: u64,
    }
}

layout!(NotifyPollWakeupOut, 8);

wire_struct! {
    /// Body of INVAL_INODE.
    pub struct NotifyInvalInodeOut {
        /// The node.
        pub ino: u64,
        /// Where the data to drop starts, in bytes; negative drops attributes only.
        pub off: i64,
        /// How long it is, in bytes; 0 or less for up to the end.
        pub len: i64,
    }
}

layout!(NotifyInvalInodeOut, 24, off @ 8, len @ 16);

flag_set! {
    /// Flags of INVAL_ENTRY.
    pub struct InvalEntryFlags: u32 {
        /// Let the entry expire, so that it is looked up again, rather than dropping it (7.38).
        const EXPIRE_ONLY = 1 << 0;
    }
}

wire_struct! {
    /// Body of INVAL_ENTRY; the name and a NUL follow.
    pub struct NotifyInvalEntryOut {
        /// The folder.
        pub parent: u64,
        /// Length of the name in bytes, without the NUL.
        pub namelen: u32,
        /// How.
        pub flags: InvalEntryFlags,
    }
}

layout!(NotifyInvalEntryOut, 16, namelen @ 8, flags @ 12);

wire_struct! {
    /// Body of DELETE; the name and a NUL follow.
    pub struct NotifyDeleteOut {
        /// The folder.
        pub parent: u64,
        /// The node that lost its name.
        pub child: u64,
        /// Length of the name in bytes, without the NUL.
        pub namelen: u32,
        /// Zero.
        pub padding: u32,
    }
}

layout!(NotifyDeleteOut, 24, child @ 8, namelen @ 16);

wire_struct! {
    /// Body of STORE; the data follows.
    pub struct NotifyStoreOut {
        /// The node.
        pub nodeid: u64,
        /// Where, in bytes.
        pub offset: u64,
        /// How much, in bytes.
        pub size: u32,
        /// Zero.
        pub padding: u32,
    }
}

layout!(NotifyStoreOut, 24, offset @ 8, size @ 16);

wire_struct! {
    /// Body of RETRIEVE.
    pub struct NotifyRetrieveOut {
        /// What the NOTIFY_REPLY will carry as its request's number.
        pub notify_unique: u64,
        /// The node.
        pub nodeid: u64,
        /// Where, in bytes.
        pub offset: u64,
        /// How much, in bytes.
        pub size: u32,
        /// Zero.
        pub padding: u32,
    }
}

layout!(NotifyRetrieveOut, 32, nodeid @ 8, offset @ 16, size @ 24);

wire_struct! {
    /// Arguments of NOTIFY_REPLY; the data follows. The header's `unique` is the `notify_unique` asked with.
    pub struct NotifyRetrieveIn {
        /// Zero.
        pub dummy1: u64,
        /// Where, in bytes.
        pub offset: u64,
        /// How much, in bytes.
        pub size: u32,
        /// Zero.
        pub dummy2: u32,
        /// Zero.
        pub dummy3: u64,
        /// Zero.
        pub dummy4: u64,
    }
}

layout!(NotifyRetrieveIn, 40, offset @ 8, size @ 16);

wire_struct! {
    /// Body of PRUNE; `count` node ids of 8 bytes follow (7.45).
    pub struct NotifyPruneOut {
        /// How many.
        pub count: u32,
        /// Zero.
        pub padding: u32,
        /// Zero.
        pub spare: u64,
    }
}

layout!(NotifyPruneOut, 16, spare @ 8);
