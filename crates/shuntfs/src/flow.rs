//! The settlement: what a file system wished for one open, and what becomes of it.
//!
//! The kernel keeps one io mode a node (`fs/fuse/iomode.c`, Linux 6.9) and fails an open that does not fit it
//! with EIO. This table is the one place that knows those rules, so that no open fails because two opens of
//! one file wished differently:
//!
//! - a node with a backing id is in passthrough, and stays so while the id is kept: a mapping outlives its
//!   descriptor, and cached pages beside it would be stale. Every further open carries the same id; one that
//!   wished for something else also carries `DIRECT_IO`, so that READ and WRITE reach us;
//! - a node with cached opens cannot enter passthrough;
//! - an open that bypasses the page cache enters the cached mode by itself when it is mapped shared, without
//!   telling us, so it keeps passthrough away as a cached one does.

use shuntfs_wire::FopenFlags;

use crate::delegation::{CacheHint, Delegation, Flow, Reason};

/// The kind of a [`Delegation`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wish {
    Served,
    Splice,
    Passthrough,
    Ranges,
}

impl Wish {
    pub(crate) fn of(delegation: &Delegation) -> Self {
        match delegation {
            Delegation::Served => Self::Served,
            Delegation::Splice(_) => Self::Splice,
            Delegation::Passthrough(_) => Self::Passthrough,
            Delegation::PerRange(_) => Self::Ranges,
        }
    }
}

/// What the opens of a node so far oblige the next one to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IoMode {
    /// No opens, and no backing id.
    Free,
    /// Only opens that bypass the page cache.
    Direct,
    /// At least one open through the page cache.
    Cached,
    /// The node has a backing id, in use or kept.
    Backed,
}

/// What the mount has to offer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Offer {
    /// Whether a file may enter passthrough, or why not.
    pub(crate) passthrough: Result<(), Reason>,
    /// Whether requests arrive on rings.
    pub(crate) ring: bool,
}

/// How an open counts in its node's io mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OpenKind {
    Cached,
    Direct,
    /// Carries the node's backing id.
    Backed,
}

/// What becomes of one open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Settled {
    pub(crate) flow: Flow,
    pub(crate) reason: Reason,
    pub(crate) flags: FopenFlags,
    pub(crate) kind: OpenKind,
}

/// Settles one open. Where the result is passthrough on a free node, the caller must register the lower file
/// and, should that fail, settle again with the failure as the offer.
pub(crate) fn settle(wish: Wish, cache: CacheHint, mode: IoMode, offer: Offer) -> Settled {
    let ours = match wish {
        Wish::Served => Flow::Served,
        Wish::Ranges => Flow::Ranges,
        Wish::Splice | Wish::Passthrough if offer.ring => Flow::Relay,
        Wish::Splice | Wish::Passthrough => Flow::Splice,
    };
    match (wish, mode, offer.passthrough) {
        (Wish::Passthrough, IoMode::Backed, _) | (Wish::Passthrough, IoMode::Free, Ok(())) => Settled {
            flow: Flow::Passthrough,
            reason: Reason::Wished,
            flags: FopenFlags::PASSTHROUGH,
            kind: OpenKind::Backed,
        },
        (Wish::Passthrough, _, Err(reason)) => unbacked(ours, cache, reason),
        (Wish::Passthrough, IoMode::Cached, Ok(())) => unbacked(ours, cache, Reason::CachedOpens),
        (Wish::Passthrough, IoMode::Direct, Ok(())) => unbacked(ours, cache, Reason::DirectOpens),
        (_, IoMode::Backed, _) => Settled {
            flow: ours,
            reason: Reason::PassthroughOpens,
            flags: FopenFlags::PASSTHROUGH | FopenFlags::DIRECT_IO | FopenFlags::PARALLEL_DIRECT_WRITES,
            kind: OpenKind::Backed,
        },
        (_, IoMode::Free | IoMode::Direct | IoMode::Cached, _) => unbacked(ours, cache, Reason::Wished),
    }
}

