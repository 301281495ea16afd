//! What is agreed at INIT: one pure function of what the kernel offers, what the file system wants, and what
//! the mount was told.

use serde::{Deserialize, Serialize};
use shuntfs_wire::{InitFlags, InitIn, InitOut, abi};

use crate::args::OpSet;
use crate::delegation::Reason;
use crate::init::{InitError, Wanted};

/// The oldest protocol served: Linux 5.12, from which SETXATTR has one form.
pub(crate) const MINOR_MIN: u32 = 33;

/// What the mount was told, and what the transport needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Terms {
    /// The longest READ and WRITE in bytes: whole pages.
    pub(crate) payload_len: u32,
    /// Bytes in a page of this machine.
    pub(crate) page_len: u32,
    /// How many background requests the kernel sends at once.
    pub(crate) max_background: u16,
    /// Whether rings are prepared.
    pub(crate) uring: bool,
    /// Whether passthrough was not turned off.
    pub(crate) passthrough: bool,
}

/// What was agreed at INIT. A successor that takes the connection over needs exactly this: INIT is not
/// repeated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Negotiated {
    /// Minor number of the kernel's protocol.
    pub minor: u32,
    /// Every INIT flag that was agreed, both words in one (`shuntfs_wire::InitFlags`).
    pub flags: u64,
    /// The longest WRITE, in bytes.
    pub max_write: u32,
    /// The longest request's data, in pages.
    pub max_pages: u16,
    /// Readahead, in bytes, as the kernel proposed it.
    pub max_readahead: u32,
    /// How many background requests the kernel sends at once.
    pub max_background: u16,
    /// From how many on the kernel calls the connection congested.
    pub congestion_threshold: u16,
    /// Granularity of times, in nanoseconds.
    pub time_gran: u32,
    /// How deep lower file systems may be stacked, 0 without passthrough.
    pub max_stack_depth: u32,
    /// The optional operations that are answered ([`OpSet`]).
    pub ops: u64,
    /// Why no file may be in passthrough; `None` where they may.
    pub passthrough_off: Option<Reason>,
}

/// Agrees, or says why not. What the kernel did not offer is never set.
pub(crate) fn negotiate(
    init: &InitIn,
    wanted: &Wanted,
    ops: OpSet,
    terms: &Terms,
) -> Result<Negotiated, InitError> {
    if init.minor < MINOR_MIN {
        return Err(InitError::ProtocolTooOld { minor: init.minor, needed: MINOR_MIN });
    }
    // The kernel tells of a close by FLUSH alone that POSIX locks of the closing process are to go.
    if ops.contains(OpSet::POSIX_LOCKS) && !ops.contains(OpSet::FLUSH) {
        return Err(InitError::Without { operation: "POSIX_LOCKS", needed: "FLUSH" });
    }
    let offered = init.offered();
    let passthrough_off = passthrough_off(offered, wanted, ops, terms);
    let mut chosen = chosen(wanted, ops, terms);
    chosen.set(InitFlags::PASSTHROUGH, passthrough_off.is_none());
    let agreed = chosen & offered;
    let max_pages = terms.payload_len / terms.page_len.max(1);
    let time_gran = u32::try_from(wanted.time_granularity.as_nanos()).unwrap_or(u32::MAX);
    Ok(Negotiated {
        minor: init.minor.min(abi::MINOR),
        flags: agreed.bits(),
        max_write: terms.payload_len,
        max_pages: u16::try_from(max_pages).unwrap_or(u16::MAX).max(1),
        max_readahead: init.max_readahead,
        max_background: terms.max_background,
        congestion_threshold: (terms.max_background / 4).saturating_mul(3).max(1),
        time_gran: time_gran.clamp(1, 1_000_000_000),
        max_stack_depth: if passthrough_off.is_none() { wanted.stack_depth.clamp(1, 2) } else { 0 },
        ops: ops.bits(),
        passthrough_off,
    })
}

fn passthrough_off(offered: InitFlags, wanted: &Wanted, ops: OpSet, terms: &Terms) -> Option<Reason> {
    if !terms.passthrough || !wanted.passthrough || !ops.contains(OpSet::OPEN) {
        return Some(Reason::TurnedOff);
    }
    if wanted.writeback_cache && offered.contains(InitFlags::WRITEBACK_CACHE) {
        return Some(Reason::Writeback);
    }
    let needed = InitFlags::PASSTHROUGH | InitFlags::INIT_EXT;
    (!offered.contains(needed)).then_some(Reason::KernelLacks)
}

