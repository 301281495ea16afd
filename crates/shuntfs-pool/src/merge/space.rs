//! The space of branches, as statfs(2) tells it.

use shuntfs::{Errno, Result, Statfs};
use shuntfs_sys::FsStat;

use crate::shared::Shared;

/// STATFS of a merge: the sum over its file systems, each counted once. What a disk that hangs said before counts; a branch that is set aside
/// does not.
pub(crate) fn statfs(shared: &Shared) -> Result<Statfs> {
    let branches: Vec<_> =
        shared.branches.in_use().into_iter().filter(|branch| !branch.health.is_aside()).collect();
    // First one of each, so that those which do not answer are waited for at the same time.
    let mut devices = Vec::new();
    for branch in &branches {
        let device = branch.mounts.own().device();
        if !devices.contains(&device) {
            devices.push(device);
            branch.ask();
        }
    }
    let mut known: Vec<((u32, u32), FsStat)> = Vec::new();
    let mut failed = None;
    for branch in branches {
        let device = branch.mounts.own().device();
        if known.iter().any(|(other, _)| *other == device) {
            continue;
        }
        match branch.below() {
            Ok(below) => known.push((device, below)),
            Err(error) => {
                tracing::warn!(branch = ?branch.source(), %error, "its space is not counted");
                failed.get_or_insert(error);
            }
        }
    }
    let all: Vec<FsStat> = known.into_iter().map(|(_, below)| below).collect();
    sum(&all).ok_or(failed.unwrap_or(Errno::IO))
}

/// The sum, in the smallest of their units; `None` of nothing.
fn sum(all: &[FsStat]) -> Option<Statfs> {
    let unit = all.iter().map(|below| below.frsize).min()?.max(1);
    let blocks = |count: fn(&FsStat) -> u64| {
        let in_units = |below: &FsStat| {
            let bytes = u128::from(count(below)) * u128::from(below.frsize);
            u64::try_from(bytes / u128::from(unit)).unwrap_or(u64::MAX)
        };
        all.iter().map(in_units).fold(0, u64::saturating_add)
    };
    Some(Statfs {
        blocks: blocks(|below| below.blocks),
        bfree: blocks(|below| below.bfree),
        bavail: blocks(|below| below.bavail),
        files: all.iter().map(|below| below.files).fold(0, u64::saturating_add),
        ffree: all.iter().map(|below| below.ffree).fold(0, u64::saturating_add),
        bsize: all.iter().map(|below| below.bsize).max()?,
        namelen: all.iter().map(|below| below.namelen).min()?,
        frsize: unit,
    })
}

#[cfg(test)]
mod test {
    use super::*;
    use shuntfs_sys::FsMagic;

    #[test]
    fn blocks_are_summed_in_the_smallest_unit() {
        let below = |blocks, frsize, namelen| FsStat {
            magic: FsMagic(0),
            blocks,
            bfree: blocks / 2,
            bavail: blocks / 4,
            files: 10,
            ffree: 5,
            bsize: frsize,
            namelen,
            frsize,
            flags: 0,
        };
        let both = sum(&[below(8, 4096, 255), below(16, 1024, 143)]).unwrap();
        assert_eq!((both.frsize, both.bsize, both.namelen), (1024, 4096, 143));
        assert_eq!((both.blocks, both.bfree, both.bavail), (48, 24, 12));
        assert_eq!((both.files, both.ffree), (20, 10));
        assert!(sum(&[]).is_none());
    }
}
