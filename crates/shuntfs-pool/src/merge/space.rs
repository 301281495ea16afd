//! The space of branches: what policies go by, and what statfs(2) tells.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use shuntfs::{Errno, LowerFile, Result, Statfs};
use shuntfs_sys::{FsStat, filesystem_of};

use crate::error::errno;
use crate::policy::Space;
use crate::shared::Shared;

/// How old what is known of a file system's space may be where a branch is picked: asking for each creation would cost more than
/// the creation.
const AGE_MAX: Duration = Duration::from_secs(1);

/// What a file system said of itself, and when.
#[derive(Debug, Default)]
pub(crate) struct Asked(Mutex<Option<(Instant, Space, bool)>>);

impl Asked {
    /// The space, and whether the file system refuses changes.
    ///
    /// # Errors
    /// What fstatfs(2) gives.
    pub(crate) fn space(&self, root: &LowerFile) -> Result<(Space, bool)> {
        if let Some((_, space, is_read_only)) = self.0.lock().filter(|(then, ..)| then.elapsed() < AGE_MAX) {
            return Ok((space, is_read_only));
        }
        // Not under the lock: the disk may take its time.
        let below = filesystem_of(root).map_err(errno)?;
        let known = (space_of(&below), below.is_read_only());
        *self.0.lock() = Some((Instant::now(), known.0, known.1));
        Ok(known)
    }
}

fn space_of(below: &FsStat) -> Space {
    let unit = u64::from(below.frsize);
    Space { total: below.blocks.saturating_mul(unit), available: below.bavail.saturating_mul(unit) }
}

/// STATFS of a merge: the sum over its file systems, each counted once.
pub(crate) fn statfs(shared: &Shared) -> Result<Statfs> {
    let mut known: Vec<((u32, u32), FsStat)> = Vec::new();
    let mut failed = None;
    for branch in shared.branches.in_use() {
        let device = branch.mounts.own().device();
        if known.iter().any(|(other, _)| *other == device) {
            continue;
        }
        match filesystem_of(branch.root()) {
            Ok(below) => known.push((device, below)),
            Err(error) => {
                tracing::warn!(branch = ?branch.source(), %error, "its space is not counted");
                failed.get_or_insert(errno(error));
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
