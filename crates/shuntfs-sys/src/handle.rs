//! File handles: names of lower files that outlive descriptors and restarts.
//!
//! # Safety
//! The kernel is given a buffer of its own layout (`struct file_handle`) that is as large as its head says.
#![expect(unsafe_code, reason = "neither rustix nor libc has the calls for handles")]

use std::ffi::{CStr, c_int, c_uint};
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::stat::FsMagic;
use crate::{OsError, Result, faults, raw};

/// `MAX_HANDLE_SZ` of the kernel.
const BYTES_MAX: usize = 128;
/// Handles up to this size are kept without an allocation.
const INLINE_MAX: usize = 24;

/// A lower file's name for open_by_handle_at(2), valid on the file system that gave it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct FileHandle(Repr);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Repr {
    /// Bytes beyond `len` are zero, so that the derived comparisons hold.
    Inline {
        len: u8,
        kind: i32,
        bytes: [u8; INLINE_MAX],
    },
    Boxed {
        kind: i32,
        bytes: Box<[u8]>,
    },
}

const _: () = assert!(size_of::<FileHandle>() == 32);

/// `struct file_handle` of the kernel with room for any handle.
#[repr(C)]
struct RawHandle {
    len: c_uint,
    kind: c_int,
    bytes: [u8; BYTES_MAX],
}

impl FileHandle {
    /// A handle from its parts, as they were written down; `None` for more than 128 bytes.
    #[must_use]
    pub fn new(kind: i32, bytes: &[u8]) -> Option<Self> {
        if bytes.len() > BYTES_MAX {
            return None;
        }
        let mut inline = [0; INLINE_MAX];
        let repr = match (inline.get_mut(..bytes.len()), u8::try_from(bytes.len())) {
            (Some(room), Ok(len)) => {
                room.copy_from_slice(bytes);
                Repr::Inline { len, kind, bytes: inline }
            }
            _ => Repr::Boxed { kind, bytes: bytes.into() },
        };
        Some(Self(repr))
    }

    /// The kernel's type of the handle (`FILEID_*`).
    #[must_use]
    pub fn kind(&self) -> i32 {
        match self.0 {
            Repr::Inline { kind, .. } | Repr::Boxed { kind, .. } => kind,
        }
    }

    /// The bytes that the file system chose.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes, .. } => bytes.get(..usize::from(*len)).unwrap_or(bytes),
            Repr::Boxed { bytes, .. } => bytes,
        }
    }

    /// The inode number inside the handle, for the file systems whose layout is known here.
    #[must_use]
    pub fn inode(&self, magic: FsMagic) -> Option<u64> {
        match self.layout(magic)? {
            Layout::Ino32 => self.word(0).map(u64::from),
            Layout::Ino64 => self.double(0),
            Layout::GenerationFirst => {
                let (low, high) = (self.word(1)?, self.word(2)?);
                Some(u64::from(high) << 32 | u64::from(low))
            }
            Layout::Btrfs => self.double(0),
        }
    }

    /// The inode's generation inside the handle, for the file systems whose layout is known here.
    #[must_use]
    pub fn generation(&self, magic: FsMagic) -> Option<u32> {
        match self.layout(magic)? {
            Layout::Ino32 => self.word(1),
            Layout::Ino64 => self.word(2),
            Layout::GenerationFirst => self.word(0),
            Layout::Btrfs => self.word(4),
        }
    }

    /// The handle of another inode of the same file system; `None` where the layout is not known here or has no room for the number.
    #[must_use]
    pub fn of_other(&self, magic: FsMagic, inode: u64, generation: u32) -> Option<Self> {
        let layout = self.layout(magic)?;
        let mut bytes = self.bytes().to_vec();
        let (number, at, generation_at) = match layout {
            Layout::Ino32 => (&u32::try_from(inode).ok()?.to_ne_bytes()[..], 0, 4),
            Layout::Ino64 => (&inode.to_ne_bytes()[..], 0, 8),
            // The low half comes first on every machine.
            Layout::GenerationFirst => {
                bytes.get_mut(8..12)?.copy_from_slice(&u32::try_from(inode >> 32).ok()?.to_ne_bytes());
                (&u32::try_from(inode & u64::from(u32::MAX)).ok()?.to_ne_bytes()[..], 4, 0)
            }
            Layout::Btrfs => (&inode.to_ne_bytes()[..], 0, 16),
        };
        bytes.get_mut(at..at + number.len())?.copy_from_slice(number);
        bytes.get_mut(generation_at..generation_at + 4)?.copy_from_slice(&generation.to_ne_bytes());
        Self::new(self.kind(), &bytes)
    }

    fn layout(&self, magic: FsMagic) -> Option<Layout> {
        match (magic, self.kind()) {
            (FsMagic::EXT | FsMagic::F2FS | FsMagic::XFS, FILEID_INO32_GEN)
            | (FsMagic::XFS, FILEID_INO32_GEN_PARENT) => Some(Layout::Ino32),
            (FsMagic::XFS, XFS_INO64 | XFS_INO64_PARENT) => Some(Layout::Ino64),
            (FsMagic::BTRFS, FILEID_BTRFS_WITHOUT_PARENT) => Some(Layout::Btrfs),
            (FsMagic::TMPFS, FILEID_INO32_GEN) if self.bytes().len() == 12 => Some(Layout::GenerationFirst),
            _ => None,
        }
    }

    fn word(&self, index: usize) -> Option<u32> {
        let bytes = self.bytes().get(index * 4..)?;
        bytes.first_chunk().map(|word| u32::from_ne_bytes(*word))
    }

    fn double(&self, index: usize) -> Option<u64> {
        let bytes = self.bytes().get(index * 8..)?;
        bytes.first_chunk().map(|double| u64::from_ne_bytes(*double))
    }
}