/// What is wanted of a kernel that offers everything.
fn chosen(wanted: &Wanted, ops: OpSet, terms: &Terms) -> InitFlags {
    let mut flags = InitFlags::ASYNC_READ
        | InitFlags::BIG_WRITES
        | InitFlags::SPLICE_WRITE
        | InitFlags::SPLICE_MOVE
        | InitFlags::SPLICE_READ
        | InitFlags::HAS_IOCTL_DIR
        | InitFlags::ASYNC_DIO
        | InitFlags::PARALLEL_DIROPS
        | InitFlags::ABORT_ERROR
        | InitFlags::MAX_PAGES
        | InitFlags::SETXATTR_EXT
        | InitFlags::INIT_EXT
        | InitFlags::HAS_EXPIRE_ONLY
        | InitFlags::DIRECT_IO_ALLOW_MMAP
        | InitFlags::HAS_RESEND;
    for (bit, on) in [
        (InitFlags::POSIX_LOCKS, ops.contains(OpSet::POSIX_LOCKS)),
        (InitFlags::FLOCK_LOCKS, ops.contains(OpSet::FLOCK_LOCKS)),
        (InitFlags::NO_OPEN_SUPPORT, !ops.contains(OpSet::OPEN)),
        (InitFlags::NO_OPENDIR_SUPPORT, !ops.contains(OpSet::OPENDIR)),
        (InitFlags::ATOMIC_O_TRUNC, wanted.atomic_trunc),
        (InitFlags::DONT_MASK, wanted.dont_mask),
        (InitFlags::AUTO_INVAL_DATA, wanted.auto_inval_data),
        (InitFlags::EXPLICIT_INVAL_DATA, !wanted.auto_inval_data),
        (InitFlags::DO_READDIRPLUS, wanted.readdirplus),
        (InitFlags::READDIRPLUS_AUTO, wanted.readdirplus && wanted.readdirplus_auto),
        (InitFlags::POSIX_ACL, wanted.posix_acl),
        (InitFlags::CACHE_SYMLINKS, wanted.cache_symlinks),
        (InitFlags::HANDLE_KILLPRIV_V2, wanted.kill_priv),
        (InitFlags::CREATE_SUPP_GROUP, wanted.supp_group),
        (InitFlags::WRITEBACK_CACHE, wanted.writeback_cache),
        (InitFlags::EXPORT_SUPPORT, wanted.file_handles && ops.contains(OpSet::EXPORT)),
        (InitFlags::NO_EXPORT_SUPPORT, !wanted.file_handles),
        (InitFlags::OVER_IO_URING, terms.uring),
        (InitFlags::HAS_IO_URING_BUFPOOL, terms.uring),
    ] {
        flags.set(bit, on);
    }
    flags
}

impl Negotiated {
    /// The flags, typed.
    #[must_use]
    pub fn init_flags(&self) -> InitFlags {
        InitFlags::from_bits_retain(self.flags)
    }

    /// The answer to INIT.
    pub(crate) fn reply(&self) -> InitOut {
        let mut out = InitOut {
            major: abi::MAJOR,
            minor: abi::minor_answered(self.minor),
            max_readahead: self.max_readahead,
            max_background: self.max_background,
            congestion_threshold: self.congestion_threshold,
            max_write: self.max_write,
            time_gran: self.time_gran,
            max_pages: self.max_pages,
            max_stack_depth: self.max_stack_depth,
            ..InitOut::default()
        };
        out.set_agreed(self.init_flags());
        out
    }
}

#[cfg(test)]
mod test {
    use std::time::Duration;

    use super::*;

    const TERMS: Terms =
        Terms { payload_len: 1 << 20, page_len: 4096, max_background: 64, uring: true, passthrough: true };

    fn init(flags: InitFlags) -> InitIn {
        let mut init = InitIn { major: 7, minor: 45, max_readahead: 0x2_0000, ..InitIn::default() };
        let bits = flags.bits();
        init.flags = u32::try_from(bits & u64::from(u32::MAX)).unwrap();
        init.flags2 = u32::try_from(bits >> 32).unwrap();
        init
    }

    fn agreed(offered: InitFlags, wanted: &Wanted, ops: OpSet, terms: &Terms) -> Negotiated {
        negotiate(&init(offered), wanted, ops, terms).unwrap()
    }

