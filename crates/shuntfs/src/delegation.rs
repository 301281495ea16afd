//! Where the bytes of an open file flow: the wish of the file system, and what became of it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
pub use shuntfs_transport::{LowerFile, Traffic};

use crate::range_map::RangeMap;

/// A lower file that bytes may be delegated to.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Backing {
    /// This file, open already, with the access that the open asked for.
    File(Arc<LowerFile>),
    /// The node's one lower file. The library asks [`crate::Filesystem::lower_file`] for it only when it
    /// needs it, so that a repeated passthrough open costs no lower system call.
    OfNode,
}

/// What the library wants a lower file for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Access {
    /// To register it with the kernel: `O_PATH` is enough, and best.
    Register,
    /// To move bytes of this open: it must be open with the access mode of the open, without `O_APPEND`
    /// (WRITE carries its offset), with `O_DIRECT` and `O_SYNC` as the open has them.
    Move,
}

/// How READ and WRITE on one open file shall flow. A wish: the settlement table makes a [`Flow`] of it and
/// counts every downgrade with its reason. No open fails because two opens of one file wished differently, but for one
/// reason: while a node is open with [`Delegation::Verified`] or [`Delegation::VerifiedBelow`], an open of it with another
/// delegation gets EBUSY, and the other way round. Its pages in the kernel's cache, and what a mapping of it shows, are the
/// node's and not the open's. When the last of the one sort is closed the other may come, and finds no page and no backing file
/// of the former.
///
/// Delegated bytes skip [`crate::Filesystem::read`] and `write`: accounting, quota and checks of content
/// are then not the file system's.
///
/// While another open of the node is in passthrough (or was, and its backing id is kept), an open that asked
/// for something else has its READ and WRITE answered as wished, but a *mapping* of it shows the lower file.
/// A file system that hides or changes bytes must therefore decide by node, not by open.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Delegation {
    /// READ and WRITE call the trait.
    Served,
    /// The library moves the bytes, without looking at them.
    Splice(Backing),
    /// The kernel moves the bytes; no request reaches us.
    Passthrough(Backing),
    /// READ and WRITE call the trait, as for [`Delegation::Served`], and its `read` answers with the bytes of a lower file
    /// only after it has checked them: see [`crate::ReadReply::draft_from`].
    Verified,
    /// As [`Delegation::Passthrough`], for a file whose lower file system checks its bytes. A READ that reaches us anyway
    /// (no passthrough here, `readahead(2)`) is answered as for [`Delegation::Verified`]: moved without a look, the bytes
    /// before a bad block would be a short answer, which the kernel takes for the end of the file.
    VerifiedBelow(Backing),
    /// Asked for each request: lower bytes, zeroes, or the trait. A map of one extent that is a whole lower file
    /// forever is lifted to [`Delegation::Passthrough`] at open: see [`RangeMap`].
    PerRange(Arc<dyn RangeMap>),
    /// READ one way and WRITE another, as [`Delegation::split`] makes it.
    Split(Arc<Split>),
}

/// Two delegations of one open.
#[derive(Debug)]
pub struct Split {
    reads: Delegation,
    writes: Delegation,
}

impl Delegation {
    /// READ flows as `reads` says, WRITE as `writes` says. The kernel passes both directions through, or none, so
    /// passthrough of one direction alone becomes [`Delegation::Splice`]; what is the same both ways is no split.
    ///
    /// Through the page cache, a READ of what was just written is answered by the kernel with what was written. Where
    /// `reads` would say otherwise, the open must bypass it ([`CacheHint::Direct`]).
    #[must_use]
    pub fn split(reads: Self, writes: Self) -> Self {
        let (reads, writes) = (reads.of_reads().clone(), writes.of_writes().clone());
        if reads.is_same(&writes) { reads } else { Self::Split(Arc::new(Split { reads, writes })) }
    }

    /// How READ is to flow; never a split.
    #[must_use]
    pub fn of_reads(&self) -> &Self {
        match self {
            Self::Split(split) => split.reads.of_reads(),
            whole => whole,
        }
    }

