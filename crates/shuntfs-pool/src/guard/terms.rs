//! On what terms a file is open, settled by its open.

use shuntfs::{CacheHint, Errno, Result};
use shuntfs_rules::{Access, CacheWord, Decision, FlowWord, OpenWord, Use};

use crate::mode;

/// What the kernel adds to the flags of an open that must be run (`FMODE_EXEC`).
const FMODE_EXEC: u32 = 0x20;

/// What happens to one open, settled when it is made and kept until its close. Only the guard makes terms, and no file is
/// opened without.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Terms {
    /// How reads are to flow; `None` leaves it to the mount.
    pub(crate) reads: Option<FlowWord>,
    /// How writes are to flow; `None` leaves it to the mount.
    pub(crate) writes: Option<FlowWord>,
    /// What happens to cached pages; `None` leaves it to the mount.
    pub(crate) cache: Option<CacheHint>,
    /// What may change through it.
    pub(crate) limits: Limits,
    /// What is not sealed must not be opened.
    pub(crate) needs_seal: bool,
    /// It is not checked, for nobody.
    pub(crate) unchecked: bool,
    _made: MadeHere,
}

/// Bits of a word that terms take.
pub(crate) const TERMS_BITS: u32 = 8;

/// What only this module makes.
#[derive(PartialEq, Eq, Debug)]
struct MadeHere;

/// What may change of a file through one open.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Limits {
    /// Nothing of the file may change through it.
    pub(crate) read_only: bool,
    /// What is written through it goes to the end.
    pub(crate) append_only: bool,
}

impl Terms {
    /// The terms of a mount without rules.
    pub(super) const fn none() -> Self {
        Self {
            reads: None,
            writes: None,
            cache: None,
            limits: Limits { read_only: false, append_only: false },
            needs_seal: false,
            unchecked: false,
            _made: MadeHere,
        }
    }

    /// In one word, for the next server; [`TERMS_BITS`] of it. What the kernel was told of its pages, it knows.
    pub(crate) fn bits(&self) -> u64 {
        let flow = |word: Option<FlowWord>| match word {
            None => 0,
            Some(FlowWord::Passthrough) => 1,
            Some(FlowWord::Splice) => 2,
            Some(FlowWord::Served) => 3,
        };
        let flags = [self.limits.read_only, self.limits.append_only, self.needs_seal, self.unchecked];
        let flags = flags.into_iter().rev().fold(0, |bits, flag| bits << 1 | u64::from(flag));
        flow(self.reads) | flow(self.writes) << 2 | flags << 4
    }

    /// Those of an open that another server has judged; `None` where they are none.
    pub(crate) fn of_bits(bits: u64) -> Option<Self> {
        let flow = |bits: u64| match bits & 3 {
            0 => None,
            1 => Some(FlowWord::Passthrough),
            2 => Some(FlowWord::Splice),
            _ => Some(FlowWord::Served),
        };
        let is_set = |bit: u32| bits & 1 << bit != 0;
        let terms = Self {
            reads: flow(bits),
            writes: flow(bits >> 2),
            limits: Limits { read_only: is_set(4), append_only: is_set(5) },
            needs_seal: is_set(6),
            unchecked: is_set(7),
            ..Self::none()
        };
        (bits >> TERMS_BITS == 0).then_some(terms)
    }

    /// The same, of a file that nobody has checked where that is `unchecked`.
    pub(super) fn checked_unless(self, unchecked: bool) -> Self {
        Self { unchecked, ..self }
    }

    /// Whether they leave everything to the mount.
    pub(crate) fn are_none(&self) -> bool {
        *self == Self::none()
    }

    /// The flows of reads and of writes of an open with these flags; what it does not do flows as what it does.
    pub(crate) fn flows(&self, flags: u32, of_mount: FlowWord) -> (FlowWord, FlowWord) {
        let (reads, writes) = (self.reads.unwrap_or(of_mount), self.writes.unwrap_or(of_mount));
        match flags & mode::O_ACCMODE {
            mode::O_RDONLY => (reads, reads),
            mode::O_WRONLY => (writes, writes),
            _ => (reads, writes),
        }
    }

    /// The terms of the open that a creation ends with; the decision was made before there was a file.
    pub(super) fn of_new(decision: &Decision, flags: u32) -> Result<Self> {
        if decision.needs_seal() {
            // What is new is not sealed.
            refused(decision)?;
            return Err(Errno::ACCES);
        }
        Self::of(decision, flags)
    }

    /// What a decision makes of an open with these flags.
    pub(super) fn of(decision: &Decision, flags: u32) -> Result<Self> {
        refused(decision)?;
        let writes = flags & mode::O_ACCMODE != mode::O_RDONLY;
        let cuts = flags & mode::O_TRUNC != 0;
        if decision.read_only && (writes || cuts) {
            return Err(Errno::ROFS);
        }
        let appends = flags & mode::O_ACCMODE == mode::O_WRONLY && flags & mode::O_APPEND != 0 && !cuts;
        if decision.append_only && (writes || cuts) && !appends {
            // For reading, too, would let it be mapped, and stores through a mapping land anywhere.
            return Err(Errno::PERM);
        }
        let append_only = decision.append_only && writes;
        let cache = decision.cache.map(|word| match word {
            CacheWord::Keep => CacheHint::Keep,
            CacheWord::Drop => CacheHint::Drop,
            CacheWord::Direct => CacheHint::Direct,
        });
        Ok(Self {
            reads: decision.flow_read,
            writes: if append_only { Some(FlowWord::Served) } else { decision.flow_write },
            cache: if append_only { Some(CacheHint::Direct) } else { cache },
            limits: Limits { read_only: decision.read_only, append_only },
            needs_seal: decision.needs_seal(),
            unchecked: false,
            _made: MadeHere,
        })
    }
}

