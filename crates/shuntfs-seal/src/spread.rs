//! Files over threads: small ones one to a thread, then large ones by all threads together.

use std::fs::File;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{io, thread};

use shuntfs_verity::ReadAt;

use crate::Progress;

/// Files from here on are read by all threads together. What is below keeps one busy for a few milliseconds, which is
/// all that the others may have to wait at the end.
const LARGE_LEN: u64 = 8 << 20;

/// Calls `work` for each number of `pending`, which come with lengths in bytes, and with how many threads it may use itself.
pub(crate) fn spread(
    pending: &[(usize, u64)],
    jobs: NonZeroUsize,
    work: impl Fn(usize, NonZeroUsize) + Sync,
) {
    let (large, small): (Vec<_>, Vec<_>) = pending.iter().partition(|(_, len)| *len >= LARGE_LEN);
    let next = AtomicUsize::new(0);
    let share = || {
        while let Some((index, _)) = small.get(next.fetch_add(1, Ordering::Relaxed)) {
            work(*index, NonZeroUsize::MIN);
        }
    };
    thread::scope(|scope| {
        for _ in 1..jobs.get().min(small.len()) {
            scope.spawn(share);
        }
        share();
    });
    large.into_iter().for_each(|(index, _)| work(index, jobs));
}

/// A file that says how much of it was read.
pub(crate) struct Counted<'a> {
    pub(crate) file: &'a File,
    pub(crate) progress: &'a dyn Progress,
}

impl ReadAt for Counted<'_> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let len = shuntfs_sys::data::read_at(self.file, buffer, offset)?;
        self.progress.hashed(len as u64);
        Ok(len)
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn every_file_comes_once_and_large_ones_get_all_threads() {
        let pending: Vec<(usize, u64)> =
            (0..100).map(|index| (index, index as u64 % 10 * (1 << 20))).collect();
        let seen = Mutex::new(Vec::new());
        let jobs = NonZeroUsize::new(3).unwrap();
        spread(&pending, jobs, |index, threads| {
            let len = u64::try_from(index % 10).unwrap() << 20;
            assert_eq!(threads.get(), if len >= LARGE_LEN { 3 } else { 1 });
            seen.lock().unwrap().push(index);
        });
        let mut seen = seen.into_inner().unwrap();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..100));
    }
}
