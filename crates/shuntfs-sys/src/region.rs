//! Anonymous memory that is reserved at once, used as needed, and given back when idle.
//!
//! # Safety
//! A [`Region`] owns its mapping; pointers into it are handed out raw, because the kernel may write there.
#![expect(unsafe_code, reason = "mappings are made and given back by address")]

use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::Result;

/// Page-aligned anonymous memory, zero until written.
#[derive(Debug)]
pub struct Region {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread; access is governed by whoever holds pointers.
unsafe impl Send for Region {}

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

    /// Gives the memory back; it reads as zeroes afterwards.
    ///
    /// # Safety
    /// Nobody, the kernel included, may be using the region's bytes or rely on what they hold.
    ///
    /// # Errors
    /// Those of `madvise`.
    pub unsafe fn give_back(&self) -> Result<()> {
        // SAFETY: the range is this mapping's own, and nobody relies on its bytes (the caller's promise).
        unsafe { madvise(self.start.as_ptr().cast(), self.len, Advice::LinuxDontNeed) }
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
        unsafe { region.give_back() }.expect("madvise");
        // SAFETY: inside the mapping.
        assert_eq!(unsafe { byte.read() }, 0);
    }
}
