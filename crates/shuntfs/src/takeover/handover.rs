//! What a server tells of its connection, for whoever comes after it.
//!
//! It comes back from elsewhere: from memory that a dying server may have written to, or from a file. So nothing in it is trusted. Its
//! numbers must be possible, and together with what the successor itself wants they must lead to the very agreement that it
//! tells of, because agreeing is a pure function.

use serde::{Deserialize, Serialize};
use shuntfs_wire::{InitFlags, InitIn, abi};

use super::error::HandoverError;
use super::store::StoredHandover;
use crate::delegation::Reason;
use crate::negotiate::Negotiated;
use crate::options::SessionOptions;

/// What a payload may be, in pages: the protocol counts them in 16 bits.
const PAGES_MAX: u64 = 65_535;
const DESCRIPTORS_MAX: usize = 1024;
/// The first word of values that are written down, which is no text.
const VALUES: u64 = 1;

/// What a successor needs to know of a connection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Handover {
    /// Of this layout.
    pub version: u32,
    /// What the kernel said at INIT.
    pub offered: OfferedInit,
    /// What was agreed on.
    pub agreed: Negotiated,
    /// Through how many descriptors requests are read: the device and its clones.
    pub descriptors: usize,
}

/// What the kernel said at INIT.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OfferedInit {
    /// Minor number of its protocol; the major is 7.
    pub minor: u32,
    /// Longest readahead, in bytes.
    pub max_readahead: u32,
    /// Every flag that was offered ([`shuntfs_wire::InitFlags`]).
    pub flags: u64,
}

impl Handover {
    /// The layout that this release writes, and the only one that it reads.
    pub const VERSION: u32 = 1;

    pub(super) fn new(init: &InitIn, agreed: Negotiated, descriptors: usize) -> Self {
        let InitIn { minor, max_readahead, .. } = *init;
        let offered = OfferedInit { minor, max_readahead, flags: init.offered().bits() };
        Self { version: Self::VERSION, offered, agreed, descriptors }
    }

    /// Whether requests come by io_uring: then only a server that is replaced as planned has a successor.
    #[must_use]
    pub fn is_on_rings(&self) -> bool {
        self.agreed.init_flags().contains(InitFlags::OVER_IO_URING)
    }

    /// As it is written down beside the state: its values, one word each.
    pub(super) fn write(&self) -> StoredHandover {
        let Self { version, offered, agreed, descriptors } = self;
        let Negotiated { minor, flags, max_write, max_pages, max_readahead, max_background, .. } = *agreed;
        let Negotiated { congestion_threshold, time_gran, max_stack_depth, ops, passthrough_off, .. } =
            *agreed;
        let words = [
            VALUES,
            (*version).into(),
            offered.minor.into(),
            offered.max_readahead.into(),
            offered.flags,
            minor.into(),
            flags,
            max_write.into(),
            max_pages.into(),
            max_readahead.into(),
            max_background.into(),
            congestion_threshold.into(),
            time_gran.into(),
            max_stack_depth.into(),
            ops,
            passthrough_off.map_or(0, |reason| reason as u64 + 1),
            *descriptors as u64,
        ];
        StoredHandover(words.into_iter().flat_map(u64::to_le_bytes).collect())
    }

    /// What was written down; `None` where it is something else.
    fn read(stored: &StoredHandover) -> Option<Self> {
        let words: Vec<u64> = stored
            .0
            .chunks(8)
            .map(|word| word.try_into().map(u64::from_le_bytes))
            .collect::<Result<_, _>>()
            .ok()?;
        let [values, version, offered @ .., descriptors] = &words[..] else { return None };
        let (offered, agreed) = offered.split_at_checked(3).filter(|_| *values == VALUES)?;
        let [minor, max_readahead, flags] = *offered else { return None };
        let int = |word: u64| u32::try_from(word).ok();
        let short = |word: u64| u16::try_from(word).ok();
        let offered = OfferedInit { minor: int(minor)?, max_readahead: int(max_readahead)?, flags };
        let [minor, flags, max_write, max_pages, max_readahead, background, congested, gran, depth, ops, off] =
            *agreed
        else {
            return None;
        };
        let reason = |number: u64| Reason::ALL.into_iter().find(|reason| *reason as u64 + 1 == number);
        let agreed = Negotiated {
            minor: int(minor)?,
            flags,
            max_write: int(max_write)?,
            max_pages: short(max_pages)?,
            max_readahead: int(max_readahead)?,
            max_background: short(background)?,
            congestion_threshold: short(congested)?,
            time_gran: int(gran)?,
            max_stack_depth: int(depth)?,
            ops,
            passthrough_off: if off == 0 { None } else { Some(reason(off)?) },
        };
        let (version, descriptors) = (int(*version)?, usize::try_from(*descriptors).ok()?);
        Some(Self { version, offered, agreed, descriptors })
    }

