//! System calls that the other crates have no safe form for: record locks, mappings, file ioctls.
//!
//! # Safety
//! Every structure passed to the kernel is a plain C structure on the stack of the caller, of the size the command
//! names; a mapping is only read and written by copying bytes inside the length it was made with.
#![expect(unsafe_code, reason = "these calls exist only as C interfaces")]

use std::ffi::{CString, c_void};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr::{self, NonNull};

use rustix::io::{Errno, Result};
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};

/// Whose lock a record lock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockOwner {
    /// The process: gone with any close of the file by that process.
    Process,
    /// The open file description.
    Description,
}

/// What a record lock does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Many may hold it.
    Shared,
    /// One may hold it.
    Exclusive,
    /// Gives it back.
    Unlock,
}

/// One record lock: `len` 0 means to the end of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// Whose.
    pub owner: LockOwner,
    /// What.
    pub kind: LockKind,
    /// First byte.
    pub start: i64,
    /// Number of bytes, 0 for all that follow.
    pub len: i64,
}

/// Takes, or gives back, a record lock.
///
/// # Errors
/// EAGAIN where it is held by another and `wait` is false; EDEADLK, EINTR, EBADF as fcntl(2) says.
pub fn lock(fd: impl AsFd, lock: &Lock, wait: bool) -> Result<()> {
    let command = match (lock.owner, wait) {
        (LockOwner::Process, false) => libc::F_SETLK,
        (LockOwner::Process, true) => libc::F_SETLKW,
        (LockOwner::Description, false) => libc::F_OFD_SETLK,
        (LockOwner::Description, true) => libc::F_OFD_SETLKW,
    };
    let mut request = request(lock);
    // SAFETY: the structure is a valid flock that lives across the call.
    let answer = unsafe { libc::fcntl(fd.as_fd().as_raw_fd(), command, &raw mut request) };
    checked(answer).map(drop)
}

/// Asks who stands in the way of a lock: its kind, first byte, length and process (-1 for a description's lock).
///
/// # Errors
/// As fcntl(2) says.
pub fn test_lock(fd: impl AsFd, lock: &Lock) -> Result<Option<(LockKind, i64, i64, i32)>> {
    let command = match lock.owner {
        LockOwner::Process => libc::F_GETLK,
        LockOwner::Description => libc::F_OFD_GETLK,
    };
    let mut request = request(lock);
    // SAFETY: the structure is a valid flock that lives across the call.
    let answer = unsafe { libc::fcntl(fd.as_fd().as_raw_fd(), command, &raw mut request) };
    checked(answer)?;
    let kind = match i32::from(request.l_type) {
        libc::F_RDLCK => LockKind::Shared,
        libc::F_WRLCK => LockKind::Exclusive,
        _ => return Ok(None),
    };
    Ok(Some((kind, request.l_start, request.l_len, request.l_pid)))
}

fn request(lock: &Lock) -> libc::flock {
    let kind = match lock.kind {
        LockKind::Shared => libc::F_RDLCK,
        LockKind::Exclusive => libc::F_WRLCK,
        LockKind::Unlock => libc::F_UNLCK,
    };
    libc::flock {
        l_type: i16::try_from(kind).unwrap_or_default(),
        l_whence: 0,
        l_start: lock.start,
        l_len: lock.len,
        l_pid: 0,
    }
}

/// Sends an ioctl whose argument is one `int`, by its bare number: what the C library's names would not let through.
///
/// # Errors
/// As the file system says.
///
/// # Panics
/// The number names an argument that is longer than eight bytes.
pub fn ioctl_int(fd: impl AsFd, number: u32, value: &mut i32) -> Result<()> {
    assert!(number >> 16 & 0x3fff <= 8, "the argument is longer than its buffer");
    let mut buffer = [*value, 0];
    // SAFETY: the kernel reads and writes at most as many bytes as the number names, and the buffer has eight.
    let answer = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), number.into(), &raw mut buffer) };
    let [answered, _] = buffer;
    *value = answered;
    checked(answer).map(drop)
}

/// Cuts a file by its name, without opening it.
///
/// # Errors
/// As the file system says, and EINVAL for a name with a zero byte.
pub fn truncate(path: &Path, len: i64) -> Result<()> {
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::INVAL)?;
    // SAFETY: the path ends with a zero byte.
    checked(unsafe { libc::truncate(path.as_ptr(), len) }).map(drop)
}