/// An open of a node that has no backing id. `KEEP_CACHE` is only ever set here: with passthrough the kernel
/// refuses it.
fn unbacked(flow: Flow, cache: CacheHint, reason: Reason) -> Settled {
    let (flags, kind) = match cache {
        CacheHint::Drop => (FopenFlags::empty(), OpenKind::Cached),
        CacheHint::Keep => (FopenFlags::KEEP_CACHE, OpenKind::Cached),
        CacheHint::Direct => (FopenFlags::DIRECT_IO | FopenFlags::PARALLEL_DIRECT_WRITES, OpenKind::Direct),
    };
    Settled { flow, reason, flags, kind }
}

#[cfg(test)]
mod test {
    use super::*;

    const WISHES: [Wish; 4] = [Wish::Served, Wish::Splice, Wish::Passthrough, Wish::Ranges];
    const HINTS: [CacheHint; 3] = [CacheHint::Drop, CacheHint::Keep, CacheHint::Direct];
    const MODES: [IoMode; 4] = [IoMode::Free, IoMode::Direct, IoMode::Cached, IoMode::Backed];
    const REFUSALS: [Reason; 7] = [
        Reason::KernelLacks,
        Reason::NotPrivileged,
        Reason::TooDeep,
        Reason::Writeback,
        Reason::TurnedOff,
        Reason::NotBackable,
        Reason::RegisterFailed,
    ];

    fn offers() -> impl Iterator<Item = Offer> {
        let passthrough = std::iter::once(Ok(())).chain(REFUSALS.map(Err));
        passthrough.flat_map(|passthrough| [false, true].map(|ring| Offer { passthrough, ring }))
    }

    /// The table, written out: wish, mode, whether passthrough is offered -> flow on a device, reason, and
    /// whether the open carries the backing id. `None` as reason stands for the refusal itself.
    type Row = (Wish, IoMode, bool, Flow, Option<Reason>, bool);
    const TABLE: [Row; 32] = {
        use Flow::{Passthrough as FPass, Ranges as FRanges, Served as FServed, Splice as FSplice};
        use IoMode::{Backed, Cached, Direct, Free};
        use Reason::{CachedOpens, DirectOpens, PassthroughOpens, Wished};
        use Wish::{Passthrough, Ranges, Served, Splice};
        [
            (Served, Free, true, FServed, Some(Wished), false),
            (Served, Free, false, FServed, Some(Wished), false),
            (Served, Direct, true, FServed, Some(Wished), false),
            (Served, Direct, false, FServed, Some(Wished), false),
            (Served, Cached, true, FServed, Some(Wished), false),
            (Served, Cached, false, FServed, Some(Wished), false),
            (Served, Backed, true, FServed, Some(PassthroughOpens), true),
            (Served, Backed, false, FServed, Some(PassthroughOpens), true),
            (Splice, Free, true, FSplice, Some(Wished), false),
            (Splice, Free, false, FSplice, Some(Wished), false),
            (Splice, Direct, true, FSplice, Some(Wished), false),
            (Splice, Direct, false, FSplice, Some(Wished), false),
            (Splice, Cached, true, FSplice, Some(Wished), false),
            (Splice, Cached, false, FSplice, Some(Wished), false),
            (Splice, Backed, true, FSplice, Some(PassthroughOpens), true),
            (Splice, Backed, false, FSplice, Some(PassthroughOpens), true),
            (Passthrough, Free, true, FPass, Some(Wished), true),
            (Passthrough, Free, false, FSplice, None, false),
            (Passthrough, Direct, true, FSplice, Some(DirectOpens), false),
            (Passthrough, Direct, false, FSplice, None, false),
            (Passthrough, Cached, true, FSplice, Some(CachedOpens), false),
            (Passthrough, Cached, false, FSplice, None, false),
            (Passthrough, Backed, true, FPass, Some(Wished), true),
            (Passthrough, Backed, false, FPass, Some(Wished), true),
            (Ranges, Free, true, FRanges, Some(Wished), false),
            (Ranges, Free, false, FRanges, Some(Wished), false),
            (Ranges, Direct, true, FRanges, Some(Wished), false),
            (Ranges, Direct, false, FRanges, Some(Wished), false),
            (Ranges, Cached, true, FRanges, Some(Wished), false),
            (Ranges, Cached, false, FRanges, Some(Wished), false),
            (Ranges, Backed, true, FRanges, Some(PassthroughOpens), true),
            (Ranges, Backed, false, FRanges, Some(PassthroughOpens), true),
        ]
    };