    /// Whether this is what was written down.
    pub(super) fn is_in(&self, stored: &StoredHandover) -> bool {
        match Self::read(stored) {
            Some(written) => written == *self,
            // Mounts of earlier releases have it as text.
            None => stored.0 == format!("{self:?}").into_bytes(),
        }
    }

    /// Whether its numbers are possible.
    ///
    /// # Errors
    /// The first that is not.
    pub(super) fn check(&self) -> Result<(), HandoverError> {
        if self.version != Self::VERSION {
            return Err(HandoverError::Version { found: self.version, known: Self::VERSION });
        }
        let page_len = shuntfs_sys::limits::page_len() as u64;
        let max_write = u64::from(self.agreed.max_write);
        let descriptors = self.descriptors as u64;
        let rules = [
            (
                "max_write",
                max_write,
                max_write >= 8192 && max_write.is_multiple_of(page_len) && max_write <= PAGES_MAX * page_len,
            ),
            ("max_background", self.agreed.max_background.into(), self.agreed.max_background > 0),
            ("descriptors", descriptors, (1..=DESCRIPTORS_MAX).contains(&self.descriptors)),
        ];
        let wrong = rules.into_iter().find(|(.., is_right)| !is_right);
        wrong.map_or(Ok(()), |(what, found, _)| Err(HandoverError::Value { what, found }))
    }

    /// The options of a successor, with what was agreed on instead of its own.
    pub(super) fn options(&self, options: &SessionOptions) -> SessionOptions {
        SessionOptions {
            payload_len: usize::try_from(self.agreed.max_write).unwrap_or(usize::MAX),
            max_background: Some(self.agreed.max_background),
            ..options.clone()
        }
    }

    /// Whether this server would have agreed to the same.
    ///
    /// # Errors
    /// What it would have agreed to otherwise.
    pub(super) fn compare(&self, own: &Negotiated) -> Result<(), HandoverError> {
        let theirs = &self.agreed;
        let parts = [
            ("the minor version", theirs.minor == own.minor),
            ("the operations", theirs.ops == own.ops),
            ("the INIT flags", theirs.flags == own.flags),
            ("the granularity of times", theirs.time_gran == own.time_gran),
            ("the longest request", theirs.max_write == own.max_write && theirs.max_pages == own.max_pages),
        ];
        if let Some((what, _)) = parts.into_iter().find(|(_, is_same)| !is_same) {
            return Err(HandoverError::Differs { what });
        }
        if theirs == own { Ok(()) } else { Err(HandoverError::Differs { what: "the agreement" }) }
    }
}