/// A mapping of a file, read and written by copying.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

impl Mapping {
    /// Maps `len` bytes from the file's start.
    ///
    /// # Errors
    /// As mmap(2) says: EACCES, ENODEV, EPERM, EINVAL.
    pub fn new(fd: impl AsFd, len: usize, protection: ProtFlags, shared: bool) -> Result<Self> {
        let flags = if shared { MapFlags::SHARED } else { MapFlags::PRIVATE };
        // SAFETY: the kernel picks the address, so no mapping of ours is replaced.
        let start = unsafe { mmap(ptr::null_mut(), len, protection, flags, fd, 0) }?;
        NonNull::new(start.cast()).map(|start| Self { start, len }).ok_or(Errno::FAULT)
    }

    /// Copies bytes out, and is told where a page cannot be had, for which an access would be a signal.
    ///
    /// # Errors
    /// EFAULT.
    ///
    /// # Panics
    /// The range is not inside the mapping.
    pub fn try_load(&self, start: usize, len: usize) -> Result<Vec<u8>> {
        assert!(start.checked_add(len).is_some_and(|end| end <= self.len));
        let mut bytes = vec![0_u8; len];
        let mut filled = 0;
        while filled < len {
            let to = libc::iovec { iov_base: bytes[filled..].as_mut_ptr().cast(), iov_len: len - filled };
            // SAFETY: the sum is inside the mapping.
            let from = unsafe { self.start.as_ptr().add(start + filled) };
            let from = libc::iovec { iov_base: from.cast(), iov_len: len - filled };
            let own = rustix::process::getpid().as_raw_nonzero().get();
            // SAFETY: both describe memory of this process, of the lengths beside them; the kernel writes only to `to`,
            // and tells of pages that cannot be had.
            let copied = unsafe { libc::process_vm_readv(own, &raw const to, 1, &raw const from, 1, 0) };
            match usize::try_from(copied) {
                Ok(copied) if copied > 0 => filled += copied,
                _ => return Err(Errno::FAULT),
            }
        }
        Ok(bytes)
    }

    /// Copies bytes out.
    ///
    /// # Panics
    /// The range is not inside the mapping.
    #[must_use]
    pub fn load(&self, at: usize, len: usize) -> Vec<u8> {
        assert!(at.checked_add(len).is_some_and(|end| end <= self.len), "outside of the mapping");
        let mut bytes = vec![0_u8; len];
        // SAFETY: the offset is inside the mapping, as asserted.
        let from = unsafe { self.start.as_ptr().add(at) };
        // SAFETY: both ranges are valid for `len` bytes and cannot overlap: the vector is fresh.
        unsafe { ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), len) };
        bytes
    }

    /// Copies bytes in.
    ///
    /// # Panics
    /// The range is not inside the mapping.
    pub fn store(&self, at: usize, bytes: &[u8]) {
        assert!(at.checked_add(bytes.len()).is_some_and(|end| end <= self.len), "outside of the mapping");
        // SAFETY: the offset is inside the mapping, as asserted.
        let to = unsafe { self.start.as_ptr().add(at) };
        // SAFETY: both ranges are valid; the mapping is ours alone, no reference to its bytes exists.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    /// Writes a shared mapping's stores through.
    ///
    /// # Errors
    /// As msync(2) says.
    pub fn sync(&self) -> Result<()> {
        // SAFETY: exactly the mapping made in `new`.
        unsafe { msync(self.start.as_ptr().cast::<c_void>(), self.len, MsyncFlags::SYNC) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `new`, and nobody else has its address.
        unsafe { munmap(self.start.as_ptr().cast::<c_void>(), self.len) }.unwrap_or_default();
    }
}

/// `struct fsxattr` of `linux/fs.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fsxattr {
    /// Attribute bits (`FS_XFLAG_*`).
    pub xflags: u32,
    /// Extent size hint.
    pub extsize: u32,
    /// Number of extents.
    pub nextents: u32,
    /// Project id.
    pub projid: u32,
    /// Copy-on-write extent size hint.
    pub cowextsize: u32,
    pad: [u8; 8],
}

const FSGETXATTR: libc::c_ulong = 0x801c_581f;
const FSSETXATTR: libc::c_ulong = 0x401c_5820;
const FIEMAP: libc::c_ulong = 0xc020_660b;
const FIEMAP_EXTENT_SHARED: u32 = 0x2000;
const FIEMAP_FLAG_SYNC: u32 = 1;

