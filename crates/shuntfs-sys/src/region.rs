//! Anonymous memory that is reserved at once, used as needed, and given back when idle.
//!
//! # Safety
//! A [`Region`] owns its mapping; pointers into it are handed out raw, because the kernel may write there.
#![expect(unsafe_code, reason = "mappings are made and given back by address")]

use std::ops::Range;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use crate::Result;
use crate::raw::last_error;

/// Page-aligned anonymous memory, zero until written.
#[derive(Debug)]
pub struct Region {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread; access is governed by whoever holds pointers.
unsafe impl Send for Region {}
// SAFETY: as above; what changes the mapping's bytes needs their owners' word.
unsafe impl Sync for Region {}

impl Region {
    /// Reserves `len` bytes, rounded up to whole pages. No memory is used until it is written.
    ///
    /// # Errors
    /// ENOMEM where the address space or the overcommit limit does not allow it.
    pub fn reserve(len: usize) -> Result<Self> {
        let len = len.next_multiple_of(PAGE).max(PAGE);
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        let start = NonNull::new(start.cast::<u8>()).ok_or(rustix::io::Errno::NOMEM)?;
        Ok(Self { start, len })
    }

    /// Maps `len` bytes of a file in memory, from its byte `offset` on, at this very address: what processes that come one after the other
    /// have there is the same.
    ///
    /// # Errors
    /// EEXIST where something else lies there, EINVAL where address or offset are no page's; ENOMEM.
    pub fn shared(file: impl AsFd, offset: u64, (address, len): (usize, usize)) -> Result<Self> {
        let at = std::ptr::without_provenance_mut(address);
        let flags = MapFlags::SHARED | MapFlags::FIXED_NOREPLACE | MapFlags::NORESERVE;
        // SAFETY: the kernel refuses where the mapping would overlap another.
        let start = unsafe { mmap(at, len, ProtFlags::READ | ProtFlags::WRITE, flags, file, offset) }?;
        let start = NonNull::new(start.cast::<u8>()).ok_or(rustix::io::Errno::NOMEM)?;
        let this = Self { start, len };
        // Before Linux 4.17 the address is a mere wish.
        if start.as_ptr().addr() == address { Ok(this) } else { Err(rustix::io::Errno::EXIST) }
    }

    /// The first byte.
    #[must_use]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// How many bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it is empty; it never is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Puts the bytes of `range` into huge pages, as far as such pages lie inside the region whole; what they hold stays.
    /// What the kernel pins for each transfer is then one page where it was hundreds. It copies them and may use
    /// more memory than before: up to a huge page on either side of the range.
    ///
    /// # Errors
    /// EINVAL before Linux 6.1 and where the kernel has no huge pages, EAGAIN or EBUSY while a page is in use elsewhere, ENOMEM.
    ///
    /// # Panics
    /// Where the range is not inside the region.
    pub fn gather(&self, range: Range<usize>) -> Result<()> {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of a region");
        let base = self.start.as_ptr().addr();
        let first = ((base + range.start) / HUGE * HUGE).max(base.next_multiple_of(HUGE));
        let last = (base + range.end).next_multiple_of(HUGE).min((base + self.len) / HUGE * HUGE);
        if first >= last {
            return Ok(());
        }
        let at = self.start.as_ptr().wrapping_add(first - base);
        // SAFETY: the range lies inside this mapping, and collapsing changes no byte of it.
        let done = unsafe { libc::madvise(at.cast(), last - first, MADV_COLLAPSE) };
        if done == 0 { Ok(()) } else { Err(last_error()) }
    }

    /// Has the pages of `range` in memory, so that neither this process nor the kernel waits for one there; what they hold stays.
    ///
    /// # Errors
    /// EINVAL before Linux 5.14, ENOMEM.
    ///
    /// # Panics
    /// Where the range is not inside the region.
    pub fn populate(&self, range: Range<usize>) -> Result<()> {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of a region");
        let page = crate::limits::page_len();
        let first = range.start / page * page;
        let at = self.start.as_ptr().wrapping_add(first);
        // SAFETY: the range lies inside this mapping, and populating changes no byte of it.
        let done = unsafe { libc::madvise(at.cast(), range.end - first, MADV_POPULATE_WRITE) };
        if done == 0 { Ok(()) } else { Err(last_error()) }
    }