/// The error that a decision means for whoever wants to use a file's content.
pub(super) fn refused(decision: &Decision) -> Result<()> {
    match decision.access {
        Access::Allow => Ok(()),
        Access::Deny(number) => Err(Errno::from_lower(number.get())),
        Access::Hide => Err(Errno::NOENT),
    }
}

/// The error that it means for whoever wants to make the name: a hidden one is not said to be there or not.
pub(super) fn refused_name(decision: &Decision) -> Result<()> {
    match decision.access {
        Access::Hide => Err(Errno::ACCES),
        Access::Allow | Access::Deny(_) => refused(decision),
    }
}

/// How a file is used by an open with these flags.
pub(crate) fn use_of(flags: u32) -> Use {
    let access = flags & mode::O_ACCMODE;
    let mut how = Use::LOOK;
    for (holds, word) in [
        (access != mode::O_WRONLY, OpenWord::Read),
        (access != mode::O_RDONLY, OpenWord::Write),
        (access != mode::O_RDONLY && flags & mode::O_APPEND != 0, OpenWord::Append),
        (flags & mode::O_TRUNC != 0, OpenWord::Truncate),
        (flags & FMODE_EXEC != 0, OpenWord::Exec),
    ] {
        if holds {
            how = how.and(Use::of(word));
        }
    }
    how
}

/// The error for a change of a file that is as it is.
pub(super) fn unchangeable(read_only: bool, append_only: bool) -> Result<()> {
    match (read_only, append_only) {
        (true, _) => Err(Errno::ROFS),
        (false, true) => Err(Errno::PERM),
        (false, false) => Ok(()),
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use shuntfs_rules::ErrorNumber;

    #[test]
    fn flags_say_how_a_file_is_used() {
        let words = |flags| use_of(flags).words().map(OpenWord::word).collect::<Vec<_>>();
        assert_eq!(words(mode::O_RDONLY), ["read"]);
        assert_eq!(words(mode::O_WRONLY | mode::O_APPEND), ["write", "append"]);
        assert_eq!(words(mode::O_RDWR | mode::O_TRUNC), ["read", "write", "truncate"]);
        assert_eq!(words(mode::O_RDONLY | FMODE_EXEC), ["read", "exec"]);
        assert_eq!(words(mode::O_RDONLY | mode::O_APPEND), ["read"]);
    }

    #[test]
    fn what_a_decision_forbids_an_open_hears() {
        let decide = |change: fn(&mut Decision), flags| {
            let mut decision = Decision::default();
            change(&mut decision);
            Terms::of(&decision, flags).map(|terms| (terms.writes, terms.limits.append_only))
        };
        let (read, write, append) = (mode::O_RDONLY, mode::O_RDWR, mode::O_WRONLY | mode::O_APPEND);
        let deny: fn(&mut Decision) = |decision| decision.access = Access::Deny(ErrorNumber::ACCES);
        assert_eq!(decide(deny, read), Err(Errno::ACCES));
        assert_eq!(decide(|decision| decision.access = Access::Hide, read), Err(Errno::NOENT));
        let read_only: fn(&mut Decision) = |decision| decision.read_only = true;
        assert_eq!(decide(read_only, read), Ok((None, false)));
        assert_eq!(decide(read_only, write), Err(Errno::ROFS));
        assert_eq!(decide(read_only, mode::O_TRUNC), Err(Errno::ROFS));
        let grows: fn(&mut Decision) = |decision| decision.append_only = true;
        assert_eq!(decide(grows, read), Ok((None, false)));
        assert_eq!(decide(grows, append), Ok((Some(FlowWord::Served), true)));
        for flags in [write, mode::O_WRONLY, write | mode::O_APPEND, append | mode::O_TRUNC, mode::O_TRUNC] {
            assert_eq!(decide(grows, flags), Err(Errno::PERM), "{flags:o}");
        }
    }

    #[test]
    fn the_next_server_has_the_same_terms() {
        for bits in 0..1 << TERMS_BITS {
            let terms = Terms::of_bits(bits).expect("are some");
            assert_eq!(terms.bits(), bits);
        }
        assert_eq!(Terms::of_bits(0), Some(Terms::none()));
        assert_eq!(Terms::of_bits(1 << TERMS_BITS), None);
    }

    #[test]
    fn an_open_for_both_flows_both_ways() {
        use FlowWord::{Passthrough, Served, Splice};
        let flows = |flags| {
            let decision = Decision {
                flow_read: Some(FlowWord::Served),
                flow_write: Some(FlowWord::Passthrough),
                ..Decision::default()
            };
            Terms::of(&decision, flags).unwrap().flows(flags, Splice)
        };
        assert_eq!(flows(mode::O_RDONLY), (Served, Served));
        assert_eq!(flows(mode::O_WRONLY), (Passthrough, Passthrough));
        assert_eq!(flows(mode::O_RDWR), (Served, Passthrough));
        assert_eq!(Terms::none().flows(mode::O_RDWR, Splice), (Splice, Splice));
    }
}