/// Reads a file's extended attribute bits.
///
/// # Errors
/// ENOTTY or EOPNOTSUPP where the file system has none.
pub fn fsxattr(fd: impl AsFd) -> Result<Fsxattr> {
    let mut answer = Fsxattr::default();
    // SAFETY: FS_IOC_FSGETXATTR writes exactly one fsxattr.
    let code = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), FSGETXATTR, &raw mut answer) };
    checked(code).map(|_| answer)
}

/// Writes a file's extended attribute bits.
///
/// # Errors
/// As the file system says.
pub fn set_fsxattr(fd: impl AsFd, attributes: &Fsxattr) -> Result<()> {
    let mut request = *attributes;
    // SAFETY: FS_IOC_FSSETXATTR reads exactly one fsxattr.
    let code = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), FSSETXATTR, &raw mut request) };
    checked(code).map(drop)
}

/// An ioctl that no file system knows.
///
/// # Errors
/// ENOTTY, hopefully.
pub fn unknown_ioctl(fd: impl AsFd) -> Result<i32> {
    let mut room = [0_u8; 8];
    // SAFETY: the number encodes a size of 4 bytes, and 8 are there.
    let code = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), 0xc004_7a7f, room.as_mut_ptr()) };
    checked(code)
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct FiemapExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Fiemap {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
    extents: [FiemapExtent; 16],
}

/// Says whether any of a file's first extents is shared with another file.
///
/// # Errors
/// EOPNOTSUPP where the file system cannot tell.
pub fn shares_extents(fd: impl AsFd) -> Result<bool> {
    let mut map = Fiemap { length: u64::MAX, flags: FIEMAP_FLAG_SYNC, extent_count: 16, ..Fiemap::default() };
    // SAFETY: FS_IOC_FIEMAP fills at most `extent_count` extents, and 16 are there.
    let code = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), FIEMAP, &raw mut map) };
    checked(code)?;
    let count = usize::try_from(map.mapped_extents).unwrap_or(0).min(map.extents.len());
    Ok(map.extents[..count].iter().any(|extent| extent.flags & FIEMAP_EXTENT_SHARED != 0))
}

fn checked(answer: i32) -> Result<i32> {
    if answer == -1 {
        let raw = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        return Err(Errno::from_raw_os_error(raw));
    }
    Ok(answer)
}

/// Has the kernel read a file ahead (readahead(2)).
///
/// # Errors
/// As readahead(2) says.
pub fn read_ahead(fd: impl AsFd, len: usize) -> Result<()> {
    // SAFETY: no memory of ours is named.
    let code = unsafe { libc::readahead(fd.as_fd().as_raw_fd(), 0, len) };
    checked(i32::try_from(code).unwrap_or(-1)).map(drop)
}

/// A ring of one operation at a time.
pub struct Ring(io_uring::IoUring);

impl std::fmt::Debug for Ring {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Ring")
    }
}

impl Ring {
    /// Sets one up.
    ///
    /// # Errors
    /// As io_uring_setup(2) says.
    pub fn new() -> std::io::Result<Self> {
        io_uring::IoUring::new(1).map(Self)
    }

    /// Reads at an offset, and waits for it.
    ///
    /// # Errors
    /// What the read gives.
    pub fn read(&mut self, fd: impl AsFd, bytes: &mut [u8], offset: u64) -> std::io::Result<usize> {
        let len = u32::try_from(bytes.len()).map_err(std::io::Error::other)?;
        let fd = io_uring::types::Fd(fd.as_fd().as_raw_fd());
        let read = io_uring::opcode::Read::new(fd, bytes.as_mut_ptr(), len).offset(offset).build();
        // SAFETY: descriptor and memory are borrowed until the completion below.
        unsafe { self.0.submission().push(&read) }.map_err(std::io::Error::other)?;
        loop {
            let waited = self.0.submit_and_wait(1);
            if let Some(done) = self.0.completion().next() {
                let result = done.result();
                return usize::try_from(result).map_err(|_| std::io::Error::from_raw_os_error(-result));
            }
            match waited {
                // Whoever gave the memory back now would have the kernel write to it.
                Err(error) if error.kind() != std::io::ErrorKind::Interrupted => {
                    unreachable!("a ring that was set up waits: {error}")
                }
                _ => {}
            }
        }
    }
}
