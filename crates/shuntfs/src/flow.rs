//! The settlement: what a file system requested one open, and what happens to it.
//!
//! The kernel keeps one io mode a node (`fs/fuse/iomode.c`, Linux 6.9) and fails an open that does not fit it
//! with EIO. This table is the one place that knows those rules, so that no open fails because two opens of
//! one file wished differently:
//!
//! - a node with a backing id is in passthrough, and stays so while the id is kept: a mapping outlives its
//!   descriptor, and cached pages beside it would be stale. Every further open carries the same id; one that
//!   requested something else also carries `DIRECT_IO`, so that READ and WRITE reach us;
//! - a node with cached opens cannot enter passthrough;
//! - an open that bypasses the page cache enters the cached mode by itself when it is mapped shared, without
//!   telling us, so it keeps passthrough away as a cached one does;
//! - a node passes both directions through, or none;
//! - an open with a backing id has no zero copy: Linux 7.3 answers the two together with EIO (`FOPEN_PASSTHROUGH_MASK`). Others have it where
//!   their READs are moved without a look, as a whole or by range, and the queues can do so. An open whose bytes must be seen has none, as
//!   each would have to be fetched from where the kernel put it;
//! - pages and the backing file are the node's, not the open's: an open whose bytes are checked shares its node
//!   with none whose bytes are not, and finds nothing that they left behind ([`Worth`]).

use shuntfs_wire::FopenFlags;

use crate::delegation::{CacheHint, Delegation, Flow, Flows, Reason, Settled};
use crate::range_map::FileKey;

/// The kind of a [`Delegation`] of one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    Served,
    Verified,
    Splice,
    Passthrough,
    VerifiedBelow,
    Ranges,
}

/// The kind of a [`Delegation`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wish {
    Whole(Way),
    Split {
        reads: Way,
        writes: Way,
    },
    /// A range map that is a whole lower file: passthrough, unless the node is in passthrough to another file.
    Lifted(FileKey),
}

impl Wish {
    pub(crate) fn of(delegation: &Delegation) -> Self {
        match delegation {
            Delegation::Split(_) => {
                Self::Split { reads: way(delegation.of_reads()), writes: way(delegation.of_writes()) }
            }
            whole => Self::Whole(way(whole)),
        }
    }
}

impl Wish {
    /// What the bytes are worth that are read through such an open.
    pub(crate) fn worth(self) -> Worth {
        let reads = match self {
            Self::Whole(way) | Self::Split { reads: way, .. } => way,
            Self::Lifted(_) => Way::Ranges,
        };
        match reads {
            Way::Verified | Way::VerifiedBelow => Worth::Checked,
            Way::Served | Way::Splice | Way::Passthrough | Way::Ranges => Worth::Unchecked,
        }
    }

    /// Whether such an open enters passthrough where the node and the mount allow it.
    pub(crate) fn passes(self) -> bool {
        matches!(self, Self::Whole(Way::Passthrough | Way::VerifiedBelow) | Self::Lifted(_))
    }
}

/// Whether somebody checks bytes before a caller sees them. The kernel answers reads and mappings of all opens of a node
/// from the same pages, or from the same backing file, so the opens of a node at one time are worth the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Worth {
    /// Every byte is.
    Checked,
    /// Some are not.
    Unchecked,
}

/// The way of one direction.
fn way(delegation: &Delegation) -> Way {
    match delegation {
        Delegation::Served => Way::Served,
        Delegation::Verified => Way::Verified,
        Delegation::Splice(_) => Way::Splice,
        Delegation::Passthrough(_) => Way::Passthrough,
        Delegation::VerifiedBelow(_) => Way::VerifiedBelow,
        Delegation::PerRange(_) => Way::Ranges,
        Delegation::Split(_) => unreachable!("a direction of a split is none"),
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
    /// Whether those rings move pages by zero copy.
    pub(crate) zero_copy: bool,
}

/// How an open counts in its node's io mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OpenKind {
    Cached,
    Direct,
    /// Carries the node's backing id.
    Backed,
}

/// What happens to one open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Settlement {
    pub(crate) flows: Flows,
    pub(crate) flags: FopenFlags,
    pub(crate) kind: OpenKind,
}