    /// Gives the memory of `range` back, as far as it is whole pages; it reads as zeroes afterwards.
    ///
    /// # Safety
    /// Nobody, the kernel included, may be using these bytes or rely on what they hold.
    ///
    /// # Errors
    /// Those of `madvise`.
    ///
    /// # Panics
    /// Where the range is not inside the region.
    pub unsafe fn give_back(&self, range: Range<usize>) -> Result<()> {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of a region");
        let page = crate::limits::page_len();
        let (first, end) = (range.start.next_multiple_of(page), range.end / page * page);
        if first >= end {
            return Ok(());
        }
        let at = self.start.as_ptr().wrapping_add(first);
        // SAFETY: the range is this mapping's own, and nobody relies on its bytes (the caller's promise).
        unsafe { madvise(at.cast(), end - first, Advice::LinuxDontNeed) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `reserve` and is unmapped once. Failure would leak, nothing more.
        let _unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// The page size of every Linux platform that this project runs on in 4 KiB mode; larger pages round up.
const PAGE: usize = 4096;

/// A huge page of x86-64 and of aarch64 with 4 KiB pages; with larger ones the kernel refuses, and nothing is lost.
const HUGE: usize = 2 << 20;

/// `MADV_COLLAPSE` of `<linux/mman.h>`, which libc does not name on all platforms.
const MADV_COLLAPSE: libc::c_int = 25;

/// `MADV_POPULATE_WRITE`, likewise.
const MADV_POPULATE_WRITE: libc::c_int = 23;

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn memory_reads_zero_after_it_was_given_back() {
        let region = Region::reserve(10_000).expect("reserve");
        assert_eq!(region.len(), 12_288);
        let byte = region.start().as_ptr().wrapping_add(5000);
        // SAFETY: inside the mapping, which nobody else uses.
        unsafe { byte.write(7) };
        // SAFETY: nobody else uses the mapping.
        unsafe { region.give_back(0..PAGE) }.expect("madvise");
        // SAFETY: nobody else uses the mapping.
        unsafe { region.give_back(PAGE + 1..3 * PAGE) }.expect("madvise");
        // SAFETY: inside the mapping.
        assert_eq!(unsafe { byte.read() }, 7, "in no whole page that was given back");
        // SAFETY: nobody else uses the mapping.
        unsafe { region.give_back(0..region.len()) }.expect("madvise");
        // SAFETY: inside the mapping.
        assert_eq!(unsafe { byte.read() }, 0);
    }

    #[test]
    fn a_file_is_mapped_where_it_was_and_nowhere_else() {
        const ADDRESS: usize = 0x20_0000_0000;
        let file = crate::memory::file_in_memory(c"test").expect("memory");
        file.set_len(4 * PAGE as u64).expect("grows");
        let map = || Region::shared(&file, PAGE as u64, (ADDRESS, 2 * PAGE));
        let region = map().expect("nothing lies there");
        assert_eq!((region.start().as_ptr().addr(), region.len()), (ADDRESS, 2 * PAGE));
        assert_eq!(map().err(), Some(rustix::io::Errno::EXIST));
        // SAFETY: inside the mapping, which nobody else uses.
        unsafe { region.start().as_ptr().wrapping_add(PAGE).write(7) };
        drop(region);
        let again = map().expect("nothing lies there any more");
        // SAFETY: inside the mapping.
        assert_eq!(unsafe { again.start().as_ptr().wrapping_add(PAGE).read() }, 7);
    }

    #[test]
    fn populated_memory_is_there_and_keeps_its_bytes() {
        let region = Region::reserve(4 * PAGE).expect("reserve");
        let byte = region.start().as_ptr().wrapping_add(PAGE);
        // SAFETY: inside the mapping, which nobody else uses.
        unsafe { byte.write(7) };
        region.populate(10..3 * PAGE).expect("madvise");
        // SAFETY: inside the mapping.
        assert_eq!(unsafe { byte.read() }, 7);
        let mut resident = [0_u8; 4];
        // SAFETY: the mapping has four pages, and so has the array.
        let done = unsafe { libc::mincore(region.start().as_ptr().cast(), 4 * PAGE, resident.as_mut_ptr()) };
        assert_eq!((done, resident.map(|page| page & 1)), (0, [1, 1, 1, 0]));
    }

    #[test]
    fn gathered_memory_keeps_its_bytes() {
        let region = Region::reserve(5 * HUGE).expect("reserve");
        let bytes = |at: usize| region.start().as_ptr().wrapping_add(at);
        for at in (0..region.len()).step_by(PAGE) {
            // SAFETY: inside the mapping, which nobody else uses.
            unsafe { bytes(at).write(u8::try_from(at / PAGE % 251).expect("small")) };
        }
        region.gather(PAGE..3 * HUGE).unwrap_or_else(|error| println!("not here: {error}"));
        for at in (0..region.len()).step_by(PAGE) {
            // SAFETY: inside the mapping, which nobody else uses.
            assert_eq!(usize::from(unsafe { bytes(at).read() }), at / PAGE % 251);
        }
        let small = Region::reserve(PAGE).expect("reserve");
        assert_eq!(small.gather(0..PAGE), Ok(()), "no huge page lies in it");
    }
}
