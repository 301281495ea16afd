//! The table of a process's descriptors, by their numbers.
#![expect(unsafe_code, reason = "closes and takes descriptors by their number")]

use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::fcntl_getfd;

use crate::{OsError, Result, proc_fd};

/// Which descriptors were open at a moment, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenNumbers(Vec<RawFd>);

impl OpenNumbers {
    /// Those that are open now. No other thread may open or close any meanwhile.
    ///
    /// # Errors
    /// ENOENT where procfs is not mounted, EMFILE.
    pub fn look() -> Result<Self> {
        // What this crate itself keeps open it opens before, and not between two looks.
        let _folder = proc_fd::folder()?;
        let folder = std::fs::read_dir("/proc/self/fd");
        let folder = folder.map_err(|error| OsError::from_io_error(&error).unwrap_or(OsError::IO))?;
        let numbers = folder.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let numbers: Vec<RawFd> = numbers.collect();
        // The folder that was read is closed by now.
        let mut open: Vec<RawFd> = numbers.into_iter().filter(|number| is_open(*number)).collect();
        open.sort_unstable();
        Ok(Self(open))
    }

    /// One that was opened since is as if it had been open then.
    pub fn add(&mut self, fd: &impl AsRawFd) {
        let number = fd.as_raw_fd();
        if let Err(place) = self.0.binary_search(&number) {
            self.0.insert(place, number);
        }
    }

    /// One that was closed since is as if it had not been open.
    pub fn remove(&mut self, number: RawFd) {
        if let Ok(place) = self.0.binary_search(&number) {
            self.0.remove(place);
        }
    }

    /// Whether it was open.
    #[must_use]
    pub fn contains(&self, number: RawFd) -> bool {
        self.0.binary_search(&number).is_ok()
    }

    /// Their numbers.
    #[must_use]
    pub fn numbers(&self) -> &[RawFd] {
        &self.0
    }

    /// Those that are open here and are not in `others`.
    #[must_use]
    pub fn beside(&self, others: &Self) -> Self {
        Self(self.0.iter().copied().filter(|number| others.0.binary_search(number).is_err()).collect())
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Closes them.
    ///
    /// # Safety
    /// Nobody in a process with this table may use them any more.
    pub unsafe fn close(&self) {
        for number in &self.0 {
            // SAFETY: nobody uses it (the caller's word).
            unsafe { rustix::io::close(*number) };
        }
    }
}

/// Descriptors that dead processes with this table left open, and that nobody uses. What is not taken is closed when this is dropped.
#[derive(Debug, Default)]
pub struct LeftDescriptors(BTreeSet<RawFd>);

impl LeftDescriptors {
    /// No descriptors.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// These.
    ///
    /// # Safety
    /// They are open, and nobody in a process with this table uses them or will, but through this value.
    #[must_use]
    pub unsafe fn new(numbers: OpenNumbers) -> Self {
        Self(numbers.0.into_iter().collect())
    }

    /// Takes one, which is close-on-exec from then on. `None` for one that is not left, or was taken before.
    #[must_use]
    pub fn take(&mut self, number: RawFd) -> Option<OwnedFd> {
        if !self.0.remove(&number) {
            return None;
        }
        // SAFETY: it is open and nobody else's (the word of whoever made this), and it is taken once, because it has left the set.
        let fd = unsafe { OwnedFd::from_raw_fd(number) };
        rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC).ok().map(|()| fd)
    }

    /// How many are left.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

impl Drop for LeftDescriptors {
    fn drop(&mut self) {
        for number in &self.0 {
            // SAFETY: nobody uses it (the word of whoever made this).
            unsafe { rustix::io::close(*number) };
        }
    }
}

fn is_open(number: RawFd) -> bool {
    // SAFETY: the number comes from /proc and is not -1; the borrow ends within this function, which only asks whether it is open.
    let fd = unsafe { BorrowedFd::borrow_raw(number) };
    fcntl_getfd(fd).is_ok()
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn numbers_come_and_go() {
        let mut numbers = OpenNumbers(vec![2, 5]);
        numbers.remove(3);
        numbers.remove(5);
        assert!(numbers.contains(2) && !numbers.contains(5));
        assert_eq!(numbers.numbers(), [2]);
    }

    /// In a process of one thread, because others open files, too.
    #[test]
    fn what_was_opened_between_two_looks_is_closed() {
        // SAFETY: the child makes system calls and allocates, which a fork of the C library allows, and ends without returning.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let is_right = std::panic::catch_unwind(|| {
                let mut before = OpenNumbers::look().expect("procfs");
                let kept = std::fs::File::open("/dev/null").expect("opens");
                before.add(&kept);
                let opened = std::fs::File::open("/dev/null").expect("opens");
                let number = std::os::fd::IntoRawFd::into_raw_fd(opened);
                let since = OpenNumbers::look().expect("procfs").beside(&before);
                assert_eq!(since, OpenNumbers(vec![number]));
                // SAFETY: it is nobody's.
                let mut left = unsafe { LeftDescriptors::new(since) };
                assert!(left.take(kept.as_raw_fd()).is_none(), "it was there before");
                let taken = left.take(number).expect("it is left");
                assert!(left.take(number).is_none(), "once");
                drop(left);
                assert!(is_open(number), "it is somebody's again");
                drop(taken);
                let other =
                    std::os::fd::IntoRawFd::into_raw_fd(std::fs::File::open("/dev/null").expect("opens"));
                let since = OpenNumbers::look().expect("procfs").beside(&before);
                // SAFETY: it is nobody's.
                drop(unsafe { LeftDescriptors::new(since) });
                assert!(!is_open(other) && is_open(kept.as_raw_fd()));
            });
            // SAFETY: ends the child without running anything of the parent's.
            unsafe { libc::_exit(i32::from(is_right.is_err())) };
        }
        let mut status = 0;
        // SAFETY: `status` is an int, and the child is ours.
        let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!((ended, status), (child, 0));
    }
}