/// Settles one open. Where the result is passthrough on a free node, the caller must register the lower file
/// and, should that fail, settle again with the failure as the offer.
pub(crate) fn settle(wish: Wish, cache: CacheHint, mode: IoMode, offer: Offer) -> Settlement {
    let (reads, writes) = match wish {
        Wish::Whole(way) => return with_zero_copy(whole(way, cache, mode, offer), offer),
        Wish::Lifted(_) => return with_zero_copy(whole(Way::Passthrough, cache, mode, offer), offer),
        Wish::Split { reads, writes } => (reads, writes),
    };
    // The kernel passes both directions of a node through, or none.
    let one = |way| match way {
        Way::Passthrough | Way::VerifiedBelow => {
            let ours = if way == Way::Passthrough { Way::Splice } else { Way::Verified };
            let moved = whole(ours, cache, mode, offer).flows.reads;
            Settled { reason: Reason::OneDirection, ..moved }
        }
        way => whole(way, cache, mode, offer).flows.reads,
    };
    // Flags and kind depend on the node and the hint alone where nothing is passed through.
    let Settlement { flags, kind, .. } = whole(Way::Served, cache, mode, offer);
    with_zero_copy(Settlement { flows: Flows { reads: one(reads), writes: one(writes) }, flags, kind }, offer)
}

/// Zero copy is of an open, both ways, and pays where its READs need no look. A WRITE whose bytes must be seen is then fetched.
fn with_zero_copy(settled: Settlement, offer: Offer) -> Settlement {
    let Settlement { mut flows, mut flags, kind } = settled;
    if kind == OpenKind::Backed || !offer.zero_copy || !matches!(flows.reads.flow, Flow::Relay | Flow::Ranges)
    {
        return settled;
    }
    flags |= FopenFlags::IO_URING_ZERO_COPY;
    for one in [&mut flows.reads, &mut flows.writes] {
        if one.flow == Flow::Relay {
            one.flow = Flow::ZeroCopy;
        }
    }
    Settlement { flows, flags, kind }
}

fn whole(way: Way, cache: CacheHint, mode: IoMode, offer: Offer) -> Settlement {
    let ours = match way {
        Way::Served => Flow::Served,
        Way::Verified | Way::VerifiedBelow => Flow::Verified,
        Way::Ranges => Flow::Ranges,
        Way::Splice | Way::Passthrough if offer.ring => Flow::Relay,
        Way::Splice | Way::Passthrough => Flow::Splice,
    };
    // What passthrough asks of a node is the same whoever answers where there is none.
    let way = if way == Way::VerifiedBelow { Way::Passthrough } else { way };
    match (way, mode, offer.passthrough) {
        (Way::Passthrough, IoMode::Free | IoMode::Direct | IoMode::Cached, Ok(()))
            if cache == CacheHint::Again =>
        {
            unbacked(ours, cache, Reason::ReadAgain)
        }
        (Way::Passthrough, IoMode::Backed, _) | (Way::Passthrough, IoMode::Free, Ok(())) => Settlement {
            flows: Flows::both(Flow::Passthrough, Reason::Wished),
            flags: FopenFlags::PASSTHROUGH,
            kind: OpenKind::Backed,
        },
        (Way::Passthrough, _, Err(reason)) => unbacked(ours, cache, reason),
        (Way::Passthrough, IoMode::Cached, Ok(())) => unbacked(ours, cache, Reason::CachedOpens),
        (Way::Passthrough, IoMode::Direct, Ok(())) => unbacked(ours, cache, Reason::DirectOpens),
        (_, IoMode::Backed, _) => Settlement {
            flows: Flows::both(ours, Reason::PassthroughOpens),
            flags: FopenFlags::PASSTHROUGH | FopenFlags::DIRECT_IO | FopenFlags::PARALLEL_DIRECT_WRITES,
            kind: OpenKind::Backed,
        },
        (_, IoMode::Free | IoMode::Direct | IoMode::Cached, _) => unbacked(ours, cache, Reason::Wished),
    }
}

/// An open of a node that has no backing id. `KEEP_CACHE` is only ever set here: with passthrough the kernel
/// refuses it.
fn unbacked(flow: Flow, cache: CacheHint, reason: Reason) -> Settlement {
    let (flags, kind) = match cache {
        CacheHint::Drop => (FopenFlags::empty(), OpenKind::Cached),
        CacheHint::Keep | CacheHint::Again => (FopenFlags::KEEP_CACHE, OpenKind::Cached),
        CacheHint::Direct => (FopenFlags::DIRECT_IO | FopenFlags::PARALLEL_DIRECT_WRITES, OpenKind::Direct),
    };
    Settlement { flows: Flows::both(flow, reason), flags, kind }
}

#[cfg(test)]
mod test {
    use super::*;