const FILEID_INO32_GEN: i32 = 1;
const FILEID_INO32_GEN_PARENT: i32 = 2;
const FILEID_BTRFS_WITHOUT_PARENT: i32 = 0x4d;
/// `XFS_FILEID_TYPE_64FLAG` on [`FILEID_INO32_GEN`] and [`FILEID_INO32_GEN_PARENT`].
const XFS_INO64: i32 = 0x81;
const XFS_INO64_PARENT: i32 = 0x82;

/// How a file system writes a handle, from the `encode_fh` of each.
enum Layout {
    /// ino u32, generation u32 (`fs/libfs.c`).
    Ino32,
    /// ino u64, generation u32 (`fs/xfs/xfs_export.h`).
    Ino64,
    /// generation u32, ino low u32, ino high u32 (`mm/shmem.c`).
    GenerationFirst,
    /// objectid u64, root u64, generation u32 (`fs/btrfs/export.h`).
    Btrfs,
}

impl fmt::Debug for FileHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileHandle({:#x}:", self.kind())?;
        for byte in self.bytes() {
            write!(f, "{byte:02x}")?;
        }
        f.write_str(")")
    }
}

/// The handle of `name`, a symlink itself included, and the id of the mount it was reached through.
///
/// # Errors
/// What name_to_handle_at(2) gives: ENOENT, ENOTDIR; EOPNOTSUPP where the file system has no handles.
pub fn handle_at(dir: impl AsFd, name: &CStr) -> Result<(FileHandle, i32)> {
    faults::point()?;
    encode(dir.as_fd().as_raw_fd(), name, 0)
}

/// The handle of an open file, for which an `O_PATH` descriptor will do, and the id of its mount.
///
/// # Errors
/// What name_to_handle_at(2) gives; EOPNOTSUPP where the file system has no handles.
pub fn handle_of(fd: impl AsFd) -> Result<(FileHandle, i32)> {
    faults::point()?;
    encode(fd.as_fd().as_raw_fd(), c"", libc::AT_EMPTY_PATH)
}

/// As [`handle_of`], but only to tell files apart: file systems that cannot open by handle give one, too (Linux 6.5).
///
/// # Errors
/// What name_to_handle_at(2) gives; EINVAL on kernels that know no such handles.
pub fn identifier_of(fd: impl AsFd) -> Result<(FileHandle, i32)> {
    faults::point()?;
    const AT_HANDLE_FID: c_int = 0x200;
    encode(fd.as_fd().as_raw_fd(), c"", libc::AT_EMPTY_PATH | AT_HANDLE_FID)
}

fn encode(dir: RawFd, name: &CStr, flags: c_int) -> Result<(FileHandle, i32)> {
    let room = c_uint::try_from(BYTES_MAX).unwrap_or(c_uint::MAX);
    let mut handle = RawHandle { len: room, kind: 0, bytes: [0; BYTES_MAX] };
    let mut mount_id: c_int = 0;
    let (to, id) = (&raw mut handle, &raw mut mount_id);
    // SAFETY: `name` is a C string; `handle` has the room that its head announces; `mount_id` is an int.
    let done = unsafe { libc::syscall(libc::SYS_name_to_handle_at, dir, name.as_ptr(), to, id, flags) };
    raw::check(done)?;
    let len = usize::try_from(handle.len).map_err(|_| OsError::IO)?;
    let bytes = handle.bytes.get(..len).ok_or(OsError::IO)?;
    let handle = FileHandle::new(handle.kind, bytes).ok_or(OsError::IO)?;
    Ok((handle, mount_id))
}

