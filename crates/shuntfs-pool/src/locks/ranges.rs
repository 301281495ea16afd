//! Which ranges an owner has locked, to tell whose lock stands in the way.

use shuntfs::{LockRange, LockType};

/// Changes `held` as the lock `new` of the same owner does: what it covers is replaced.
pub(crate) fn apply(held: &mut Vec<LockRange>, new: LockRange) {
    let mut kept = Vec::with_capacity(held.len() + 2);
    for old in held.drain(..) {
        if old.end < new.start || old.start > new.end {
            kept.push(old);
            continue;
        }
        if old.start < new.start {
            kept.push(LockRange { end: new.start - 1, ..old });
        }
        if old.end > new.end {
            kept.push(LockRange { start: new.end + 1, ..old });
        }
    }
    if new.kind != LockType::Unlock {
        kept.push(new);
    }
    *held = kept;
}

/// The process that holds a lock meeting `range`, where one of `held` does.
pub(crate) fn holder_of(held: &[LockRange], start: u64, end: u64) -> Option<u32> {
    held.iter().find(|lock| lock.start <= end && lock.end >= start).map(|lock| lock.pid)
}

#[cfg(test)]
mod test {
    use super::*;

    fn lock(start: u64, end: u64, kind: LockType) -> LockRange {
        LockRange { start, end, kind, pid: 7 }
    }

    #[test]
    fn ranges_are_split_replaced_and_dropped() {
        let (read, write, none) = (LockType::Read, LockType::Write, LockType::Unlock);
        let mut held = vec![];
        apply(&mut held, lock(0, 99, read));
        apply(&mut held, lock(40, 59, write));
        let mut sorted = held.clone();
        sorted.sort_by_key(|lock| lock.start);
        assert_eq!(sorted, [lock(0, 39, read), lock(40, 59, write), lock(60, 99, read)]);
        apply(&mut held, lock(10, u64::MAX >> 1, none));
        assert_eq!(held, [lock(0, 9, read)]);
        assert_eq!(holder_of(&held, 9, 20), Some(7));
        assert_eq!(holder_of(&held, 10, 20), None);
        apply(&mut held, lock(0, 9, none));
        assert!(held.is_empty());
    }
}
