//! How often requests were read from devices, told to another process, which is to know whether this one still reads.
//!
//! The words lie in a page that both share. Threads have words of their own, far enough from each other that no two CPUs write to one line of
//! their caches. Where nobody watches, a read of a device costs one look at a static more.
//!
//! # Safety
//! The page is made once, zeroed by the kernel, never unmapped, and only ever used as atomic words.
#![expect(unsafe_code, reason = "memory is mapped that two processes share")]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

use crate::Result;

const LINES: usize = 64;

/// A word with a cache line for itself.
#[repr(align(64))]
#[derive(Debug)]
struct Line(AtomicU64);

/// Words that this process shares with those that it forks from now on. They stay mapped for its life.
#[derive(Clone, Copy, Debug)]
pub struct Pulse(&'static [Line; LINES]);

/// Where the reads of this process are counted, if anywhere.
static COUNTED: OnceLock<Pulse> = OnceLock::new();

impl Pulse {
    /// Words that are all zero.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new() -> Result<Self> {
        let (len, wanted) = (size_of::<[Line; LINES]>(), ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), len, wanted, MapFlags::SHARED) }?;
        // SAFETY: the mapping is as long as the array, aligned to a page, zero, which is a value of each word, and never unmapped.
        Ok(Self(unsafe { &*start.cast::<[Line; LINES]>() }))
    }

    /// From now on the reads of this process are counted here; a second call changes nothing.
    pub fn counts_this_process(self) {
        // One that was there before stays.
        let _first = COUNTED.set(self);
    }

    /// How many reads were counted, by whichever processes.
    #[must_use]
    pub fn count(self) -> u64 {
        self.0.iter().map(|line| line.0.load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
    }
}

/// A request was read.
pub(crate) fn beat() {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OWN: usize = NEXT.fetch_add(1, Ordering::Relaxed) % LINES;
    }
    if let Some(Pulse(lines)) = COUNTED.get() {
        OWN.with(|own| lines[*own].0.fetch_add(1, Ordering::Relaxed));
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// In a process of its own, because the reads of all tests of this program would be counted.
    #[test]
    fn reads_of_a_child_are_counted_here() {
        let pulse = Pulse::new().expect("memory");
        beat();
        assert_eq!(pulse.count(), 0, "nobody watches");
        // SAFETY: the child makes no call that a fork forbids, and ends without returning.
        let child = unsafe { libc::fork() };
        if child == 0 {
            pulse.counts_this_process();
            for _ in 0..5 {
                beat();
            }
            // SAFETY: ends the child without running anything of the parent's.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: `status` is an int, and the child is ours.
        let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!((ended, status, pulse.count()), (child, 0, 5));
    }
}