    const WAYS: [Way; 6] =
        [Way::Served, Way::Verified, Way::Splice, Way::Passthrough, Way::VerifiedBelow, Way::Ranges];
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
        let rings = [(false, false), (true, false), (true, true)];
        passthrough.flat_map(move |passthrough| {
            rings.map(|(ring, zero_copy)| Offer { passthrough, ring, zero_copy })
        })
    }

    /// The table, written out: way, mode, whether passthrough is offered -> flow on a device, reason, and
    /// whether the open carries the backing id. `None` as reason stands for the refusal itself.
    type Row = (Way, IoMode, bool, Flow, Option<Reason>, bool);
    const TABLE: [Row; 48] = {
        use Flow::{
            Passthrough as FPass, Ranges as FRanges, Served as FServed, Splice as FSplice,
            Verified as FVerified,
        };
        use IoMode::{Backed, Cached, Direct, Free};
        use Reason::{CachedOpens, DirectOpens, PassthroughOpens, Wished};
        use Way::{Passthrough, Ranges, Served, Splice, Verified, VerifiedBelow};
        [
            (Served, Free, true, FServed, Some(Wished), false),
            (Served, Free, false, FServed, Some(Wished), false),
            (Served, Direct, true, FServed, Some(Wished), false),
            (Served, Direct, false, FServed, Some(Wished), false),
            (Served, Cached, true, FServed, Some(Wished), false),
            (Served, Cached, false, FServed, Some(Wished), false),
            (Served, Backed, true, FServed, Some(PassthroughOpens), true),
            (Served, Backed, false, FServed, Some(PassthroughOpens), true),
            (Verified, Free, true, FVerified, Some(Wished), false),
            (Verified, Free, false, FVerified, Some(Wished), false),
            (Verified, Direct, true, FVerified, Some(Wished), false),
            (Verified, Direct, false, FVerified, Some(Wished), false),
            (Verified, Cached, true, FVerified, Some(Wished), false),
            (Verified, Cached, false, FVerified, Some(Wished), false),
            (Verified, Backed, true, FVerified, Some(PassthroughOpens), true),
            (Verified, Backed, false, FVerified, Some(PassthroughOpens), true),
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
            (VerifiedBelow, Free, true, FPass, Some(Wished), true),
            (VerifiedBelow, Free, false, FVerified, None, false),
            (VerifiedBelow, Direct, true, FVerified, Some(DirectOpens), false),
            (VerifiedBelow, Direct, false, FVerified, None, false),
            (VerifiedBelow, Cached, true, FVerified, Some(CachedOpens), false),
            (VerifiedBelow, Cached, false, FVerified, None, false),
            (VerifiedBelow, Backed, true, FPass, Some(Wished), true),
            (VerifiedBelow, Backed, false, FPass, Some(Wished), true),
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

    fn row(way: Way, mode: IoMode, offered: bool) -> Row {
        let mut rows = TABLE.into_iter().filter(|row| (row.0, row.1, row.2) == (way, mode, offered));
        let row = rows.next().expect("a row for every cell");
        assert!(rows.next().is_none(), "one row for {way:?} {mode:?} {offered}");
        row
    }

    fn cells() -> impl Iterator<Item = (CacheHint, IoMode, Offer)> {
        let hints = HINTS.into_iter().flat_map(|cache| MODES.map(move |mode| (cache, mode)));
        hints.flat_map(|(cache, mode)| offers().map(move |offer| (cache, mode, offer)))
    }

    /// What the table says of one way: the settled direction, and whether the open carries the backing id. What a ring would relay moves by
    /// zero copy where the ring can do so and nothing is passed through.
    fn expected(way: Way, mode: IoMode, offer: Offer) -> (Settled, bool) {
        let (_, _, _, flow, reason, backed) = row(way, mode, offer.passthrough.is_ok());
        let flow = match flow {
            Flow::Splice if offer.zero_copy && !backed => Flow::ZeroCopy,
            Flow::Splice if offer.ring => Flow::Relay,
            flow => flow,
        };
        let reason = reason.unwrap_or_else(|| offer.passthrough.expect_err("refused"));
        (Settled { flow, reason }, backed)
    }

    #[test]
    fn every_cell_is_as_written() {
        let mut count = 0;
        for way in WAYS {
            for (cache, mode, offer) in cells() {
                let settled = settle(Wish::Whole(way), cache, mode, offer);
                let (both, backed) = expected(way, mode, offer);
                let what = format!("{way:?} {cache:?} {mode:?} {offer:?}");
                assert_eq!(settled.flows, Flows { reads: both, writes: both }, "{what}");
                assert_eq!(settled.kind == OpenKind::Backed, backed, "{what}");
                count += 1;
            }
        }
        assert_eq!(count, 6 * 3 * 4 * 24);
    }

    #[test]
    fn a_lifted_map_is_settled_as_passthrough() {
        let key = (shuntfs_sys::stat::Device { major: 8, minor: 1 }, 77);
        for (cache, mode, offer) in cells() {
            let passed = settle(Wish::Whole(Way::Passthrough), cache, mode, offer);
            assert_eq!(settle(Wish::Lifted(key), cache, mode, offer), passed, "{cache:?} {mode:?} {offer:?}");
        }
    }

    /// Each direction of a split is as if it were alone, but passthrough, which cannot be.
    #[test]
    fn every_split_cell_is_put_together_from_two() {
        let mut count = 0;
        for (reads, writes) in WAYS.into_iter().flat_map(|reads| WAYS.map(move |writes| (reads, writes))) {
            for (cache, mode, offer) in cells() {
                let settled = settle(Wish::Split { reads, writes }, cache, mode, offer);
                let what = format!("{reads:?}/{writes:?} {cache:?} {mode:?} {offer:?}");
                for (way, got) in [(reads, settled.flows.reads), (writes, settled.flows.writes)] {
                    let alone = match way {
                        Way::Passthrough => Way::Splice,
                        Way::VerifiedBelow => Way::Verified,
                        way => way,
                    };
                    let (mut one, backed) = expected(alone, mode, offer);
                    if alone != way {
                        one.reason = Reason::OneDirection;
                    }
                    if one.flow == Flow::ZeroCopy
                        && matches!(reads, Way::Served | Way::Verified | Way::VerifiedBelow)
                    {
                        one.flow = Flow::Relay;
                    }
                    assert_eq!(got, one, "{what}");
                    assert_eq!(settled.kind == OpenKind::Backed, backed, "{what}");
                }
                let alone = settle(Wish::Whole(Way::Served), cache, mode, offer);
                let flags = settled.flags - FopenFlags::IO_URING_ZERO_COPY;
                assert_eq!((flags, settled.kind), (alone.flags, alone.kind), "{what}");
                count += 1;
            }
        }
        assert_eq!(count, 36 * 3 * 4 * 24);
    }

    /// `fs/fuse/iomode.c`: what the kernel would answer with EIO is never settled.
    #[test]
    fn the_kernel_accepts_every_cell() {
        let splits = WAYS.into_iter().flat_map(|reads| WAYS.map(move |writes| Wish::Split { reads, writes }));
        for wish in WAYS.map(Wish::Whole).into_iter().chain(splits) {
            for (cache, mode, offer) in cells() {
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
                let zero_copy = settled.flags.contains(FopenFlags::IO_URING_ZERO_COPY);
                assert!(!zero_copy || offer.zero_copy && !passthrough, "{what}");
                let moved = [settled.flows.reads.flow, settled.flows.writes.flow];
                assert!(zero_copy || !moved.contains(&Flow::ZeroCopy), "{what}");
                assert!(!zero_copy || matches!(moved[0], Flow::ZeroCopy | Flow::Ranges), "{what}");
                let reaches_us = !passthrough || direct;
                for one in [settled.flows.reads, settled.flows.writes] {
                    assert_eq!(one.flow == Flow::Passthrough, !reaches_us, "{what}");
                }
            }
        }
    }

    /// A hint that differs from `Keep` in one thing: it rather has the kernel keep pages than pass through.
    #[test]
    fn what_is_read_again_keeps_out_of_passthrough_where_it_may() {
        let splits = WAYS.into_iter().flat_map(|reads| WAYS.map(move |writes| Wish::Split { reads, writes }));
        for wish in WAYS.map(Wish::Whole).into_iter().chain(splits) {
            for (_, mode, offer) in cells() {
                let again = settle(wish, CacheHint::Again, mode, offer);
                let kept = settle(wish, CacheHint::Keep, mode, offer);
                let asks = [Way::Passthrough, Way::VerifiedBelow].map(Wish::Whole).contains(&wish);
                let passes = asks && offer.passthrough.is_ok();
                if !passes || mode == IoMode::Backed {
                    assert_eq!(again, kept, "{wish:?} {mode:?} {offer:?}");
                    continue;
                }
                let flow = match wish {
                    Wish::Whole(Way::VerifiedBelow) => Flow::Verified,
                    _ if offer.zero_copy => Flow::ZeroCopy,
                    _ if offer.ring => Flow::Relay,
                    _ => Flow::Splice,
                };
                assert_eq!(again.flows, Flows::both(flow, Reason::ReadAgain), "{mode:?} {offer:?}");
                let flags = again.flags - FopenFlags::IO_URING_ZERO_COPY;
                assert_eq!((flags, again.kind), (FopenFlags::KEEP_CACHE, OpenKind::Cached));
            }
        }
    }

    #[test]
    fn the_cache_hint_is_followed_where_nothing_is_in_its_way() {
        let offer = Offer { passthrough: Ok(()), ring: false, zero_copy: false };
        let flags = |cache| settle(Wish::Whole(Way::Served), cache, IoMode::Free, offer).flags;
        assert_eq!(flags(CacheHint::Drop), FopenFlags::empty());
        assert_eq!(flags(CacheHint::Keep), FopenFlags::KEEP_CACHE);
        assert_eq!(flags(CacheHint::Direct), FopenFlags::DIRECT_IO | FopenFlags::PARALLEL_DIRECT_WRITES);
    }
}