    #[test]
    fn what_was_not_offered_is_never_agreed() {
        let everything = Wanted {
            posix_acl: true,
            kill_priv: true,
            dont_mask: true,
            atomic_trunc: true,
            supp_group: true,
            ..Wanted::default()
        };
        for missing in InitFlags::all().iter() {
            let offered = InitFlags::all() - missing;
            let got = agreed(offered, &everything, OpSet::all(), &TERMS);
            assert!(!got.init_flags().intersects(missing), "{missing:?}");
        }
        assert_eq!(agreed(InitFlags::empty(), &everything, OpSet::all(), &TERMS).flags, 0);
    }

    #[test]
    fn each_wish_moves_its_own_bit() {
        let base = Wanted { auto_inval_data: true, ..Wanted::default() };
        let of =
            |wanted: &Wanted, ops, terms: &Terms| agreed(InitFlags::all(), wanted, ops, terms).init_flags();
        let all = OpSet::all();
        let table: [(InitFlags, Wanted, OpSet, Terms); 18] = [
            (
                InitFlags::NO_EXPORT_SUPPORT | InitFlags::EXPORT_SUPPORT,
                Wanted { file_handles: false, ..base },
                all,
                TERMS,
            ),
            (InitFlags::HANDLE_KILLPRIV_V2, Wanted { kill_priv: true, ..base }, all, TERMS),
            (InitFlags::POSIX_ACL, Wanted { posix_acl: true, ..base }, all, TERMS),
            (InitFlags::DONT_MASK, Wanted { dont_mask: true, ..base }, all, TERMS),
            (InitFlags::ATOMIC_O_TRUNC, Wanted { atomic_trunc: true, ..base }, all, TERMS),
            (InitFlags::CREATE_SUPP_GROUP, Wanted { supp_group: true, ..base }, all, TERMS),
            (InitFlags::DO_READDIRPLUS, Wanted { readdirplus: false, ..base }, all, TERMS),
            (InitFlags::READDIRPLUS_AUTO, Wanted { readdirplus_auto: true, ..base }, all, TERMS),
            (InitFlags::CACHE_SYMLINKS, Wanted { cache_symlinks: false, ..base }, all, TERMS),
            (
                InitFlags::AUTO_INVAL_DATA | InitFlags::EXPLICIT_INVAL_DATA,
                Wanted { auto_inval_data: false, ..base },
                all,
                TERMS,
            ),
            (InitFlags::PASSTHROUGH, Wanted { passthrough: false, ..base }, all, TERMS),
            (InitFlags::PASSTHROUGH, base, all, Terms { passthrough: false, ..TERMS }),
            (
                InitFlags::OVER_IO_URING | InitFlags::HAS_IO_URING_BUFPOOL,
                base,
                all,
                Terms { uring: false, ..TERMS },
            ),
            (InitFlags::POSIX_LOCKS, base, all - OpSet::POSIX_LOCKS, TERMS),
            (InitFlags::FLOCK_LOCKS, base, all - OpSet::FLOCK_LOCKS, TERMS),
            (InitFlags::NO_OPENDIR_SUPPORT, base, all - OpSet::OPENDIR, TERMS),
            (InitFlags::EXPORT_SUPPORT, base, all - OpSet::EXPORT, TERMS),
            (
                InitFlags::WRITEBACK_CACHE | InitFlags::PASSTHROUGH,
                Wanted { writeback_cache: true, ..base },
                all,
                TERMS,
            ),
        ];
        let plain = of(&base, all, &TERMS);
        for (bits, wanted, ops, terms) in table {
            assert_eq!(of(&wanted, ops, &terms) ^ plain, bits, "{bits:?}");
        }
    }

    #[test]
    fn some_flags_are_never_set() {
        let wanted = Wanted { posix_acl: true, kill_priv: true, ..Wanted::default() };
        let got = agreed(InitFlags::all(), &wanted, OpSet::all(), &TERMS).init_flags();
        for never in [
            InitFlags::WRITEBACK_CACHE,
            InitFlags::NO_EXPORT_SUPPORT,
            InitFlags::HANDLE_KILLPRIV,
            InitFlags::READDIRPLUS_AUTO,
            InitFlags::ALLOW_IDMAP,
            InitFlags::REQUEST_TIMEOUT,
        ] {
            assert!(!got.contains(never), "{never:?}");
        }
    }