    fn row(wish: Wish, mode: IoMode, offered: bool) -> Row {
        let mut rows = TABLE.into_iter().filter(|row| (row.0, row.1, row.2) == (wish, mode, offered));
        let row = rows.next().expect("a row for every cell");
        assert!(rows.next().is_none(), "one row for {wish:?} {mode:?} {offered}");
        row
    }

    #[test]
    fn every_cell_is_as_written() {
        let mut cells = 0;
        for (wish, mode, offer) in WISHES
            .into_iter()
            .flat_map(|wish| MODES.map(|mode| (wish, mode)))
            .flat_map(|(wish, mode)| offers().map(move |offer| (wish, mode, offer)))
        {
            for cache in HINTS {
                let settled = settle(wish, cache, mode, offer);
                let (_, _, _, flow, reason, backed) = row(wish, mode, offer.passthrough.is_ok());
                let flow = if flow == Flow::Splice && offer.ring { Flow::Relay } else { flow };
                let reason = reason.unwrap_or_else(|| offer.passthrough.expect_err("refused"));
                let what = format!("{wish:?} {cache:?} {mode:?} {offer:?}");
                assert_eq!(settled.flow, flow, "{what}");
                assert_eq!(settled.reason, reason, "{what}");
                assert_eq!(settled.kind == OpenKind::Backed, backed, "{what}");
                cells += 1;
            }
        }
        assert_eq!(cells, 4 * 3 * 4 * 16);
    }

    /// `fs/fuse/iomode.c`: what the kernel would answer with EIO is never settled.
    #[test]
    fn the_kernel_accepts_every_cell() {
        for wish in WISHES {
            for (cache, mode) in HINTS.into_iter().flat_map(|cache| MODES.map(|mode| (cache, mode))) {
                for offer in offers() {
                    let settled = settle(wish, cache, mode, offer);
                    let what = format!("{wish:?} {cache:?} {mode:?} {offer:?} -> {settled:?}");
                    let passthrough = settled.flags.contains(FopenFlags::PASSTHROUGH);
                    let direct = settled.flags.contains(FopenFlags::DIRECT_IO);
                    let kind = match (passthrough, direct) {
                        (true, _) => OpenKind::Backed,
                        (false, true) => OpenKind::Direct,
                        (false, false) => OpenKind::Cached,
                    };
                    assert_eq!(settled.kind, kind, "{what}");
                    assert!(!(passthrough && settled.flags.contains(FopenFlags::KEEP_CACHE)), "{what}");
                    assert!(!(passthrough && matches!(mode, IoMode::Cached | IoMode::Direct)), "{what}");
                    assert!(passthrough || mode != IoMode::Backed, "{what}");
                    let reaches_us = !passthrough || direct;
                    assert_eq!(settled.flow == Flow::Passthrough, !reaches_us, "{what}");
                }
            }
        }
    }

    #[test]
    fn the_cache_hint_is_followed_where_nothing_is_in_its_way() {
        let offer = Offer { passthrough: Ok(()), ring: false };
        let flags = |cache| settle(Wish::Served, cache, IoMode::Free, offer).flags;
        assert_eq!(flags(CacheHint::Drop), FopenFlags::empty());
        assert_eq!(flags(CacheHint::Keep), FopenFlags::KEEP_CACHE);
        assert_eq!(flags(CacheHint::Direct), FopenFlags::DIRECT_IO | FopenFlags::PARALLEL_DIRECT_WRITES);
    }
}
