//! Where the bytes of a composed or redacted file come from.

use std::os::fd::AsFd;
use std::sync::Arc;

use shuntfs_sys::stat::Device;

use crate::delegation::{Backing, LowerFile};
use crate::open_flags::OpenFlags;

/// Where the bytes of a composed or redacted file come from. [`crate::Extents`] is one, made of a list.
///
/// A run whose lower bytes end early, or whose `read` gives fewer than asked for, ends the reply; zeroes never
/// do, so past its end a map must not say [`RangeSource::Zeroes`] but [`RangeSource::End`]. Runs that go on where the one
/// before ended, in the same lower file, are moved in one go; the file system is asked for one served run at a time.
///
/// A map that says of offset 0 that all bytes there are come from offset 0 of one lower file (a length of `u64::MAX`) has
/// nothing to add: the open is lifted to passthrough to that file, if the file was opened with the access that the
/// caller's open asks for, and the node is in passthrough to no other.
pub trait RangeMap: Send + Sync + std::fmt::Debug {
    /// The source of the byte at `offset`, and for how many bytes that answer holds (at least 1).
    fn source(&self, offset: u64) -> (RangeSource, u64);
}

/// The source of a run of bytes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RangeSource {
    /// The bytes of this file from this offset on.
    Lower(Arc<LowerFile>, u64),
    /// Zeroes. What is written to them goes to the file system's own `write`.
    Zeroes,
    /// The file system's own `read` and `write`.
    Served,
    /// Nothing: the file ends here. What is written there goes to the file system's own `write`.
    End,
}

/// Which lower file it is, while something keeps it open.
pub(crate) type FileKey = (Device, u64);

/// The lower file that a map is, whole and forever, if it may be opened as `flags` say.
pub(crate) fn lifted(map: &dyn RangeMap, flags: OpenFlags) -> Option<(Backing, FileKey)> {
    match map.source(0) {
        (RangeSource::Lower(file, 0), u64::MAX) if gives(&file, flags) => {
            let found = shuntfs_sys::stat_of(file.as_fd()).ok()?;
            Some((Backing::File(file), (found.dev, found.ino)))
        }
        _ => None,
    }
}

/// Passthrough opens the file anew with the caller's flags. What the map's descriptor would not give must not come so.
fn gives(file: &LowerFile, flags: OpenFlags) -> bool {
    const ACCMODE: u32 = 0o3;
    const RDWR: u32 = 0o2;
    let held = shuntfs_sys::open::access_of(file.as_fd());
    held.is_ok_and(|held| held == RDWR || held == flags.0 & ACCMODE)
}

/// The source at `offset`, and how many of `wanted` bytes it gives; as many runs of the map as go on from one another.
pub(crate) fn run(map: &dyn RangeMap, offset: u64, wanted: usize) -> (RangeSource, usize) {
    let (source, len) = map.source(offset);
    let mut len = clip(len, wanted);
    while len < wanted {
        let Some(at) = offset.checked_add(len as u64) else { break };
        let (next, more) = map.source(at);
        if !continues(&source, len as u64, &next) {
            break;
        }
        len += clip(more, wanted - len);
    }
    (source, len)
}

fn clip(len: u64, wanted: usize) -> usize {
    usize::try_from(len.max(1)).unwrap_or(usize::MAX).min(wanted)
}

/// Whether `next` is what `source` would give `len` bytes on.
fn continues(source: &RangeSource, len: u64, next: &RangeSource) -> bool {
    match (source, next) {
        (RangeSource::Lower(file, from), RangeSource::Lower(other, to)) => {
            Arc::ptr_eq(file, other) && from.checked_add(len) == Some(*to)
        }
        (RangeSource::Zeroes, RangeSource::Zeroes) => true,
        // Two served runs are two things to the file system, which may answer each and not both at once.
        _ => false,
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn lower(write: bool) -> Arc<LowerFile> {
        let file = std::fs::File::options().read(true).write(write).open("/dev/null").unwrap();
        Arc::new(LowerFile::new(file.into()))
    }

    /// Pages of one lower file, but for the fourth, in runs of a page.
    #[derive(Debug)]
    struct Pages(Arc<LowerFile>);

    impl RangeMap for Pages {
        fn source(&self, offset: u64) -> (RangeSource, u64) {
            let from = if offset / 4096 == 3 { 0 } else { offset };
            (RangeSource::Lower(Arc::clone(&self.0), from), 4096 - offset % 4096)
        }
    }

    #[derive(Debug)]
    struct Whole(Arc<LowerFile>, u64, u64);

    impl RangeMap for Whole {
        fn source(&self, offset: u64) -> (RangeSource, u64) {
            (RangeSource::Lower(Arc::clone(&self.0), offset.wrapping_add(self.1)), self.2)
        }
    }

    #[test]
    fn runs_that_go_on_are_one() {
        let map = Pages(lower(false));
        for (offset, wanted, len) in
            [(0, 100, 100), (0, 99_999, 12_288), (5000, 99_999, 7288), (16_384, 9000, 9000)]
        {
            let (RangeSource::Lower(_, from), got) = run(&map, offset, wanted) else { panic!("lower") };
            assert_eq!((from, got), (offset, len), "{wanted} at {offset}");
        }
    }

    #[derive(Debug)]
    struct Served;

    impl RangeMap for Served {
        fn source(&self, offset: u64) -> (RangeSource, u64) {
            (RangeSource::Served, 10 - offset % 10)
        }
    }

    #[test]
    fn served_runs_stay_apart() {
        assert!(matches!(run(&Served, 4, 100), (RangeSource::Served, 6)));
    }

    #[test]
    fn a_map_that_lies_about_lengths_is_cut() {
        for len in [0, 1, u64::MAX] {
            let map = Whole(lower(false), u64::MAX, len);
            for offset in [0, 1, u64::MAX - 1, u64::MAX] {
                let (_, got) = run(&map, offset, 4096);
                assert!((1..=4096).contains(&got), "{got} at {offset}");
            }
        }
    }

    #[test]
    fn only_a_whole_file_that_may_be_opened_so_is_lifted() {
        let flags = |access: u32| OpenFlags(access | 0o100_000);
        let is_lifted = |map: &Whole, access| lifted(map, flags(access)).is_some();
        assert!(is_lifted(&Whole(lower(true), 0, u64::MAX), 2));
        assert!(is_lifted(&Whole(lower(true), 0, u64::MAX), 0));
        assert!(is_lifted(&Whole(lower(false), 0, u64::MAX), 0));
        assert!(!is_lifted(&Whole(lower(false), 0, u64::MAX), 2), "the map would refuse a write");
        assert!(!is_lifted(&Whole(lower(true), 1, u64::MAX), 0), "at another offset");
        assert!(!is_lifted(&Whole(lower(true), 0, u64::MAX - 1), 0), "not the whole file");
    }
}
