//! Memory of words that outlives the process that writes it, for whoever comes after it.
//!
//! It is a file in memory whose length is sealed, so that no holder of its descriptor can make an access fault by cutting it. All words are
//! atomic: what another process writes, whatever it is, is a value of each.
//!
//! # Safety
//! A [`SharedWords`] owns its mapping, which is as long as the sealed file and only ever used as atomic words.
#![expect(unsafe_code, reason = "memory is mapped that processes share")]

use std::ffi::CStr;
use std::ops::{Deref, Range};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate,
    memfd_create,
};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use crate::{OsError, Result};

const WORD_LEN: usize = size_of::<AtomicU64>();
/// What keeps the file as long as it is.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Words in a file in memory, zero until they are written. Nothing is used of the memory that was not touched.
#[derive(Debug)]
pub struct SharedWords {
    start: NonNull<AtomicU64>,
    count: usize,
    file: OwnedFd,
}

// SAFETY: the mapping belongs to the process, and its words are atomic.
unsafe impl Send for SharedWords {}
// SAFETY: as above.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// `count` words; `name` is for whoever looks at `/proc/PID/fd`.
    ///
    /// # Errors
    /// EMFILE, ENOMEM; EINVAL for none at all.
    pub fn create(name: &CStr, count: usize) -> Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = match memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
            // Older than Linux 6.3.
            Err(OsError::INVAL) => memfd_create(name, flags)?,
            made => made?,
        };
        ftruncate(&file, len(count)? as u64)?;
        fcntl_add_seals(&file, SEALS)?;
        Self::open(file, count)
    }

    /// Those in a file that [`SharedWords::create`] made.
    ///
    /// # Errors
    /// EINVAL where the file is not so long or not sealed, ENOMEM.
    pub fn open(file: OwnedFd, count: usize) -> Result<Self> {
        let len = len(count)?;
        let is_sealed = fcntl_get_seals(&file)?.contains(SEALS);
        if !is_sealed || usize::try_from(fstat(&file)?.st_size) != Ok(len) {
            return Err(OsError::INVAL);
        }
        let wanted = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe { mmap(std::ptr::null_mut(), len, wanted, MapFlags::SHARED, &file, 0) }?;
        let start = NonNull::new(start.cast::<AtomicU64>()).ok_or(OsError::NOMEM)?;
        Ok(Self { start, count, file })
    }

    /// Sees to it that there is memory for these words: to write to them cannot fault then.
    ///
    /// # Errors
    /// ENOMEM, ENOSPC; EINVAL where they are not within the file.
    pub fn reserve(&self, words: Range<usize>) -> Result<()> {
        let (offset, len) = self.bytes(words)?;
        fallocate(&self.file, FallocateFlags::KEEP_SIZE, offset, len)
    }

    /// Maps the memory of these words, which is there, at once: otherwise each page costs a fault when it is first written. Without effect where
    /// the kernel cannot.
    pub fn touch(&self, words: Range<usize>) {
        if self.bytes(words.clone()).is_err() {
            return;
        }
        // The mapping begins at a page.
        let page = rustix::param::page_size() / WORD_LEN;
        let words = &self[words.start / page * page..words.end];
        let start = words.as_ptr().cast_mut().cast();
        // SAFETY: the range is within the mapping, and no word of it changes.
        let _mapped = unsafe { madvise(start, size_of_val(words), Advice::LinuxPopulateWrite) };
    }

    /// Makes all words of a range of whole pages zero, and gives their memory back.
    ///
    /// # Errors
    /// EINVAL where they are not within the file.
    pub fn clear(&self, words: Range<usize>) -> Result<()> {
        let (offset, len) = self.bytes(words)?;
        fallocate(&self.file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len)
    }

    fn bytes(&self, words: Range<usize>) -> Result<(u64, u64)> {
        if words.start >= words.end || words.end > self.count {
            return Err(OsError::INVAL);
        }
        Ok(((words.start * WORD_LEN) as u64, ((words.end - words.start) * WORD_LEN) as u64))
    }
}

fn len(count: usize) -> Result<usize> {
    count.checked_mul(WORD_LEN).filter(|len| *len > 0 && i64::try_from(*len).is_ok()).ok_or(OsError::INVAL)
}

impl Deref for SharedWords {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has so many words, is aligned to a page, lives as long as `self`, and the file cannot be cut (it is sealed).
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

impl AsFd for SharedWords {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `open` and is unmapped once. Failure would leak, nothing more.
        let _unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.count * WORD_LEN) };
    }
}

#[cfg(test)]
mod test {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn what_one_mapping_writes_another_reads() {
        let one = SharedWords::create(c"test", 1000).expect("memory");
        one.reserve(0..1000).expect("memory");
        assert_eq!(one.reserve(0..1001), Err(OsError::INVAL));
        let copy = one.as_fd().try_clone_to_owned().expect("a duplicate");
        let other = SharedWords::open(copy, 1000).expect("the same file");
        one[999].store(7, Ordering::Relaxed);
        drop(one);
        assert_eq!(
            (other.len(), other[0].load(Ordering::Relaxed), other[999].load(Ordering::Relaxed)),
            (1000, 0, 7)
        );
        other.clear(512..1000).expect("is within");
        assert_eq!(other[999].load(Ordering::Relaxed), 0);
        assert_eq!(other.clear(0..1001), Err(OsError::INVAL));
    }

    /// How many pages this thread had to wait for that were in memory already.
    fn minor_faults() -> u64 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").expect("there is one");
        // The name, which is in brackets, may have spaces.
        let (_, rest) = stat.rsplit_once(')').expect("has a name");
        rest.split_whitespace().nth(7).and_then(|count| count.parse().ok()).expect("is a number")
    }

    #[test]
    fn words_that_were_touched_cost_no_fault() {
        const PAGES: usize = 256;
        let page = rustix::param::page_size() / WORD_LEN;
        let words = SharedWords::create(c"test", (PAGES + 2) * page).expect("memory");
        let range = page + 3..(PAGES + 1) * page + 3;
        words.reserve(range.clone()).expect("memory");
        words.touch(range.clone());
        words.touch(0..words.len() + 1);
        let before = minor_faults();
        for word in words[range].iter().step_by(page) {
            word.store(7, Ordering::Relaxed);
        }
        let faults = minor_faults() - before;
        assert!(faults < PAGES as u64 / 4, "{faults} faults for {PAGES} pages");
    }

    #[test]
    fn what_could_be_cut_or_is_shorter_is_refused() {
        let words = SharedWords::create(c"test", 1000).expect("memory");
        let copy = || words.as_fd().try_clone_to_owned().expect("a duplicate");
        assert_eq!(ftruncate(copy(), 8), Err(OsError::PERM), "it is sealed");
        assert_eq!(SharedWords::open(copy(), 1001).err(), Some(OsError::INVAL));
        let loose = memfd_create(c"test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("memory");
        ftruncate(&loose, 8000).expect("grows");
        assert_eq!(SharedWords::open(loose, 1000).err(), Some(OsError::INVAL));
        let file = std::fs::File::open("/dev/null").expect("opens");
        assert!(SharedWords::open(file.into(), 1000).is_err(), "it has no seals");
        assert_eq!(SharedWords::create(c"test", 0).err(), Some(OsError::INVAL));
    }
}
