//! The bytes of lower files: positioned I/O, space, holes, copies, durability.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::AsFd;

use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::{ReadWriteFlags, retry_on_intr};

use crate::{OsError, Result, faults};

pub use crate::splice::{Pipe, splice_from_pipe, splice_to_pipe};

/// Reads at an offset; 0 at the end of the file.
///
/// # Errors
/// What pread(2) gives.
pub fn read_at(fd: impl AsFd, bytes: &mut [u8], offset: u64) -> Result<usize> {
    faults::point()?;
    retry_on_intr(|| rustix::io::pread(&fd, &mut *bytes, offset))
}

/// Reads at an offset what is cached already; never waits for a disk.
///
/// # Errors
/// EAGAIN where the first byte is not cached, EOPNOTSUPP where the file system cannot tell.
pub fn read_at_cached(fd: impl AsFd, bytes: &mut [u8], offset: u64) -> Result<usize> {
    faults::point()?;
    rustix::io::preadv2(fd, &mut [IoSliceMut::new(bytes)], offset, ReadWriteFlags::NOWAIT)
}

/// Lets the cached bytes of a file go, those that are not to be written yet.
///
/// # Errors
/// What posix_fadvise(2) gives.
pub fn forget_cached(fd: impl AsFd) -> Result<()> {
    faults::point()?;
    rustix::fs::fadvise(fd, 0, None, rustix::fs::Advice::DontNeed)
}

/// Has the kernel read a part of a file into its cache, and does not wait for it. It takes no more at once than the file
/// system's readahead, which is 128 KiB where nobody said otherwise.
///
/// # Errors
/// What posix_fadvise(2) gives.
pub fn read_ahead(fd: impl AsFd, offset: u64, len: u64) -> Result<()> {
    faults::point()?;
    rustix::fs::fadvise(fd, offset, std::num::NonZeroU64::new(len), rustix::fs::Advice::WillNeed)
}

/// Writes at an offset; the descriptor must not be open with `O_APPEND`, which would ignore the offset.
///
/// # Errors
/// What pwrite(2) gives: ENOSPC, EDQUOT, EFBIG, EIO.
pub fn write_at(fd: impl AsFd, bytes: &[u8], offset: u64) -> Result<usize> {
    faults::point()?;
    retry_on_intr(|| rustix::io::pwrite(&fd, bytes, offset))
}

/// Writes several pieces at an offset, as [`write_at`] does one.
///
/// # Errors
/// What pwritev(2) gives.
pub fn write_vectored_at(fd: impl AsFd, pieces: &[IoSlice<'_>], offset: u64) -> Result<usize> {
    faults::point()?;
    retry_on_intr(|| rustix::io::pwritev(&fd, pieces, offset))
}

/// Reserves, frees or rearranges space, with the `FALLOC_FL_*` flags of fallocate(2).
///
/// # Errors
/// What fallocate(2) gives: EOPNOTSUPP, ENOSPC, EINVAL. EINTR is passed on, because part may have been done.
pub fn fallocate(fd: impl AsFd, mode: u32, offset: u64, len: u64) -> Result<()> {
    faults::point()?;
    rustix::fs::fallocate(fd, FallocateFlags::from_bits_retain(mode), offset, len)
}

/// The next offset at or after `offset` that holds data.
///
/// # Errors
/// ENXIO beyond the last data.
pub fn seek_data(fd: impl AsFd, offset: u64) -> Result<u64> {
    faults::point()?;
    rustix::fs::seek(fd, SeekFrom::Data(signed(offset)?))
}

/// The next offset at or after `offset` that is in a hole; the end of the file counts as one.
///
/// # Errors
/// ENXIO beyond the end of the file.
pub fn seek_hole(fd: impl AsFd, offset: u64) -> Result<u64> {
    faults::point()?;
    rustix::fs::seek(fd, SeekFrom::Hole(signed(offset)?))
}

/// Where a file or a block device ends, in bytes; the position of the descriptor goes there.
///
/// # Errors
/// What lseek(2) gives.
pub fn end_of(fd: impl AsFd) -> Result<u64> {
    faults::point()?;
    rustix::fs::seek(fd, SeekFrom::End(0))
}

/// An offset as lseek(2) takes it; nothing can lie beyond the largest.
fn signed(offset: u64) -> Result<u64> {
    if i64::try_from(offset).is_ok() { Ok(offset) } else { Err(OsError::NXIO) }
}

/// Copies inside the kernel, sharing extents where the file system can; may copy less than asked for.
///
/// # Errors
/// What copy_file_range(2) gives: EXDEV and EOPNOTSUPP call for an ordinary copy.
pub fn copy_range(
    from: impl AsFd,
    from_offset: u64,
    to: impl AsFd,
    to_offset: u64,
    len: usize,
) -> Result<usize> {
    faults::point()?;
    retry_on_intr(|| {
        let (mut from_offset, mut to_offset) = (from_offset, to_offset);
        rustix::fs::copy_file_range(&from, Some(&mut from_offset), &to, Some(&mut to_offset), len)
    })
}

/// Makes a file or folder durable, attributes included.
///
/// # Errors
/// What fsync(2) gives; an EIO is told once.
pub fn sync_all(fd: impl AsFd) -> Result<()> {
    faults::point()?;
    // Not repeated after an error: the kernel reports a lost write only once.
    rustix::fs::fsync(fd)
}

/// Makes a file's bytes durable, and of its attributes what is needed to find them.
///
/// # Errors
/// What fdatasync(2) gives; an EIO is told once.
pub fn sync_data(fd: impl AsFd) -> Result<()> {
    faults::point()?;
    rustix::fs::fdatasync(fd)
}

/// Makes the whole file system behind a descriptor durable.
///
/// # Errors
/// What syncfs(2) gives; EBADF for an `O_PATH` descriptor.
pub fn sync_filesystem(fd: impl AsFd) -> Result<()> {
    faults::point()?;
    rustix::fs::syncfs(fd)
}
