//! Numbers, one type each.

use std::fmt;

use shuntfs_wire as wire;

macro_rules! number {
    ($(#[$outer:meta])* $name:ident $(, $derive:ident)*) => {
        $(#[$outer])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord $(, $derive)*)]
        #[cfg_attr(feature = "serializable", derive(serde::Serialize, serde::Deserialize))]
        pub struct $name(
            /// The number.
            pub u64,
        );
    };
}

macro_rules! into_u64 {
    ($($name:ident)*) => {
        $(impl From<$name> for u64 {
            fn from(number: $name) -> Self {
                number.0
            }
        })*
    };
}

macro_rules! display {
    ($($name:ident)*) => {
        $(impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        })*
    };
}

number! {
    /// The number of a node. The file system chooses it; the root is [`INodeNo::ROOT`].
    INodeNo, Hash
}
number! {
    /// The number of an open file or folder. The file system chooses it at open, and each later request repeats it.
    FileHandle, Hash
}
number! {
    /// Who holds a lock.
    LockOwner
}
number! {
    /// The number of a request. The kernel may use it again when the request is answered.
    RequestId, Hash
}
into_u64! { INodeNo FileHandle RequestId }
display! { INodeNo FileHandle LockOwner }

impl INodeNo {
    /// The root of the mount.
    pub const ROOT: Self = Self(1);
}

/// Tells two lives of one node number apart. A number that is used again for another file needs another generation
/// where the file system is exported over NFS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Generation(
    /// The number.
    pub u64,
);
into_u64! { Generation }

/// A version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serializable", derive(serde::Serialize, serde::Deserialize))]
pub struct Version(
    /// The major number.
    pub u32,
    /// The minor number.
    pub u32,
);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// One node of a [`crate::Filesystem::batch_forget`].
#[derive(Debug)]
pub struct ForgetOne {
    node: u64,
    lookups: u64,
}

impl ForgetOne {
    pub(crate) fn new(one: wire::ForgetOne) -> Self {
        Self { node: one.node().map_or(0, wire::NodeId::get), lookups: one.lookups().0 }
    }

    /// The node.
    pub fn nodeid(&self) -> INodeNo {
        INodeNo(self.node)
    }

    /// How many lookups the kernel takes back.
    pub fn nlookup(&self) -> u64 {
        self.lookups
    }
}