    /// How WRITE is to flow; never a split.
    #[must_use]
    pub fn of_writes(&self) -> &Self {
        match self {
            Self::Split(split) => split.writes.of_writes(),
            whole => whole,
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Served, Self::Served) | (Self::Verified, Self::Verified) => true,
            (Self::Splice(one), Self::Splice(other)) => one.is_same(other),
            (Self::Passthrough(one), Self::Passthrough(other))
            | (Self::VerifiedBelow(one), Self::VerifiedBelow(other)) => one.is_same(other),
            (Self::PerRange(one), Self::PerRange(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl Backing {
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::OfNode, Self::OfNode) => true,
            (Self::File(one), Self::File(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

/// What happens to the kernel's cached pages of a file at an open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CacheHint {
    /// They are dropped.
    Drop,
    /// They are kept: the file has not changed but through this mount.
    Keep,
    /// The open bypasses the page cache.
    Direct,
    /// As `Keep`, and better than passthrough, where an open that wishes for that is not bound to it by another one: the
    /// file is small and is read again and again. Each read in passthrough costs the next `fstat` a request, because the
    /// kernel then takes the time of access for unknown; pages that it keeps cost neither. The file system must know
    /// that no shared mapping is left that stores through an earlier passthrough open.
    Again,
}

/// An open file, as the file system answers OPEN, CREATE and TMPFILE.
#[derive(Debug)]
pub struct Opened<T> {
    /// The file system's state of this open file.
    pub file: T,
    /// How its bytes shall flow.
    pub delegation: Delegation,
    /// What happens to cached pages.
    pub cache: CacheHint,
    /// Whether each close must send FLUSH.
    pub flush: bool,
}

impl<T> Opened<T> {
    /// An open file whose bytes flow as `delegation` says. Cached pages are dropped, and no close sends FLUSH.
    pub fn new(file: T, delegation: Delegation) -> Self {
        Self { file, delegation, cache: CacheHint::Drop, flush: false }
    }

    /// An open file whose READ and WRITE call the trait; else as [`Opened::new`].
    pub fn served(file: T) -> Self {
        Self::new(file, Delegation::Served)
    }

    /// With this to become of cached pages.
    #[must_use]
    pub fn with_cache(self, cache: CacheHint) -> Self {
        Self { cache, ..self }
    }

    /// With FLUSH at each close, where [`crate::OpSet::FLUSH`] is among the operations.
    #[must_use]
    pub fn with_flush(self) -> Self {
        Self { flush: true, ..self }
    }
}

/// An open folder.
#[derive(Debug)]
pub struct OpenedDir<T> {
    /// The file system's state of this open folder.
    pub dir: T,
    /// Whether the kernel may keep the listing beyond this open: it changes only through this mount.
    pub cache: bool,
}

impl<T> OpenedDir<T> {
    /// An open folder that may change otherwise than through this mount: each open lists it anew.
    pub fn new(dir: T) -> Self {
        Self { dir, cache: false }
    }

    /// An open folder whose listing the kernel may keep.
    pub fn cached(dir: T) -> Self {
        Self { dir, cache: true }
    }
}

/// How the bytes of an open file move, settled.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Flow {
    /// By the kernel, lower file to caller; no request reaches us.
    Passthrough,
    /// By the kernel, through a pipe of ours.
    Splice,
    /// By our queue, the lower file straight into the request's payload.
    Relay,
    /// By extent.
    Ranges,
    /// As [`Flow::Relay`], but each block is checked before the answer leaves.
    Verified,
    /// By the file system.
    Served,
    /// As [`Flow::Relay`], but straight between the lower file and the pages of the caller, or of the page cache: neither we nor the kernel
    /// copy a byte between server and caller (Linux 7.3).
    ZeroCopy,
}

/// The flow of one direction, and why it is the one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Settled {
    /// How its bytes move.
    pub flow: Flow,
    /// Whether that was requested, or what was in the way.
    pub reason: Reason,
}

/// The flows of one open file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Flows {
    /// Of READ.
    pub reads: Settled,
    /// Of WRITE.
    pub writes: Settled,
}

impl Flows {
    /// The same flow both ways.
    #[must_use]
    pub const fn both(flow: Flow, reason: Reason) -> Self {
        let one = Settled { flow, reason };
        Self { reads: one, writes: one }
    }

    /// Whether READ and WRITE flow differently.
    #[must_use]
    pub fn is_split(&self) -> bool {
        self.reads.flow != self.writes.flow
    }
}

/// Why a flow is not the one that was requested.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// It is the one requested.
    Wished,
    /// The kernel offers no passthrough.
    KernelLacks,
    /// `CAP_SYS_ADMIN` in the first user namespace is missing.
    NotPrivileged,
    /// The lower file system is stacked too deep.
    TooDeep,
    /// Writeback caching excludes passthrough.
    Writeback,
    /// Passthrough was turned off by a setting.
    TurnedOff,
    /// Other opens of the node flow through the page cache.
    CachedOpens,
    /// Other opens of the node bypass the page cache, and may enter it at any time by being mapped.
    DirectOpens,
    /// The node is in passthrough, or was and may still be mapped, so READ and WRITE bypass the page cache.
    PassthroughOpens,
    /// The lower file cannot back a file (a device, a FIFO).
    NotBackable,
    /// The lower file could not be registered for another reason.
    RegisterFailed,
    /// Passthrough was requested one direction alone.
    OneDirection,
    /// The file is small and read again and again, so the kernel had better keep its pages.
    ReadAgain,
    /// The lower file system may become full before the file is closed, which nobody could help it with in passthrough.
    NearFull,
}

impl Flow {
    /// Every flow, each at the place of its number.
    pub const ALL: [Self; 7] = [
        Self::Passthrough,
        Self::Splice,
        Self::Relay,
        Self::Ranges,
        Self::Verified,
        Self::Served,
        Self::ZeroCopy,
    ];