impl OfferedInit {
    /// As the kernel sent it.
    pub(super) fn init(&self) -> InitIn {
        let Self { minor, max_readahead, flags } = *self;
        let word = |bits: u64| u32::try_from(bits & u64::from(u32::MAX)).unwrap_or(0);
        let (low, high) = (word(flags), word(flags >> 32));
        InitIn { major: abi::MAJOR, minor, max_readahead, flags: low, flags2: high, ..InitIn::default() }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::args::OpSet;
    use crate::init::Wanted;
    use crate::negotiate::{Terms, negotiate};

    fn agree(init: &InitIn, options: &SessionOptions) -> Result<Negotiated, HandoverError> {
        let agreed = negotiate(init, &Wanted::default(), OpSet::XATTR, &Terms::before_transport(options));
        agreed.map_err(|_| HandoverError::Differs { what: "INIT" })
    }

    fn handover() -> Handover {
        let flags = InitFlags::all() - InitFlags::OVER_IO_URING;
        let init = OfferedInit { minor: 45, max_readahead: 0x2_0000, flags: flags.bits() }.init();
        Handover::new(&init, agree(&init, &SessionOptions::default()).unwrap(), 2)
    }

    /// What a successor makes of it that wants the same.
    fn judge(handover: &Handover) -> Result<(), HandoverError> {
        handover.check()?;
        let options = handover.options(&SessionOptions::default());
        handover.compare(&agree(&handover.offered.init(), &options)?)
    }

    #[test]
    fn it_is_whole_after_it_was_written_down() {
        let first = handover();
        let text = serde_json::to_string(&first).unwrap();
        let second: Handover = serde_json::from_str(&text).unwrap();
        assert_eq!(first, second);
        assert_eq!(judge(&second), Ok(()));
    }

    #[test]
    fn it_is_compared_by_its_values() {
        let reasons = Reason::ALL.into_iter().map(Some).chain([None]);
        for passthrough_off in reasons {
            let mut first = handover();
            first.agreed.passthrough_off = passthrough_off;
            let stored = first.write();
            assert_eq!(Handover::read(&stored), Some(first.clone()));
            assert!(first.is_in(&stored));
            let other = Handover { descriptors: 3, ..first.clone() };
            assert!(!other.is_in(&stored));
        }
        let stored = handover().write();
        for byte in 0..stored.0.len() {
            let mut turned = stored.clone();
            turned.0[byte] ^= 0x81;
            assert!(!handover().is_in(&turned), "byte {byte}");
        }
        for len in 0..stored.0.len() {
            assert!(!handover().is_in(&StoredHandover(stored.0[..len].to_vec())), "{len}");
        }
    }

    /// A mount that an earlier release began has this text.
    #[test]
    fn the_text_of_earlier_releases_is_known() {
        let agreed = Negotiated {
            minor: 45,
            flags: 7,
            max_write: 8192,
            max_pages: 2,
            max_readahead: 3,
            max_background: 4,
            congestion_threshold: 5,
            time_gran: 1,
            max_stack_depth: 2,
            ops: 9,
            passthrough_off: Some(Reason::NotPrivileged),
        };
        let offered = OfferedInit { minor: 45, max_readahead: 6, flags: 8 };
        let mut handover = Handover { version: 1, offered, agreed, descriptors: 2 };
        let text = "Handover { version: 1, offered: OfferedInit { minor: 45, max_readahead: 6, flags: 8 }, \
            agreed: Negotiated { minor: 45, flags: 7, max_write: 8192, max_pages: 2, max_readahead: 3, \
            max_background: 4, congestion_threshold: 5, time_gran: 1, max_stack_depth: 2, ops: 9, \
            passthrough_off: Some(NotPrivileged) }, descriptors: 2 }";
        let stored = StoredHandover(text.as_bytes().to_vec());
        assert!(handover.is_in(&stored));
        handover.agreed.ops = 8;
        assert!(!handover.is_in(&stored));
    }

    #[test]
    fn impossible_numbers_are_named() {
        let base = handover();
        let with = |change: &dyn Fn(&mut Handover)| {
            let mut changed = base.clone();
            change(&mut changed);
            changed.check().unwrap_err()
        };
        assert_eq!(with(&|it| it.version = 2), HandoverError::Version { found: 2, known: 1 });
        for max_write in [0, 4096, 8193, 1 << 31] {
            let expected = HandoverError::Value { what: "max_write", found: max_write };
            assert_eq!(with(&|it| it.agreed.max_write = u32::try_from(max_write).unwrap()), expected);
        }
        let expected = HandoverError::Value { what: "max_background", found: 0 };
        assert_eq!(with(&|it| it.agreed.max_background = 0), expected);
        for descriptors in [0, 1025, usize::MAX] {
            let error = with(&|it| it.descriptors = descriptors);
            assert!(matches!(error, HandoverError::Value { what: "descriptors", .. }), "{error}");
        }
    }

    /// Whatever bit of it is turned over, it is refused or means the same.
    #[test]
    fn no_turned_bit_is_believed() {
        let base = handover();
        let mut changed = 0;
        let mut turn = |change: &dyn Fn(&mut Handover)| {
            let mut turned = base.clone();
            change(&mut turned);
            changed += 1;
            // More may be offered than was asked for; what was agreed on and how is then the same.
            let is_harmless = turned.agreed == base.agreed && turned.descriptors == base.descriptors;
            assert!(judge(&turned).is_err() || is_harmless, "{turned:?}");
        };
        for bit in 0..64 {
            turn(&|it| it.offered.flags ^= 1 << bit);
            turn(&|it| it.agreed.flags ^= 1 << bit);
            turn(&|it| it.agreed.ops ^= 1 << bit);
        }
        for bit in 0..32 {
            turn(&|it| it.version ^= 1 << bit);
            turn(&|it| it.offered.minor ^= 1 << bit);
            turn(&|it| it.offered.max_readahead ^= 1 << bit);
            turn(&|it| it.agreed.minor ^= 1 << bit);
            turn(&|it| it.agreed.max_readahead ^= 1 << bit);
            turn(&|it| it.agreed.time_gran ^= 1 << bit);
            turn(&|it| it.agreed.max_stack_depth ^= 1 << bit);
        }
        for bit in 0..16 {
            turn(&|it| it.agreed.max_pages ^= 1 << bit);
            turn(&|it| it.agreed.congestion_threshold ^= 1 << bit);
        }
        assert_eq!(changed, 3 * 64 + 7 * 32 + 2 * 16);
    }
}