/// Opens the file behind a handle; `mount` is any descriptor on the file system that gave it, except an `O_PATH` one.
///
/// # Errors
/// ESTALE where the file is gone, EPERM without CAP_DAC_READ_SEARCH, EBADF where `mount` will not do, else what
/// open(2) gives.
pub fn open_by_handle(mount: impl AsFd, handle: &FileHandle, flags: u32) -> Result<OwnedFd> {
    faults::point()?;
    let bytes = handle.bytes();
    let len = c_uint::try_from(bytes.len()).map_err(|_| OsError::INVAL)?;
    let mut wanted = RawHandle { len, kind: handle.kind(), bytes: [0; BYTES_MAX] };
    wanted.bytes.get_mut(..bytes.len()).ok_or(OsError::INVAL)?.copy_from_slice(bytes);
    let flags = flags | O_CLOEXEC | O_NOCTTY;
    let mount = mount.as_fd().as_raw_fd();
    let mut tries = 0;
    let opened = loop {
        // SAFETY: `wanted` holds as many bytes as its head announces, and the kernel only reads it.
        let opened = unsafe { libc::syscall(libc::SYS_open_by_handle_at, mount, &raw const wanted, flags) };
        match raw::check(opened) {
            // While another file is being made with the inode number of one that is gone, `iget_locked` finds the
            // new inode half made, and ext4 and others call that ENOMEM (fs/inode.c, `find_inode_fast`). It takes
            // the maker moments; then the handle is stale.
            Err(OsError::NOMEM) if tries < BEING_MADE_TRIES => {
                tries += 1;
                std::thread::yield_now();
            }
            outcome => break outcome?,
        }
    };
    let opened = RawFd::try_from(opened).map_err(|_| OsError::IO)?;
    // SAFETY: the kernel has just made this descriptor for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(opened) })
}

/// How often a handle is tried whose inode number is just being given to another file.
const BEING_MADE_TRIES: u32 = 1000;

const O_CLOEXEC: u32 = rustix::fs::OFlags::CLOEXEC.bits();
const O_NOCTTY: u32 = rustix::fs::OFlags::NOCTTY.bits();

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn reads_the_layouts_of_known_file_systems() {
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>();
        let handle = |kind, bytes: &[u8]| FileHandle::new(kind, bytes).unwrap();
        let ext = handle(1, &words(&[12, 99]));
        assert_eq!((ext.inode(FsMagic::EXT), ext.generation(FsMagic::EXT)), (Some(12), Some(99)));
        assert_eq!(ext.inode(FsMagic::BTRFS), None);
        assert_eq!(ext.inode(FsMagic::TMPFS), None);
        let tmpfs = handle(1, &words(&[5, 7, 1]));
        assert_eq!(
            (tmpfs.inode(FsMagic::TMPFS), tmpfs.generation(FsMagic::TMPFS)),
            (Some(1 << 32 | 7), Some(5))
        );
        let ino = (0x1234_5678_9abc_u64).to_ne_bytes();
        let xfs = handle(0x81, &[&ino[..], &words(&[3])].concat());
        assert_eq!(
            (xfs.inode(FsMagic::XFS), xfs.generation(FsMagic::XFS)),
            (Some(0x1234_5678_9abc), Some(3))
        );
        let btrfs = handle(0x4d, &[&ino[..], &5_u64.to_ne_bytes(), &words(&[8])].concat());
        assert_eq!(
            (btrfs.inode(FsMagic::BTRFS), btrfs.generation(FsMagic::BTRFS)),
            (Some(0x1234_5678_9abc), Some(8))
        );
        assert_eq!(handle(0x81, &[1, 2]).inode(FsMagic::XFS), None);
        for (of, magic) in
            [(&ext, FsMagic::EXT), (&tmpfs, FsMagic::TMPFS), (&xfs, FsMagic::XFS), (&btrfs, FsMagic::BTRFS)]
        {
            let (inode, generation) = (of.inode(magic).unwrap(), of.generation(magic).unwrap());
            assert_eq!(of.of_other(magic, inode, generation).as_ref(), Some(of));
            let other = of.of_other(magic, 77, 78).unwrap();
            assert_eq!((other.inode(magic), other.generation(magic)), (Some(77), Some(78)));
            assert_eq!(other.of_other(magic, inode, generation).as_ref(), Some(of));
        }
        assert_eq!(ext.of_other(FsMagic::EXT, 1 << 32, 1), None, "too long");
        assert_eq!(ext.of_other(FsMagic::BTRFS, 1, 1), None, "not its layout");
    }

    #[test]
    fn equal_by_kind_and_bytes() {
        for len in [0, 8, 20, 24, 25, 128] {
            let bytes = vec![7; len];
            let handle = FileHandle::new(1, &bytes).unwrap();
            assert_eq!(handle.bytes(), bytes);
            assert_eq!(handle, FileHandle::new(1, &bytes).unwrap());
            assert_ne!(handle, FileHandle::new(2, &bytes).unwrap());
        }
        assert_eq!(FileHandle::new(1, &[0; 129]), None);
    }
}