    #[test]
    fn passthrough_needs_the_kernel_the_wish_and_opens() {
        let wanted = Wanted::default();
        let all = agreed(InitFlags::all(), &wanted, OpSet::OPEN, &TERMS);
        assert_eq!((all.passthrough_off, all.max_stack_depth), (None, 1));
        let deep = Wanted { stack_depth: 9, ..wanted };
        assert_eq!(agreed(InitFlags::all(), &deep, OpSet::OPEN, &TERMS).max_stack_depth, 2);
        let no_open = agreed(InitFlags::all(), &wanted, OpSet::empty(), &TERMS);
        assert_eq!((no_open.passthrough_off, no_open.max_stack_depth), (Some(Reason::TurnedOff), 0));
        for lacking in [InitFlags::PASSTHROUGH, InitFlags::INIT_EXT] {
            let got = agreed(InitFlags::all() - lacking, &wanted, OpSet::OPEN, &TERMS);
            assert_eq!((got.passthrough_off, got.max_stack_depth), (Some(Reason::KernelLacks), 0));
        }
    }

    #[test]
    fn writeback_keeps_passthrough_away_where_the_kernel_has_it() {
        let wanted = Wanted { writeback_cache: true, ..Wanted::default() };
        let got = agreed(InitFlags::all(), &wanted, OpSet::OPEN, &TERMS);
        assert_eq!(got.passthrough_off, Some(Reason::Writeback));
        let old = agreed(InitFlags::all() - InitFlags::WRITEBACK_CACHE, &wanted, OpSet::OPEN, &TERMS);
        assert_eq!(old.passthrough_off, None);
    }

    #[test]
    fn locks_that_no_close_would_end_are_refused() {
        let ops = OpSet::POSIX_LOCKS | OpSet::OPEN;
        let refused = negotiate(&init(InitFlags::all()), &Wanted::default(), ops, &TERMS).unwrap_err();
        assert_eq!(refused, InitError::Without { operation: "POSIX_LOCKS", needed: "FLUSH" });
        assert!(refused.to_string().contains("POSIX_LOCKS"), "{refused}");
        agreed(InitFlags::all(), &Wanted::default(), ops | OpSet::FLUSH, &TERMS);
        agreed(InitFlags::all(), &Wanted::default(), OpSet::FLOCK_LOCKS | OpSet::OPEN, &TERMS);
    }

    #[test]
    fn sizes_follow_the_payload() {
        let got = agreed(InitFlags::all(), &Wanted::default(), OpSet::all(), &TERMS);
        assert_eq!((got.max_write, got.max_pages), (1 << 20, 256));
        assert_eq!((got.max_background, got.congestion_threshold), (64, 48));
        let big_pages = Terms { page_len: 65536, ..TERMS };
        assert_eq!(agreed(InitFlags::all(), &Wanted::default(), OpSet::all(), &big_pages).max_pages, 16);
        let coarse = Wanted { time_granularity: Duration::from_secs(7), ..Wanted::default() };
        assert_eq!(agreed(InitFlags::all(), &coarse, OpSet::all(), &TERMS).time_gran, 1_000_000_000);
    }

    #[test]
    fn old_kernels_are_told_so() {
        let old = InitIn { minor: 31, ..init(InitFlags::all()) };
        let error = negotiate(&old, &Wanted::default(), OpSet::all(), &TERMS).unwrap_err();
        assert_eq!(error, InitError::ProtocolTooOld { minor: 31, needed: MINOR_MIN });
    }

    /// What Linux 6.18 offers and is answered, byte for byte as before 7.46 was known.
    #[test]
    fn older_kernels_are_answered_as_ever() {
        let mut offered = init(InitFlags::from_bits_retain(0x7fd_73ff_fffb));
        for (minor, answered) in [(36, 45), (45, 45), (46, 46), (47, 46)] {
            offered.minor = minor;
            let got = negotiate(&offered, &Wanted::default(), OpSet::OPEN, &TERMS).unwrap();
            assert_eq!((got.minor, got.reply().minor), (minor.min(46), answered));
        }
        offered.minor = 45;
        let out = negotiate(&offered, &Wanted::default(), OpSet::OPEN, &TERMS).unwrap().reply();
        assert_eq!((out.flags, out.flags2), (0x61e4_bba1, 0x2b8), "{:#x} {:#x}", out.flags, out.flags2);
    }

    #[test]
    fn the_answer_carries_all_of_it() {
        let got = agreed(InitFlags::all(), &Wanted::default(), OpSet::all(), &TERMS);
        let out = got.reply();
        assert_eq!((out.major, out.minor, out.max_write, out.max_pages), (7, 45, 1 << 20, 256));
        assert_eq!(u64::from(out.flags2) << 32 | u64::from(out.flags), got.flags);
        let written = serde_json::to_string(&got).unwrap();
        assert_eq!(serde_json::from_str::<Negotiated>(&written).unwrap(), got);
    }
}