    /// The flow's name, as it is shown.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Passthrough => "passthrough",
            Self::Splice => "splice",
            Self::Relay => "relay",
            Self::Ranges => "ranges",
            Self::Verified => "verified",
            Self::Served => "served",
            Self::ZeroCopy => "zero_copy",
        }
    }
}

impl Reason {
    /// Every reason, each at the place of its number.
    pub const ALL: [Self; 14] = [
        Self::Wished,
        Self::KernelLacks,
        Self::NotPrivileged,
        Self::TooDeep,
        Self::Writeback,
        Self::TurnedOff,
        Self::CachedOpens,
        Self::DirectOpens,
        Self::PassthroughOpens,
        Self::NotBackable,
        Self::RegisterFailed,
        Self::OneDirection,
        Self::ReadAgain,
        Self::NearFull,
    ];

    /// The reason's name, as it is counted.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wished => "wished",
            Self::KernelLacks => "kernel_lacks",
            Self::NotPrivileged => "not_privileged",
            Self::TooDeep => "too_deep",
            Self::Writeback => "writeback",
            Self::TurnedOff => "turned_off",
            Self::CachedOpens => "cached_opens",
            Self::DirectOpens => "direct_opens",
            Self::PassthroughOpens => "passthrough_opens",
            Self::NotBackable => "not_backable",
            Self::RegisterFailed => "register_failed",
            Self::OneDirection => "one_direction",
            Self::ReadAgain => "read_again",
            Self::NearFull => "near_full",
        }
    }
}

impl std::fmt::Display for Flow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Wished => "as the file system wished",
            Self::KernelLacks => "the kernel offers no passthrough",
            Self::NotPrivileged => "passthrough needs CAP_SYS_ADMIN in the first user namespace",
            Self::TooDeep => "the lower file system is stacked too deep for passthrough",
            Self::Writeback => "writeback caching excludes passthrough",
            Self::TurnedOff => "passthrough is turned off",
            Self::CachedOpens => "other opens of the file flow through the page cache",
            Self::DirectOpens => "other opens of the file bypass the page cache",
            Self::PassthroughOpens => "the file is in passthrough for other opens",
            Self::NotBackable => "the lower file cannot back a file",
            Self::RegisterFailed => "the lower file could not be registered",
            Self::OneDirection => "the kernel passes reads and writes through, or neither",
            Self::ReadAgain => "a small file that is read again and again: the kernel keeps its pages",
            Self::NearFull => "its disk may become full while it is written: without passthrough it can then be moved to another",
        })
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_split_is_flat_and_only_where_the_ways_differ() {
        let splice = || Delegation::Splice(Backing::OfNode);
        let split = Delegation::split(Delegation::Served, splice());
        assert!(matches!((split.of_reads(), split.of_writes()), (Delegation::Served, Delegation::Splice(_))));
        let again = Delegation::split(split.clone(), Delegation::split(splice(), Delegation::Served));
        assert!(
            matches!(again, Delegation::Served),
            "the reads of one and the writes of the other: {again:?}"
        );
        assert!(matches!(Delegation::split(splice(), splice()), Delegation::Splice(_)));
        let checked = Delegation::split(Delegation::Verified, Delegation::Verified);
        assert!(matches!(checked, Delegation::Verified));
        assert!(matches!(Delegation::split(checked, Delegation::Served), Delegation::Split(_)));
        let file = || {
            let file = std::fs::File::open("/proc/self/exe").unwrap();
            Backing::File(Arc::new(LowerFile::new(file.into())))
        };
        let one = file();
        let passes = |one: &Backing, other: &Backing| {
            Delegation::split(Delegation::Passthrough(one.clone()), Delegation::Passthrough(other.clone()))
        };
        assert!(matches!(passes(&one, &one), Delegation::Passthrough(_)));
        assert!(matches!(passes(&one, &file()), Delegation::Split(_)), "two lower files");
    }

    #[test]
    fn numbers_are_places() {
        for (place, flow) in Flow::ALL.into_iter().enumerate() {
            assert_eq!(flow as usize, place);
        }
        for (place, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, place);
        }
    }
}
