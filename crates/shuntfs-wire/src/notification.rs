//! What the server tells the kernel without being asked. Written to the device, on any descriptor of the
//! connection; refused on io_uring.

use zerocopy::IntoBytes;

use crate::op::{
    InvalEntryFlags, NotifyDeleteOut, NotifyInvalEntryOut, NotifyInvalInodeOut, NotifyPollWakeupOut,
    NotifyPruneOut, NotifyRetrieveOut, NotifyStoreOut,
};
use crate::{Name, NodeId, OutHeader};

/// A notification.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Notification<'a> {
    /// Somebody who polls may look again.
    Poll {
        /// The kernel's number, from the POLL request.
        kh: u64,
    },
    /// A node's attributes and a range of its pages are not to be believed.
    InvalInode {
        /// The node.
        node: NodeId,
        /// Where the range starts, in bytes; negative for attributes only.
        offset: i64,
        /// How long it is, in bytes; 0 or less for up to the end.
        len: i64,
    },
    /// A name is not to be believed (7.12; expiry 7.38).
    InvalEntry {
        /// The folder.
        parent: NodeId,
        /// The name.
        name: Name<'a>,
        /// Whether it only expires, so that users of the entry keep it.
        expire_only: bool,
    },
    /// Puts data into the page cache (7.15).
    Store {
        /// The node.
        node: NodeId,
        /// Where, in bytes.
        offset: u64,
        /// What.
        data: &'a [u8],
    },
    /// Asks for cached data, which a NOTIFY_REPLY brings (7.15).
    Retrieve {
        /// What the NOTIFY_REPLY will carry.
        unique: u64,
        /// The node.
        node: NodeId,
        /// Where, in bytes.
        offset: u64,
        /// How much, in bytes.
        size: u32,
    },
    /// A name is gone, and with it, for watchers, the node (7.18).
    Delete {
        /// The folder.
        parent: NodeId,
        /// The node.
        child: NodeId,
        /// The name.
        name: Name<'a>,
    },
    /// Sends all unanswered requests again (7.40).
    Resend,
    /// No name looked up before must be believed (7.44).
    IncEpoch,
    /// Drops unused names of nodes, so that FORGETs come (7.45).
    Prune {
        /// The nodes.
        nodes: &'a [NodeId],
    },
}

impl Notification<'_> {
    /// The kernel's number for it.
    #[must_use]
    pub const fn code(&self) -> i32 {
        match self {
            Self::Poll { .. } => 1,
            Self::InvalInode { .. } => 2,
            Self::InvalEntry { .. } => 3,
            Self::Store { .. } => 4,
            Self::Retrieve { .. } => 5,
            Self::Delete { .. } => 6,
            Self::Resend => 7,
            Self::IncEpoch => 8,
            Self::Prune { .. } => 9,
        }
    }

    /// Replaces what is in `out` by the whole message, to be written in one piece.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&[0; size_of::<OutHeader>()]);
        self.body(out);
        let len = u32::try_from(out.len()).unwrap_or(u32::MAX);
        let header = OutHeader { len, error: self.code(), unique: 0 };
        if let Some(place) = out.first_chunk_mut() {
            let _: &mut [u8; size_of::<OutHeader>()] = place;
            place.copy_from_slice(header.as_bytes());
        }
    }

    fn body(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Poll { kh } => out.extend_from_slice(NotifyPollWakeupOut { kh }.as_bytes()),
            Self::InvalInode { node, offset, len } => {
                out.extend_from_slice(NotifyInvalInodeOut { ino: node.get(), off: offset, len }.as_bytes());
            }
            Self::InvalEntry { parent, name, expire_only } => {
                let flags = if expire_only { InvalEntryFlags::EXPIRE_ONLY } else { InvalEntryFlags::empty() };
                let arg =
                    NotifyInvalEntryOut { parent: parent.get(), namelen: len_of(name.as_bytes()), flags };
                out.extend_from_slice(arg.as_bytes());
                out.extend_from_slice(name.as_c_str().to_bytes_with_nul());
            }
            Self::Store { node, offset, data } => {
                let arg = NotifyStoreOut { nodeid: node.get(), offset, size: len_of(data), padding: 0 };
                out.extend_from_slice(arg.as_bytes());
                out.extend_from_slice(data);
            }
            Self::Retrieve { unique, node, offset, size } => {
                let nodeid = node.get();
                let arg = NotifyRetrieveOut { notify_unique: unique, nodeid, offset, size, padding: 0 };
                out.extend_from_slice(arg.as_bytes());
            }
            Self::Delete { parent, child, name } => {
                let namelen = len_of(name.as_bytes());
                let arg = NotifyDeleteOut { parent: parent.get(), child: child.get(), namelen, padding: 0 };
                out.extend_from_slice(arg.as_bytes());
                out.extend_from_slice(name.as_c_str().to_bytes_with_nul());
            }
            Self::Resend | Self::IncEpoch => {}
            Self::Prune { nodes } => {
                let count = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
                out.extend_from_slice(NotifyPruneOut { count, padding: 0, spare: 0 }.as_bytes());
                out.extend(nodes.iter().flat_map(|node| node.get().to_ne_bytes()));
            }
        }
    }
}

/// Longer than the kernel takes is refused by the kernel.
fn len_of(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn lengths_and_codes_are_the_kernels() {
        let node = NodeId::ROOT;
        let name = Name::new(c"ab").unwrap();
        let table: [(Notification<'_>, i32, usize); 9] = [
            (Notification::Poll { kh: 1 }, 1, 8),
            (Notification::InvalInode { node, offset: -1, len: 0 }, 2, 24),
            (Notification::InvalEntry { parent: node, name, expire_only: true }, 3, 16 + 3),
            (Notification::Store { node, offset: 0, data: b"xyz" }, 4, 24 + 3),
            (Notification::Retrieve { unique: 1, node, offset: 0, size: 9 }, 5, 32),
            (Notification::Delete { parent: node, child: node, name }, 6, 24 + 3),
            (Notification::Resend, 7, 0),
            (Notification::IncEpoch, 8, 0),
            (Notification::Prune { nodes: &[node, node] }, 9, 16 + 16),
        ];
        for (notification, code, body_len) in table {
            let mut bytes = vec![9; 3];
            notification.encode(&mut bytes);
            assert_eq!(bytes.len(), 16 + body_len, "{notification:?}");
            assert_eq!(bytes[..4], u32::try_from(bytes.len()).unwrap().to_ne_bytes());
            assert_eq!(bytes[4..8], code.to_ne_bytes());
            assert_eq!(bytes[8..16], [0; 8]);
        }
    }
}
